"""--shape: whole inputs and symbols, what follows from them, contradictions, and what is still open."""

import shlex
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import adt
from adt.compiler.importers.importer import explain_model, import_model
from adt.compiler.importers.onnx.file import USUAL
from adt.compiler.importers.shapes import DeclaredShape, fixed_shapes, parse_shapes
from adt.compiler.targets.parser import _typed
from adt.errors import AdtError, ModelError, UnsupportedOp
from adt.rpc.wire import parse_address
from adt.tuning.fleet.builders import make_builders
from adt.verbs.verify import call_span
from support.models.onnx_graphs import graph_of, node, write

CACHED: Mapping[str, DeclaredShape] = {
    "ids": ("batch", "sequence"),
    "mask": ("batch", "past + sequence"),
    "key": ("batch", 4, "past", 8),
    "value": ("batch", 4, "past", 8),
}
"""One step of a language model with a cache."""


def fixed(declared: Mapping[str, DeclaredShape], *texts: str) -> dict[str, tuple[int, ...]]:
    return fixed_shapes(declared, parse_shapes(texts))


def test_symbols_hold_everywhere_and_in_sums() -> None:
    shapes = fixed(CACHED, "sequence=1,past=16", "batch=2")
    assert shapes == {"ids": (2, 1), "mask": (2, 17), "key": (2, 4, 16, 8), "value": (2, 4, 16, 8)}


def test_a_batch_without_a_symbol_is_what_is_given() -> None:
    assert fixed({"x": ("", 1760)}, "x:2,1760") == {"x": (2, 1760)}
    assert fixed({"x": ("", 1760)}) == {"x": (1, 1760)}


def test_symbols_and_whole_inputs_together() -> None:
    assert fixed(CACHED, "ids:1,3", "past=5")["mask"] == (1, 8)


@pytest.mark.parametrize("dim", ["2*h", "h * 2", "h + h", "3*h - 8"])
def test_a_shape_tells_the_symbol_of_a_derived_dimension(dim: str) -> None:
    declared = {"x": (1, dim), "y": ("h", 3), "z": (1, "h//3")}
    assert fixed(declared, "x:1,16") == {"x": (1, 16), "y": (8, 3), "z": (1, 2)}
    with pytest.raises(ModelError, match=r"makes h 8.* makes it 9"):
        fixed(declared, "y:9,3", "x:1,16")


def test_a_shape_that_no_symbol_gives_tells_none() -> None:
    """Ignore an odd label of an extent: an ONNX file's dimensions are labels."""
    assert fixed({"x": (1, "2*h")}, "x:1,15") == {"x": (1, 15)}
    assert fixed({"x": (1, "h//2"), "y": (1, "h")}, "x:1,15", "h=31")["y"] == (1, 31)


def test_all_that_is_open_is_asked_for_at_once_and_the_answer_works() -> None:
    declared = {**CACHED, "picture": (1, "", "", 3), "size": ("",)}
    with pytest.raises(ModelError) as caught:
        fixed(declared)
    error = caught.value
    assert "ids:1,sequence" in error.what and "key:1,4,past,8" in error.what
    assert error.options == ("--shape", "sequence=16,past=16", "--shape", "picture:1,224,224,3")
    assert shlex.join(error.options) in error.remedy
    assert fixed(declared, *error.options[1::2])["mask"] == (1, 32)


PAST = {
    "past_key_values.0.key": ("batch", 8, "past", 64),
    "past_key_values.0.value": ("batch", 8, "past", 64),
}
REMEDIES: list[tuple[Mapping[str, DeclaredShape], tuple[str, ...], str]] = [
    ({"ids": ("batch", 1), "mask": ("batch", "total"), **PAST}, (), "total=17,past=16"),
    ({**PAST, "ids": ("batch", 1), "mask": ("batch", "total")}, (), "past=16,total=17"),
    ({"ids": ("batch", "seq"), "mask": ("batch", "total_len"), **PAST}, (), "seq=16,total_len=32,past=16"),
    ({"mask": ("batch", "total"), "ids": ("batch", "seq"), **PAST}, ("seq=1",), "total=17,past=16"),
    ({"ids": ("batch", 1), "mask": ("batch", "total"), **PAST}, ("past=7",), "total=8"),
    ({"ids": ("batch", 1), "mask": ("batch", "total"), **PAST}, ("total=16",), "past=15"),
    ({"x": (1, 80, "frames"), "cache_k": ("layers", 1, "window", 64)}, (), "frames=16,window=16"),
    ({"h": ("b", "heads", "steps", "d")}, (), "heads=16,steps=16,d=16"),
    ({"q": ("b", 8, "n", 64)}, (), "n=16"),
    ({"image": ("b", 3, "h", "w")}, (), "h=224,w=224"),
    ({"image": ("b", "h", "w", 3)}, (), "h=224,w=224"),
    ({"image": ("b", "c", "h", "w")}, (), "c=3,h=224,w=224"),
    ({"line": ("b", 1, 48, "w")}, (), "w=224"),
    ({"features": ("b", 64, "h", "w")}, (), "h=224,w=224"),
]


