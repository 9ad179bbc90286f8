"""Ranges of the values of a model's inputs and outputs, as its graph tells them.

Which integer inputs pick rows of a table, and of how many, and which are flags; which outputs are dequantized
integers. All importers give Relax, so one walk over it serves every format.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm import relax, tirx

from adt.compiler.ir.nodes import is_call, operator_name, relax_nodes, tir_nodes
from adt.compiler.ir.passes import replaced_calls
from adt.compiler.ir.rewriter import static_shape
from adt.errors import ModelError
from adt.package.manifest import INDEX, UNKNOWN, USUAL, TensorSpec, ValueRange

FLAGS = re.compile(r"mask|token_type|type_id|segment_id", re.IGNORECASE)
"""Names of integer inputs that are 0 or 1."""
LENGTHS = re.compile(r"(^|_)(length|len|lengths|lens|seqlens?|seq_?lens?)($|_)", re.IGNORECASE)
"""Names of integer inputs that count elements of another input."""
_FIRST = (
    "astype", "broadcast_to", "ceil", "concat", "dynamic_strided_slice", "expand_dims", "flatten", "flip",
    "floor", "gather_elements", "gather_nd", "hint_on_device", "index_tensor", "layout_transform", "max",
    "median", "memory.copy", "meshgrid", "min", "nn.dropout", "nn.max_pool1d", "nn.max_pool2d",
    "nn.max_pool3d", "nn.pad", "nn.pixel_shuffle", "nn.relu", "permute_dims", "repeat", "reshape", "round",
    "sort", "split", "squeeze", "stack", "strided_slice", "take", "tile", "to_vdevice", "topk", "tril",
    "triu", "trunc", "unique",
)  # fmt: skip
PASSES: dict[str, tuple[int, ...]] = {f"relax.{name}": (0,) for name in _FIRST} | {
    "relax.full": (1,),
    "relax.full_like": (1,),
    "relax.index_put": (0, 2),
    "relax.scatter_elements": (0, 2),
    "relax.scatter_nd": (0, 2),
    "relax.slice_scatter": (0, 1),
    "relax.where": (1, 2),
}
"""Operators whose results are elements of some of their operands (or zeros), and the operands' places."""
LIMITED = frozenset(
    f"relax.{name}"
    for name in (
        "argmax", "argmin", "argsort", "bucketize", "eye_like", "nonzero", "one_hot", "ones_like", "shape_of",
        "shape_to_tensor", "sign", "size", "vision.all_class_non_max_suppression",
        "vision.non_max_suppression", "zeros_like",
    )
)  # fmt: skip
"""Operators whose results depend on shapes, or are few: no value of an input makes them an index outside."""
ONE_INDEX = ("relax.take", "relax.gather_elements", "relax.scatter_elements")
"""Operators whose second argument is a tensor of indices along one axis."""
READS = (*ONE_INDEX, "relax.gather_nd", "relax.index_put", "relax.index_tensor", "relax.scatter_nd")
"""Operators that pick elements of their first argument by their second."""
_ANY = (-(2**63), 2**63 - 1)
"""Limits of a value that may be any."""
WRAPS = "relax.scatter_elements"
"""Operator whose kernels let negative indices count from the end."""


def with_ranges(specs: Sequence[TensorSpec], module: Any) -> tuple[TensorSpec, ...]:
    """Return *specs*, of ``main``'s first parameters, with what is known of the values of each."""
    graph = _Graph(module["main"], module)
    reads = list(_reads(graph))
    ranged: list[TensorSpec] = []
    for spec, parameter in zip(specs, graph.function.params, strict=False):
        needs = [need for read, need in reads if read.same_as(parameter)]
        dtype = np.dtype(spec.dtype) if spec.dtype != "bfloat16" else None
        if dtype is None or dtype.kind not in "iu":  # a float that becomes an index does so by a calculation
            values = ValueRange(UNKNOWN, 0, 0) if needs else None
        elif values := _values(spec, parameter, needs, graph, specs):
            least, most = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
            values = replace(values, least=max(values.least, least), most=min(values.most, most))
        ranged.append(replace(spec, values=values))
    return tuple(ranged)


