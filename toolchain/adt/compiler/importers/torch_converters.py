"""Operators of PyTorch that TVM's importer lacks, or converts to others. Imports TVM."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any

import numpy as np
import onnx
from tvm import relax, topi

from adt.compiler.importers.onnx.converters import CONVERTERS as OF_ONNX
from adt.compiler.importers.onnx.converters.node import Node, literal
from adt.compiler.ir.rewriter import static_shape
from adt.errors import AdtError, ModelError, UnsupportedOp, last_line

Emit = Callable[[Any], Any]
"""Binds an expression to a variable."""
Converter = Callable[[Any, Any], Any]
"""Makes the Relax variable of a node, with TVM's importer."""


def put(emit: Emit, data: Any, indices: Sequence[Any], values: Any, *, adds: bool) -> Any:
    """Put *values* into *data*, or add them, where *indices* say, one for each axis; None is all of an axis.

    TVM's own operator wants an index for every axis, in their order, and adds from several threads at once.
    """
    named = {axis: index for axis, index in enumerate(indices) if index is not None}
    if any(index.struct_info.dtype == "bool" for index in named.values()):
        return _put_by_mask(emit, data, named, values, adds=adds)
    order, places, lead = _order(emit, data, named)
    extents, moved = list(data.struct_info.shape), emit(relax.op.permute_dims(data, order))
    counts = list(reduce(lambda a, b: emit(relax.op.add(a, b)), places).struct_info.shape)
    rest = [extents[axis] for axis in order[len(places) :]]
    shape, behind = [*rest[:lead], *counts, *rest[lead:]], lead + len(counts)
    turned = [*range(lead, behind), *range(lead), *range(behind, len(shape))]
    updates = emit(relax.op.permute_dims(emit(relax.op.broadcast_to(values, shape)), turned))
    spread = [emit(relax.op.broadcast_to(place, counts)) for place in places]
    stacked = emit(relax.op.stack(spread, axis=len(counts)))
    result = emit(relax.op.scatter_nd(moved, stacked, updates, "add" if adds else "update"))
    return emit(relax.op.permute_dims(result, [order.index(axis) for axis in range(len(extents))]))


def pick(emit: Emit, data: Any, indices: Sequence[Any]) -> Any:
    """Return the elements of *data* at *indices*, one for each axis; None is all of an axis.

    TVM's converter reads before the data by negative indices, and takes indices of some axes one by one.
    """
    named = {axis: index for axis, index in enumerate(indices) if index is not None}
    if any(index.struct_info.dtype == "bool" for index in named.values()):
        raise ModelError(
            "a mask selects elements: their number depends on the input's values",
            remedy="Write torch.where(mask, x, other) instead of x[mask], or end the model before it.",
        )
    order, places, lead = _order(emit, data, named)
    if len(places) == 1:
        return emit(relax.op.take(data, places[0], order[0]))
    picked = emit(relax.op.index_tensor(emit(relax.op.permute_dims(data, order)), places))
    rank, count = len(picked.struct_info.shape), len(order) - len(places)
    behind = rank - count + lead
    turned = [*range(rank - count, behind), *range(rank - count), *range(behind, rank)]
    return emit(relax.op.permute_dims(picked, turned))


def _order(emit: Emit, data: Any, named: dict[int, Any]) -> tuple[list[int], list[Any], int]:
    """Return *data*'s axes with *named* ones first, their indices, and how many others these follow."""
    shape, axes = data.struct_info.shape, list(named)
    places = [_counted_from_first(emit, index, shape[axis]) for axis, index in named.items()]
    # axes of indices side by side stay in their place, others come first
    lead = axes[0] if axes == list(range(axes[0], axes[-1] + 1)) else 0
    return [*axes, *(axis for axis in range(len(shape)) if axis not in named)], places, lead


def _counted_from_first(emit: Emit, index: Any, extent: Any) -> Any:
    """Return the elements of *index* without negative ones."""
    zero, wide = relax.const(0, "int64"), emit(relax.op.astype(index, "int64"))
    length = relax.const(int(extent), "int64")
    return emit(relax.op.where(emit(relax.op.less(wide, zero)), emit(relax.op.add(wide, length)), wide))


