"""Operators on every element type that their schemas allow: right, or refused by operator, node and type."""

import itertools
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from adt.compiler.importers.element_types import with_kernels_of_their_types
from adt.compiler.importers.importer import explain_model, import_model
from adt.compiler.importers.onnx.preparation import prepare
from adt.errors import UnsupportedOp
from support.models.imported import run_imported
from support.models.onnx_graphs import f32, node, write
from support.sampling import matrix

INTEGERS = tuple(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64))
FLOATS = ("float16", "float32", "float64")
COMPARES = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
UNCOMPUTED = (
    "BFLOAT16", "FLOAT4E2M1", "FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ", "FLOAT8E8M0",
    "INT2", "INT4", "UINT2", "UINT4",
)  # fmt: skip

MICROSOFT = "com.microsoft"


def number(dtype: str) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def model(
    nodes: list[Any], inputs: dict[str, Any], outputs: dict[str, int], constants: Any = (), opset: int = 24
) -> onnx.ModelProto:
    """Build a model with *inputs* like these arrays and *outputs* of these types (another domain's: as x)."""
    infos = [helper.make_tensor_value_info(name, number(str(x.dtype)), x.shape) for name, x in inputs.items()]
    results = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()]
    graph = helper.make_graph(nodes, "typed", infos, results, list(constants))
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
    inferred = onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=opsets, ir_version=10)
    )
    for value in inferred.graph.output:
        if not value.type.tensor_type.HasField("shape"):
            value.type.tensor_type.shape.CopyFrom(inferred.graph.input[0].type.tensor_type.shape)
    return inferred


def check(proto: onnx.ModelProto, inputs: dict[str, Any], path: Path, *, by_numpy: bool = False) -> None:
    """Compare with onnxruntime, or with ONNX's reference where that has no kernel."""
    write(proto, path)
    runner = ReferenceEvaluator(proto) if by_numpy else onnxruntime.InferenceSession(str(path))
    expected = runner.run(None, inputs)
    outputs = run_imported(import_model(path, {}), inputs)
    for value, reference in zip(outputs.values(), expected, strict=True):
        np.testing.assert_array_equal(value, reference, strict=True)


def extreme(dtype: str) -> tuple[Any, Any]:
    """Return two operands with the extremes of *dtype* and equal elements, and one of the extremes."""
    if dtype == "bool":
        return np.array([True, False, True, False]), np.array([True, True, False, False])
    limits = np.iinfo(dtype) if dtype in INTEGERS else np.finfo(dtype)
    x = np.array([limits.max, limits.min, 3, 5, limits.max], dtype)
    return x, np.array([limits.min, limits.max, 3, 7, limits.max], dtype)


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS, "bool"])
def test_comparisons(dtype: str, tmp_path: Path) -> None:
    """Compare two inputs, and one with a scalar: those of uint64 may exceed int64."""
    x, y = extreme(dtype)
    top = onnx.numpy_helper.from_array(x.max(), "top")
    names = COMPARES if dtype != "bool" else COMPARES[:1]
    nodes = [node(op, ["x", other], [f"{op}_{other}"]) for op in names for other in ("y", "top")]
    results = {each.output[0]: int(TensorProto.BOOL) for each in nodes}
    check(model(nodes, {"x": x, "y": y}, results, [top], 19), {"x": x, "y": y}, tmp_path / "compare.onnx")


def test_scalars_beyond_int64(tmp_path: Path) -> None:
    x = extreme("uint64")[0]
    top, inputs = onnx.numpy_helper.from_array(np.uint64(2**64 - 3), "top"), {"x": x, "c": x > 4}
    nodes = [node(op, ["x", "top"], [op]) for op in ("Add", "Max", "Min", "Mul", "Sub")]
    nodes.append(node("Where", ["c", "x", "top"], ["Where"]))
    outputs = dict.fromkeys((each.op_type for each in nodes), int(TensorProto.UINT64))
    check(model(nodes, inputs, outputs, [top], 19), inputs, tmp_path / "beyond.onnx", by_numpy=True)


