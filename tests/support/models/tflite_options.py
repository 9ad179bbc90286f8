"""One-operator .tflite files for the values of each operator's options, written with the interpreter's schema."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert import interpreter as litert
from numpy.typing import NDArray

from support.models.quantized_tflite import Model

Array = NDArray[np.generic]
RNG = np.random.default_rng(42)
PICTURE = ((2, 5, 6, 3), "float32")


@dataclass(frozen=True)
class Case:
    """One operator, its operands and its options."""

    name: str
    op: str
    kind: str
    """Class of the options; empty: none."""
    operands: Sequence[Any]
    """Shape and type of inputs, arrays of constants, functions that add a tensor; None: left out."""
    outputs: Sequence[str] = ("float32",)
    options: Mapping[str, Any] = field(default_factory=dict)
    version: int = 1
    low: int = -100
    """Least of the integers of inputs."""


def write(case: Case, path: Path) -> tuple[dict[str, Array], dict[str, Array]]:
    """Write the file of *case*, with the shapes of outputs that the interpreter infers; return both's values."""
    shapes: list[Sequence[int]] = [()] * len(case.outputs)
    for _ in range(2):
        model = Model()
        tensors, inputs = [], []
        for operand in case.operands:
            if operand is None:
                tensors.append(-1)
            elif callable(operand):
                tensors.append(operand(model))
            elif isinstance(operand, tuple):
                tensors.append(model.tensor(*operand))
                inputs.append(tensors[-1])
            else:
                tensors.append(model.tensor(operand.shape, str(operand.dtype), operand))
        outputs = [model.tensor(shape, kind) for shape, kind in zip(shapes, case.outputs, strict=True)]
        model.add(case.op, tensors, outputs, case.kind, **case.options)
        model.codes[0].version = case.version
        model.write(path, inputs, outputs)
        interpreter = interpreter_of(path)
        arrays = {detail["name"]: values_for(detail, case.low) for detail in interpreter.get_input_details()}
        results = run(interpreter, arrays)
        shapes = [value.shape for value in results.values()]
    return arrays, results


def interpreter_of(path: Path) -> Any:
    """Return the interpreter that ``adt verify`` compares with."""
    kernels = litert.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = litert.Interpreter(str(path), experimental_op_resolver_type=kernels)
    interpreter.allocate_tensors()
    return interpreter


def run(interpreter: Any, inputs: Mapping[str, Array]) -> dict[str, Array]:
    for detail in interpreter.get_input_details():
        interpreter.set_tensor(detail["index"], inputs[detail["name"]])
    interpreter.invoke()
    return {each["name"]: interpreter.get_tensor(each["index"]) for each in interpreter.get_output_details()}


def values_for(detail: Mapping[str, Any], low: int) -> Array:
    """Return values of an input: integers from *low* to 100, or floats around zero."""
    shape, dtype = detail["shape"], np.dtype(detail["dtype"])
    if dtype.kind == "b":
        return RNG.integers(0, 2, shape).astype(dtype)
    if dtype.kind in "iu":
        return RNG.integers(max(low, np.iinfo(dtype).min), 100, shape, dtype)
    return RNG.standard_normal(shape).astype(dtype)


def i32(*values: Any) -> Array:
    return np.array(values, "int32")


