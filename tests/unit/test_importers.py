"""Importing: shapes, formats, the op table, and each rewriting against onnxruntime and in TVM."""

import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from adt.compiler.importers import formats
from adt.compiler.importers.importer import explain_model, import_model
from adt.compiler.importers.onnx import comparison
from adt.compiler.importers.onnx import preparation as preparing
from adt.compiler.importers.onnx.blockwise import MATMUL_N_BITS
from adt.compiler.importers.onnx.comparison import Runner
from adt.compiler.importers.onnx.converters import CONVERTERS
from adt.compiler.importers.onnx.file import OF_ONNXRUNTIME, declared_inputs, read_onnx
from adt.compiler.importers.onnx.graph import Builder, Graph, Rewrite, op_name
from adt.compiler.importers.onnx.preparation import prepare
from adt.compiler.importers.onnx.rewrites import REWRITES
from adt.compiler.importers.onnx.support import unsupported_ops
from adt.compiler.importers.shapes import fixed_shapes
from adt.compiler.passes.cpu.recurrence import CpuSteps
from adt.errors import ModelError, ToolNotFound, UnsupportedOp
from adt.host import extras
from adt.host.extras import install_command
from adt.package.inputs.random import random_inputs
from adt.package.manifest import TensorSpec
from support.models import microsoft as microsoft_graphs
from support.models import onnx_graphs
from support.models.blockwise import matmul_n_bits
from support.models.onnx_graphs import INT8, INT64, graph_of, node, recurrent, write
from support.models.quantized_onnx import written_by_onnxruntime


def ops(model: onnx.ModelProto) -> set[str]:
    return {n.op_type for n in model.graph.node}


# Shapes


def test_a_symbol_that_is_given_once_holds_everywhere() -> None:
    declared = {"x": ("batch", "time", 4), "state": (2, "batch", 8), "rate": ()}
    assert fixed_shapes(declared, {"x": (3, 7, 4)}) == {"x": (3, 7, 4), "state": (2, 3, 8), "rate": ()}


def test_dimensions_without_a_symbol_are_each_their_own() -> None:
    assert fixed_shapes({"x": (1, "", "")}, {"x": (1, 48, 192)}) == {"x": (1, 48, 192)}


def test_random_inputs_without_dimensions_are_arrays() -> None:
    """Give a sample rate, int64[], as an array: onnxruntime refuses numpy's scalars."""
    inputs = random_inputs([TensorSpec("sr", (), "int64"), TensorSpec("g", (), "float32")], 1)
    assert all(isinstance(value, np.ndarray) and value.shape == () for value in inputs.values())


def test_an_extent_of_zero_is_no_open_dimension(tmp_path: Path) -> None:
    """Take only an extent below 0 for open, as onnxruntime does."""
    nodes = [node("Concat", ["past", "x"], ["y"], axis=1)]
    path = write(graph_of(nodes, {"past": (1, 0, 4), "x": (1, 2, 4)}, ["y"]), tmp_path / "m.onnx")
    with pytest.raises(ModelError, match=r"input 'past' has no elements: its shape is 1,0,4") as refused:
        import_model(path, {})
    assert "--shape past:1,0,4" in refused.value.remedy
    assert [spec.name for spec in import_model(path, {"past": (1, 0, 4)}).unused] == ["past"]
    with pytest.raises(ModelError, match="does not fit the model's 1,0,4"):
        import_model(path, {"past": (1, 3, 4)})
    model = graph_of(nodes, {"past": (1, -1, 4), "x": (1, 2, 4)}, ["y"])
    assert declared_inputs(model)["past"] == (1, "", 4)