def with_bounded_reads(module: Any) -> Any:
    """Limit indices that a condition selects: the range of an input does not keep them inside.

    ``where(ids == -100, 0, ids)`` takes -100, and may be given any number. What is limited here are the reads
    that :func:`_reads` calls not exact for that reason.
    """

    def bounded(builder: Any, call: Any) -> Any:
        name, graph = operator_name(call), _Emitted(builder, module)
        for indices, need in _needs(name, call, graph):
            if any(behind.selected for _, behind in _inputs_behind(indices, need, graph)):
                limited = builder.emit(relax.op.clip(indices, need.least, need.most))
                return relax.Call(call.op, [call.args[0], limited, *call.args[2:]], call.attrs)
        return call

    return replaced_calls("adt.BoundedReads", ONE_INDEX, bounded)(module)


def check_constant_indices(module: Any, values: Mapping[str, Any]) -> None:
    """Refuse reads outside a tensor by a constant or a parameter in *values*.

    Negative indices may count from the end.
    """
    graph = _Graph(module["main"], module)
    for name, call in graph.calls():
        if name not in READS or str(getattr(call.attrs, "mode", "fast")) != "fast":
            continue
        for expr, rows in _indices(name, call, graph):
            constant = graph.value(expr)
            data = getattr(constant, "data", values.get(getattr(constant, "name_hint", "")))
            if data is None:
                continue
            indices, limits = np.atleast_1d(data.numpy()), np.asarray(rows)
            if (outside := indices[(indices < -limits) | (indices >= limits)]).size:
                extents = " × ".join(map(str, rows))
                raise ModelError(
                    f"a constant index of the model is {outside[0]}, where there are {extents} elements",
                    remedy="Check how the model was made: no runtime can compute it.",
                )


@dataclass(frozen=True)
class _Need:
    """Integers that an operator may read by."""

    least: int
    most: int
    exact: bool  # others would read other memory; False: some of them, of several axes or sums
    known: bool = True
    """False: a calculation lies between, and which values of an input become these is not known."""
    selected: bool = False
    """A condition selects which values of an input become these: others may be any."""

    def shifted(self, least: float, most: float) -> _Need:
        """Give what must come in where a constant from *least* to *most* is added."""
        exact = self.exact and least == most
        return replace(self, least=int(self.least - least), most=int(self.most - most), exact=exact)

    def allows(self, least: float, most: float) -> bool:
        """True if every integer from *least* to *most* is allowed."""
        return self.known and self.least <= least and most <= self.most


class _Graph:
    """The bindings of a function."""

    def __init__(self, function: Any, module: Any = None) -> None:
        self.function = function
        self.module = module
        bodies = relax_nodes(function, relax.SeqExpr)  # those of branches, too
        bindings = (binding for body in bodies for block in body.blocks for binding in block.bindings)
        self._values = {binding.var: binding.value for binding in bindings}

    def value(self, expr: Any) -> Any:
        """Return what *expr* is bound to; itself where it is no variable of the function's body."""
        while expr in self._values:
            expr = self._values[expr]
        return expr

    def is_input(self, value: Any) -> bool:
        return any(value.same_as(parameter) for parameter in self.function.params)

    def calls(self) -> Iterator[tuple[str, Any]]:
        """Yield each call with the name of its operator; empty for other functions."""
        for value in self._values.values():
            if type(value).__name__ == "Call":
                yield operator_name(value), value


class _Emitted(_Graph):
    """The bindings that a builder has emitted so far."""

    def __init__(self, builder: Any, module: Any) -> None:
        self._builder = builder
        self.module = module

    def value(self, expr: Any) -> Any:
        while isinstance(expr, relax.Var) and (bound := self._builder.lookup_binding(expr)) is not None:
            expr = bound
        return expr

    def is_input(self, value: Any) -> bool:
        return isinstance(value, relax.Var) and self._builder.lookup_binding(value) is None


