"""Attention as onnxruntime fuses it (``com.microsoft``), by products and a softmax.

Symbols: B batches, S queries, P steps of the past, T = P + S keys, N heads, H extent of a head.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from adt.model.importers.onnx.graph import Builder, Graph, attribute, attributes, operand, type_number
from adt.model.importers.onnx.rewrites.quantized import dequantized
from adt.model.importers.onnx.rewrites.rewrite import FLOATS, NO_CONVERTER, Rewrite

if TYPE_CHECKING:
    import numpy as np
    import onnx
    from numpy.typing import NDArray

MASKED = -10000.0
"""What is added to the score of a key that a mask leaves out, where the node does not say."""


def _heads(build: Builder, name: str, count: int) -> str:
    """[B, S, N·H] as [B, N, S, H]."""
    return build.add("Transpose", build.reshaped(name, [0, 0, count, -1]), perm=[0, 2, 1, 3])


def _extended(build: Builder, past: str, name: str, out: str = "") -> str:
    """The keys or values of the past before those of now, also as *out* when there is one."""
    if past:
        return build.add("Concat", past, name, axis=2, out=out or None)
    return build.add("Identity", name, out=out) if out else name


def _scores_of(
    build: Builder,
    query: str,
    key: str,
    scale: float,
    dtype: str,
    *,
    added: Sequence[str],
    causal: NDArray[np.generic] | None,
) -> str:
    """Softmax of query · keyᵀ · scale, with masks *added*; the future is left out where there is *causal*."""
    product = build.add("MatMul", query, build.add("Transpose", key, perm=[0, 1, 3, 2]))
    scores = build.add("Mul", product, build.constant(scale, dtype))
    for mask in added:
        scores = build.add("Add", scores, mask)
    if causal is not None:
        scores = build.add("Add", scores, build.constant(causal, dtype))
    return build.add("Softmax", scores, axis=-1 if build.graph.opset >= 13 else 3)


def _future(queries: int, keys: int) -> NDArray[np.generic]:
    """[S, T]: a great negative number for each key after its query; the queries are the last of the keys."""
    import numpy as np

    return np.triu(np.full((queries, keys), -60000.0), keys - queries + 1)


def _padding(build: Builder, mask: str, keys: int, node: onnx.NodeProto, dtype: str) -> str | None:
    """A mask to add, from lengths [B] or from [B, T] or [B, S, T] of 0 and 1; None for other forms."""
    shape = build.graph.shape(mask)
    if shape is None or len(shape) > 3:
        return None
    if len(shape) == 1:
        places = build.constant([list(range(keys))], "int32")
        counted = build.add("Less", places, build.reshaped(mask, [-1, 1]))
        full = [shape[0], 1, 1, keys]
    else:
        counted = build.add("Cast", mask, to=type_number("bool"))
        full = [shape[0], 1, *([1] if len(shape) == 2 else []), *shape[1:]]
    left_out = build.add("Sub", build.constant(1, dtype), build.add("Cast", counted, to=type_number(dtype)))
    value = build.constant(attribute(node, "mask_filter_value", MASKED), dtype)
    return build.add("Mul", build.reshaped(left_out, full), value)


def _attention(node: onnx.NodeProto, graph: Graph) -> list[onnx.NodeProto] | None:
    """x [B, S, D], weights [D, 3·N·H], bias, mask, past [2, B, N, P, H], a bias of the scores."""
    shape, dtype, weights = graph.shape(node.input[0]), graph.dtype(node.input[0]), graph.shape(node.input[1])
    mask, past, added = (operand(node, position) for position in (3, 4, 5))
    past_shape = graph.shape(past) if past else None
    if shape is None or dtype not in FLOATS or weights is None or (past and past_shape is None):
        return None
    if operand(node, 6) or attribute(node, "do_rotary", 0):
        return None
    build = Builder(graph, node)
    count = attribute(node, "num_heads")
    sizes = list(attribute(node, "qkv_hidden_sizes", [weights[1] // 3] * 3))
    product = build.add("MatMul", node.input[0], node.input[1])
    if bias := operand(node, 2):
        product = build.add("Add", product, bias)
    query, key, value = (_heads(build, part, count) for part in _split(build, product, sizes))
    keys = shape[1] + (past_shape[3] if past_shape else 0)
    before = _split(build, past, [1, 1], axis=0) if past else ["", ""]
    before = [build.reshaped(part, list(past_shape[1:])) if past_shape else "" for part in before]
    key, value = _extended(build, before[0], key), _extended(build, before[1], value)
    masks = [added] if added else []
    if mask:
        padding = _padding(build, mask, keys, node, dtype)
        if padding is None:
            return None
        masks.append(padding)
    if len(node.output) > 1 and node.output[1]:
        present = [1, shape[0], count, keys, -1]
        build.add(
            "Concat", build.reshaped(key, present), build.reshaped(value, present), axis=0, out=node.output[1]
        )
    scale = attribute(node, "scale", 0.0) or 1 / math.sqrt(sizes[0] / count)
    causal = _future(shape[1], keys) if attribute(node, "unidirectional", 0) else None
    scores = _scores_of(build, query, key, scale, dtype, added=masks, causal=causal)
    return _joined(build, scores, value, sizes[2], node.output[0])


def _joined(build: Builder, scores: str, value: str, size: int, out: str) -> list[onnx.NodeProto]:
    """scores · value, [B, N, S, H], as [B, S, N·H]."""
    result = build.add("Transpose", build.add("MatMul", scores, value), perm=[0, 2, 1, 3])
    build.reshaped(result, [0, 0, size], out=out)
    return build.nodes


def _split(build: Builder, name: str, sizes: Sequence[int], axis: int = 2) -> list[str]:
    """*name* in parts of *sizes* along *axis*."""
    outs = [build.graph.fresh(f"{build.stem}_part") for _ in sizes]
    if build.graph.opset >= 13:
        return build.add_many("Split", name, build.constant(list(sizes), "int64"), outs=outs, axis=axis)
    return build.add_many("Split", name, outs=outs, axis=axis, split=list(sizes))


def _multi_head_attention(node: onnx.NodeProto, graph: Graph) -> list[onnx.NodeProto] | None:
    """query, key, value, bias, mask of keys, a bias of the scores, past keys and values.

    query [B, S, N·H], key and value [B, T, N·H] or (of another sequence) [B, N, T, H].
    """
    names = [operand(node, position) for position in range(10)]
    query, key, value, bias, mask, added, past_key, past_value = names[:8]
    shape, dtype = graph.shape(query), graph.dtype(query)
    key_shape, value_shape, past = (graph.shape(name) if name else None for name in (key, value, past_key))
    if shape is None or len(shape) != 3 or dtype not in FLOATS or key_shape is None or value_shape is None:
        return None
    if (
        len(key_shape) != len(value_shape)
        or len(key_shape) not in (3, 4)
        or any(names[8:])
        or (past_key and past is None)
    ):
        return None
    build = Builder(graph, node)
    count = attribute(node, "num_heads")
    apart = len(key_shape) == 4
    size = value_shape[1] * value_shape[3] if apart else value_shape[2]
    if bias:
        parts = _split(build, bias, [shape[2], shape[2], size], axis=0)
        query = build.add("Add", query, parts[0])
        if not apart:
            key, value = build.add("Add", key, parts[1]), build.add("Add", value, parts[2])
    if not apart:
        key, value = _heads(build, key, count), _heads(build, value, count)
    presents = [*node.output, "", ""][1:3]
    key, value = (
        _extended(build, past_key, key, presents[0]),
        _extended(build, past_value, value, presents[1]),
    )
    keys = key_shape[-2] + (past[2] if past else 0) if apart else key_shape[1] + (past[2] if past else 0)
    masks = [added] if added else []
    if mask:
        padding = _padding(build, mask, keys, node, dtype)
        if padding is None:
            return None
        masks.append(padding)
    scale = attribute(node, "scale", 0.0) or 1 / math.sqrt(shape[2] / count)
    causal = _future(shape[1], keys) if attribute(node, "unidirectional", 0) else None
    scores = _scores_of(build, _heads(build, query, count), key, scale, dtype, added=masks, causal=causal)
    return _joined(build, scores, value, size, node.output[0])


def _rotary(node: onnx.NodeProto, graph: Graph) -> list[onnx.NodeProto] | None:
    """x [B, S, N·H] or [B, N, S, H], positions [B, S] or the first one [1], tables of cosines and sines."""
    data, positions, *tables = node.input
    shape, dtype, table, place = (
        graph.shape(data),
        graph.dtype(data),
        graph.shape(tables[0]),
        graph.shape(positions),
    )
    if (
        shape is None
        or dtype is None
        or table is None
        or place is None
        or attribute(node, "is_packed_batching", 0)
    ):
        return None
    build = Builder(graph, node)
    rank, half = len(shape), table[1]
    steps = shape[1] if rank == 3 else shape[2]
    count = attribute(node, "num_heads", 0)
    if rank == 3:
        heads = count or shape[2] // (2 * half)
        data = build.reshaped(data, [0, 0, heads, -1])  # [B, S, N, H]
    if len(place) == 1:
        positions = build.add("Add", positions, build.constant([list(range(steps))], "int64"))
    factors = [
        build.reshaped(
            build.add("Gather", name, positions), [-1, steps, 1, half] if rank == 3 else [-1, 1, steps, half]
        )
        for name in tables
    ]
    extent = shape[3] if rank == 4 else shape[2] // heads
    rest = extent - 2 * half
    parts = _split(build, data, [2 * half, rest], axis=3) if rest else [data]
    if attribute(node, "interleaved", 0):
        pairs = build.reshaped(parts[0], [0, 0, 0, half, 2])
        halves = [build.reshaped(part, [0, 0, 0, half]) for part in _split(build, pairs, [1, 1], axis=4)]
    else:
        halves = _split(build, parts[0], [half, half], axis=3)
    cosine, sine = factors
    turned = [
        build.add("Sub", build.add("Mul", halves[0], cosine), build.add("Mul", halves[1], sine)),
        build.add("Add", build.add("Mul", halves[0], sine), build.add("Mul", halves[1], cosine)),
    ]
    if attribute(node, "interleaved", 0):
        turned = [build.reshaped(part, [0, 0, 0, half, 1]) for part in turned]
        result = build.reshaped(build.add("Concat", *turned, axis=4), [0, 0, 0, 2 * half])
    else:
        result = build.add("Concat", *turned, axis=3)
    if rest:
        result = build.add("Concat", result, parts[1], axis=3)
    build.reshaped(result, list(shape), out=node.output[0])
    return build.nodes


def _quantized_attention(node: onnx.NodeProto, graph: Graph) -> list[onnx.NodeProto] | None:
    """Attention of dequantized x and weights."""
    x, weights, bias, x_scale, scale, mask, x_zero, zero, past = (operand(node, i) for i in range(9))
    build = Builder(graph, node)
    inputs = [
        dequantized(build, x, x_scale, x_zero),
        dequantized(build, weights, scale, zero, 1),
        bias,
        mask,
        past,
    ]
    build.add_many("Attention", *inputs, outs=list(node.output), domain=node.domain, **attributes(node))
    return build.nodes


_PRODUCTS = "MatMul, Softmax, Transpose, …"
REWRITES = tuple(
    Rewrite(f"com.microsoft::{op}", into, NO_CONVERTER, apply)
    for op, into, apply in (
        ("Attention", _PRODUCTS, _attention),
        ("MultiHeadAttention", _PRODUCTS, _multi_head_attention),
        ("QAttention", f"DequantizeLinear, {_PRODUCTS}", _quantized_attention),
        ("RotaryEmbedding", "Gather, Split, Mul, Add, Concat", _rotary),
    )
)
