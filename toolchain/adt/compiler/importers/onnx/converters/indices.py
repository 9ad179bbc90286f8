"""Operators that read or write at given indices, find them, or sort."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from adt.compiler.importers.onnx.converters.node import Converter, Node, literal


def _counted_from_first(node: Node, index: int, extent: int | Sequence[int]) -> Any:
    """Return input *index*, indices of an axis of *extent* (or of several axes), without negative ones."""
    extents, value = np.asarray(extent), node.value(index)
    if value is not None:
        negative = (value < 0) & (value >= -extents)  # others stay: the import refuses them
        return literal(np.where(negative, value + extents, value).astype(value.dtype))
    indices, dtype = node.inputs[index], node.dtype(index)
    if dtype.startswith("u"):
        return indices
    negative = relax.op.less(indices, relax.const(0, dtype))
    moved = relax.op.add(indices, literal(extents.astype(dtype)))
    return node.builder.normalize(relax.op.where(negative, moved, indices))


def _gather(node: Node) -> Any:
    data, indices = node.value(0), node.value(1)
    if data is not None and indices is not None and not isinstance(node.inputs[0], relax.Var):
        return literal(np.take(data, indices, node.attribute("axis", 0)))
    shape = node.shape()
    axis = node.axis(len(shape))
    return relax.op.take(node.inputs[0], _counted_from_first(node, 1, shape[axis]), axis)


def _by_elements(node: Node) -> Any:
    """Convert GatherElements and ScatterElements: TVM's take indices from 0 on only."""
    data, _, *rest = node.inputs
    extent = node.shape()[node.axis(len(node.shape()))]
    return node.by_tvm((data, _counted_from_first(node, 1, extent), *rest))


def _by_rows(node: Node) -> Any:
    """Convert GatherND and ScatterND: the last axis of the indices counts through the data's first axes."""
    data, _, *rest = node.inputs
    batch, depth = node.attribute("batch_dims", 0), node.shape(1)[-1]
    extents = node.shape()[batch : batch + depth]
    return node.by_tvm((data, _counted_from_first(node, 1, extents), *rest))


def _compress(node: Node) -> Any:
    data, axis = node.inputs[0], node.attribute("axis")
    if axis is None:
        data, axis = relax.op.reshape(data, (-1,)), 0
    chosen = np.flatnonzero(node.constant(1, "condition")).astype(np.int64)
    return relax.op.take(data, literal(chosen), axis % max(1, len(node.shape())))


def _top_k(node: Node) -> Any:
    """Convert TopK with indices of 64 bits: TVM's have 32."""
    x = node.inputs[0]
    k = node.number(1, "K") if node.has(1) else int(node.attribute("k"))
    if not k:
        raise node.refusal("it is to find no elements (K is 0)")
    axis, largest = node.axis(len(node.shape()), -1), bool(node.attribute("largest", 1))
    both = node.builder.emit(relax.op.topk(x, k, axis, ret_type="both", largest=largest, dtype="int64"))
    return both[0], both[1]


def _one_hot(node: Node) -> Any:
    depth = node.number(1, "depth")
    shape = node.shape()
    axis = node.attribute("axis", -1) % (len(shape) + 1)

    def element(indices: Any, values: Any, at: Any) -> Any:
        index = indices(*at[:axis], *at[axis + 1 :]).astype("int64")
        here = at[axis].astype("int64")
        hit = tirx.any(index == here, index + tirx.const(depth, "int64") == here)
        return tirx.Select(hit, values(1), values(0))

    return node.compute((*shape[:axis], depth, *shape[axis:]), element, node.inputs[0], node.inputs[2])


def _reverse_sequence(node: Node) -> Any:
    time, batch = node.attribute("time_axis", 0), node.attribute("batch_axis", 1)

    def element(x: Any, lengths: Any, at: Any) -> Any:
        step, length = at[time], tirx.min(lengths(at[batch]).astype(at[time].dtype), node.shape()[time])
        source = list(at)
        source[time] = tirx.Select(step < length, length - step - 1, step)
        return x(*source)

    return node.compute(node.shape(), element, node.inputs[0], node.inputs[1])


