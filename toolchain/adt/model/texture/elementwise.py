"""Operators that compute each element from those at the same place, on blocked tensors and on rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from adt.model.texture import blocks
from adt.model.texture.blocks import LANES
from adt.model.texture.rewriter import static_shape
from adt.model.texture.walk import Inlined, Walk, can_block, rows_shape


def elementwise(walk: Walk, variable: Any, call: Any) -> bool:
    """In a form that one operand has, if every other can have it."""
    if static_shape(variable) is None:
        return False
    if can_block(variable) and any(arg in walk.blocked for arg in call.args):
        made = _computed(walk, variable, call, _blocked)
        if made is not None:
            walk.blocked[variable] = made
            _gate(walk, variable, call)
            return True
    if any(arg in walk.rows for arg in call.args):
        made = _computed(walk, variable, call, _in_rows)
        if made is not None:
            walk.rows[variable] = made
            return True
    return False


def prelu(walk: Walk, variable: Any, call: Any) -> bool:
    """``max(x, 0) + slope * min(x, 0)``, with a slope for each channel."""
    from tvm import relax

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


def _gate(walk: Walk, variable: Any, call: Any) -> None:
    """What a map is multiplied with channel by channel, a convolution that reads each of its texels once can
    multiply there: the end of squeeze-and-excite."""
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


Operand = Callable[[Walk, Any, tuple[int, ...]], Any | None]
"""A tensor's form that broadcasts to that of another, whose plain shape is given; None: there is none."""


def _computed(walk: Walk, variable: Any, call: Any, operand: Operand) -> Any | None:
    from tvm import relax

    shape = static_shape(variable)
    assert shape is not None  # elementwise looks
    made = []
    for arg in call.args:
        tensor = isinstance(arg.struct_info, relax.TensorStructInfo)
        form = operand(walk, arg, shape) if tensor else arg
        if form is None:
            return None
        made.append(form)
    return walk.builder.emit(relax.Call(call.op, made, call.attrs, call.sinfo_args))


def _blocked(walk: Walk, value: Any, output: tuple[int, ...]) -> Any | None:
    from tvm import relax

    rank, shape = len(output), static_shape(value)
    if shape is None or len(shape) > rank:
        return None
    if isinstance(value, relax.Constant):
        return _blocked_constant(value, rank)
    if len(shape) != rank:
        return None
    if value in walk.blocked or can_block(value):
        return walk.blocks_of(value) if shape == output else walk.apart(walk.blocks_of(value))
    if shape[1] == 1:  # one channel for all: (N, 1, …) to (N, 1, …, 1)
        return walk.reshaped(walk.copy(value), (*shape, 1))
    return None


def _in_rows(walk: Walk, value: Any, output: tuple[int, ...]) -> Any | None:
    from tvm import relax

    shape = static_shape(value)
    if shape is None or len(shape) > len(output):
        return None
    if isinstance(value, relax.Constant):
        return _rows_of_constant(value, output)
    if shape == output:
        return walk.rows_of(value)
    if shape == (*output[:-1], 1):  # one number for the row
        return walk.reshaped(walk.copy(value), (*rows_shape(output)[:1], 1, 1, 1, 1))
    return None


def _rows_of_constant(value: Any, output: tuple[int, ...]) -> Any:
    """The constant tensor *value* as it broadcasts to the rows of a tensor of the shape *output*."""
    import numpy as np
    from tvm import relax

    array = value.data.numpy()
    if array.size == 1:
        return relax.const(array.reshape(()), value.struct_info.dtype)
    last = array.shape[-1]
    if array.size == last:  # the same for each row
        array = array.reshape(1, last)
    else:
        array = np.broadcast_to(array, (*output[:-1], last)).reshape(-1, last)
    form = array if last == 1 else blocks.packed(array, axis=1)
    return relax.const(form.reshape(len(array), -1, 1, 1, 1 if last == 1 else LANES), value.struct_info.dtype)


def _blocked_constant(value: Any, rank: int) -> Any:
    """The constant tensor *value* as it broadcasts to a blocked tensor of plain rank *rank*."""
    import numpy as np
    from tvm import relax

    array = value.data.numpy()
    array = array.reshape((1,) * (rank - array.ndim) + array.shape)
    if array.size == 1:
        return relax.const(array.reshape(()), value.struct_info.dtype)
    if array.shape[1] == 1:
        return relax.const(np.ascontiguousarray(array[..., None]), value.struct_info.dtype)
    return relax.const(blocks.packed(array, axis=1), value.struct_info.dtype)