@pytest.mark.parametrize(("declared", "shapes", "remedy"), REMEDIES)
def test_a_cache_is_no_picture_and_its_lengths_add_up(
    declared: Mapping[str, DeclaredShape], shapes: tuple[str, ...], remedy: str
) -> None:
    with pytest.raises(ModelError) as caught:
        fixed(declared, *shapes)
    assert caught.value.options == ("--shape", remedy)
    fixed(declared, *shapes, remedy)


@pytest.mark.parametrize(
    "name", ["input:0", "a,b", "a=b", "a=1,b", "x:1", "past.0.key", "/x", "ü 1", "a:1,2", "a\nb"]
)
def test_a_shape_is_given_by_any_name(name: str) -> None:
    assert fixed({name: ("", "n"), "other": ("n",)}, f"{name}:2,3") == {name: (2, 3), "other": (3,)}


def test_an_input_may_be_called_as_a_dimension_is() -> None:
    declared: Mapping[str, DeclaredShape] = {"n": (1, "n", ""), "x": (1, "n")}
    with pytest.raises(ModelError) as caught:
        fixed(declared, "n=5")
    assert caught.value.options == ("--shape", "n:1,5,16")


@pytest.mark.parametrize(
    "declared",
    [
        {"x": ("n", "n")},
        {"x": (1, "2*k", "k")},
        {"x": (1, "height-2", "a b")},
        {"x": (2, "a,b", "c=d")},
        {"x": ("n", "c", "h", "w"), "y": ("n", "", "", "")},
        {"x": (3, "past + 1")},
    ],
    ids=lambda declared: str(declared["x"]),
)
def test_the_options_of_the_error_are_enough(declared: Mapping[str, DeclaredShape]) -> None:
    with pytest.raises(ModelError) as caught:
        fixed({**declared, "open": (1, "length")})
    assert fixed({**declared, "open": (1, "length")}, *caught.value.options[1::2])


def test_the_order_of_the_inputs_does_not_matter() -> None:
    """Take a first dimension for a batch, but not a length that another input has later."""
    for names in (("ids", "positions"), ("positions", "ids")):
        shapes: dict[str, DeclaredShape] = {"ids": ("batch", "length"), "positions": ("length",)}
        with pytest.raises(ModelError, match="open dimensions"):
            fixed({name: shapes[name] for name in names})


@pytest.mark.parametrize(
    ("texts", "message", "remedy"),
    [
        (["batch=1", "batch=2"], "two things of 'batch': batch=1 and batch=2", "Leave one"),
        (["ids:1,2", "ids:1,3"], "two things of 'ids': ids:1,2 and ids:1,3", "Leave one"),
        (["batch=2", "ids:1,4"], "ids:1,4 makes batch 1, --shape batch=2 makes it 2", "same extent"),
        (["ids:1,4", "key:2,4,1,8"], "key:2,4,1,8 makes batch 2, --shape ids:1,4 makes it 1", "same extent"),
        (["sequence=1,past=16", "mask:1,20"], "makes past + sequence 20, the other inputs 17", "leave this"),
        (["sequense=1"], "no input of the model has an open dimension 'sequense'. Did you mean 'sequence'?",
         "batch, sequence, past"),
        (["batch:1"], "the model has no input 'batch'", "--shape batch=1"),
        (["sequence=1,past=0"], "input 'key' has no elements: its shape is 1,4,0,8", "at least 1"),
        (["past"], "neither NAME:EXTENT", "--shape batch=1,past=16"),
    ],
)  # fmt: skip
def test_contradictions_are_found_before_tvm(texts: list[str], message: str, remedy: str) -> None:
    with pytest.raises(ModelError) as caught:
        fixed(CACHED, *texts)
    assert message in caught.value.what and remedy in caught.value.remedy


