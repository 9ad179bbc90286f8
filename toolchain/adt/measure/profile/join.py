"""What a runner measured of each call, put together with what the package's graph knows of it."""

from __future__ import annotations

import difflib
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adt.errors import RunError
from adt.model.inspection.graph import BUILTIN, Call, Graph, size_of
from adt.model.inspection.profile import EVENTS, HOST_CLOCK, CallArgument, CallTime

DYNAMIC = "vm.builtin.call_tir_dyn"
"""The VM's name of a kernel whose shapes are known at run time only; which one, it does not tell."""


@dataclass(frozen=True)
class Measured:
    """One call as the runner saw it."""

    name: str
    builtin: bool
    depth: int
    """0 for a call of the entry itself; a call's times include those of the deeper ones that follow it."""
    arguments: tuple[CallArgument, ...]
    host_us: tuple[float, ...]
    """One for each run."""
    device_us: tuple[float, ...] | None
    """One for each run; None: the device gives none."""


@dataclass(frozen=True)
class Report:
    """The ``profile`` object of a runner."""

    total_us: tuple[float, ...]
    """Whole runs, with the clocks."""
    calls: tuple[Measured, ...]


def read_report(raw: Any) -> Report:
    """The ``profile`` object of rtvm's report, or what the remote function ``adt.profile`` answers.

    Raises:
        RunError: it is something else.
    """
    try:
        calls = tuple(map(_measured, raw["calls"]))
        report = Report(tuple(map(float, raw["total_us"])), calls)
        runs = int(raw["runs"])
        every = (times for call in calls for times in (call.host_us, call.device_us) if times is not None)
        if runs < 1 or any(len(times) != runs for times in (report.total_us, *every)):
            raise ValueError("runs are missing")
        return report
    except (KeyError, TypeError, ValueError) as why:
        raise RunError(
            "the runner gave no profile of the calls",
            remedy="Build the bundle again (adt build-target): its runner does not fit this adt.",
            details=f"{type(why).__name__}: {why}",
        ) from why


def _measured(raw: Mapping[str, Any]) -> Measured:
    device = raw["device_us"]
    return Measured(
        str(raw["name"]),
        bool(raw["builtin"]),
        int(raw.get("depth", 0)),
        tuple(
            CallArgument(tuple(map(int, a["shape"])), str(a["dtype"]), str(a["scope"]))
            for a in raw["arguments"]
        ),
        tuple(map(float, raw["host_us"])),
        None if device is None else tuple(map(float, device)),
    )


@dataclass(frozen=True)
class Joined:
    """The calls of a profile."""

    calls: tuple[CallTime, ...]
    notes: tuple[str, ...]
    """Where run and graph differ."""


def join(report: Report, graph: Graph | None, device: str) -> Joined:
    """Every call that was measured, in order, with what *graph* says of it.

    Args:
        graph: None: the package has none (its ``inspect/`` was dropped), or it is of another entry.
        device: where kernels run that the graph does not know: ``cpu`` or ``opencl``.
    """
    if graph is None:
        calls = tuple(_call(one, report, at, None, -1, device) for at, one in enumerate(report.calls))
        return Joined(calls, ("the package has no graph of these calls: FLOPs are unknown",))
    places = align([call.name for call in report.calls], [call.name for call in graph.calls])
    by_name = {call.name: call for call in graph.calls}
    calls = tuple(
        _call(one, report, at, graph, places[at], device, by_name.get(one.name))
        for at, one in enumerate(report.calls)
    )
    strange = [call.name for call in calls if call.index < 0 and call.kind != BUILTIN]
    missed = len(graph.calls) - sum(place >= 0 for place in places)
    notes = []
    if strange:
        notes.append(
            f"{len(strange)} of {len(calls)} calls are not where the graph has them: {strange[0]}, …"
        )
    if missed:
        notes.append(f"{missed} of the graph's {len(graph.calls)} calls did not run: a branch not taken")
    return Joined(calls, tuple(notes))


def align(ran: Sequence[str], graph: Sequence[str]) -> list[int]:
    """For each call that ran its place in the graph, in order; -1 for those that the graph has not.

    What the graph leaves out (the VM's bookkeeping) and what did not run (a branch) is passed over.
    """
    known = set(graph)
    asked = [at for at, name in enumerate(ran) if name in known or name == DYNAMIC]
    places = [-1] * len(ran)
    if len(asked) == len(graph) and all(
        ran[at] in (name, DYNAMIC) for at, name in zip(asked, graph, strict=True)
    ):
        for place, at in enumerate(asked):
            places[at] = place
        return places
    names = [ran[at] for at in asked]
    for block in difflib.SequenceMatcher(None, names, list(graph), autojunk=False).get_matching_blocks():
        for offset in range(block.size):
            places[asked[block.a + offset]] = block.b + offset
    return places


def _call(
    measured: Measured,
    report: Report,
    at: int,
    graph: Graph | None,
    place: int,
    device: str,
    alike: Call | None = None,
) -> CallTime:
    """*alike*: a call of the same name in the graph, of which this one has kind and arithmetic."""
    found = graph.calls[place] if graph and place >= 0 else alike
    own = found.name if found else measured.name
    kind = BUILTIN if measured.builtin else found.kind if found else ""
    known = graph.device_of(found) if graph and found else device
    where = "vm" if measured.builtin else known
    inner = _deeper(report.calls, at)
    host = _without(measured.host_us, [call.host_us for call in inner])
    timed = measured.device_us is not None and not inner
    times = measured.device_us if timed and measured.device_us is not None else host
    return CallTime(
        place,
        own,
        statistics.mean(times),
        min(times),
        max(times),
        kind,
        where,
        EVENTS if timed else HOST_CLOCK,
        statistics.mean(host),
        measured.arguments,
        _results(measured, found),
        found.flops if found else None,
        None if measured.builtin or inner else _moved(measured, graph, found),
    )


def _deeper(calls: Sequence[Measured], at: int) -> list[Measured]:
    """The calls that the call *at* made itself."""
    inner = []
    for call in calls[at + 1 :]:
        if call.depth <= calls[at].depth:
            break
        if call.depth == calls[at].depth + 1:
            inner.append(call)
    return inner


def _without(times: Sequence[float], inner: Sequence[Sequence[float]]) -> list[float]:
    return [max(0.0, time - sum(one[run] for one in inner)) for run, time in enumerate(times)]


def _results(measured: Measured, found: Call | None) -> int:
    """How many of the last arguments are written; the VM's own calls return what they make."""
    if measured.builtin or found is None:
        return 0
    given, touched = len(measured.arguments), len(found.inputs) + len(found.outputs)
    return len(found.outputs) if given >= touched else 0


def _moved(measured: Measured, graph: Graph | None, found: Call | None) -> int | None:
    """Bytes of what it reads and writes, each tensor once."""
    sizes: list[int | None] = []
    if graph and found:
        sizes = [graph.tensors[index].bytes for index in {*found.inputs, *found.outputs}]
    if not sizes or None in sizes:  # an extent was not known when it was compiled
        sizes = [size_of(argument.shape, argument.dtype) for argument in measured.arguments]
    return None if not sizes or None in sizes else sum(size or 0 for size in sizes)
