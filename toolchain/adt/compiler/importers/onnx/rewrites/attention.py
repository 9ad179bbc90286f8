"""Attention: products, masks and a softmax, with the shapes that are known.

Symbols: Q[batch, heads, S, D], K[batch, groups, T, D], V[batch, groups, T, E]; several
heads share the keys of a group, and go through one product with them, so that keys
and values are never repeated. With three axes, heads and D are one axis.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from adt.compiler.importers.onnx.graph import FLOATS, Builder, type_name
from adt.compiler.importers.onnx.rewrites.rewrite import NO_CONVERTER, Rewrite

BEFORE_SOFTCAP, AFTER_SOFTCAP, WITH_MASK, PROBABILITIES = range(4)
"""Values of qk_matmul_output_mode: which scores are the fourth output."""


def _attention(build: Builder) -> list[str] | None:
    """Q, K, V[, mask, past key, past value, lengths of the cache] to Y[, present key and value, scores]."""
    build.require_floats()
    for name in filter(None, build.node.input):
        build.shape(name)
    return _Attention(build).outputs()


class _Attention:
    """One node and the nodes in its place."""

    def __init__(self, build: Builder) -> None:
        self.build, self.graph = build, build.graph
        self.inputs = build.operands(7)

    def outputs(self) -> list[str]:
        build = self.build
        q, k, v, _, past_key, past_value, _ = self.inputs
        flat = len(self.build.shape(q)) == 3
        query, (batch, heads, self.queries, size) = self._heads(q, "q_num_heads")
        key, (_, groups, self.keys, _) = self._cached(k, past_key)
        value, (_, _, _, width) = self._cached(v, past_value)
        self.past = self.build.shape(past_key)[2] if past_key else 0
        query = build.add("Mul", query, build.attribute("scale") or size**-0.5)
        rows = heads // groups * self.queries
        product = self._product(
            build.reshaped(query, batch, groups, rows, size), build.add("Transpose", key, perm=[0, 1, 3, 2])
        )
        scores = build.reshaped(product, batch, heads, self.queries, self.keys)
        probabilities, shown = self._probabilities(scores)
        product = self._product(build.reshaped(probabilities, batch, groups, rows, self.keys), value)
        output = build.reshaped(product, batch, heads, self.queries, width)
        if flat:
            moved = build.add("Transpose", output, perm=[0, 2, 1, 3])
            output = build.reshaped(moved, batch, self.queries, heads * width)
        return [output, key, value, shown]

    def _product(self, left: str, right: str) -> str:
        """Their matrix product; the sums of half precision, whose errors grow, in single precision."""
        build = self.build
        if build.dtype != "float16":
            return build.add("MatMul", left, right)
        product = build.add("MatMul", build.cast(left, "float32"), build.cast(right, "float32"))
        return build.cast(product, "float16")

    def _heads(self, name: str, count: str) -> tuple[str, tuple[int, ...]]:
        """*name* with four axes, and its shape."""
        shape = self.build.shape(name)
        if len(shape) == 4:
            return name, shape
        heads = self.build.attribute(count)
        batch, length, size = shape
        return self.build.heads(name, heads), (batch, heads, length, size // heads)

    def _cached(self, name: str, past: str) -> tuple[str, tuple[int, ...]]:
        """Keys or values behind those of the past, and their shape."""
        name, shape = self._heads(name, "kv_num_heads")
        if past:
            name = self.build.add("Concat", past, name, axis=2)
            shape = (*shape[:2], shape[2] + self.build.shape(past)[2], shape[3])
        return name, shape

    def _probabilities(self, scores: str) -> tuple[str, str]:
        """Softmax of the masked scores (0 for what is masked, even a whole row), and the fourth output."""
        build = self.build
        mode = build.attribute("qk_matmul_output_mode", BEFORE_SOFTCAP)
        stages = {BEFORE_SOFTCAP: scores}
        if cap := build.attribute("softcap", 0.0):
            scores = build.add("Mul", build.add("Tanh", build.add("Div", scores, cap)), cap)
        stages[AFTER_SOFTCAP] = scores
        bias, allowed = self._mask()
        scores = build.plus(scores, bias)
        stages[WITH_MASK] = scores
        if allowed:
            if mode == WITH_MASK:
                stages[mode] = build.add("Where", allowed, scores, -np.inf)
            scores = build.add("Where", allowed, scores, float(np.finfo(build.dtype).min))
        precision = type_name(build.attribute("softmax_precision", 0) or 1)
        if not build.attribute("softmax_precision", 0) or precision == build.dtype:
            result = build.add("Softmax", scores, axis=-1)
        else:
            result = build.add("Softmax", build.cast(scores, precision), axis=-1)
            result = build.cast(result, build.dtype)
        if allowed:
            result = build.add("Where", allowed, result, 0)
        stages[PROBABILITIES] = result
        return result, stages[mode]

    def _mask(self) -> tuple[str, str]:
        """Return what is added to the scores, and which of them count; each may be empty."""
        build, mask, lengths = self.build, self.inputs[3], self.inputs[6]
        bias, parts = "", []
        known = np.ones((self.queries, self.keys), bool)
        known_lengths = self.graph.constant(lengths) if lengths else None
        if lengths and known_lengths is None:
            parts += self._window_of_lengths(lengths)
        elif known_lengths is not None:
            known = self._window(known_lengths.astype(np.int64).reshape(-1, 1, 1, 1))
        else:
            known = self._window(None)
        if mask:
            dtype, shape = str(self.graph.dtype(mask)), self.build.shape(mask)
            value = self.graph.constant(mask)
            rest = np.full(
                (*shape[:-1], max(0, self.keys - shape[-1])), -np.inf if dtype in FLOATS else False, dtype
            )
            if value is not None:
                value = np.concatenate([value, rest], -1)
                known = known & (np.greater(value, -np.inf) if dtype in FLOATS else value.astype(bool))
                bias = build.constant(value, dtype) if dtype in FLOATS else ""
            else:
                if rest.size:
                    mask = build.add("Concat", mask, build.constant(rest, dtype), axis=-1)
                if dtype in FLOATS:
                    bias = mask
                    mask = build.add("Greater", mask, build.constant(-np.inf, dtype))
                parts.append(mask)
        if not known.all():
            parts.append(build.constant(known, "bool"))
        allowed = parts[0] if parts else ""
        for part in parts[1:]:
            allowed = build.add("And", allowed, part)
        return bias, allowed

    def _bounds(self) -> tuple[int | None, int | None]:
        """Return how far behind and ahead of its own position a query sees; None is without end."""
        build = self.build
        left, right = (build.attribute(f"{side}_window_size", -1) for side in ("left", "right"))
        ahead = right if right >= 0 else None
        if build.attribute("is_causal", 0):
            ahead = 0
        return left if left >= 0 else None, ahead

    def _distances(self) -> NDArray[np.int64]:
        """Position of each key less that of each query, [S, T], of a query block that starts at 0."""
        return np.arange(self.keys) - np.arange(self.queries)[:, None]

    def _window(self, lengths: NDArray[np.int64] | None) -> NDArray[np.bool_]:
        """Return which keys each query sees, [S, T] or, with *lengths* [batch, 1, 1, 1], [batch, 1, S, T]."""
        start = self.past if lengths is None else lengths - self.queries
        distances = self._distances() - start
        behind, ahead = self._bounds()
        allowed = np.ones(distances.shape, bool)
        if behind is not None:
            allowed &= distances >= -behind
        if ahead is not None:
            allowed &= distances <= ahead
        if lengths is not None:
            allowed &= np.arange(self.keys) < lengths
        return allowed

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


REWRITES = (
    Rewrite(
        "Attention",
        "MatMul, Where, Softmax, MatMul with the mask's constant part known",
        NO_CONVERTER,
        _attention,
    ),
)
