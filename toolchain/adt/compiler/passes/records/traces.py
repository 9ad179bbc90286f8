"""TVM's traces as text: the decisions and steps that make a schedule of a workload."""

from __future__ import annotations

import json
from typing import Any

from adt.compiler.passes.records.schedule_limits import fault
from adt.compiler.passes.records.trace_rules import refusal
from adt.errors import last_line

MOST_BYTES = 8 << 20


class TraceError(Exception):
    """A trace is no trace, says what no schedule rule writes, or does not apply to the workload."""


def trace_text(trace: Any) -> str:
    """One line of JSON of TVM's *trace*; traces with the same steps, and no others, have the same."""
    return _line(_plain(trace.as_json()))


def canonical(text: str) -> str:
    """The text of :func:`trace_text` for a trace's JSON *text* from elsewhere.

    Raises:
        TraceError: it is no JSON of a trace, or says what no schedule rule writes.
    """
    return _line(_parsed(text))


def check_trace(text: str) -> None:
    """Check that *text* is a trace that may be applied: see :mod:`adt.compiler.passes.records.trace_rules`.

    Raises:
        TraceError: what it says besides, by name.
    """
    _parsed(text)


def apply_trace(module: Any, text: str) -> Any:
    """Schedule the workload *module* by the trace *text*.

    Raises:
        TraceError: *text* is no trace, has a step that no schedule rule writes, or does not apply; or the
            kernel would have other arguments, or be too large (see ``schedule_limits``).
    """
    return scheduled(module, text).mod


def scheduled(module: Any, text: str) -> Any:
    """Return TVM's Schedule of the workload *module* by the trace *text*.

    Raises:
        TraceError: see :func:`apply_trace`.
    """
    from tvm import s_tir

    steps = _parsed(text)
    schedule = s_tir.Schedule(module, debug_mask="none", error_render_level="fast")
    try:
        s_tir.schedule.Trace.apply_json_to_schedule(steps, schedule)
    except Exception as error:  # ScheduleError, InternalError, ValueError, TypeError, KeyError, …
        raise TraceError(last_line(error)) from error
    if reason := fault(module["main"], schedule.mod["main"]):
        raise TraceError(reason)
    return schedule


def _parsed(text: str) -> Any:
    if len(text) > MOST_BYTES:
        raise TraceError(f"it has {len(text)} characters, over {MOST_BYTES}")
    try:
        steps = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"it is no JSON: {error}") from error
    if not (isinstance(steps, list) and len(steps) == 2 and all(isinstance(part, list) for part in steps)):
        raise TraceError("it is no list of instructions and decisions")
    if reason := refusal(steps):
        raise TraceError(reason)
    return _plain(steps)


def _plain(value: Any) -> Any:
    """*value* of a trace as every writer of TVM's may have written it.

    Its files have 1 for 1.0 and for True, and reading takes either; index maps are JSON in a text, of one
    line or of many, with the version of TVM that wrote it.
    """
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, str):
        return _index_map(value) if value.startswith("{") else value
    if value is None or isinstance(value, int):
        return value if value is None else int(value)
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    return _plain(value.value)  # IntImm or FloatImm


def _index_map(text: str) -> str:
    try:
        graph = json.loads(text)
    except ValueError:
        return text
    graph.pop("metadata", None)
    return _line(graph)


def _line(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)
