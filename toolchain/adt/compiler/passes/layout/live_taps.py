"""Convolutions without the taps of their windows that read nothing but padding.

A window that is dilated by more than the map is wide reads zeros: of 3 by 3 taps with dilation 24 over a
map of 20 by 20, as in the pyramids of networks for segmentation, one is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax

from adt.compiler.ir.nodes import operator_name
from adt.compiler.ir.rewriter import Rewriter, is_flat, static_shape
from adt.compiler.passes.layout.convolutions import window_of

CONVOLUTIONS = {f"relax.nn.conv{rank}d": rank for rank in (1, 2, 3)}
"""Operator to its number of axes of a window."""


@dataclass(frozen=True)
class Taps:
    """Taps of a window along one axis."""

    first: int
    """First tap that reads the map."""
    count: int
    dilation: int
    before: int
    """Elements of padding before the map, for the first tap."""
    after: int


def live_taps(
    extent: int, output: int, kernel: int, stride: int, dilation: int, before: int, after: int
) -> Taps:
    """Return the taps from the first to the last that read one of the *extent* elements of a map.

    All of them where no padding gives fewer the same *output*, or none reads the map.
    """
    reads = np.arange(kernel)[:, None] * dilation + np.arange(output) * stride - before
    (live,) = np.nonzero(((reads >= 0) & (reads < extent)).any(axis=1))
    if not live.size:
        return Taps(0, kernel, dilation, before, after)
    first, count = int(live[0]), int(live[-1] - live[0] + 1)
    left, span = before - first * dilation, (count - 1) * dilation + 1
    right = (output - 1) * stride + span - extent - left
    if left < 0 or right <= -stride:  # the map would have to be cropped
        return Taps(0, kernel, dilation, before, after)
    return Taps(first, count, dilation if count > 1 else 1, left, max(0, right))


class _LiveTaps(Rewriter):
    """Rewriter of convolutions by constants, or by what dequantizes constants."""

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self.bound: dict[relax.Var, relax.Expr] = {}
        """Variable of the module to its value."""

    def bind(self, binding: relax.VarBinding) -> None:
        variable, value = binding.var, binding.value
        self.bound[variable] = value
        rank = CONVOLUTIONS.get(operator_name(value) or "")
        convolution = self._with_live_taps(variable, value, rank) if rank else None
        if convolution is None:
            super().bind(binding)
        else:
            self.values[variable] = self.builder.emit(convolution, name_hint=variable.name_hint)

    def _with_live_taps(self, variable: relax.Var, call: relax.Call, rank: int) -> relax.Call | None:
        """Return the convolution *call* without dead taps; None: it has none, or its extents are open."""
        attrs, (data, weight) = call.attrs, call.args
        shapes = [shape for tensor in (data, variable, weight) if (shape := static_shape(tensor))]
        if len(shapes) < 3:
            return None
        layout, of_kernel = str(attrs.data_layout), str(attrs.kernel_layout)
        layouts = layout, str(attrs.out_layout) or layout, of_kernel
        axes = [axis for axis in layout if axis not in "NC"]
        extents, outputs, kernels = (
            [shape[letters.index(axis)] for axis in axes]
            for shape, letters in zip(shapes, layouts, strict=True)
        )
        full = window_of(kernels, attrs)
        sides = full.before, full.after
        window = [*map(live_taps, extents, outputs, kernels, full.strides, full.dilation, *sides)]
        if [taps.count for taps in window] == kernels:
            return None
        cropped = self._cropped(weight, [of_kernel.index(axis) for axis in axes], window)
        if cropped is None:
            return None
        return getattr(relax.op.nn, f"conv{rank}d")(
            self.copy(data),
            cropped,
            strides=list(full.strides),
            padding=[taps.before for taps in window] + [taps.after for taps in window],
            dilation=[taps.dilation for taps in window],
            groups=int(attrs.groups),
            data_layout=layout,
            kernel_layout=of_kernel,
            out_layout=layouts[1],
            out_dtype=attrs.out_dtype,
        )

    def _cropped(self, weight: relax.Expr, axes: Sequence[int], window: Sequence[Taps]) -> relax.Expr | None:
        """Return the *weight* with the taps of *window* along its *axes*; None if it is no constant."""
        if isinstance(weight, relax.Constant):
            array = weight.data.numpy()
            for axis, taps in zip(axes, window, strict=True):
                array = array.take(range(taps.first, taps.first + taps.count), axis)
            return relax.const(np.ascontiguousarray(array), weight.struct_info.dtype)
        value = self.bound.get(weight, weight)
        if operator_name(value) != "relax.dequantize" or int(value.attrs.axis) in axes:
            return None
        cropped = self._cropped(value.args[0], axes, window)
        if cropped is None:
            return None
        others = [self.copy(operand) for operand in value.args[1:]]
        return self.builder.emit(relax.Call(value.op, [cropped, *others], value.attrs))


def without_dead_taps(module: tvm.IRModule) -> tvm.IRModule:
    """Leave out of ``main`` of the flat *module*, with parameters bound, what multiplies padding alone."""
    return _LiveTaps(module).run() if is_flat(module) else module
