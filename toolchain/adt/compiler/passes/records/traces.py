"""TVM's traces as text: the decisions and steps that make a schedule of a workload, and rules for them.

A trace is applied to a kernel by TVM, which takes whatever it says: an annotation
``pragma_import_llvm`` puts machine code of its author's into the package, and a decision for
a step that does not exist writes where no list is. Records come from files that others made, so each step,
attribute and value is one that MetaSchedule's rules or adt's own write, or the trace is refused by name.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from adt.compiler.passes.records.schedule_limits import fault
from adt.errors import last_line
from adt.package.graphs import GraphError, check_index_map
from adt.package.inspection.graph import CPU_FINISH, CPU_SCHEDULE

MOST_BYTES = 8 << 20
MOST_STEPS = 20_000
VARIABLE = re.compile(r"[bvlr_]\w{0,15}|None")
"""A name that an earlier step gave to a block, loop or number."""
NAME = re.compile(r"[\w.\- ,]{1,200}")
"""Name of a block, a buffer or an intrinsic of TVM's; or words about a schedule."""
SCOPE = re.compile(r"global|local|shared|global\.texture(-\w+)?|warp")
"""Memory that adt's targets have."""
MOST_STRIDE = 1024
"""Elements that a row of a buffer may be aligned to."""
AXIS = re.compile(r"(blockIdx|threadIdx|vthread)\.[xyz]|vthread")


class TraceError(Exception):
    """A trace is no trace, says what no schedule rule writes, or does not apply to the workload."""


def trace_text(trace: Any) -> str:
    """Write TVM's *trace* as one line of JSON; traces with the same steps, and no others, have the same."""
    return _line(_plain(trace.as_json()))


def canonical(text: str) -> str:
    """Return :func:`trace_text` for a trace's JSON *text* from elsewhere, which :func:`check_trace` takes."""
    return _line(check_trace(text))


def scheduled(module: Any, text: str) -> Any:
    """Return TVM's Schedule of the workload *module* by the trace *text*, or raise a TraceError."""
    from tvm import s_tir

    steps = check_trace(text)
    schedule = s_tir.Schedule(module, debug_mask="none", error_render_level="fast")
    try:
        s_tir.schedule.Trace.apply_json_to_schedule(steps, schedule)
    except Exception as error:  # ScheduleError, InternalError, ValueError, TypeError, KeyError, …
        raise TraceError(last_line(error)) from error
    if reason := fault(module["main"], schedule.mod["main"]):
        raise TraceError(reason)
    return schedule


def check_trace(text: str) -> Any:
    """Return the steps and decisions of the trace *text*; TraceError unless it may be applied."""
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
    """Normalize *value* of a trace, which writers of TVM's may have written in several ways.

    Its files have 1 for 1.0 and for True, and reading takes either; index maps are JSON in a text, of one
    line or of many, with the version of TVM that wrote it.
    """
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, str) and value.startswith("{"):
        with contextlib.suppress(ValueError):
            graph = json.loads(value)
            graph.pop("metadata", None)
            return _line(graph)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return int(value) if isinstance(value, int) or value.is_integer() else value
    return _plain(value.value)  # IntImm or FloatImm


def _line(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) or (isinstance(value, str) and bool(VARIABLE.fullmatch(value)))


