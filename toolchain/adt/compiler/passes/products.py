"""Products by a tensor that the model computes, as attention has them: one kernel that reads operands where
they lie, however they were transposed or taken out of a larger tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, te, tirx

from adt.compiler.ir.nodes import operator_name
from adt.compiler.ir.rewriter import Rewriter, readers_of, static_shape
from adt.compiler.passes.layout.blocks import FLOATS

PERMUTE = "relax.permute_dims"
Read = Callable[..., tirx.PrimExpr]  # an element, by its indices


@dataclass(frozen=True)
class View:
    """A tensor that is another with permuted axes, or at one place of some of them."""

    source: relax.Expr
    shape: tuple[int, ...]
    axes: tuple[int | None, ...]
    """Axis of the view for each axis of the source; None: the source is read at one place of it."""
    places: tuple[int, ...]
    """Axes of the view that are one place."""

    def read(self, tensor: relax.Expr) -> Read:
        """Return a function that reads the view's elements from the source *tensor*."""
        return lambda *at: tensor(
            *(place if axis is None else at[axis] for axis, place in zip(self.axes, self.places, strict=True))
        )

    def lies_along(self, axis: int) -> bool:
        """Return True if neighbours along the view's *axis* lie together."""
        return self.axes[-1] == axis % len(self.shape)

    def permuted(self, order: Sequence[int]) -> View:
        """Return the view with its axes in this *order*."""
        axes = tuple(None if axis is None else order.index(axis) for axis in self.axes)
        return View(self.source, tuple(self.shape[axis] for axis in order), axes, self.places)

    def taken(self, axis: int, place: int) -> View:
        """Return the view at one *place* of an *axis*, which is no more."""
        axes = tuple(None if own is None or own == axis else own - (own > axis) for own in self.axes)
        places = tuple(place if own == axis else old for own, old in zip(self.axes, self.places, strict=True))
        return View(self.source, (*self.shape[:axis], *self.shape[axis + 1 :]), axes, places)


def whole(tensor: relax.Expr) -> View:
    """Return the view of the whole *tensor*, whose shape is static."""
    shape = static_shape(tensor) or ()
    return View(tensor, shape, tuple(range(len(shape))), (0,) * len(shape))


class Products(Rewriter):
    """Rewriter of products by computed tensors of known shapes to kernels."""

    transposes_results = True
    """True: where only a transposition reads the result, the kernel writes that."""

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self.views: dict[relax.Var, View] = {}
        self.products: dict[relax.Var, tuple[relax.Var, relax.Var]] = {}
        """Variable that is a product and is not computed but as a transposition, to the operands."""
        self.readers = readers_of(module)

    def bind(self, binding: relax.VarBinding) -> None:
        call = binding.value
        name = operator_name(call)
        if name == "relax.matmul" and self.takes(*call.args):
            left, right = call.args
            names = [operator_name(reader.value) if reader else "" for reader in self.readers[binding.var]]
            if self.transposes_results and names == [PERMUTE]:
                self.products[binding.var] = left, right
            else:
                self.values[binding.var] = self.product(left, right, binding.var)
            return
        if name == PERMUTE and call.args[0] in self.products:
            self.values[binding.var] = self.product(*self.products[call.args[0]], binding.var, _order(call))
            return
        if (view := self._view(name, call)) is not None:
            self.views[binding.var] = view
        super().bind(binding)

    def takes(self, left: relax.Expr, right: relax.Expr) -> bool:
        """True if the product of these operands becomes a kernel."""
        shapes = static_shape(left), static_shape(right)
        if (
            isinstance(right, relax.Constant)
            or None in shapes
            or any(len(shape or ()) < 2 for shape in shapes)
        ):
            return False
        return left.struct_info.dtype in FLOATS and left.struct_info.dtype == right.struct_info.dtype

    def product(
        self, left: relax.Expr, right: relax.Expr, result: relax.Expr, order: Sequence[int] = ()
    ) -> relax.Expr:
        """Build the call that computes *result* of these operands; a given *order* has its axes."""
        a, b = self.view_of(left), self.view_of(right)
        dtype = result.struct_info.dtype
        return self.emit_product(
            a, b, lambda x, y: sums_of(a.read(x), b.read(y), (a.shape, b.shape), dtype, order=order)
        )

    def emit_product(
        self, a: View, b: View, expression: Callable[[te.Tensor, te.Tensor], te.Tensor]
    ) -> relax.Expr:
        """Emit the call of a kernel that computes the *expression* of both sources."""
        return self.builder.emit_te(
            expression, self.copy(a.source), self.copy(b.source), primfunc_name_hint="product"
        )

    def view_of(self, tensor: relax.Expr) -> View:
        """Return *tensor* as a view of the tensor whose elements it has."""
        return self.views.get(tensor) or whole(tensor)

    def _view(self, name: str, call: relax.Expr) -> View | None:
        """Return the result of *call* as a view; None if it is none."""
        if name not in (PERMUTE, "relax.take") or static_shape(call.args[0]) is None:
            return None
        view = self.view_of(call.args[0])
        rank = len(view.shape)
        if name == PERMUTE:
            return view.permuted(_order(call))
        index = call.args[1]
        if not isinstance(index, relax.Constant) or index.data.numpy().ndim or call.attrs.axis is None:
            return None
        axis = int(call.attrs.axis) % rank
        return view.taken(axis, int(index.data.numpy()) % view.shape[axis])


def _order(call: relax.Call) -> list[int]:
    """Return the axes of its tensor in the order in which the transposition *call* has them."""
    rank = len(static_shape(call.args[0]) or ())
    return [int(axis) % rank for axis in call.attrs.axes or reversed(range(rank))]


Own = Callable[[Sequence[Any]], list[Any]]
"""Function from the places in a batch to those of an operand, which may be broadcast."""


def broadcast(shapes: Sequence[Sequence[int]]) -> tuple[list[int], list[Own]]:
    """Return a product's batch for operands of *shapes*, and what of a place in it each has."""
    batches = [list(shape[:-2]) for shape in shapes]
    rank = max(map(len, batches))
    padded = [[1] * (rank - len(batch)) + batch for batch in batches]

    def own(extents: Sequence[int]) -> Own:
        return lambda places: [
            0 if extent == 1 else place
            for place, extent in zip(list(places)[rank - len(extents) :], extents, strict=True)
        ]

    return [max(extents) for extents in zip(*padded, strict=True)], [own(batch) for batch in batches]


def sums_of(
    a: Read,
    b: Read,
    shapes: Sequence[Sequence[int]],
    dtype: str,
    name: str = "product_sums",
    order: Sequence[int] = (),
) -> Any:
    """Express a product of matrices of *shapes* with sums of *dtype*; a given *order* has its axes."""
    (*_, rows, terms), (*_, columns) = shapes
    batch, (of_a, of_b) = broadcast(shapes)
    extents = [*batch, rows, columns]
    order = order or range(len(extents))
    k = te.reduce_axis((0, terms), "k")

    def term(*at: tirx.PrimExpr) -> Any:
        *places, row, column = (at[order.index(axis)] for axis in range(len(extents)))
        left, right = a(*of_a(places), row, k), b(*of_b(places), k, column)
        return te.sum(left.astype(dtype) * right.astype(dtype), axis=k)

    return te.compute([extents[axis] for axis in order], term, name=name)
