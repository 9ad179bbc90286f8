"""Recipes of the sweep: inputs of each ONNX operator, and the options that it is tried with.

An input is written as its shape, ``2,3,4`` (empty: a scalar), after a mark:

    none  any number                       <5   integers of [0, 5)
    +     numbers above zero               ~5   integers of [-5, 5)
    w     a constant of any number         =    a constant that is given: ``=[1, -1]``
    -     left out                         @    an input whose values are given: ``@[1, nan]``

Inputs go by position in the newest version of the operator. What an older version has as an attribute of that
name becomes one; what it lacks is left out. Options are attributes that differ from the first set of a recipe;
``outputs`` among them is the number of outputs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Recipe:
    """Inputs and attributes of an operator."""

    inputs: tuple[str, ...] = ()
    base: Mapping[str, Any] = field(default_factory=dict)
    """Attributes that every cell has."""
    options: tuple[Mapping[str, Any], ...] = ()
    others: tuple[tuple[Sequence[str], Mapping[str, Any]], ...] = ()
    """Further inputs, with further options, of the first type only."""


def _recipe(inputs: str, *options: Mapping[str, Any], others: Sequence[Any] = (), **base: Any) -> Recipe:
    pairs = [(other, {}) if isinstance(other, str) else other for other in others]
    return Recipe(_split(inputs), base, options, tuple((_split(text), extra) for text, extra in pairs))


def _split(inputs: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in inputs.split("|"))


def _each(names: str, recipe: Recipe) -> dict[str, Recipe]:
    return dict.fromkeys(names.split(), recipe)


def _axes(*values: Any, name: str = "axis") -> list[dict[str, Any]]:
    return [{name: value} for value in values]


def _recurrent(gates: int) -> Recipe:
    weights = f"w1,{5 * gates},3 | w1,{5 * gates},5"
    return _recipe(
        f"4,2,3 | {weights} | w1,{10 * gates} | - | 1,2,5",
        *({"direction": "reverse"}, {"linear_before_reset": 1}, {"input_forget": 1}, {"clip": 1.0}, {"activations": ["Relu"]}),
        {"activations": ["LeakyRelu", "Tanh", "Tanh"][: {4: 3, 3: 2, 1: 1}[gates]], "activation_alpha": [0.2], "activation_beta": [0.0]},
        others=[(f"2,4,3 | {weights}", {"layout": 1}), f"4,2,3 | {weights} | w1,{10 * gates} | =[4, 2]", f"1,1,3 | {weights}"],
        hidden_size=5,
    )  # fmt: skip


POINT = "@[nan, inf, -inf, 0.0, -0.0, 0.5, -1.5, 2.5, 1e4]"
"""Numbers at which operators on floating point go wrong."""
PADS, SAME = {"pads": [1, 0, 1, 2]}, [{"auto_pad": kind} for kind in ("SAME_UPPER", "SAME_LOWER", "VALID")]
WINDOW = (PADS, *SAME, {"strides": [2, 1]}, {"dilations": [2, 1]}, {"strides": [1, 2], "auto_pad": "SAME_UPPER"},
          {"strides": [2, 2], "pads": [1, 1, 1, 1], "dilations": [1, 2]})  # fmt: skip
CEIL = ({"ceil_mode": 1, "strides": [2, 2]}, {"ceil_mode": 1, "strides": [3, 2], "pads": [1, 1, 1, 1]})
POOLED = ("1,2,7", "1,2,5,4,6")
QUANTIZED = "=0.04 | =3"
REDUCED = [{"keepdims": 0}, {"keepdims": 1, "outputs": 1}, {"noop_with_empty_axes": 1}]
IMAGES = ("1,1,1,1", "2,1,1,5", "w1,2,0,3")
FUSED = ({"activation": "Relu"}, {"activation": "Tanh"}, {"activation": "LeakyRelu", "activation_alpha": 0.2})

RECIPES: dict[str, Recipe] = {
    **_each(
        "Abs Ceil Erf Exp Floor Identity IsInf IsNaN LogSoftmax Mish Neg Relu Round Sigmoid Sign Sin Cos Tan Tanh "
        "Softplus Softsign Sqrt Reciprocal Log HardSwish Not BitwiseNot Size Softmax Hardmax Sinh Cosh Atan Asin "
        "Acos Asinh Acosh Atanh Celu Elu Selu LeakyRelu HardSigmoid ThresholdedRelu Shrink Gelu Swish Shape "
        "com.microsoft.Gelu com.microsoft.QuickGelu",
        _recipe("2,3,4", *_axes(-1, 0, 1, 2), *_axes(0.3, 2.0, name="alpha"), {"beta": 0.7}, {"gamma": 2.0},
                {"detect_negative": 0}, {"detect_positive": 0}, {"detect_negative": 0, "detect_positive": 0},
                {"bias": 0.2}, {"lambd": 0.1}, {"approximate": "tanh"}, {"start": 1}, {"start": -2, "end": -1}, {"end": 5},
                {"start": 2, "end": 1}, others=["", "1", "2,1,3,2,2", POINT]),
    ),
    **_each(
        "Add Sub Mul Div Pow Mod And Or Xor Equal Greater Less GreaterOrEqual LessOrEqual BitwiseAnd BitwiseOr "
        "BitwiseXor BitShift",
        _recipe("2,3,4 | +3,1", {"fmod": 1}, {"direction": "RIGHT"},
                others=["| 2,3", "2,3 | ", "1 | 1", "1,3 | 2,1", "2,3 | w2,3", f"{POINT} | ~3 9", "2,3 | =0", f"9 | {POINT}",
                        "2,3,4,5 | 3,1,1", "2,3,4,5 | 1"], direction="LEFT"),
    ),
    "PRelu": _recipe("2,3,4 | +3,1", others=["2,3 | w3", "2,3,4,5 | w3,1,1", "2,3,4,5 | w1", f"{POINT} | 9", "1 | 1"]),
    **_each("Max Min Sum Mean", _recipe("2,3 | 3 | 2,1", others=["2,3", "2,3 | w3", f"{POINT} | 9", f"9 | {POINT}", f"9 | w9 | {POINT}", "| "])),
    **_each(
        "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare",
        _recipe("+2,3,4 | =[1]", *REDUCED, others=["2,3,4 | =[-1, 0]", "2,3,4 | =[]", "2,3 | =[0, 1]", "3,1 | =[1]", "2,3", "| ",
                                                "w2,0,3 | =[0]", f"{POINT} | =[0]", "1,1 | =[-2]"]),
    ),
    **_each("ArgMax ArgMin", _recipe("2,3,4", *_axes(-1, 1), {"keepdims": 0}, {"select_last_index": 1},
                                     {"select_last_index": 1, "axis": -1, "keepdims": 0},
                                     others=["@[[2, 2, 1, 2, 1]]", "@[1, 3, 3, 1, 1]", "1,1"])),
    **_each("CumSum CumProd", _recipe("2,3,4 | =1", {"exclusive": 1}, {"reverse": 1}, {"reverse": 1, "exclusive": 1}, others=["2,3 | =-1", "3 | =[0]", "1,1 | =0"])),
    **_each("AveragePool MaxPool LpPool", _recipe("1,2,5,6", *WINDOW, *CEIL, {"count_include_pad": 1, **PADS}, {"storage_order": 1},
                                                  {"p": 1}, {"p": 3}, {"outputs": 2}, others=IMAGES, kernel_shape=[2, 2])),
    **_each("GlobalAveragePool GlobalMaxPool GlobalLpPool", _recipe("2,3,4,5", {"p": 1}, {"p": 3}, others=[*IMAGES, *POOLED])),
    "Conv": _recipe("1,4,5,6 | w4,4,3,2 | w4", *WINDOW, {"kernel_shape": [3, 2]}, others=[("1,4,5,6 | w4,2,3,2", {"group": 2}), ("1,4,5,6 | w8,1,3,3", {"group": 4}), "1,4,7 | w2,4,3", "1,4,3,3 | w2,4,1,1 | 2", "1,2,3,4,5 | w2,2,2,2,2"]),
    "ConvTranspose": _recipe("1,4,4,5 | w4,2,3,2 | w2", *WINDOW, {"output_padding": [1, 0], "strides": [2, 2]}, {"output_shape": [9, 11], "strides": [2, 2]},
                             {"group": 2}, {"kernel_shape": [3, 2]}, others=["1,4,7 | w4,2,3", "1,2,3,4,3 | w2,2,2,2,2"]),
    "ConvInteger": _recipe("1,2,5,6 | w3,2,3,2 | =3 | =2", *WINDOW, {"kernel_shape": [3, 2]}, others=["1,2,4,4 | w3,2,2,2 | =3 | =[1, 2, 3]", ("1,2,5,6 | w4,1,3,2 | =3 | =2", {"group": 2})]),
    "QLinearConv": _recipe(f"1,4,5,6 | {QUANTIZED} | w4,4,3,2 | =0.05 | =0 | =0.5 | =3 | w4", *WINDOW,
                           {"kernel_shape": [3, 2]}, others=[(f"1,4,5,6 | {QUANTIZED} | w4,2,3,2 | =0.05 | =0 | =0.5 | =3", {"group": 2}), f"1,4,4,4 | {QUANTIZED} | w2,4,1,1 | =[0.05, 0.1] | =[0, 0] | =0.5 | =3"]),
    "DeformConv": _recipe("1,2,5,5 | w3,2,2,2 | 1,8,4,4 | w3 | 1,4,4,4", {"pads": [0, 0, 0, 0]}, {"kernel_shape": [2, 2]},
                           others=[("1,4,5,5 | w4,2,2,2 | 1,16,4,4", {"group": 2, "offset_group": 2}), ("1,2,5,5 | w3,2,2,2 | 1,8,2,2", {"strides": [2, 2]}),
                                   ("1,2,5,5 | w3,2,2,2 | 1,8,3,3 | w3", {"dilations": [2, 2]})]),
    "MaxUnpool": _recipe("1,1,2,2 | =[[[[1, 3], [8, 11]]]]", {"pads": [0, 0, 0, 0]}, others=["1,1,2,2 | =[[[[1, 3], [8, 11]]]] | =[1, 1, 5, 5]"], kernel_shape=[2, 2], strides=[2, 2]),
    "MaxRoiPool": _recipe("1,2,6,6 | =[[0, 0, 0, 3, 3]]", {"spatial_scale": 0.5}, pooled_shape=[2, 2]),
    "RoiAlign": _recipe("2,2,6,6 | =[[0, 0, 3.5, 3], [1, 1, 5, 4]] | =[1, 0]", {"mode": "max"}, {"sampling_ratio": 2}, {"spatial_scale": 0.5},
                        {"coordinate_transformation_mode": "output_half_pixel"}, output_height=2, output_width=3),
    "BatchNormalization": _recipe("2,3,4,5 | w3 | w3 | w3 | =[1.0, 0.5, 2.0]", {"epsilon": 0.1}, {"momentum": 0.5}, {"spatial": 1},
                                  {"training_mode": 1, "outputs": 3}, others=["2,3 | w3 | w3 | w3 | =[1.0, 0.5, 2.0]", "2,3,1 | w3 | 3 | 3 | +3"]),
    "InstanceNormalization": _recipe("2,3,4,5 | w3 | w3", {"epsilon": 0.1}, others=["2,3,4 | w3 | w3", "1,1,1,1 | w1 | w1"]),
    "GroupNormalization": _recipe("2,4,3,2 | w4 | w4", {"epsilon": 0.1}, {"num_groups": 1}, {"num_groups": 4}, {"stash_type": 1}, num_groups=2),
    **_each("LayerNormalization RMSNormalization", _recipe("2,3,4 | w4 | w4", {"epsilon": 0.1}, {"outputs": 3}, {"outputs": 2}, {"axis": 2}, {"stash_type": 1},
                                                           others=["2,3,4 | 4 | 4", "1,1 | w1 | w1", "4 | w4"])),
    "LRN": _recipe("2,5,3,2", {"alpha": 0.5, "beta": 0.3, "bias": 2.0}, {"size": 2}, {"size": 1}, others=["1,4,3", "1,1,1,1"], size=3),
    "LpNormalization": _recipe("2,3,4", *_axes(0, 1), {"p": 1}, {"p": 1, "axis": 0}, others=["1,1", "@[[0.0, 0.0], [1.0, 2.0]]"]),
    "MeanVarianceNormalization": _recipe("2,3,4,5", {"axes": [1]}, {"axes": [-1]}, others=["1,1,1,1"]),
    "MatMul": _recipe("2,3,4 | 4,5", others=["2,3,4 | w4,5", "4 | 4,5", "3,4 | 4", "4 | 4", "2,1,3,4 | 1,3,4,2", "1,1 | 1,1", "w2,0 | 0,3"]),
    "MatMulInteger": _recipe("2,3,4 | w4,5 | =3 | =2", others=["3,4 | 4,5 | =3", "3,4 | w4,2 | =3 | =[1, 2]", "2,2 | w2,2 | =[1, 3]"]),
    "QLinearMatMul": _recipe(f"2,3,4 | {QUANTIZED} | w4,5 | =0.05 | =2 | =0.5 | =3", others=[f"3,4 | {QUANTIZED} | w4,2 | =[0.05, 0.1] | =[2, 3] | =0.5 | =3"]),
    "Gemm": _recipe("3,4 | w4,5 | w5", {"alpha": 0.5, "beta": 0.3}, {"beta": 0.0}, others=["3,4 | 4,5 | 3,1", "3,4 | 4,5 | ", "3,4 | 4,5 | 1,5", "1,1 | 1,1", ("4,3 | w4,5 | w5", {"transA": 1}), ("3,4 | 5,4", {"transB": 1})]),
    "Einsum": _recipe("3,4 | 4,5", {"equation": "ij,jk"}, {"equation": "...ij,jk->...ik"}, {"equation": "ij,jk->"}, equation="ij,jk->ik", others=[]),
    "Det": _recipe("2,3,3", others=["2,2", "1,1", "4,4", "5,5"]),
    **_each("DepthToSpace", _recipe("2,8,3,2", {"mode": "CRD"}, {"blocksize": 1}, blocksize=2)),
    "SpaceToDepth": _recipe("2,3,4,6", {"mode": "CRD"}, {"blocksize": 1}, blocksize=2),
    "Flatten": _recipe("2,3,4", *_axes(0, 2, 3, -1), others=["", "1", "w0,3"]),
    "Reshape": _recipe("2,3,4 | =[4, -1]", {"allowzero": 1}, others=["2,3,4 | =[0, -1]", "1 | =[]", "2,3 | =[-1]", "w2,0 | =[3, 0]", "2,3 | <3 2"]),
    "Expand": _recipe("3,1 | =[2, 1, 4]", others=["3 | =[1]", " | =[2]", "2,3 | =[2, 3]", "3,1 | =[3, 0]"]),
    "Tile": _recipe("2,3 | =[2, 1]", others=["2,3 | =[1, 1]", "2,3 | =[0, 2]", "3 | =[4]"]),
    "Transpose": _recipe("2,3,4", {"perm": [1, 0, 2]}, {"perm": [0, 1, 2]}, others=["", "3"]),
    "Squeeze": _recipe("1,3,1 | =[0]", others=["1,3,1 | =[-1, 0]", "1,3,1", "1,1 | =[0, 1]", "2,3 | =[]"]),
    "Unsqueeze": _recipe("3,4 | =[0]", others=["3,4 | =[-1, 1]", " | =[0]", "3 | =[2, 0]"]),
    "Concat": _recipe("2,3,4 | 2,3,4", *_axes(0, -1), axis=1, others=["2,3,4 | w2,3,4 | 2,3,4", "2,3,4", "w2,0 | 2,3"]),
    "Split": _recipe("2,6 | =[2, 4]", {"outputs": 3}, {"outputs": 1}, outputs=2, axis=1, others=["2,6", "2,6 | =[0, 6]", ("2,6", {"num_outputs": 2}), ("2,5", {"num_outputs": 2})]),
    "Slice": _recipe("4,5,6 | =[1, 0] | =[3, 4] | =[0, 2] | =[1, 2]", others=["4,5 | =[-1] | =[-99] | =[1] | =[-2]", "4,5 | =[1] | =[99]", "4,5 | =[3] | =[1]",
                      "4,5 | =[-3] | =[-1] | =[-1]", "4,5 | <2 1 | =[3]", "4,5 | =[99] | =[0] | =[0] | =[-1]"]),
    "Pad": _recipe("3,4 | =[1, 0, 2, 1] | =1 ", {"mode": "reflect"}, {"mode": "edge"}, {"mode": "wrap"}, {"value": 1.5},
                   others=["3,4 | =[-1, 0, 0, 2]", "3,4 | =[1, 2] | =1 | =[-1]", "3,1 | =[0, 0, 0, 0]", "| =[]", "w0,2 | =[1, 1, 1, 1]", "3,4 | <3 4"]),
    "Gather": _recipe("4,5 | =[[0, -1], [2, 1]]", *_axes(1, -1), others=["4,5 | ~4 3", "4,5 | =1", "4 | <4 ", "1,1 | =[0]", "4,5 | =[]"]),
    "GatherElements": _recipe("3,4 | =[[0, -1, 2, 1]]", *_axes(1, -1), others=["3,4 | ~3 3,4", "1,1 | =[[0]]"]),
    "GatherND": _recipe("3,4,5 | =[[0, -1], [2, 1], [1, 1]]", {"batch_dims": 1}, others=["3,4,5 | ~3 2,2", "4 | =[[2]]", "3,4 | =[0]"]),
    **_each("Scatter ScatterElements", _recipe("3,4 | =[[0, -1, 2, 1]] | 1,4", *_axes(1, -1), *_axes("add", "mul", "max", "min", name="reduction"),
                                               others=["3,4 | =[[0, 0, 2, 1], [1, 1, 0, 2]] | 2,4", "3,4 | ~3 1,4 | 1,4", "1,1 | =[[0]] | 1,1"])),
    "ScatterND": _recipe("4,5 | =[[0], [-1]] | 2,5", *_axes("add", "mul", "max", "min", name="reduction"), others=["4,5 | =[[0, 1], [2, -1]] | 2", "4 | ~4 2,1 | 2"]),
    "OneHot": _recipe("~4 2,3 | =4 | =[2, 5]", *_axes(0, 1), others=["~4  | =4 | =[2, 5]", "@[[-5, 4, 0]] | =[4] | =[2, 5]", "<4 1 | =1 | 2"]),
    "TopK": _recipe("3,5 | =[2]", {"largest": 0}, {"axis": 0}, {"sorted": 0}, {"largest": 0, "axis": -2}, k=2,
                    others=["@[[2, 2, 1, 2, 1]] | =[3]", "3,5 | =[5]", "1 | =[1]", "3,5 | =[0]"]),
    "Compress": _recipe("3,4 | =[1, 0, 1]", *_axes(0, -1), others=["3,4 | =[0, 1]", "3 | <2 3"]),
    "NonZero": _recipe("2,3", others=["="]),
    "Unique": _recipe("6", {"outputs": 4}, {"sorted": 0}, {"axis": 0}),
    "NonMaxSuppression": _recipe("+1,3,4 | +1,2,3 | =[2] | =[0.5] | =[0.1]", {"center_point_box": 1}),
    "Where": _recipe("2,3 | 2,3 | 3", others=["2,1 |  | w3", "1 | 1 | 1", " | 2,3 | 2,3"]),
    "Clip": _recipe("2,3,4 | =-1 | =1", others=[f"{POINT} | =-1 | =1", "3 | =2 | =1", "3 |  | "]),
    "Cast": _recipe("2,3,4", {"to": 10}, {"to": 11}, {"to": 7}, {"to": 6}, {"to": 2}, {"to": 9}, {"to": 3}, {"to": 5}, {"to": 4}, {"to": 12}, {"to": 13}, to=1,
                    others=["", "1", "@[300.7, -300.7, -1.5, 0.4]"]),
    "CastLike": _recipe("+2,3,4 | w1", others=["2 | 1"]),
    "BitCast": _recipe("2,3,4", {"to": 12}, to=6),
    "Trilu": _recipe("3,4 | =1", {"upper": 0}, others=["2,3,4 | =-1", "1,1", "3,4 | =9", "3,4 | <2 "]),
    "EyeLike": _recipe("3,4", {"k": 1}, {"k": -9}, {"dtype": 1}, {"dtype": 7}, others=["1,1"]),
    "Range": _recipe("=1 | =7 | =2", others=["=7 | =1 | =-2", "=1 | =1 | =1"]),
    "ConstantOfShape": _recipe("=[2, 3]", *({"value": np.array([3], dtype)} for dtype in ("int64", "int32", "float16", "uint8")), {"value": np.array([True])},
                               others=["=[]", "=[0, 2]", "<3 2"]),
    "Constant": Recipe((), {}, ({"value": np.array([3.5], "float32")}, {"value": np.array([[3]], "int8")}, {"value_float": 1.5}, {"value_floats": [1.5, 2.0]},
                                {"value_int": 3}, {"value_ints": [3, 4]})),
    "Dropout": _recipe("2,3 | =0.5", {"outputs": 2}, {"seed": 1}, {"ratio": 0.3}, others=["2,3 | =0.0 | =1", "2,3 | =0.5 | =0", "2,3 | =0.5 | =1"]),
    "ReverseSequence": _recipe("4,3,2 | =[1, 3, 4]", {"time_axis": 1, "batch_axis": 0, "outputs": 1}, others=["4,3 | <4 3", "1,1 | =[1]"]),
    "DynamicQuantizeLinear": _recipe("2,3,4", others=["1", "@[0.0, 0.0]", "+5"]),
    "QuantizeLinear": _recipe("2,3,4 | =0.04 | =3", {"axis": 0}, {"saturate": 0}, others=["2,3,4 | =[0.04, 0.1, 0.2] | =[0, 0, 0]", "@[0.5, 1.5, 2.5, -0.5, 99, -99] | =1.0 | =0", ""]),
    "DequantizeLinear": _recipe("2,3,4 | =0.04 | =3", {"axis": 0}, others=["2,3,4 | =[0.04, 0.1, 0.2] | =[0, 0, 0]", "w2,3,4 | =0.5", " | =0.04"]),
    "Upsample": _recipe("1,2,3,4 | =[1, 1, 2, 1.5]", {"mode": "linear"}, {"mode": "bilinear"}, others=["1,2,1,4 | =[1, 1, 2, 2]", "1,2,4,4 | =[1, 1, 1, 1]"]),
    "Resize": _recipe("1,2,3,4 | - | =[1, 1, 2, 1.5]", *_axes("linear", "cubic", name="mode"), *_axes(*["align_corners", "asymmetric", "pytorch_half_pixel", "half_pixel_symmetric"], name="coordinate_transformation_mode"),
                      *({"mode": mode, "coordinate_transformation_mode": kind} for mode in ("linear", "cubic") for kind in ("align_corners", "asymmetric", "pytorch_half_pixel")),
                      *_axes("floor", "ceil", "round_prefer_ceil", name="nearest_mode"), {"mode": "linear", "antialias": 1}, {"mode": "cubic", "cubic_coeff_a": -0.5},
                      {"mode": "cubic", "exclude_outside": 1}, {"extrapolation_value": 1.0},
                      others=["1,2,3,4 | - | - | =[1, 2, 5, 1]", "1,1,1,1 | - | =[1, 1, 3, 3]", "1,2,5,6 | - | =[1, 1, 0.6, 0.5]", "1,2,4,4 | - | =[1, 1, 1, 1]",
                              ("1,2,3,4 | - | =[2, 1.5]", {"axes": [2, 3]}), *(("1,2,3,4 | - | - | =[7, 6]", {"axes": [2, 3], "keep_aspect_ratio_policy": f"not_{kind}"}) for kind in ("larger", "smaller")),
                              ("1,2,3,4 | =[0, 0, 0.2, 0.1, 1, 1, 0.9, 0.8] | =[1, 1, 2, 2]", {"coordinate_transformation_mode": "tf_crop_and_resize", "mode": "linear"})]),
    "GridSample": _recipe("1,2,4,5 | 1,3,3,2", *_axes("linear", "bilinear", "nearest", "cubic", "bicubic", name="mode"), *_axes("border", "reflection", name="padding_mode"), {"align_corners": 1}),
    "AffineGrid": _recipe("2,2,3 | =[2, 3, 4, 5]", {"align_corners": 1}, others=["1,3,4 | =[1, 1, 2, 3, 4]"]),
    "CenterCropPad": _recipe("5,4,3 | =[3, 6]", {"axes": [0, -1]}, axes=[0, 1], others=[]),
    "Col2Im": _recipe("1,8,12 | =[4, 5] | =[2, 2]", {"pads": [0, 0, 0, 0]}, {"dilations": [1, 1]}, others=[("1,8,4 | =[4, 5] | =[2, 2]", {"strides": [2, 2]})]),
    "DFT": _recipe("2,8,1 | =8 | =1", {"inverse": 1}, {"onesided": 1}, others=["2,8,2", "2,6,1 | =8"]),
    "STFT": _recipe("1,16,1 | =4 | w8 | =8", {"onesided": 0}, others=["1,16,1 | =4 | - | =8"]),
    **_each("BlackmanWindow HammingWindow HannWindow", _recipe("=8", {"periodic": 0}, {"output_datatype": 11})),
    "MelWeightMatrix": _recipe("=4 | =16 | =8000 | =0.0 | =4000.0", {"output_datatype": 11}),
    "LSTM": _recurrent(4), "GRU": _recurrent(3), "RNN": _recurrent(1),
    "Attention": _recipe("1,2,3,4 | 1,2,5,4 | 1,2,5,4 | 3,5", {"is_causal": 1}, {"scale": 0.3}, {"softcap": 2.0}, {"qk_matmul_output_mode": 1, "outputs": 4}, {"softmax_precision": 1},
                         others=[("1,2,8 | 1,3,8 | 1,3,8", {"q_num_heads": 2, "kv_num_heads": 2}), ("1,2,8 | 1,3,4 | 1,3,4", {"q_num_heads": 2, "kv_num_heads": 1})]),
    "RotaryEmbedding": _recipe("1,2,3,4 | w1,3,2 | w1,3,2", {"interleaved": 1}, {"rotary_embedding_dim": 2}, others=[("1,3,8 | w1,3,2 | w1,3,2", {"num_heads": 2})]),
    "TensorScatter": _recipe("2,3,6,4 | 2,3,2,4 | =[1, 3]", {"mode": "circular"}, {"axis": 2}, others=["2,3,6,4 | 2,3,2,4"]),
    "TfIdfVectorizer": _recipe("<5 2,6", *_axes("IDF", "TFIDF", name="mode"), {"max_skip_count": 2}, {"max_gram_length": 1}, {"mode": "TFIDF", "weights": [0.5, 1.0, 2.0]}, mode="TF", min_gram_length=1, max_gram_length=2,
                               max_skip_count=0, ngram_counts=[0, 2], ngram_indexes=[0, 1, 2], pool_int64s=[1, 3, 1, 2]),
    **_each("NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss", _recipe("3,5 | <5 3 | w5", *_axes("none", "sum", name="reduction"), {"ignore_index": 2}, {"outputs": 2}, others=["2,3,4 | <3 2,4"])),
    **_each("RandomNormalLike RandomUniformLike Bernoulli", _recipe("+2,3", {"dtype": 1, "seed": 1.0})),
    **_each("RandomNormal RandomUniform", Recipe((), {"shape": [2, 3]})),
    "Multinomial": _recipe("2,3", {"sample_size": 2}),
    # What onnxruntime's tools write
    **_each("com.microsoft.QLinearAdd com.microsoft.QLinearMul", _recipe(f"2,3 | {QUANTIZED} | 2,3 | =0.05 | =2 | =0.08 | =1", others=[f"2,3 | {QUANTIZED} | w3 | =0.05 | =2 | =0.08 | =1", f"| {QUANTIZED} | 3 | =0.05 | =2 | =0.08 | =1"])),
    **_each("com.microsoft.QLinearSigmoid com.microsoft.QLinearLeakyRelu com.microsoft.QLinearSoftmax",
            _recipe(f"2,3,4 | {QUANTIZED} | =0.01 | =1", *_axes(0, 1, -1), {"alpha": 0.3}, opset=13)),
    **_each("com.microsoft.QLinearAveragePool com.microsoft.QLinearGlobalAveragePool",
            _recipe(f"1,2,5,6 | {QUANTIZED} | =0.05 | =1", *WINDOW, *CEIL, {"count_include_pad": 1, **PADS}, {"channels_last": 1}, kernel_shape=[2, 2])),
    "com.microsoft.QLinearConcat": _recipe(f"=0.05 | =2 | 2,3 | {QUANTIZED} | 2,3 | =0.06 | =1", *_axes(0, -1), axis=1),
    "com.microsoft.QLinearWhere": _recipe(f"2,3 | 2,3 | {QUANTIZED} | 3 | =0.05 | =2 | =0.06 | =1"),
    "com.microsoft.QLinearConv": _recipe(f"1,4,5,6 | {QUANTIZED} | w4,4,3,2 | =0.05 | =0 | =0.5 | =3 | w4", *WINDOW, {"channels_last": 1}),
    "com.microsoft.QGemm": _recipe(f"3,4 | {QUANTIZED} | w4,4 | =0.05 | =2 | w4 | =0.5 | =3", {"alpha": 0.5}, {"transB": 1}, others=[(f"4,3 | {QUANTIZED} | w4,4 | =0.05 | =2 | - | =0.5 | =3", {"transA": 1})]),
    "com.microsoft.MatMulIntegerToFloat": _recipe("3,4 | w4,5 | =0.04 | =0.05 | =3 | =2 | w5", others=["3,4 | w4,2 | =0.04 | =[0.05, 0.1] | =3 | =[2, 1]"]),
    "com.microsoft.DynamicQuantizeMatMul": _recipe("3,4 | w4,5 | =0.05 | =2 | w5", others=["3,4 | w4,2 | =[0.05, 0.1] | =[2, 1]"]),
    "com.microsoft.FusedConv": _recipe("1,4,5,6 | w4,4,1,1 | w4 | 1,4,5,6", *({k: [v] if k == "activation_alpha" else v for k, v in row.items() if k == "activation"} for row in FUSED), activation="Relu",
                                     others=[("1,4,5,6 | w4,2,3,2 | w4", {"group": 2, **option}) for option in WINDOW]),
    "com.microsoft.FusedGemm": _recipe("3,4 | w4,4 | w4", *FUSED, {"alpha": 0.5}, {"beta": 0.5}, {"transA": 0, "transB": 1}, activation="Relu"),
    **_each("com.microsoft.FusedMatMul com.microsoft.TransposeMatMul", _recipe("2,4,4 | 2,4,4", {"alpha": 0.5}, {"transA": 1}, {"transB": 1}, {"transBatchA": 1, "outputs": 1})),
    **_each("com.microsoft.FastGelu com.microsoft.BiasGelu", _recipe("2,3,4 | w4")),
    **_each("com.microsoft.SkipLayerNormalization com.microsoft.SkipSimplifiedLayerNormalization", _recipe("2,3,4 | 2,3,4 | w4 | w4 | w4", {"epsilon": 0.1}, {"outputs": 4}, others=["2,3,4 | 3,4 | w4"])),
    "com.microsoft.MatMulNBits": _recipe("3,32 | w4,1,16 | w4", {"accuracy_level": 4}, K=32, N=4, bits=4, block_size=32),
    "com.microsoft.MultiHeadAttention": _recipe("1,3,8 | 1,3,8 | 1,3,8", {"scale": 0.3}, {"unidirectional": 1}, num_heads=2),
    "com.microsoft.RotaryEmbedding": _recipe("1,2,3,4 | =[0] | w6,2 | w6,2", {"interleaved": 1}),
    "com.microsoft.NhwcMaxPool": _recipe("1,5,6,2", *WINDOW, *CEIL, kernel_shape=[2, 2]),
    "com.microsoft.Inverse": _recipe("2,3,3"), "com.microsoft.ExpandDims": _recipe("2,3 | =1"), "com.microsoft.Trilu": _recipe("3,4 | =1", {"upper": 0}),
    "com.microsoft.Pad": _recipe("3,4 | =[1, 0, 2, 1] | =1.5", {"mode": "reflect"}, {"mode": "edge"}), "com.microsoft.GatherND": _recipe("3,4 | =[[0, 1]]"),
}  # fmt: skip
