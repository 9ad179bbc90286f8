"""A bundle with TVM's runtime inside libadt_runner, in a process with another TVM."""

import sys
from pathlib import Path

import numpy as np
import pytest
from test_kernels import add_one
from test_runner_memory import unload, unloaded

import adt
from adt.bundle.bundle import TargetBundle
from adt.device.deploy.payload import payload_of
from adt.host.elf import read_elf
from adt.package.package import ModelPackage
from support.devices.fixtures import Rack
from support.devices.programs import program_output
from support.models.onnx_graphs import graph_of, node, write

__all__ = ["unload"]

TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def bundle() -> TargetBundle:
    return adt.build_target(platform="host", one_library=True).bundle


@pytest.fixture(scope="module")
def package(bundle: TargetBundle, tmp_path_factory: pytest.TempPathFactory) -> ModelPackage:
    return package_for(bundle, tmp_path_factory.mktemp("package"))


def package_for(bundle: TargetBundle, place: Path) -> ModelPackage:
    nodes = [node("Relu", ["x"], ["r"]), node("Add", ["r", "one"], ["y"])]
    graph = graph_of(nodes, {"x": (2, 3)}, ["y"], {"one": np.ones((2, 3), "float32")})
    model, platform = write(graph, place / "m.onnx"), bundle.manifest.platform
    return adt.compile(model, out=place / "package", platform=platform, bundle=bundle.path)


def test_it_exports_the_c_interface_alone(bundle: TargetBundle) -> None:
    assert [name for name in bundle.manifest.files if name.startswith("lib/")] == ["lib/libadt_runner.so"]
    library = read_elf(bundle.file("lib/libadt_runner.so"))
    assert {name for name in library.functions if not name.startswith("adt_")} == set()
    for name in bundle.manifest.files:
        assert not any("tvm" in needed for needed in read_elf(bundle.file(name)).needed), name


def test_a_package_takes_nothing_of_tvms_by_name(package: ModelPackage) -> None:
    library = read_elf(package.path / "mod.so")
    assert [name for name in library.undefined if "TVM" in name] == []
    assert "__TVMFFIErrorSetRaisedFromCStr" in package.manifest.tvm.context_symbols


@pytest.mark.parametrize("order", ["first", "last"])
def test_beside_another_tvm(bundle: TargetBundle, package: ModelPackage, tmp_path: Path, order: str) -> None:
    kernel = adt.compile_kernel(add_one(), name="add_one", platform="host", out=tmp_path / "add_one.so")
    runner = bundle.file("lib/libadt_runner.so")
    words = (
        sys.executable,
        TESTS / "support/codegen/two_runtimes.py",
        runner,
        package.path,
        kernel.path,
        order,
    )
    assert program_output(*words, PYTHONPATH=str(TESTS)) == "done\n"


def test_its_programs_run_and_it_is_unloaded(
    bundle: TargetBundle, package: ModelPackage, unload: Path
) -> None:
    x = np.full((2, 3), -1, "float32")
    result = adt.run(package.path, inputs={"x": x}, bundle=bundle.path)
    np.testing.assert_array_equal(result.outputs["y"], np.ones((2, 3)))
    unloaded(unload, "-", bundle.file("lib/libadt_runner.so"))


def test_the_one_library_is_deployed(bundle: TargetBundle, package: ModelPackage) -> None:
    sent = [file.name for file in payload_of(bundle, package).files]
    assert [name for name in sent if name.startswith("lib/")] == ["lib/libadt_runner.so"]


@pytest.mark.nightly  # a build for arm64
def test_it_runs_on_a_device(rack: Rack, tmp_path: Path) -> None:
    phone = rack.start("phone", faults=[])
    bundle = adt.build_target(platform="linux-aarch64", one_library=True).bundle
    package = package_for(bundle, tmp_path)
    chosen = {"bundle": bundle.path, "serial": phone.serial}
    sent = adt.deploy(package.path, **chosen).results[0].report.sent_files
    assert [name for name in sent if name.startswith("lib/")] == ["lib/libadt_runner.so"]
    result = adt.run(package.path, inputs={"x": np.full((2, 3), 4, "float32")}, **chosen)
    np.testing.assert_array_equal(result.outputs["y"], np.full((2, 3), 5))
