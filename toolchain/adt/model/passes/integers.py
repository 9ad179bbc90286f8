"""Convolutions and products of quantized tensors as sums of whole numbers.

A quantized model says for each tensor of 8 bits which floats it stands for, ``(q - zero) * scale``, and
computes with these. Its convolutions and products need not::

    sum((x - zx) * sx * w * sw)  =  (sum(x * w) - zx * sum(w)) * (sx * sw)

What only moves elements, or takes the largest, moves the 8 bits; before a concatenation its parts become
what it is quantized to. Sigmoids and the like of 8 bits are looked up. All else stays an operator on floats,
which are computed where they are read: what follows a sum is part of its kernel, up to the next 8 bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from adt.model.passes import pointwise
from adt.model.passes.cpu.dot import Dot
from adt.model.passes.layout.convolutions import in_steps, outputs_first, window_of
from adt.model.passes.layout.rewriter import ELEMENTWISE, Rewriter, readers_of, static_shape
from adt.model.passes.nodes import operator_name
from adt.model.passes.pointwise import Pointwise
from adt.model.passes.reports import Convolution

RANGES = {"int8": (-128, 127), "uint8": (0, 255)}
LARGEST_TERM = 255 * 128
"""Of the products that a sum adds up."""
EXACT = 1 << 24
"""Whole numbers up to which float32 holds each."""
ROUNDS = 3 << 22
"""In whose neighbourhood float32 holds whole numbers only."""
LEAST_ROWS = 4
"""Rows from which on it is worth to pack what a product of computed tensors multiplies them by."""


@dataclass(frozen=True)
class Quantized:
    """Floats ``(values - zero) * scale``."""

    values: Any
    """A tensor of 8 bits, of the new function."""
    scale: float
    zero: Any
    """A number, or a scalar of int32 of the new function: what is quantized at run time has such."""


@dataclass(frozen=True)
class Weights:
    """Constant floats ``values * scale``."""

    values: Any
    """A numpy array of int8."""
    scale: Any
    """A numpy array of float32: one element, or as many as :attr:`values` has along :attr:`axis`."""
    axis: int


class Floats(Exception):
    """A convolution or product computes floats; the message says why."""


class Integers(Rewriter):
    """Rewrites ``main`` for a processor that sums products of whole numbers.

    The arguments are those of :func:`in_integers`.
    """

    def __init__(self, module: Any, data: str, least: int, computed: Dot | None) -> None:
        super().__init__(module)
        self.dtype = data if data in RANGES else "uint8"
        """uint8 or int8; tensors of the other type are computed in this one."""
        self.least = least
        self.dot_of_computed = computed
        self.floats: dict[Any, Quantized] = {}
        """Variable of the old function that stands for floats, which nothing has computed yet."""
        self.bytes: dict[Any, Any] = {}
        """Variable of 8 bits of the old function, to what it is as :attr:`dtype`."""
        self.weights: dict[Any, Weights] = {}
        self.embeddings: dict[Any, Quantized] = {}
        """Variable of the old function that is constant floats, to the numpy array that they are of."""
        self.wholes: dict[Any, Quantized] = {}
        """Variable of whole numbers, int32 or float32, of the old function: the scale is 1."""
        self.constants: dict[Any, Any] = {}
        """Such a variable to its numbers, if they are known."""
        self.exact: dict[Any, Any] = {}
        """Variable of the old function, of any type, to sums of the new one that have its numbers."""
        self.sums: set[Any] = set()
        """Variables of the old function that are sums, or computed from one element by element."""
        self.readers = readers_of(module)
        self.kinds: dict[Any, Any] = {}
        """Variable of the old function, scale and zero to its 8 bits of these."""
        self.functions: dict[Any, Pointwise] = {}
        """Variable of the old function to what it is of a tensor of 8 bits."""
        self.tables: dict[Any, Pointwise] = {}
        """Variable of 8 bits of the new function to what it was looked up of."""
        self.report: list[Convolution] = []
        """What became of each convolution and product."""

    def value_of(self, variable: Any) -> Any:
        """The floats are computed for each reader, which is fused with that."""
        from tvm import relax

        if variable in self.floats:
            return self._dequantized(self.floats[variable])
        if variable in self.exact and variable not in self.values:
            sums = self.exact[variable]
            dtype = variable.struct_info.dtype
            same = sums.struct_info.dtype == dtype
            self.values[variable] = sums if same else self.emit(relax.op.astype, sums, dtype)
        if variable in self.bytes and variable not in self.values:
            self.values[variable] = self._shifted(self.bytes[variable], variable.struct_info.dtype)
        return super().value_of(variable)

    def bind(self, binding: Any) -> None:
        from tvm import relax

        variable, value = binding.var, binding.value
        name = operator_name(value)
        if name in ELEMENTWISE and not self.sums.isdisjoint(value.args):
            self.sums.add(variable)
        if function := pointwise.applied(variable, value, self.function_of):
            self.functions[variable] = function
        if isinstance(value, relax.TupleGetItem) and value.tuple_value in self.floats:
            parts = self.floats[value.tuple_value]
            part = self.builder.emit(relax.TupleGetItem(parts.values, value.index))
            self.floats[variable] = replace(parts, values=part)
            return
        rule = _RULES.get(name)
        if rule is None or isinstance(binding, relax.MatchCast) or not rule(self, variable, value):
            super().bind(binding)

    def convolutions(self) -> tuple[Convolution, ...]:
        """The report of a model that has quantized tensors, of others nothing."""
        computed = any(not row.reason for row in self.report)
        return tuple(self.report) if self.floats or self.weights or computed else ()

    def emit(self, op: Callable[..., Any], *args: Any, **attributes: Any) -> Any:
        return self.builder.emit(op(*args, **attributes))

    def takes(self, weights: Any) -> bool:
        """Whether the processor multiplies by the numpy array *weights*."""
        return bool(self.least <= weights.min(initial=0) and weights.max(initial=0) <= RANGES["int8"][1])

    def shift(self, dtype: str) -> int:
        """What a number of *dtype* is more as :attr:`dtype`."""
        return RANGES[self.dtype][0] - RANGES[dtype][0]

    def quantized(self, value: Any, scale: float, zero: int, *, sums: bool) -> Any:
        """The float tensor *value* of the new function, as :attr:`dtype`.

        Args:
            sums: it is multiplied, which is much faster than the division of the model's own runtime, and
                hardly a sum lies in the middle of two quanta, where that makes a difference. What was
                quantized before often does.
        """
        from tvm import relax

        op = relax.op
        low, high = (_number(bound - zero + ROUNDS) for bound in RANGES[self.dtype])
        steps = (
            self.emit(op.multiply, value, _number(1 / scale))
            if sums
            else self.emit(op.divide, value, _number(scale))
        )
        return self._rounded(steps, low, high, _number(ROUNDS - zero))

    def quantized_by(self, value: Any, scale: Any, zero: Any) -> Any:
        """The float tensor *value* of the new function, as :attr:`dtype`, by a scale and a zero of 8 bits
        that are scalars of it."""
        from tvm import relax

        op, shift = relax.op, self.shift(zero.struct_info.dtype)
        start = self.emit(
            op.subtract, relax.const(float(ROUNDS - shift)), self.emit(op.astype, zero, "float32")
        )
        low, high = (self.emit(op.add, start, relax.const(float(bound))) for bound in RANGES[self.dtype])
        return self._rounded(self.emit(op.divide, value, scale), low, high, start)

    def _rounded(self, steps: Any, low: Any, high: Any, start: Any) -> Any:
        """The quanta *steps* from *low* to *high*, of which *start* is taken: all more by ROUNDS.

        A sum with that has no digits behind the point: it is rounded as ONNX rounds, by vectors. The limits
        stand between, since TVM takes a number that is added and subtracted for nothing.
        """
        from tvm import relax

        op = relax.op
        least = self.emit(op.maximum, self.emit(op.add, steps, _number(ROUNDS)), low)
        steps = self.emit(op.subtract, self.emit(op.minimum, least, high), start)
        return self.emit(op.astype, steps, self.dtype)

    def kind_of(self, variable: Any) -> tuple[float, int] | None:
        """The scale and zero of the floats *variable*, if nothing has computed them yet."""
        tensor = self.floats.get(variable)
        return (tensor.scale, tensor.zero) if tensor else None

    def as_kind(self, variable: Any, scale: float, zero: int) -> Any:
        """The 8 bits that the floats *variable* are of such a scale and zero."""
        if self.kind_of(variable) == (scale, zero):
            return self.floats[variable].values
        key = (variable, scale, zero)
        if key not in self.kinds:
            function = self.functions.get(variable)
            self.kinds[key] = (
                self._looked_up(function, scale, zero)
                if function and function.slow
                else self.quantized(self.copy(variable), scale, zero, sums=variable in self.sums)
            )
        return self.kinds[key]

    def function_of(self, variable: Any) -> Pointwise | None:
        """What the floats *variable* are of a tensor of 8 bits."""
        import numpy as np

        tensor = self.floats.get(variable)
        if tensor is None:
            return self.functions.get(variable)
        every = Pointwise(tensor.values, np.arange(256, dtype="uint8").view(self.dtype))
        table = self.tables.get(tensor.values, every)
        floats = (table.values.astype("float32") - tensor.zero) * np.float32(tensor.scale)
        return replace(table, values=floats)

    def _looked_up(self, function: Pointwise, scale: float, zero: int) -> Any:
        """The 8 bits that *function* gives, quantized."""
        from tvm import relax

        numbers = pointwise.quantized(function.values, scale, zero, *RANGES[self.dtype]).astype(self.dtype)
        bits = self.emit(relax.op.astype, function.base, "uint8")
        index = self.emit(relax.op.astype, bits, "int32")
        result = self.emit(relax.op.take, relax.const(numbers), index, axis=0, mode="clip")
        self.tables[result] = replace(function, values=numbers)
        return result

    def wanted(self, variable: Any) -> tuple[float, int] | None:
        """The scale and zero that all which reads *variable* quantizes it by."""
        kinds = {_kind(self, reader.value) if reader else None for reader in self.readers[variable]}
        return kinds.pop() if len(kinds) == 1 else None

    def _dequantized(self, tensor: Quantized) -> Any:
        from tvm import relax

        value = self.emit(relax.op.astype, tensor.values, "float32")
        if tensor.zero:
            value = self.emit(relax.op.subtract, value, _number(tensor.zero))
        return self.emit(relax.op.multiply, value, _number(tensor.scale))

    def _shifted(self, value: Any, dtype: str) -> Any:
        """The tensor *value* of 8 bits as *dtype*, by as much more as its range is."""
        from tvm import relax

        own = str(value.struct_info.dtype)
        if own == dtype:
            return value
        wide = self.emit(relax.op.astype, value, "int16")
        more = relax.const(RANGES[dtype][0] - RANGES[own][0], "int16")
        return self.emit(relax.op.astype, self.emit(relax.op.add, wide, more), dtype)

    def bytes_of(self, variable: Any) -> Any:
        """The *variable* of 8 bits as :attr:`dtype`."""
        if variable not in self.bytes:
            self.bytes[variable] = self._shifted(super().value_of(variable), self.dtype)
        return self.bytes[variable]


def in_integers(
    module: Any, data: str, least: int = RANGES["int8"][0], computed: Dot | None = None
) -> tuple[Any, tuple[Convolution, ...]]:
    """The *module*, and what became of each convolution and product if it is quantized.

    Args:
        module: flat, with its parameters bound.
        data: type of what the processor multiplies by weights.
        least: of these; what has others stays as it is.
        computed: its instruction for products of two computed tensors; None: these are of floats.
    """
    from tvm import relax

    integers = Integers(module, data, least, computed)
    result = relax.transform.DeadCodeElimination(["main"])(integers.run())
    return result, integers.convolutions()


def _number(value: float, dtype: str = "float32") -> Any:
    """A tensor of one element: a parameter, so that layers of other numbers have the same kernel."""
    import numpy as np
    from tvm import relax

    return relax.const(np.full(1, value, dtype), dtype)


Rule = Callable[[Integers, Any, Any], bool]
"""Says what becomes of the call that a variable is bound to; False: it is copied."""


def _array(value: Any) -> Any | None:
    """The numbers of a constant."""
    from tvm import relax

    return value.data.numpy() if isinstance(value, relax.Constant) else None


def _kind(self: Integers, call: Any) -> tuple[float, int] | None:
    """The scale and zero by which *call* quantizes floats, if it does by one for all."""
    if operator_name(call) != "relax.quantize":
        return None
    value, scale, zero = call.args[0], *map(_array, call.args[1:3])
    dtype = str(call.struct_info.dtype)
    if dtype not in RANGES or scale is None or zero is None or scale.size != 1 or zero.size != 1:
        return None
    if value.struct_info.dtype != "float32" or not scale.item() > 0:
        return None
    return float(scale.item()), int(zero.item()) + self.shift(dtype)


def _quantize(self: Integers, variable: Any, call: Any) -> bool:
    value, *by = call.args
    if kind := _kind(self, call):
        self.bytes[variable] = self.as_kind(value, *kind)
        return True
    scalars = all(static_shape(number) == () for number in by)
    if not scalars or variable.struct_info.dtype not in RANGES or value.struct_info.dtype != "float32":
        return False
    self.bytes[variable] = self.quantized_by(*map(self.copy, call.args))
    return True


def _dequantize(self: Integers, variable: Any, call: Any) -> bool:
    value, scale, zero = call.args[0], *map(_array, call.args[1:3])
    dtype = str(value.struct_info.dtype)
    if dtype not in RANGES or scale is None or zero is None or variable.struct_info.dtype != "float32":
        return False
    array = _array(value)
    if array is None:
        if scale.size != 1 or zero.size != 1:
            return False
        self.floats[variable] = Quantized(
            self.bytes_of(value), float(scale.item()), int(zero.item()) + self.shift(dtype)
        )
        return True
    if scale.size == zero.size == 1:
        self.embeddings[variable] = Quantized(array, float(scale.item()), int(zero.item()))
    axis = int(call.attrs.axis) % array.ndim if array.ndim else 0
    weights = array.astype("int32") - _along(zero.astype("int32"), axis, array.ndim)
    if self.takes(weights):
        self.weights[variable] = Weights(weights.astype("int8"), scale.reshape(-1), axis)
    return False  # other readers want the floats


def _along(array: Any, axis: int, rank: int) -> Any:
    """*array*, of one element or one axis, as it broadcasts along *axis* of a tensor of *rank*."""
    return array.reshape([-1 if at == axis else 1 for at in range(rank)])


def _transposed_weights(self: Integers, variable: Any, call: Any) -> bool:
    """Also of what is quantized itself."""
    weights = self.weights.get(call.args[0])
    if weights is None:
        return _moved(self, variable, call)
    rank = weights.values.ndim
    axes = [int(axis) % rank for axis in call.attrs.axes or range(rank)[::-1]]
    self.weights[variable] = replace(
        weights, values=weights.values.transpose(axes), axis=axes.index(weights.axis)
    )
    return False


def _reshaped_weights(self: Integers, variable: Any, call: Any) -> bool:
    """Also of what is quantized itself."""
    weights, shape = self.weights.get(call.args[0]), static_shape(variable)
    if weights is None or shape is None:
        return _moved(self, variable, call)
    before = weights.values.shape[: weights.axis]
    extent = weights.scale.size
    places = [
        axis
        for axis, size in enumerate(shape)
        if size == extent and math.prod(shape[:axis]) == math.prod(before)
    ]
    if extent == 1 or places:
        axis = places[-1] if extent > 1 else 0
        self.weights[variable] = replace(weights, values=weights.values.reshape(shape), axis=axis)
    return False


def _summed(compute: Callable[[Integers, Any, Any], Any]) -> Rule:
    """The rule of a convolution or product that *compute* gives the new value of, or raises Floats."""

    def rule(self: Integers, variable: Any, call: Any) -> bool:
        reason = ""
        try:
            result = compute(self, variable, call)
            (self.exact if call.args[0] in self.wholes else self.values)[variable] = result
            self.sums.add(variable)
        except Floats as floats:
            reason = str(floats)
        self.report.append(_reported(variable, call, reason))
        return not reason

    return rule


def _reported(variable: Any, call: Any, reason: str) -> Convolution:
    name, kind = variable.name_hint, operator_name(call)
    result, data, weight = (
        static_shape(tensor) or (0,) * tensor.struct_info.ndim for tensor in (variable, *call.args)
    )
    if kind == "relax.matmul":
        inputs, outputs = weight[-2:] if len(weight) > 1 else (*weight, 1)
        return Convolution(name, (outputs, inputs), 1, math.prod(result) * inputs, reason, kind="product")
    groups, layout = int(call.attrs.groups), str(call.attrs.kernel_layout)
    spread, channel = (data, "I") if kind.endswith("_transpose") else (result, "O")
    macs = math.prod(spread) * math.prod(weight) // max(1, weight[layout.index(channel)])
    order = sorted(range(len(layout)), key=lambda axis: ("OI".find(layout[axis]) % 3, axis))
    return Convolution(name, tuple(weight[axis] for axis in order), groups, macs, reason)


def _operands(self: Integers, call: Any) -> tuple[Quantized, Weights]:
    """The quantized data and constants of a convolution or product.

    Raises:
        Floats: it has none.
    """
    import numpy as np

    data, weights = self.floats.get(call.args[0]), self.weights.get(call.args[1])
    if call.args[0] in self.wholes:
        data, numbers = self.wholes[call.args[0]], _whole_numbers(self, call.args[1])
        if numbers is not None and self.takes(numbers):
            weights = Weights(numbers.astype("int8"), np.ones(1, "float32"), 0)
    if data is None:
        raise Floats("its input is not quantized")
    if weights is None:
        raise Floats("its weights are no constants of 8 bits around zero")
    return data, weights


def _convolution(self: Integers, variable: Any, call: Any) -> Any:
    """
    Raises:
        Floats: it computes these.
    """
    from tvm import relax

    attrs = call.attrs
    data, weights = _operands(self, call)
    layouts = [str(layout) for layout in (attrs.data_layout, attrs.kernel_layout, attrs.out_layout)]
    output = layouts[1].index("O")
    terms = math.prod(weights.values.shape) // weights.values.shape[output]
    if weights.scale.size > 1 and weights.axis != output:
        raise Floats("its weights have several scales in a sum")
    groups, channel = int(attrs.groups), layouts[0].index("C")
    shape = (static_shape(variable) or ())[channel : channel + 1]
    if shape != weights.values.shape[output : output + 1] or layouts[2] not in ("", layouts[0]):
        raise Floats("its layout is unusual")
    if terms * LARGEST_TERM >= (EXACT if groups > 1 else 1 << 31):
        raise Floats("a sum could be too large")
    values = _with_border(self, data, layouts[0], attrs.padding)
    sums = self.builder.emit(
        getattr(relax.op.nn, call.op.name.rpartition(".")[2])(
            values,
            relax.const(weights.values, "int8"),
            strides=list(attrs.strides),
            padding=0,
            dilation=list(attrs.dilation),
            groups=groups,
            data_layout=layouts[0],
            kernel_layout=layouts[1],
            # Channel by channel no instruction sums several products; of so few, float32 is exact, and fast.
            out_dtype="float32" if groups > 1 else "int32",
        )
    )
    others = tuple(axis for axis in range(weights.values.ndim) if axis != output)
    return _scaled(self, sums, data, weights, others, channel, whole=call.args[0] in self.wholes)


def _transposed(self: Integers, variable: Any, call: Any) -> Any:
    """A plain convolution whose channels are those of each pixel of a step, which are then moved there.

    Raises:
        Floats: it computes these.
    """
    import numpy as np
    from tvm import relax

    op, attrs = relax.op, call.attrs
    data, weights = _operands(self, call)
    layouts = [str(layout) for layout in (attrs.data_layout, attrs.kernel_layout)]
    inputs, output = static_shape(call.args[0]), static_shape(variable)
    if weights.scale.size > 1 and weights.axis != 1:
        raise Floats("its weights have several scales in a sum")
    if not inputs or not output or not layouts[0].startswith("NC") or not layouts[1].startswith("IO"):
        raise Floats("its layout is unusual")
    array, channels = outputs_first(weights.values, 1), output[1]
    steps = in_steps(array, window_of(array.shape[2:], attrs), 1, channels, inputs[2:], output[2:])
    window, rank = steps.window, len(steps.strides)
    if int(attrs.groups) > 1 or max(attrs.dilation) > 1 or min(*window.before, *window.after) < 0:
        raise Floats("it has groups or is dilated, or its border is wider than its window")
    if math.prod(steps.weight.shape[1:]) * LARGEST_TERM >= 1 << 31:
        raise Floats("a sum could be too large")
    values = _with_border(self, data, layouts[0], (*window.before, *window.after))
    convolution = getattr(op.nn, f"conv{rank}d")
    sums = self.emit(convolution, values, relax.const(steps.weight, "int8"), out_dtype="int32")
    scale = np.tile(np.broadcast_to(weights.scale, (channels,)), math.prod(steps.strides))
    others = tuple(range(1, rank + 2))
    pixels = _scaled(self, sums, data, Weights(steps.weight, scale, 0), others, 1)
    extents = window.extents(inputs[2:])
    split = self.emit(op.reshape, pixels, (output[0], *steps.strides, channels, *extents))
    order = [0, 1 + rank, *(axis for place in range(rank) for axis in (2 + rank + place, 1 + place))]
    wide = [extent * step for extent, step in zip(extents, steps.strides, strict=True)]
    whole = self.emit(op.reshape, self.emit(op.permute_dims, split, order), (*output[:2], *wide))
    ends = [start + extent for start, extent in zip(steps.first, output[2:], strict=True)]
    return self.emit(op.strided_slice, whole, list(range(2, 2 + rank)), list(steps.first), ends)


def _with_border(self: Integers, data: Quantized, layout: str, border: Sequence[Any]) -> Any:
    """The 8 bits, with what stands for zero around them: a *border* as convolutions' padding is written."""
    import numpy as np
    from tvm import relax

    padding = [int(extent) for extent in border]
    if not any(padding):
        return data.values
    rank = len(layout) - 2
    padding = padding * 2 if len(padding) == rank else padding
    widths = [0] * 2 * len(layout)
    spatial = [axis for axis, name in enumerate(layout) if name not in "NC"]
    for place, axis in enumerate(spatial):
        widths[2 * axis : 2 * axis + 2] = padding[place], padding[rank + place]
    number = data.zero if isinstance(data.zero, int) else 0
    padded = self.emit(relax.op.nn.pad, data.values, widths, "constant", float(number))
    if number is data.zero:
        return padded
    sizes = [1 if name in "NC" else int(padded.struct_info.shape[axis]) for axis, name in enumerate(layout)]
    around = np.ones(sizes, self.dtype)
    around[tuple(slice(low, -high or None) for low, high in zip(widths[::2], widths[1::2], strict=True))] = 0
    zero = self.emit(relax.op.astype, self.emit(relax.op.reshape, data.zero, (1,) * len(layout)), self.dtype)
    return self.emit(relax.op.add, padded, self.emit(relax.op.multiply, zero, relax.const(around)))