# Formats


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.onnx", b"", "is empty"),
        ("a.tflite", b"hello, this is a text" * 9, "is no tflite model"),
        ("a.bin", b"\x00" * 99, "of a format that adt does not read"),
        ("a.pt", b"\x80\x02\x8a\nl\xfc\x9c", "pickled Python objects"),
        ("a.keras", b"PK\x03\x04 and then nothing", "truncated or damaged"),
        ("a.h5", b"nothing of the kind" * 9, "is no keras model"),
        ("m.onnx", b"\x1c\x00\x00\x00TFL3" + bytes(60), "is a tflite model, and its name does not say so"),
        ("m.onnx", formats.HDF5 + bytes(60), "is a keras model, and its name does not say so"),
        ("m.tflite", formats.HDF5 + bytes(60), "is a keras model, and its name does not say so"),
        ("m.relax", b"\x08\x08:" + bytes(60), "is no relax model"),
        ("m.pt2", b"\x08\x08:" + bytes(60), "is no torch model"),
    ],
)
def test_what_is_no_model_is_refused(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ModelError, match=message):
        formats.format_of(tmp_path / name)


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        (("config.json", "metadata.json", "model.weights.h5"), formats.KERAS),
        (("m/models/model.json", "m/data/weights/weight_0"), formats.TORCH),
        (("m/data.pkl", "m/version"), None),
    ],
)
def test_archives_are_told_apart_by_their_members(
    tmp_path: Path, members: tuple[str, ...], expected: str | None
) -> None:
    path = tmp_path / ("some.pt2" if expected == formats.TORCH else "some.file")
    with zipfile.ZipFile(path, "w") as archive:
        for member in members:
            archive.writestr(member, "x")
    if expected is None:
        with pytest.raises(ModelError, match="TorchScript or pickled weights"):
            formats.format_of(path)
    else:
        assert formats.format_of(path) == expected


def test_content_tells_where_the_suffix_does_not(tmp_path: Path) -> None:
    path = write(graph_of([node("Relu", ["x"], ["y"])], {"x": (1, 2)}, ["y"]), tmp_path / "model.bin")
    assert formats.format_of(path) == formats.ONNX


def test_callables_are_told_from_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert formats.is_callable(Path("package.module:make"))
    assert not formats.is_callable("model.onnx") and not formats.is_callable("a b:c")
    Path("here:it").touch()
    assert not formats.is_callable("here:it")


def test_a_missing_extra_is_asked_for_by_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(extras.EXTRAS, "torch", ("no_such_module_of_torch",))
    with pytest.raises(ToolNotFound, match="needs the Python package no-such-module-of-torch") as raised:
        extras.need("torch", "reading a .pt2 file")
    assert raised.value.remedy == install_command(extra="torch")


def test_a_file_of_before_2019_may_have_weights_that_are_no_inputs(tmp_path: Path) -> None:
    """Take weights that are no inputs, as onnxruntime does; onnx.checker does not."""
    weight = numpy_helper.from_array(np.ones((2, 3), np.float32), "w")
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "w"], ["y"])],
        "old",
        [value("x", TensorProto.FLOAT, [2, 3])],
        [value("y", TensorProto.FLOAT, [2, 3])],
        [weight],
    )
    model = helper.make_model(graph, ir_version=3, opset_imports=[helper.make_opsetid("", 7)])
    (tmp_path / "old.onnx").write_bytes(model.SerializeToString())
    assert read_onnx(tmp_path / "old.onnx").graph.node[0].op_type == "Mul"


# Rewrites


GRAPHS = onnx_graphs.GRAPHS | microsoft_graphs.GRAPHS


@pytest.mark.parametrize("name", GRAPHS)
def test_what_is_rewritten_computes_the_same(name: str) -> None:
    op, make = GRAPHS[name]
    model = make()
    if op not in OF_ONNXRUNTIME:
        onnx.checker.check_model(model)
    alone, done = preparing._apply(model, {op})
    assert op in done, "this graph needs the rewriting"
    onnx.checker.check_model(alone)
    runner = Runner(model)
    assert runner.reason == "" and runner.difference(alone, preparing._observed(model, done)) == ""


def test_every_rewriting_has_a_graph_here() -> None:
    assert set(REWRITES) == {op for op, _ in GRAPHS.values()}


def _negated(build: Builder) -> str:
    return build.add("Neg", build.operand(0))


