"""Attention as onnxruntime fuses it (``com.microsoft``), by products and a softmax.

Symbols: B batches, S queries, P steps of the past, T = P + S keys, N heads, H extent of a head.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from adt.compiler.importers.onnx.graph import Builder, Uncovered
from adt.compiler.importers.onnx.rewrites.quantized import dequantized
from adt.compiler.importers.onnx.rewrites.rewrite import NO_CONVERTER, Rewrite

MASKED = -10000.0
"""Number that is added to the score of a key that a mask leaves out, where the node does not say."""
FUTURE = -60000.0  # number that is added to the score of a key after its query


def _extended(build: Builder, past: str, name: str) -> str:
    """The keys or values of the past before those of now."""
    return build.add("Concat", past, name, axis=2) if past else name


def _attended(
    build: Builder,
    query: str,
    key: str,
    value: str,
    *,
    widths: tuple[int, int],
    queries: int,
    keys: int,
    masks: Sequence[str],
) -> str:
    """Write softmax(query · keyᵀ · scale + *masks*) · value as [B, S, N·H of the values].

    *query*, *key* and *value* are [B, N, S or T, H]; *widths* N·H of the queries and of the values. The S
    *queries* are the last of the T *keys*.
    """
    scale = build.attribute("scale", 0.0) or 1 / math.sqrt(widths[0] / build.attribute("num_heads"))
    product = build.add("MatMul", query, build.add("Transpose", key, perm=[0, 1, 3, 2]))
    scores = build.add("Mul", product, scale)
    for mask in masks:
        scores = build.add("Add", scores, mask)
    if build.attribute("unidirectional", 0):
        future = np.triu(np.full((queries, keys), FUTURE), keys - queries + 1)
        scores = build.add("Add", scores, build.constant(future, build.dtype))
    scores = build.add("Softmax", scores, axis=-1 if build.graph.opset >= 13 else 3)
    result = build.add("Transpose", build.add("MatMul", scores, value), perm=[0, 2, 1, 3])
    return build.reshaped(result, 0, 0, widths[1])


def _masks(build: Builder, mask: str, added: str, keys: int) -> list[str]:
    """Return what is added to the scores: *added*, and a great negative number for each key left out.

    *mask* has lengths [B], or 0 and 1 [B, T] or [B, S, T].
    """
    masks = [added] if added else []
    if not mask:
        return masks
    shape = build.shape(mask)
    if len(shape) > 3:
        raise Uncovered(f"its mask has {len(shape)} axes, more than 3")
    if len(shape) == 1:
        places = build.constant([list(range(keys))], "int32")
        counted = build.add("Less", places, build.reshaped(mask, -1, 1))
        full = [shape[0], 1, 1, keys]
    else:
        counted = build.cast(mask, "bool")
        full = [shape[0], 1, *([1] if len(shape) == 2 else []), *shape[1:]]
    left_out = build.add("Sub", 1, build.cast(counted, build.dtype))
    value = build.attribute("mask_filter_value", MASKED)
    return [*masks, build.add("Mul", build.reshaped(left_out, *full), value)]


def _attention(build: Builder) -> list[str] | None:
    """Write out x [B, S, D], weights [D, 3·N·H], bias, mask, past [2, B, N, P, H], a bias of the scores."""
    data, weights, bias, mask, past, added, past_length = build.operands(7)
    shape, weights_shape = build.shape(data), build.shape(weights)
    past_shape = build.shape(past) if past else None
    build.require_floats()
    if past_length or build.attribute("do_rotary", 0):
        raise Uncovered("it has the input past_sequence_length, or do_rotary is set")
    count = build.attribute("num_heads")
    sizes = list(build.attribute("qkv_hidden_sizes", [weights_shape[1] // 3] * 3))
    product = build.plus(build.add("MatMul", data, weights), bias)
    query, key, value = (build.heads(part, count) for part in build.split(product, sizes, 2))
    keys = shape[1]
    if past_shape:
        keys += past_shape[3]
        before = (build.reshaped(part, *past_shape[1:]) for part in build.split(past, [1, 1], 0))
        key, value = (_extended(build, old, new) for old, new in zip(before, (key, value), strict=True))
    masks = _masks(build, mask, added, keys)
    present = ""
    if build.has_output(1):
        both = (build.reshaped(part, 1, shape[0], count, keys, -1) for part in (key, value))
        present = build.add("Concat", *both, axis=0)
    widths = (sizes[0], sizes[2])
    result = _attended(build, query, key, value, widths=widths, queries=shape[1], keys=keys, masks=masks)
    return [result, present]


def _multi_head_attention(build: Builder) -> list[str] | None:
    """Write out query, key, value, bias, mask of keys, a bias of the scores, past keys and values.

    query [B, S, N·H], key and value [B, T, N·H] or (of another sequence) [B, N, T, H].
    """
    query, key, value, bias, mask, added, past_key, past_value, *others = build.operands(10)
    build.require_floats()
    if not key or not value or len(build.shape(query)) != 3:
        raise Uncovered("keys and values are packed with the queries")
    if any(others):
        raise Uncovered("it has the input past_sequence_length or cache_indirection")
    shape, key_shape, value_shape = (build.shape(name) for name in (query, key, value))
    past = build.shape(past_key) if past_key else None
    if len(key_shape) != len(value_shape) or len(key_shape) not in (3, 4):
        raise Uncovered("its keys and values are not of three axes each, nor of four each")
    count, apart = build.attribute("num_heads"), len(key_shape) == 4
    width = value_shape[1] * value_shape[3] if apart else value_shape[2]
    biases = build.split(bias, [shape[2], shape[2], width], 0) if bias else [""] * 3
    query = build.heads(build.plus(query, biases[0]), count)
    if not apart:
        key, value = build.plus(key, biases[1]), build.plus(value, biases[2])
        key, value = build.heads(key, count), build.heads(value, count)
    key, value = _extended(build, past_key, key), _extended(build, past_value, value)
    keys = key_shape[-2] + (past[2] if past else 0)
    masks = _masks(build, mask, added, keys)
    widths = (shape[2], width)
    result = _attended(build, query, key, value, widths=widths, queries=shape[1], keys=keys, masks=masks)
    return [result, key, value]


def _rotary(build: Builder) -> str | None:
    """Write out x [B, S, N·H] or [B, N, S, H], positions [B, S] or the first one [1], cosines, sines."""
    data, positions, *tables = build.node.input
    shape, table, place = build.shape(data), build.shape(tables[0]), build.shape(positions)
    if build.attribute("is_packed_batching", 0):
        raise Uncovered("is_packed_batching is set")
    flat, half, interleaved = len(shape) == 3, table[1], build.attribute("interleaved", 0)
    steps, extent = (shape[1], 0) if flat else (shape[2], shape[3])
    if flat:
        heads = build.attribute("num_heads", 0) or shape[2] // (2 * half)
        data, extent = build.reshaped(data, 0, 0, heads, -1), shape[2] // heads  # [B, S, N, H]
    if len(place) == 1:
        positions = build.add("Add", positions, build.integers([list(range(steps))]))
    cosine, sine = (
        build.reshaped(build.add("Gather", name, positions), -1, *((steps, 1) if flat else (1, steps)), half)
        for name in tables
    )
    rest = extent - 2 * half
    parts = build.split(data, [2 * half, rest], 3) if rest else [data]
    if interleaved:
        pairs = build.reshaped(parts[0], 0, 0, 0, half, 2)
        first, second = (build.reshaped(part, 0, 0, 0, half) for part in build.split(pairs, [1, 1], 4))
    else:
        first, second = build.split(parts[0], [half, half], 3)
    turned = [
        build.add("Sub", build.add("Mul", first, cosine), build.add("Mul", second, sine)),
        build.add("Add", build.add("Mul", first, sine), build.add("Mul", second, cosine)),
    ]
    if interleaved:
        turned = [build.reshaped(part, 0, 0, 0, half, 1) for part in turned]
        result = build.reshaped(build.add("Concat", *turned, axis=4), 0, 0, 0, 2 * half)
    else:
        result = build.add("Concat", *turned, axis=3)
    if rest:
        result = build.add("Concat", result, parts[1], axis=3)
    return build.reshaped(result, *shape)


def _quantized_attention(build: Builder) -> list[str]:
    """Attention of dequantized x and weights."""
    x, weights, bias, x_scale, scale, mask, x_zero, zero, past = build.operands(9)
    inputs = dequantized(build, x, x_scale, x_zero), dequantized(build, weights, scale, zero, 1)
    outputs = ["result", "present"][: len(build.node.output)]
    return build.add_many(
        "Attention",
        *inputs,
        bias,
        mask,
        past,
        outputs=outputs,
        domain=build.node.domain,
        **build.attributes(),
    )


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