def _product(self: Integers, variable: Any, call: Any) -> Any:
    """
    Raises:
        Floats: it computes these.
    """
    from tvm import relax

    if call.args[0] in self.floats and call.args[1] in self.floats:
        return _product_of_computed(self, call)
    data, weights = _operands(self, call)
    if weights.values.ndim != 2 or (weights.scale.size > 1 and weights.axis != 1):
        raise Floats("its weights are several matrices, or have several scales in a sum")
    if len(weights.values) * LARGEST_TERM >= 1 << 31:
        raise Floats("a sum could be too large")
    constant = relax.const(weights.values, "int8")
    sums = self.emit(relax.op.matmul, data.values, constant, out_dtype="int32")
    channel, whole = len(static_shape(variable) or ()) - 1, call.args[0] in self.wholes
    return _scaled(self, sums, data, weights, (0,), channel, whole=whole)


def _product_of_computed(self: Integers, call: Any) -> Any:
    """Of two quantized tensors, as attention has it.

    Raises:
        Floats: the instruction does not take their shapes.
    """
    from tvm import relax

    op, dot = relax.op, self.dot_of_computed
    if dot is None:
        raise Floats("no instruction for two computed tensors takes all numbers")
    left, right = (self.floats[tensor] for tensor in call.args)
    a, b = (static_shape(tensor) or () for tensor in call.args)
    if min(len(a), len(b)) < 2 or a[-2] < LEAST_ROWS or a[-1] % dot.terms:
        raise Floats(f"it has under {LEAST_ROWS} rows, or sums of no multiple of {dot.terms} products")
    if a[-1] * LARGEST_TERM * 2 >= 1 << 31:
        raise Floats("a sum could be too large")
    scale = _number(left.scale * right.scale)
    if dot.data not in RANGES:  # there is room for what is around zero
        x, y = (
            self.emit(op.subtract, self.emit(op.astype, part.values, dot.data), _number(part.zero, dot.data))
            for part in (left, right)
        )
        sums = self.emit(op.matmul, x, y, out_dtype="int32")
        return self.emit(op.multiply, self.emit(op.astype, sums, "float32"), scale)
    x, y = left.values, self._shifted(right.values, dot.weights)
    zero = right.zero + RANGES[dot.weights][0] - RANGES[self.dtype][0]
    sums = self.emit(op.matmul, x, y, out_dtype="int32")
    # sum((x - zx) * (y - zy)) = sum(x * y) - zx * sum(y) - zy * sum(x) + terms * zx * zy
    for part, factor, axis in ((y, left.zero, -2), (x, zero, -1)):
        if factor:
            total = self.emit(op.sum, self.emit(op.astype, part, "int32"), axis=[axis], keepdims=True)
            sums = self.emit(op.subtract, sums, self.emit(op.multiply, total, _number(factor, "int32")))
    if border := a[-1] * left.zero * zero:
        sums = self.emit(op.add, sums, _number(border, "int32"))
    return self.emit(op.multiply, self.emit(op.astype, sums, "float32"), scale)