@pytest.mark.parametrize("ir_version", [9, 1000])
def test_a_wrong_rewriting_is_dropped_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, ir_version: int
) -> None:
    """Keep the others; with a newer IR than onnxruntime reads, onnx confirms them."""
    monkeypatch.setitem(REWRITES, "HardSwish", Rewrite("HardSwish", "Neg", "a mistake", _negated))
    nodes = [node("HardSwish", ["x"], ["a"]), node("HardSigmoid", ["a"], ["y"])]
    model = graph_of(nodes, {"x": (2, 30)}, ["y"])
    model.ir_version = ir_version
    prepared = prepare(model, "m.onnx")
    assert ops(prepared.model) >= {"HardSwish", "Max", "Min"}
    assert set(prepared.rewritten) == {"HardSigmoid"}
    assert "the rewriting of HardSwish is not used" in caplog.text and "to confirm" not in caplog.text


def test_a_wrong_simplification_is_dropped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import onnxslim

    def wrong(model: onnx.ModelProto) -> onnx.ModelProto:
        model.graph.node[0].op_type = "Neg"
        return model

    monkeypatch.setattr(onnxslim, "slim", wrong)
    prepared = prepare(graph_of([node("Relu", ["x"], ["y"])], {"x": (2, 3)}, ["y"]), "m.onnx")
    assert ops(prepared.model) == {"Relu"}
    assert "what onnxslim made of m.onnx is not used: y: differs" in caplog.text


def test_functions_of_functions_are_written_out_with_their_defaults_and_constants() -> None:
    """Inline the loss, which NegativeLogLikelihoodLoss defines, with defaults that the inliner does not know."""
    loss = node("SoftmaxCrossEntropyLoss", ["x", "label", ""], ["y"], ignore_index=-1)
    model = graph_of([loss], {"x": (3, 5)}, ["y"], {"label": np.array([1, -1, 4])})
    prepared = prepare(model, "m.onnx")
    assert unsupported_ops(prepared.model) == {}
    assert set(prepared.rewritten) >= {"SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"}
    assert Runner(model).difference(prepared.model) == ""


def test_what_nothing_can_run_is_rewritten_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    nodes = [node("HardSigmoid", ["x"], ["a"]), node("NoSuchOperator", ["a"], ["y"], domain="of.nobody")]
    prepared = prepare(graph_of(nodes, {"x": (2, 30)}, ["y"], domain="of.nobody"), "m.onnx")
    assert "HardSigmoid" not in ops(prepared.model)
    assert "nothing here can run m.onnx to confirm what is rewritten in it: onnxruntime: " in caplog.text


def test_the_reference_is_given_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "REFERENCE_SECONDS", -1.0)
    with pytest.raises(TimeoutError, match="longer than"):
        comparison.run_reference(
            graph_of([node("Relu", ["x"], ["y"])], {"x": (1,)}, ["y"]), {"x": np.ones(1)}
        )


def test_what_rewriting_leaves_over_is_no_parameter(tmp_path: Path) -> None:
    path = write(recurrent("LSTM", 4), tmp_path / "lstm.onnx")
    used = import_model(path, {}).module.script()
    assert all(f"{name}:" in used for name in import_model(path, {}).params)
    assert not {"w", "r", "b"} & set(import_model(path, {}).params)
    assert not {"w", "r", "b"} & set(import_model(path, {}, CpuSteps()).params)


def test_a_recurrent_layer_is_one_kernel_where_each_of_its_kind_can_be(tmp_path: Path) -> None:
    path = write(recurrent("LSTM", 4, direction="bidirectional"), tmp_path / "lstm.onnx")
    imported = import_model(path, {}, CpuSteps())
    assert imported.module.script().count("call_tir(cls.lstm") == 1
    assert [(row.op, row.note) for row in imported.ops if row.op == "LSTM"] == [("LSTM", "converted by adt")]
    other = write(recurrent("GRU", 3, activations=["Sigmoid", "Relu"]), tmp_path / "gru.onnx")
    assert "call_tir(cls.gru" not in import_model(other, {}, CpuSteps()).module.script()


