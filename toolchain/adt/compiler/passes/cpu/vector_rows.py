"""Rows of softmax and normalizations by whole vectors (:func:`adt.compiler.passes.cpu.reduction.rows`).

A row that is no whole vectors is copied first, with what changes no result behind it, so that only the copy
and the store go by elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import te, tirx

from adt.compiler.passes.cpu.reduction import ROW
from adt.compiler.passes.layout.blocks import ceil_blocks


class VectorRow:
    """The rows of a tensor, and the whole vectors that hold one; see
    :class:`adt.compiler.passes.normalizations.Row`. A place has the tensor's indices."""

    def __init__(self, x: te.Tensor, lanes: int) -> None:
        self.x = x
        (*self.outer, self.length) = (int(extent) for extent in x.shape)
        size = lanes if self.length > lanes else 4
        self.padded = ceil_blocks(self.length, size) * size

    def filled(self, value: float) -> Callable[..., tirx.PrimExpr]:
        """The tensor, each row with *value* behind it up to whole vectors."""
        if self.padded == self.length:
            return lambda *at: self.x(*at)
        rest = tirx.const(value, "float32")
        return self.each(lambda *at: tirx.if_then_else(at[-1] < self.length, self.x(*at), rest), ROW)

    def each(self, value: Callable[..., tirx.PrimExpr], name: str) -> Callable[..., tirx.PrimExpr]:
        """A tensor of whole vectors."""
        tensor = te.compute((*self.outer, self.padded), value, name=name)
        return lambda *at: tensor(*at)

    def masked(self, value: Callable[..., tirx.PrimExpr], name: str) -> Callable[..., tirx.PrimExpr]:
        """A tensor of whole vectors where a row is none; else *value*, soon computed again."""
        if self.padded == self.length:
            return value
        rest = tirx.const(0, "float32")
        return self.each(lambda *at: tirx.Select(at[-1] < self.length, value(*at), rest), f"{ROW}_{name}")

    def reduced(
        self, reduce: Any, value: Callable[..., tirx.PrimExpr], name: str
    ) -> Callable[..., tirx.PrimExpr]:
        """A tensor of one element for each row."""
        k = te.reduce_axis((0, self.padded), "k")
        tensor = te.compute(tuple(self.outer), lambda *at: reduce(value(*at, k), axis=k), name=name)
        return lambda *at: tensor(*at[:-1])

    def result(
        self, value: Callable[[Sequence[tirx.PrimExpr], Sequence[tirx.PrimExpr]], tirx.PrimExpr], name: str
    ) -> te.Tensor:
        """The tensor, without what is behind a row."""
        return te.compute(self.x.shape, lambda *at: value(at, at), name=name)
