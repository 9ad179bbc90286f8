"""A profile of a package, from what the runner measured and what the package's graph knows of each call."""

from __future__ import annotations

import difflib
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Any

from adt.errors import RunError
from adt.host.manifest import strict_converter
from adt.package.files import LIBRARY
from adt.package.inspection.graph import BUILTIN, Call, Graph, size_of
from adt.package.inspection.inspection import Inspection
from adt.package.inspection.profile import EVENTS, HOST_CLOCK, CallArgument, CallTime, KernelTotal, Profile
from adt.package.package import ModelPackage

MIXED = "mixed"


@dataclass(frozen=True)
class Limits:
    """Rates that a device can reach at best; None: not known, and nothing is compared with it."""

    gflops: float | None = None
    gbps: float | None = None

    def roof(self, intensity: float | None) -> float | None:
        """Return the 10⁹ operations a second that *intensity*, operations a byte, allows; None: not known."""
        if intensity is None or self.gflops is None or self.gbps is None:
            return None
        return min(self.gflops, intensity * self.gbps)


def kernel_totals(calls: Sequence[CallTime], limits: Limits, *, emulated: bool) -> tuple[KernelTotal, ...]:
    """Make a row for each kernel, in the order of first calls; an emulator's times give no speeds."""
    groups: dict[tuple[str, str], list[tuple[int, CallTime]]] = {}
    for at, call in enumerate(calls):
        groups.setdefault((call.name, call.device), []).append((at, call))
    clock = EVENTS if any(call.clock == EVENTS for call in calls) else HOST_CLOCK
    whole = sum(call.mean_us for call in calls if call.clock == clock)
    totals = []
    for rows in groups.values():
        counted = [call.mean_us for _, call in rows if call.clock == clock]
        share = sum(counted) / whole if counted and whole > 0 else None
        totals.append(_total(rows[0][0], [call for _, call in rows], share, limits, emulated=emulated))
    return tuple(totals)


def _total(
    first: int, calls: Sequence[CallTime], share: float | None, limits: Limits, *, emulated: bool
) -> KernelTotal:
    """Add up *calls*; *share* is None where all their times are by another clock than the shares."""
    clocks = {call.clock for call in calls}
    mean = sum(call.mean_us for call in calls)
    flops, moved = _sum([call.flops for call in calls]), _sum([call.bytes for call in calls])
    intensity = flops / moved if flops is not None and moved else None
    return KernelTotal(
        name=calls[0].name,
        kind=calls[0].kind,
        device=calls[0].device,
        clock=clocks.pop() if len(clocks) == 1 else MIXED,
        calls=len(calls),
        first=first,
        mean_us=mean,
        min_us=sum(call.min_us for call in calls),
        max_us=sum(call.max_us for call in calls),
        share=share,
        flops=flops,
        bytes=moved,
        intensity=intensity,
        gflops=None if emulated else _per_us(flops, mean),
        gbps=None if emulated else _per_us(moved, mean),
        roof_gflops=limits.roof(intensity),
        shapes=tuple(dict.fromkeys(call.shapes for call in calls if call.arguments)),
    )


def _per_us(count: int | None, us: float) -> float | None:
    return count / us / 1e3 if count is not None and us > 0 else None


def _sum(values: Sequence[int | None]) -> int | None:
    return None if None in values else sum(value or 0 for value in values)


Key = Callable[[KernelTotal], tuple[bool, float] | float]
SORTS: dict[str, Key] = {
    "time": lambda row: (row.share is None, -row.mean_us),
    "calls": lambda row: -row.calls,
    "order": lambda row: row.first,
    "gflops": lambda row: -(row.gflops or 0.0),
    "flops": lambda row: -(row.flops or 0),
}
"""Orders of a table; each puts the first row first."""
UNTIMED = ("calls", "order", "flops")
"""Orders that tell nothing of times."""


DYNAMIC = "vm.builtin.call_tir_dyn"
"""The VM's name of a kernel whose shapes are known at run time only; which one, it does not tell."""


