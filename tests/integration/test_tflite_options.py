"""Options of TFLite operators: converted as the interpreter computes them, or refused by name."""

import functools
import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tflite
from ai_edge_litert import schema_py_generated as schema
from test_importers import run_imported
from tvm.relax.frontend.tflite.tflite_frontend import OperatorConverter

from adt.compiler.importers.importer import import_model
from adt.compiler.importers.tflite.additions import ADDED
from adt.compiler.importers.tflite.converters import Converter
from adt.compiler.importers.tflite.file import UNREAD, model_of, schema_slots, unread_option
from adt.errors import UnsupportedOp
from support.models import tflite_options
from support.models.quantized_tflite import Model, packed, unpacked

CASES = list(tflite_options.cases())
EVERY = 8
"""One case of so many, and the last one, run every time, the rest by night."""
REFUSED = {
    "REVERSE_SEQUENCE": "reverse_sequence",
    "CONV_3D_TRANSPOSE": "no converter",
    "FAKE_QUANT": "FAKE_QUANT",
    "SPARSE_TO_DENSE": "no converter",
}
"""Operators without a converter that works → what the refusal names."""
WITHOUT_EFFECT = {
    # the kernels of the interpreter that round less or more; adt computes in floats
    "AsymmetricQuantizeInputs", "PotScaleInt16", "QuantizedBiasType",
    # the tensors state the same
    "ArgMaxOptions.OutputType", "ArgMinOptions.OutputType", "CastOptions.InDataType", "CastOptions.OutDataType",
    "DepthwiseConv2DOptions.DepthMultiplier", "ReshapeOptions.NewShape", "SplitVOptions.NumSplits",
    "TransposeConvOptions.Padding",
    # hints, and how attributes are written that the composed subgraph has in it
    "IndicesAreSorted", "PrecisionConfig", "UniqueIndices", "ValidateIndices",
    "StableHLOCompositeOptions.CompositeAttributes", "StableHLOCompositeOptions.CompositeAttributesFormat",
    "StableHLOCompositeOptions.Name", "StableHLOCompositeOptions.Version",
    # calls of "Sharding" alone are taken, which compute nothing
    "StablehloCustomCallOptions.ApiVersion", "StablehloCustomCallOptions.BackendConfig",
    "StablehloCustomCallOptions.CustomAttributes",
}  # fmt: skip
"""Options that change nothing in what adt computes, of one kind or of all."""


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            case,
            id=case.name,
            marks=[]
            if place % EVERY == 0 or case is CASES[-1] or case.name.startswith("MEAN int")
            else [pytest.mark.nightly],
        )
        for place, case in enumerate(CASES)
    ],
)
def test_options_as_the_interpreter_computes_them(case: tflite_options.Case, tmp_path: Path) -> None:
    """Compare outputs with the interpreter's, or find the operator named in the refusal."""
    path = tmp_path / "m.tflite"
    inputs, expected = tflite_options.write(case, path)
    if case.op in REFUSED:
        with pytest.raises(UnsupportedOp, match=REFUSED[case.op]):
            import_model(path, {})
        return
    outputs = run_imported(import_model(path, {}), inputs)
    for name, reference in expected.items():
        value = outputs[name]
        assert (value.shape, value.dtype) == (reference.shape, reference.dtype)
        quantized = isinstance(case.outputs[0], tuple)
        limit = 1e-5 * max(1, np.abs(reference).max()) if reference.dtype.kind == "f" else int(quantized)
        assert np.abs(value.astype(np.float64) - reference).max() <= limit


def kinds() -> list[str]:
    """List the classes of options in the schema that have options."""
    names = {**vars(tflite.BuiltinOptions), **vars(tflite.BuiltinOptions2)}
    return [name for name in names if isinstance(getattr(tflite, name, None), type) and schema_slots(name)]


@functools.cache
def sources() -> list[str]:
    """Return the source of each converter, with that of TVM's which it calls and of its helpers."""
    texts = [inspect.getsource(added) for added in ADDED.values() if inspect.isfunction(added)]
    for name, method in inspect.getmembers(Converter, inspect.isfunction):
        text = inspect.getsource(method)
        if f"super().{name}" in text:
            text += inspect.getsource(getattr(OperatorConverter, name))
        helpers = set(re.findall(r"self\.(_\w+)\(.*\boptions\)", text))
        texts.append(text + "".join(inspect.getsource(getattr(Converter, each)) for each in helpers))
    return texts


