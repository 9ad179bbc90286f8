"""Attention: products, masks and a softmax, with the shapes that are known.

Symbols: Q[batch, heads, S, D], K[batch, groups, T, D], V[batch, groups, T, E]; several
heads share the keys of a group, and go through one product with them, so that keys
and values are never repeated. With three axes, heads and D are one axis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from adt.model.importers.onnx.graph import Builder, Graph, attribute
from adt.model.importers.onnx.rewrites.rewrite import FLOATS, NO_CONVERTER, Rewrite

if TYPE_CHECKING:
    import numpy as np
    import onnx
    from numpy.typing import NDArray

BEFORE_SOFTCAP, AFTER_SOFTCAP, WITH_MASK, PROBABILITIES = range(4)
"""Values of qk_matmul_output_mode: which scores are the fourth output."""


def _attention(node: onnx.NodeProto, graph: Graph) -> list[onnx.NodeProto] | None:
    """Q, K, V[, mask, past key, past value, lengths of the cache] to Y[, present key and value, scores]."""
    dtype = graph.dtype(node.input[0])
    shapes = [graph.shape(name) for name in node.input if name]
    if dtype not in FLOATS or any(shape is None for shape in shapes):
        return None
    return _Attention(node, graph, dtype).nodes()


class _Attention:
    """One node and the nodes in its place."""

    def __init__(self, node: onnx.NodeProto, graph: Graph, dtype: str) -> None:
        self.node, self.graph, self.dtype = node, graph, dtype
        self.build = Builder(graph, node)
        self.inputs = [*node.input, *[""] * 7][:7]
        self.outputs = [*node.output, *[""] * 4][:4]

    def nodes(self) -> list[onnx.NodeProto]:
        build, node = self.build, self.node
        q, k, v, _, past_key, past_value, _ = self.inputs
        flat = len(self._shape(q)) == 3
        query, (batch, heads, self.queries, size) = self._heads(q, "q_num_heads")
        key, (_, groups, self.keys, _) = self._cached(k, past_key, self.outputs[1])
        value, (_, _, _, width) = self._cached(v, past_value, self.outputs[2])
        self.past = self._shape(past_key)[2] if past_key else 0
        scale = attribute(node, "scale") or size**-0.5
        query = build.add("Mul", query, build.constant(scale, self.dtype))
        rows = heads // groups * self.queries
        scores = self._reshape(
            self._product(
                self._reshape(query, batch, groups, rows, size),
                build.add("Transpose", key, perm=[0, 1, 3, 2]),
            ),
            batch,
            heads,
            self.queries,
            self.keys,
        )
        output = self._reshape(
            self._product(
                self._reshape(self._probabilities(scores), batch, groups, rows, self.keys),
                value,
            ),
            batch,
            heads,
            self.queries,
            width,
        )
        if flat:
            output = self._reshape(
                build.add("Transpose", output, perm=[0, 2, 1, 3]), batch, self.queries, heads * width
            )
        build.add("Identity", output, out=self.outputs[0])
        return build.nodes

    def _shape(self, name: str) -> tuple[int, ...]:
        shape = self.graph.shape(name)
        assert shape is not None
        return shape

    def _reshape(self, name: str, *shape: int) -> str:
        return self.build.add("Reshape", name, self.build.constant(shape, "int64"))

    def _product(self, left: str, right: str) -> str:
        """Their matrix product; the sums of half precision, whose errors grow, in single precision."""
        from onnx import TensorProto

        build = self.build
        if self.dtype != "float16":
            return build.add("MatMul", left, right)
        left, right = (build.add("Cast", name, to=TensorProto.FLOAT) for name in (left, right))
        return build.add("Cast", build.add("MatMul", left, right), to=TensorProto.FLOAT16)

    def _heads(self, name: str, count: str) -> tuple[str, tuple[int, ...]]:
        """*name* with four axes, and its shape."""
        shape = self._shape(name)
        if len(shape) == 4:
            return name, shape
        heads = attribute(self.node, count)
        batch, length, size = shape
        split = self._reshape(name, batch, length, heads, size // heads)
        moved = self.build.add("Transpose", split, perm=[0, 2, 1, 3])
        return moved, (batch, heads, length, size // heads)

    def _cached(self, name: str, past: str, present: str) -> tuple[str, tuple[int, ...]]:
        """Keys or values behind those of the past, and their shape; *present* is their name as an output."""
        name, shape = self._heads(name, "kv_num_heads")
        if past:
            name = self.build.add("Concat", past, name, axis=2)
            shape = (*shape[:2], shape[2] + self._shape(past)[2], shape[3])
        if present:
            self.build.add("Identity", name, out=present)
        return name, shape

    def _probabilities(self, scores: str) -> str:
        """Softmax of the masked scores; 0 for what is masked, also where a whole row is."""
        import numpy as np
        from onnx import helper

        build = self.build
        mode = attribute(self.node, "qk_matmul_output_mode", BEFORE_SOFTCAP)
        seen = {BEFORE_SOFTCAP: scores}
        if cap := attribute(self.node, "softcap", 0.0):
            limit = build.constant(cap, self.dtype)
            scores = build.add("Mul", build.add("Tanh", build.add("Div", scores, limit)), limit)
        seen[AFTER_SOFTCAP] = scores
        bias, allowed = self._mask()
        if bias:
            scores = build.add("Add", scores, bias)
        seen[WITH_MASK] = scores
        if allowed:
            if mode == WITH_MASK:
                seen[mode] = build.add("Where", allowed, scores, build.constant(-np.inf, self.dtype))
            lowest = build.constant(np.finfo(self.dtype).min, self.dtype)
            scores = build.add("Where", allowed, scores, lowest)
        precision = attribute(self.node, "softmax_precision", 0)
        cast = precision and helper.tensor_dtype_to_np_dtype(precision).name != self.dtype
        if cast:
            scores = build.add("Cast", scores, to=precision)
        result = build.add("Softmax", scores, axis=-1)
        if cast:
            result = build.add("Cast", result, to=helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype)))
        if allowed:
            result = build.add("Where", allowed, result, build.constant(0, self.dtype))
        seen[PROBABILITIES] = result
        if self.outputs[3]:
            build.add("Identity", seen[mode], out=self.outputs[3])
        return result

    def _mask(self) -> tuple[str, str]:
        """What is added to the scores, and which of them count; each may be empty."""
        import numpy as np

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
            dtype, shape = str(self.graph.dtype(mask)), self._shape(mask)
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
        """How far behind and ahead of its own position a query sees; None is without end."""
        left, right = (attribute(self.node, f"{side}_window_size", -1) for side in ("left", "right"))
        ahead = right if right >= 0 else None
        if attribute(self.node, "is_causal", 0):
            ahead = 0
        return left if left >= 0 else None, ahead

    def _distances(self) -> NDArray[np.int64]:
        """Position of each key less that of each query, [S, T], of a query block that starts at 0."""
        import numpy as np

        return np.arange(self.keys) - np.arange(self.queries)[:, None]

    def _window(self, lengths: NDArray[np.int64] | None) -> NDArray[np.bool_]:
        """Which keys each query sees, [S, T] or, with *lengths* [batch, 1, 1, 1], [batch, 1, S, T]."""
        import numpy as np

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
        """The same by nodes: all of these must hold."""
        import numpy as np

        build = self.build
        lengths = self._reshape(lengths, -1, 1, 1, 1)
        parts = [build.add("Less", build.constant(np.arange(self.keys), "int64"), lengths)]
        behind, ahead = self._bounds()
        if behind is not None or ahead is not None:
            start = build.add("Sub", lengths, build.constant(self.queries, "int64"))
            distances = build.add("Sub", build.constant(self._distances(), "int64"), start)
            if behind is not None:
                parts.append(build.add("GreaterOrEqual", distances, build.constant(-behind, "int64")))
            if ahead is not None:
                parts.append(build.add("LessOrEqual", distances, build.constant(ahead, "int64")))
        return parts


REWRITES = (
    Rewrite(
        "Attention",
        "MatMul, Where, Softmax, MatMul with the mask's constant part known",
        NO_CONVERTER,
        _attention,
    ),
)