def _tensor_scatter(node: Node) -> Any:
    """Convert TensorScatter: the update goes into the cache from each batch's write index on."""
    shape, update = node.shape(), node.shape(1)
    axis, circular = node.axis(len(shape), -2), node.attribute("mode", "linear") == "circular"
    extent, count = shape[axis], update[axis]
    starts = node.inputs[2] if node.has(2) else literal(np.zeros(shape[0], np.int64))

    def element(past: Any, new: Any, first: Any, at: Any) -> Any:
        step = at[axis] - first(at[0]).astype(at[axis].dtype)
        if circular:
            step = tirx.floormod(step, extent)
        inside = tirx.all(step >= 0, step < count)
        source = list(at)
        source[axis] = tirx.Select(inside, step, 0)
        return tirx.Select(inside, new(*source), past(*at))

    return node.compute(shape, element, node.inputs[0], node.inputs[1], starts)


def _trilu(node: Node) -> Any:
    upper = bool(node.attribute("upper", 1))
    shift = node.number(1, "k") if node.has(1) else 0

    def element(x: Any, at: Any) -> Any:
        gap = at[-1] - at[-2]
        return tirx.Select(gap >= shift if upper else gap <= shift, x(*at), tirx.const(0, x.dtype))

    return node.compute(node.shape(), element, node.inputs[0])


def _tf_idf(node: Node) -> Any:
    """Count each n-gram, with up to ``max_skip_count`` values left out between its members."""
    pool = node.attribute("pool_int64s")
    if not pool:
        raise node.refusal("its n-grams are texts")
    columns, mode = np.asarray(node.attribute("ngram_indexes")), node.attribute("mode")
    bounds = [*node.attribute("ngram_counts"), len(pool)]
    lengths = range(node.attribute("min_gram_length"), node.attribute("max_gram_length") + 1)
    *batch, steps = node.shape()
    counts: list[Any] = []
    for size, (first, end) in enumerate(itertools.pairwise(bounds), start=1):
        if first == end:
            continue
        grams = np.asarray(pool[first:end]).reshape(-1, size)
        strides = node.attribute("max_skip_count") + 1 if size > 1 else 1
        strides = min(strides, (steps - 1) // max(1, size - 1)) if size in lengths else 0
        if strides < 1:
            counts.append(literal(np.zeros((*batch, len(grams)), np.float32)))
            continue

        def count(x: Any, gram: Any, size: int = size, strides: int = strides) -> Any:
            # From 0: TVM 0.25 takes an axis from 1 for one shorter once it is scheduled.
            skipped, start = te.reduce_axis((0, strides), "skipped"), te.reduce_axis((0, steps), "start")
            stride = skipped + 1

            def element(*at: Any) -> Any:
                inside = start + (size - 1) * stride < steps
                members = [tirx.if_then_else(inside, start + n * stride, 0) for n in range(size)]
                hits = [x(*at[:-1], member) == gram(at[-1], n) for n, member in enumerate(members)]
                one = tirx.Select(tirx.all(inside, *hits), tirx.const(1, "float32"), tirx.const(0, "float32"))
                return te.sum(one, axis=[skipped, start])

            return te.compute((*batch, gram.shape[0]), element)

        counts.append(node.te(count, node.inputs[0], literal(grams.astype(node.dtype()))))
    result = node.builder.normalize(relax.op.concat(counts, axis=-1))
    if mode != "TF":
        weights = np.asarray(node.attribute("weights") or [1.0] * len(columns), np.float32)
        capped = relax.op.minimum(result, relax.const(1, "float32")) if mode == "IDF" else result
        result = node.builder.normalize(relax.op.multiply(capped, relax.const(weights)))
    order = np.full(max(columns) + 1, len(columns), np.int64)
    order[columns] = np.arange(len(columns))
    blank = literal(np.zeros((*batch, 1), np.float32))
    return relax.op.take(relax.op.concat([result, blank], axis=-1), literal(order), axis=len(batch))


CONVERTERS: dict[str, Converter] = {
    "Compress": _compress,
    "Gather": _gather,
    "GatherElements": _by_elements,
    "GatherND": _by_rows,
    "OneHot": _one_hot,
    "ReverseSequence": _reverse_sequence,
    "ScatterElements": _by_elements,
    "ScatterND": _by_rows,
    "TensorScatter": _tensor_scatter,
    "TfIdfVectorizer": _tf_idf,
    "TopK": _top_k,
    "Trilu": _trilu,
}
