"""Operators of a model that work on blocked tensors: convolutions, matrix products, and what joins them.

One walk over the model in its order (:mod:`adt.compiler.passes.layout.walk`). An operator takes the
form of its tensors that it can use, and what is missing is made once. So whether an operator
is blocked is decided operator by operator, and the model stays right whatever is decided:
each rule rewrites one operator to one that computes the same. The rules of convolutions are in
:mod:`convolutions`, those of operators that move elements in :mod:`movement`, all others here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import tvm
from tvm import relax

from adt.compiler.ir.rewriter import ELEMENTWISE, is_flat, static_shape
from adt.compiler.passes.extrema import EXTREMUM
from adt.compiler.passes.layout import blocks, movement
from adt.compiler.passes.layout.blocks import BYTES, FLOATS, TEXELS, Blocking, Window
from adt.compiler.passes.layout.convolutions import (
    blockwise_product,
    convolution,
    product,
    transposed,
    window_of,
)
from adt.compiler.passes.layout.walk import RESHAPES, Chooser, Inlined, Rule, Walk, read
from adt.compiler.passes.normalizations import Rows, normalized_maps
from adt.package.reports import Convolution

MOST_PLACES = 1 << 13
"""Places of a map that one work-group normalizes: of more, too few would be busy for long."""

MOST_PARTS = 1 << 8  # in which a GPU takes a number of all elements
EXTREMES = ("relax.max", "relax.min")
"""Extremes of a tensor, which a GPU looks for at once: mostly both are wanted."""


def elementwise(walk: Walk, variable: relax.Var, call: relax.Call) -> bool:
    """Compute in a form that one operand has, if every other can have it."""
    shape = static_shape(variable)
    if shape is None:
        return False
    if walk.can_block(variable) and any(arg in walk.blocked for arg in call.args):
        result = _computed(walk, call, _blocked, shape)
        if result is not None:
            walk.blocked[variable] = result
            _gate(walk, variable, call)
            _floats_of_bytes(walk, variable, call)
            return True
    if any(arg in walk.rows for arg in call.args):
        result = _computed(walk, call, _in_rows, shape)
        if result is not None:
            walk.rows[variable] = result
            return True
    if shape and all(isinstance(arg, relax.Constant) or static_shape(arg) == () for arg in call.args):
        walk.of_scalars[variable] = call
    return False


def lookup(walk: Walk, variable: relax.Var, call: relax.Call) -> bool:
    """Look up what a constant table has at each element of a tensor, in the form of that."""
    table, index = call.args
    if not isinstance(table, relax.Constant) or table.struct_info.ndim != 1:
        return False
    forms = walk.blocked if index in walk.blocked else walk.rows
    if index not in forms:
        return False
    dtype = table.struct_info.dtype
    if walk.blocking.words and dtype in BYTES:  # of bytes that lie apart TVM makes no vectors for OpenCL
        table = relax.const(table.data.numpy().astype("int32"))
    looked_up = partial(blocks.lookup, dtype=dtype)
    attributes = {blocks.LOOKUP: 1}
    forms[variable] = walk.emit(looked_up, table, forms[index], name="lookup", attributes=attributes)
    return True


def prelu(walk: Walk, variable: relax.Var, call: relax.Call) -> bool:
    """Compute ``max(x, 0) + slope * min(x, 0)``, with a slope for each channel."""
    data, slope = call.args
    shape = static_shape(data)
    if data not in walk.blocked or not isinstance(slope, relax.Constant) or shape is None:
        return False
    if int(call.attrs.axis) % len(shape) != 1:
        return False
    slopes = slope.data.numpy().reshape(-1)
    if slopes.size not in (1, shape[1]):
        return False
    aligned = relax.const(slopes.reshape(1, -1, *(1,) * (len(shape) - 2)), slope.struct_info.dtype)
    x, zero = walk.blocks_of(data), relax.const(0, slope.struct_info.dtype)
    negative = walk.builder.emit(relax.op.minimum(x, zero))
    scaled = walk.builder.emit(relax.op.multiply(negative, _blocked(walk, aligned, shape)))
    walk.blocked[variable] = walk.builder.emit(relax.op.add(walk.builder.emit(relax.op.nn.relu(x)), scaled))
    return True


def _gate(walk: Walk, variable: relax.Var, call: relax.Call) -> None:
    """Leave a map's gate by channel (squeeze-and-excite) to the convolution that reads its texels once."""
    if call.op.name != "relax.multiply":
        return
    output = static_shape(variable)
    gates = [
        arg for arg in call.args if output and static_shape(arg) == (*output[:2], *(1,) * len(output[2:]))
    ]
    maps = [arg for arg in call.args if static_shape(arg) == output and arg in walk.blocked]
    if len(gates) == len(maps) == 1 and gates[0] in walk.blocked:
        sources = (walk.blocked[maps[0]], walk.blocked[gates[0]])
        walk.inlined[variable] = Inlined(sources, blocks.scaled, moves=False)