def _values(
    spec: TensorSpec, parameter: Any, needs: Sequence[_Need], graph: _Graph, specs: Sequence[TensorSpec]
) -> ValueRange | None:
    known = [need for need in needs if need.known]
    least = max((need.least for need in known), default=0)
    most = min((need.most for need in known), default=0)
    if known and len(known) == len(needs):
        return ValueRange(INDEX if any(need.exact for need in known) else USUAL, least, most)
    is_flag = FLAGS.search(spec.name) or _is_flag(parameter, graph)
    if any(need.exact for need in known):  # of reads with no calculation between, which stay checked
        return ValueRange(INDEX if is_flag and most <= 1 else UNKNOWN, least, most)
    if is_flag:
        return ValueRange(USUAL, 0, 1)
    if LENGTHS.search(spec.name):
        extents = [extent for other in specs if other is not spec for extent in other.shape[:2]]
        return ValueRange(USUAL, 1, min((n for n in extents if isinstance(n, int) and n > 1), default=1))
    return ValueRange(UNKNOWN, 0, 0) if needs else None


def _reads(graph: _Graph) -> Iterator[tuple[Any, _Need]]:
    """Yield the inputs that pick elements, each with what it must be."""
    for name, call in graph.calls():
        if name not in LIMITED and type(call.struct_info).__name__ == "ShapeStructInfo":
            for arg in call.args:  # extents: few values fit
                yield from _inputs_behind(*_unknown(arg), graph)
        for indices, need in _needs(name, call, graph) if name in READS else ():
            for read, behind in _inputs_behind(indices, need, graph):
                limited = name in ONE_INDEX and behind.selected  # by with_bounded_reads
                yield read, replace(behind, exact=False) if limited else behind


def _needs(name: str, call: Any, graph: _Graph) -> Iterator[tuple[Any, _Need]]:
    """Yield the indices of a read, each with what they must be."""
    for indices, rows in _indices(name, call, graph):
        # Where there are several counts, one number cannot be the limit of all.
        exact = len(set(rows)) == 1 and str(getattr(call.attrs, "mode", "fast")) == "fast"
        yield indices, _Need(-min(rows) if name == WRAPS else 0, min(rows) - 1, exact)


def _indices(name: str, call: Any, graph: _Graph) -> Iterator[tuple[Any, Sequence[int]]]:
    """Yield the indices of a read of static shape, and the elements along each axis that they count."""
    shape, indices = static_shape(call.args[0]), static_shape(call.args[1])
    if not shape:
        return
    if name in ("relax.index_put", "relax.index_tensor"):
        for field, extent in zip(getattr(graph.value(call.args[1]), "fields", ()), shape, strict=False):
            yield field, [extent]
    elif name.endswith("_nd"):
        first = int(getattr(call.attrs, "batch_dims", 0))
        if indices:
            yield call.args[1], shape[first : first + indices[-1]]
    else:
        axis = getattr(call.attrs, "axis", None)
        yield call.args[1], [math.prod(shape)] if axis is None else [shape[int(axis)]]


def _inputs_behind(expr: Any, need: _Need, graph: _Graph) -> Iterator[tuple[Any, _Need]]:
    """Yield the inputs whose values become the indices *expr*, each with what it may be."""
    ways, seen = [(expr, need)], set()
    while ways:
        expr, need = ways.pop()
        value = graph.value(expr)
        if (value, need) in seen:
            continue
        seen.add((value, need))
        kind = type(value).__name__
        if kind == "Var" and graph.is_input(value):
            yield value, need
        elif kind == "TupleGetItem":
            of_topk = operator_name(graph.value(value.tuple_value)) == "relax.topk"
            if value.index == 0 or not of_topk:  # topk's indices lie within its axis
                ways.append((value.tuple_value, need))
        elif kind == "Tuple":
            ways += [(field, need) for field in value.fields]
        elif kind == "If":
            ways += [(value.true_branch.body, need), (value.false_branch.body, need)]
        elif kind == "Call" and getattr(value.struct_info, "dtype", "") != "bool":
            ways += _ways(value, need, graph)


