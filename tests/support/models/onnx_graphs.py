"""Tiny ONNX graphs for the importer's tests."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, compose, helper, numpy_helper

FLOAT, INT64, UINT8, INT8 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.UINT8, TensorProto.INT8


def graph_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[int | str]],
    outputs: Sequence[str],
    weights: Mapping[str, Any] | None = None,
    *,
    opset: int = 17,
    kind: int = FLOAT,
    output_kind: int = FLOAT,
    domain: str = "",
) -> onnx.ModelProto:
    """Build a model of *nodes*; the shapes of its outputs are left to inference."""
    graph = helper.make_graph(
        list(nodes),
        "tiny",
        [helper.make_tensor_value_info(name, kind, list(shape)) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, output_kind, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in (weights or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset)]
    if domain:
        opsets.append(helper.make_opsetid(domain, 1))
    model = onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=opsets, ir_version=8))
    del model.graph.value_info[:]
    for value in model.graph.output:
        if not value.type.tensor_type.HasField("shape"):  # of another domain: as the first input
            value.type.tensor_type.shape.CopyFrom(model.graph.input[0].type.tensor_type.shape)
    return model


def joined(models: Sequence[onnx.ModelProto]) -> onnx.ModelProto:
    """Return one model of *models*, which have the same opset: the names of the first begin with ``m0_``."""
    graph, opsets = onnx.GraphProto(name="joined"), {}
    for number, model in enumerate(models):
        graph.MergeFrom(compose.add_prefix(model, f"m{number}_").graph)
        opsets |= {each.domain: each.version for each in model.opset_import}
    graph.name = "joined"
    return helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid(*pair) for pair in opsets.items()],
        ir_version=max(model.ir_version for model in models),
    )


def write(model: onnx.ModelProto, path: Path) -> Path:
    onnx.save(model, path)
    return path


node = helper.make_node


RNG = np.random.default_rng(3)
H = 3
"""Hidden size of the recurrent ones."""


def f32(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.uniform(-1, 1, shape).astype(np.float32)


def recurrent(
    op: str, gates: int, *, direction: str = "forward", hidden: int = H, **more: Any
) -> onnx.ModelProto:
    """Return a layer of which two sequences begin with states."""
    directions = 2 if direction == "bidirectional" else 1
    weights = {
        "w": f32(directions, gates * hidden, 4),
        "r": f32(directions, gates * hidden, hidden) * np.float32(H / hidden),
        "b": f32(directions, 2 * gates * hidden),
        "h0": f32(directions, 2, hidden),
    }
    inputs = ["x", "w", "r", "b", "", "h0"]
    outputs = ["y", "h"]
    if op == "LSTM":
        weights["c0"] = f32(directions, 2, hidden)
        inputs.append("c0")
        outputs.append("c")
    nodes = [node(op, inputs, outputs, hidden_size=hidden, direction=direction, name="recurrent", **more)]
    return graph_of(nodes, {"x": (3, 2, 4)}, outputs, weights)


def _lstm_of_all_inputs() -> onnx.ModelProto:
    names = ["x", "w", "r", "b", "n", "h0", "c0", "p"]
    weights = {
        "w": f32(1, 4 * H, 4), "r": f32(1, 4 * H, H), "b": f32(1, 8 * H), "n": np.array([3, 3], np.int32),
        "h0": f32(1, 2, H), "c0": f32(1, 2, H), "p": f32(1, 3 * H),
    }  # fmt: skip
    more = {"hidden_size": H, "activations": ["Sigmoid", "Softsign", "Tanh"]}
    return graph_of([node("LSTM", names, ["", "y", "c"], **more)], {"x": (3, 2, 4)}, ["y", "c"], weights)


def _qlinear_conv() -> onnx.ModelProto:
    names = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"]
    weights = {
        "xs": np.float32(0.02), "xz": np.uint8(3), "ws": np.array([0.1, 0.2], np.float32), "wz": np.zeros(2, np.int8),
        "w": RNG.integers(-9, 9, (2, 3, 3, 3)).astype(np.int8), "ys": np.float32(0.5), "yz": np.uint8(100),
        "b": np.array([50, -60], np.int32),
    }  # fmt: skip
    nodes = [node("QLinearConv", names, ["y"], name="q", pads=[1, 1, 1, 1])]
    return graph_of(nodes, {"x": (1, 3, 5, 5)}, ["y"], weights, kind=UINT8, output_kind=UINT8)


def _qlinear_matmul() -> onnx.ModelProto:
    names = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"]
    weights = {
        "xs": np.float32(0.02), "xz": np.uint8(3), "ws": np.float32(0.1), "wz": np.int8(1),
        "w": RNG.integers(-9, 9, (4, 6)).astype(np.int8), "ys": np.float32(0.1), "yz": np.uint8(100),
    }  # fmt: skip
    nodes = [node("QLinearMatMul", names, ["y"], name="q")]
    return graph_of(nodes, {"x": (2, 4)}, ["y"], weights, kind=UINT8, output_kind=UINT8)


def _conv_integer() -> onnx.ModelProto:
    weights = {"w": RNG.integers(0, 9, (2, 3, 3, 3)).astype(np.uint8), "xz": np.uint8(7)}
    nodes = [node("ConvInteger", ["x", "w", "xz"], ["q"]), node("Cast", ["q"], ["y"], to=1)]
    return graph_of(nodes, {"x": (1, 3, 5, 5)}, ["y"], weights, kind=UINT8)


def _attention() -> onnx.ModelProto:
    """Build four heads in two groups, after three past keys, with a mask in which one row has nothing."""
    mask = RNG.integers(0, 2, (5, 8)).astype(bool)
    mask[2] = False
    weights = {"k": f32(2, 5, 12), "v": f32(2, 5, 8), "m": mask, "pk": f32(2, 2, 3, 6), "pv": f32(2, 2, 3, 4)}
    more = {"q_num_heads": 4, "kv_num_heads": 2, "is_causal": 1, "softcap": 2.0, "qk_matmul_output_mode": 3}
    nodes = [node("Attention", ["x", *weights], ["y", "", "present", "scores"], name="a", **more)]
    return graph_of(nodes, {"x": (2, 5, 24)}, ["y", "present", "scores"], weights, opset=23)


def _attention_of_lengths() -> onnx.ModelProto:
    """Build attention whose cache lengths, which bound what is seen, are computed; a mask is added."""
    nodes = [
        node("ReduceSum", ["x", "axes"], ["s"], keepdims=0),
        node("Greater", ["s", "zero"], ["g"]),
        node("Cast", ["g"], ["i"], to=INT64),
        node("Add", ["i", "three"], ["n"]),
        node(
            "Attention", ["x", "k", "v", "m", "", "", "n"], ["y"], name="a", is_causal=1, softmax_precision=11
        ),
    ]
    mask = f32(3, 5)
    mask[1] = -np.inf
    weights = {
        "axes": np.array([1, 2, 3]), "zero": np.float32(0), "three": np.int64(3), "m": mask, "k": f32(2, 2, 6, 4),
        "v": f32(2, 2, 6, 4),
    }  # fmt: skip
    return graph_of(nodes, {"x": (2, 2, 3, 4)}, ["y"], weights, opset=24)


def _loop() -> onnx.ModelProto:
    """Build four steps of a state that is scaled by the step's number; what each gives is gathered."""
    body = helper.make_graph(
        [
            node("Identity", ["go"], ["on"]),
            node("Cast", ["i"], ["f"], to=FLOAT),
            node("Mul", ["state", "f"], ["scaled"]),
            node("Add", ["scaled", "x"], ["next"]),
            node("HardSwish", ["next"], ["row"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", FLOAT, [2, 3]),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", FLOAT, [2, 3]),
            helper.make_tensor_value_info("row", FLOAT, [2, 3]),
        ],
    )
    nodes = [node("Loop", ["n", "", "x"], ["y", "rows"], name="l", body=body)]
    return graph_of(nodes, {"x": (2, 3)}, ["y", "rows"], {"n": np.int64(4)})


def _scan() -> onnx.ModelProto:
    """Build a running sum along the second axis, from its end; the sums are in their places again."""
    body = helper.make_graph(
        [node("Add", ["state", "part"], ["next"]), node("Mul", ["next", "two"], ["row"])],
        "body",
        [helper.make_tensor_value_info(name, FLOAT, [2]) for name in ("state", "part")],
        [helper.make_tensor_value_info(name, FLOAT, [2]) for name in ("next", "row")],
        [numpy_helper.from_array(np.float32(2), "two")],
    )
    axes: dict[str, Any] = {"scan_input_axes": [1], "scan_output_axes": [1]}
    ways: dict[str, Any] = {"scan_input_directions": [1], "scan_output_directions": [1]}
    nodes = [node("Scan", ["s", "x"], ["y", "rows"], name="l", body=body, num_scan_inputs=1, **axes, **ways)]
    return graph_of(nodes, {"x": (2, 5)}, ["y", "rows"], {"s": f32(2)})


def _layer_norm() -> onnx.ModelProto:
    outputs = ["y", "mean", "inverse"]
    nodes = [node("LayerNormalization", ["x", "s", "b"], outputs, name="n", axis=1)]
    return graph_of(nodes, {"x": (2, 3, 4)}, outputs, {"s": f32(3, 4), "b": f32(4)})


def tiny(
    op: str, shape: tuple[int, ...], *, opset: int = 17, weights: Any = None, **more: Any
) -> onnx.ModelProto:
    nodes = [node(op, ["x", *(weights or {})], ["y"], name="the_one", **more)]
    return graph_of(nodes, {"x": shape}, ["y"], weights, opset=opset)


GRAPHS: dict[str, tuple[str, Callable[[], onnx.ModelProto]]] = {
    "clip": ("Clip", lambda: tiny("Clip", (2, 3), weights={"lo": np.float32(-0.2), "hi": np.float32(0.3)})),
    "clip, attributes": ("Clip", lambda: tiny("Clip", (2, 3), opset=10, min=-0.1, max=0.2)),
    "hard sigmoid": ("HardSigmoid", lambda: tiny("HardSigmoid", (2, 3), alpha=1.5, beta=0.4)),
    "hard swish": ("HardSwish", lambda: tiny("HardSwish", (2, 30))),
    "prelu, no batch axis": ("PRelu", lambda: tiny("PRelu", (1, 4, 3, 3), weights={"s": f32(4, 1, 1)})),
    "prelu, two axes": ("PRelu", lambda: tiny("PRelu", (1, 4, 3, 3), weights={"s": f32(4, 3, 1)})),
    "prelu, scalar": ("PRelu", lambda: tiny("PRelu", (1, 4, 3, 3), weights={"s": f32(1)})),
    "group norm": (
        "GroupNormalization",
        lambda: tiny("GroupNormalization", (2, 6, 3, 4), opset=21, weights={"s": f32(6), "b": f32(6)}, num_groups=3),
    ),
    "mean variance norm": (
        "MeanVarianceNormalization", lambda: tiny("MeanVarianceNormalization", (2, 3, 4, 5), axes=[0, 2, 3]),
    ),
    "squeeze": ("Squeeze", lambda: tiny("Squeeze", (1, 2, 1, 3), opset=11, axes=[2])),
    "pad, axes": (
        "Pad",
        lambda: graph_of(
            [node("Pad", ["x", "p", "", "a"], ["y"])],
            {"x": (1, 2, 3, 4)}, ["y"], {"p": np.array([1, 0, 2, 1]), "a": np.array([-1, 1])}, opset=18,
        ),
    ),
    "constant, floats": (
        "Constant",
        lambda: graph_of(
            [node("Constant", [], ["c"], value_floats=[1.0, 2.0]), node("Mul", ["x", "c"], ["y"])],
            {"x": (3, 2)}, ["y"],
        ),
    ),
    "attention": ("Attention", _attention),
    "attention, computed lengths": ("Attention", _attention_of_lengths),
    "loop": ("Loop", _loop),
    "scan": ("Scan", _scan),
    "layer normalization, all outputs": ("LayerNormalization", _layer_norm),
    "root mean square, two axes": (
        "RMSNormalization",
        lambda: tiny("RMSNormalization", (2, 3, 4), opset=23, weights={"s": f32(3, 4)}, axis=1),
    ),
    "lstm": ("LSTM", lambda: recurrent("LSTM", 4)),
    "lstm, both ways": ("LSTM", lambda: recurrent("LSTM", 4, direction="bidirectional")),
    "lstm, peepholes": ("LSTM", _lstm_of_all_inputs),
    "gru, other activations": (
        "GRU",
        lambda: recurrent("GRU", 3, direction="bidirectional", activations=["Sigmoid", "Relu", "Softsign", "Tanh"]),
    ),
    "gru": ("GRU", lambda: recurrent("GRU", 3, direction="reverse")),
    "gru, linear before reset": ("GRU", lambda: recurrent("GRU", 3, linear_before_reset=1)),
    "rnn": ("RNN", lambda: recurrent("RNN", 1)),
    "quantized conv": ("QLinearConv", _qlinear_conv),
    "quantized matmul": ("QLinearMatMul", _qlinear_matmul),
    "integer conv": ("ConvInteger", _conv_integer),
}  # fmt: skip
"""Name to an operator that is rewritten, and a model with it."""


def half(
    op: str, shape: tuple[int, ...], *, opset: int = 17, weights: Any = None, **more: Any
) -> onnx.ModelProto:
    nodes = [node(op, ["x", *(weights or {})], ["y"], name="the_one", **more)]
    return graph_of(
        nodes,
        {"x": shape},
        ["y"],
        weights,
        opset=opset,
        kind=TensorProto.FLOAT16,
        output_kind=TensorProto.FLOAT16,
    )


def whole(
    op: str, shape: tuple[int, ...], weights: Any, *, kind: int = INT64, **more: Any
) -> onnx.ModelProto:
    return graph_of(
        [node(op, ["x", *weights], ["y"], **more)], {"x": shape}, ["y"], weights, kind=kind, output_kind=kind
    )


def resize(shape: tuple[int, ...], make: Any = tiny, scales: Any = None, **more: Any) -> onnx.ModelProto:
    nodes = {"": np.zeros(0, np.float32), "scales": np.asarray(scales, np.float32)}
    model: onnx.ModelProto = make(
        "Resize", shape, weights={"roi": nodes[""], "scales": nodes["scales"]}, opset=19, **more
    )
    return model


CONVERTED: dict[str, Callable[[], onnx.ModelProto]] = {
    "resize, three axes": lambda: resize((1, 2, 4, 5, 6), scales=[1, 1, 0.6, 1.7, 0.8], mode="linear"),
    "resize, one axis, cubic": lambda: resize((1, 2, 9), scales=[1, 1, 1.9], mode="cubic"),
    "resize, channels too": lambda: resize((1, 4, 4, 4), scales=[1, 0.5, 2, 1], mode="linear"),
    "resize, antialias": lambda: resize((1, 2, 9, 8), scales=[1, 1, 0.4, 0.6], mode="linear", antialias=1),
    "resize, half precision": lambda: resize((1, 2, 5, 4), half, scales=[1, 1, 1.5, 0.7], mode="linear"),
    "grid sample": lambda: tiny("GridSample", (2, 3, 4, 5), weights={"g": f32(2, 6, 7, 2) * 1.3}, padding_mode="reflection"),
    "mish, half precision": lambda: graph_of(
        [node("Cast", ["x"], ["h"], to=10), node("Mish", ["h"], ["m"]), node("Cast", ["m"], ["y"], to=1)],
        {"x": (3, 50)}, ["y"], opset=18,
    ),
    "elu, half precision": lambda: half("Elu", (3, 5), alpha=1.3),
    "selu, half precision": lambda: half("Selu", (3, 5)),
    "pow of integers": lambda: whole("Pow", (3, 5), {"e": np.array([0, 1, 2, 3, 7])}),
    "mod of integers": lambda: whole("Mod", (3, 5), {"e": np.array([3, -3, 7, 11, -50])}),
    "bit shift": lambda: whole(
        "BitShift", (3, 5), {"e": np.array([0, 1, 2, 3, 7], np.uint8)}, kind=UINT8, direction="LEFT"
    ),
    "one hot": lambda: graph_of(
        [node("OneHot", ["x", "d", "v"], ["y"], axis=1)], {"x": (2, 3)}, ["y"],
        {"d": np.array(7), "v": np.array([-1, 2], np.float32)}, kind=INT64,
    ),
    "embedding by negative indices": lambda: graph_of(
        [node("Neg", ["x"], ["n"]), node("Gather", ["table", "n"], ["y"])], {"x": (2, 3)}, ["y"],
        {"table": f32(100, 8)}, kind=INT64,
    ),
    "lp norm": lambda: tiny("LpNormalization", (3, 4, 5), axis=1, p=1),
    "lp pool, padded": lambda: tiny("LpPool", (1, 2, 7, 8), kernel_shape=[3, 2], pads=[1, 0, 1, 1], strides=[2, 1]),
    "max pool, indices": lambda: graph_of(
        [
            node("MaxPool", ["x"], ["m", "i"], kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1]),
            node("Cast", ["i"], ["f"], to=1), node("Add", ["m", "f"], ["y"]),
        ],
        {"x": (2, 3, 7, 8)}, ["y"],
    ),
    "transposed convolution, output shape": lambda: tiny(
        "ConvTranspose", (1, 2, 4, 5), weights={"w": f32(2, 3, 3, 3)}, strides=[2, 2], output_shape=[9, 10]
    ),
    "transposed convolution, groups and dilations": lambda: tiny(
        "ConvTranspose", (1, 4, 5, 6), weights={"w": f32(4, 3, 3, 2), "b": f32(6)}, group=2, dilations=[2, 3],
        strides=[2, 1], output_padding=[1, 0], pads=[1, 0, 0, 2],
    ),
    "dft": lambda: tiny("DFT", (2, 12, 1), onesided=1),
    "inverse dft": lambda: tiny("DFT", (2, 12, 2), inverse=1),
    "col2im": lambda: tiny("Col2Im", (1, 8, 9), opset=18, weights={"i": np.array([4, 4]), "b": np.array([2, 2])}),
    "center crop and pad": lambda: tiny("CenterCropPad", (5, 4, 3), opset=18, weights={"s": np.array([3, 7])}, axes=[0, 2]),
    "affine grid": lambda: tiny("AffineGrid", (2, 2, 3), opset=20, weights={"s": np.array([2, 3, 4, 5])}),
    "shape, a part": lambda: graph_of(
            [
                node("Shape", ["x"], ["s"], start=-2),
                node("Cast", ["s"], ["f"], to=1),
                node("ReduceSum", ["x"], ["t"], keepdims=0),
                node("Add", ["f", "t"], ["y"]),
            ],
            {"x": (2, 3, 4)}, ["y"],
        ),
    "dropout": lambda: tiny("Dropout", (3, 2)),
    "top k": lambda: graph_of(
        [node("TopK", ["x", "k"], ["v", "i"]), node("Cast", ["i"], ["f"], to=1), node("Mul", ["v", "f"], ["y"])],
        {"x": (4, 9)}, ["y"], {"k": np.array([3])},
    ),
}  # fmt: skip
"""Models with operators whose converters are adt's own, in forms that ONNX's own cases lack."""