def _floats_of_bytes(walk: Walk, variable: relax.Var, call: relax.Call) -> None:
    """Read the bytes instead of their floats, which are four times as large."""
    source = walk.blocked[call.args[0]] if call.op.name == "relax.astype" else None
    if source is not None and source.struct_info.dtype in BYTES:
        walk.inlined[variable] = Inlined((source,), blocks.floats, moves=False)


Operand = Callable[[Walk, Any, tuple[int, ...]], Any | None]
"""A tensor's form that broadcasts to that of another, whose plain shape is given; None: there is none."""


def _computed(walk: Walk, call: relax.Call, operand: Operand, output: tuple[int, ...]) -> relax.Var | None:
    """Return what *call* gives, of the forms of its operands that broadcast to that of *output*."""
    operands = []
    for arg in call.args:
        tensor = isinstance(arg.struct_info, relax.TensorStructInfo)
        form = operand(walk, arg, output) if tensor else arg
        if form is None:
            return None
        operands.append(form)
    return walk.builder.emit(relax.Call(call.op, operands, call.attrs, call.sinfo_args))


def _blocked(walk: Walk, value: relax.Expr, output: tuple[int, ...]) -> Any | None:
    rank, shape = len(output), static_shape(value)
    if shape is None or len(shape) > rank:
        return None
    if isinstance(value, relax.Constant):
        return _blocked_constant(walk, value, rank)
    if value in walk.of_scalars and len(shape) == rank:
        return _computed(walk, walk.of_scalars[value], _blocked, output)
    if len(shape) != rank:
        return walk.copy(value) if not shape and walk.blocking.widens else None
    if shape[1] == 1 < output[1]:  # one channel for all: (N, 1, …) to (N, 1, …, 1)
        return walk.reshaped(walk.copy(value), (*shape, 1))
    if value in walk.blocked or walk.can_block(value):
        return walk.blocks_of(value) if shape == output else walk.apart(walk.blocks_of(value))
    return None


def _in_rows(walk: Walk, value: relax.Expr, output: tuple[int, ...]) -> relax.Expr | None:
    shape = static_shape(value)
    if shape is None or len(shape) > len(output):
        return None
    if isinstance(value, relax.Constant):
        return _rows_of_constant(walk, value, output)
    if not shape:
        return walk.copy(value) if walk.blocking.widens else None
    if value in walk.of_scalars:
        return _computed(walk, walk.of_scalars[value], _in_rows, output)
    if shape == output:
        return walk.rows_of(value)
    if shape == (*output[:-1], 1):  # one number for the row
        return walk.reshaped(walk.copy(value), (*walk.blocking.rows_shape(output)[:1], 1, 1, 1, 1))
    return None


def _rows_of_constant(walk: Walk, value: relax.Expr, output: tuple[int, ...]) -> relax.Constant:
    """Broadcast the constant tensor *value* to the rows of a tensor of the shape *output*."""
    array = value.data.numpy()
    if array.size == 1:
        return _one_number(walk, array, value.struct_info.dtype)
    last = array.shape[-1]
    if array.size == last:  # the same for each row
        array = array.reshape(1, last)
    else:
        array = np.broadcast_to(array, (*output[:-1], last)).reshape(-1, last)
    form = array if last == 1 else blocks.packed(array, axis=1, lanes=walk.lanes)
    lanes = 1 if last == 1 else walk.lanes
    return relax.const(form.reshape(len(array), -1, 1, 1, lanes), value.struct_info.dtype)


def _one_number(walk: Walk, array: Any, dtype: str) -> Any:
    """Make *array* part of a GPU's kernel, a parameter where a CPU sums integers: layers share kernels."""
    shared = walk.blocking.terms and not walk.blocking.words
    return relax.const(array if shared else array.reshape(()), dtype)