def _ways(call: Any, need: _Need, graph: _Graph) -> list[tuple[Any, _Need]]:
    """Return the operands that give the values of *call*, each with what it must be."""
    name, args = operator_name(call), list(call.args)
    if name in LIMITED:
        return []
    if name == "relax.where" and need.known and (rows := _counts_from_the_end(call, graph)):
        return [(args[2], replace(need, least=max(need.least, 0) - int(rows[0])))]
    if _selects(call, graph):
        need = replace(need, selected=True)
    if name == "relax.call_tir" and graph.module and _only_moves(graph.module[args[0]]):
        return [(args[1], need)]
    if name in PASSES:
        return [(args[place], need) for place in PASSES[name] if place < len(args)]
    if name in ("relax.maximum", "relax.minimum", "relax.clip"):
        return _clipped(name, args, need, graph)
    operands = [arg for arg in args if not _bounds(arg, graph)]
    if not need.known or len(operands) != 1 or len(args) > 2:
        return [_unknown(operand) for operand in operands]
    number = _bounds(args[-1], graph) if operands[0] is args[0] else None
    if name == "relax.floor_mod" and number and number[0] > 0 and need.allows(0, number[1] - 1):
        return []
    if name == "relax.subtract" and number is None:  # a constant less the operand
        name, need = "relax.add", replace(need, least=-need.most, most=-need.least)
        least, most = _bounds(args[0], graph) or (0, 0)
        number = (-most, -least)
    before = _before(name, need, number or _bounds(args[0], graph) or (0, 0), first=number is not None)
    return [(operands[0], before) if before else _unknown(operands[0])]


def _before(name: str, need: _Need, number: tuple[float, float], *, first: bool) -> _Need | None:
    """Return the need of an operand whose result with a constant of the bounds *number* must meet *need*.

    None if it is unknown. *first*: the operand is the call's first argument.
    """
    least, most = number
    if name == "relax.negative":
        return replace(need, least=-need.most, most=-need.least)
    if name == "relax.add":
        return need.shifted(least, most)
    if name == "relax.subtract":
        return need.shifted(-most, -least)
    if least != most or most <= 0:
        return None
    if name == "relax.multiply":
        return replace(need, least=math.ceil(need.least / most), most=math.floor(need.most / most))
    if name == "relax.floor_divide" and first:
        return replace(need, least=int(need.least * most), most=int(need.most * most + most - 1))
    return None


def _only_moves(kernel: Any) -> bool:
    """True if each element that *kernel* writes is one that it reads, or a constant."""

    def is_moved(value: Any) -> bool:
        if isinstance(value, tirx.Select):
            return is_moved(value.true_value) and is_moved(value.false_value)
        if is_call(value, "tirx.if_then_else"):
            return all(map(is_moved, value.args[1:]))
        return isinstance(value, (tirx.BufferLoad, tirx.IntImm, tirx.FloatImm))

    return all(is_moved(store.value) for store in tir_nodes(kernel.body, tirx.BufferStore))


def _unknown(expr: Any) -> tuple[Any, _Need]:
    """Return *expr* with a calculation behind it that no range can be followed through."""
    return expr, _Need(0, 0, exact=False, known=False)


def _clipped(name: str, args: Sequence[Any], need: _Need, graph: _Graph) -> list[tuple[Any, _Need]]:
    """Return the operands of a maximum, minimum or clip, with no need on a side that is limited well."""
    limits = [bounds for arg in (*args[:2], *args[-1:]) if (bounds := _bounds(arg, graph))]
    operands = [arg for arg in args if not _bounds(arg, graph)]
    if need.known and name != "relax.minimum" and limits and need.allows(*limits[0]):
        need = replace(need, least=_ANY[0])
    if need.known and name != "relax.maximum" and limits and need.allows(*limits[-1]):
        need = replace(need, most=_ANY[1])
    return [] if (need.least, need.most) == _ANY else [(operand, need) for operand in operands]