def test_weights_of_few_bits_stay_so_where_they_can(tmp_path: Path) -> None:
    path = write(matmul_n_bits((2, 3), 128, 72, 4, 32, zeros=True), tmp_path / "few.onnx")
    imported = import_model(path, {}, blockwise=True)
    assert imported.module.script().count("call_tir(cls.matmulnbits") == 1
    assert {str(value.dtype) for value in imported.params.values()} == {"uint8", "float32"}
    row = next(row for row in imported.ops if row.op == MATMUL_N_BITS)
    assert (row.status, row.note) == ("supported", "converted by adt")
    assert {str(value.dtype) for value in import_model(path, {}).params.values()} == {"float32"}

    scaled = matmul_n_bits((2,), 64, 24, 4, 32)
    for tensor in scaled.graph.initializer:  # no kernel reads scales of another type
        if tensor.name == "s":
            tensor.data_type = TensorProto.FLOAT16
            tensor.raw_data = np.ones(48, np.float16).tobytes()
    assert MATMUL_N_BITS not in prepare(scaled, "half.onnx", blockwise=True).kept


def test_shapes_behind_weights_of_few_bits_are_known() -> None:
    prepared = prepare(matmul_n_bits((2, 3), 64, 24, 4, 32), "few.onnx", blockwise=True)
    graph = Graph(prepared.model, prepared.model.graph)
    (product,) = (each for each in prepared.model.graph.node if op_name(each) == MATMUL_N_BITS)
    assert graph.shape(product.output[0]) == (2, 3, 24) and graph.dtype(product.output[0]) == "float32"
    assert not onnx.defs.has("MatMulNBits", "com.microsoft"), "only while a model is prepared"


def test_a_model_for_one_processor_says_how_to_write_it_for_all(tmp_path: Path) -> None:
    rows = explain_model(written_by_onnxruntime("convolutions", "all", tmp_path), {}).ops
    notes = [row.note for row in rows if row.op == "com.microsoft.nchwc::Conv"]
    assert notes and "ORT_ENABLE_EXTENDED" in notes[0]


# What cannot be imported


def test_the_table_says_what_is_unsupported_and_where(tmp_path: Path) -> None:
    nodes = [node("RandomNormalLike", ["x"], ["d"], name="the_chance"), node("Relu", ["d"], ["y"])]
    path = write(graph_of(nodes, {"x": (1, 3, 3)}, ["y"]), tmp_path / "det.onnx")
    explanation = explain_model(path, {})
    assert [(row.op, row.count, row.status) for row in explanation.ops] == [
        ("RandomNormalLike", 1, "unsupported"),
        ("Relu", 1, "supported"),
    ]
    assert "the_chance" in explanation.ops[0].note and explanation.exit_code == 9
    with pytest.raises(UnsupportedOp, match="RandomNormalLike"):
        import_model(path, {})


BOOL = TensorProto.BOOL
RANDOM_NODES = {
    "RandomNormal": [node("RandomNormal", [], ["r"], shape=[1, 3], seed=1.0)],
    "RandomUniform": [node("RandomUniform", [], ["r"], shape=[1, 3])],
    "RandomUniformLike": [node("RandomUniformLike", ["x"], ["r"])],
    "Bernoulli": [node("Bernoulli", ["x"], ["r"])],
    "Multinomial": [
        node("Multinomial", ["x"], ["drawn"], sample_size=3),
        node("Cast", ["drawn"], ["r"], to=TensorProto.FLOAT),
    ],
    "Dropout": [
        node("Constant", [], ["ratio"], value_float=0.5),
        node("Constant", [], ["training"], value=helper.make_tensor("", BOOL, (), [True])),
        node("Dropout", ["x", "ratio", "training"], ["r"]),
    ],
}
"""Nodes that give ``r``, random numbers of shape [1, 3], by the operator that does."""


@pytest.mark.parametrize("op", RANDOM_NODES)
def test_random_numbers_are_no_constants(op: str, tmp_path: Path) -> None:
    """Refuse them: a package would have the same numbers in each run."""
    path = write(
        graph_of([*RANDOM_NODES[op], node("Add", ["x", "r"], ["y"])], {"x": (1, 3)}, ["y"]),
        tmp_path / "r.onnx",
    )
    with pytest.raises(UnsupportedOp, match=rf"{op} \((random|it drops values at random)"):
        import_model(path, {})