def _widened(self: Integers, variable: Any, call: Any) -> bool:
    (value,) = call.args
    dtype = str(value.struct_info.dtype)
    if value in self.exact:
        self.exact[variable] = self.exact[value]
        return True
    if variable.struct_info.dtype in ("int32", "float32") and dtype in RANGES:
        array = _array(value)
        if array is None:
            self.wholes[variable] = Quantized(self.bytes_of(value), 1, self.shift(dtype))
        else:
            self.constants[variable] = array.astype("int32")
    return False  # others may read it


def _finite(self: Integers, variable: Any, call: Any) -> bool:
    """What a float is that becomes a whole number: sums of these are finite."""
    condition, chosen, _ = call.args
    checks = [
        reader.var
        for reader in self.readers[chosen]
        if reader and operator_name(reader.value) == "relax.isfinite"
    ]
    if chosen not in self.exact or not any(check.same_as(condition) for check in checks):
        return False
    self.exact[variable] = self.exact[chosen]
    return True


def _whole_numbers(self: Integers, value: Any) -> Any | None:
    """The numbers of a constant, if all are whole."""
    import numpy as np

    array = self.constants.get(value, _array(value))
    return None if array is None or (array != np.rint(array)).any() else array.astype("int32")


def _shifted(self: Integers, variable: Any, call: Any) -> bool:
    from tvm import relax

    value, less = call.args
    if value not in self.constants and value not in self.wholes:
        return False
    number = _whole_numbers(self, less)
    if value in self.constants:
        if number is not None:
            self.constants[variable] = self.constants[value] - number
    elif static_shape(less) == ():
        whole = self.wholes[value]
        if not isinstance(whole.zero, int):
            return False
        if number is not None:
            zero = whole.zero + int(number)
        elif less in self.wholes or less.struct_info.dtype == "int32":
            computed = self.emit(relax.op.astype, self.copy(less), "int32")
            zero = self.emit(relax.op.add, computed, relax.const(whole.zero, "int32"))
        else:
            return False
        self.wholes[variable] = replace(whole, zero=zero)
    return False


