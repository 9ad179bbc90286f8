"""Reference of a generated device test: the one that `adt verify` would compare with here."""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import adt
from adt.compiler.importers import model_store
from adt.integrate.gradle import device_tests
from adt.integrate.model_api import Project
from adt.integrate.output import DataFile, TextFile, diff
from adt.integrate.project import project
from adt.measure.reference import run_reference
from adt.options.resolve import load_settings
from adt.options.sections import Settings
from adt.package.inputs.random import random_inputs
from adt.package.manifest import TensorSpec
from adt.verbs.reference_run import MOST_BYTES, with_references
from support.models.small import small_model
from support.standins.artefacts import entry, make_app_bundle, make_typed_package, tensor

X, Y = tensor("x", (1, 4)), tensor("y", (1, 3))
SOURCE = "model.onnx"


@pytest.fixture(autouse=True)
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a model ``y = relu(x @ w)`` that was compiled here."""
    monkeypatch.setenv("ADT_CACHE_DIR", str(tmp_path / "cache"))
    model = small_model(tmp_path / SOURCE)
    model_store.keep(model, hashlib.sha256(SOURCE.encode()).hexdigest())
    return model


def described(
    directory: Path, *outputs: TensorSpec, source: str = SOURCE, devices: tuple[str, ...] = ("cpu",)
) -> Project:
    """Describe a project of one model; what it has for OpenCL is in half precision."""
    packages = [
        make_typed_package(
            directory / device, "net", [entry([X], outputs or [Y])], source=source, device=device,
            precision="float16" if device == "opencl" else "float32",
        )
        for device in devices
    ]  # fmt: skip
    return project(packages, [make_app_bundle(directory / "bundle")], java_package="com.example.vision")


def against(directory: Path, **outputs: np.ndarray) -> Settings:
    """Return settings by which *outputs* are right."""
    np.savez(directory / "right.npz", **outputs)
    settings = load_settings({}).settings
    return replace(settings, verify=settings.verify.but(reference=str(directory / "right.npz")))


def test_it_is_the_models_own_runtime_on_inputs_of_the_seed(tmp_path: Path, model: Path) -> None:
    (net,) = with_references(described(tmp_path), load_settings({}).settings).models
    inputs = random_inputs([X], 0)
    right = run_reference(model, inputs)["y"]
    run = net.reference
    assert run is not None
    assert (run.filled, run.by) == ("seed 0", "onnxruntime")
    assert run.inputs == (inputs["x"].tobytes(),)
    (output,) = run.outputs
    assert (output.data, output.others) == (right.astype(np.float64).tobytes(), 0)
    assert output.limit == pytest.approx(1e-4 * max(1.0, float(np.abs(right).max())))


def test_any_of_the_packages_may_run(tmp_path: Path) -> None:
    """Apply half precision's tolerance, since the phone may take that package."""
    (net,) = with_references(
        described(tmp_path, devices=("cpu", "opencl")), load_settings({}).settings
    ).models
    assert net.reference is not None
    assert net.reference.outputs[0].limit >= 1e-2


def test_whole_numbers_may_differ_as_verify_has_it(tmp_path: Path) -> None:
    specs = (tensor("best", (2, 100), "int32"), tensor("level", (50,), "uint8"), tensor("on", (300,), "bool"))
    arrays = {each.name: np.zeros([int(n) for n in each.shape], each.dtype) for each in specs}
    (net,) = with_references(described(tmp_path, *specs), against(tmp_path, **arrays)).models
    assert net.reference is not None
    assert [(output.limit, output.others) for output in net.reference.outputs] == [(0, 2), (1, 0), (0, 3)]


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (np.array([[1, np.nan, 3]], np.float32), "gives NaN or infinity as y"),
        (np.zeros((1, 3)), "has float64[1, 3]"),
        (np.zeros(MOST_BYTES // 8, np.float32), "its arrays have 16 MiB, more than 16"),
    ],
)
def test_what_is_nothing_to_compare_with_is_left_out(
    array: np.ndarray, reason: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spec = TensorSpec("y", array.shape, "float32")
    (net,) = with_references(described(tmp_path, spec), against(tmp_path, y=array)).models
    assert net.reference is None
    assert "the device test of net compares with no reference" in caplog.text and reason in caplog.text


def test_without_the_source_model_the_test_has_no_reference(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = with_references(described(tmp_path, source="another.onnx"), load_settings({}).settings)
    assert "another.onnx" in caplog.text and "is not in this machine's cache" in caplog.text
    (test,) = device_tests(app)
    assert isinstance(test, TextFile)
    assert "GivesTheReference" not in test.text and "GivesTheSameTwice" in test.text


def test_the_project_carries_the_arrays(tmp_path: Path) -> None:
    app = with_references(described(tmp_path), load_settings({}).settings)
    test, *arrays = device_tests(app)
    assert isinstance(test, TextFile) and "runGivesTheReference" in test.text
    directory = "vision/src/androidTest/assets/adt-reference/net"
    assert [file.path for file in arrays] == [f"{directory}/input0.bin", f"{directory}/output0.bin"]
    words = {"out": tmp_path / "out", "java_package": "com.example.vision", "bundles": [tmp_path / "bundle"]}
    adt.generate("aar", [tmp_path / "cpu"], **words)
    for file in arrays:
        assert isinstance(file, DataFile)
        assert (tmp_path / "out" / file.path).read_bytes() == file.data
    assert not adt.generate("aar", [tmp_path / "cpu"], **words, dry_run=True).plan.changes
    # Edited, it is told from what adt wrote.
    (tmp_path / "out" / directory / "input0.bin").write_bytes(b"mine")
    edited = adt.generate("aar", [tmp_path / "cpu"], **words, dry_run=True)
    assert "Binary files a/" in diff(edited.plan) and "differ, 16 bytes" in diff(edited.plan)
