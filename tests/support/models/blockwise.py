"""Products by weights of 4 or 8 bits with a scale for each block: as onnxruntime's operator, and by
DequantizeLinear."""

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, compose, helper, numpy_helper

from support.models.onnx_graphs import node

RNG = np.random.default_rng(23)
MICROSOFT = "com.microsoft"
FEW_BITS = {
    "int4": (TensorProto.INT4, -8, 7),
    "uint4": (TensorProto.UINT4, 0, 15),
    "int8": (TensorProto.INT8, -128, 127),
    "uint8": (TensorProto.UINT8, 0, 255),
}
"""ONNX's type, and its least and greatest number."""


def model_of(
    nodes: list[onnx.NodeProto],
    rows: tuple[int, ...],
    k: int,
    n: int,
    weights: list[onnx.TensorProto],
    *domains: str,
) -> onnx.ModelProto:
    """Build a model from ``x`` ``[*rows, k]`` to ``y`` ``[*rows, n]``; other shapes are inferred."""
    graph = helper.make_graph(
        nodes,
        "blockwise",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [*rows, k])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [*rows, n])],
        weights,
    )
    opsets = [helper.make_opsetid("", 21), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def matmul_n_bits(
    rows: tuple[int, ...],
    k: int,
    n: int,
    bits: int,
    block: int,
    *,
    zeros: bool = False,
    bias: bool = False,
    order: bool = False,
) -> onnx.ModelProto:
    """Build MatMulNBits, and a LayerNormalization and a Relu behind it."""
    blocks = -(-k // block)
    parts: dict[str, np.ndarray[Any, Any] | None] = {
        "w": RNG.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8),
        "s": RNG.uniform(0.01, 0.02, n * blocks).astype(np.float32),
        "z": RNG.integers(0, 256, n * -(-blocks * bits // 8)).astype(np.uint8) if zeros else None,
        "g": np.arange(k, dtype=np.int32)[::-1] // block if order else None,
        "b": RNG.uniform(-1, 1, n).astype(np.float32) if bias else None,
        "one": np.ones(n, np.float32),
    }
    names = ["x", *(name if parts[name] is not None else "" for name in "wszgb")]
    product = node(
        "MatMulNBits", names, ["t"], name="product", domain=MICROSOFT, K=k, N=n, bits=bits, block_size=block
    )
    nodes = [product, node("LayerNormalization", ["t", "one"], ["u"], axis=-1), node("Relu", ["u"], ["y"])]
    weights = [numpy_helper.from_array(value, name) for name, value in parts.items() if value is not None]
    return model_of(nodes, rows, k, n, weights, MICROSOFT)


def dequantized(
    kind: str, rows: int, k: int, n: int, block: int, *, form: str = "MatMul", zeros: bool = False
) -> onnx.ModelProto:
    """Build a product by what DequantizeLinear makes of weights of the type *kind*.

    Args:
        block: terms that share a scale; 0: all of a column.
        form: ``MatMul``, ``Transpose`` (before it) or ``Gemm``.
    """
    number, least, most = FEW_BITS[kind]
    columns_first = form != "MatMul"
    count = -(-k // block) if block else 1

    def whole(name: str, low: int, high: int, *shape: int) -> onnx.TensorProto:
        values = RNG.integers(low, high + 1, shape)
        return helper.make_tensor(name, number, shape, values.ravel())

    blocks = (n, count) if columns_first else (count, n)
    blocks = blocks if block else (n,)
    weights = [
        whole("w", least, most, *((n, k) if columns_first else (k, n))),
        numpy_helper.from_array(RNG.uniform(0.01, 0.02, blocks).astype(np.float32), "s"),
        *([whole("z", least, most, *blocks)] if zeros else []),
    ]
    axis = int(columns_first) if block else 1 - columns_first
    attributes = {"block_size": block} if block else {}
    names = ["w", "s", "z"] if zeros else ["w", "s"]
    nodes = [node("DequantizeLinear", names, ["d"], name="weights", axis=axis, **attributes)]
    if form == "Gemm":
        weights.append(numpy_helper.from_array(RNG.uniform(-1, 1, n).astype(np.float32), "b"))
        nodes.append(node("Gemm", ["x", "d", "b"], ["y"], name="product", transB=1, alpha=0.5))
    elif form == "Transpose":
        nodes.append(node("Transpose", ["d"], ["e"], perm=[1, 0]))
        nodes.append(node("MatMul", ["x", "e"], ["y"], name="product"))
    else:
        nodes.append(node("MatMul", ["x", "d"], ["y"], name="product"))
    return model_of(nodes, (rows,), k, n, weights)


def side_by_side(models: Sequence[onnx.ModelProto]) -> onnx.ModelProto:
    """Join *models* to one, with their inputs and outputs in this order."""
    parts = [compose.add_prefix(model, f"m{number}_") for number, model in enumerate(models)]
    domains = {opset.domain: opset for model in models for opset in model.opset_import}
    for part in parts:
        part.opset_import.extend(
            domains[name] for name in domains.keys() - {opset.domain for opset in part.opset_import}
        )
    return reduce(lambda joined, part: compose.merge_models(joined, part, []), parts)