def _scaled(
    self: Integers,
    sums: Any,
    data: Quantized,
    weights: Weights,
    terms: Sequence[int],
    axis: int,
    *,
    whole: bool = False,
) -> Any:
    """The floats that *sums* of *data* times *weights* are; *axis* is that of the channels.

    Args:
        terms: the axes of the weights that each sum goes over.
        whole: the scales are 1, and whole numbers are wanted.
    """
    import numpy as np
    from tvm import relax

    rank, dtype = len(sums.struct_info.shape), str(sums.struct_info.dtype)
    totals = _along(weights.values.sum(terms, dtype=np.int64), axis, rank)
    if not isinstance(data.zero, int):
        zero = self.emit(relax.op.astype, data.zero, dtype)
        border = self.emit(relax.op.multiply, zero, relax.const(totals.astype(dtype), dtype))
        sums = self.emit(relax.op.subtract, sums, border)
    elif data.zero:
        sums = self.emit(relax.op.subtract, sums, relax.const((data.zero * totals).astype(dtype), dtype))
    if whole:
        return sums
    if dtype != "float32":
        sums = self.emit(relax.op.astype, sums, "float32")
    scale = np.float32(data.scale) * weights.scale.astype(np.float32)
    form = scale.reshape(1) if scale.size == 1 else _along(scale, axis, rank)
    return self.emit(relax.op.multiply, sums, relax.const(form, "float32"))


