"""Check whether a scheduled kernel reads what it did before: TVM 0.25 makes wrong indices of some.

Of ``(x % 464 - 232) // 16`` it makes ``(x + 8) % 464 // 16 - 15`` where a block's axes are transformed, for
one. What is read for some elements of the result is compared, by evaluating conditions and indices.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Mapping
from typing import Any

from tvm import tirx

from adt.compiler.ir.nodes import is_call, tir_nodes

SAMPLES = 64
"""Elements of the result that are compared, beside those at the ends of all loops."""


Reader = Callable[[Mapping[Any, Any]], Any]


class Unknown(Exception):
    """It depends on the values of tensors what is read."""


def reads_differ(function: tirx.PrimFunc, scheduled: tirx.PrimFunc) -> bool:
    """Return True if *scheduled*, of one block, is known to read other elements than *function* does.

    *function* reduces nothing. False where that depends on what tensors hold.
    """
    (realize,) = (
        node
        for node in tir_nodes(scheduled.body, tirx.SBlockRealize)
        if isinstance(node.block.body, tirx.BufferStore)
    )
    loops = {loop.loop_var: int(loop.extent) for loop in tir_nodes(scheduled.body, tirx.For)}
    chosen = random.Random(0)  # the same elements each time
    starts = [dict.fromkeys(loops, 0), {loop: extent - 1 for loop, extent in loops.items()}]
    samples = [{loop: chosen.randrange(extent) for loop, extent in loops.items()} for _ in range(SAMPLES)]
    before, after = _Reader(function), _Reader(scheduled)
    block = realize.block
    inside = after.reader(realize.predicate)
    axes = {
        axis.var: after.reader(value)
        for axis, value in zip(block.iter_vars, realize.iter_values, strict=True)
    }
    indices, result = [after.reader(index) for index in block.body.indices], after.reader(block.body.value)
    try:
        for loop_places in (*starts, *samples):
            if not inside(loop_places):
                continue
            places = {axis: value(loop_places) for axis, value in axes.items()}
            element = [index(places) for index in indices]
            if result(places) != before.computed(before.result, element):
                return True
    except Unknown:
        return False
    return False


class _Reader:
    """Evaluator of integers, and of what is read for all else; nodes become functions once, for speed."""

    def __init__(self, function: tirx.PrimFunc) -> None:
        self.parameters = {
            function.buffer_map[parameter]: place for place, parameter in enumerate(function.params)
        }
        self.result = function.buffer_map[function.params[-1]]
        self.blocks = {
            block.body.buffer: block
            for block in tir_nodes(function.body, tirx.SBlock)
            if isinstance(block.body, tirx.BufferStore)
        }
        self.readers: dict[Any, Reader] = {}
        self.operations: dict[type, Callable[[Any, Any], Any]] = {
            tirx.Add: operator.add, tirx.Sub: operator.sub, tirx.Mul: operator.mul,
            tirx.FloorDiv: operator.floordiv, tirx.FloorMod: operator.mod, tirx.Min: min, tirx.Max: max,
            tirx.EQ: operator.eq, tirx.NE: operator.ne, tirx.LT: operator.lt, tirx.LE: operator.le,
            tirx.GT: operator.gt, tirx.GE: operator.ge, tirx.And: min, tirx.Or: max,
        }  # fmt: skip

    def computed(self, buffer: tirx.Buffer, element: list[Any]) -> Any:
        """Return what is read for an *element* of a *buffer*: numbers of parameters, and places in them."""
        if any(isinstance(place, frozenset) for place in element):
            raise Unknown
        if buffer not in self.blocks:
            return frozenset({(self.parameters[buffer], tuple(element))})
        store = self.blocks[buffer].body
        if buffer not in self.readers:
            self.readers[buffer] = self.reader(store.value)
        return self.readers[buffer](dict(zip(store.indices, element, strict=True)))

    def reader(self, expression: tirx.PrimExpr) -> Reader:
        """Return a function of the places of variables that gives an integer, or what is read for it."""
        if isinstance(expression, tirx.IntImm):
            number = int(expression.value)
            return lambda _places: number
        if isinstance(expression, tirx.Var):
            return lambda places: places[expression]
        if isinstance(expression, tirx.BufferLoad):
            buffer, indices = expression.buffer, [self.reader(index) for index in expression.indices]
            return lambda places: self.computed(buffer, [index(places) for index in indices])
        parts = [self.reader(part) for part in _parts(expression)]
        if is_call(expression, "tirx.if_then_else"):
            return lambda places: _chosen(parts, places)
        operation = self.operations.get(type(expression))

        def read(places: Mapping[Any, Any]) -> Any:
            values = [part(places) for part in parts]
            tensors = [value for value in values if isinstance(value, frozenset)]
            return frozenset().union(*tensors) if tensors or operation is None else operation(*values)

        return read


def _chosen(parts: list[Reader], places: Mapping[Any, Any]) -> Any:
    condition, *ways = parts
    holds = condition(places)
    if isinstance(holds, frozenset):
        raise Unknown
    return ways[not holds](places)


def _parts(expression: tirx.PrimExpr) -> list[tirx.PrimExpr]:
    if isinstance(expression, tirx.Call):
        return list(expression.args)
    if isinstance(expression, tirx.Select):
        return [expression.condition, expression.true_value, expression.false_value]
    return [getattr(expression, name) for name in ("a", "b", "value") if hasattr(expression, name)]
