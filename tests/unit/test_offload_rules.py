"""Operators that go to a vendor's library, and combinations that are refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from adt.bundle.bundle import BundleOptions
from adt.bundle.libraries import LIBRARIES, Library, join_libraries, parse_libraries
from adt.bundle.plugins import foreign_types, layout_function
from adt.compiler.passes.offload.clml import objection
from adt.compiler.passes.offload.partition import (
    OffloadedModel,
    Subgraph,
    check_combination,
    offload_module,
    rules_of,
)
from adt.compiler.passes.offload.rules import Rules
from adt.errors import ConfigError, ModelError, SourceError
from adt.options.option import options_of
from adt.options.resolve import load_settings
from adt.options.sections import BuildSettings
from adt.package.reports import OffloadReport
from support.models.calls import constant, variable

CLML = Rules([], "openclml", objection)


@pytest.mark.parametrize(
    ("kind", "device"),
    [("none", "cpu"), ("clml", "opencl"), ("xnnpack", "cpu"), ("cudnn,cublas", "cuda")],
)
def test_what_goes_together(kind: str, device: str) -> None:
    check_combination(kind, device)


@pytest.mark.parametrize(
    ("kind", "device", "remedy"),
    [
        ("clml", "cpu", "--target adreno"),
        ("xnnpack", "opencl", "--target cpu"),
        ("tensorrt", "cpu", ", ".join(LIBRARIES)),
        ("nnapi", "cpu", ", ".join(LIBRARIES)),  # an older adt had it
        ("xnnpack,none", "cpu", ", ".join(LIBRARIES)),
        ("xnnpack,xnnpack", "cpu", "once"),
        ("clml,xnnpack", "opencl", "--target cpu"),
    ],
)
def test_what_does_not(kind: str, device: str, remedy: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_combination(kind, device)
    assert remedy in caught.value.remedy


@pytest.mark.parametrize("library", LIBRARIES.values(), ids=LIBRARIES)
def test_each_row_has_its_rules_and_its_place_in_builds_and_bundles(library: Library) -> None:
    assert rules_of(library).patterns
    without = BundleOptions(opencl=True, clml=False, rpc=True, alignment=32, build_type="Release")
    assert without.libraries == ()
    assert replace(without, **{library.name: True}).libraries == (library,)
    assert library.build_option.split()[0] == options_of(BuildSettings)[library.setting].flag


def test_the_order_of_libraries_is_kept() -> None:
    assert [library.name for library in parse_libraries("cublas, cudnn")] == ["cublas", "cudnn"]
    for text in ("cublas,cudnn", "none"):
        assert join_libraries(parse_libraries(text)) == text


def calls() -> dict[str, Any]:
    from tvm import relax
    from tvm.relax.op import add, clip, mean, multiply, nn, subtract

    x, w = variable(1, 4, 8, 8), constant(6, 4, 3, 3)
    half = constant(6, 4, 3, 3, dtype="float16")
    examples = {
        "plain": nn.conv2d(x, w, padding=1),
        "grouped": nn.conv2d(x, constant(4, 1, 3, 3), groups=4),
        "dilated": nn.conv2d(x, w, dilation=2),
        "swapped strides": nn.conv2d(x, w, strides=(2, 1)),
        "weights that are computed": nn.conv2d(x, variable(6, 4, 3, 3)),
        "mixed types": nn.conv2d(variable(1, 4, 8, 8, dtype="float16"), half, out_dtype="float32"),
        "bias": add(x, constant(1, 4, 1, 1)),
        "scalar": add(x, constant()),
        "row": add(x, constant(1, 1, 1, 8)),
        "sum": add(x, variable(1, 4, 8, 8)),
        "square": multiply(x, x),
        "constant first": subtract(constant(1, 4, 8, 8), x),
        "constant second": subtract(x, constant(1, 4, 8, 8)),
        "integers": add(variable(1, 4, dtype="int64"), variable(1, 4, dtype="int64")),
        "rank 5": add(variable(1, 2, 3, 4, 5), variable(1, 2, 3, 4, 5)),
        "max pool": nn.max_pool2d(x, (2, 2), (2, 2)),
        "dilated pool": nn.max_pool2d(x, (2, 2), dilation=(2, 2)),
        "ceiling pool": nn.max_pool2d(x, (3, 3), (2, 2), ceil_mode=True),
        "pool of NHWC": nn.max_pool2d(x, (2, 2), layout="NHWC"),
        "oblong pool": nn.max_pool2d(x, (2, 3)),
        "padded average": nn.avg_pool2d(x, (3, 3), padding=1, count_include_pad=True),
        "average": nn.avg_pool2d(x, (3, 3), padding=1, count_include_pad=False),
        "global average": mean(x, [2, 3], keepdims=True),
        "flat average": mean(x, [2, 3]),
        "oblong average": mean(variable(1, 4, 8, 4), [2, 3], keepdims=True),
        "softmax": nn.softmax(variable(1, 10)),
        "softmax of an image": nn.softmax(x, axis=1),
        "clip": clip(x, 0, 6),
    }
    builder = relax.BlockBuilder()
    return {name: builder.normalize(call) for name, call in examples.items()}


def refused(rules: Any) -> set[str]:
    names = set()
    for name, call in calls().items():
        pattern = f"openclml.{str(call.op.name).removeprefix('relax.')}"
        if rules.objection(pattern, [call]):
            names.add(name)
    return names


def test_what_tvms_clml_runtime_would_compute_wrongly_stays() -> None:
    assert refused(CLML) == {
        "grouped", "weights that are computed", "mixed types", "scalar", "row", "square", "constant first",
        "integers", "rank 5", "dilated pool", "pool of NHWC", "ceiling pool", "padded average", "flat average",
        "oblong average", "softmax of an image", "clip",
    }  # fmt: skip


def test_patterns_of_clml_that_the_runtime_only_half_knows() -> None:
    call = calls()["plain"]
    for name in ("relu.bias.nn.conv2d", "bias.nn.conv2d", "nn.conv2d"):
        assert not CLML.objection(f"openclml.{name}", [call])
    for name in ("clip.bias.nn.conv2d", "relu.pad.nn.conv2d", "bias.nn.conv2d_transpose"):
        assert CLML.objection(f"openclml.{name}", [call])


def test_open_dimensions_cannot_go() -> None:
    import tvm
    from tvm import relax

    builder = relax.BlockBuilder()
    x = variable(tvm.tirx.Var("n", "int64"), 4)
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.nn.relu(x)))
    with pytest.raises(ModelError, match="open dimensions") as caught:
        offload_module(builder.get(), {}, "clml", tvm=load_settings().settings.tvm)
    assert "--shape x:" in caught.value.remedy


def test_a_tree_that_differs_in_attributes_costs_those_operators() -> None:
    differences = ["relax.attrs.PadAttrs.pad_width: ints in the wheel", "relax.attrs.MeanAttrs.axis: at 8"]
    assert foreign_types("p", differences) == {"relax.attrs.PadAttrs", "relax.attrs.MeanAttrs"}
    assert foreign_types("p", []) == frozenset()
    assert layout_function(Path("/x/libadt_codegen_clml.so")) == "adt.layout_differences.clml"


def test_a_tree_that_differs_in_expressions_is_refused() -> None:
    with pytest.raises(SourceError) as caught:
        foreign_types("p", ["relax.expr.Call.args: at 24, 8 bytes in the wheel"])
    assert "ADT_TVM_PROVIDER=git" in caught.value.remedy and "at 24" in caught.value.details


def test_subgraphs_are_written_below_inspect(tmp_path: Path) -> None:
    report = OffloadReport(wanted="xnnpack", ops=1, total=2, subgraphs=1, left=())
    some = OffloadedModel(None, {}, report, (Subgraph("xnnpack", "f", "{}"),))
    some.write(tmp_path)
    assert (tmp_path / "inspect/xnnpack/0.json").read_text() == "{}\n"
    assert some.libraries == "xnnpack"
    nothing = OffloadedModel(None, {}, report, ())
    nothing.write(tmp_path / "other")
    assert nothing.libraries == "none" and not (tmp_path / "other").exists()
