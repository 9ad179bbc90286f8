"""Which operators of a model work on blocked tensors: convolutions, and what joins them.

One walk over the model in its order. Every tensor has a plain form, ``(N, C, …)``, a
blocked one (see :mod:`adt.model.texture.blocks`), or both; an operator takes the form it
can use, and what is missing is made once. So whether an operator is blocked is decided
operator by operator, and the model stays right whatever is decided: each rule below
rewrites one operator to one that computes the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from adt.model.texture import blocks
from adt.model.texture.blocks import LANES, Window
from adt.model.texture.report import Convolution
from adt.model.texture.rewriter import ELEMENTWISE, Rewriter, is_flat, resized, static_shape

FLOATS = ("float32", "float16")
"""What an image can hold: four channels of either are one texel."""


class _Walk(Rewriter):
    """One walk over the model."""

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self.blocked: dict[Any, Any] = {}
        """Variable of the model to its blocked form; ``values`` holds the plain ones."""
        self.tuples: dict[Any, list[Any]] = {}
        """Variable of the model that is a tuple, to the blocked forms of its fields."""
        self.convolutions: list[Convolution] = []

    def value_of(self, variable: Any) -> Any:
        """The plain form, unpacked once if there is only a blocked one."""
        from tvm import relax

        if variable not in self.values:
            if variable in self.blocked:
                self.values[variable] = _unpacked(self, variable, self.blocked[variable])
            elif variable in self.tuples:
                fields = zip(variable.struct_info.fields, self.tuples[variable], strict=True)
                self.values[variable] = relax.Tuple([_unpacked(self, *field) for field in fields])
        return super().value_of(variable)

    def bind(self, binding: Any) -> None:
        from tvm import relax

        variable, value = binding.var, binding.value
        if isinstance(value, relax.TupleGetItem) and value.tuple_value in self.tuples:
            self.blocked[variable] = self.tuples[value.tuple_value][value.index]
            return
        if isinstance(value, relax.Call) and not isinstance(binding, relax.MatchCast):
            name = getattr(value.op, "name", "")
            rule = _elementwise if name in ELEMENTWISE else _RULES.get(name)
            made = rule(self, variable, value) if rule else None
            if isinstance(made, list):
                self.tuples[variable] = made
                return
            if made is not None:
                self.blocked[variable] = made
                return
        super().bind(binding)


def block_channels(module: Any) -> tuple[Any, tuple[Convolution, ...]]:
    """Rewrite ``main`` of the Relax *module* so that what can be blocked is.

    Args:
        module: static shapes; weights are bound as constants (they are packed here, once).

    Returns:
        The new module, and what became of each convolution. A model with control flow,
        or without a convolution that can be blocked, comes back as it was.
    """
    from tvm import relax

    if not is_flat(module):
        return module, ()
    walk = _Walk(module)
    made = walk.run()
    convolutions = tuple(walk.convolutions)
    if all(done.reason for done in convolutions):
        return module, convolutions
    return relax.transform.DeadCodeElimination(["main"])(made), convolutions


def _emit(walk: _Walk, expression: Callable[..., Any], *tensors: Any, name: str) -> Any:
    """One kernel that computes the tensor expression of *tensors*."""
    return walk.builder.emit_te(expression, *tensors, primfunc_name_hint=name)


def _unpacked(walk: _Walk, plain: Any, blocked: Any) -> Any:
    """The plain form of *blocked*; *plain* is a variable or a field's type that has its shape."""
    channels = int(getattr(plain, "struct_info", plain).shape.values[1])
    return _emit(walk, lambda x: blocks.unpack(x, channels), blocked, name="unpack_texels")


def _blocked(walk: _Walk, value: Any) -> Any:
    """The blocked form of the tensor *value*, made if need be."""
    if value in walk.blocked:
        return walk.blocked[value]
    made = _emit(walk, blocks.pack, walk.copy(value), name="pack_texels")
    walk.blocked[value] = made
    return made


def _can_block(value: Any, *, whole: bool = False) -> bool:
    """Whether a tensor has channels to block, and with *whole* no lanes to spare."""
    shape = static_shape(value)
    if shape is None or len(shape) not in (3, 4) or value.struct_info.dtype not in FLOATS:
        return False
    return shape[1] % LANES == 0 if whole else shape[1] >= LANES


def _convolution(walk: _Walk, variable: Any, call: Any) -> Any:
    data, weight = call.args
    attrs = call.attrs
    groups = int(attrs.groups)
    reason = _obstacle(data, weight, attrs, groups)
    shape, output = static_shape(weight), static_shape(variable)
    macs = 0
    if shape and output:
        macs = math.prod(output) * math.prod(shape[1:])
    walk.convolutions.append(Convolution(variable.name_hint, shape or (), groups, macs, reason))
    if reason:
        return None
    rank = len(attrs.strides)
    window = _window(shape[2:], attrs, rank)  # type: ignore[index]  # no obstacle: the shape is known
    out_dtype = variable.struct_info.dtype
    return _emit(
        walk,
        lambda x, w: blocks.convolution(x, w, window, groups, out_dtype),
        _blocked(walk, data) if _can_block(data) else walk.copy(data),
        _packed_weight(weight),
        name="conv_texels",
    )


