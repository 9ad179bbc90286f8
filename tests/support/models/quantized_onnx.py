"""Small networks as onnxruntime's optimizer and quantizer write them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantFormat, QuantType, quantize_dynamic, quantize_static

LEVELS = onnxruntime.GraphOptimizationLevel
RNG = np.random.default_rng(17)


class Net:
    """A graph while it is written: every operator's output has its own name."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, Any] = {}

    def weight(self, *shape: int, scale: float = 1.0) -> str:
        return self.constant((RNG.uniform(-1, 1, shape) * scale).astype(np.float32))

    def constant(self, value: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = np.asarray(value)
        return name

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attributes))
        return name

    def model(
        self, inputs: dict[str, tuple[int, list[int]]], output: str, shape: list[int]
    ) -> onnx.ModelProto:
        graph = helper.make_graph(
            [*self.nodes, helper.make_node("Identity", [output], ["y"])],
            "net",
            [helper.make_tensor_value_info(name, *info) for name, info in inputs.items()],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
            [numpy_helper.from_array(value, name) for name, value in self.weights.items()],
        )
        opsets = [helper.make_opsetid("", 17)]
        return onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=opsets, ir_version=9))


def convolutions() -> onnx.ModelProto:
    """Build convolutions with every fused activation, a residual sum, a gate, pools, a softmax."""
    net = Net()

    def conv(value: str, channels: int, filters: int, extent: int, groups: int = 1, stride: int = 1) -> str:
        count = channels // groups * extent**2
        weights = net.weight(filters, channels // groups, extent, extent, scale=(3 / count) ** 0.5)
        return net.add(
            "Conv", value, weights, net.weight(filters, scale=0.2),
            pads=[extent // 2] * 4, strides=[stride] * 2, group=groups, kernel_shape=[extent] * 2,
        )  # fmt: skip

    first = net.add("Relu", conv("x", 3, 16, 3, stride=2))
    limits = [net.constant(np.float32(value)) for value in (0, 6)]
    depthwise = net.add("Clip", conv(first, 16, 16, 3, groups=16), *limits)
    total = net.add("Relu", net.add("Add", first, conv(depthwise, 16, 16, 1)))
    pooled = net.add("MaxPool", total, kernel_shape=[2, 2], strides=[2, 2])
    leaky = net.add("LeakyRelu", conv(pooled, 16, 16, 3), alpha=0.1)
    other = conv(pooled, 16, 16, 3)
    swish = net.add("Mul", other, net.add("Sigmoid", other))
    joined = net.add("Concat", leaky, swish, axis=1)
    small = net.add("AveragePool", joined, kernel_shape=[2, 2], strides=[2, 2])
    gate = net.add("Sigmoid", conv(net.add("GlobalAveragePool", small), 32, 32, 1))
    flat = net.add("Flatten", net.add("GlobalAveragePool", net.add("Mul", small, gate)))
    scores = net.add("Gemm", flat, net.weight(10, 32, scale=0.3), net.weight(10), transB=1)
    return net.model({"x": (TensorProto.FLOAT, [1, 3, 32, 32])}, net.add("Softmax", scores, axis=1), [1, 10])


def transformer(steps: int = 8, size: int = 16, heads: int = 2) -> onnx.ModelProto:
    """Build a BERT of one layer as exporters write it, which onnxruntime's optimizer recognizes."""
    net = Net()

    def number(value: float) -> str:
        return net.constant(np.float32(value))

    def norm(value: str) -> str:
        names = net.constant(1 + RNG.uniform(-0.1, 0.1, size).astype(np.float32)), net.weight(size, scale=0.1)
        return net.add("LayerNormalization", value, *names, axis=-1, epsilon=1e-12)

    def dense(value: str, inner: int, outer: int) -> str:
        product = net.add("MatMul", value, net.weight(inner, outer, scale=inner**-0.5))
        return net.add("Add", net.weight(outer, scale=0.1), product)

    words = net.add("Gather", net.weight(50, size), "ids")
    kinds = net.add("Gather", net.weight(2, size), "kinds")
    places = net.add("Gather", net.weight(16, size), net.constant(np.arange(steps)[None]))
    x = norm(net.add("Add", net.add("Add", words, kinds), places))
    mask = net.add("Unsqueeze", net.add("Unsqueeze", "mask", net.constant([1])), net.constant([2]))
    left_out = net.add("Sub", number(1), net.add("Cast", mask, to=TensorProto.FLOAT))
    added = net.add("Mul", left_out, number(-10000))
    query, key, value = (
        net.add(
            "Transpose",
            net.add("Reshape", dense(x, size, size), net.constant([0, 0, heads, size // heads])),
            perm=perm,
        )
        for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
    )
    scores = net.add("Div", net.add("MatMul", query, key), number((size / heads) ** 0.5))
    weights = net.add("Softmax", net.add("Add", scores, added), axis=-1)
    merged = net.add("Transpose", net.add("MatMul", weights, value), perm=[0, 2, 1, 3])
    merged = net.add("Reshape", merged, net.constant([0, 0, size]))
    x = norm(net.add("Add", dense(merged, size, size), x))
    inner = dense(x, size, 4 * size)
    erf = net.add("Add", net.add("Erf", net.add("Div", inner, number(2**0.5))), number(1))
    gelu = net.add("Mul", net.add("Mul", inner, erf), number(0.5))
    x = norm(net.add("Add", dense(gelu, 4 * size, size), x))
    first = net.add("Gather", x, net.constant(0), axis=1)
    pooled = net.add("Tanh", net.add("Gemm", first, net.weight(size, 3), net.weight(3)))
    inputs = dict.fromkeys(("ids", "kinds", "mask"), (TensorProto.INT64, [1, steps]))
    return net.model(inputs, pooled, [1, 3])


def recurrent() -> onnx.ModelProto:
    net = Net()
    net.nodes.append(
        helper.make_node(
            "LSTM",
            ["x", net.weight(1, 32, 6), net.weight(1, 32, 8), net.weight(1, 64)],
            ["", "h"],
            hidden_size=8,
        )
    )
    state = net.add("Squeeze", "h", net.constant([0]))
    scores = net.add("MatMul", state, net.weight(8, 3))
    return net.model({"x": (TensorProto.FLOAT, [5, 1, 6])}, scores, [1, 3])


NETWORKS = {"convolutions": convolutions, "transformer": transformer, "recurrent": recurrent}
ACTIVATIONS = {"uint8": QuantType.QUInt8, "int8": QuantType.QInt8, "uint16": QuantType.QUInt16}
KINDS = ("extended", "all", "dynamic", "dynamic extended", "QDQ uint8", "QDQ int8", "QDQ uint16", "QDQ uint8 all",
         "QOperator uint8", "QOperator int8", "QOperator uint8 all")  # fmt: skip
"""Forms in which a network is written: an optimizer's level, a quantization, or both."""


def examples(model: onnx.ModelProto, count: int) -> Iterator[dict[str, Any]]:
    for _ in range(count):
        yield {
            value.name: RNG.uniform(-1, 1, shape).astype(np.float32)
            if value.type.tensor_type.elem_type == TensorProto.FLOAT
            else RNG.integers(0, 2, shape)
            for value in model.graph.input
            for shape in [[dim.dim_value for dim in value.type.tensor_type.shape.dim]]
        }


class Examples:
    """Reader of the quantizer over :func:`examples`."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.examples = examples(model, 8)

    def get_next(self) -> dict[str, Any] | None:
        return next(self.examples, None)


def written_by_onnxruntime(network: str, kind: str, directory: Path) -> Path:
    """Write *network* quantized by onnxruntime as *kind*."""
    model = NETWORKS[network]()
    path = directory / "float.onnx"
    onnx.save(model, path)
    form, *more = kind.split()
    if form == "dynamic":
        source, path = path, directory / "dynamic.onnx"
        quantize_dynamic(source, path)
    elif form in ("QDQ", "QOperator"):
        source, path = path, directory / "static.onnx"
        quantize_static(
            source, path, Examples(model), quant_format=QuantFormat[form], per_channel=more[0] == "uint8",
            activation_type=ACTIVATIONS[more[0]], weight_type=QuantType.QInt8,
            # 7 bits: with AVX2 and no VNNI onnxruntime saturates sums of uint8 by int8, and is no reference
            reduce_range=more[0] == "uint8",
        )  # fmt: skip
    level = {"extended": LEVELS.ORT_ENABLE_EXTENDED, "all": LEVELS.ORT_ENABLE_ALL}.get(kind.split()[-1])
    if level is None:
        return path
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    options.optimized_model_filepath = str(directory / "optimized.onnx")
    options.log_severity_level = 4
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return directory / "optimized.onnx"
