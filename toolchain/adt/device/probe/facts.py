"""What a probe found out about a device.

Everything is optional: a part that could not be read is None, and
:attr:`Probe.missing` says why.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

SCHEMA = "adt.probe"
SCHEMA_VERSION = 1

ANSWERED = "answered"
"""Outcome of an OpenCL library that loads and lists its platforms."""
TVM_VERSION = (1, 2)
"""The oldest OpenCL of a device that TVM's runtime takes."""


@dataclass(frozen=True)
class CpuCluster:
    """CPUs of one kind with one clock."""

    cpus: tuple[int, ...]
    """Their numbers."""
    core: str
    """``Cortex-A55``, …; empty when adt's table does not know the part."""
    part: str
    """Implementer and part as the CPU's ID register gives them (``0x41/0xd05``); empty when not told."""
    min_khz: int | None
    max_khz: int | None
    """Lowest and highest clock of the hardware, kHz."""
    current_khz: int | None
    """Highest clock of its CPUs at the moment of the probe, kHz."""
    governor: str
    """Empty when not told."""


@dataclass(frozen=True)
class Cpu:
    """The processors."""

    clusters: tuple[CpuCluster, ...]
    """The slowest first."""
    features: tuple[str, ...]
    """What every CPU offers, as the kernel names it (``asimddp``, ``fphp``, …)."""


@dataclass(frozen=True)
class Memory:
    """Main memory at the moment of the probe."""

    total: int
    """Bytes."""
    available: int | None
    """Bytes that can be had without swapping; None on kernels that do not say."""


@dataclass(frozen=True)
class ThermalZone:
    """One temperature."""

    kind: str
    """The zone's type, named by the vendor."""
    celsius: float


@dataclass(frozen=True)
class Thermal:
    """The temperatures at the moment of the probe."""

    zones: tuple[ThermalZone, ...]
    unreadable: int
    """Zones that the shell may not read, or that report no plausible temperature."""


@dataclass(frozen=True)
class Android:
    """What Android says of itself."""

    release: str
    api_level: int | None
    abis: tuple[str, ...]
    """The preferred one first."""
    fingerprint: str


@dataclass(frozen=True)
class Gpu:
    """The graphics processor."""

    name: str
    source: str
    """Where the name is from: a file of the kernel, ``OpenCL`` or a property."""


@dataclass(frozen=True)
class OpenclDevice:
    """One OpenCL device; None is what its driver does not answer."""

    name: str | None
    vendor: str | None
    version: str | None
    """``OpenCL 3.0 …``."""
    driver_version: str | None
    opencl_c_version: str | None
    kind: str
    """``gpu``, ``cpu``, ``accelerator``, ``custom`` or ``other``."""
    compute_units: int | None
    max_clock_mhz: int | None
    address_bits: int | None
    max_work_group_size: int | None
    global_memory: int | None
    """Bytes."""
    local_memory: int | None
    """Bytes of one work group."""
    max_allocation: int | None
    """Bytes of one buffer."""
    base_address_alignment_bits: int | None
    unified_memory: bool | None
    """Shared with the CPU."""
    half_vector_width: int | None
    """Preferred vector width of fp16; 0 without fp16."""
    images: bool | None
    image2d_max_width: int | None
    """Texels."""
    image2d_max_height: int | None
    """Texels."""
    image_max_buffer_size: int | None
    """Texels of an image that is made from a buffer, one-dimensional."""
    image_max_array_size: int | None
    """Images of an image array."""
    image_pitch_alignment: int | None
    """Texels that a row of a 2D image made from a buffer is aligned to; 0: it makes none."""
    image_base_address_alignment: int | None
    """Texels that such a buffer's start is aligned to."""
    extensions: tuple[str, ...]

    @property
    def fp16(self) -> bool:
        """Kernels may compute in half precision."""
        return "cl_khr_fp16" in self.extensions

    @property
    def qualcomm(self) -> tuple[str, ...]:
        """Qualcomm's own extensions."""
        return tuple(name for name in self.extensions if name.startswith("cl_qcom_"))

    @property
    def refused_by_tvm(self) -> str:
        """Why TVM's runtime does not work with this device; empty when it does."""
        found = re.match(r"OpenCL (\d+)\.(\d+)", self.version or "")
        if not found or (int(found[1]), int(found[2])) < TVM_VERSION:
            return f"it has {self.version or 'no version'}, and TVM takes OpenCL 1.2 and later"
        if self.image_pitch_alignment is None:
            return (
                "its driver does not answer CL_DEVICE_IMAGE_PITCH_ALIGNMENT, and TVM's runtime stops at that"
            )
        return ""


