"""Well-known networks of sequences as ONNX models, generated: random weights from a fixed seed."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class SequenceNetwork:
    """An ONNX graph under construction: each method adds one layer and returns its output's name.

    Tensors are ``(batch, steps, features)``; the recurrent layers' ``(steps, batch, features)``.
    """

    def __init__(self, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def constant(self, array: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array.copy(), name))
        return name

    def weight(self, *shape: int, scale: float | None = None) -> str:
        spread = scale or shape[-2 if len(shape) > 1 else -1] ** -0.5
        return self.constant(self.random.normal(0, spread, shape).astype(np.float32))

    def op(self, kind: str, *inputs: str, **attributes: object) -> str:
        name = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=f"n_{name}", **attributes))
        return name

    def scalar(self, value: float) -> str:
        return self.constant(np.array(value, np.float32))

    def dense(self, x: str, inputs: int, outputs: int) -> str:
        return self.op(
            "Add", self.op("MatMul", x, self.weight(inputs, outputs)), self.weight(outputs, scale=0.1)
        )

    def reshape(self, x: str, *shape: int) -> str:
        return self.op("Reshape", x, self.constant(np.array(shape, np.int64)))

    def layer_norm(self, x: str, size: int, *, decomposed: bool = False) -> str:
        """Add a normalization as opset 17 has it, or as exporters wrote it before."""
        scale, shift = (
            self.constant((mean + self.random.normal(0, 0.1, size)).astype(np.float32)) for mean in (1, 0)
        )
        if not decomposed:
            return self.op("LayerNormalization", x, scale, shift, axis=-1, epsilon=1e-12)
        off = self.op("Sub", x, self.op("ReduceMean", x, axes=[-1]))
        variance = self.op("ReduceMean", self.op("Pow", off, self.scalar(2)), axes=[-1])
        deviation = self.op("Sqrt", self.op("Add", variance, self.scalar(1e-12)))
        return self.op("Add", self.op("Mul", self.op("Div", off, deviation), scale), shift)

    def gelu(self, x: str) -> str:
        erf = self.op("Erf", self.op("Div", x, self.scalar(2**0.5)))
        return self.op("Mul", self.op("Mul", x, self.op("Add", erf, self.scalar(1))), self.scalar(0.5))

    def attention(self, x: str, mask: str, steps: int, size: int, heads: int) -> str:
        def by_heads(axes: Sequence[int]) -> str:
            rows = self.reshape(self.dense(x, size, size), 1, steps, heads, size // heads)
            return self.op("Transpose", rows, perm=list(axes))

        q, k, v = by_heads((0, 2, 1, 3)), by_heads((0, 2, 3, 1)), by_heads((0, 2, 1, 3))
        scores = self.op("Div", self.op("MatMul", q, k), self.scalar((size // heads) ** 0.5))
        shares = self.op("Softmax", self.op("Add", scores, mask), axis=-1)
        joined = self.op("Transpose", self.op("MatMul", shares, v), perm=[0, 2, 1, 3])
        return self.dense(self.reshape(joined, 1, steps, size), size, size)

    def recurrent(
        self, kind: str, x: str, inputs: int, hidden: int, *, directions: int = 1, linear: bool = True
    ) -> str:
        """Add an RNN, GRU or LSTM; return all states, ``(steps, batch, directions · hidden)``."""
        gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[kind]
        weights = [
            self.weight(directions, gates * hidden, extent, scale=hidden**-0.5) for extent in (inputs, hidden)
        ]
        attributes: dict[str, object] = {"hidden_size": hidden}
        if kind == "GRU":
            attributes["linear_before_reset"] = int(linear)
        if directions == 2:
            attributes["direction"] = "bidirectional"
        states = self.op(
            kind, x, *weights, self.weight(directions, 2 * gates * hidden, scale=0.1), **attributes
        )
        return self.reshape(self.op("Transpose", states, perm=[0, 2, 1, 3]), 0, 0, directions * hidden)

    def save(
        self,
        path: Path,
        inputs: dict[str, tuple[int, ...]],
        output: str,
        shape: Sequence[int],
        states: Mapping[str, Sequence[int]] | None = None,
    ) -> Path:
        """Write the model; *inputs* are float32 where they have features, else numbers of tokens.

        Args:
            states: outputs behind the first, with their shapes.
        """
        infos = [
            helper.make_tensor_value_info(
                name, TensorProto.FLOAT if len(extents) > 2 else TensorProto.INT64, extents
            )
            for name, extents in inputs.items()
        ]
        outputs = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, extents)
            for name, extents in {output: shape, **(states or {})}.items()
        ]
        graph = helper.make_graph(self.nodes, "generated", infos, outputs, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.checker.check_model(model)
        onnx.save(model, path)
        return path


def bert(
    path: Path,
    layers: int = 2,
    size: int = 64,
    heads: int = 4,
    steps: int = 24,
    words: int = 1000,
    *,
    decomposed: bool = False,
) -> Path:
    """Build an encoder of int64[1, steps] with segments and a mask, and its pooled output."""
    net = SequenceNetwork()
    tokens = net.op("Gather", net.weight(words, size, scale=1), "input_ids")
    segments = net.op("Gather", net.weight(2, size, scale=1), "token_type_ids")
    x = net.op("Add", net.op("Add", tokens, segments), net.weight(1, steps, size, scale=1))
    x = net.layer_norm(x, size, decomposed=decomposed)
    attention = net.op("Cast", net.reshape("attention_mask", 1, 1, 1, steps), to=TensorProto.FLOAT)
    mask = net.op("Mul", net.op("Sub", net.scalar(1), attention), net.scalar(-10000))
    for _ in range(layers):
        attended = net.op("Add", net.attention(x, mask, steps, size, heads), x)
        x = net.layer_norm(attended, size, decomposed=decomposed)
        inner = net.gelu(net.dense(x, size, 4 * size))
        x = net.layer_norm(net.op("Add", net.dense(inner, 4 * size, size), x), size, decomposed=decomposed)
    first = net.op("Gather", x, net.constant(np.array(0)), axis=1)
    pooled = net.op("Tanh", net.dense(first, size, size))
    whole = net.op("Concat", x, net.op("Unsqueeze", pooled, net.constant(np.array([1]))), axis=1)
    inputs = dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), (1, steps))
    return net.save(path, inputs, whole, (1, steps + 1, size))


def bert_4x256(path: Path) -> Path:
    """Build four layers of 256, 128 tokens, as exporters write it since opset 17."""
    return bert(path, 4, 256, 4, 128, 30522)


def bert_12x768(path: Path) -> Path:
    """Build BERT base, 128 tokens, its normalizations as exporters wrote them before."""
    return bert(path, 12, 768, 12, 128, 30522, decomposed=True)


def recurrent(
    path: Path,
    kind: str,
    layers: int = 2,
    size: int = 24,
    hidden: int = 32,
    steps: int = 6,
    *,
    directions: int = 1,
    linear: bool = True,
    classes: int = 40,
    batch: int = 1,
) -> Path:
    """Build recurrent layers of float32[steps, batch, size], and a classifier of each state."""
    net = SequenceNetwork()
    x, inputs = "x", size
    for _ in range(layers):
        x = net.recurrent(kind, x, inputs, hidden, directions=directions, linear=linear)
        inputs = directions * hidden
    output = net.op("Softmax", net.dense(x, inputs, classes), axis=-1)
    return net.save(path, {"x": (steps, batch, size)}, output, (steps, batch, classes))


def gru(path: Path) -> Path:
    """Build two layers of 256 over 100 steps, as torch exports it."""
    return recurrent(path, "GRU", 2, 80, 256, 100)


def lstm(path: Path) -> Path:
    """Build two layers of 256 over 100 steps."""
    return recurrent(path, "LSTM", 2, 80, 256, 100)


def gru_both_ways(path: Path) -> Path:
    """Build a bidirectional layer of 128 over 50 steps, with the reset before the product."""
    return recurrent(path, "GRU", 1, 64, 128, 50, directions=2, linear=False)


def lstm_both_ways(path: Path) -> Path:
    """Build two bidirectional layers of 128 over 64 steps, as readers of text have it."""
    return recurrent(path, "LSTM", 2, 192, 128, 64, directions=2)