def _put_by_mask(emit: Emit, data: Any, named: dict[int, Any], values: Any, *, adds: bool) -> Any:
    """Put one value, or add it, where a mask is true."""
    (axis, mask), *others = named.items()
    if others or any(getattr(extent, "value", 0) != 1 for extent in values.struct_info.shape):
        raise ModelError(
            "a mask selects the elements that get values: their number depends on the input's values",
            remedy="Write torch.where(mask, values, x) with values of x's shape instead of x[mask] = values.",
        )
    ones = [1] * (len(data.struct_info.shape) - axis - len(mask.struct_info.shape))
    mask = emit(relax.op.reshape(mask, [*mask.struct_info.shape, *ones]))
    value = emit(relax.op.reshape(values, ()))
    return emit(relax.op.where(mask, emit(relax.op.add(data, value)) if adds else value, data))


def _index(node: Any, importer: Any) -> Any:
    return pick(importer.block_builder.emit, *importer.retrieve_args(node))


def _index_put(node: Any, importer: Any) -> Any:
    data, indices, values, *adds = importer.retrieve_args(node)
    return put(importer.block_builder.emit, data, indices, values, adds=bool(adds and adds[0]))


def _select(node: Any, importer: Any) -> Any:
    """Take an axis' element at a number, negative ones from its end, or at a tensor that ``item`` gave."""
    data, axis, index = importer.retrieve_args(node)
    emit, shape = importer.block_builder.emit, data.struct_info.shape
    axis %= len(shape)
    if isinstance(index, int):
        return emit(relax.op.take(data, relax.const(index % int(shape[axis]), "int64"), axis))
    return pick(emit, data, [*[None] * axis, index])


def _scatter(node: Any, importer: Any) -> Any:
    data, axis, index, values = importer.retrieve_args(node)
    reduction = "add" if node.target.__name__ == "scatter_add.default" else "update"
    return importer.block_builder.emit(relax.op.scatter_elements(data, index, values, axis, reduction))


def arguments_of(node: Any) -> dict[str, Any]:
    """Map the names of a node's parameters to its arguments, or to their defaults."""
    parameters = node.target._schema.arguments
    given = {each.name: each.default_value for each in parameters} | dict(node.kwargs)
    return given | {each.name: value for each, value in zip(parameters, node.args, strict=False)}


def _as_onnx(importer: Any, op: str, name: str, inputs: Sequence[Any], by_tvm: Any, **attributes: Any) -> Any:
    """Convert as adt does ONNX's operator *op*, by *by_tvm* where TVM computes the same."""
    proto = onnx.helper.make_node(op, (), (), name, **attributes)
    return OF_ONNX[op](Node(proto, tuple(inputs), 20, importer.block_builder, {}, by_tvm))


def _grid_sample(node: Any, importer: Any) -> Any:
    """Convert as ONNX's operator: TVM reads the grid's axes in another order."""
    data, grid, mode, padding, corners = importer.retrieve_args(node)
    mode, padding = ("linear", "nearest", "cubic")[mode], ("zeros", "border", "reflection")[padding]
    attributes = {"mode": mode, "padding_mode": padding, "align_corners": int(corners)}
    value = _as_onnx(importer, "GridSample", node.name, (data, grid), None, **attributes)
    return importer.block_builder.emit(value)


def _resize(node: Any, importer: Any) -> Any:
    """Convert as ONNX's Resize: TVM leaves out antialiasing, and takes scales for a flag."""
    name, given = node.target.__name__, arguments_of(node)
    data, (_, _, *size) = importer.env[node.args[0]], node.meta["val"].shape
    scales = given.get("scale_factors") or [given.get(key) for key in ("scales_h", "scales_w")]
    corners, smooth = bool(given.get("align_corners")), "_aa" in name
    if corners and smooth:
        raise _refusal(node, "nothing aligns corners and smooths at once")
    mode = "nearest" if "nearest" in name else "cubic" if "bicubic" in name else "linear"
    coordinates = "asymmetric" if mode == "nearest" else "align_corners" if corners else "half_pixel"
    if None in scales or corners:
        batch, channels, *_ = (int(extent) for extent in data.struct_info.shape)
        inputs = (data, None, None, literal(np.array([batch, channels, *size], np.int64)))
    else:
        inputs = (data, None, literal(np.array([1, 1, *scales], np.float32)), None)

    def by_tvm(_inputs: Any) -> Any:
        method, rounding = ("nearest_neighbor", "floor") if mode == "nearest" else (mode, "")
        return relax.op.image.resize2d(data, size, None, "NCHW", method, coordinates, rounding, -0.75)

    value = _as_onnx(  # PyTorch leaves out what lies outside where it smooths
        importer, "Resize", node.name, inputs, by_tvm, mode=mode, nearest_mode="floor", cubic_coeff_a=-0.75,
        coordinate_transformation_mode=coordinates, antialias=int(smooth), exclude_outside=int(smooth),
    )  # fmt: skip
    return importer.block_builder.emit(value)


