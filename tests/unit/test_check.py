"""Comparison of outputs when kernels are checked."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import relax

from adt.compiler.importers.value_ranges import rounds_within
from adt.compiler.kernel_check import MOST, STEPS_WITHIN, _compared, _obstacle, compare, limit_of_steps
from adt.compiler.targets import ModelTarget
from adt.errors import VerifyFailed
from adt.numerics import TOLERANCES
from adt.package.host_run.opencl import HostOpenCl
from adt.package.package import KernelCheck, ModelPackage, OutputCheck, SkippedCheck, load_check, save_check
from support.standins.artefacts import package_manifest
from support.standins.opencl import POCL

LIMIT = TOLERANCES["float32"].kernel


def test_the_difference_is_a_share_of_the_magnitude() -> None:
    expected = np.array([0.0, -50.0, 100.0], np.float32)

    assert compare("y", expected + np.float32(1), expected, LIMIT).difference == pytest.approx(0.01)
    assert compare("y", expected, expected, LIMIT).difference == 0


def test_rounding_behind_a_sigmoid_is_no_difference() -> None:
    expected = np.array([1.06e-5, 2e-6])

    assert compare("y", expected + 9.3e-8, expected, LIMIT).difference < LIMIT
    assert compare("y", expected + 1e-5, expected, LIMIT).difference > LIMIT


@pytest.mark.parametrize(
    ("differs", "changes", "limit"),
    [(0.02, None, STEPS_WITHIN), (0.1, 0.0, STEPS_WITHIN), (0.1, 0.08, 0.16), (0.1, 0.9, MOST)],
)
def test_what_makes_much_of_a_step_may_differ_as_much(
    differs: float, changes: float | None, limit: float
) -> None:
    """Measure by what the CPU gives for inputs that hardly differ, where that is needed."""
    expected = {"y": np.array([1.0, -0.5], np.float32)}

    def changed() -> dict[str, Any]:
        assert changes is not None
        return {"y": expected["y"] + changes}

    assert limit_of_steps(LIMIT, {"y": expected["y"] + differs}, expected, changed) == pytest.approx(
        limit, rel=1e-2
    )


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_must_be_so_in_both(bad: float) -> None:
    expected, have = np.array([1.0, bad]), np.array([1.0, 2.0])

    assert compare("y", expected, expected, LIMIT).difference == 0
    assert compare("y", have, expected, LIMIT).difference == float("inf")
    assert compare("y", expected, have, LIMIT).difference == float("inf")


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nothing_finite_does_not_pass(bad: float) -> None:
    expected = np.full(8, bad)

    row = compare("y", expected.copy(), expected, LIMIT)

    assert not row.passed and row.nothing_finite
    assert not compare("y", np.zeros(8), expected, LIMIT).nothing_finite


def test_a_quantum_passes() -> None:
    expected = np.array([0.0, 1.0], np.float32)

    assert not compare("y", expected + np.float32(0.01), expected, LIMIT).passed
    assert compare("y", expected + np.float32(0.01), expected, LIMIT, quantum=0.01).passed
    assert compare("y", np.array([3, 4], np.int8), np.array([3, 5], np.int8), LIMIT).passed


@pytest.mark.parametrize("choice", ["auto", "on"])
def test_a_check_on_nothing_but_nan_is_none(choice: str) -> None:
    package = ModelPackage(Path("p"), package_manifest())
    outputs = {"y": np.full(4, np.nan, np.float32)}
    if choice == "on":
        with pytest.raises(VerifyFailed, match="nothing finite"):
            _compared(outputs, outputs, package, "PoCL", choice, LIMIT)
    else:
        outcome = _compared(outputs, outputs, package, "PoCL", choice, LIMIT)
        assert isinstance(outcome, SkippedCheck) and "nothing finite" in outcome.reason


def test_of_whole_numbers_it_is_the_share_that_differs() -> None:
    expected = np.arange(1000)
    have = expected.copy()
    have[3] += 1

    row = compare("indices", have, expected, LIMIT)

    assert not row.floating
    assert row.difference == pytest.approx(0.001)
    assert row.passed


def test_what_came_of_it_is_kept_beside_a_package_in_the_cache(tmp_path: Path) -> None:
    done = KernelCheck("PoCL", "random", 1e-4, (OutputCheck("y", 1e-7, True),))
    for outcome in (done, SkippedCheck("no device")):
        save_check(outcome, tmp_path / "check.json")
        assert load_check(tmp_path / "check.json") == outcome
    save_check(None, tmp_path / "none.json")
    assert load_check(tmp_path / "none.json") is None


BUFFERS = ModelTarget("opencl", "opencl", {"kind": "opencl"}, ("opencl",))
TEXTURES = ModelTarget("adreno", "opencl", {"kind": "opencl"}, ("opencl", "opencl"), textures=True)


@pytest.mark.parametrize(
    ("changes", "device", "target", "reason", "remedy"),
    [
        ({}, None, BUFFERS, "no OpenCL device", "Install a driver"),
        ({"offload": "clml"}, POCL, BUFFERS, "CLML, which computes part of it", "--offload none"),
        ({}, replace(POCL, images=False), TEXTURES, "has no images", "--target adreno-buffer"),
        ({"precision": "float16"}, POCL, BUFFERS, "half precision", "--precision float32"),
    ],
)
def test_each_obstacle_has_its_own_remedy(
    changes: dict[str, Any], device: HostOpenCl | None, target: ModelTarget, reason: str, remedy: str
) -> None:
    manifest = package_manifest()
    on_opencl = replace(manifest, target=replace(manifest.target, device="opencl"))
    package = ModelPackage(Path("p"), replace(on_opencl, **changes))

    outcome = _obstacle(device, package, target)

    assert outcome is not None and reason in outcome[0] and remedy in outcome[1]
    assert ("Install a driver" in outcome[1]) == (device is None)


def test_without_an_obstacle_they_are_run() -> None:
    package = ModelPackage(Path("p"), package_manifest())
    assert _obstacle(POCL, package, BUFFERS) is None
    half = ModelPackage(Path("p"), replace(package_manifest(), precision="float16"))
    assert _obstacle(replace(POCL, extensions=("cl_khr_fp16",)), half, BUFFERS) is None


@pytest.mark.parametrize(("dtype", "rounds"), [("uint8", True), ("int32", False)])
def test_a_model_that_makes_bytes_rounds_within(dtype: str, rounds: bool) -> None:
    x = relax.Var("x", relax.TensorStructInfo((4,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        whole = builder.emit(relax.op.astype(x, dtype))
        builder.emit_func_output(builder.emit(relax.op.astype(whole, "float32")))

    assert rounds_within(builder.get()["main"]) == rounds