@dataclass(frozen=True)
class MeasuredCall:
    name: str
    builtin: bool
    arguments: tuple[CallArgument, ...]
    host_us: tuple[float, ...]
    """One for each run."""
    device_us: tuple[float, ...] | None
    """One for each run; None: the device gives none."""
    depth: int = 0
    """0 for a call of the entry itself; a call's times include those of the deeper ones that follow it."""


@dataclass(frozen=True)
class RunnerProfile:
    runs: int
    total_us: tuple[float, ...]
    """Whole runs, with the clocks."""
    calls: tuple[MeasuredCall, ...]


def read_report(raw: Any) -> RunnerProfile:
    """Read the ``profile`` object of rtvm's report, or the answer of the remote function ``adt.profile``."""
    try:
        report: RunnerProfile = strict_converter(pass_over=True).structure(raw, RunnerProfile)
        times = [report.total_us, *(call.host_us for call in report.calls)]
        times += [call.device_us for call in report.calls if call.device_us is not None]
        if report.runs < 1 or any(len(each) != report.runs for each in times):
            raise ValueError("runs are missing")
        return report
    except Exception as error:  # cattrs raises what it meets
        raise RunError(
            "the runner gave no profile of the calls",
            remedy="Build the bundle again (adt build-target): its runner does not fit this adt.",
            details=f"{type(error).__name__}: {error}",
        ) from error


def join(report: RunnerProfile, graph: Graph | None, device: str) -> tuple[tuple[CallTime, ...], list[str]]:
    """Join every call that was measured, in order, with the entry of *graph* (if there is one) for it.

    Returns notes on where run and graph differ, too. *device* (``cpu`` or ``opencl``) runs the kernels that
    the graph does not know.
    """
    known = graph.calls if graph else ()
    places = align([call.name for call in report.calls], [call.name for call in known])
    by_name = {call.name: call for call in known}
    calls = []
    for at, place in enumerate(places):
        # a call elsewhere than in the graph has kind and arithmetic of one of the same name
        alike = known[place] if place >= 0 else by_name.get(report.calls[at].name)
        calls.append(_call(report.calls, at, place, alike, graph, device))
    if graph is None:
        return tuple(calls), ["the package has no graph of these calls: FLOPs are unknown"]
    strange = [call.name for call in calls if call.index < 0 and call.kind != BUILTIN]
    missed = len(graph.calls) - sum(place >= 0 for place in places)
    notes = []
    if strange:
        count = f"{len(strange)} of {len(calls)} calls"
        notes.append(f"{count} are not where the graph has them: {strange[0]}, …")
    if missed:
        notes.append(f"{missed} of the graph's {len(graph.calls)} calls did not run: a branch not taken")
    return tuple(calls), notes


def align(ran: Sequence[str], graph: Sequence[str]) -> list[int]:
    """Find the place in the graph of each call that ran, in order; -1 for those that the graph has not.

    What the graph leaves out (the VM's bookkeeping) and what did not run (a branch) is passed over.
    """
    known = {*graph, DYNAMIC}
    asked = [at for at, name in enumerate(ran) if name in known]
    names = [ran[at] for at in asked]
    if len(names) == len(graph):  # a dynamic call stands for the one in its place
        named = [own if name == DYNAMIC else name for name, own in zip(names, graph, strict=True)]
        names = named if named == list(graph) else names
    places = [-1] * len(ran)
    for block in difflib.SequenceMatcher(None, names, list(graph), autojunk=False).get_matching_blocks():
        for offset in range(block.size):
            places[asked[block.a + offset]] = block.b + offset
    return places