def _blocked_constant(walk: Walk, value: relax.Expr, rank: int) -> Any:
    """Broadcast the constant tensor *value* to a blocked tensor of plain rank *rank*."""
    array = value.data.numpy()
    if array.size == 1:
        return _one_number(walk, array, value.struct_info.dtype)
    array = array.reshape((1,) * (rank - array.ndim) + array.shape)
    if array.shape[1] == 1:
        return relax.const(np.ascontiguousarray(array[..., None]), value.struct_info.dtype)
    return relax.const(blocks.packed(array, axis=1, lanes=walk.lanes), value.struct_info.dtype)


def pool(walk: Walk, variable: relax.Var, call: relax.Call, *, kind: str) -> bool:
    """Pool by giving the *kind* (``max`` or ``avg``) of each window."""
    (data,) = call.args
    attrs, output, shape = call.attrs, static_shape(variable), static_shape(data)
    if data not in walk.blocked or not str(attrs.layout).startswith("NC") or not output or not shape:
        return False
    window = window_of(attrs.pool_size, attrs)
    lengths = zip(output[2:], window.extents(shape[2:]), window.strides, strict=True)
    missing = [(length - extent) * stride for length, extent, stride in lengths]
    count_padding = kind == "avg" and bool(attrs.count_include_pad)
    if any(missing):  # ceil_mode: the last window reaches beyond the padding
        if count_padding:
            return False
        window = window.widened([0] * len(missing), missing)
    if kind == "avg" and any(spread != 1 for spread in window.dilation):
        return False
    walk.blocked[variable] = _pooled(walk, data, window, kind, count_padding)
    return True