@pytest.mark.parametrize("dtype", ["int32", "int64", *FLOATS[1:]])
def test_running_sums(dtype: str, tmp_path: Path) -> None:
    x, axis = np.arange(-6, 6).reshape(3, 4).astype(dtype), onnx.numpy_helper.from_array(np.array(1), "axis")
    sums = node("CumSum", ["x", "axis"], ["y"])
    check(model([sums], {"x": x}, {"y": number(dtype)}, [axis], 14), {"x": x}, tmp_path / "sums.onnx")


@pytest.mark.parametrize(
    ("dtype", "way"),
    matrix(
        [None, "int32", "int64", "float32", "bool"],
        itertools.product(["cumsum", "cumprod"], [False, True]),
    ),
)
def test_running_sums_of_booleans(dtype: str | None, way: tuple[str, bool]) -> None:
    """Sum to int64 if no type is given, as numpy and PyTorch do."""
    import tvm
    from tvm import relax

    scan, exclusive = way
    x = np.random.default_rng(5).random((3, 9)) > 0.3
    builder, operand = relax.BlockBuilder(), relax.Var("x", relax.TensorStructInfo(x.shape, "bool"))
    with builder.function("main", [operand]):
        with builder.dataflow():
            scanned = builder.emit(getattr(relax.op, scan)(operand, 1, dtype, exclusive=exclusive))
            out = builder.emit_output(scanned)
        builder.emit_func_output(out)
    machine = relax.VirtualMachine(
        tvm.compile(with_kernels_of_their_types(builder.get()), tvm.target.Target({"kind": "llvm"})),
        tvm.cpu(),
    )
    expected = getattr(np, scan)(x, 1, "int64")
    if exclusive:
        first = np.full((3, 1), int(scan == "cumprod"))
        expected = np.concatenate([first, expected[:, :-1]], 1)
    np.testing.assert_array_equal(
        machine["main"](tvm.runtime.tensor(x)).numpy(), expected.astype(dtype or "int64"), strict=True
    )


def uses(name: str) -> Iterator[tuple[str, list[Any], list[Any]]]:
    """Yield, for activations of a type, the operator that is refused, the nodes, and constants."""
    kind = getattr(TensorProto, name)
    cast = node("Cast", ["c"], ["y"], to=TensorProto.FLOAT)
    yield "Cast", [node("Cast", ["x"], ["c"], name="narrow", to=kind), cast], []
    if name != "BFLOAT16":
        zero, scale = helper.make_tensor("z", kind, [], [0]), helper.make_tensor("s", 1, [], [0.1])
        back = node("DequantizeLinear", ["c", "s"], ["y"])
        yield (
            "QuantizeLinear",
            [node("QuantizeLinear", ["x", "s", "z"], ["c"], name="narrow"), back],
            [scale, zero],
        )
        plain = node("QuantizeLinear", ["x", "s"], ["c"], name="narrow", output_dtype=kind)
        yield "QuantizeLinear", [plain, back], [scale]


@pytest.mark.parametrize("name", UNCOMPUTED)
def test_activations_in_which_nothing_computes_are_refused_by_name(name: str, tmp_path: Path) -> None:
    dtype = str(helper.tensor_dtype_to_np_dtype(getattr(TensorProto, name)))
    for op, nodes, constants in uses(name):
        path = write(model(nodes, {"x": f32(2, 6)}, {"y": 1}, constants), tmp_path / "narrow.onnx")
        with pytest.raises(UnsupportedOp, match=rf"{op} \(nothing computes in {dtype}: .*narrow"):
            import_model(path, {})
        assert (op, "unsupported") in [(row.op, row.status) for row in explain_model(path, {}).ops]