def open_model(path: Path, op: str = "Relu") -> Path:
    """Return ``y = op(x) + b``, both of open length."""
    nodes = [node(op, ["x"], ["t"], name="first"), node("Add", ["t", "b"], ["y"], name="second")]
    return write(graph_of(nodes, {"x": ("batch", "length"), "b": ("batch", "length")}, ["y"]), path)


def test_the_python_functions_take_symbols(tmp_path: Path) -> None:
    explanation = adt.explain(open_model(tmp_path / "m.onnx"), shapes=["batch=2,length=7"])
    assert explanation.exit_code == 0 and {row.status for row in explanation.ops} == {"supported"}
    model = import_model(tmp_path / "m.onnx", {"batch": 2, "length": 7})
    assert [spec.shape for spec in model.inputs] == [(2, 7), (2, 7)]


def test_nothing_is_called_supported_while_shapes_are_missing(tmp_path: Path) -> None:
    explanation = explain_model(open_model(tmp_path / "m.onnx"), {})
    assert [(row.op, row.status) for row in explanation.ops] == [("Add", "untried"), ("Relu", "untried")]
    assert "open dimensions" in explanation.problem and "--shape length=16" in explanation.remedy
    assert explanation.options == ("--shape", "length=16") and explanation.exit_code == 8


def test_an_unsupported_operator_is_said_before_open_dimensions(tmp_path: Path) -> None:
    path = open_model(tmp_path / "m.onnx", "RandomNormalLike")
    with pytest.raises(UnsupportedOp, match=r"RandomNormalLike \(no converter in this TVM; node first\)"):
        import_model(path, {})
    explanation = explain_model(path, {})
    assert explanation.exit_code == 9 and "RandomNormalLike" in explanation.problem
    assert [(row.op, row.status) for row in explanation.ops] == [
        ("RandomNormalLike", "unsupported"),
        ("Add", "untried"),
    ]


