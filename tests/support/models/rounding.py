"""Models whose outputs a rounding decides: quantized by onnxruntime's tools, and choices among equal scores."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from support.models.onnx_graphs import graph_of, node, write


def blocks(path: Path, layers: int = 6, width: int = 64, tokens: int = 16) -> Path:
    rng = np.random.default_rng(1)
    weights: dict[str, Any] = {"root": np.float32(np.sqrt(width))}
    nodes, x = [], "x"

    def add(operator: str, operands: list[str], output: str, **attributes: Any) -> str:
        nodes.append(node(operator, operands, [output], name=f"n_{output}", **attributes))
        return output

    for k in range(layers):
        sizes = {"q": width, "k": width, "v": width, "o": width, "up": 4 * width}
        for name, columns in sizes.items():
            weights[f"{name}{k}"] = (rng.normal(size=(width, columns)) / np.sqrt(width)).astype("f4")
        weights[f"down{k}"] = (rng.normal(size=(4 * width, width)) / np.sqrt(4 * width)).astype("f4")
        weights |= {f"g{k}": np.ones(width, "f4"), f"b{k}": np.zeros(width, "f4")}
        normal = add("LayerNormalization", [x, f"g{k}", f"b{k}"], f"ln{k}", axis=-1)
        query, key, value = (add("MatMul", [normal, f"{name}{k}"], f"p{name}{k}") for name in "qkv")
        scores = add("MatMul", [query, add("Transpose", [key], f"t{k}", perm=[0, 2, 1])], f"s{k}")
        chosen = add("Softmax", [add("Div", [scores, "root"], f"d{k}")], f"sm{k}", axis=-1)
        mixed = add("MatMul", [add("MatMul", [chosen, value], f"at{k}"), f"o{k}"], f"ao{k}")
        middle = add("Add", [x, mixed], f"r{k}")
        normal = add("LayerNormalization", [middle, f"g{k}", f"b{k}"], f"lm{k}", axis=-1)
        up = add("Gelu", [add("MatMul", [normal, f"up{k}"], f"mu{k}")], f"ge{k}")
        x = add("Add", [middle, add("MatMul", [up, f"down{k}"], f"md{k}")], f"x{k}")
    nodes[-1].output[0] = "y"
    return write(graph_of(nodes, {"x": [1, tokens, width]}, ["y"], weights, opset=20), path)


def static(model: Path, path: Path, bits: int = 8) -> Path:
    """Quantize *model* to Q/DQ with weights of 8 bits and activations of *bits*."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    shape = [each.dim_value for each in onnx.load(model).graph.input[0].type.tensor_type.shape.dim]

    class Samples(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = [{"x": np.random.default_rng(i).normal(size=shape).astype("f4")} for i in range(4)]

        def get_next(self) -> Mapping[str, Any] | None:
            return self.left.pop() if self.left else None

    kind = QuantType.QUInt16 if bits == 16 else QuantType.QUInt8
    quantize_static(
        str(model), str(path), Samples(), quant_format=QuantFormat.QDQ, per_channel=True, activation_type=kind
    )
    return path


def dynamic(model: Path, path: Path) -> Path:
    """Quantize weights of *model* to 8 bits; activations are quantized when it runs."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(str(model), str(path), weight_type=QuantType.QUInt8)
    return path


def few_bits(path: Path, level: int = 4) -> Path:
    """Write two products by weights of 4 bits, whose activations onnxruntime may round to 8 bits at *level* 4."""
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    rng = np.random.default_rng(0)
    weights = {"w": rng.normal(size=(256, 128)) / 16, "w2": rng.normal(size=(128, 64)) / 11}
    nodes = [
        node("MatMul", ["x", "w"], ["a"], name="first"),
        node("Relu", ["a"], ["r"]),
        node("MatMul", ["r", "w2"], ["y"], name="second"),
    ]
    floats = {name: value.astype("f4") for name, value in weights.items()}
    quantizer = MatMulNBitsQuantizer(
        graph_of(nodes, {"x": [4, 256]}, ["y"], floats),
        block_size=32,
        is_symmetric=True,
        accuracy_level=level,
    )
    quantizer.process()
    quantizer.model.save_model_to_file(str(path), use_external_data_format=True)
    return path


def equal_scores(path: Path, operator: str) -> Path:
    """Write a choice by *operator* (TopK or ArgMax) among scores of which two each are sums of the same terms
    in another order."""
    rng = np.random.default_rng(3)
    order, weight = rng.permutation(3000), rng.normal(size=(3000, 40)).astype("f4")
    weights: dict[str, Any] = {"w": weight, "w2": weight[order], "order": order, "k": np.array([8])}
    nodes = [
        node("Softmax", ["x"], ["p"], axis=-1),
        node("MatMul", ["p", "w"], ["a"]),
        node("Gather", ["p", "order"], ["moved"], axis=1),
        node("MatMul", ["moved", "w2"], ["b"]),
        node("Concat", ["a", "b"], ["scores"], axis=1),
    ]
    rows, kind, outputs = 2, onnx.TensorProto.INT64, ["values", "indices"]
    if operator == "TopK":
        nodes.append(node("TopK", ["scores", "k"], outputs))
    else:
        rows, kind, outputs = 20, onnx.TensorProto.INT32, ["indices"]
        nodes.append(node(operator, ["scores"], ["chosen"], axis=1, keepdims=0))
        nodes.append(node("Cast", ["chosen"], outputs, to=kind))
    shape = [rows, 8] if operator == "TopK" else [rows]
    model = graph_of(nodes, {"x": [rows, 3000]}, outputs[:-1], weights)
    model.graph.output.append(onnx.helper.make_tensor_value_info("indices", kind, shape))
    return write(model, path)