@pytest.mark.parametrize("name", UNCOMPUTED)
def test_weights_of_such_types_become_floats(name: str, tmp_path: Path) -> None:
    kind = getattr(TensorProto, name)
    weights = helper.make_tensor("w", kind, [4, 6], [0, 1] * 12)
    if name == "BFLOAT16":
        float_weights, constants = node("Cast", ["w"], ["f"], to=TensorProto.FLOAT), [weights]
    else:
        constants = [weights, onnx.numpy_helper.from_array(np.array([1, 2, 3, 4], np.float32), "s")]
        float_weights = node("DequantizeLinear", ["w", "s"], ["f"], axis=0)
    x = f32(4, 6)
    path = write(
        model([float_weights, node("Add", ["x", "f"], ["y"])], {"x": x}, {"y": 1}, constants),
        tmp_path / "w.onnx",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (expected,) = ReferenceEvaluator(onnx.load(path)).run(None, {"x": x})
    np.testing.assert_allclose(run_imported(import_model(path, {}), {"x": x})["y"], expected, rtol=1e-6)


DEPTH = 70
"""Levels, beyond the passes in which operators without inferred types were rewritten one after another."""


def pairs(dtype: str, extents: tuple[int, ...], depth: int, wraps: str = "Sigmoid") -> onnx.ModelProto:
    """Build a chain of quantize, dequantize and *wraps*, with scales for each channel, [1] or a scalar."""
    scale = np.full(extents, 2**-6, np.float32) * (1 + np.arange(np.prod(extents)).reshape(extents))
    zero = np.full(extents, 3, dtype)
    constants = [
        onnx.numpy_helper.from_array(value, name) for name, value in (("s", scale.astype("f4")), ("z", zero))
    ]
    nodes, x = [], "x"
    for level in range(depth):
        q, d, y = (f"{name}{level}" for name in "qdy")
        nodes.append(node("QuantizeLinear", [x, "s", "z"], [q], domain=MICROSOFT, axis=1))
        nodes.append(node("DequantizeLinear", [q, "s", "z"], [d], domain=MICROSOFT, axis=1))
        nodes.append(node(wraps, [d], [y], domain=MICROSOFT if wraps == "Gelu" else ""))
        x = y
    return model(nodes, {"x": f32(2, 4, 5)}, {x: 1}, constants, 17)


@pytest.mark.parametrize(("dtype", "extents"), matrix(["int8", "uint8", "int16", "uint16"], [(), (1,), (4,)]))
def test_quantized_activations_of_com_microsoft(dtype: str, extents: tuple[int, ...], tmp_path: Path) -> None:
    proto, inputs = pairs(dtype, extents, 3), {"x": f32(2, 4, 5)}
    options = onnxruntime.SessionOptions()  # it cannot fuse those of a scale for each channel, and fails
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    (expected,) = onnxruntime.InferenceSession(proto.SerializeToString(), options).run(None, inputs)
    (output,) = run_imported(import_model(write(proto, tmp_path / "q.onnx"), {}), inputs).values()
    np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("wraps", ["Sigmoid", "Gelu"])
def test_chains_of_com_microsoft_are_rewritten_to_their_end(wraps: str) -> None:
    """Rewrite also where the first rewritten node tells the types of what follows."""
    prepared = prepare(pairs("uint16", (), DEPTH, wraps), "deep.onnx")
    assert {each.domain for each in prepared.model.graph.node} == {""}
    assert set(prepared.rewritten) >= {f"{MICROSOFT}::{op}Linear" for op in ("Quantize", "Dequantize")}


def test_weights_in_blocks_of_4_bits_become_no_floats() -> None:
    """Keep them for MatMulNBits; leave out what unpacked them, and do not fold it."""
    scale = onnx.numpy_helper.from_array(np.ones((2, 8), np.float32), "s")
    weights = helper.make_tensor("w", TensorProto.INT4, [64, 8], [1, -2] * 256)
    nodes = [
        node("DequantizeLinear", ["w", "s"], ["f"], axis=0, block_size=32),
        node("MatMul", ["x", "f"], ["y"]),
    ]
    proto = model(nodes, {"x": f32(3, 64)}, {"y": 1}, [weights, scale], 21)
    prepared = prepare(proto, "blocks.onnx", blockwise=True)
    assert [each.op_type for each in prepared.model.graph.node] == ["MatMulNBits"]
    assert 64 * 8 not in [np.prod(tensor.dims) for tensor in prepared.model.graph.initializer]
