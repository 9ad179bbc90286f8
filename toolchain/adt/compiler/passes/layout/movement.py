"""Operators that move elements: on blocked tensors and on rows where they move whole blocks."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax, tirx

from adt.compiler.ir.rewriter import resized, static_shape
from adt.compiler.passes.layout import blocks
from adt.compiler.passes.layout.blocks import FLOATS, RANKS
from adt.compiler.passes.layout.walk import Inlined, Walk, one_pixel


def pad(walk: Walk, variable: relax.Var, call: relax.Call) -> bool:
    """Pad spatial axes, whose zeros a convolution reads itself, and the end of channels by whole blocks."""
    data, rank = call.args[0], len(static_shape(variable) or ())
    if len(call.args) != 1 or rank not in RANKS:
        return False
    batch, channels, *spatial = zip(*[iter(int(width) for width in call.attrs.pad_width)] * 2, strict=True)
    value, zeros = float(call.attrs.pad_value), (0, 0)
    if batch != zeros:
        return False
    border = value == 0 or data.struct_info.dtype not in FLOATS
    if (
        channels == zeros
        and str(call.attrs.pad_mode) == "constant"
        and border
        and min(map(min, spatial)) >= 0
    ):
        before, after = zip(*spatial, strict=True)
        walk.unpadded[variable] = (data, before, after, int(value))
    if data not in walk.blocked or not walk.can_block(variable):
        return False
    whole_blocks = walk.can_block(data, whole=True) and channels[0] == 0 == channels[1] % walk.lanes
    if channels != zeros and not whole_blocks:
        return False
    widths = [0, 0, 0, channels[1] // walk.lanes, *(width for pair in spatial for width in pair), 0, 0]
    walk.blocked[variable] = walk.builder.emit(
        relax.op.nn.pad(walk.blocked[data], widths, call.attrs.pad_mode, value)
    )
    return True


def concat(walk: Walk, variable: relax.Var, call: relax.Call) -> bool:
    """Concatenate along any axis; along that of the channels if their blocks are whole."""
    (parts,) = call.args
    shape = static_shape(variable)
    if not isinstance(parts, relax.Tuple) or shape is None:
        return False
    axis = int(call.attrs.axis) % len(shape)
    if any(part in walk.blocked for part in parts.fields) and all(
        walk.can_block(part, whole=axis == 1) for part in parts.fields
    ):
        blocked = [walk.blocks_of(part) for part in parts.fields]
        walk.blocked[variable] = walk.builder.emit(relax.op.concat(blocked, axis))
        return True
    if axis != len(shape) - 1 or not any(part in walk.rows for part in parts.fields):
        return False
    if not all(map(walk.in_whole_rows, parts.fields)):
        return False
    walk.rows[variable] = walk.builder.emit(relax.op.concat([walk.rows_of(part) for part in parts.fields], 1))
    return True


def split(walk: Walk, variable: relax.Var, call: relax.Call) -> bool:
    """Split along any axis; along that of the channels if their blocks are whole."""
    (data,) = call.args
    shape = static_shape(data)
    if data not in walk.blocked or shape is None:
        return False
    axis = int(call.attrs.axis) % len(shape)
    extents = [int(part.shape.values[axis]) for part in variable.struct_info.fields]
    if axis == 1 and any(extent % walk.lanes for extent in extents):
        return False
    parts: list[Any] = []
    start, source = 0, walk.blocked[data]
    for channels in extents:
        extent = channels // (walk.lanes if axis == 1 else 1)
        if axis == 1:
            walk.fields[variable, len(parts)] = _part(source, start, extent)
        parts.append(walk.builder.emit(relax.op.strided_slice(source, [axis], [start], [start + extent])))
        start += extent
    walk.tuples[variable] = parts
    return True


def _part(source: Any, first: int, count: int) -> Inlined:
    return Inlined((source,), lambda x: blocks.part(x, first, count), moves=True)


def strided_slice(walk: Walk, variable: relax.Var, call: relax.Call) -> bool:
    """Slice the spatial axes, or whole blocks of channels."""
    data, axes, begin, _, *strides = call.args
    shape, output = static_shape(data), static_shape(variable)
    if data not in walk.blocked or shape is None or output is None or not walk.can_block(variable):
        return False
    numbers = [number for values in (axes, begin, *strides) if (number := _numbers(values)) is not None]
    if len(numbers) < 2 + len(strides):
        return False
    places = [axis % len(shape) for axis in numbers[0]]
    steps = numbers[2] if strides else [1] * len(places)
    starts = [
        min(first + shape[axis] if first < 0 else first, shape[axis])
        for axis, first in zip(places, numbers[1], strict=True)
    ]
    if any(step < 1 for step in steps):
        return False
    if places == [1] and steps == [1] and starts[0] % walk.lanes == 0 == output[1] % walk.lanes:
        first, count = starts[0] // walk.lanes, output[1] // walk.lanes
        walk.inlined[variable] = _part(walk.blocked[data], first, count)
        walk.blocked[variable] = walk.builder.emit(
            relax.op.strided_slice(walk.blocked[data], [1], [first], [first + count])
        )
        return True
    if not all(axis > 1 for axis in places):
        return False
    moves = zip(places, starts, steps, strict=True)
    ends = [first + (output[axis] - 1) * step + 1 for axis, first, step in moves]
    walk.blocked[variable] = walk.builder.emit(
        relax.op.strided_slice(walk.blocks_of(data), places, starts, ends, steps)
    )
    return True


def resize(walk: Walk, variable: relax.Var, call: relax.Call) -> bool:
    """Resize any layout that names its axes; where pixels repeat, a convolution reads the small map."""
    data = call.args[0]
    shape, output = static_shape(data), static_shape(variable)
    if data not in walk.blocked or str(call.attrs.layout) != "NCHW" or not walk.can_block(variable):
        return False
    walk.blocked[variable] = walk.builder.emit(resized(call, walk.blocked[data], f"NCHW{walk.lanes}c"))
    if shape and output and repeats(call.attrs, shape[2:], output[2:]):
        scales = [large // small for small, large in zip(shape[2:], output[2:], strict=True)]
        walk.inlined[variable] = Inlined(
            (walk.blocked[data],), lambda x: blocks.enlarged(x, scales), moves=True
        )
    return True


REPEATING = (("asymmetric", "floor"), ("half_pixel", "round"), ("half_pixel", "round_prefer_floor"))
"""Modes in which a resize by an integer that takes the nearest pixel finds the one that a division gives."""


def repeats(attrs: tvm.ir.Attrs, shape: tuple[int, ...], output: tuple[int, ...]) -> bool:
    """Return True if a resize repeats each pixel an integral number of times."""
    how = (str(attrs.coordinate_transformation_mode), str(attrs.rounding_method))
    whole = all(large % small == 0 for small, large in zip(shape, output, strict=True))
    return str(attrs.method) == "nearest_neighbor" and whole and how in REPEATING


def reshape(walk: Walk, variable: relax.Var, call: relax.Call) -> bool:
    """Reshape where the channels stay where they are, or where all other extents are 1."""
    data = call.args[0]
    shape, output = static_shape(data), static_shape(variable)
    if shape is None or output is None or not output:
        return False
    if data in walk.blocked:
        if shape[:2] == output[:2] and walk.can_block(variable):
            blocked = (shape[0], walk.blocking.count(shape[1]), *output[2:], walk.lanes)
            walk.blocked[variable] = walk.reshaped(walk.blocks_of(data), blocked)
            return True
        if one_pixel(shape) and output[-1] == shape[1]:
            walk.rows[variable] = walk.reshaped(walk.blocks_of(data), walk.blocking.rows_shape(output))
            return True
    elif data in walk.rows:
        if shape[-1] == output[-1] and len(output) > 1:
            walk.rows[variable] = walk.rows[data]
            return True
        if walk.can_block(variable) and one_pixel(output) and shape[-1] == output[1]:
            blocked = (output[0], walk.blocking.count(output[1]), *output[2:], walk.lanes)
            walk.blocked[variable] = walk.reshaped(walk.rows[data], blocked)
            return True
    else:
        return False
    walk.values[variable] = walk.reshaped(walk.copy(data), output)
    return True


def permute(walk: Walk, variable: relax.Var, call: relax.Call) -> bool:
    """Move channels from the second axis to the last, and back: between blocks and rows."""
    (data,) = call.args
    shape, output = static_shape(data), static_shape(variable)
    if shape is None or output is None or call.attrs.axes is None or len(shape) not in RANKS:
        return False
    rank = len(shape)
    axes = tuple(int(axis) % rank for axis in call.attrs.axes)
    single = sum(extent > 1 for extent in output[1:]) <= 1  # the order is the same
    if data in walk.blocked and axes == (0, *range(2, rank), 1):
        result = walk.blocks_of(data)
        if not single:
            result = walk.builder.emit(relax.op.permute_dims(result, [*axes, rank]))
        walk.rows[variable] = walk.reshaped(result, walk.blocking.rows_shape(output))
    elif data in walk.rows and axes == (0, rank - 1, *range(1, rank - 1)) and walk.can_block(variable):
        channels = walk.blocking.count(shape[-1])
        if single:
            blocked = (output[0], channels, *output[2:], walk.lanes)
            walk.blocked[variable] = walk.reshaped(walk.rows[data], blocked)
        else:
            result = walk.reshaped(walk.rows[data], (*shape[:-1], channels, walk.lanes))
            walk.blocked[variable] = walk.builder.emit(relax.op.permute_dims(result, [*axes, rank]))
    else:
        return False
    return True


def _numbers(values: Any) -> list[int] | None:
    """Return the integers of a tuple in Relax; None if one is not known."""
    numbers = []
    for field in getattr(values, "fields", [values]):
        number = field.value if isinstance(field, relax.PrimValue) else None
        if not isinstance(number, tirx.IntImm):
            return None
        numbers.append(int(number))
    return numbers