def _obstacle(data: Any, weight: Any, attrs: Any, groups: int) -> str:
    """Why a convolution cannot be blocked; empty if it can."""
    from tvm import relax

    shape = static_shape(weight)
    if shape is None or static_shape(data) is None:
        return "its shapes are not static"
    if not isinstance(weight, relax.Constant):
        return "its weight is computed by the model"
    if not str(attrs.data_layout).startswith("NC") or not str(attrs.kernel_layout).startswith("OI"):
        return f"its layout is {attrs.data_layout}/{attrs.kernel_layout}"
    if data.struct_info.dtype not in FLOATS:
        return f"it computes in {data.struct_info.dtype}"
    outputs, inputs = shape[0], shape[1] * groups
    if outputs < LANES:
        return f"its {outputs} output channels do not fill a texel"
    depthwise = groups == inputs == outputs
    if groups > 1 and not depthwise and (outputs // groups) % LANES:
        return f"its {groups} groups of {outputs // groups} output channels share texels"
    return ""


def _packed_weight(weight: Any) -> Any:
    from tvm import relax

    return relax.const(_pack_array(weight.data.numpy(), axis=0), weight.struct_info.dtype)


def _pack_array(array: Any, axis: int) -> Any:
    """Block the numpy *array*'s *axis*, with zeros in the lanes to spare; the lanes come last."""
    import numpy as np

    extent = array.shape[axis]
    count = blocks.ceil_blocks(extent)
    spare = [(0, count * LANES - extent if at == axis else 0) for at in range(array.ndim)]
    shape = (*array.shape[:axis], count, LANES, *array.shape[axis + 1 :])
    return np.ascontiguousarray(np.moveaxis(np.pad(array, spare).reshape(shape), axis + 1, -1))


def _window(kernel: Sequence[int], attrs: Any, rank: int) -> Window:
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


def _pool(kind: str) -> Callable[[_Walk, Any, Any], Any]:
    def rule(walk: _Walk, variable: Any, call: Any) -> Any:
        (data,) = call.args
        attrs, output, shape = call.attrs, static_shape(variable), static_shape(data)
        if data not in walk.blocked or not str(attrs.layout).startswith("NC") or not output or not shape:
            return None
        rank = len(attrs.strides)
        window = _window(attrs.pool_size, attrs, rank)
        missing = tuple(
            (wanted - extent) * stride
            for wanted, extent, stride in zip(
                output[2:], window.extents(shape[2:]), window.strides, strict=True
            )
        )
        count_padding = kind == "avg" and bool(attrs.count_include_pad)
        if any(missing):  # ceil_mode: the last window reaches beyond the padding
            if count_padding:
                return None
            after = tuple(high + more for high, more in zip(window.after, missing, strict=True))
            window = Window(window.kernel, window.strides, window.before, after, window.dilation)
        if kind == "avg" and any(spread != 1 for spread in window.dilation):
            return None
        return _emit(
            walk,
            lambda x: blocks.pool(x, window, kind, count_padding),
            walk.blocked[data],
            name=f"{kind}_pool_texels",
        )

    return rule


def _global_pool(walk: _Walk, variable: Any, call: Any) -> Any:
    """``mean`` over all spatial axes that keeps them, and adaptive pooling to one element."""
    (data,) = call.args
    shape, output = static_shape(data), static_shape(variable)
    if data not in walk.blocked or shape is None or output is None or len(shape) != len(output):
        return None
    if output[:2] != shape[:2] or any(extent != 1 for extent in output[2:]):
        return None
    if call.op.name == "relax.mean":
        axes = {int(axis) % len(shape) for axis in call.attrs.axis}
        if axes != set(range(2, len(shape))):
            return None
    ones, zeros = (1,) * (len(shape) - 2), (0,) * (len(shape) - 2)
    window = Window(shape[2:], ones, zeros, zeros, ones)
    return _emit(
        walk,
        lambda x: blocks.pool(x, window, "avg", True),
        walk.blocked[data],
        name="global_pool_texels",
    )


def _elementwise(walk: _Walk, variable: Any, call: Any) -> Any:
    """On blocked tensors if one operand is blocked and every other can be."""
    from tvm import relax

    output = static_shape(variable)
    if output is None or not any(arg in walk.blocked for arg in call.args):
        return None
    if not _can_block(variable):
        return None
    made = []
    for arg in call.args:
        if not isinstance(arg.struct_info, relax.TensorStructInfo):
            made.append(arg)
            continue
        operand = _operand(walk, arg, len(output))
        if operand is None:
            return None
        made.append(operand)
    return walk.builder.emit(relax.Call(call.op, made, call.attrs, call.sinfo_args))


def _operand(walk: _Walk, value: Any, rank: int) -> Any:
    """The tensor *value* as an operand that broadcasts to a blocked tensor of plain rank *rank*."""
    import numpy as np
    from tvm import relax

    shape = static_shape(value)
    if shape is None:
        return None
    if value in walk.blocked:
        return walk.blocked[value] if len(shape) == rank else None
    aligned = (1,) * (rank - len(shape)) + shape
    if len(aligned) != rank:
        return None
    if isinstance(value, relax.Constant):
        if all(extent == 1 for extent in aligned):
            return relax.const(value.data.numpy().reshape(()), value.struct_info.dtype)
        array = value.data.numpy().reshape(aligned)
        if aligned[1] == 1:
            return relax.const(np.ascontiguousarray(array[..., None]), value.struct_info.dtype)
        return relax.const(_pack_array(array, axis=1), value.struct_info.dtype)
    if len(shape) == rank and _can_block(value):
        return _blocked(walk, value)
    if len(shape) == rank and shape[1] == 1:  # one channel for all: (N, 1, …) to (N, 1, …, 1)
        return walk.builder.emit(relax.op.reshape(walk.copy(value), (*shape, 1)))
    return None


def _prelu(walk: _Walk, variable: Any, call: Any) -> Any:
    """``max(x, 0) + slope * min(x, 0)``, with a slope for each channel."""
    from tvm import relax

    data, slope = call.args
    shape = static_shape(data)
    if data not in walk.blocked or not isinstance(slope, relax.Constant) or shape is None:
        return None
    if int(call.attrs.axis) % len(shape) != 1:
        return None
    slopes = slope.data.numpy().reshape(-1)
    if slopes.size not in (1, shape[1]):
        return None
    aligned = relax.const(slopes.reshape(1, -1, *(1,) * (len(shape) - 2)), slope.struct_info.dtype)
    x, zero = walk.blocked[data], relax.const(0, slope.struct_info.dtype)
    negative = walk.builder.emit(relax.op.minimum(x, zero))
    scaled = walk.builder.emit(relax.op.multiply(negative, _operand(walk, aligned, len(shape))))
    return walk.builder.emit(relax.op.add(walk.builder.emit(relax.op.nn.relu(x)), scaled))


def _pad(walk: _Walk, variable: Any, call: Any) -> Any:
    """Padding of the spatial axes, and of the channels at their end by whole blocks."""
    from tvm import relax

    data = call.args[0]
    if data not in walk.blocked or len(call.args) != 1 or not _can_block(variable):
        return None
    batch, channels, *spatial = zip(*[iter(int(width) for width in call.attrs.pad_width)] * 2, strict=True)
    whole = channels == (0, 0) or (_can_block(data, whole=True) and channels[0] == 0 == channels[1] % LANES)
    if not whole or batch != (0, 0):
        return None
    widths = [0, 0, 0, channels[1] // LANES, *(width for pair in spatial for width in pair), 0, 0]
    return walk.builder.emit(
        relax.op.nn.pad(walk.blocked[data], widths, call.attrs.pad_mode, float(call.attrs.pad_value))
    )


def _concat(walk: _Walk, variable: Any, call: Any) -> Any:
    from tvm import relax

    (parts,) = call.args
    if not isinstance(parts, relax.Tuple) or not any(part in walk.blocked for part in parts.fields):
        return None
    axis = int(call.attrs.axis) % len(static_shape(variable) or (0,))
    if not all(_can_block(part, whole=axis == 1) for part in parts.fields):
        return None
    return walk.builder.emit(relax.op.concat([_blocked(walk, part) for part in parts.fields], axis))


def _split(walk: _Walk, variable: Any, call: Any) -> Any:
    from tvm import relax

    (data,) = call.args
    if data not in walk.blocked:
        return None
    shape = static_shape(data)
    assert shape is not None  # it is blocked
    axis = int(call.attrs.axis) % len(shape)
    fields = [tuple(int(extent) for extent in part.shape.values) for part in variable.struct_info.fields]
    if axis == 1 and any(part[1] % LANES for part in fields):
        return None
    scale = LANES if axis == 1 else 1
    made, start = [], 0
    for part in fields:
        end = start + part[axis] // scale
        made.append(walk.builder.emit(relax.op.strided_slice(walk.blocked[data], [axis], [start], [end])))
        start = end
    return made


def _resize(walk: _Walk, variable: Any, call: Any) -> Any:
    """TVM's resize computes any layout that names its axes."""
    data = call.args[0]
    if data not in walk.blocked or str(call.attrs.layout) != "NCHW" or not _can_block(variable):
        return None
    return walk.builder.emit(resized(call, walk.blocked[data], f"NCHW{LANES}c"))


_RULES: Mapping[str, Callable[[_Walk, Any, Any], Any]] = {
    "relax.concat": _concat,
    "relax.image.resize2d": _resize,
    "relax.mean": _global_pool,
    "relax.nn.adaptive_avg_pool2d": _global_pool,
    "relax.nn.avg_pool1d": _pool("avg"),
    "relax.nn.avg_pool2d": _pool("avg"),
    "relax.nn.conv1d": _convolution,
    "relax.nn.conv2d": _convolution,
    "relax.nn.max_pool1d": _pool("max"),
    "relax.nn.max_pool2d": _pool("max"),
    "relax.nn.pad": _pad,
    "relax.nn.prelu": _prelu,
    "relax.split": _split,
}