@dataclass(frozen=True)
class OpenclPlatform:
    """One OpenCL platform: a driver."""

    name: str | None
    vendor: str | None
    version: str | None
    extensions: tuple[str, ...]
    devices: tuple[OpenclDevice, ...]
    error: str | None
    """Why its devices could not be listed."""


@dataclass(frozen=True)
class OpenclCandidate:
    """One library that may be OpenCL's, and what came of opening it."""

    library: str
    """As the dynamic linker was given it: a name or a path."""
    tvm: bool
    """It is one of those that TVM's runtime opens."""
    outcome: str
    """``answered``, ``not-loaded``, ``unusable``, ``crashed`` or ``timed-out``."""
    said: str
    """Why it did not answer, in the dynamic linker's or the driver's words."""
    path: str | None
    """The file that was loaded."""
    platforms: tuple[OpenclPlatform, ...]
    clml_versions: tuple[str, ...]
    """Versions of Qualcomm's CLML that it offers, ``MAJOR.MINOR``."""

    @property
    def absent(self) -> bool:
        """There simply is no such file, in the words of glibc's and of Android's dynamic linker."""
        return self.outcome == "not-loaded" and bool(
            re.search(
                rf"(?:{re.escape(self.library)}: .*No such file|\"{re.escape(self.library)}\" not found)",
                self.said,
            )
        )


@dataclass(frozen=True)
class OpenclReport:
    """What adt_probe found out about OpenCL."""

    candidates: tuple[OpenclCandidate, ...]
    """In the order in which they were tried; TVM's first."""
    taken: str | None
    """The library that TVM's runtime stops at; None: it finds none."""

    @property
    def chosen(self) -> OpenclCandidate | None:
        """The library that TVM's runtime stops at."""
        return next((c for c in self.candidates if c.tvm and c.library == self.taken), None)

    @property
    def platform(self) -> OpenclPlatform | None:
        """The platform of :attr:`device`."""
        platforms = self.chosen.platforms if self.chosen else ()
        return next((p for p in platforms if self.device in p.devices), None)

    @property
    def device(self) -> OpenclDevice | None:
        """The device that TVM's runtime computes on: the first GPU, without one the first CPU."""
        devices = [d for p in (self.chosen.platforms if self.chosen else ()) for d in p.devices]
        for kind in ("gpu", "cpu"):
            for device in devices:
                if device.kind == kind and not device.refused_by_tvm:
                    return device
        return None


@dataclass(frozen=True)
class Probe:
    """One device at one moment."""

    serial: str
    label: str
    """What it is, for people."""
    virtual: bool
    """It is adt's virtual device: an emulator's numbers are no device's."""
    platforms: tuple[str, ...]
    """The platforms whose bundles run here, the preferred one first."""
    boot: str
    """Names the device's present boot; empty when it does not say."""
    when: str
    """Of the probe, UTC, ISO 8601."""
    model: str
    soc: str
    """Model and system on chip; empty when the device does not say."""
    kernel: str
    """``uname -r``."""
    machine: str
    """``uname -m``."""
    page_size: int | None
    """Bytes."""
    selinux: str | None
    """``Enforcing``, ``Permissive`` or ``Disabled``."""
    android: Android | None
    cpu: Cpu | None
    memory: Memory | None
    thermal: Thermal | None
    gpu: Gpu | None
    opencl: OpenclReport | None
    program: str
    """sha256 of the adt_probe that asked for OpenCL; empty without that part."""
    missing: dict[str, str] = field(default_factory=dict)
    """Why a part is None, by the part's name."""
    schema: str = SCHEMA
    schema_version: int = SCHEMA_VERSION
