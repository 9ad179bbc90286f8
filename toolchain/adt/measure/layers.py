"""Find the kernel that computes wrongly: each one that a device ran against the same one on this machine.

A package keeps its kernels as they were before they were scheduled and put into textures
(:mod:`adt.package.graphs`): plain loops that any machine can run. The device gives
the tensors of each call after it was made. With them each kernel is judged twice:

*alone*: the plain kernel computes on what the device's kernel really read. When the results
    differ, this kernel is wrong, whatever happened before it.
*along the run*: the plain kernel computes on what this machine's kernels before it gave. This
    shows where the device's numbers leave the right ones, and how far they go.

The contents of a tensor tell which call wrote it: a tensor that a call read is the one of the same bytes that
a call before it wrote. Inputs, parameters and what was not seen are the device's own. A tensor is as it was
after its call, so that a kernel that changes a tensor in place cannot be compared; the result says so.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, islice
from typing import Any

import numpy as np

from adt.device.place import Place, RtvmOptions
from adt.errors import InputError, RunError
from adt.host.document import form, in_document
from adt.measure.host_kernels import KernelProcess, NotComputable
from adt.numerics import TOLERANCES, Array, Metrics, metrics, relative_difference, steps_allowed
from adt.package.inspection.graph import KERNEL, size_of
from adt.package.inspection.inspection import Inspection
from adt.package.package import ModelPackage


@dataclass(frozen=True)
class KernelCall:
    index: int
    name: str
    scopes: tuple[str, ...]
    arguments: tuple[Array, ...] = ()
    """Its tensors after it was made, once they are fetched."""
    bytes: int = 0


def list_calls(report: Mapping[str, Any]) -> list[KernelCall]:
    """List the calls of kernels in a profile of rtvm."""
    profile = report.get("profile")
    if not profile:
        raise RunError(
            "rtvm did not say which calls it makes",
            remedy="Rebuild the bundle (adt build-target): its rtvm does not fit this adt.",
        )
    calls = []
    for call in profile["calls"]:
        if not call["builtin"]:
            scopes = tuple(str(argument["scope"]) for argument in call["arguments"])
            size = sum(size_of(argument["shape"], argument["dtype"]) or 0 for argument in call["arguments"])
            calls.append(KernelCall(int(call["index"]), str(call["name"]), scopes, bytes=size))
    return calls


def chunks(calls: Sequence[KernelCall], most: int) -> Iterator[list[KernelCall]]:
    """Yield *calls* in groups of at most *most* bytes; a larger call is a group of its own."""
    group, size = list[KernelCall](), 0
    for call in calls:
        if group and size + call.bytes > most:
            yield group
            group, size = [], 0
        group.append(call)
        size += call.bytes
    if group:
        yield group


def tensors_of(dumped: Mapping[str, Array], listed: Sequence[KernelCall]) -> Iterator[KernelCall]:
    """Yield the calls with their tensors in rtvm's arrays ``<index>|<name>|<argument>``, in order."""
    tensors: dict[int, dict[int, Array]] = {}
    for key, array in dumped.items():
        index, _, rest = key.partition("|")
        tensors.setdefault(int(index), {})[int(rest.rpartition("|")[2])] = array
    for call in listed:
        arguments = tensors.get(call.index, {})
        yield replace(call, arguments=tuple(arguments[number] for number in sorted(arguments)))


ROUNDINGS = 4
"""By so many roundings the inputs of a kernel are moved to see what its sums that cancel are worth …"""
MOVED = 4.0
"""Factor of the distance that its results then move, by which they may be off."""
TRIES, TRIES_OF_ROUNDING = 2, 16
"""Number of tries; the latter at most for a kernel that rounds to quanta: each try moves few of the values
that lie on the edge of two."""
ROUNDS = ("quantize", "round")


def _rounded_otherwise(array: Array, seed: int) -> Array:
    """Move each float of *array* by a few roundings; leave other types as they are."""
    if array.dtype.kind != "f":
        return array
    floats: Any = array
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], array.shape)
    factor = 1 + ROUNDINGS * float(np.finfo(floats.dtype).eps) * signs
    with np.errstate(over="ignore"):
        return np.asarray((floats * factor).astype(array.dtype))


log = logging.getLogger("adt.verify")

CHUNK = 256 << 20
"""Bytes of tensors that are fetched from the device at a time."""
REMEMBERED = 1 << 30
"""Bytes of this machine's results that are kept for the calls that read them."""
RIGHT, PASSES_ON, WRONG, NOT_COMPARED = "right", "passes on", "wrong", "not compared"
"""Verdicts: it computes what it should; it does, on numbers that were wrong before it; it computes something
else; it could not be compared."""


ONLY_NAN = "it gives nothing finite, here and on the device"


