"""Weights lie in images from the moment a package is loaded, whoever loads it."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm

import adt
from adt.bundle.bundle import TargetBundle
from adt.compiler.importers.importer import import_model
from adt.compiler.networks.builder import Network
from adt.compiler.passes.gpu.choice import ALWAYS
from adt.compiler.passes.gpu.pipeline import GpuModule, for_gpu
from adt.compiler.passes.gpu.placement import ImageLimits
from adt.compiler.passes.gpu.schedules import prove
from adt.compiler.passes.records.schedules import Untuned
from adt.compiler.passes.scheduling import NoSchedule
from adt.errors import MismatchError
from adt.host.cache import file_sha256
from adt.package.files import MANIFEST, PARAMS
from adt.package.host_run.run import run_package
from adt.package.inputs.random import random_inputs
from adt.package.inspection.inspection import Inspection
from adt.package.package import ModelPackage
from adt.package.reports import SCOPE
from support.devices import intel_opencl
from support.devices.programs import Finished
from support.models.gpu_kernels import ADRENO
from support.models.reference import largest_error

PACKAGE, MISMATCH = 3, 6
"""Exit code of rtvm where a package is at fault."""


def network(path: Path) -> Path:
    """Build rows of 3, 25, 12 and 6 texels: no row of a driver's image is a multiple of them."""
    net = Network((1, 3, 12, 12))
    x = net.relu(net.conv("x", 12, 3))
    x = net.conv(x, 12, 5, 2, groups=12)
    x = net.relu(net.conv(x, 10, 1))
    x = net.concat(x, net.conv(x, 6, 1))
    return net.save(path, net.conv(x, 8, 1, groups=2), (1, 8, 6, 6))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return network(tmp_path_factory.mktemp("model") / "net.onnx")


@pytest.fixture(scope="module")
def package(model: Path, tmp_path_factory: pytest.TempPathFactory) -> ModelPackage:
    out = tmp_path_factory.mktemp("packages") / "net"
    return adt.compile(model, out=out, platform="host", target="adreno", check=False, texture_choice="always")


@pytest.fixture(scope="module")
def rtvm(host_bundle: TargetBundle) -> Path:
    return host_bundle.file("bin/rtvm")


def run(rtvm: Path, package: Path, *words: object, **environment: str) -> Finished:
    options = ("--program-cache", "off", "--seed", "3", "--json")
    return Finished.of(rtvm, "--model", package, *options, *words, **environment)


def params(package: ModelPackage) -> dict[str, Any]:
    read = tvm.runtime.load_param_dict_from_file(str(package.path / PARAMS))
    return {str(name): tensor.numpy() for name, tensor in read.items()}


def off_reference(outputs: Any, model: Path, package: ModelPackage) -> float:
    return largest_error(outputs, model, random_inputs(package.manifest.entry().inputs, seed=3))


def test_the_compiler_packs_weights_for_images(package: ModelPackage) -> None:
    entry, report = package.manifest.entry(), package.manifest.made.textures
    assert report is not None
    shapes = {name: array.shape for name, array in params(package).items()}

    assert sorted(shapes[name] for name in entry.images) == [
        (1, 3, 25, 4), (2, 1, 8, 4), (2, 1, 10, 4), (3, 1, 12, 4), (3, 9, 3, 4),
    ]  # fmt: skip
    assert entry.images == report.images == tuple(row.name for row in report.weights)
    others = [name for name in entry.params if name not in entry.images]
    assert len(others) == 5  # the biases
    graph = Inspection(package).graph
    assert {t.name for t in graph.tensors if t.kind == "param" and t.texture} == set(entry.images)
    read = {text for kernel in graph.kernels for text in kernel.textures}
    assert {f"read_only {name}" for name in entry.images} <= read
    texts = {finding.name: finding.found for finding in adt.package_verify(package.path).integrity.findings}
    assert texts["parameters"] == "10, as the entries take them, 5 as images"