def _text(pattern: re.Pattern[str]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and bool(pattern.fullmatch(value.strip('"')))


_intrinsic = _text(re.compile(r"[\w.]{0,100}"))
_NUMBERS = (
    "parallel", "vectorize", "unroll_explicit", "unroll_implicit", "cooperative_fetch", "cache_type",
    "random_compute_producer", "layout_rewrite_preproc", "thread_extent_low_inclusive",
    "thread_extent_high_inclusive",
)  # fmt: skip
ANNOTATIONS: Mapping[str, Callable[[Any], bool]] = {
    **dict.fromkeys(
        (f"pragma_{name}" for name in ("auto_unroll_max_step", "unroll_explicit", "loop_partition_hint")),
        _number,
    ),
    **dict.fromkeys((CPU_SCHEDULE, CPU_FINISH), _text(NAME)),
    **dict.fromkeys((f"meta_schedule.{name}" for name in _NUMBERS), _number),
    "meta_schedule.tiling_structure": _text(re.compile(r"[SR]{1,16}")),
    "meta_schedule.inline_rule": _text(re.compile(r"disable")),
    "meta_schedule.auto_tensorize": _intrinsic,
    "meta_schedule.auto_tensorize_init": _intrinsic,
}
"""Annotations that rules write, and what their value may be."""
REMOVED = ("schedule_rule",)
"""Annotations of workloads that rules take away, besides those that they write."""

_PLAIN = (
    # Handles and choices, which change nothing by themselves.
    "EnterPostproc", "SampleCategorical", "SamplePerfectTile", "SamplePartitionedTile",
    "SampleComputeLocation", "GetSBlock", "GetLoops", "GetChildBlocks", "GetProducers", "GetConsumers",
    "GetOutputBlocks",
    # Loops. TVM guards what a part computes beyond the end, and refuses to let sums run in parallel;
    # :mod:`adt.compiler.passes.records.schedule_limits` bounds how large unrolled and vectorized ones get.
    "Merge", "Fuse", "LoopPartition", "Reorder", "ReorderBlockIterVar", "AddUnitLoop", "Parallel",
    "Vectorize", "Unroll", "Blockize",
    # The time and place at which a block is computed. TVM checks that all it reads is there.
    "ReIndex", "ComputeAt", "ReverseComputeAt", "ComputeInline", "ReverseComputeInline",
    # Sums in parts: the same terms in another order, and zeros as padding, which :mod:`adt.numerics` allows.
    "DecomposeReduction", "DecomposePadding", "PadEinsum", "RFactor",
)  # fmt: skip
"""Steps whose arguments are numbers, names and lists of them."""


def _annotate(inputs: list[Any], attrs: list[Any]) -> str:
    key, value = (attrs or [None])[0], (inputs or [None])[-1]
    if key not in ANNOTATIONS:
        return f"the annotation {key!r}"
    return "" if ANNOTATIONS[key](value) else f"the value {value!r} of {key}"


def _unannotate(inputs: list[Any], attrs: list[Any]) -> str:
    key = (attrs or [None])[0]
    return "" if key in ANNOTATIONS or key in REMOVED else f"the annotation {key!r}"


def _bind(inputs: list[Any], attrs: list[Any]) -> str:
    axis = (attrs or inputs or [None])[-1]
    return "" if _text(AXIS)(axis) else f"the axis {axis!r}"


def _in_memory(inputs: list[Any], attrs: list[Any]) -> str:
    scope = (attrs or [None])[-1]
    return "" if _text(SCOPE)(scope) else f"the memory {scope!r}"


def _tensorize(inputs: list[Any], attrs: list[Any]) -> str:
    intrinsic = (attrs or [None])[0]
    return "" if _intrinsic(intrinsic) else f"the intrinsic {intrinsic!r}"


def _split(inputs: list[Any], attrs: list[Any]) -> str:
    """Refuse a split without a predicate: parts that do not divide a loop go beyond the end of tensors."""
    return "no predicate" if any(attrs[1:]) else ""


def _align(inputs: list[Any], attrs: list[Any]) -> str:
    """Check the attributes: a buffer, an axis, and the divisor and remainder of its stride."""
    whole = len(attrs) == 4 and all(isinstance(value, int) for value in attrs)
    right = whole and 1 <= attrs[2] <= MOST_STRIDE and 0 <= attrs[3] < attrs[2]
    return "" if right else f"the alignment {attrs!r}"


def _transform(inputs: list[Any], attrs: list[Any]) -> str:
    maps = [value for value in (*inputs, *attrs) if isinstance(value, str) and value.startswith("{")]
    try:
        for text in maps:
            check_index_map(text)
    except GraphError as error:
        return f"an index map with {error}"
    return ""


def _layout(inputs: list[Any], attrs: list[Any]) -> str:
    """Check the attributes: a buffer, a side, what pads, and that TVM need not prove that elements stay
    apart.

    Nor can the layout of an argument be changed: see :mod:`adt.compiler.passes.records.schedule_limits`.
    """
    return "padding, or a map that is not proven" if any(attrs[2:]) else _transform(inputs, attrs)


STEPS: Mapping[str, Callable[[list[Any], list[Any]], str]] = {
    **dict.fromkeys(_PLAIN, lambda inputs, attrs: ""),
    "Annotate": _annotate,
    "Unannotate": _unannotate,
    "Split": _split,
    "StorageAlign": _align,
    "Bind": _bind,
    "CacheRead": _in_memory,
    "CacheWrite": _in_memory,
    "ReindexCacheRead": lambda inputs, attrs: _in_memory(inputs, attrs) or _transform(inputs, attrs),
    "SetScope": _in_memory,
    "Tensorize": _tensorize,
    "TransformLayout": _layout,
    "TransformBlockLayout": _transform,
}
"""Steps that rules write, each with a check of its inputs and attributes: empty if they are permitted.

All others of TVM's are refused: UnsafeSetDType, UnsafeHideBufferAccess, AnnotateBufferAccess, ReadAt,
WriteAt, SetAxisSeparator, RollingBuffer, CacheIndex, CacheInplace, ReindexCacheWrite, FuseReductionEpilogue,
and those that a later TVM adds. TVM proves that a TransformBlockLayout is bijective, of a ReindexCacheRead
it does not: :mod:`adt.compiler.passes.records.trial` shows what that computes.
"""


def refusal(steps: list[Any]) -> str:
    """Return what of a trace's JSON, its instructions and decisions, is not permitted; empty: all is."""
    instructions, decisions = steps
    if len(instructions) > MOST_STEPS:
        return f"it has {len(instructions)} steps, over {MOST_STEPS}"
    for number, step in enumerate(instructions):
        if not (isinstance(step, list) and [*map(type, step)] == [str, list, list, list]):
            return f"step {number} is none"
        kind, inputs, attrs, outputs = step
        if kind not in STEPS:
            return f"step {number}, {kind}, is none that schedule rules write"
        if not all(isinstance(name, str) and VARIABLE.fullmatch(name) for name in outputs):
            return f"step {number}, {kind}, names what it gives otherwise than TVM"
        if not (_is_plain(inputs) and _is_plain(attrs)):
            return f"step {number}, {kind}, has arguments that no schedule rule writes"
        if wrong := STEPS[kind](inputs, attrs):
            return f"step {number}, {kind}, has {wrong}, which no schedule rule writes"
    for decision in decisions:
        if not (isinstance(decision, list) and len(decision) == 2 and _is_plain(decision)):
            return "a decision is none"
        if not (isinstance(decision[0], int) and 0 <= decision[0] < len(instructions)):
            return f"it decides step {decision[0]!r} of {len(instructions)}"
    return ""


def _is_plain(value: Any) -> bool:
    """Return True if *value* is a number, a name, an index map or a list of such."""
    if isinstance(value, list):
        return all(_is_plain(part) for part in value)
    if isinstance(value, str):
        return value.startswith("{") or bool(NAME.fullmatch(value.strip('"'))) or value in ("", '""')
    return value is None or isinstance(value, int | float)
