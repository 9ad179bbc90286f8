"""Tiny graphs of what onnxruntime's optimizer and quantizer write: one for each rewriting of those."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from support.models.blockwise import dequantized
from support.models.onnx_graphs import FLOAT, RNG, UINT8, f32, graph_of, node

MICROSOFT = "com.microsoft"


def u8(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.integers(0, 255, shape).astype(np.uint8)


def microsoft(
    op: str,
    shape: Sequence[int],
    more: dict[str, Any] | None = None,
    *,
    out: Sequence[int] | None = None,
    outputs: Sequence[str] = ("y",),
    kind: int = FLOAT,
    output_kind: int = FLOAT,
    domain: str = MICROSOFT,
    version: int = 17,
    hidden: Sequence[str] = (),
    first: int = 0,
    **attributes: Any,
) -> onnx.ModelProto:
    """Build one node with constants *more*; ``x`` is input *first*; an empty name is an omitted input."""
    names = list(more or {})
    names.insert(first, "x")
    operator = node(
        op,
        [name.strip("-") for name in names],
        [*outputs, *hidden],
        name="the_one",
        domain=domain,
        **attributes,
    )
    weights = {name: value for name, value in (more or {}).items() if name.strip("-")}
    model = graph_of(
        [operator], {"x": shape}, [name for name in outputs if name], weights,
        opset=version, kind=kind, output_kind=output_kind, domain=MICROSOFT,
    )  # fmt: skip
    if out is not None:
        dims = model.graph.output[0].type.tensor_type.shape
        del dims.dim[:]
        for extent in out:
            dims.dim.add().dim_value = extent
    return model


def quantized(
    op: str, shape: Sequence[int], more: dict[str, Any] | None = None, **options: Any
) -> onnx.ModelProto:
    """Build one operator from uint8 to uint8."""
    return microsoft(op, shape, more, kind=UINT8, output_kind=UINT8, **options)


X = {"xs": np.float32(0.02), "xz": np.uint8(113)}
B = {"bs": np.float32(0.03), "bz": np.uint8(100)}
Y = {"ys": np.float32(0.05), "yz": np.uint8(90)}
W = {
    "w": RNG.integers(-9, 9, (2, 3, 3, 3)).astype(np.int8), "ws": np.array([0.1, 0.2], np.float32),
    "wz": np.zeros(2, np.int8),
}  # fmt: skip
NORM = {"scale": f32(6), "shift": f32(6)}

GRAPHS: dict[str, tuple[str, Callable[[], onnx.ModelProto]]] = {
    "QLinearAdd": ("com.microsoft::QLinearAdd", lambda: quantized("QLinearAdd", (2, 6), {**X, "b": u8(2, 6), **B, **Y})),
    "QLinearMul": ("com.microsoft::QLinearMul", lambda: quantized("QLinearMul", (2, 6), {**X, "b": u8(6), **B, **Y})),
    "QLinearLeakyRelu": ("com.microsoft::QLinearLeakyRelu", lambda: quantized("QLinearLeakyRelu", (2, 6), X | Y, alpha=0.2)),
    "QLinearSigmoid": ("com.microsoft::QLinearSigmoid", lambda: quantized("QLinearSigmoid", (2, 6), X | Y)),
    "QLinearSoftmax": ("com.microsoft::QLinearSoftmax", lambda: quantized("QLinearSoftmax", (2, 6), {**X, "ys": np.float32(1/256), "yz": np.uint8(0)}, axis=-1, opset=17)),
    "QLinearGlobalAveragePool": ("com.microsoft::QLinearGlobalAveragePool", lambda: quantized("QLinearGlobalAveragePool", (1, 3, 4, 5), X | Y, out=(1, 3, 1, 1))),
    "QLinearGlobalAveragePool, channels last": ("com.microsoft::QLinearGlobalAveragePool", lambda: quantized("QLinearGlobalAveragePool", (1, 4, 5, 3), X | Y, out=(1, 1, 1, 3), channels_last=1)),
    "QLinearAveragePool": ("com.microsoft::QLinearAveragePool", lambda: quantized("QLinearAveragePool", (1, 3, 4, 4), X | Y, out=(1, 3, 2, 2), kernel_shape=[2, 2], strides=[2, 2])),
    "QLinearConcat": ("com.microsoft::QLinearConcat", lambda: quantized("QLinearConcat", (2, 3), {**Y, **X, "b": u8(2, 2), **B}, first=2, out=(2, 5), axis=1)),
    "QLinearWhere": ("com.microsoft::QLinearWhere", lambda: quantized("QLinearWhere", (2, 6), {"c": np.array([[1], [0]], bool), **X, "b": u8(6), **B, **Y}, first=1)),
    "QLinearConv, channels last": ("com.microsoft::QLinearConv", lambda: quantized("QLinearConv", (1, 5, 5, 3), {**X, **W, **Y, "bias": np.array([50, -60], np.int32)}, out=(1, 5, 5, 2), pads=[1, 1, 1, 1], channels_last=1)),
    "QGemm": ("com.microsoft::QGemm", lambda: quantized("QGemm", (3, 6), {**X, "w": u8(2, 6), **B, "c": np.array([50, -60], np.int32), **Y}, out=(3, 2), transB=1, alpha=1.0)),
    "QGemm to floats": ("com.microsoft::QGemm", lambda: microsoft("QGemm", (3, 6), {**X, "w": u8(6, 2), **B}, kind=UINT8, out=(3, 2), alpha=0.5)),
    "MatMulIntegerToFloat": ("com.microsoft::MatMulIntegerToFloat", lambda: microsoft("MatMulIntegerToFloat", (3, 6), {"w": u8(6, 2), "xs": X["xs"], "ws": np.array([.1,.2],np.float32), "xz": X["xz"], "wz": np.array([3,4],np.uint8), "bias": f32(2)}, kind=UINT8, out=(3, 2))),
    "DynamicQuantizeMatMul": ("com.microsoft::DynamicQuantizeMatMul", lambda: microsoft("DynamicQuantizeMatMul", (3, 6), {"w": u8(6, 2), "ws": np.float32(.1), "wz": np.uint8(7), "bias": f32(2)}, out=(3, 2))),
    "DequantizeLinear, 16 bits": ("com.microsoft::DequantizeLinear", lambda: microsoft("DequantizeLinear", (3, 6), {"s": np.float32(.1), "z": np.uint16(700)}, kind=TensorProto.UINT16)),
    "QuantizeLinear, 16 bits": ("com.microsoft::QuantizeLinear", lambda: microsoft("QuantizeLinear", (3, 6), {"s": np.float32(.001), "z": np.uint16(700)}, output_kind=TensorProto.UINT16)),
    "BiasGelu": ("com.microsoft::BiasGelu", lambda: microsoft("BiasGelu", (2, 6), {"b": f32(6)})),
    "Gelu": ("com.microsoft::Gelu", lambda: microsoft("Gelu", (2, 6))),
    "FastGelu": ("com.microsoft::FastGelu", lambda: microsoft("FastGelu", (2, 6), {"b": f32(6)})),
    "QuickGelu": ("com.microsoft::QuickGelu", lambda: microsoft("QuickGelu", (2, 6), alpha=1.2)),
    "FusedConv": ("com.microsoft::FusedConv", lambda: microsoft("FusedConv", (1, 3, 5, 5), {"w": f32(2, 3, 3, 3), "b": f32(2), "z": f32(1, 2, 5, 5)}, out=(1, 2, 5, 5), pads=[1, 1, 1, 1], activation="Relu")),
    "FusedConv, clip": ("com.microsoft::FusedConv", lambda: microsoft("FusedConv", (1, 3, 5, 5), {"w": f32(2, 3, 3, 3)}, out=(1, 2, 5, 5), pads=[1, 1, 1, 1], activation="Clip", activation_params=[-.1, .2])),
    "FusedConv, hard sigmoid": ("com.microsoft::FusedConv", lambda: microsoft("FusedConv", (1, 3, 5, 5), {"w": f32(2, 3, 3, 3)}, out=(1, 2, 5, 5), pads=[1, 1, 1, 1], activation="HardSigmoid", activation_params=[.3, .4])),
    "FusedGemm": ("com.microsoft::FusedGemm", lambda: microsoft("FusedGemm", (3, 6), {"w": f32(2, 6), "b": f32(2)}, out=(3, 2), transB=1, activation="LeakyRelu", activation_alpha=.1)),
    "FusedMatMul": ("com.microsoft::FusedMatMul", lambda: microsoft("FusedMatMul", (2, 3, 6), {"w": f32(2, 4, 6)}, out=(2, 3, 4), transB=1, alpha=.5)),
    "FusedMatMul, batches second": ("com.microsoft::FusedMatMul", lambda: microsoft("FusedMatMul", (3, 2, 6), {"w": f32(2, 6, 4)}, out=(2, 3, 4), transBatchA=1)),
    "FusedMatMul, batches second and transposed": ("com.microsoft::FusedMatMul", lambda: microsoft("FusedMatMul", (6, 2, 3), {"w": f32(2, 6, 4)}, out=(2, 3, 4), transBatchA=1, transA=1)),
    "TransposeMatMul": ("com.microsoft::TransposeMatMul", lambda: microsoft("TransposeMatMul", (2, 3, 6), {"w": f32(2, 4, 6)}, out=(2, 3, 4), transB=1, alpha=.5)),
    "NhwcMaxPool": ("com.microsoft::NhwcMaxPool", lambda: quantized("NhwcMaxPool", (1, 4, 4, 3), out=(1, 2, 2, 3), kernel_shape=[2, 2], strides=[2, 2])),
    "LayerNormalization": ("LayerNormalization", lambda: microsoft("LayerNormalization", (2, 6), NORM, version=13, domain="", outputs=["y", "m", "v"])),
    "SimplifiedLayerNormalization": ("SimplifiedLayerNormalization", lambda: microsoft("SimplifiedLayerNormalization", (2, 6), {"s": f32(6)}, domain="")),
    "SkipLayerNormalization": ("com.microsoft::SkipLayerNormalization", lambda: microsoft("SkipLayerNormalization", (2, 3, 6), {"k": f32(2, 3, 6), **NORM, "b": f32(6)}, outputs=["y", "", "", "t"])),
    "SkipSimplifiedLayerNormalization": ("com.microsoft::SkipSimplifiedLayerNormalization", lambda: microsoft("SkipSimplifiedLayerNormalization", (2, 3, 6), {"k": f32(2, 3, 6), "s": f32(6)}, outputs=["y", "", "", "t"])),
    "EmbedLayerNormalization": ("com.microsoft::EmbedLayerNormalization", lambda: microsoft("EmbedLayerNormalization", (2, 3), {"g": np.array([[0,1,1],[1,1,0]], np.int32), "words": f32(100, 6), "places": f32(9, 6), "kinds": f32(2, 6), **NORM, "m": np.array([[1,1,0],[1,1,1]], np.int32)}, kind=TensorProto.INT32, hidden=["n"], out=(2, 3, 6))),
    "QLinearSoftmax of the first axis": ("com.microsoft::QLinearSoftmax", lambda: quantized("QLinearSoftmax", (2, 6), {**X, "ys": np.float32(1/256), "yz": np.uint8(0)}, axis=0, opset=17)),
    "Attention": ("com.microsoft::Attention", lambda: microsoft("Attention", (2, 3, 8), {"w": f32(8, 24), "b": f32(24)}, num_heads=2)),
    "Attention, causal with a past": ("com.microsoft::Attention", lambda: microsoft("Attention", (2, 3, 8), {"w": f32(8, 24), "b": f32(24), "m": np.array([2, 3], np.int32), "p": f32(2, 2, 2, 4, 4)}, num_heads=2, unidirectional=1, outputs=["y", "now"])),
    "Attention, mask and bias": ("com.microsoft::Attention", lambda: microsoft("Attention", (2, 3, 8), {"w": f32(8, 20), "b": f32(20), "m": np.array([[1, 1, 0], [1, 1, 1]], np.int32), "-": 0, "a": f32(1, 2, 3, 3)}, num_heads=2, qkv_hidden_sizes=[8, 8, 4], out=(2, 3, 4))),
    "Attention, lengths": ("com.microsoft::Attention", lambda: microsoft("Attention", (2, 3, 8), {"w": f32(8, 24), "b": f32(24), "m": np.array([2, 3], np.int32)}, num_heads=2)),
    "Attention, a mask for each query": ("com.microsoft::Attention", lambda: microsoft("Attention", (2, 3, 8), {"w": f32(8, 24), "b": f32(24), "m": RNG.integers(0, 2, (2, 3, 3)).astype(np.int32)}, num_heads=2)),
    "MultiHeadAttention": ("com.microsoft::MultiHeadAttention", lambda: microsoft("MultiHeadAttention", (2, 3, 8), {"k": f32(2, 5, 8), "v": f32(2, 5, 8), "b": f32(24), "m": np.array([[1,1,1,0,0],[1,1,1,1,1]], np.int32)}, num_heads=2)),
    "MultiHeadAttention, causal with a past": ("com.microsoft::MultiHeadAttention", lambda: microsoft("MultiHeadAttention", (2, 3, 8), {"k": f32(2, 3, 8), "v": f32(2, 3, 8), "b": f32(24), "-": 0, "a": f32(1,2,3,7), "pk": f32(2,2,4,4), "pv": f32(2,2,4,4)}, num_heads=2, unidirectional=1, outputs=["y", "pk2", "pv2"])),
    "MultiHeadAttention of another sequence": ("com.microsoft::MultiHeadAttention", lambda: microsoft("MultiHeadAttention", (2, 3, 8), {"k": f32(2, 2, 5, 4), "v": f32(2, 2, 5, 4)}, num_heads=2)),
    "QAttention": ("com.microsoft::QAttention", lambda: microsoft("QAttention", (2, 3, 8), {"w": u8(8, 24), "b": f32(24), "xs": np.float32(.02), "ws": np.float32(.01), "-": 0, "xz": np.uint8(110), "wz": np.uint8(120)}, num_heads=2, kind=UINT8)),
    "RotaryEmbedding": ("com.microsoft::RotaryEmbedding", lambda: microsoft("RotaryEmbedding", (2, 3, 8), {"p": np.array([1]), "c": f32(9, 2), "s": f32(9, 2)})),
    "RotaryEmbedding, interleaved": ("com.microsoft::RotaryEmbedding", lambda: microsoft("RotaryEmbedding", (2, 2, 3, 4), {"p": np.array([[0,1,2],[4,5,6]]), "c": f32(9, 2), "s": f32(9, 2)}, interleaved=1)),
    "RotaryEmbedding of a part": ("com.microsoft::RotaryEmbedding", lambda: microsoft("RotaryEmbedding", (2, 3, 12), {"p": np.array([[0,1,2],[4,5,6]]), "c": f32(9, 2), "s": f32(9, 2)}, num_heads=2, rotary_embedding_dim=4)),
    "DequantizeLinear in blocks": ("DequantizeLinear", lambda: microsoft("DequantizeLinear", (3, 6), {"s": f32(3, 2)+2, "z": u8(3, 2)}, kind=UINT8, domain="", version=21, axis=1, block_size=3)),
    "QuantizeLinear in blocks": ("QuantizeLinear", lambda: microsoft("QuantizeLinear", (3, 6), {"s": f32(2, 6)/20+.1, "z": u8(2, 6)}, output_kind=UINT8, domain="", version=21, axis=0, block_size=2)),
    "DequantizeLinear of a scalar": ("DequantizeLinear", lambda: graph_of([node("DequantizeLinear", ["q", "s", "z"], ["f"]), node("Mul", ["x", "f"], ["y"])], {"x": (2, 3)}, ["y"], {"q": np.uint8(9), "s": np.float32(0.5), "z": np.uint8(3)})),
    "QuantizeLinear, scale [1]": ("QuantizeLinear", lambda: microsoft("QuantizeLinear", (3, 6), {"s": np.array([.01],np.float32), "z": u8(1)}, output_kind=UINT8, domain="", version=13)),
    "integer conv, zero points computed": ("ConvInteger", lambda: graph_of([node("DynamicQuantizeLinear", ["x"], ["v", "s", "z"]), node("ConvInteger", ["v", "w", "z", "wz"], ["c"], pads=[1,1,1,1]), node("Cast", ["c"], ["y"], to=1)], {"x": (1,3,4,4)}, ["y"], {"w": u8(2,3,3,3), "wz": np.uint8(5)})),
    "MatMul by blocks of 4 bits": ("MatMul", lambda: dequantized("int4", 3, 40, 5, 16)),
    "Gemm by blocks of 8 bits": ("Gemm", lambda: dequantized("uint8", 3, 40, 5, 16, form="Gemm", zeros=True)),
    "MatMulNBits": ("com.microsoft::MatMulNBits", lambda: microsoft("MatMulNBits", (3, 40), {"w": u8(5, 3, 8), "s": f32(15), "z": u8(10)}, out=(3, 5), K=40, N=5, bits=4, block_size=16)),
    "MatMulNBits, 8 bits": ("com.microsoft::MatMulNBits", lambda: microsoft("MatMulNBits", (3, 40), {"w": u8(5, 3, 16), "s": f32(15)}, out=(3, 5), K=40, N=5, bits=8, block_size=16)),
    "DynamicQuantizeLSTM": ("com.microsoft::DynamicQuantizeLSTM", lambda: graph_of([node("DynamicQuantizeLSTM", ["x", "w", "r", "b", "", "", "", "", "ws", "wz", "rs", "rz"], ["Y", "h", "c"], hidden_size=3, direction="bidirectional", domain=MICROSOFT), node("Add", ["h", "c"], ["y"])], {"x": (3, 1, 4)}, ["y", "Y"], {"w": u8(2, 4, 12), "r": u8(2, 3, 12), "b": f32(2, 24), "ws": np.array([.01, .02], np.float32), "wz": np.array([100, 128], np.uint8), "rs": np.array([.02, .01], np.float32), "rz": np.array([100, 128], np.uint8)}, domain=MICROSOFT)),
}  # fmt: skip
"""Name to the operator that is rewritten, and a model with it."""