@pytest.mark.parametrize("kind", kinds())
def test_every_option_of_the_schema_is_read_or_refused(kind: str) -> None:
    from tvm import relax
    from tvm.relax.frontend.tflite.tflite_frontend import ExprTable

    converter = Converter(None, None, ExprTable(), relax.BlockBuilder())
    text = "\n".join(text for text in sources() if re.search(rf"\b{kind}\b", text))
    stem = kind.removesuffix("Options").lower()
    if not text and not any(op.replace("_", "").lower() == stem for op in converter.convert_map):
        return  # its operator has no converter, and is refused
    unread = {name for name in schema_slots(kind) if not re.search(rf"\b{name}(AsNumpy|Length)?\b", text)}
    unread -= {name for name in unread if name in WITHOUT_EFFECT or f"{kind}.{name}" in WITHOUT_EFFECT}
    assert unread == set(UNREAD.get(kind, ())), "an option that is neither read nor refused"


def refusal(path: Path, op: str, kind: str, **options: Any) -> str:
    """Return the refusal's text for a file with one operator of such options."""
    model = Model()
    tensor = model.tensor((1,), "float32")
    model.add(op, [tensor], [tensor], kind, **options)
    data = model.write(path, [tensor], [tensor]).read_bytes()
    return unread_option(model_of(data).Subgraphs(0).Operators(0))


@pytest.mark.parametrize("kind", UNREAD)
def test_options_that_no_converter_reads_are_named(kind: str, tmp_path: Path) -> None:
    for name in UNREAD[kind]:
        field = name[0].lower() + name[1:]
        assert name in refusal(tmp_path / "m.tflite", "ABS", kind, **{field: True})
        assert not refusal(tmp_path / "m.tflite", "ABS", kind, **{field: False})


def test_options_newer_than_the_schema_are_named(tmp_path: Path) -> None:
    """Report options of fully connected layers that the interpreter's schema has and this importer's lacks."""
    newer = schema.QuantizationSpecT() if hasattr(schema, "QuantizationSpecT") else [1]
    options = schema.FullyConnectedOptionsT()
    assert len(vars(options)) > len(schema_slots("FullyConnectedOptions"))
    text = refusal(tmp_path / "m.tflite", "FULLY_CONNECTED", "FullyConnectedOptions", quantSpec=newer)
    assert "option 5 of FullyConnectedOptions is newer than the schema" in text


@pytest.mark.parametrize(("shape", "kind"), [((2, 4), "float32"), ((3, 2), "float32"), ((2, 3), "int32")])
def test_a_tensor_that_differs_from_the_file_is_named(shape: Any, kind: str, tmp_path: Path) -> None:
    model = Model()
    x, y, z = model.tensor((2, 3), "float32"), model.tensor(shape, kind), model.tensor((2, 3), "float32")
    model.add("ABS", [x], [y])
    model.add("ABS", [x], [z])
    path = model.write(tmp_path / "m.tflite", [x], [y, z])
    text = rf"ABS \(output 0 becomes float32 \[2, 3\], and is {kind} \[{shape[0]}, {shape[1]}\] in the file; node \(gives t1\)"
    with pytest.raises(UnsupportedOp, match=text):
        import_model(path, {})


def test_extents_that_the_writer_left_open_are_inferred(tmp_path: Path) -> None:
    """Infer extents for which writers state 1."""
    model = Model()
    x, y, z = (model.tensor((1, extent, extent, 1), "float32") for extent in (2, 1, 1))
    model.graph.tensors[x].shapeSignature = [1, -1, -1, 1]
    size = model.tensor((2,), "int32", [4, 5])
    model.add("RESIZE_BILINEAR", [x, size], [y], "ResizeBilinearOptions")
    model.add("ABS", [y], [z])
    imported = import_model(model.write(tmp_path / "m.tflite", [x], [z]), {})
    assert imported.outputs[0].shape == (1, 4, 5, 1)


def test_composites_are_converted_by_the_same_rules(tmp_path: Path) -> None:
    """Refuse options of the operators inside a composite, too."""
    model = Model()
    x, y = model.tensor((2, 3), "float32"), model.tensor((2, 3), "float32")
    model.add("SOFTMAX", [x], [y], "SoftmaxOptions", beta=2.0)
    path = model.write(tmp_path / "m.tflite", [x], [y])
    whole = unpacked(path)
    (inner,) = whole.subgraphs
    outer = unpacked(path).subgraphs[0]
    code = schema.OperatorCodeT()
    code.builtinCode, code.deprecatedBuiltinCode = schema.BuiltinOperator.STABLEHLO_COMPOSITE, 127
    code.version = 1
    whole.operatorCodes.append(code)
    (operator,) = outer.operators
    operator.opcodeIndex, operator.builtinOptionsType, operator.builtinOptions = 1, 0, None
    operator.builtinOptions2Type = schema.BuiltinOptions2.StableHLOCompositeOptions
    operator.builtinOptions2 = schema.StableHLOCompositeOptionsT()
    operator.builtinOptions2.name, operator.builtinOptions2.decompositionSubgraphIndex = b"test", 1
    operator.builtinOptions2.compositeAttributes = [1, 2, 3]
    whole.subgraphs = [outer, inner]
    path.write_bytes(packed(whole))
    inputs = {"t0": np.array([[0.1, 0.5, -1], [2, 0, 1]], "float32")}
    (value,) = run_imported(import_model(path, {}), inputs).values()
    powers = np.exp(2 * inputs["t0"])
    assert np.abs(value - powers / powers.sum(1, keepdims=True)).max() <= 1e-6