def _average_pool(node: Any, importer: Any) -> Any:
    """Convert as ONNX's operator: TVM counts windows that reach beyond the padding as whole ones."""
    given, data = arguments_of(node), importer.env[node.args[0]]
    if given.get("divisor_override"):
        raise _refusal(node, "nothing reads its divisor_override")
    emit, rank = importer.block_builder.emit, int(node.target.__name__[len("avg_pool")])
    kernel, padding = (list(np.broadcast_to(given[key], rank)) for key in ("kernel_size", "padding"))
    is_batch = data.struct_info.ndim == rank + 2
    data = data if is_batch else emit(relax.op.expand_dims(data, 0))
    value = _as_onnx(
        importer, "AveragePool", node.name, (data,), None, kernel_shape=kernel, pads=padding * 2,
        strides=list(np.broadcast_to(given["stride"] or kernel, rank)), ceil_mode=int(given["ceil_mode"]),
        count_include_pad=int(given["count_include_pad"]),
    )  # fmt: skip
    if value is None:
        return _by_tvm(node, importer)
    return emit(value) if is_batch else emit(relax.op.squeeze(emit(value), [0]))


def _convolution(node: Any, importer: Any) -> Any:
    """Convert a transposed convolution with zeros in a dilated kernel: TVM takes no dilations there."""
    data, weight, bias, strides, padding, dilation, transposed, extra, groups = importer.retrieve_args(node)
    emit, rank, is_dilated = importer.block_builder.emit, len(strides), set(dilation) != {1}
    if not transposed or (rank < 3 and not is_dilated):
        return _by_tvm(node, importer)
    if is_dilated:
        weight = importer.block_builder.emit_te(topi.nn.dilate, weight, [1, 1, *dilation])
    convolve = getattr(relax.op.nn, f"conv{rank}d_transpose")
    result = emit(convolve(data, weight, strides, padding, extra, groups=groups))
    if bias is None:
        return result
    return emit(relax.op.add(result, relax.op.reshape(bias, [1, -1, *[1] * rank])))


def _product(node: Any, importer: Any) -> Any:
    """Multiply matrices in the type of the operands: TVM computes float32 of any."""
    left, right = importer.retrieve_args(node)
    return importer.block_builder.emit(relax.op.matmul(left, right, left.struct_info.dtype))


def _clamp(node: Any, importer: Any) -> Any:
    """Limit by comparisons: TVM's limits are floats, and infinite where there is none."""
    given, value = arguments_of(node), importer.env[node.args[0]]
    dtype, emit = value.struct_info.dtype, importer.block_builder.emit
    for name, limit in (("min", relax.op.maximum), ("max", relax.op.minimum)):
        if (number := given.get(name)) is not None:
            number = importer.env[number] if number in importer.env else relax.const(number, dtype)
            value = emit(limit(value, number))
    return value


def _elu(node: Any, importer: Any) -> Any:
    """Convert with the factors that make it a SELU or a CELU, which TVM does not read."""
    given, value = arguments_of(node), importer.env[node.args[0]]
    emit, dtype = importer.block_builder.emit, value.struct_info.dtype
    inner, factors = value, (given["scale"], given["alpha"] * given["scale"])
    if given["input_scale"] != 1:
        inner = emit(relax.op.multiply(value, relax.const(given["input_scale"], dtype)))
    grown = emit(relax.op.subtract(emit(relax.op.exp(inner)), relax.const(1, dtype)))
    positive, negative = (
        emit(relax.op.multiply(part, relax.const(factor, dtype)))
        for part, factor in zip((value, grown), factors, strict=True)
    )
    return emit(relax.op.where(emit(relax.op.greater(value, relax.const(0, dtype))), positive, negative))