def test_the_runner_puts_them_into_images_as_they_are(
    rtvm: Path, package: ModelPackage, model: Path, tmp_path: Path
) -> None:
    done = run(
        rtvm,
        package.path,
        "--dump-calls",
        tmp_path / "c.npz",
        "--output",
        tmp_path / "o.npz",
        "--profile",
        "1",
    )

    calls = done.json["profile"]["calls"]
    packed = params(package)
    images = {name: packed[name] for name in package.manifest.entry().images}
    names = set()
    with np.load(tmp_path / "c.npz") as dumped, np.load(tmp_path / "o.npz") as outputs:
        assert off_reference(dict(outputs), model, package) < 1e-5
        for call in calls:
            for number, argument in enumerate(call["arguments"]):
                for name, image in images.items():
                    key = f"{call['index']:05d}|{call['name']}|{number}"
                    if key in dumped.files and np.array_equal(dumped[key], image):
                        assert argument["scope"] == "global.texture"
                        names.add(name)
    assert names == set(images)


def test_over_rpc_and_in_a_process_of_this_machine_they_are_images_too(
    rtvm: Path, package: ModelPackage, model: Path
) -> None:
    inputs = random_inputs(package.manifest.entry().inputs, seed=3)

    over_rpc = adt.run(package.path, inputs=inputs, via="rpc").outputs
    here = run_package(package.path, inputs, timeout=120)

    assert off_reference(over_rpc, model, package) < 1e-5
    assert off_reference(here, model, package) < 1e-5


def with_params(package: ModelPackage, to: Path, **arrays: Any) -> Path:
    shutil.copytree(package.path, to)
    tensors = {name: tvm.runtime.tensor(array) for name, array in (params(package) | arrays).items()}
    tvm.runtime.save_param_dict_to_file(tensors, str(to / PARAMS))
    document = json.loads((to / MANIFEST).read_text())
    document["files"][PARAMS] |= {"sha256": file_sha256(to / PARAMS), "size": (to / PARAMS).stat().st_size}
    (to / MANIFEST).write_text(json.dumps(document))
    return to


@pytest.mark.parametrize("shape", [(108,), (27, 4), (4, 3, 9), (0, 3, 4)], ids=str)
def test_a_parameter_that_is_no_array_of_texels_is_refused(
    rtvm: Path, package: ModelPackage, tmp_path: Path, shape: tuple[int, ...]
) -> None:
    name = package.manifest.entry().images[0]
    bad = with_params(package, tmp_path / "bad", **{name: np.zeros(shape, np.float32)})

    run(rtvm, bad).refused(PACKAGE, f"parameter {name} cannot lie in an image", "adt compile")
    wrong = [finding.found for finding in adt.package_verify(bad).integrity.findings if not finding.passed]
    assert any(f"{name}: not of texels, and said to be images" in message for message in wrong)


def test_a_weight_over_the_driver_s_limits_says_what_to_do(
    rtvm: Path, package: ModelPackage, tmp_path: Path
) -> None:
    name = package.manifest.entry().images[0]
    large = with_params(package, tmp_path / "large", **{name: np.zeros((1, 1, 100_000, 4), np.float32)})

    run(rtvm, large).refused(MISMATCH, f"parameter {name}", "as an image", "--like", "adreno-buffer")