def _taken(self: Integers, variable: Any, call: Any) -> bool:
    """Also rows of constants, as embeddings are."""
    from tvm import relax

    table = self.embeddings.get(call.args[0])
    if table is None:
        return _moved(self, variable, call)
    more = self.shift(str(table.values.dtype))
    values = relax.const((table.values.astype("int16") + more).astype(self.dtype), self.dtype)
    rows = self.builder.emit(relax.Call(call.op, [values, *map(self.copy, call.args[1:])], call.attrs))
    self.floats[variable] = Quantized(rows, table.scale, table.zero + more)
    return True


def _moved(self: Integers, variable: Any, call: Any) -> bool:
    """What gives some of the elements of its first operand, whatever they stand for."""
    from tvm import relax

    data = self.floats.get(call.args[0])
    if data is None:
        return False
    others = [self.copy(arg) for arg in call.args[1:]]
    moved = relax.Call(call.op, [data.values, *others], call.attrs, call.sinfo_args)
    self.floats[variable] = replace(data, values=self.builder.emit(moved))
    return True


def _nearest(self: Integers, variable: Any, call: Any) -> bool:
    return str(call.attrs.method) == "nearest_neighbor" and _moved(self, variable, call)


def _pad(self: Integers, variable: Any, call: Any) -> bool:
    from tvm import relax

    data, attrs = self.floats.get(call.args[0]), call.attrs
    if data is None or len(call.args) != 1 or float(attrs.pad_value) != 0:
        return False
    padded = relax.op.nn.pad(data.values, list(attrs.pad_width), str(attrs.pad_mode), float(data.zero))
    self.floats[variable] = replace(data, values=self.builder.emit(padded))
    return True