def _call(
    calls: Sequence[MeasuredCall], at: int, place: int, known: Call | None, graph: Graph | None, device: str
) -> CallTime:
    """Describe the call *at* of those that ran, which is *known* to *graph*, there at *place*."""
    measured = calls[at]
    # of the calls below it, those that it made itself: their time is not its own
    deeper = takewhile(lambda call: call.depth > measured.depth, islice(calls, at + 1, None))
    inner = [call.host_us for call in deeper if call.depth == measured.depth + 1]
    kind, where = known.kind if known else "", graph.device_of(known) if graph and known else device
    if measured.builtin:
        kind, where = BUILTIN, "vm"
    host = [max(0.0, us - sum(other[run] for other in inner)) for run, us in enumerate(measured.host_us)]
    events = None if inner else measured.device_us
    times = host if events is None else events
    return CallTime(
        place,
        known.name if known else measured.name,
        statistics.mean(times),
        min(times),
        max(times),
        kind,
        where,
        HOST_CLOCK if events is None else EVENTS,
        statistics.mean(host),
        measured.arguments,
        _results(measured, known),
        known.flops if known else None,
        None if measured.builtin or inner else _moved(measured, graph, known),
    )


def _results(measured: MeasuredCall, known: Call | None) -> int:
    """Return the number of last arguments that are written; the VM's own calls return what they make."""
    if measured.builtin or known is None:
        return 0
    tensors = len(known.inputs) + len(known.outputs)
    return len(known.outputs) if len(measured.arguments) >= tensors else 0


def _moved(measured: MeasuredCall, graph: Graph | None, known: Call | None) -> int | None:
    """Sum the bytes of what the call reads and writes, each tensor once."""
    sizes: list[int | None] = []
    if graph and known:
        sizes = [graph.tensors[index].bytes for index in {*known.inputs, *known.outputs}]
    if not sizes or None in sizes:  # an extent was not known when it was compiled
        sizes = [size_of(argument.shape, argument.dtype) for argument in measured.arguments]
    return None if not sizes or None in sizes else sum(size or 0 for size in sizes)


MAIN = "main"
"""The entry that a package's graph describes."""


@dataclass(frozen=True)
class ProfilePlace:
    label: str
    emulated: bool | None
    """Its processor is emulated; None: nobody knows."""
    via: str
    """``native`` or ``rpc``."""
    device_name: str = ""
    """Name of the device in the runtime; empty: unknown."""
    device_type: str = ""
    """``cpu``, ``gpu`` or ``accelerator``; empty: unknown."""


def assemble(
    package: ModelPackage,
    entry: str,
    raw: Any,
    where: ProfilePlace,
    *,
    plain_us: Sequence[float] = (),
    limits: Limits | None = None,
) -> Profile:
    """Assemble the profile of *package* from the runner's *raw* one and times of plain runs (µs)."""
    report, target = read_report(raw), package.manifest.target
    inspection = Inspection(package)
    graph = inspection.graph if inspection.recorded and entry == MAIN else None
    calls, notes = join(report, graph, target.device)
    name = f"{where.label}, {where.device_name}" if target.device != "cpu" else where.label
    limits = limits or Limits()
    return Profile(
        library_sha256=package.manifest.files[LIBRARY].sha256,
        device=name.rstrip(", "),
        emulated=where.emulated is True,
        runs=len(report.total_us),
        calls=calls,
        package=package.manifest.name,
        entry=entry,
        via=where.via,
        target=f"{target.name} on {target.platform}",
        device_type=where.device_type,
        plain_us=sum(plain_us) / len(plain_us) if plain_us else None,
        profiled_us=sum(report.total_us) / len(report.total_us),
        peak_gflops=limits.gflops,
        peak_gbps=limits.gbps,
        kernels=kernel_totals(calls, limits, emulated=where.emulated is True),
        notes=(*notes, *_cautions(where, target.device)),
    )


def _cautions(where: ProfilePlace, device: str) -> list[str]:
    if where.emulated:
        return ["emulated: not a device's speed"]
    cautions = []
    if where.emulated is None:
        cautions.append("whether its processor is emulated is not known: only a real one's times are a speed")
    if device == "opencl" and where.device_type == "cpu":
        cautions.append(f"OpenCL on a CPU ({where.device_name}): the times are not a GPU's")
    return cautions