def test_random_numbers_in_a_branch_are_no_constants(tmp_path: Path) -> None:
    branches = {
        f"{name}_branch": helper.make_graph(
            [node(op, ["x"], ["b"])], name, [], [helper.make_empty_tensor_value_info("b")]
        )
        for name, op in (("then", "RandomNormalLike"), ("else", "Neg"))
    }
    nodes = [
        node("ReduceSum", ["x"], ["s"], keepdims=0), node("Cast", ["s"], ["c"], to=BOOL),
        node("If", ["c"], ["y"], **branches),
    ]  # fmt: skip
    path = write(graph_of(nodes, {"x": (1, 3)}, ["y"]), tmp_path / "branch.onnx")
    with pytest.raises(UnsupportedOp, match=r"RandomNormalLike \(random"):
        import_model(path, {})


def test_random_numbers_of_which_only_the_shape_is_read(tmp_path: Path) -> None:
    nodes = [
        node("RandomNormalLike", ["x"], ["r"]), node("Shape", ["r"], ["s"]), node("Reshape", ["x", "s"], ["y"]),
        node("Dropout", ["x"], ["unused"]), node("RandomNormalLike", ["unused"], ["no output"]),
    ]  # fmt: skip
    path = write(graph_of(nodes, {"x": (1, 3)}, ["y"]), tmp_path / "shape.onnx")
    assert [spec.name for spec in import_model(path, {}).inputs] == ["x"]


def test_another_domains_operator_is_not_taken_for_onnxs(tmp_path: Path) -> None:
    nodes = [node("Relu", ["x"], ["y"], domain="acme", name="theirs")]
    path = write(graph_of(nodes, {"x": (1, 3)}, ["y"], domain="acme"), tmp_path / "acme.onnx")
    assert [(row.op, row.status) for row in explain_model(path, {}).ops] == [("acme::Relu", "unsupported")]


def test_an_lstm_that_is_not_covered_says_what_is(tmp_path: Path) -> None:
    path = write(recurrent("LSTM", 4, clip=3.0), tmp_path / "clipped.onnx")
    (row,) = [row for row in explain_model(path, {}).ops if row.op == "LSTM"]
    assert row.status == "unsupported" and row.note == "clip is set; node recurrent"


MICROSOFT = "com.microsoft"
NOT_REWRITTEN = {
    "clip is set": node("GRU", ["x", "w", "w"], ["y"], clip=1.0),
    "input_forget is set": node("LSTM", ["x", "w", "w"], ["y"], input_forget=1),
    "its weights x are not constant": node("RNN", ["x", "x", "w"], ["y"]),
    "its sequences may be shorter than the input (sequence_lens)": node("RNN", ["x", "w", "w", "", "x"], ["y"]),
    "its activation is Elu, not Relu, Sigmoid, Softplus, Softsign, Tanh": node(
        "RNN", ["x", "w", "w"], ["y"], activations=["Elu"]
    ),
    "its elements are int64, not float16, float32, float64": node(
        "BiasGelu", ["i", "i"], ["y"], domain=MICROSOFT
    ),
    "its input x is not constant": node("QLinearConv", ["x", "x", "i", "w", "w", "i", "w", "i"], ["y"]),
    "the shape of unknown is not known": node(
        "FusedMatMul", ["unknown", "x"], ["y"], domain=MICROSOFT
    ),
    "its columns have an order of their own (g_idx)": node(
        "MatMulNBits", ["x", "w", "w", "", "i"], ["y"], domain=MICROSOFT, N=1, K=4, block_size=32
    ),
    "is_packed_batching is set": node(
        "RotaryEmbedding", ["x", "i", "w", "w"], ["y"], domain=MICROSOFT, is_packed_batching=1
    ),
    "its condition may become false": node(
        "Loop", ["n", "c"], ["y"], body=helper.make_graph([], "body", [], [])
    ),
}  # fmt: skip
"""Reason why a node is not rewritten → the node; w is a constant, x has three axes."""


@pytest.mark.parametrize("reason", NOT_REWRITTEN)
def test_an_operator_that_is_rewritten_in_part_says_what_is_not(reason: str) -> None:
    """Report the option or type: the operator itself is supported."""
    constants = {"w": np.ones((1, 4, 4), np.float32), "i": np.arange(4), "n": np.int64(3), "c": np.False_}
    model = graph_of([NOT_REWRITTEN[reason]], {"x": (1, 2, 4)}, ["y"], constants, domain=MICROSOFT)
    (note,) = unsupported_ops(model).values()
    assert note.startswith(f"{reason}; node")


