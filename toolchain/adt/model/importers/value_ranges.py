"""What a model's graph tells of the values of its inputs and outputs.

Which integer inputs pick rows of a table, and of how many, and which are flags; which outputs are dequantized
integers. All importers give Relax, so one walk over it serves every format.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from adt.model.package.manifest import INDEX, UNKNOWN, USUAL, TensorSpec, ValueRange
from adt.model.passes.nodes import relax_nodes

FLAGS = re.compile(r"mask|token_type|type_id|segment_id", re.IGNORECASE)
"""Names of integer inputs that are 0 or 1."""
LENGTHS = re.compile(r"(^|_)(length|len|lengths|lens|seqlens?|seq_?lens?)($|_)", re.IGNORECASE)
"""Names of integer inputs that count elements of another input."""
MOVES = frozenset(
    f"relax.{name}"
    for name in (
        "astype", "broadcast_to", "concat", "expand_dims", "flatten", "flip", "memory.copy", "permute_dims",
        "repeat", "reshape", "split", "squeeze", "stack", "strided_slice", "tile",
    )
)  # fmt: skip
"""Operators that move elements and leave their values."""
READS = frozenset(
    f"relax.{name}" for name in ("take", "gather_elements", "gather_nd", "scatter_elements", "scatter_nd")
)
"""Operators that pick elements of their first argument by their second."""
WRAPS = frozenset({"relax.scatter_elements"})
"""Those whose kernels let negative indices count from the end."""
CALCULATES = frozenset(
    f"relax.{name}"
    for name in (
        "abs", "add", "cumsum", "divide", "floor_divide", "maximum", "minimum", "multiply", "negative",
        "subtract", "sum", "where",
    )
)  # fmt: skip
"""Operators through which a range cannot be followed."""


def with_ranges(specs: Sequence[TensorSpec], module: Any) -> tuple[TensorSpec, ...]:
    """*specs*, of ``main``'s first parameters, with what is known of integer inputs' values."""
    import numpy as np

    graph = _Graph(module["main"])
    ranged: list[TensorSpec] = []
    for spec, parameter in zip(specs, graph.function.params, strict=False):
        dtype = np.dtype(spec.dtype) if spec.dtype != "bfloat16" else None
        if dtype is None or dtype.kind not in "iu":
            ranged.append(spec)
            continue
        values = _values(spec, parameter, graph, specs)
        if values is not None:
            limits = np.iinfo(dtype)
            values = replace(
                values, least=max(values.least, int(limits.min)), most=min(values.most, int(limits.max))
            )
        ranged.append(replace(spec, values=values))
    return tuple(ranged)


@dataclass(frozen=True)
class _Read:
    """Elements that an input picks."""

    parameter: Any
    rows: int
    """How many there are to pick from; 0: a calculation lies between, and the range is unknown."""
    negative: bool
    """Counting from the end is understood."""
    offset: int
    """What is added to the input's values before."""
    checked: bool
    """A value outside would read other memory."""


class _Graph:
    """The bindings of a function."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self._values = {
            binding.var: binding.value for block in function.body.blocks for binding in block.bindings
        }

    def value(self, expr: Any) -> Any:
        """What *expr* is bound to; itself where it is no variable of the function's body."""
        while expr in self._values:
            expr = self._values[expr]
        return expr

    def calls(self) -> Iterator[tuple[str, Any]]:
        """Name and call of each operator."""
        for value in self._values.values():
            if name := operator(value):
                yield name, value


def operator(expr: Any) -> str:
    """The operator that *expr* calls; empty when it is no such call."""
    return str(getattr(getattr(expr, "op", None), "name", ""))


def _values(
    spec: TensorSpec, parameter: Any, graph: _Graph, specs: Sequence[TensorSpec]
) -> ValueRange | None:
    reads = [read for read in _reads(graph) if read.parameter.same_as(parameter)]
    known = [read for read in reads if read.rows]
    if known:
        return ValueRange(
            INDEX if all(read.checked for read in known) else USUAL,
            least=max(-read.offset - (read.rows if read.negative else 0) for read in known),
            most=min(read.rows - 1 - read.offset for read in known),
        )
    if FLAGS.search(spec.name) or _is_flag(parameter, graph):
        return ValueRange(USUAL, 0, 1)
    if LENGTHS.search(spec.name):
        extents = [extent for other in specs if other is not spec for extent in other.shape[:2]]
        return ValueRange(USUAL, 1, min((n for n in extents if isinstance(n, int) and n > 1), default=1))
    return ValueRange(UNKNOWN, 0, 0) if reads else None


def _reads(graph: _Graph) -> Iterator[_Read]:
    for name, call in graph.calls():
        if name not in READS:
            continue
        rows = _rows(name, call)
        # Where there are several counts, one number cannot be the limit of all.
        checked = len(set(rows)) == 1 and str(getattr(call.attrs, "mode", "fast")) == "fast"
        if rows:
            start = _Read(None, min(rows), name in WRAPS, 0, checked)
            yield from _inputs_behind(call.args[1], start, graph)


def _rows(name: str, call: Any) -> list[int]:
    """How many elements there are along each axis that the indices count; empty where that is open."""
    shape = _extents(call.args[0])
    if shape is None:
        return []
    if name.endswith("_nd"):
        first = int(getattr(call.attrs, "batch_dims", 0))
        indices = _extents(call.args[1])
        return shape[first : first + indices[-1]] if indices else []
    axis = getattr(call.attrs, "axis", None)
    return [math.prod(shape)] if axis is None else [shape[int(axis)]]