def test_what_shapes_alone_decide_is_no_reason_to_refuse(tmp_path: Path) -> None:
    """Compile what today's exporters write; onnxslim folds it once the shapes are fixed."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("NonZero", ["s"], ["where"]),
        node("Cast", ["where"], ["offsets"], to=1),
        node("ReduceSum", ["offsets"], ["total"], keepdims=0),
        node("Add", ["x", "total"], ["y"]),
    ]
    path = write(graph_of(nodes, {"x": ("batch", "length")}, ["y"]), tmp_path / "m.onnx")
    with pytest.raises(ModelError, match="open dimensions"):
        import_model(path, {})


def test_every_refused_node_is_in_the_table(tmp_path: Path) -> None:
    """Try the nodes after a refused one all the same."""
    nodes = [
        node("LRN", ["x"], ["a"], name="around", size=3),
        node("Relu", ["a"], ["b"], name="between"),
        node("LRN", ["b"], ["c"], name="again", size=3),
        node("RandomNormalLike", ["c"], ["y"], name="last"),
    ]
    model = graph_of(nodes, {"x": (1, 3, 2, 2, 2)}, ["y"])
    explanation = explain_model(write(model, tmp_path / "m.onnx"), {})
    rows = {row.op: (row.status, row.note) for row in explanation.ops}
    assert rows["Relu"][0] == "supported"
    assert rows["RandomNormalLike"][0] == "unsupported" and "last" in rows["RandomNormalLike"][1]
    assert rows["LRN"][0] == "unsupported" and "nodes around, again" in rows["LRN"][1]


@pytest.mark.parametrize("end", ["Relu", "ReduceSum"])
def test_what_no_runtime_has_is_not_called_supported(end: str, tmp_path: Path) -> None:
    """Report what compiling refuses: for the output's shape, or for a function that only TVM's Python has."""
    nodes = [
        node("NonZero", ["x"], ["where"], name="find"),
        node("Cast", ["where"], ["offsets"], to=1),
        node(end, ["offsets"], ["y"]),
    ]
    path = write(graph_of(nodes, {"x": (2, 3)}, ["y"]), tmp_path / "m.onnx")
    explanation = explain_model(path, {})
    assert {row.op: row.status for row in explanation.ops}["NonZero"] == "unsupported"
    assert explanation.exit_code in (8, 9) and explanation.problem


def test_a_node_without_a_name_is_named_by_what_it_gives(tmp_path: Path) -> None:
    path = write(
        graph_of([node("RandomNormalLike", ["x"], ["volume"])], {"x": (3, 3)}, ["volume"]),
        tmp_path / "m.onnx",
    )
    with pytest.raises(UnsupportedOp, match=r"\(gives volume\)"):
        import_model(path, {})


# Texts that a model or command line holds may be anything

HUGE = "9" * 5000


@pytest.mark.parametrize("text", [f"x:{HUGE}", f"x:1,{HUGE}", f"n={HUGE}", f"n=1,m={HUGE}", "x:²", "n=²"])
def test_extents_of_too_many_digits(text: str) -> None:
    with pytest.raises(ModelError, match="at most 18 digits"):
        parse_shapes([text])


@pytest.mark.parametrize(
    "dimension",
    [
        "+".join(["n"] * 20_000),
        "-" * 50_000 + "n",
        "(" * 5_000 + "n" + ")" * 5_000,
        "(" * 190 + "n",
        f"n+{HUGE}",
        "n*9**9**9",
        "n//0",
        "n." * 90 + "n",
    ],
)
def test_dimensions_that_are_no_expressions(dimension: str, tmp_path: Path) -> None:
    """Leave them open, to be given like all others."""
    with pytest.raises(ModelError, match="open dimensions") as caught:
        fixed({"x": ("n", dimension)})
    assert fixed({"x": ("n", dimension)}, *caught.value.options[1::2])["x"][1] > 0
    path = write(graph_of([node("Relu", ["x"], ["y"])], {"x": ("n", "m")}, ["y"]), tmp_path / "m.onnx")
    model = onnx.load(path)
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = dimension
    onnx.save(model, path)
    problem = explain_model(path, {}).problem
    assert problem.startswith("open dimensions") and len(problem) < 500


@pytest.mark.parametrize("usual", [HUGE, "²", "-4"])
def test_usual_extents_that_are_none(usual: str, tmp_path: Path) -> None:
    model = graph_of([node("Relu", ["x"], ["y"])], {"x": ("n", "m")}, ["y"])
    model.metadata_props.add(key=f"{USUAL}m", value=usual)
    with pytest.raises(ModelError, match="open dimensions"):
        import_model(write(model, tmp_path / "m.onnx"), {})


def test_other_numbers_of_the_command_line() -> None:
    for ask in (
        lambda: parse_address(f"host:{HUGE}"),
        lambda: make_builders(HUGE, None, timeout=1.0),
        lambda: call_span(f"1:{HUGE}"),
        lambda: call_span("²:5"),
        lambda: adt.explain("resnet-18", shapes=[f"size={HUGE}"]),
    ):
        with pytest.raises(AdtError):
            ask()
    assert _typed("opt-level", HUGE) == HUGE and _typed("opt-level", "3") == 3


def test_axes_without_number(tmp_path: Path) -> None:
    path = write(graph_of([node("Relu", ["x"], ["y"])], {"x": [1] * 3000}, ["y"]), tmp_path / "m.onnx")
    assert "3000 dimensions" in explain_model(path, {}).problem


def test_chains_are_as_long_as_they_like(tmp_path: Path) -> None:
    """Walk behind outputs and indices without recursion and without following each of many paths."""
    chain = [node("Relu", [f"t{step}"], [f"t{step + 1}"]) for step in range(1500)]
    path = write(graph_of(chain, {"t0": (4,)}, ["t1500"]), tmp_path / "m.onnx")
    assert import_model(path, {}).outputs[0].shape == (4,)
    twice = [node("Add", [f"i{step}", f"i{step}"], [f"i{step + 1}"]) for step in range(60)]
    index = graph_of(
        [*twice, node("Gather", ["table", "i60"], ["y"])],
        {"i0": (2,)},
        ["y"],
        {"table": np.ones((5, 3), np.float32)},
        kind=TensorProto.INT64,
    )
    assert import_model(write(index, tmp_path / "i.onnx"), {}).outputs[0].shape == (2, 3)
