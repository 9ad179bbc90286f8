"""Small int8 .tflite files of one or a few operators, written with the schema that the interpreter ships."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

RNG = np.random.default_rng(29)
TYPES = {"float32": 0, "bool": 6, "int32": 2, "uint8": 3, "int64": 4, "int16": 7, "int8": 9}
BYTES = (TYPES["int8"], TYPES["uint8"])
VERSIONS = {"HARD_SWISH": 1, "RESHAPE": 1, "CUMSUM": 1, "TRANSPOSE_CONV": 3}
"""Versions of operators where that with int8 is not the second."""
VALID, SAME = 1, 0
INT8 = ("int8", 0.04, -3)
"""Type, scale and zero point of most tensors here."""


class Model:
    """A graph while it is written; tensors are their numbers."""

    def __init__(self) -> None:
        self.graph = schema.SubGraphT()
        self.graph.tensors, self.graph.operators = [], []
        self.codes: list[Any] = []
        self.buffers: list[Any] = [schema.BufferT()]

    def tensor(
        self, shape: Sequence[int], kind: Any = INT8, value: Any = None, *, scales: Any = None, axis: int = 0
    ) -> int:
        """Add a tensor; *kind* is a type, or type, scale and zero point; *value* makes it a constant."""
        name, *quantization = (kind,) if isinstance(kind, str) else kind
        tensor = schema.TensorT()
        tensor.shape, tensor.type, tensor.name = (
            list(shape),
            TYPES[name],
            f"t{len(self.graph.tensors)}".encode(),
        )
        if quantization or scales is not None:
            tensor.quantization = schema.QuantizationParametersT()
            tensor.quantization.scale = list(scales) if scales is not None else [quantization[0]]
            tensor.quantization.zeroPoint = [0] * len(scales) if scales is not None else [quantization[1]]
            tensor.quantization.quantizedDimension = axis
        if value is not None:
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(np.asarray(value, name).tobytes(), np.uint8)
            tensor.buffer = len(self.buffers)
            self.buffers.append(buffer)
        self.graph.tensors.append(tensor)
        return len(self.graph.tensors) - 1

    def weights(self, shape: Sequence[int], axis: int | None = None, kind: str = "int8") -> int:
        """Add random weights, with a scale for each index of *axis*."""
        value = RNG.integers(-100, 100, shape)
        scales = [0.02] if axis is None else RNG.uniform(0.01, 0.03, shape[axis])
        return self.tensor(shape, kind, value, scales=scales, axis=axis or 0)

    def add(
        self, op: str, inputs: Sequence[int], outputs: Sequence[int], options: str = "", **values: Any
    ) -> int:
        """Add an operator; return its first output."""
        code = schema.OperatorCodeT()
        code.builtinCode = getattr(schema.BuiltinOperator, op)
        code.deprecatedBuiltinCode, code.version = min(code.builtinCode, 127), VERSIONS.get(op, 2)
        operator = schema.OperatorT()
        operator.opcodeIndex, operator.inputs, operator.outputs = len(self.codes), list(inputs), list(outputs)
        self.codes.append(code)
        if options:
            operator.builtinOptionsType = getattr(schema.BuiltinOptions, options)
            operator.builtinOptions = getattr(schema, f"{options}T")()
            for name, value in values.items():
                setattr(operator.builtinOptions, name, value)
        self.graph.operators.append(operator)
        return outputs[0]

    def write(self, path: Path, inputs: Sequence[int], outputs: Sequence[int]) -> Path:
        self.graph.inputs, self.graph.outputs = list(inputs), list(outputs)
        model = schema.ModelT()
        model.version, model.subgraphs, model.operatorCodes = 3, [self.graph], self.codes
        model.buffers, model.description = self.buffers, b"test"
        path.write_bytes(packed(model))
        return path


def unpacked(path: Path) -> Any:
    return schema.ModelT.InitFromObj(schema.Model.GetRootAs(path.read_bytes(), 0))


def packed(model: Any) -> bytes:
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def as_newer_writers_do(path: Path) -> Path:
    """Write the model without the 8-bit codes of operators, and with its constants behind the flatbuffer."""
    model = unpacked(path)
    for code in model.operatorCodes:
        code.deprecatedBuiltinCode = 0
    values = {
        index: bytes(buffer.data) for index, buffer in enumerate(model.buffers) if buffer.data is not None
    }
    for index, value in values.items():
        model.buffers[index].data, model.buffers[index].offset = None, 2
        model.buffers[index].size = len(value)
    end = len(packed(model)) + 64  # any offset takes the same room
    behind = bytearray()
    for index, value in values.items():
        model.buffers[index].offset = end + len(behind)
        behind += value + bytes(-len(value) % 16)
    written = path.with_name(f"newer_{path.name}")
    written.write_bytes(packed(model).ljust(end, b"\0") + behind)
    return written


POOL = {"padding": VALID, "strideW": 2, "strideH": 2, "filterWidth": 2, "filterHeight": 2}
OUT = ("int8", 0.03, 5)
UNIT = ("int8", 1 / 256, -128)

OPERATORS: dict[str, tuple[str, dict[str, Any], Any, Sequence[int], Any, Any]] = {
    # name: operator, options' fields, options, output shape, output's quantization, other inputs
    "pad": ("PAD", {}, "PadOptions", (1, 6, 8, 3), INT8, [("int32", [[0, 0], [1, 1], [2, 2], [0, 0]])]),
    "transpose": ("TRANSPOSE", {}, "TransposeOptions", (1, 3, 4, 4), INT8, [("int32", [0, 3, 1, 2])]),
    "slice": (
        "STRIDED_SLICE", {}, "StridedSliceOptions", (1, 2, 4, 3), INT8,
        [("int32", [0, 1, 0, 0]), ("int32", [1, 3, 4, 3]), ("int32", [1, 1, 1, 1])],
    ),
    "average pool": ("AVERAGE_POOL_2D", POOL, "Pool2DOptions", (1, 2, 2, 3), INT8, []),
    "max pool": ("MAX_POOL_2D", POOL, "Pool2DOptions", (1, 2, 2, 3), INT8, []),
    "mean": ("MEAN", {"keepDims": True}, "ReducerOptions", (1, 1, 1, 3), OUT, [("int32", [1, 2])]),
    "resize": (
        "RESIZE_BILINEAR", {"halfPixelCenters": True}, "ResizeBilinearOptions", (1, 8, 8, 3), INT8, [("int32", [8, 8])],
    ),
    "nearest": ("RESIZE_NEAREST_NEIGHBOR", {}, "ResizeNearestNeighborOptions", (1, 8, 8, 3), INT8, [("int32", [8, 8])]),
    "nearest corners": (
        "RESIZE_NEAREST_NEIGHBOR", {"alignCorners": True}, "ResizeNearestNeighborOptions", (1, 7, 9, 3), INT8,
        [("int32", [7, 9])],
    ),
    "softmax": ("SOFTMAX", {"beta": 1.0}, "SoftmaxOptions", (1, 4, 4, 3), UNIT, []),
    "logistic": ("LOGISTIC", {}, "", (1, 4, 4, 3), UNIT, []),
    "tanh": ("TANH", {}, "", (1, 4, 4, 3), ("int8", 1 / 128, 0), []),
    "relu": ("RELU", {}, "", (1, 4, 4, 3), OUT, []),
    "relu6": ("RELU6", {}, "", (1, 4, 4, 3), OUT, []),
    "hard swish": ("HARD_SWISH", {}, "HardSwishOptions", (1, 4, 4, 3), OUT, []),
    "leaky relu": ("LEAKY_RELU", {"alpha": 0.2}, "LeakyReluOptions", (1, 4, 4, 3), OUT, []),
    "reshape": ("RESHAPE", {"newShape": [2, 24]}, "ReshapeOptions", (2, 24), INT8, [("int32", [2, 24])]),
    "requantize": ("QUANTIZE", {}, "QuantizeOptions", (1, 4, 4, 3), OUT, []),
    "dequantize": ("DEQUANTIZE", {}, "DequantizeOptions", (1, 4, 4, 3), "float32", []),
    "gather": ("GATHER", {"axis": 3}, "GatherOptions", (1, 4, 4, 2), INT8, [("int32", [2, 0])]),
    "space to batch": (
        "SPACE_TO_BATCH_ND", {}, "SpaceToBatchNDOptions", (6, 3, 2, 3), INT8,
        [("int32", [2, 3]), ("int32", [[1, 1], [0, 2]])],
    ),
    "gather nd": ("GATHER_ND", {}, "GatherNdOptions", (2, 4, 3), INT8, [("int32", [[0, 1], [0, 3]])]),
    "argmax": ("ARG_MAX", {"outputType": 2}, "ArgMaxOptions", (1, 4, 4), "int32", [("int32", 3)]),
}  # fmt: skip


def operator_model(name: str, path: Path) -> Path:
    """Write one operator on an int8 picture ``[1, 4, 4, 3]``."""
    model = Model()
    x = model.tensor((1, 4, 4, 3))
    if name in ("add", "sub", "mul"):
        y, out = model.tensor((1, 4, 4, 3), OUT), model.tensor((1, 4, 4, 3), ("int8", 0.08, 7))
        model.add(name.upper(), [x, y], [out], f"{name.capitalize()}Options")
        return model.write(path, [x, y], [out])
    if name == "concatenation":
        y, out = model.tensor((1, 4, 4, 2)), model.tensor((1, 4, 4, 5))
        model.add("CONCATENATION", [x, y], [out], "ConcatenationOptions", axis=3)
        return model.write(path, [x, y], [out])
    if name == "pack":
        y, out = model.tensor((1, 4, 4, 3)), model.tensor((1, 2, 4, 4, 3))
        model.add("PACK", [x, y], [out], "PackOptions", valuesCount=2, axis=1)
        return model.write(path, [x, y], [out])
    if name == "batch to space":
        x, out = model.tensor((6, 4, 4, 3)), model.tensor((1, 7, 10, 3))
        borders = [model.tensor((2,), "int32", [2, 3]), model.tensor((2, 2), "int32", [[1, 0], [0, 2]])]
        model.add("BATCH_TO_SPACE_ND", [x, *borders], [out], "BatchToSpaceNDOptions")
        return model.write(path, [x], [out])
    if name == "embedding lookup":
        rows, out = model.tensor((3,), "int32", [4, 0, 2]), model.tensor((3, 2), "float32")
        y, total = model.tensor((3, 2), "float32"), model.tensor((3, 2), "float32")
        model.add("EMBEDDING_LOOKUP", [rows, model.weights((5, 2))], [out])
        model.add("ADD", [out, y], [total], "AddOptions")
        return model.write(path, [y], [total])
    if name == "unpack":
        parts = [model.tensor((1, 4, 3)) for _ in range(4)]
        model.add("UNPACK", [x], parts, "UnpackOptions", num=4, axis=2)
        return model.write(path, [x], parts)
    if name == "split":
        parts = [model.tensor((1, 2, 4, 3)) for _ in range(2)]
        model.add("SPLIT", [model.tensor((), "int32", 1), x], parts, "SplitOptions", numSplits=2)
        return model.write(path, [x], parts)
    if name.startswith("transposed conv"):
        same = name.endswith("same")
        shape = (1, 8, 12, 6) if same else (1, 9, 14, 6)
        out = model.tensor(shape, ("int8", 0.5, 4))
        bias = model.tensor((6,), "int32", RNG.integers(-500, 500, 6), scales=[0.02 * INT8[1]] * 6)
        operands = [model.tensor((4,), "int32", shape), model.weights((6, 3, 4, 3), 0), x, bias]
        model.add("TRANSPOSE_CONV", operands, [out], "TransposeConvOptions", strideH=2, strideW=3,
                  padding=SAME if same else VALID)  # fmt: skip
        return model.write(path, [x], [out])
    if name in ("conv", "depthwise", "int16 conv"):
        kind = ("int16", 0.0002, 0) if name == "int16 conv" else INT8
        x = model.tensor((1, 4, 4, 3), kind)
        count = 3 if name == "depthwise" else 6
        out = model.tensor(
            (1, 4, 4, count), ("int16", 0.002, 0) if name == "int16 conv" else ("int8", 0.5, 4)
        )
        depthwise = name == "depthwise"
        weights = model.weights((1, 3, 3, 3) if depthwise else (6, 3, 3, 3), 3 if depthwise else 0)
        scales = [0.02 * kind[1]] * count
        bias = model.tensor(
            (count,),
            "int64" if name == "int16 conv" else "int32",
            RNG.integers(-500, 500, count),
            scales=scales,
        )
        more = {"depthMultiplier": 1} if depthwise else {}
        op, options = (
            ("DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions") if depthwise else ("CONV_2D", "Conv2DOptions")
        )
        model.add(op, [x, weights, bias], [out], options, padding=SAME, strideW=1, strideH=1,
                  dilationWFactor=1, dilationHFactor=1, fusedActivationFunction=1, **more)  # fmt: skip
        return model.write(path, [x], [out])
    if name in ("fully connected", "dynamic range"):
        floats = name == "dynamic range"
        x = model.tensor((2, 48), "float32" if floats else INT8)
        out = model.tensor((2, 5), "float32" if floats else ("int8", 0.5, 4))
        bias = model.tensor((5,), "float32", RNG.uniform(-1, 1, 5)) if floats else (
            model.tensor((5,), ("int32", 0.0008, 0), RNG.integers(-500, 500, 5))
        )  # fmt: skip
        model.add("FULLY_CONNECTED", [x, model.weights((5, 48)), bias], [out], "FullyConnectedOptions")
        return model.write(path, [x], [out])
    op, values, options, shape, kind, others = OPERATORS[name]
    constants = [model.tensor(np.shape(value), of, value) for of, value in others]
    out = model.tensor(shape, kind)
    model.add(op, [x, *constants], [out], options, **values)
    return model.write(path, [x], [out])


def network(path: Path) -> Path:
    """Write padded, strided, pointwise and depthwise convolutions, a residual, pools, a product.

    Scales are such that most quanta are used and few sums saturate.
    """
    model = Model()
    values = model.tensor((1, 17, 17, 3), "float32")
    picture = model.add("QUANTIZE", [values], [model.tensor((1, 17, 17, 3), ("int8", 1 / 128, 0))])

    def weighted(op: str, x: int, shape: Sequence[int], out: int, **options: Any) -> int:
        """Add an operator *op* by weights of *shape*, with a bias of the scales of sums."""
        axis = 3 if op == "DEPTHWISE_CONV_2D" else 0
        weights = model.weights(shape, axis)
        (scale,), of_weights = (model.graph.tensors[each].quantization.scale for each in (x, weights))
        scales = [scale * each for each in of_weights]
        bias = model.tensor((shape[axis],), "int32", RNG.integers(-500, 500, shape[axis]), scales=scales)
        form = {"FULLY_CONNECTED": "FullyConnectedOptions", "CONV_2D": "Conv2DOptions"}
        return model.add(op, [x, weights, bias], [out], form.get(op, "DepthwiseConv2DOptions"), **options)

    window = {"padding": SAME, "dilationWFactor": 1, "dilationHFactor": 1, "fusedActivationFunction": 1}
    halves, each = {"strideW": 2, "strideH": 2}, {"strideW": 1, "strideH": 1}
    kinds = [("int8", scale, zero) for scale, zero in ((0.05, -128), (0.2, -128), (0.4, 3), (0.4, -20))]
    first, spread, points, total = (model.tensor((1, 9, 9, 24), kind) for kind in kinds)
    weighted("CONV_2D", picture, (24, 3, 3, 3), first, **window, **halves)
    weighted("DEPTHWISE_CONV_2D", first, (1, 3, 3, 24), spread, depthMultiplier=1, **window, **each)
    weighted("CONV_2D", spread, (24, 1, 1, 24), points, **window | {"fusedActivationFunction": 0}, **each)
    model.add("ADD", [first, points], [total], "AddOptions", fusedActivationFunction=0)
    pooled = model.tensor((1, 4, 4, 24), kinds[3])
    model.add("MAX_POOL_2D", [total], [pooled], "Pool2DOptions", **POOL)
    flat = model.tensor((1, 24), ("int8", 0.4, -100))
    model.add("MEAN", [pooled, model.tensor((2,), "int32", [1, 2])], [flat], "ReducerOptions")
    scores = model.tensor((1, 10), ("int8", 2.0, 4))
    weighted("FULLY_CONNECTED", flat, (10, 24), scores)
    return model.write(path, [values], [scores])


NAMES = (
    *OPERATORS, "add", "sub", "mul", "concatenation", "pack", "split", "conv", "depthwise", "int16 conv",
    "fully connected", "dynamic range", "batch to space", "unpack", "embedding lookup",
    "transposed conv same", "transposed conv valid",
)  # fmt: skip
"""Names of :func:`operator_model`."""