def _inputs_behind(expr: Any, read: _Read, graph: _Graph) -> Iterator[_Read]:
    """Yield the integer inputs whose values become the indices *expr*, each with what it may be.

    Each value is looked at once for what it may be: there are more ways to it than anybody can walk.
    """
    pending, seen = [(expr, read)], set[tuple[Any, _Read]]()
    while pending:
        expr, read = pending.pop()
        value = graph.value(expr)
        if (value, read) in seen:
            continue
        seen.add((value, read))
        name = operator(value)
        if type(value).__name__ == "Var":
            if any(value.same_as(parameter) for parameter in graph.function.params):
                yield replace(read, parameter=value)
        elif type(value).__name__ == "TupleGetItem":
            pending.append((value.tuple_value, read))
        elif type(value).__name__ == "Tuple":
            pending += [(field, read) for field in value.fields]
        elif name in MOVES:
            pending.append((value.args[0], read))
        elif name == "relax.where" and _counts_from_the_end(value, graph):
            pending.append((value.args[2], replace(read, negative=True)))
        elif name in ("relax.add", "relax.subtract") and (shift := _scalar(value.args[1], graph)) is not None:
            offset = read.offset + (shift if name == "relax.add" else -shift)
            pending.append((value.args[0], replace(read, offset=int(offset))))
        elif name in CALCULATES:
            arguments = value.args[1 if name == "relax.where" else 0 :]
            pending += [(argument, replace(read, rows=0, offset=0)) for argument in arguments]


def _counts_from_the_end(where: Any, graph: _Graph) -> bool:
    """``where(i < 0, i + rows, i)``, as importers write an index that may be negative."""
    condition = graph.value(where.args[0])
    return (
        operator(condition) == "relax.less"
        and graph.value(condition.args[0]).same_as(graph.value(where.args[2]))
        and _scalar(condition.args[1], graph) == 0
    )


def _is_flag(parameter: Any, graph: _Graph) -> bool:
    """Whether an input is used as a condition: made a bool, taken from 1, or compared with 0 or 1."""

    def comes_from_it(expr: Any) -> bool:
        value = graph.value(expr)
        while operator(value) in MOVES and type(graph.value(value.args[0])).__name__ != "Tuple":
            value = graph.value(value.args[0])
        return bool(value.same_as(parameter))

    for name, call in graph.calls():
        if name == "relax.astype" and str(call.attrs.dtype) == "bool" and comes_from_it(call.args[0]):
            return True
        if name == "relax.subtract" and _scalar(call.args[0], graph) == 1 and comes_from_it(call.args[1]):
            return True
        if (
            name in ("relax.equal", "relax.not_equal", "relax.greater")
            and _scalar(call.args[1], graph) in (0, 1)
            and comes_from_it(call.args[0])
        ):
            return True
    return False


def _scalar(expr: Any, graph: _Graph) -> float | None:
    """The number that *expr* is everywhere; None when it is no constant."""
    value = graph.value(expr)
    if type(value).__name__ != "Constant":
        return None
    numbers = value.data.numpy()
    return float(numbers.flat[0]) if numbers.size and (numbers == numbers.flat[0]).all() else None


def _extents(expr: Any) -> list[int] | None:
    """The shape of *expr*; None where it is open."""
    shape = getattr(getattr(expr.struct_info, "shape", None), "values", None)
    try:
        return None if shape is None else [int(extent) for extent in shape]
    except (TypeError, ValueError):
        return None


def rounds_within(main: Any) -> bool:
    """Whether *main* makes 8 bits of other numbers."""
    from tvm import relax

    def rounds(call: Any) -> bool:
        made = getattr(call.struct_info, "dtype", "")
        return made in ("int8", "uint8") and operator(call) in ("relax.quantize", "relax.astype")

    return any(rounds(call) for call in relax_nodes(main, relax.Call))


NOT_STEEPER = frozenset(
    f"relax.{name}"
    for name in (
        "clip", "expand_dims", "flatten", "nn.relu", "nn.softmax", "permute_dims", "reshape", "sigmoid",
        "split", "squeeze", "strided_slice", "tanh",
    )
)  # fmt: skip
"""Operators between dequantizing and the output that change by no more than their input does."""


def output_quanta(main: Any, names: Sequence[str]) -> dict[str, float]:
    """The outputs of *main* that are dequantized by a constant scale, with the greatest scale.

    Operators of :data:`NOT_STEEPER` may come after that.

    Args:
        names: of the outputs, in order.
    """
    from tvm import relax

    graph = _Graph(main)

    def quantum(expr: Any) -> float:
        expr = graph.value(expr)
        while (part := isinstance(expr, relax.TupleGetItem)) or operator(expr) in NOT_STEEPER:
            expr = graph.value(expr.tuple_value if part else expr.args[0])
        scale = graph.value(expr.args[1]) if operator(expr) == "relax.dequantize" else None
        return float(scale.data.numpy().max()) if isinstance(scale, relax.Constant) else 0.0

    body = graph.value(main.body.body)
    fields = list(body.fields) if isinstance(body, relax.Tuple) else [body]
    quanta = {name: quantum(field) for name, field in zip(names, fields, strict=True)}
    return {name: value for name, value in quanta.items() if value}