@dataclass(frozen=True)
class Scan:
    """Choice of kernels, and tolerances."""

    max_rel: float = -1.0
    """Largest difference that passes, as a share of the largest magnitude; negative: by its types."""
    max_steps: int = -1
    """Steps by which an integer may be off; negative: by its type."""
    calls: tuple[int, int] | None = None
    """Only the calls from here up to here (exclusive), as the run counts them."""
    everything: bool = False
    """Go on after the first chunk with a wrong kernel."""
    chunk_bytes: int = CHUNK
    timeout: float | None = None
    """Seconds for each run on the device."""


@dataclass(frozen=True)
class CallTensor:
    shape: tuple[int, ...]
    dtype: str
    scope: str
    """``global``, or with ``texture`` in it: an image."""
    written: bool


@dataclass(frozen=True)
class CallComparison:
    index: int
    """As the run counts its calls."""
    name: str
    operators: tuple[str, ...]
    """Steps that it computes, as TVM calls them."""
    arguments: tuple[CallTensor, ...]
    verdict: str
    """:data:`RIGHT`, :data:`PASSES_ON`, :data:`WRONG`, :data:`NOT_COMPARED`."""
    reason: str = ""
    only_nan: bool = False
    """It gives nothing finite on either machine, and NaN among it: equal NaNs prove nothing."""
    limit: float = 0.0
    """Largest difference that passes."""
    alone: float = 0.0
    """Largest difference on the device's own inputs, as a share of the largest magnitude; of integers
    in steps."""
    along: float = 0.0
    metrics: Metrics | None = None
    """All figures of the output that differs most, alone."""
    output: int = 0
    """Index of that argument."""

    @property
    def texture(self) -> bool:
        return any("texture" in argument.scope for argument in self.arguments)

    @property
    def half(self) -> bool:
        return any(argument.dtype == "float16" for argument in self.arguments)


@dataclass(frozen=True)
class LayerScan:
    """Every call that was looked at, in the order of the run."""

    calls: tuple[CallComparison, ...]
    total: int = field(metadata=form("calls_total"))
    """Number of calls of kernels in the run; fewer were looked at when a wrong one ended it."""
    where: str
    device: str = "cpu"
    """Device of the kernels: ``cpu`` or ``opencl``."""

    @property
    @in_document("first_wrong", lambda calls: calls[0].index if calls else None)
    def wrong(self) -> tuple[CallComparison, ...]:
        """Kernels that compute something else than they should."""
        return tuple(call for call in self.calls if call.verdict == WRONG)

    @property
    @in_document(convert=lambda call: call and call.index)
    def first_diverging(self) -> CallComparison | None:
        """The first call whose numbers are over the limit along the run."""
        return next((call for call in self.calls if call.verdict in (WRONG, PASSES_ON)), None)

    @property
    @in_document("calls_compared")
    def compared(self) -> int:
        """Calls that could be compared."""
        return sum(call.verdict != NOT_COMPARED for call in self.calls)

    @property
    def first_nan(self) -> CallComparison | None:
        """The first call that gives nothing finite on either machine."""
        return next((call for call in self.calls if call.only_nan), None)

    @property
    @in_document()
    def passed(self) -> bool:
        """True if no kernel is wrong, none gives nothing but NaN, and there was one to look at."""
        return self.compared > 0 and not self.wrong and self.first_nan is None


def compare_layers(place: Place, package: ModelPackage, inputs: Mapping[str, Array], scan: Scan) -> LayerScan:
    """Run *package* at *place*, and compare each kernel with the same one on this machine."""
    inspection = Inspection(package)
    calls = inspection.graph.calls if inspection.recorded else ()
    writes = {call.name: len(call.outputs) for call in calls if call.kind == KERNEL}
    manifest = package.manifest
    options = RtvmOptions(entry=manifest.entry().name, device=manifest.target.device)
    ran = place.run(replace(options, profile=1), inputs, timeout=scan.timeout)
    listed = list_calls(ran.report)
    first, end = scan.calls or (0, 1 + max((call.index for call in listed), default=0))
    chosen = [call for call in listed if first <= call.index < end]
    if not chosen:
        raise InputError(
            f"no call of a kernel is in {first}:{end}",
            remedy=f"The run has them from {listed[0].index} to {listed[-1].index}."
            if listed
            else "The package has no kernels.",
        )
    rows: list[CallComparison] = []
    with KernelProcess(package, writes) as kernels:
        comparer = CallComparer(kernels, manifest.precision, scan)
        for chunk in chunks(chosen, scan.chunk_bytes):
            span = (chunk[0].index, chunk[-1].index + 1)
            log.info("comparing calls %d to %d of %d", span[0], span[1] - 1, listed[-1].index)
            dumped = place.run(replace(options, dump_calls=span), inputs, timeout=scan.timeout).calls
            rows += [comparer.compare(call) for call in tensors_of(dumped, chunk)]
            if comparer.wrong and not scan.everything:
                break
    return LayerScan(tuple(rows), len(listed), place.label, manifest.target.device)