def _norm(node: Any, importer: Any) -> Any:
    """Normalize groups, or channels, by two passes: TVM's sums of squares lose all digits far from zero."""
    given, data = arguments_of(node), importer.env[node.args[0]]
    emit, shape = importer.block_builder.emit, [int(extent) for extent in data.struct_info.shape]
    apart = data if data.struct_info.dtype != "float16" else emit(relax.op.astype(data, "float32"))
    axes = [0, *range(2, len(shape))]
    if groups := given.get("group"):
        apart, axes = emit(relax.op.reshape(apart, [shape[0], groups, math.prod(shape[1:]) // groups])), [2]
    dtype = apart.struct_info.dtype
    apart = emit(relax.op.subtract(apart, emit(relax.op.mean(apart, axes, keepdims=True))))
    variance = emit(relax.op.mean(emit(relax.op.multiply(apart, apart)), axes, keepdims=True))
    deviation = emit(relax.op.sqrt(emit(relax.op.add(variance, relax.const(given["eps"], dtype)))))
    value = emit(relax.op.reshape(emit(relax.op.divide(apart, deviation)), shape))
    for name, apply in (("weight", relax.op.multiply), ("bias", relax.op.add)):
        if (operand := given.get(name)) is not None:
            column = emit(relax.op.reshape(importer.env[operand], [shape[1]] + [1] * (len(shape) - 2)))
            column = column if column.struct_info.dtype == dtype else emit(relax.op.astype(column, dtype))
            value = emit(apply(value, column))
    result = data.struct_info.dtype
    return (value if dtype == result else emit(relax.op.astype(value, result)),)


def _getitem(node: Any, importer: Any) -> Any:
    """Take a part of a result, of which TVM may have made the first alone."""
    source, index = node.args
    value = importer.env[source]
    whole = isinstance(value, relax.Expr) and isinstance(value.struct_info, relax.TupleStructInfo)
    if index and (not whole or source.target.__name__.startswith("max_pool")):
        raise _refusal(source, f"TVM's importer gives its first result alone, not number {index + 1}")
    return importer.create_convert_map()["getitem"](node)


def _filled(node: Any, importer: Any) -> Any:
    """Fill a tensor of the program's type: TVM takes that of the operand."""
    declared, name = node.meta["val"], node.target.__name__
    number = arguments_of(node)["fill_value"] if name.startswith("full") else int(name.startswith("ones"))
    dtype = str(declared.dtype).removeprefix("torch.")
    number = importer.env[number] if number in importer.env else relax.const(number, dtype)
    return importer.block_builder.emit(relax.op.full(tuple(declared.shape), number, dtype))


def _any(node: Any, importer: Any) -> Any:
    """Find an element that is not zero: TVM takes the largest."""
    given, emit = arguments_of(node), importer.block_builder.emit
    is_set = emit(relax.op.astype(emit(relax.op.astype(importer.env[node.args[0]], "bool")), "int8"))
    most = emit(relax.op.max(is_set, given.get("dim"), given.get("keepdim", False)))
    return emit(relax.op.astype(most, "bool"))


def _even_pool(node: Any, importer: Any) -> Any:
    """Convert as TVM does, which is wrong for windows of several extents."""
    data, sizes = node.args
    if any(extent % size for extent, size in zip(data.meta["val"].shape[-3:], sizes, strict=True)):
        what = f"{node.name} averages windows of several extents"
        raise ModelError(what, remedy="Give sizes that divide x's.")
    return _by_tvm(node, importer)


def _direct(operator: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """Make the converter to an operator of Relax that takes the same arguments; no axes are all."""

    def convert(node: Any, importer: Any) -> Any:
        data, *given = importer.retrieve_args(node)
        arguments = (None if value == [] else value for value in given)
        return importer.block_builder.emit(operator(data, *arguments))

    return convert


def _item(node: Any, importer: Any) -> Any:
    return importer.block_builder.emit(relax.op.reshape(importer.env[node.args[0]], ()))


def _bucketize(node: Any, importer: Any) -> Any:
    """Count the boundaries below each element; TVM's search halves indices of the boundaries' type."""
    data, boundaries = importer.retrieve_args(node)[:2]
    emit, right = importer.block_builder.emit, node.kwargs.get("right", False)
    dtype = "int32" if node.kwargs.get("out_int32", False) else "int64"
    compare = relax.op.less if right else relax.op.less_equal
    above = emit(relax.op.logical_not(emit(compare(emit(relax.op.expand_dims(data, -1)), boundaries))))
    return emit(relax.op.sum(emit(relax.op.astype(above, dtype)), -1))  # NaN is above all


CONVERTERS: dict[str, Converter] = {
    "_adaptive_avg_pool3d.default": _even_pool,
    "amax.default": _direct(relax.op.max),
    "amin.default": _direct(relax.op.min),
    "atan2.default": _direct(relax.op.atan2),
    "bucketize.Tensor": _bucketize,
    "elu.default": _elu,
    "getitem": _getitem,
    "grid_sampler_2d.default": _grid_sample,
    "index.Tensor": _index,
    "index_put.default": _index_put,
    "convolution.default": _convolution,
    "prod.dim_int": _direct(relax.op.prod),
    "select.int": _select,
    **dict.fromkeys(("_local_scalar_dense.default", "item.default"), _item),
    **dict.fromkeys(("_native_batch_norm_legit.no_stats", "native_group_norm.default"), _norm),
    **dict.fromkeys(("any.default", "any.dim", "any.dims"), _any),
    **dict.fromkeys(("bmm.default", "matmul.default", "mm.default"), _product),
    **dict.fromkeys(("scatter.src", "scatter_add.default"), _scatter),
    **{f"avg_pool{rank}d.default": _average_pool for rank in (1, 2, 3)},
    **{f"clamp{side}.{kind}": _clamp for side in ("", "_max", "_min") for kind in ("Tensor", "default")},
    **{f"{kind}.default": _filled for kind in ("full", "full_like", "ones_like", "zeros_like")},
    **{f"upsample_{mode}2d.vec": _resize for mode in ("bicubic", "bilinear", "nearest")},
    "_upsample_bilinear2d_aa.default": _resize,
}


def checked_converters(known: Iterable[str]) -> dict[str, Converter]:
    """Return converters of all operators, TVM's (*known*) too, which compare results with the program."""
    return {name: _checked(CONVERTERS.get(name, _by_tvm)) for name in {*known, *CONVERTERS}}


def _by_tvm(node: Any, importer: Any) -> Any:
    return importer.create_convert_map()[node.target.__name__](node)


def _checked(convert: Converter) -> Converter:
    def converted(node: Any, importer: Any) -> Any:
        try:
            value = convert(node, importer)
        except AdtError:
            raise
        except Exception as error:  # the importer asserts and raises plain Python errors
            raise _refusal(node, f"TVM's importer refuses it: {last_line(error)}") from error
        return _as_declared(node, value, importer.block_builder)

    return converted


def _as_declared(node: Any, value: Any, builder: Any) -> Any:
    """Cast *value* to the node's type in the program; refuse it if it is of another kind or shape."""
    declared = node.meta.get("val")
    if not isinstance(value, relax.Expr) or not hasattr(declared, "dtype"):
        return value
    info = (value := builder.normalize(value)).struct_info
    if not isinstance(info, relax.TensorStructInfo):
        return value
    dtype = str(declared.dtype).removeprefix("torch.")
    shape = static_shape(value)
    if shape is not None and list(shape) != list(declared.shape):
        raise _refusal(node, f"it becomes {list(shape)}, and is {list(declared.shape)} in the program")
    if info.dtype != dtype and ("float" in info.dtype) != ("float" in dtype):
        raise _refusal(node, f"it becomes {info.dtype}, and is {dtype} in the program")
    return value if info.dtype == dtype else builder.emit(relax.op.astype(value, dtype))


def _refusal(node: Any, reason: str) -> UnsupportedOp:
    return UnsupportedOp(
        f"{node.target.__name__} at node {node.name} cannot be imported: {reason}",
        remedy="Rewrite the model without it, or import its ONNX form (torch.onnx.export).",
    )