def _counts_from_the_end(where: Any, graph: _Graph) -> tuple[float, float] | None:
    """Return the bounds of rows in ``where(i < 0, i + rows, i)``, importers' form of any index."""
    condition, moved = graph.value(where.args[0]), graph.value(where.args[1])
    counts = (
        operator_name(condition) == "relax.less"
        and operator_name(moved) == "relax.add"
        and graph.value(condition.args[0]).same_as(graph.value(where.args[2]))
        and graph.value(moved.args[0]).same_as(graph.value(where.args[2]))
        and _scalar(condition.args[1], graph) == 0
    )
    return _bounds(moved.args[1], graph) if counts else None


def _selects(expr: Any, graph: _Graph) -> bool:
    """True if *expr* selects integers (a cast's check for NaN: floats) by a condition that is no constant."""
    return (
        operator_name(expr) == "relax.where"
        and str(expr.struct_info.dtype).startswith(("int", "uint"))
        and _bounds(expr.args[0], graph) is None
    )


def _is_flag(parameter: Any, graph: _Graph) -> bool:
    """True if an input is used as a condition: made a bool, taken from 1, or compared with 0 or 1."""

    def comes_from_it(expr: Any) -> bool:
        value = graph.value(expr)
        while (
            PASSES.get(operator_name(value)) == (0,) and type(graph.value(value.args[0])).__name__ != "Tuple"
        ):
            value = graph.value(value.args[0])
        return bool(value.same_as(parameter))

    for name, call in graph.calls():
        place, is_condition = 0, False
        if name == "relax.astype":
            is_condition = str(call.attrs.dtype) == "bool"
        elif name == "relax.subtract":
            place, is_condition = 1, _scalar(call.args[0], graph) == 1
        elif name in ("relax.equal", "relax.not_equal", "relax.greater"):
            is_condition = _scalar(call.args[1], graph) in (0, 1)
        if is_condition and comes_from_it(call.args[place]):
            return True
    return False


def _scalar(expr: Any, graph: _Graph) -> float | None:
    """Return the number that *expr* is everywhere; None when it is no constant."""
    bounds = _bounds(expr, graph)
    return bounds[0] if bounds and bounds[0] == bounds[1] else None


def _bounds(expr: Any, graph: _Graph) -> tuple[float, float] | None:
    """Return the least and the largest number in *expr*; None when it is no constant."""
    value = graph.value(expr)
    if type(value).__name__ == "PrimValue":
        number = getattr(value.value, "value", None)
        return None if number is None else (float(number), float(number))
    if type(value).__name__ != "Constant":
        return None
    numbers = value.data.numpy()
    return (float(numbers.min()), float(numbers.max())) if numbers.size else None


def rounds_within(main: Any) -> bool:
    """Return True if *main* makes 8 bits of other numbers."""

    def rounds(call: Any) -> bool:
        made = getattr(call.struct_info, "dtype", "")
        return made in ("int8", "uint8") and operator_name(call) in ("relax.quantize", "relax.astype")

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
    """Return the greatest scale of each output of *main*, by *names*, that a constant scale dequantizes."""
    graph = _Graph(main)

    def quantum(expr: Any) -> float:
        expr = graph.value(expr)
        while (part := isinstance(expr, relax.TupleGetItem)) or operator_name(expr) in NOT_STEEPER:
            expr = graph.value(expr.tuple_value if part else expr.args[0])
        scale = graph.value(expr.args[1]) if operator_name(expr) == "relax.dequantize" else None
        return float(scale.data.numpy().max()) if isinstance(scale, relax.Constant) else 0.0

    body = graph.value(main.body.body)
    fields = list(body.fields) if isinstance(body, relax.Tuple) else [body]
    quanta = {name: quantum(field) for name, field in zip(names, fields, strict=True)}
    return {name: value for name, value in quanta.items() if value}