class CallComparer:
    """Compares calls, in the order in which they were made."""

    def __init__(self, kernels: KernelProcess, precision: str, scan: Scan) -> None:
        self.kernels = kernels
        self.precision = precision
        self.scan = scan
        self.wrong = 0
        self._here: dict[bytes, Array] = {}
        """Contents of a tensor on the device → what it is along this machine's run."""
        self._size = 0

    def compare(self, call: KernelCall) -> CallComparison:
        row = CallComparison(call.index, call.name, (), _arguments(call, set()), NOT_COMPARED)
        try:
            plain = self.kernels.plain(call.name)
            written = set(plain.outputs)
            alone = self.kernels.run(call.name, call.arguments)
            here = [
                array if number in written else self._along(array)
                for number, array in enumerate(call.arguments)
            ]
            moved = any(mine is not theirs for mine, theirs in zip(here, call.arguments, strict=True))
            along = self.kernels.run(call.name, here) if moved else alone
        except NotComputable as reason:
            return replace(row, reason=str(reason))
        row = replace(row, operators=plain.operators, arguments=_arguments(call, written))
        got = [call.arguments[number] for number in plain.outputs]
        for mine, theirs in zip(along, got, strict=True):
            self._remember(theirs, mine)
        figures = [metrics(a, b) for a, b in zip(got, alone, strict=True)]
        if any(each.nothing_finite and each.nan and each.reference_nan for each in figures):
            return replace(row, reason=ONLY_NAN, only_nan=True)
        limit = self._limit(call.arguments, got)
        each = [relative_difference(a, b) for a, b in zip(got, alone, strict=True)]
        far = [relative_difference(a, b) for a, b in zip(got, along, strict=True)]
        if max(*each, *far) > limit:
            rounds = any(word in operator for operator in plain.operators for word in ROUNDS)
            for noise in islice(self._noise(call, written, alone), TRIES_OF_ROUNDING if rounds else TRIES):
                each = [relative_difference(a, b, n) for a, b, n in zip(got, alone, noise, strict=True)]
                far = [relative_difference(a, b, n) for a, b, n in zip(got, along, noise, strict=True)]
                if max(each) <= limit:
                    break
        worst = max(range(len(each)), key=each.__getitem__)
        verdict = WRONG if each[worst] > limit else PASSES_ON if max(far) > limit else RIGHT
        self.wrong += verdict == WRONG
        row = replace(row, verdict=verdict, limit=limit, alone=each[worst], along=max(far))
        return replace(row, metrics=figures[worst], output=plain.outputs[worst])

    def _limit(self, arguments: Sequence[Array], got: Sequence[Array]) -> float:
        if all(array.dtype.kind != "f" for array in got):
            return float(min(steps_allowed(array.dtype.name, self.scan.max_steps) for array in got))
        if self.scan.max_rel >= 0:
            return self.scan.max_rel
        if any(array.dtype.name == "float16" for array in arguments):
            # A float16 model computes in half precision whatever was asked for.
            return TOLERANCES["float16" if self.precision == "float32" else self.precision].kernel
        return TOLERANCES["float32"].kernel

    def _noise(self, call: KernelCall, written: set[int], alone: Sequence[Array]) -> Iterator[list[Array]]:
        """Yield how far elements of outputs move when inputs are rounded otherwise: after one try, two, …"""
        allowed: list[Any] = [np.zeros(array.shape) for array in alone]
        for seed in count():
            inputs = [
                array if number in written else _rounded_otherwise(array, seed)
                for number, array in enumerate(call.arguments)
            ]
            for number, other in enumerate(self.kernels.run(call.name, inputs)):
                with np.errstate(invalid="ignore"):
                    moved = np.abs(other.astype(np.float64) - alone[number].astype(np.float64))
                moved = np.where(np.isfinite(moved), MOVED * moved, 0.0)
                allowed[number] = np.maximum(allowed[number], moved)
            yield allowed

    def _along(self, array: Array) -> Array:
        """Return this machine's value of a tensor that the device read; itself if it is not known."""
        here = self._here.get(_digest(array))
        return array if here is None else here.reshape(array.shape)

    def _remember(self, device: Array, here: Array) -> None:
        self._here[_digest(device)] = here
        self._size += here.nbytes
        while self._size > REMEMBERED and len(self._here) > 1:
            self._size -= self._here.pop(next(iter(self._here))).nbytes


def _arguments(call: KernelCall, written: set[int]) -> tuple[CallTensor, ...]:
    return tuple(
        CallTensor(array.shape, array.dtype.name, scope, number in written)
        for number, (array, scope) in enumerate(zip(call.arguments, call.scopes, strict=False))
    )


def _digest(array: Array) -> bytes:
    contents = np.ascontiguousarray(array).tobytes()
    return hashlib.blake2b(contents, digest_size=16, key=array.dtype.name.encode()).digest()
