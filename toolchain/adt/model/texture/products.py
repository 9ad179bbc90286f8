"""Matrix products by constants, on tensors in rows: each row is an image of one pixel, whose channels the
product convolves. So what schedules convolutions schedules dense layers, too.
"""

from __future__ import annotations

import math
from typing import Any

from adt.model.texture import blocks, signature
from adt.model.texture.blocks import FLOATS, LANES, Window
from adt.model.texture.choice import Choice, Moves
from adt.model.texture.report import Convolution
from adt.model.texture.rewriter import static_shape
from adt.model.texture.walk import Walk, size_of

ONE_PIXEL = Window((1, 1), (1, 1), (0, 0), (0, 0), (1, 1))


def product(walk: Walk, variable: Any, call: Any) -> bool:
    """``data @ weight`` with the result in rows."""
    data, weight = call.args
    reason = obstacle(data, weight)
    shape, output = static_shape(weight) or (), static_shape(variable)
    inputs, outputs = shape[-2:] if len(shape) > 1 else (1, *shape, 1)[:2]
    macs = math.prod(output) * inputs if output else 0
    chosen = Choice(False, reason)
    if output and not reason:
        computes = signature.product(data.struct_info.dtype, output[:-1], inputs, outputs)
        # Of whole texels, rows and plain tensors are the same.
        chosen = walk.chooser.choose(
            computes, outputs, Moves(output=size_of(variable) if outputs % LANES else 0)
        )
    made = Convolution(variable.name_hint, (outputs, inputs), 1, macs, *chosen.told, kind="product")
    walk.operators.append(made)
    if not chosen.textures:
        return False
    rows = walk.rows_of(data)
    if rows is None:  # its last axis is no whole texels: read as plain channels
        rows = walk.reshaped(walk.copy(data), (math.prod(output[:-1]), inputs, 1, 1))  # type: ignore[index]
    out_dtype = variable.struct_info.dtype
    walk.rows[variable] = walk.emit(
        lambda x, w: _of_rows(x, w, out_dtype),
        rows,
        _packed_weight(weight),
        name="product_texels",
    )
    return True


def _of_rows(x: Any, weight: Any, out_dtype: str) -> Any:
    """The product, as a tensor expression. Of a number of rows that nothing divides (197 tokens) a work-item
    could take but one at a time: it is rounded up, and what that adds is not stored."""
    from tvm import te, tirx

    rows = int(x.shape[0])
    (count,) = blocks.divisible((rows,))
    if count == rows:
        return blocks.convolution(x, weight, ONE_PIXEL, 1, out_dtype)
    more = te.compute(
        (count, *x.shape[1:]), lambda row, *at: x(tirx.min(row, rows - 1), *at), name="rows_texels"
    )
    sums = blocks.convolution(more, weight, ONE_PIXEL, 1, out_dtype)
    return te.compute((rows, *sums.shape[1:]), lambda *at: sums(*at), name="cut_texels")


def obstacle(data: Any, weight: Any) -> str:
    """Why a matrix product cannot be in rows; empty if it can."""
    from tvm import relax

    rows, shape = static_shape(data), static_shape(weight)
    if rows is None or shape is None:
        return "its shapes are not static"
    if not isinstance(weight, relax.Constant):
        if isinstance(data, relax.Constant):
            return "its weight is the left operand"
        return "both operands are computed by the model"
    if len(rows) < 2 or len(shape) < 2 or math.prod(shape[:-2]) != 1 or len(shape) > len(rows):
        return f"its operands have the shapes {rows} and {shape}"
    if data.struct_info.dtype not in FLOATS:
        return f"it computes in {data.struct_info.dtype}"
    if shape[-1] < LANES:
        return f"its {shape[-1]} outputs do not fill a texel"
    return ""


def _packed_weight(weight: Any) -> Any:
    """The constant ``(…, I, O)`` as ``(ceil(O/4), 1, I, 4)``."""
    from tvm import relax

    array = weight.data.numpy()
    packed = blocks.packed(array.reshape(array.shape[-2:]).T, axis=0)  # (ceil(O/4), I, 4)
    return relax.const(packed[:, None], weight.struct_info.dtype)