@pytest.mark.parametrize("segment", [-1, 3])
@pytest.mark.parametrize("op", ["MAX", "MIN", "PROD", "SUM"])
def test_a_row_of_no_segment_is_refused(op: str, segment: int, tmp_path: Path) -> None:
    """Refuse a row that would be written to other memory."""
    model = Model()
    x, y = model.tensor((2, 3), "float32"), model.tensor((3, 3), "float32")
    places, count = model.tensor((2,), "int32", [0, segment]), model.tensor((), "int32", 3)
    model.add(f"UNSORTED_SEGMENT_{op}", [x, places, count], [y], f"UnsortedSegment{op.title()}Options")
    with pytest.raises(UnsupportedOp, match="belongs to none of 3 segments"):
        import_model(model.write(tmp_path / "m.tflite", [x], [y]), {})


@pytest.mark.parametrize("adding", ["ADD", "STABLEHLO_ADD"])
def test_sums_over_windows_of_channels(adding: str, tmp_path: Path) -> None:
    """Compute PyTorch's local response normalization as it is exported."""
    model = Model()
    x, start, y = (
        model.tensor((1, 6, 2), "float32"),
        model.tensor((), "float32", 0.0),
        model.tensor((1, 3, 2), "float32"),
    )
    model.add("SOFTMAX", [x, start], [y], "SoftmaxOptions")
    path = model.write(tmp_path / "m.tflite", [x], [y])
    added = Model()
    a, b, total = (added.tensor((), "float32") for _ in range(3))
    added.add("SOFTMAX", [a, b], [total], "SoftmaxOptions")
    whole, body = (
        unpacked(path),
        unpacked(added.write(tmp_path / "body.tflite", [a, b], [total])).subgraphs[0],
    )
    names = ("STABLEHLO_REDUCE_WINDOW", adding)
    for number, (name, (operator,)) in enumerate(
        zip(names, (whole.subgraphs[0].operators, body.operators), strict=True)
    ):
        code = schema.OperatorCodeT()
        code.builtinCode, code.version = getattr(schema.BuiltinOperator, name), 1
        code.deprecatedBuiltinCode = min(code.builtinCode, 127)
        whole.operatorCodes.append(code)
        operator.opcodeIndex, operator.builtinOptionsType, operator.builtinOptions = number + 1, 0, None
    (operator,) = whole.subgraphs[0].operators
    operator.builtinOptions2Type = schema.BuiltinOptions2.StablehloReduceWindowOptions
    options = operator.builtinOptions2 = schema.StablehloReduceWindowOptionsT()
    options.windowDimensions, options.windowStrides = [1, 3, 1], [1, 2, 1]
    options.baseDilations = options.windowDilations = [1, 1, 1]
    options.padding, options.bodySubgraphIndex = [0, 0, 1, 0, 0, 0], 1
    whole.subgraphs.append(body)
    path.write_bytes(packed(whole))
    inputs = {"t0": np.arange(12, dtype=np.float32).reshape(1, 6, 2)}
    (value,) = run_imported(import_model(path, {}), inputs).values()
    padded = np.pad(inputs["t0"], ((0, 0), (1, 0), (0, 0)))
    np.testing.assert_array_equal(value, np.stack([padded[:, at : at + 3].sum(1) for at in (0, 2, 4)], 1))


@pytest.mark.parametrize("op", ["RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL"])
def test_random_numbers_are_no_constants(op: str, tmp_path: Path) -> None:
    model = Model()
    x, y, z = (model.tensor((2, 3), "float32") for _ in range(3))
    model.add(op, [model.tensor((2,), "int32", [2, 3])], [y], "RandomOptions", seed=1)
    model.add("ADD", [x, y], [z], "AddOptions")
    with pytest.raises(UnsupportedOp, match=rf"{op} \(random"):
        import_model(model.write(tmp_path / "m.tflite", [x], [z]), {})
