"""Check that a scheduled kernel reads what it did before: TVM 0.25 makes wrong indices of some.

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


class Unknown(Exception):
    """It depends on the values of tensors what is read."""


def reads_differ(function: tirx.PrimFunc, scheduled: tirx.PrimFunc) -> bool:
    """Return True if the TIR *scheduled*, of one block, reads other elements than *function*, which
    reduces nothing, does for the same element of the result. False where that depends on what tensors
    hold."""
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
    try:
        for places in (*starts, *samples):
            if not after.value(realize.predicate, places):
                continue
            axes = {
                axis.var: after.value(value, places)
                for axis, value in zip(block.iter_vars, realize.iter_values, strict=True)
            }
            element = [after.value(index, axes) for index in block.body.indices]
            if after.value(block.body.value, axes) != before.computed(before.result, element):
                return True
    except Unknown:
        return False
    return False


class _Reader:
    """Evaluates the integers of a function, and of all else only what is read for it."""

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
        return self.value(store.value, dict(zip(store.indices, element, strict=True)))

    def value(self, expression: tirx.PrimExpr, places: Mapping[tirx.Var, Any]) -> Any:
        """An integer, or what is read for it: at these *places* of variables."""
        if isinstance(expression, tirx.IntImm):
            return int(expression.value)
        if isinstance(expression, tirx.Var):
            return places[expression]
        if isinstance(expression, tirx.BufferLoad):
            indices = [self.value(index, places) for index in expression.indices]
            return self.computed(expression.buffer, indices)
        if is_call(expression, "tirx.if_then_else"):
            condition, *ways = expression.args
            holds = self.value(condition, places)
            if isinstance(holds, frozenset):
                raise Unknown
            return self.value(ways[not holds], places)
        parts = [self.value(part, places) for part in _parts(expression)]
        if type(expression) in self.operations and not any(isinstance(part, frozenset) for part in parts):
            return self.operations[type(expression)](*parts)
        return frozenset().union(*(part for part in parts if isinstance(part, frozenset)))


def _parts(expression: tirx.PrimExpr) -> list[tirx.PrimExpr]:
    if isinstance(expression, tirx.Call):
        return list(expression.args)
    if isinstance(expression, tirx.Select):
        return [expression.condition, expression.true_value, expression.false_value]
    return [getattr(expression, name) for name in ("a", "b", "value") if hasattr(expression, name)]