def f32(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype("float32")


def cases() -> Iterator[Case]:
    rows: Any = ((2, 3, 8), "float32")
    scalar = np.array(1, "int32")
    for beta in (1.0, 2.5, 0.25):
        yield Case(
            f"softmax {beta}", "SOFTMAX", "SoftmaxOptions", [((3, 4), "float32")], options={"beta": beta}
        )
    yield Case("softmax int8", "SOFTMAX", "SoftmaxOptions", [((3, 20), ("int8", 0.1, 4))],
               [("int8", 1 / 256, -128)], {"beta": 0.5}, 2)  # fmt: skip
    for approximate in (False, True):
        yield Case(f"gelu {approximate}", "GELU", "GeluOptions", [rows], options={"approximate": approximate})
    yield Case("gelu int8", "GELU", "GeluOptions", [((40,), ("int8", 0.05, 4))], [("int8", 0.03, -100)],
               {"approximate": True}, 2)  # fmt: skip
    for axis, batch, indices in (
        (0, 0, i32(1, 0)), (1, 0, i32([2, 0], [1, 1])), (-1, 0, i32(2)), (1, 1, i32([2, 0], [1, 1])), (2, 1, i32([2, 0], [1, 3])),
        (3, 1, i32(1, 0)), (2, 2, i32([[2, 0], [1, 3], [0, 0]], [[1, 1], [2, 3], [3, 0]])), (3, 2, i32([0, 1, 2], [2, 1, 0])),
        (2, -1, i32([2, 0], [1, 3])), (1, 0, np.array(2, "int32")),
    ):  # fmt: skip
        data = ((2, 3, 4, 3), "float32")
        options = {"axis": axis, "batchDims": batch}
        yield Case(
            f"gather {axis} {batch} {indices.shape}",
            "GATHER",
            "GatherOptions",
            [data, indices],
            options=options,
        )
    yield Case("gather by input", "GATHER", "GatherOptions", [((2, 3, 200), "float32"), ((2, 2), "int32")],
               options={"axis": 2, "batchDims": 1}, low=0)  # fmt: skip
    yield Case("gather int8", "GATHER", "GatherOptions", [((2, 3, 4), ("int8", 0.1, 4)), i32([2, 0], [1, 1])],
               [("int8", 0.1, 4)], {"axis": 1, "batchDims": 1}, 2)  # fmt: skip
    for keep in (False, True):
        for bias in (None, f32(5)):
            yield Case(f"fully connected {keep} {bias is None}", "FULLY_CONNECTED", "FullyConnectedOptions",
                       [rows, f32(5, 8), bias], options={"keepNumDims": keep, "fusedActivationFunction": 1},
                       version=6)  # fmt: skip
    yield Case("fully connected flat", "FULLY_CONNECTED", "FullyConnectedOptions", [rows, f32(5, 24), f32(5)])
    for multiplier in (1, 2, 3):
        for same, stride, dilation, activation in ((0, 1, 1, 0), (1, 2, 1, 3), (0, 1, 2, 2), (0, 2, 1, 1)):
            yield Case(f"depthwise {multiplier} {same} {stride} {dilation}", "DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions",
                       [PICTURE, f32(1, 3, 2, 3 * multiplier), f32(3 * multiplier)], options={
                           "padding": same, "strideW": stride, "strideH": stride, "depthMultiplier": multiplier,
                           "dilationWFactor": dilation, "dilationHFactor": dilation,
                           "fusedActivationFunction": activation}, version=2)  # fmt: skip
    biases = [0.02 * 0.04] * 6
    yield Case("depthwise int8", "DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions",
               [((1, 5, 6, 3), ("int8", 0.04, -3)), lambda model: model.weights((1, 3, 3, 6)),
                lambda model: model.tensor((6,), "int32", range(-300, 300, 100), scales=biases, axis=0)],
               [("int8", 0.5, 4)], {"padding": 0, "strideW": 1, "strideH": 2, "depthMultiplier": 2, "dilationWFactor": 1,
                                    "dilationHFactor": 1}, 3)  # fmt: skip
    yield Case("fully connected int8", "FULLY_CONNECTED", "FullyConnectedOptions",
               [((2, 3, 8), ("int8", 0.04, -3)), lambda model: model.weights((5, 12))], [("int8", 0.1, 4)], version=6)  # fmt: skip
    yield Case("split_v int8", "SPLIT_V", "SplitVOptions", [((2, 6), ("int8", 0.1, 4)), i32(-1, 2), np.array(1, "int32")],
               [("int8", 0.1, 4)] * 2, {"numSplits": 2}, 2)  # fmt: skip
    for sizes in ((2, -1), (-1, 1, 2), (-1,), (6,), (1, 5)):
        yield Case(f"split_v {sizes}", "SPLIT_V", "SplitVOptions", [((2, 6), "float32"), i32(*sizes), np.array(-1, "int32")],
                   ["float32"] * len(sizes), {"numSplits": len(sizes)})  # fmt: skip
    for count in (1, 3):
        yield Case(f"split {count}", "SPLIT", "SplitOptions", [np.array(-1, "int32"), ((2, 6), "float32")],
                   ["float32"] * count, {"numSplits": count})  # fmt: skip
    for mode in (0, 1):
        yield Case(f"mirror pad {mode}", "MIRROR_PAD", "MirrorPadOptions",
                   [((2, 4, 3), "float32"), i32([0, 1], [3, 2], [0, 0])], options={"mode": mode})  # fmt: skip
    yield Case("mirror pad int8", "MIRROR_PAD", "MirrorPadOptions", [((2, 4), ("int8", 0.1, 4)), i32([1, 1], [3, 2])],
               [("int8", 0.1, 4)], {"mode": 1}, 2)  # fmt: skip
    for kind in ("float32", "int32", "int64"):
        for exclusive in (False, True):
            for reverse in (False, True):
                yield Case(f"cumsum {kind} {exclusive} {reverse}", "CUMSUM", "CumsumOptions", [((2, 4, 3), kind), scalar], [kind],
                           {"exclusive": exclusive, "reverse": reverse})  # fmt: skip
    for op, kind in (
        ("RESIZE_BILINEAR", "ResizeBilinearOptions"),
        ("RESIZE_NEAREST_NEIGHBOR", "ResizeNearestNeighborOptions"),
    ):
        for corners, half in ((False, False), (True, False), (False, True)):
            for height, width in ((1, 1), (1, 9), (7, 1), (10, 4), (2, 2)):
                for picture in (PICTURE, ((1, 1, 6, 2), "float32"), ((1, 1, 1, 2), "float32")):
                    yield Case(f"{op} {corners} {half} {height}x{width} of {picture[0]}", op, kind,
                               [picture, i32(height, width)],
                               options={"alignCorners": corners, "halfPixelCenters": half}, version=3)  # fmt: skip
    for op in ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD"):
        for kind in ("float32", "int32", "int64"):
            for keep in (False, True):
                yield Case(f"{op} {kind} {keep}", op, "ReducerOptions", [((2, 3, 4), kind), i32(1, -1)], [kind],
                           {"keepDims": keep}, 2)  # fmt: skip
    for op in ("REDUCE_ANY", "REDUCE_ALL"):
        for keep in (False, True):
            yield Case(
                f"{op} {keep}",
                op,
                "ReducerOptions",
                [((2, 3, 4), "bool"), i32(1)],
                ["bool"],
                {"keepDims": keep},
            )
    for op, kind in (("ADD", "Add"), ("SUB", "Sub"), ("MUL", "Mul"), ("DIV", "Div")):
        for activation in (0, 1, 2, 3):
            yield Case(f"{op} {activation}", op, f"{kind}Options", [rows, ((3, 8), "float32")],
                       options={"fusedActivationFunction": activation})  # fmt: skip
    for op in ("ARG_MAX", "ARG_MIN"):
        for code, kind in ((2, "int32"), (4, "int64")):
            yield Case(f"{op} {kind}", op, op.title().replace("_", "") + "Options", [rows, np.array(-1, "int32")], [kind],
                       {"outputType": code})  # fmt: skip
    for op in ("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D"):
        for padding, stride, activation in ((0, 1, 0), (1, 2, 1), (0, 2, 3)):
            yield Case(f"{op} {padding} {stride}", op, "Pool2DOptions", [PICTURE], options={
                "padding": padding, "strideW": stride, "strideH": 1, "filterWidth": 3, "filterHeight": 2,
                "fusedActivationFunction": activation})  # fmt: skip
    for padding, stride, activation in ((0, 1, 0), (1, 2, 1), (0, 2, 3)):
        yield Case(f"conv {padding} {stride}", "CONV_2D", "Conv2DOptions", [PICTURE, f32(4, 3, 2, 3), f32(4)], options={
            "padding": padding, "strideW": stride, "strideH": 1, "dilationWFactor": 1, "dilationHFactor": 1,
            "fusedActivationFunction": activation})  # fmt: skip
    for adj_x, adj_y in ((False, True), (True, False), (False, False)):
        yield Case(f"batch matmul {adj_x} {adj_y}", "BATCH_MATMUL", "BatchMatMulOptions",
                   [((2, 4, 4), "float32"), ((2, 4, 4), "float32")], options={"adjX": adj_x, "adjY": adj_y})  # fmt: skip
    for masks in (
        {},
        {"beginMask": 1},
        {"endMask": 3},
        {"shrinkAxisMask": 2},
        {"newAxisMask": 1},
        {"ellipsisMask": 1},
    ):
        yield Case(f"strided slice {masks}", "STRIDED_SLICE", "StridedSliceOptions",
                   [((4, 5, 3), "float32"), i32(1, 1), i32(3, 3), i32(1, 1)], options=masks, version=4)  # fmt: skip
    for axis in (-1, 0, 1):
        yield Case(f"one hot {axis}", "ONE_HOT", "OneHotOptions",
                   [((2, 3), "int32"), np.array(4, "int32"), np.array(2, "float32"), np.array(-1, "float32")],
                   options={"axis": axis})  # fmt: skip
        yield Case(
            f"pack {axis}", "PACK", "PackOptions", [rows, rows], options={"valuesCount": 2, "axis": axis}
        )
        yield Case(f"concatenation {axis}", "CONCATENATION", "ConcatenationOptions", [rows, rows],
                   options={"axis": axis, "fusedActivationFunction": 0})  # fmt: skip
        yield Case(f"unpack {axis}", "UNPACK", "UnpackOptions", [((2, 3, 2), "float32")],
                   ["float32"] * (3 if axis == 1 else 2), {"num": 3 if axis == 1 else 2, "axis": axis})  # fmt: skip
    for dims in ([], [-2], [0], [0, 2]):
        yield Case(
            f"squeeze {dims}",
            "SQUEEZE",
            "SqueezeOptions",
            [((1, 3, 1, 2), "float32")],
            options={"squeezeDims": dims},
        )
    for seq, batch in ((1, 0), (0, 1)):
        yield Case(f"reverse sequence {seq}", "REVERSE_SEQUENCE", "ReverseSequenceOptions",
                   [((3, 3, 2), "float32"), i32(1, 3, 2)], options={"seqDim": seq, "batchDim": batch})  # fmt: skip
    for code, kind in ((2, "int32"), (4, "int64"), (0, "int32")):
        yield Case(
            f"cast {code} {kind}",
            "CAST",
            "CastOptions",
            [rows],
            [kind],
            {"inDataType": 0, "outDataType": code},
        )
    yield Case("leaky relu", "LEAKY_RELU", "LeakyReluOptions", [rows], options={"alpha": 0.3})
    yield Case("lrn", "LOCAL_RESPONSE_NORMALIZATION", "LocalResponseNormalizationOptions", [((1, 2, 2, 7), "float32")],
               options={"radius": 2, "bias": 1.5, "alpha": 0.3, "beta": 0.7})  # fmt: skip
    yield Case("l2 norm", "L2_NORMALIZATION", "L2NormOptions", [((2, 3, 4), "float32")])
    yield Case(
        "space to depth",
        "SPACE_TO_DEPTH",
        "SpaceToDepthOptions",
        [((1, 4, 6, 3), "float32")],
        options={"blockSize": 2},
    )
    yield Case(
        "depth to space",
        "DEPTH_TO_SPACE",
        "DepthToSpaceOptions",
        [((1, 2, 3, 8), "float32")],
        options={"blockSize": 2},
    )
    yield Case(
        "fake quant",
        "FAKE_QUANT",
        "FakeQuantOptions",
        [rows],
        options={"min": -1.0, "max": 2.0, "numBits": 4},
    )
    for padding in (0, 1):
        out = i32(1, 8, 10, 4) if padding == 0 else i32(1, 9, 11, 4)
        yield Case(f"transpose conv {padding}", "TRANSPOSE_CONV", "TransposeConvOptions",
                   [out, f32(4, 3, 3, 3), ((1, 4, 5, 3), "float32")],
                   options={"padding": padding, "strideW": 2, "strideH": 2})  # fmt: skip
    for padding, activation in ((0, 0), (1, 1)):
        yield Case(f"conv 3d {padding}", "CONV_3D", "Conv3DOptions", [((1, 4, 5, 6, 2), "float32"), f32(2, 3, 2, 2, 3), f32(3)],
                   options={"padding": padding, "strideD": 1, "strideW": 2, "strideH": 1, "dilationDFactor": 1,
                            "dilationWFactor": 1, "dilationHFactor": 1, "fusedActivationFunction": activation})  # fmt: skip
    yield Case("sparse to dense", "SPARSE_TO_DENSE", "SparseToDenseOptions",
               [i32([0, 1], [2, 0]), i32(3, 2), ((2,), "float32"), np.array(0, "float32")], options={"validateIndices": True})  # fmt: skip
    yield Case("shape", "SHAPE", "ShapeOptions", [rows], ["int64"], {"outType": 4})
    yield Case("reshape", "RESHAPE", "ReshapeOptions", [rows], options={"newShape": [6, -1]})
    yield Case("topk", "TOPK_V2", "TopKV2Options", [rows, np.array(3, "int32")], ["float32", "int32"])
    for op in ("RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1", "ELU", "TANH", "LOGISTIC", "LOG_SOFTMAX", "HARD_SWISH", "ABS", "NEG",
               "SQUARE", "SIN", "COS", "EXP", "FLOOR", "CEIL", "ROUND", "SIGN", "ZEROS_LIKE", "RANK"):  # fmt: skip
        yield Case(op.lower(), op, "", [rows], ["int32" if op == "RANK" else "float32"])
    for op in ("ABS", "NEG", "SIGN", "ZEROS_LIKE"):
        yield Case(f"{op.lower()} int32", op, "", [((2, 3), "int32")], ["int32"])
    for kind in ("int32", "int16", "uint8"):
        bits = np.array([[1, 3, 0]], kind)
        yield Case(f"bitwise_xor {kind}", "BITWISE_XOR", "BitwiseXorOptions", [((2, 3), kind), bits], [kind])
        yield Case(f"right_shift {kind}", "RIGHT_SHIFT", "RightShiftOptions", [((2, 3), kind), bits], [kind])
    for kind in ("float32", "int32", "int64"):
        yield Case(f"bucketize {kind}", "BUCKETIZE", "BucketizeOptions", [((2, 30), kind)], ["int32"],
                   {"boundaries": [-50.0, -0.5, 0.0, 0.5, 3.0, 40.5]})  # fmt: skip
    for kind in ("float32", "int32"):
        for op in ("MAX", "MIN", "PROD", "SUM"):
            yield Case(f"unsorted_segment_{op.lower()} {kind}", f"UNSORTED_SEGMENT_{op}", f"UnsortedSegment{op.title()}Options",
                       [((4, 3), kind), i32(2, 0, 2, 4), np.array(5, "int32")], [kind])  # fmt: skip
    for start in (i32(0, 1), i32(2, 3), i32(9, -4), ((2,), "int32")):
        yield Case(f"dynamic_update_slice {start}", "DYNAMIC_UPDATE_SLICE", "DynamicUpdateSliceOptions",
                   [((4, 5), "float32"), ((2, 2), "float32"), start])  # fmt: skip
    for op, kinds in {
        "ADD": ("int32", "int64"), "SUB": ("int32", "int64"), "MUL": ("int32", "int64"), "DIV": ("int32",),
        "MAXIMUM": ("int32", "int64"), "MINIMUM": ("int32", "int64"), "SQUARED_DIFFERENCE": ("int32",),
        "FLOOR_DIV": ("int32",), "FLOOR_MOD": ("int32", "int64"),
    }.items():  # fmt: skip
        options = f"{op.title()}Options" if op in ("ADD", "SUB", "MUL", "DIV") else ""
        for kind in kinds:
            operands = [((2, 3), kind), np.array([[2, -3, 1]], kind)]
            yield Case(f"{op.lower()} {kind}", op, options, operands, [kind], version=2)
    for op in ("EQUAL", "NOT_EQUAL", "LESS", "GREATER_EQUAL"):
        for kind in (
            "float32",
            "int32",
            *(["bool"] if op.endswith("EQUAL") and op != "GREATER_EQUAL" else []),
        ):
            yield Case(f"{op.lower()} {kind}", op, "", [((2, 3), kind), ((2, 3), kind)], ["bool"], version=2)
    yield Case("conv 3d transposed", "CONV_3D_TRANSPOSE", "Conv3DOptions",
               [i32(1, 4, 6, 6, 2), f32(2, 2, 2, 2, 3), ((1, 2, 3, 3, 3), "float32")],
               options={"padding": 0, "strideD": 2, "strideW": 2, "strideH": 2, "dilationDFactor": 1,
                        "dilationWFactor": 1, "dilationHFactor": 1})  # fmt: skip
    for first in (False, True):
        shape = (4, 2, 3) if first else (2, 4, 3)
        yield Case(f"rnn {first}", "UNIDIRECTIONAL_SEQUENCE_RNN", "SequenceRNNOptions",
                   [(shape, "float32"), f32(5, 3), f32(5, 5), f32(5), _state],
                   options={"timeMajor": first, "fusedActivationFunction": 4})  # fmt: skip


def _state(model: Model) -> int:
    """Add the state of a recurrent layer of 2 batches and 5 units, which is zero at first."""
    tensor = model.tensor((2, 5), "float32")
    model.graph.tensors[tensor].isVariable = True
    return tensor
