"""Times of a package's calls at one place: what `adt profile` finds out, and `adt inspect --html` reads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from adt.errors import MismatchError
from adt.host import manifest
from adt.package.files import LIBRARY
from adt.package.manifest import PackageManifest

SCHEMA = "adt.profile"
SCHEMA_VERSION = 1
HOST_CLOCK, EVENTS = "host", "event"
"""Clocks: the host's around a call and the wait for its device, and the device's own (its events)."""


@dataclass(frozen=True)
class CallArgument:
    """A tensor that a call was given; kernels write into their last ones."""

    shape: tuple[int, ...]
    dtype: str
    scope: str = "global"
    """Memory scope; images have one that starts with ``global.texture``."""

    @property
    def text(self) -> str:
        """``float32[1, 8, 16, 16]``; of an image ``float32[1, 2, 16, 16, 4] texture``."""
        image = " texture" if "texture" in self.scope else ""
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]{image}"


@dataclass(frozen=True)
class CallTime:
    """Duration of one call, without those that it made in turn."""

    index: int
    """Its place in the graph's calls; -1 for what is not among them, as the VM's own bookkeeping."""
    name: str
    mean_us: float
    min_us: float
    max_us: float
    """Microseconds, over the runs, by the call's clock."""
    kind: str = ""
    """As in the graph; ``builtin`` for the VM's own; empty: unknown."""
    device: str = ""
    """``opencl``, ``cuda``, ``cpu``, ``library`` or ``vm``; empty: unknown."""
    clock: str = HOST_CLOCK
    """``event``: the device's own clock; ``host``: the host's, with launch and synchronisation."""
    host_us: float | None = None
    """Mean by the host's clock, whatever the call's clock is."""
    arguments: tuple[CallArgument, ...] = ()
    results: int = 0
    """Number of the arguments that it wrote: the last ones."""
    flops: int | None = None
    """Operations; None: unknown."""
    bytes: int | None = None
    """Bytes of the tensors that it reads and writes, each once; None: unknown."""

    @property
    def shapes(self) -> str:
        """Shapes read and written: ``float32[1, 4], float32[4, 8] → float32[1, 8]``."""
        read = len(self.arguments) - self.results
        sides = (self.arguments[:read], self.arguments[read:])
        return " → ".join(", ".join(argument.text for argument in side) for side in sides if side)


@dataclass(frozen=True)
class KernelTotal:
    """All calls of one kernel in one run of the model."""

    name: str
    kind: str
    device: str
    """As of its calls."""
    clock: str
    """``event``, ``host``, or ``mixed`` when its calls are by different clocks."""
    calls: int
    first: int
    """Its first call's place in the order of execution."""
    mean_us: float
    min_us: float
    max_us: float
    """Sums over its calls, microseconds."""
    share: float | None
    """Share of :attr:`Profile.counted_us`, 0 to 1; None: by another clock than that."""
    flops: int | None
    bytes: int | None
    """Bytes of its calls together; None when they are unknown for one of them."""
    intensity: float | None
    """Operations for each byte."""
    gflops: float | None
    """Achieved, 10⁹ operations a second; None: unknown, or its processor is emulated."""
    gbps: float | None
    """Achieved, 10⁹ bytes a second; None likewise."""
    roof_gflops: float | None
    """Rate that the device could reach at this intensity; None: its limits are not known."""
    shapes: tuple[str, ...]
    """Shapes that its calls read and write, each different one once."""


@dataclass(frozen=True)
class Profile:
    """Times of one package at one place."""

    library_sha256: str
    """The mod.so that ran."""
    device: str
    """Description of what it ran on."""
    emulated: bool
    """It ran on a virtual device: the times say nothing about a phone."""
    runs: int
    calls: tuple[CallTime, ...]
    """In the order of execution."""
    package: str = ""
    """The package's name."""
    entry: str = "main"
    via: str = "native"
    """``native`` or ``rpc``."""
    target: str = ""
    """Description of what the package is compiled for."""
    device_type: str = ""
    """``cpu``, ``gpu`` or ``accelerator``; ``cpu`` with OpenCL: PoCL or the like. Empty: unknown."""
    plain_us: float | None = None
    """A run without looking at the calls, mean; None: not measured."""
    profiled_us: float | None = None
    """A run with it, mean, with what the clocks cost."""
    peak_gflops: float | None = None
    """Rate of the device's arithmetic, 10⁹ operations a second; None: not known."""
    peak_gbps: float | None = None
    """Rate of its memory, 10⁹ bytes a second; None: not known."""
    kernels: tuple[KernelTotal, ...] = ()
    """The calls, kernel by kernel, in the order of their first ones."""
    notes: tuple[str, ...] = ()
    """Notes for a reader, in sentences."""
    schema: str = SCHEMA
    schema_version: int = SCHEMA_VERSION

    @property
    def total_us(self) -> float:
        """The means of all calls together."""
        return sum(call.mean_us for call in self.calls)

    @property
    def event_timed(self) -> bool:
        """True if the device's own clock timed calls."""
        return any(call.clock == EVENTS for call in self.calls)

    @property
    def counted_us(self) -> float:
        """Sum that shares are of: the means of all calls by the device's clock, without it of all calls.

        Times of different clocks do not add up: what the host does while it waits for nothing
        (the VM's bookkeeping) runs beside the device, and costs a synchronisation only here.
        """
        clock = EVENTS if self.event_timed else HOST_CLOCK
        return sum(call.mean_us for call in self.calls if call.clock == clock)

    @property
    def clock(self) -> str:
        """Clocks that the times are from, as the rest of a sentence."""
        events = sum(call.clock == EVENTS for call in self.calls)
        host = "the host's clock, with launch and synchronisation of each call"
        if not events:
            return host
        return f"the device's clock (its events) for {events} of {len(self.calls)} calls; else {host}"


def load_profile(path: Path, package: PackageManifest) -> Profile:
    """Read a profile of *package*; MismatchError for another package's."""
    profile = manifest.load(
        Profile, path, schema=SCHEMA, version=SCHEMA_VERSION, remedy="Profile the package again.", users=True
    )
    if profile.library_sha256 != package.files[LIBRARY].sha256:
        raise MismatchError(
            f"{path} has the times of another compile than {package.name}",
            remedy="Profile this package, or name the package that was profiled.",
        )
    return profile
