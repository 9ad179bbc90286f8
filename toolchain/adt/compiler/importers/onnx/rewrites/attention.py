"""Attention of ONNX and of onnxruntime (``com.microsoft``): products, masks and a softmax, of known shapes.

Symbols of ONNX's: Q[batch, heads, S, D], K[batch, groups, T, D], V[batch, groups, T, E]; several
heads share the keys of a group, and go through one product with them, so that keys
and values are never repeated. With three axes, heads and D are one axis.

Of onnxruntime's: B batches, S queries, P steps of the past, T = P + S keys, N heads, H extent of a head.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from adt.compiler.importers.onnx.graph import FLOATS, NO_CONVERTER, Builder, Rewrite, Uncovered, type_name
from adt.compiler.importers.onnx.rewrites.quantized import dequantized
from adt.numerics import Array

BEFORE_SOFTCAP, AFTER_SOFTCAP, WITH_MASK, PROBABILITIES = range(4)
"""Values of qk_matmul_output_mode: which scores are the fourth output."""
MASKED = -10000.0
"""Number that is added to the score of a key that a mask leaves out, where the node does not say."""
FUTURE = -60000.0  # number that is added to the score of a key after its query


def _attention(build: Builder) -> list[str] | None:
    """Rewrite Q, K, V[, mask, past key, past value, lengths of the cache] to Y[, key, value, scores]."""
    build.require_floats()
    for name in filter(None, build.node.input):
        build.shape(name)
    return _Attention(build).outputs()


class _Attention:
    """One node and the nodes in its place."""

    def __init__(self, build: Builder) -> None:
        self.build, self.graph = build, build.graph

    def outputs(self) -> list[str]:
        build = self.build
        q, k, v, mask, past_key, past_value, lengths = build.operands(7)
        flat = len(build.shape(q)) == 3
        query, (batch, heads, self.queries, size) = self._heads(q, "q_num_heads")
        key, (_, groups, self.keys, _) = self._cached(k, past_key)
        value, (_, _, _, width) = self._cached(v, past_value)
        self.past = build.shape(past_key)[2] if past_key else 0
        query = build.add("Mul", query, build.attribute("scale") or size**-0.5)
        rows = heads // groups * self.queries
        product = self._product(
            build.reshaped(query, batch, groups, rows, size), build.add("Transpose", key, perm=[0, 1, 3, 2])
        )
        scores = build.reshaped(product, batch, heads, self.queries, self.keys)
        probabilities, shown = self._probabilities(scores, mask, lengths)
        product = self._product(build.reshaped(probabilities, batch, groups, rows, self.keys), value)
        output = build.reshaped(product, batch, heads, self.queries, width)
        if flat:
            moved = build.add("Transpose", output, perm=[0, 2, 1, 3])
            output = build.reshaped(moved, batch, self.queries, heads * width)
        return [output, key, value, shown]

    def _product(self, left: str, right: str) -> str:
        """Multiply two matrices; the sums of half precision, whose errors grow, in single precision."""
        build = self.build
        if build.dtype != "float16":
            return build.add("MatMul", left, right)
        product = build.add("MatMul", build.cast(left, "float32"), build.cast(right, "float32"))
        return build.cast(product, "float16")

    def _heads(self, name: str, count: str) -> tuple[str, tuple[int, ...]]:
        """Return *name* with four axes, and its shape."""
        shape = self.build.shape(name)
        if len(shape) == 4:
            return name, shape
        heads = self.build.attribute(count)
        batch, length, size = shape
        return self.build.heads(name, heads), (batch, heads, length, size // heads)

    def _cached(self, name: str, past: str) -> tuple[str, tuple[int, ...]]:
        """Append keys or values to those of the past; return them and their shape."""
        name, shape = self._heads(name, "kv_num_heads")
        if past:
            name = self.build.add("Concat", past, name, axis=2)
            shape = (*shape[:2], shape[2] + self.build.shape(past)[2], shape[3])
        return name, shape

    def _probabilities(self, scores: str, mask: str, lengths: str) -> tuple[str, str]:
        """Compute the softmax of the masked scores (0 for what is masked, a whole row too), and output 4."""
        build = self.build
        mode = build.attribute("qk_matmul_output_mode", BEFORE_SOFTCAP)
        stages = {BEFORE_SOFTCAP: scores}
        if cap := build.attribute("softcap", 0.0):
            scores = build.add("Mul", build.add("Tanh", build.add("Div", scores, cap)), cap)
        stages[AFTER_SOFTCAP] = scores
        bias, allowed = self._mask(mask, lengths)
        scores = build.plus(scores, bias)
        stages[WITH_MASK] = scores
        if allowed:
            if mode == WITH_MASK:
                stages[mode] = build.add("Where", allowed, scores, -np.inf)
            scores = build.add("Where", allowed, scores, float(np.finfo(build.dtype).min))
        precision = build.attribute("softmax_precision", 0)
        if not precision or type_name(precision) == build.dtype:
            result = build.add("Softmax", scores, axis=-1)
        else:
            result = build.add("Softmax", build.cast(scores, type_name(precision)), axis=-1)
            result = build.cast(result, build.dtype)
        if allowed:
            result = build.add("Where", allowed, result, 0)
        stages[PROBABILITIES] = result
        return result, stages[mode]

    def _mask(self, mask: str, lengths: str) -> tuple[str, str]:
        """Return what is added to the scores, and which of them count; each may be empty."""
        build = self.build
        bias, parts = "", list[str]()
        known = np.ones((self.queries, self.keys), bool)
        known_lengths = self.graph.constant(lengths)
        if lengths and known_lengths is None:
            parts += self._window_of_lengths(lengths)
        else:
            known = self._window(known_lengths)
        if mask:
            dtype, shape = str(self.graph.dtype(mask)), build.shape(mask)
            value = self.graph.constant(mask)
            is_float = dtype in FLOATS
            missing = (*shape[:-1], max(0, self.keys - shape[-1]))
            rest = np.full(missing, -np.inf if is_float else False, dtype)
            if value is not None:
                value = np.concatenate([value, rest], -1)
                known = known & (np.greater(value, -np.inf) if is_float else value.astype(bool))
                bias = build.constant(value, dtype) if is_float else ""
            else:
                if rest.size:
                    mask = build.add("Concat", mask, build.constant(rest, dtype), axis=-1)
                if is_float:
                    bias = mask
                    mask = build.add("Greater", mask, build.constant(-np.inf, dtype))
                parts.append(mask)
        if not known.all():
            parts.append(build.constant(known, "bool"))
        return bias, reduce(lambda left, right: build.add("And", left, right), parts) if parts else ""

    def _bounds(self) -> tuple[int | None, int | None]:
        """Return how far behind and ahead of its own position a query sees; None is without end."""
        left, right = (self.build.attribute(f"{side}_window_size", -1) for side in ("left", "right"))
        ahead = 0 if self.build.attribute("is_causal", 0) else right
        return left if left >= 0 else None, ahead if ahead >= 0 else None

    def _distances(self) -> NDArray[np.int64]:
        """Return the position of each key less that of each query, [S, T], of a block that starts at 0."""
        return np.arange(self.keys) - np.arange(self.queries)[:, None]

    def _window(self, lengths: Array | None) -> NDArray[np.bool_]:
        """Return which keys each query sees, [S, T] or, with *lengths*, [batch, 1, S, T]."""
        end = self.past + self.queries if lengths is None else lengths.astype(int).reshape(-1, 1, 1, 1)
        distances = self._distances() - (end - self.queries)
        behind, ahead = self._bounds()
        allowed = np.ones(distances.shape, bool)
        if behind is not None:
            allowed &= distances >= -behind
        if ahead is not None:
            allowed &= distances <= ahead
        return allowed if lengths is None else allowed & (np.arange(self.keys) < end)

    def _window_of_lengths(self, lengths: str) -> list[str]:
        """Return conditions, as nodes, by which a query sees a key: all of them must hold."""
        build = self.build
        lengths = build.reshaped(lengths, -1, 1, 1, 1)
        parts = [build.add("Less", build.integers(np.arange(self.keys)), lengths)]
        behind, ahead = self._bounds()
        if behind is not None or ahead is not None:
            start = build.add("Sub", lengths, build.integers(self.queries))
            distances = build.add("Sub", build.integers(self._distances()), start)
            if behind is not None:
                parts.append(build.add("GreaterOrEqual", distances, build.integers(-behind)))
            if ahead is not None:
                parts.append(build.add("LessOrEqual", distances, build.integers(ahead)))
        return parts


# What onnxruntime fuses


def _extended(build: Builder, past: str, name: str) -> str:
    """Put the keys or values of the past before those of now."""
    return build.add("Concat", past, name, axis=2) if past else name


def _attended(
    build: Builder,
    query: str,
    key: str,
    value: str,
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


def _fused_attention(build: Builder) -> list[str] | None:
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
    keys = shape[1] + (past_shape[3] if past_shape else 0)
    if past_shape:
        before = (build.reshaped(part, *past_shape[1:]) for part in build.split(past, [1, 1], 0))
        key, value = (_extended(build, old, new) for old, new in zip(before, (key, value), strict=True))
    masks = _masks(build, mask, added, keys)
    present = ""
    if build.has_output(1):
        both = (build.reshaped(part, 1, shape[0], count, keys, -1) for part in (key, value))
        present = build.add("Concat", *both, axis=0)
    widths = (sizes[0], sizes[2])
    return [_attended(build, query, key, value, widths, shape[1], keys, masks), present]


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
    return [_attended(build, query, key, value, (shape[2], width), shape[1], keys, masks), key, value]


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
    """Rewrite attention to one of dequantized x and weights."""
    x, weights, bias, x_scale, scale, mask, x_zero, zero, past = build.operands(9)
    inputs = dequantized(build, x, x_scale, x_zero), dequantized(build, weights, scale, zero, 1)
    outputs = ["result", "present"][: len(build.node.output)]
    options = {"domain": build.node.domain, **build.attributes()}
    return build.add_many("Attention", *inputs, bias, mask, past, outputs=outputs, **options)


_PRODUCTS = "MatMul, Softmax, Transpose, …"
REWRITES = tuple(
    Rewrite(op, into, NO_CONVERTER, apply)
    for op, into, apply in (
        ("Attention", "MatMul, Where, Softmax, MatMul with the mask's constant part known", _attention),
        ("com.microsoft::Attention", _PRODUCTS, _fused_attention),
        ("com.microsoft::MultiHeadAttention", _PRODUCTS, _multi_head_attention),
        ("com.microsoft::QAttention", f"DequantizeLinear, {_PRODUCTS}", _quantized_attention),
        ("com.microsoft::RotaryEmbedding", "Gather, Split, Mul, Add, Concat", _rotary),
    )
)