def adaptive_pool(walk: Walk, variable: relax.Var, call: relax.Call) -> bool:
    """Compute adaptive averages whose windows are all of one size."""
    (data,) = call.args
    shape, output = static_shape(data), static_shape(variable)
    if data not in walk.blocked or shape is None or output is None or call.attrs.layout != "NCHW":
        return False
    if any(extent % length for extent, length in zip(shape[2:], output[2:], strict=True)):
        return False
    sizes = tuple(extent // length for extent, length in zip(shape[2:], output[2:], strict=True))
    walk.blocked[variable] = _pooled(walk, data, _tiles(sizes), "avg", False)
    return True


def global_pool(walk: Walk, variable: relax.Var, call: relax.Call, *, kind: str) -> bool:
    """Take a mean or maximum over all spatial axes, whether they are kept or not."""
    (data,) = call.args
    shape, output = static_shape(data), static_shape(variable)
    if call.attrs.axis is None:
        return of_all(walk, variable, call)
    if data not in walk.blocked or shape is None or output is None:
        return False
    if {int(axis) % len(shape) for axis in call.attrs.axis} != set(range(2, len(shape))):
        return False
    result = _pooled(walk, data, _tiles(shape[2:]), kind, False)
    if len(output) == len(shape):
        walk.blocked[variable] = result
    else:
        walk.rows[variable] = walk.reshaped(result, walk.blocking.rows_shape(shape[:2]))
    return True


def of_all(walk: Walk, variable: relax.Var, call: relax.Call) -> bool:
    """Reduce all elements as one row, which a CPU reads by vectors, or as a row for each GPU work-group."""
    (data,) = call.args
    shape = static_shape(data)
    if call.attrs.axis is not None or static_shape(variable) != () or not shape or not walk.blocking.widens:
        return False
    whole = data in walk.blocked and walk.can_block(data, whole=True)
    if not whole and not walk.blocking.words:
        return False
    elements, count = walk.blocked[data] if whole else walk.copy(data), math.prod(shape)
    if walk.blocking.words:
        parts = math.gcd(count, MOST_PARTS)
        rows = walk.reshaped(elements, (parts, count // parts))
        if call.op.name in EXTREMES and data.struct_info.dtype in FLOATS:
            if data not in walk.extremes:
                of_parts = walk.emit(blocks.extremes, rows, name="extremes")
                walk.extremes[data] = walk.builder.emit(relax.op.max(of_parts, 1))
            walk.extreme_of[variable] = walk.extremes[data], EXTREMES.index(call.op.name)
            return True
        row = walk.builder.emit(getattr(relax.op, call.op.name.rpartition(".")[2])(rows, 1))
    else:
        row = walk.reshaped(elements, (count,))
    walk.values[variable] = walk.builder.emit(relax.Call(call.op, [row], call.attrs))
    return True


def _tiles(sizes: tuple[int, ...]) -> Window:
    """Return windows of these *sizes*, one next to the other."""
    zeros, ones = (0,) * len(sizes), (1,) * len(sizes)
    return Window(sizes, sizes, zeros, zeros, ones)


def _pooled(walk: Walk, data: relax.Expr, window: Window, kind: str, count_padding: bool) -> Any:
    whole = math.prod(window.extents((static_shape(data) or ())[2:])) == 1
    source = walk.inlined.get(data)
    if source is None or source.expression is not blocks.floats:
        source = read(walk.blocks_of(data))
    return walk.emit(
        lambda x: blocks.pool(source.expression(x), window, kind, count_padding),
        *source.tensors,
        name=f"global_{'avg' if kind == 'avg' else 'max'}_pool_blocks" if whole else f"{kind}_pool_blocks",
    )


def group_norm(walk: Walk, variable: relax.Var, call: relax.Call) -> bool:
    """Normalize the places of each channel, where a kernel that has a row of texels does not take long."""
    data, *extras = call.args
    shape, rows = static_shape(data), walk.row_kernels
    texels = rows.columns if rows else None
    if rows is None or texels is None or data not in walk.blocked or shape is None:
        return False
    if math.prod(shape[2:]) > MOST_PLACES:
        return False
    constants = all(isinstance(extra, relax.Constant) for extra in extras)
    spatial = sorted(int(axis) for axis in call.attrs.axes) == list(range(2, len(shape)))
    if not constants or not spatial or int(call.attrs.num_groups) != shape[1]:
        return False
    aligned = (relax.const(extra.data.numpy().reshape(1, -1, *(1,) * len(shape[2:]))) for extra in extras)
    walk.blocked[variable] = walk.emit(
        lambda x, *rest: normalized_maps(texels(x), float(call.attrs.epsilon), *rest),
        walk.blocks_of(data),
        *(_blocked_constant(walk, extra, len(shape)) for extra in aligned),
        name="normalization_blocks",
        attributes=rows.attributes,
    )
    return True


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(ELEMENTWISE, elementwise),
    **dict.fromkeys(RESHAPES, movement.reshape),
    "relax.call_tir": blockwise_product,
    "relax.concat": movement.concat,
    "relax.image.resize2d": movement.resize,
    "relax.matmul": product,
    "relax.max": partial(global_pool, kind=EXTREMUM),
    "relax.mean": partial(global_pool, kind="avg"),
    "relax.min": of_all,
    "relax.nn.adaptive_avg_pool2d": adaptive_pool,
    **{f"relax.nn.avg_pool{rank}d": partial(pool, kind="avg") for rank in (1, 2, 3)},
    **{f"relax.nn.conv{rank}d": convolution for rank in (1, 2, 3)},
    **{f"relax.nn.conv{rank}d_transpose": transposed for rank in (1, 2, 3)},
    "relax.nn.group_norm": group_norm,
    **{f"relax.nn.max_pool{rank}d": partial(pool, kind="max") for rank in (1, 2, 3)},
    "relax.nn.pad": movement.pad,
    "relax.nn.prelu": prelu,
    "relax.permute_dims": movement.permute,
    "relax.split": movement.split,
    "relax.strided_slice": movement.strided_slice,
    "relax.take": lookup,
}


def block_channels(
    module: tvm.IRModule, chooser: Chooser, blocking: Blocking = TEXELS, rows: Rows | None = None
) -> tuple[tvm.IRModule, tuple[Convolution, ...]]:
    """Rewrite ``main`` of the Relax *module* in blocks, where *chooser* takes a convolution or product.

    Returns the module, as it was if it has control flow or nothing is blocked, and the outcome of each
    convolution and product. Weights are bound as constants. *rows* tells how kernels go through rows.
    """
    if not is_flat(module):
        return module, ()
    walk = Walk(module, chooser, RULES, blocking, rows)
    rewritten = walk.run()
    report = tuple(walk.report)
    if all(row.reason for row in report):
        return module, report
    return relax.transform.DeadCodeElimination(["main"])(rewritten), report
