"""Operators of PyTorch that TVM's importer lacks, or converts to others. Imports TVM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import onnx
from tvm import relax

from adt.compiler.importers.onnx.converters import CONVERTERS as OF_ONNX
from adt.compiler.importers.onnx.converters.node import Node
from adt.errors import ModelError

Emit = Callable[[Any], Any]
"""Binds an expression to a variable."""


def put(emit: Emit, data: Any, indices: Sequence[Any], values: Any, *, adds: bool) -> Any:
    """Put *values* into *data*, or add them, where *indices* say, one for each axis; None is all of an axis.

    TVM's own operator wants an index for every axis, in their order, and adds from several threads at once.

    Raises:
        ModelError: there is a value for each element that a mask leaves.
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

    Raises:
        ModelError: an index is a mask.
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
    """The elements of *index* without negative ones."""
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
    """Takes an axis' element at a number, negative ones from its end, or at a tensor that ``item`` gave."""
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


def _grid_sample(node: Any, importer: Any) -> Any:
    """Converts as ONNX's operator does: TVM reads the grid's axes in another order."""
    data, grid, mode, padding, corners = importer.retrieve_args(node)
    mode, padding = ("linear", "nearest", "cubic")[mode], ("zeros", "border", "reflection")[padding]
    attributes = {"mode": mode, "padding_mode": padding, "align_corners": int(corners)}
    proto = onnx.helper.make_node("GridSample", (), (), node.name, **attributes)
    builder = importer.block_builder
    return builder.emit(OF_ONNX["GridSample"](Node(proto, (data, grid), 20, builder, {}, OF_ONNX.get)))


def _even_pool(node: Any, importer: Any) -> Any:
    """Converts as TVM does, which is wrong for windows of several extents."""
    data, sizes = node.args
    if any(extent % size for extent, size in zip(data.meta["val"].shape[-3:], sizes, strict=True)):
        raise ModelError(
            f"{node.name} averages windows of several extents", remedy="Give sizes that divide x's."
        )
    return importer.create_convert_map()[node.target.__name__](node)


def _direct(operator: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """Make the converter to an operator of Relax that takes the same arguments; no axes are all."""

    def convert(node: Any, importer: Any) -> Any:
        data, *given = importer.retrieve_args(node)
        return importer.block_builder.emit(
            operator(data, *(None if value == [] else value for value in given))
        )

    return convert


def _item(node: Any, importer: Any) -> Any:
    return importer.block_builder.emit(relax.op.reshape(importer.env[node.args[0]], ()))


def _bucketize(node: Any, importer: Any) -> Any:
    """Counts the boundaries below each element; TVM's search halves indices of the boundaries' type."""
    data, boundaries = importer.retrieve_args(node)[:2]
    emit, right = importer.block_builder.emit, node.kwargs.get("right", False)
    dtype = "int32" if node.kwargs.get("out_int32", False) else "int64"
    compare = relax.op.less if right else relax.op.less_equal
    above = emit(relax.op.logical_not(emit(compare(emit(relax.op.expand_dims(data, -1)), boundaries))))
    return emit(relax.op.sum(emit(relax.op.astype(above, dtype)), -1))  # NaN is above all


CONVERTERS: dict[str, Callable[[Any, Any], Any]] = {
    "_adaptive_avg_pool3d.default": _even_pool,
    "_local_scalar_dense.default": _item,
    "amax.default": _direct(relax.op.max),
    "amin.default": _direct(relax.op.min),
    "atan2.default": _direct(relax.op.atan2),
    "bucketize.Tensor": _bucketize,
    "grid_sampler_2d.default": _grid_sample,
    "index.Tensor": _index,
    "index_put.default": _index_put,
    "item.default": _item,
    "prod.dim_int": _direct(relax.op.prod),
    "scatter.src": _scatter,
    "scatter_add.default": _scatter,
    "select.int": _select,
}
"""Operator to what makes the Relax variable of a node of it, with TVM's importer."""