COUNTING = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static void* next(const char* name, char letter) {
  FILE* file = fopen(getenv("COUNT_FILE"), "a");
  fputc(letter, file);
  fclose(file);
  return dlsym(dlopen("libOpenCL.so.1", RTLD_NOW), name);
}
void* clCreateImage(void* a, unsigned long b, void* c, void* d, void* e, int* f) {
  return ((void* (*)(void*, unsigned long, void*, void*, void*, int*))next("clCreateImage", 'c'))(a, b, c, d, e, f);
}
int clReleaseMemObject(void* a) { return ((int (*)(void*))next("clReleaseMemObject", 'r'))(a); }
"""


def test_images_are_made_in_the_first_run_only(
    rtvm: Path, package: ModelPackage, model: Path, tmp_path: Path
) -> None:
    """Make each image once: the bundle's runtime keeps those that TVM releases after each run."""
    (tmp_path / "counting.c").write_text(COUNTING)
    library = tmp_path / "libOpenCL.so"  # what TVM asks for first; the rest it finds in the real one
    words = ["cc", "-shared", "-fPIC", "-o", library, tmp_path / "counting.c", "-ldl", "-Wl,--no-as-needed"]
    subprocess.run([*words, "-l:libOpenCL.so.1"], check=True)

    counts = []
    for runs in (1, 5):
        file = tmp_path / f"count-{runs}"
        environment = {"LD_LIBRARY_PATH": str(tmp_path), "COUNT_FILE": str(file)}
        done = run(rtvm, package.path, "--run-count", runs, "--output", tmp_path / "o.npz", **environment)
        assert len(done.json["run_ms"]) == runs
        counts.append(file.read_text().count("c"))
        with np.load(tmp_path / "o.npz") as outputs:
            assert off_reference(dict(outputs), model, package) < 1e-5
    assert counts[0] == counts[1] > len(package.manifest.entry().images)


def test_weights_in_half_precision_are_images_of_halves(
    rtvm: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = adt.compile(
        model, out=tmp_path / "half", platform="host", target="adreno", precision="float16_acc32", check=False
    )
    images = package.manifest.entry().images
    assert {str(params(package)[name].dtype) for name in images} == {"float16"}
    monkeypatch.setenv("OCL_ICD_VENDORS", str(intel_opencl.vendors()))

    assert run(rtvm, package.path, "--output", tmp_path / "o.npz", "--run-count", "3").json["run_ms"]

    with np.load(tmp_path / "o.npz") as outputs:
        assert off_reference(dict(outputs), model, package) < 1e-2


def test_a_server_without_the_function_for_images_is_named(
    package: ModelPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adt.rpc.session.SET_INPUT", "adt.of_another_bundle")

    with pytest.raises(
        MismatchError, match=r"weights in images.* no function adt.of_another_bundle"
    ) as refused:
        adt.run(package.path, via="rpc")

    assert "adt build-target" in refused.value.remedy


def placed(model: Path, limits: ImageLimits) -> GpuModule:
    imported = import_model(model, {})
    return for_gpu(imported.module, imported.params, ADRENO, limits, Untuned(), chooser=ALWAYS)


def test_a_weight_over_the_limits_of_images_stays_a_buffer(model: Path) -> None:
    placement = placed(model, ImageLimits(side=20, layers=2))

    reasons = {row.shape: row.reason for row in placement.report.weights}
    assert {shape for shape, reason in reasons.items() if not reason} == {(2, 1, 8, 4), (2, 1, 10, 4)}
    assert reasons[(1, 3, 25, 4)] == "an image of 25 x 3 x 1 is over the device's limits"
    assert "x 3 is over" in reasons[(3, 9, 3, 4)]
    scopes = {
        str(param.name_hint): str(param.struct_info.vdevice.memory_scope)
        for param in placement.module["main"].params
        if param.struct_info.vdevice is not None
    }
    assert scopes == dict.fromkeys(placement.report.images, SCOPE)


def test_a_kernel_that_cannot_read_its_weight_as_an_image_keeps_its_other_images(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inject the fault: no kernel is known that cannot."""

    def refusing(function: Any, target: Any) -> None:
        for param in function.params:
            buffer = function.buffer_map[param]
            if buffer.scope() == SCOPE and tuple(map(int, buffer.shape)) == (3, 9, 3, 4):
                raise NoSchedule("made up")
        prove(function, target)

    monkeypatch.setattr("adt.compiler.passes.gpu.schedules.prove", refusing)

    placement = placed(model, ImageLimits(side=8192, layers=2048))

    reasons = {row.shape: row.reason for row in placement.report.weights if row.reason}
    assert reasons.keys() == {(3, 9, 3, 4)}
    assert reasons[(3, 9, 3, 4)].endswith("which reads it, cannot: made up")
    first = placement.report.kernels[0]
    assert (first.reads, first.writes, first.reason) == (0, 1, "")
