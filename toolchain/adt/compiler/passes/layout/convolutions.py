"""Convolutions and matrix products on blocked tensors: which ones, and their weights.

A matrix product by a constant is on a tensor in rows. Each row is an image of one pixel whose
channels the product convolves, so what schedules convolutions schedules dense layers, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax, te, tirx

from adt.compiler.ir.rewriter import ELEMENTWISE, static_shape
from adt.compiler.passes import words
from adt.compiler.passes.layout import blocks, signature
from adt.compiler.passes.layout.blocks import Blocking, Terms, Window, merged_groups
from adt.compiler.passes.layout.blockwise import floats, weights_of
from adt.compiler.passes.layout.signature import Signature
from adt.compiler.passes.layout.walk import Choice, Inlined, Moves, Walk, read, size_of
from adt.package.reports import Convolution

FUSED_WITH_PACKING = ELEMENTWISE | {
    "relax.concat",
    "relax.image.resize2d",
    "relax.nn.pad",
    "relax.permute_dims",
    "relax.strided_slice",
}
"""Operators that move or compute single elements: a kernel of theirs can write the packed form, too."""
ONE_PIXEL = Window((1, 1), (1, 1), (0, 0), (0, 0), (1, 1))


def convolution(walk: Walk, variable: relax.Var, call: relax.Call) -> bool:
    """Convolve a blocked tensor, or one with fewer channels than a texel has, in blocks."""
    data, weight = call.args
    attrs, groups = call.attrs, int(call.attrs.groups)
    shape, output = static_shape(weight) or (), static_shape(variable) or ()
    obstacle, computes = _obstacle(walk, data, weight, attrs, "OI"), None
    if not obstacle and shape[0] < walk.blocking.least:
        obstacle = f"its {shape[0]} output channels do not fill a texel"
    if output and not obstacle:
        computes = signature.convolution(data.struct_info.dtype, shape, output, attrs.strides, groups)
    macs = math.prod(output) * math.prod(shape[1:]) if shape and output else 0
    row = Convolution(variable.name_hint, shape, groups, macs, obstacle)
    if not _is_blocked(walk, row, computes, _moves(walk, data, variable)):
        return False
    array = weight.data.numpy()
    if groups != array.shape[0]:  # not depthwise
        array, groups = _merged(array, groups, walk.lanes)
    window = window_of(array.shape[2:], attrs)
    while data in walk.unpadded:
        inner, before, after, border = walk.unpadded[data]
        if border != window.border and any((*window.before, *window.after)):
            break
        data, window = inner, replace(window.widened(before, after), border=border)
    terms = _terms(walk, variable, array.shape[1], output[-1:])
    if terms and not walk.can_block(data):  # fewer channels than are worth a block
        source = read(_in_few(walk, walk.copy(data), terms))
    else:
        source = _source(walk, data, window)
    walk.blocked[variable] = _convolved(walk, variable, source, array, window, groups, terms)
    return True


def _is_blocked(walk: Walk, row: Convolution, computes: Signature | None, moves: Moves) -> bool:
    """Decide whether what *computes* describes (None: it cannot be) is blocked, and report it in *row*."""
    choice = walk.chooser(computes, row.weight[0], moves) if computes else Choice(False, row.reason)
    reason, grounds = ("", choice.reason) if choice.blocked else (choice.reason, "")
    walk.report.append(replace(row, reason=reason, grounds=grounds))
    return choice.blocked


def _convolved(
    walk: Walk,
    variable: relax.Var,
    source: Inlined,
    array: NDArray[np.generic],
    window: Window,
    groups: int,
    terms: Terms | None = None,
) -> relax.Var:
    """Emit the kernel that convolves *source* by the weight *array* ``(O, I/groups, kernel…)``."""
    dtype = variable.struct_info.dtype
    return walk.emit(
        lambda *tensors: _sums(
            walk, source.expression(*tensors[:-1]), tensors[-1], window, groups, dtype, terms
        ),
        *source.tensors,
        _constant(walk, _convolution_weight(array, groups, walk.lanes), dtype, terms),
        name="conv_blocks",
    )


def _terms(walk: Walk, variable: relax.Var, channels: int, positions: tuple[int, ...]) -> Terms | None:
    """Return how *variable*, sums over *channels* for each of *positions*, is computed as integers."""
    if not walk.blocking.terms or variable.struct_info.dtype != "int32":
        return None
    return walk.blocking.terms_of(channels, math.prod(positions))


def _in_few(walk: Walk, data: relax.Expr, terms: Terms) -> relax.Var:
    return walk.emit(lambda x: blocks.pack(x, terms.channels), data, name="pack_blocks")


def _sums(
    walk: Walk,
    x: te.Tensor,
    weight: te.Tensor,
    window: Window,
    groups: int,
    dtype: str,
    terms: Terms | None,
) -> Any:
    """Express the convolution of *x* by what :func:`_constant` gives."""
    if terms is None:
        return blocks.convolution(x, weight, window, groups, dtype, walk.blocking)
    if walk.blocking.words:
        return blocks.convolution_of_words(x, weight, window, walk.blocking)
    return blocks.convolution_of_terms(x, weight, window, terms)


def _constant(walk: Walk, packed: NDArray[np.generic], dtype: str, terms: Terms | None) -> relax.Constant:
    """Return the *packed* weight of a convolution with sums of *dtype*, or of *terms*."""
    if terms is None:
        return walk.weight(packed, dtype)
    array = _in_terms(packed, terms)
    return relax.const(words.packed(array) if walk.blocking.words else array)


def _source(walk: Walk, data: relax.Var, window: Window) -> Inlined:
    """Return what a convolution with this window reads of *data*."""
    inlined = walk.inlined.get(data)
    if inlined is not None and (inlined.moves or math.prod(window.kernel) == 1):
        return inlined
    return read(walk.blocks_of(data) if walk.can_block(data) else walk.copy(data))


def window_of(kernel: Sequence[int], attrs: tvm.ir.Attrs) -> Window:
    """Return the window of a convolution or pool with these attributes."""
    rank = len(attrs.strides)
    padding = [int(extent) for extent in attrs.padding]
    if len(padding) == rank:
        padding *= 2
    return Window(
        kernel=tuple(int(size) for size in kernel),
        strides=tuple(int(step) for step in attrs.strides),
        before=tuple(padding[:rank]),
        after=tuple(padding[rank:]),
        dilation=tuple(int(spread) for spread in attrs.dilation),
    )


def _moves(walk: Walk, data: relax.Var, result: relax.Var) -> Moves:
    """Return what the forms of the neighbours cost an operator that makes *result* of *data*."""
    blocked = data in walk.blocked
    fused = walk.made_by.get(data) in FUSED_WITH_PACKING
    return Moves(
        pack=size_of(data) if not blocked and walk.can_block(data) and not fused else 0,
        unpack=size_of(data) if blocked and data not in walk.values else 0,
        output=size_of(result),
    )


def _obstacle(walk: Walk, data: relax.Expr, weight: relax.Expr, attrs: tvm.ir.Attrs, layout: str) -> str:
    """Return why a convolution of *data* by *weight*, to begin with the axes *layout*, cannot be blocked."""
    if static_shape(weight) is None or static_shape(data) is None:
        return "its shapes are not static"
    if not isinstance(weight, relax.Constant):
        return "its weight is computed by the model"
    if not str(attrs.data_layout).startswith("NC") or not str(attrs.kernel_layout).startswith(layout):
        return f"its layout is {attrs.data_layout}/{attrs.kernel_layout}"
    if data.struct_info.dtype not in walk.blocking.types:
        return f"it computes in {data.struct_info.dtype}"
    return ""


def _merged(array: NDArray[np.generic], groups: int, lanes: int) -> tuple[NDArray[np.generic], int]:
    """Merge *groups* of the weight that share blocks, by zeros; return it, and how many are left.

    Lanes whose weight is zero idle, which takes less than channels one by one.
    """
    outputs, inputs, *kernel = array.shape
    count = merged_groups(groups, outputs // groups, lanes)
    if count == 1:
        return array, groups
    each = outputs // groups
    merged = np.zeros((groups // count, count, each, count, inputs, *kernel), array.dtype)
    parts = array.reshape(groups // count, count, each, inputs, *kernel)
    for place in range(count):
        merged[:, place, :, place] = parts[:, place]
    return merged.reshape(outputs, count * inputs, *kernel), groups // count


def _convolution_weight(array: NDArray[np.generic], groups: int, lanes: int) -> NDArray[np.generic]:
    """Pack the *array* ``(O, I/groups, kernel…)`` as the convolution in blocks of *lanes* reads it."""
    outputs, inputs = array.shape[:2]
    packed = blocks.packed(array.reshape(outputs, inputs, -1), 0, lanes)  # (ceil(O/L), I/groups, taps, L)
    if groups == outputs > 1:  # depthwise: the only groups of one output channel
        packed = packed.reshape(1, packed.shape[0], *packed.shape[2:])
    else:
        packed = packed.swapaxes(1, 2)
    return np.ascontiguousarray(packed)


def _in_terms(weight: Any, terms: Terms) -> Any:
    """Reorder *weight* ``(blocks, taps, I, L)`` as ``(blocks, taps, I/terms, L, terms)``, zero-padded."""
    *outer, inputs, lanes = weight.shape
    whole = np.pad(weight, [(0, 0), (0, 0), (0, -inputs % terms.channels), (0, 0)])
    split = whole.reshape(*outer, -1, terms.count, lanes).swapaxes(-1, -2)
    return np.ascontiguousarray(split.astype(terms.weights))


def transposed(walk: Walk, variable: relax.Var, call: relax.Call) -> bool:
    """Replace a transposed convolution with strides by a plain one, whose outputs are a step's pixels.

    Output ``q · stride + r − padding`` is the sum over ``t`` of input ``q − t`` times tap ``r + t · stride``.
    """
    data, weight = call.args
    attrs, groups = call.attrs, int(call.attrs.groups)
    shape, output = static_shape(weight) or (), static_shape(variable) or ()
    dilated = any(int(spread) > 1 for spread in attrs.dilation)  # not from ONNX: its importer puts zeros in
    obstacle = _obstacle(walk, data, weight, attrs, "IO") or ("it is dilated" if dilated else "")
    macs = math.prod(static_shape(data) or ()) * math.prod(shape[1:])
    plain_shape, computes = (shape[1] * groups, shape[0] // groups, *shape[2:]) if shape else (), None
    if output and not obstacle:
        ones = (1,) * len(shape[2:])
        computes = signature.convolution(data.struct_info.dtype, plain_shape, output, ones, groups)
    row = Convolution(variable.name_hint, plain_shape, groups, macs, obstacle)
    if not _is_blocked(walk, row, computes, _moves(walk, data, variable)):
        return False
    array, groups = _merged(outputs_first(weight.data.numpy(), groups), groups, walk.lanes)
    few = output[1] < walk.blocking.least  # then the places in a step share a block
    channels = output[1] if few else walk.blocking.count(output[1]) * walk.lanes
    inputs = (static_shape(data) or ())[2:]
    transposed_window = window_of(plain_shape[2:], attrs)
    array, window, first = in_steps(array, transposed_window, groups, channels // groups, inputs, output[2:])
    pixels = _convolved(walk, variable, _source(walk, data, window), array, window, groups)
    steps = transposed_window.strides
    if few:
        walk.values[variable] = walk.emit(
            lambda x: blocks.interleaved_channels(x, output[1], steps, first, output[2:]),
            pixels,
            name="interleaved_channels",
        )
        return True
    walk.blocked[variable] = walk.emit(
        lambda x: blocks.interleaved(x, channels // walk.lanes, groups, steps, first, output[2:]),
        pixels,
        name="interleaved_blocks",
    )
    return True


def in_steps(
    array: NDArray[np.generic],
    window: Window,
    groups: int,
    channels: int,
    inputs: Sequence[int],
    output: Sequence[int],
) -> tuple[NDArray[np.generic], Window, tuple[int, ...]]:
    """Turn the transposed convolution of a *window* into a plain one, whose outputs are a step's pixels.

    *array* is its weight ``(O, I/groups, kernel…)``; *inputs* and *output* are spatial extents. *channels*
    of a group are output for each pixel; those beyond its own are zeros. Returns the plain one's weight
    ``(groups·pixels·channels, I/groups, taps…)`` and window, and the place of the first pixel in its step.
    """
    strides, before = window.strides, window.before
    taps = tuple(-(-size // step) for size, step in zip(window.kernel, strides, strict=True))
    start = [low // step for low, step in zip(before, strides, strict=True)]
    end = [(extent - 1 + low) // step for extent, low, step in zip(output, before, strides, strict=True)]
    ones = (1,) * len(taps)
    plain = Window(
        taps,
        ones,
        tuple(count - 1 - place for count, place in zip(taps, start, strict=True)),
        tuple(place - extent + 1 for place, extent in zip(end, inputs, strict=True)),
        ones,
    )
    weight = _weight_of_steps(array, window, taps, groups, channels)
    return weight, plain, tuple(low % step for low, step in zip(before, strides, strict=True))


def outputs_first(array: NDArray[np.generic], groups: int) -> NDArray[np.generic]:
    """Reorder a transposed convolution's ``(I, O/groups, kernel…)`` to ``(O, I/groups, kernel…)``."""
    inputs, outputs, *kernel = array.shape
    parts = array.reshape(groups, inputs // groups, outputs, *kernel).swapaxes(1, 2)
    return parts.reshape(groups * outputs, inputs // groups, *kernel)


def _weight_of_steps(
    array: NDArray[np.generic], window: Window, taps: tuple[int, ...], groups: int, channels: int
) -> NDArray[np.generic]:
    """Turn a transposed convolution's weight into ``(groups·places·channels, I/groups, taps…)``."""
    outputs, inputs, *kernel = array.shape
    spare = [
        (0, count * step - extent) for count, step, extent in zip(taps, window.strides, kernel, strict=True)
    ]
    split = [extent for pair in zip(taps, window.strides, strict=True) for extent in pair]
    array = np.pad(array, [(0, 0), (0, 0), *spare]).reshape(groups, outputs // groups, inputs, *split)
    rank = len(taps)  # (groups, O/groups, I/groups, taps, step, taps, step)
    array = array.transpose([0, *range(4, 4 + 2 * rank, 2), 1, 2, *range(3, 3 + 2 * rank, 2)])
    array = np.flip(array, tuple(range(-rank, 0)))  # a later tap reads an earlier input
    places = math.prod(window.strides)
    padded = np.zeros((groups, places, channels, inputs, *taps), array.dtype)
    padded[:, :, : outputs // groups] = array.reshape(groups, places, -1, inputs, *taps)
    return padded.reshape(-1, inputs, *taps)


def product(walk: Walk, variable: relax.Var, call: relax.Call) -> bool:
    """Compute ``data @ weight`` with the result in rows."""
    data, weight = call.args
    obstacle = _product_obstacle(walk, data, weight)
    shape, output, computes = static_shape(weight) or (), static_shape(variable) or (), None
    inputs, outputs = shape[-2:] if len(shape) > 1 else (1, *shape, 1)[:2]
    if output and not obstacle:
        computes = signature.product(data.struct_info.dtype, output[:-1], inputs, outputs)
    macs = math.prod(output) * inputs if output else 0
    row = Convolution(variable.name_hint, (outputs, inputs), 1, macs, obstacle, kind="product")
    # Of whole texels, rows and plain tensors are the same.
    if not _is_blocked(walk, row, computes, Moves(output=size_of(variable) if outputs % walk.lanes else 0)):
        return False
    terms = _terms(walk, variable, inputs, output[:-1])
    rows = walk.rows_of(data)
    if rows is None:  # its last axis is no whole texels: read as plain channels
        rows = walk.reshaped(walk.copy(data), (math.prod(output[:-1]), inputs, 1, 1))
        rows = _in_few(walk, rows, terms) if terms else rows
    dtype, array = variable.struct_info.dtype, weight.data.numpy()
    packed = blocks.packed(array.reshape(shape[-2:]).T, 0, walk.lanes)[:, None]  # (ceil(O/L), 1, I, L)
    walk.rows[variable] = walk.emit(
        lambda x, w: _product_of_rows(
            x, lambda x: _sums(walk, x, w, ONE_PIXEL, 1, dtype, terms), walk.blocking
        ),
        rows,
        _constant(walk, packed, dtype, terms),
        name="product_blocks",
    )
    return True


def blockwise_product(walk: Walk, variable: relax.Var, call: relax.Call) -> bool:
    """Compute a product whose weights stay as few bits as they have, with the result in rows."""
    weights, output = weights_of(walk.module, call), static_shape(variable)
    if weights is None or output is None:
        return False
    data, form = call.args[1].fields[0], weights.form
    shape, macs = (weights.columns, form.terms), math.prod(output) * form.terms
    grounds = f"its weights have {form.bits} bits"
    walk.report.append(Convolution(variable.name_hint, shape, 1, macs, "", grounds, kind="product"))
    rows = walk.rows_of(data)
    if rows is None:
        rows = walk.reshaped(walk.copy(data), (math.prod(output[:-1]), form.terms, 1, 1))
    walk.rows[variable] = walk.emit(
        lambda x, *packed: blocks.convolution(
            x, floats(form, *packed), ONE_PIXEL, 1, "float32", walk.blocking
        ),
        rows,
        *map(relax.const, weights.packed(walk.lanes)),
        name="product_blocks",
    )
    return True


def _product_of_rows(x: te.Tensor, multiply: Callable[[Any], Any], blocking: Blocking) -> te.Tensor:
    """Return what *multiply* makes of *x*, rounded up where nothing divides the number of rows (197 tokens).

    A work-item could take but one row at a time otherwise; what that adds is not stored.
    """
    rows = int(x.shape[0])
    (count,) = blocks.divisible((rows,)) if blocking.rounds else (rows,)
    if count == rows:
        return multiply(x)
    more = te.compute(
        (count, *x.shape[1:]), lambda row, *at: x(tirx.min(row, rows - 1), *at), name="rows_blocks"
    )
    sums = multiply(more)
    return te.compute((rows, *sums.shape[1:]), lambda *at: sums(*at), name="cut_blocks")


def _product_obstacle(walk: Walk, data: relax.Expr, weight: relax.Expr) -> str:
    rows, shape = static_shape(data), static_shape(weight)
    if rows is None or shape is None:
        return "its shapes are not static"
    if not isinstance(weight, relax.Constant):
        if isinstance(data, relax.Constant):
            return "its weight is the left operand"
        return "both operands are computed by the model"
    if len(rows) < 2 or len(shape) < 2 or math.prod(shape[:-2]) != 1 or len(shape) > len(rows):
        return f"its operands have the shapes {rows} and {shape}"
    if data.struct_info.dtype not in walk.blocking.types:
        return f"it computes in {data.struct_info.dtype}"
    if shape[-1] < walk.blocking.least:
        return f"its {shape[-1]} outputs do not fill a texel"
    return ""
