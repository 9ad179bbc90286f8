"""Operators of PyTorch that TVM's importer lacks, or converts to others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from tvm import relax

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
    extents, axes = list(data.struct_info.shape), list(named)
    rest = [axis for axis in range(len(extents)) if axis not in named]
    places = [_counted_from_first(emit, index, extents[axis]) for axis, index in named.items()]
    counts = list(reduce(lambda a, b: emit(relax.op.add(a, b)), places).struct_info.shape)
    # axes of indices side by side stay in their place, others come first
    lead = axes[0] if axes == list(range(axes[0], axes[-1] + 1)) else 0
    shape = [*(extents[axis] for axis in rest[:lead]), *counts, *(extents[axis] for axis in rest[lead:])]
    behind = lead + len(counts)
    order = [*range(lead, behind), *range(lead), *range(behind, len(shape))]
    updates = emit(relax.op.permute_dims(emit(relax.op.broadcast_to(values, shape)), order))
    moved = emit(relax.op.permute_dims(data, [*axes, *rest]))
    spread = [emit(relax.op.broadcast_to(place, counts)) for place in places]
    stacked = emit(relax.op.stack(spread, axis=len(counts)))
    result = emit(relax.op.scatter_nd(moved, stacked, updates, "add" if adds else "update"))
    return emit(relax.op.permute_dims(result, [[*axes, *rest].index(axis) for axis in range(len(extents))]))


def _counted_from_first(emit: Emit, index: Any, extent: Any) -> Any:
    """The elements of *index* without negative ones."""
    zero, wide = relax.const(0, "int64"), emit(relax.op.astype(index, "int64"))
    length = emit(relax.op.shape_to_tensor(relax.ShapeExpr([extent])))
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


def _index_put(node: Any, importer: Any) -> Any:
    data, indices, values, *adds = importer.retrieve_args(node)
    return put(importer.block_builder.emit, data, indices, values, adds=bool(adds and adds[0]))


def _index_add(node: Any, importer: Any) -> Any:
    data, axis, index, values = importer.retrieve_args(node)
    emit, factor = importer.block_builder.emit, node.kwargs.get("alpha", 1)
    if factor != 1:
        values = emit(relax.op.multiply(values, relax.const(factor, values.struct_info.dtype)))
    rank = len(data.struct_info.shape)
    return put(emit, data, [*[None] * (axis % rank), index], values, adds=True)


def _scatter_add(node: Any, importer: Any) -> Any:
    data, axis, index, values = importer.retrieve_args(node)
    return importer.block_builder.emit(relax.op.scatter_elements(data, index, values, axis, "add"))


def _in_type_of_result(node: Any, importer: Any) -> Any:
    """Converts as TVM does, from an operand of the result's type: booleans and integers add up in int64."""
    source, convert = node.args[0], importer.create_convert_map()[node.target.__name__]
    operand, dtype = importer.env[source], str(node.meta["val"].dtype).removeprefix("torch.")
    if operand.struct_info.dtype == dtype:
        return convert(node)
    importer.env[source] = importer.block_builder.emit(relax.op.astype(operand, dtype))
    try:
        return convert(node)
    finally:
        importer.env[source] = operand


def _product(node: Any, importer: Any) -> Any:
    data, axis, *keeps = importer.retrieve_args(node)
    emit, dtype = importer.block_builder.emit, str(node.meta["val"].dtype).removeprefix("torch.")
    return emit(relax.op.prod(emit(relax.op.astype(data, dtype)), axis, keepdims=bool(keeps and keeps[0])))


CONVERTERS: dict[str, Callable[[Any, Any], Any]] = {
    **dict.fromkeys(("cumprod.default", "cumsum.default", "prod.default"), _in_type_of_result),
    "prod.dim_int": _product,
    "index_add.default": _index_add,
    "index_put.default": _index_put,
    "scatter_add.default": _scatter_add,
}
"""Operator to what makes the Relax variable of a node of it, with TVM's importer."""