def _concat(self: Integers, variable: Any, call: Any) -> bool:
    from tvm import relax

    parts = getattr(call.args[0], "fields", ())
    kinds = {self.kind_of(part) for part in parts}
    kind = (kinds.pop() if len(kinds) == 1 else None) or self.wanted(variable)
    if kind is None:
        return False
    joined = relax.op.concat([self.as_kind(part, *kind) for part in parts], int(call.attrs.axis))
    self.floats[variable] = Quantized(self.builder.emit(joined), *kind)
    return True


def _relu(self: Integers, variable: Any, call: Any) -> bool:
    """None of what is stored is below the zero point: then nothing is to be done."""
    data = self.floats.get(call.args[0])
    if data is None or data.zero != RANGES[self.dtype][0]:
        return False
    self.floats[variable] = data
    return True


def _mean(self: Integers, variable: Any, call: Any) -> bool:
    """Whole numbers are summed in float32; nothing but their mean is made a float of the model."""
    from tvm import relax

    data, attrs = self.floats.get(call.args[0]), call.attrs
    if data is None or (getattr(attrs, "count_include_pad", False) and any(attrs.padding)):
        return False
    wide = self.emit(relax.op.astype, data.values, "float32")
    mean = self.builder.emit(relax.Call(call.op, [wide], attrs))
    self.values[variable] = self._dequantized(replace(data, values=mean))
    return True


_MOVES = (
    "expand_dims",
    "flatten",
    "nn.max_pool1d",
    "nn.max_pool2d",
    "nn.max_pool3d",
    "split",
    "squeeze",
    "strided_slice",
)
_RULES: Mapping[str, Rule] = {
    **{f"relax.{name}": _moved for name in _MOVES},
    **{f"relax.nn.avg_pool{rank}d": _mean for rank in (1, 2, 3)},
    **{f"relax.nn.conv{rank}d": _summed(_convolution) for rank in (1, 2, 3)},
    **{f"relax.nn.conv{rank}d_transpose": _summed(_transposed) for rank in (1, 2, 3)},
    "relax.astype": _widened,
    "relax.concat": _concat,
    "relax.dequantize": _dequantize,
    "relax.image.resize2d": _nearest,
    "relax.matmul": _summed(_product),
    "relax.mean": _mean,
    "relax.nn.adaptive_avg_pool2d": _mean,
    "relax.nn.pad": _pad,
    "relax.nn.relu": _relu,
    "relax.permute_dims": _transposed_weights,
    "relax.quantize": _quantize,
    "relax.reshape": _reshaped_weights,
    "relax.subtract": _shifted,
    "relax.take": _taken,
    "relax.where": _finite,
}