def test_a_converter_that_fails_is_named_with_its_node(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    nodes = [node("Relu", ["x"], ["r"]), node("LRN", ["r"], ["y"], name="around", size=3)]
    path = write(graph_of(nodes, {"x": (1, 3, 2, 2, 2)}, ["y"]), tmp_path / "lrn.onnx")
    explanation = explain_model(path, {})
    assert "LRN at node around" in explanation.problem and "Error" not in explanation.problem
    assert {row.op for row in explanation.ops} == {"Relu", "LRN"} and explanation.exit_code == 9
    assert capfd.readouterr().out == "", "what TVM prints is no output of ours"


def test_an_int8_input_of_the_graph_is_described(tmp_path: Path) -> None:
    nodes = [node("Cast", ["x"], ["y"], to=1)]
    path = write(graph_of(nodes, {"x": (2, 3)}, ["y"], kind=INT8), tmp_path / "int8.onnx")
    (spec,) = import_model(path, {}).inputs
    assert (spec.name, spec.shape, spec.dtype) == ("x", (2, 3), "int8")


# Comparing rewritten graphs


def test_equal_nans_confirm_no_rewrite() -> None:
    nodes = [node("Sub", ["x", "two"], "a"), node("Log", ["a"], "y")]
    model = graph_of(nodes, {"x": [4]}, ["y"], {"two": np.float32(2)})
    assert "nothing finite" in Runner(model).difference(model)


def test_a_root_is_compared_where_it_has_numbers() -> None:
    model = graph_of(
        [node("ReduceMin", ["x"], "m", keepdims=1), node("Sqrt", ["m"], "y")], {"x": [64]}, ["y"]
    )
    runner = Runner(model)
    assert np.isfinite(runner.expected["y"]).all() and not runner.difference(model)


# Conversion


def test_what_comes_out_with_another_type_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tvm import relax

    monkeypatch.setitem(CONVERTERS, "Relu", lambda node: relax.op.astype(node.inputs[0], "int32"))  # type: ignore[arg-type]
    path = write(
        graph_of([node("Relu", ["x"], ["y"], name="first")], {"x": (1, 2)}, ["y"]), tmp_path / "m.onnx"
    )
    with pytest.raises(UnsupportedOp, match="Relu at node first cannot be imported: it would be int32"):
        import_model(path, {})


@pytest.mark.parametrize("op", ["NonZero", "Unique"])
def test_what_gives_as_much_as_the_values_say_is_refused_by_node(tmp_path: Path, op: str) -> None:
    """Refuse before anything is compiled, and by the operator, not by the output that it makes."""
    nodes = [node(op, ["x"], ["chosen"], name="choose"), node("Cast", ["chosen"], ["y"], to=INT64)]
    path = write(graph_of(nodes, {"x": (4, 9)}, ["y"]), tmp_path / "m.onnx")
    with pytest.raises(UnsupportedOp) as refused:
        import_model(path, {})
    assert op in refused.value.what
    assert "depends on its input's values" in refused.value.what and "node choose" in refused.value.what


def test_an_output_without_elements_is_refused_by_name(tmp_path: Path) -> None:
    nodes = [node("Slice", ["x", "start", "start"], ["nothing"]), node("Neg", ["x"], ["y"])]
    model = graph_of(nodes, {"x": (4, 9)}, ["y", "nothing"])
    model.graph.initializer.append(numpy_helper.from_array(np.zeros(1, np.int64), "start"))
    with pytest.raises(ModelError, match=r"output 'nothing' of m.onnx has no elements: its shape is 0,9"):
        import_model(write(model, tmp_path / "m.onnx"), {})


def test_what_cannot_be_converted_is_refused_by_node(tmp_path: Path) -> None:
    """Replace the importer's own exception, which is no message for a user."""
    nodes = [node("TopK", ["x", "k"], ["y", "i"], name="best", sorted=0)]
    model = graph_of([node("Cast", ["z"], ["k"], to=INT64), *nodes], {"x": (4, 9), "z": (1,)}, ["y"])
    with pytest.raises(
        UnsupportedOp, match="TopK at node best cannot be imported: its input K is not constant"
    ):
        import_model(write(model, tmp_path / "m.onnx"), {})
