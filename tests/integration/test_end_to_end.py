"""A model on a virtual arm64 device: from the ONNX file to verified numbers, with the `adt` program."""

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adt as api
from adt.errors import AmbiguousDevice, InputError
from adt.virtual import emulator
from support.devices.programs import adt, adt_json
from support.models.small import MAGIKA, detector, small_model

TOLERANCE = 1e-4


@pytest.fixture(scope="module", params=["small", pytest.param("real", marks=pytest.mark.nightly)])
def first_up(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Any]]:
    """Run `adt up` on a machine with no device; stop the virtual one, which it starts, at the end."""
    directory = tmp_path_factory.mktemp("up")
    model = detector(directory / "model.onnx") if request.param == "small" else MAGIKA
    tokens = np.zeros((1, 2048), np.int32)
    tokens[0, :24] = list(b"#!/bin/sh\necho hello arm")
    np.savez(directory / "in.npz", bytes=tokens)
    out = directory / "out.npz"
    document = adt_json("up", model, "--input", directory / "in.npz", "--output", out)
    yield document | {"model": model, "directory": directory, "given": tokens, "out": out}
    if any(info.running for info in emulator.listing()):
        adt("emulator", "stop")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile a package that is quick under emulation, and whose numbers are not exact."""
    model = small_model(tmp_path_factory.mktemp("small") / "small.onnx", op="Sigmoid", dims=(64, 4))
    adt_json("compile", model, "--for", "linux-aarch64", "-o", model.parent / "pkg")
    return model.parent / "pkg"


def test_the_numbers_are_onnxruntimes(first_up: dict[str, Any]) -> None:
    import onnxruntime

    expected = onnxruntime.InferenceSession(str(first_up["model"])).run(None, {"bytes": first_up["given"]})[0]
    with np.load(first_up["out"]) as outputs:
        assert np.abs(outputs["target_label"] - expected).max() <= TOLERANCE
    verification = first_up["verification"]
    assert verification["passed"] and verification["emulated"]
    assert verification["outputs"][0]["max_abs"] <= TOLERANCE
    assert [step["name"] for step in first_up["steps"]][-4:] == ["compile", "emulator", "deploy", "verify"]


def test_a_second_run_reuses_everything_and_says_so(first_up: dict[str, Any]) -> None:
    done = adt("up", first_up["model"])
    assert done.returncode == 0, done.stderr
    steps = {line.split()[1]: line for line in done.stdout.splitlines() if line.startswith("✓")}
    assert "emulator" not in steps and "import" not in steps
    for name in ("build-target", "compile", "deploy"):
        assert "reused" in steps[name], done.stdout
    assert "not Android" not in steps["verify"]
    assert "emulated: right or wrong counts here, time does not" in done.stdout


def test_a_second_deploy_sends_nothing(first_up: dict[str, Any]) -> None:
    document = adt_json("deploy", first_up["package"])
    assert (document["sent_bytes"], document["sent_files"]) == (0, [])
    assert document["rpc"] is None and len(document["deployments"]) == 1, "nobody asked for a server"
    assert len(document["reused_files"]) >= 8


def test_another_package_sends_only_its_own_files(first_up: dict[str, Any], small: Path) -> None:
    document = adt_json("deploy", small)
    assert sorted(Path(name).name for name in document["sent_files"]) == ["mod.json", "mod.params", "mod.so"]


def test_a_run_is_what_up_ran(first_up: dict[str, Any], tmp_path: Path) -> None:
    package, in_file = first_up["package"], first_up["directory"] / "in.npz"
    document = adt_json("run", package, "--input", in_file, "--output", tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as outputs, np.load(first_up["out"]) as before:
        assert np.array_equal(outputs["target_label"], before["target_label"])
    (output,) = document["outputs"]
    assert [output[key] for key in ("name", "dtype", "shape")] == ["target_label", "float32", [1, 214]]


def test_verify(first_up: dict[str, Any], small: Path) -> None:
    seeds = [adt_json("verify", small, "--seed", seed)["outputs"][0]["worst"] for seed in (1, 2)]
    assert seeds[0] != seeds[1], "another seed is another input"
    strict = adt("verify", small, "--max-abs", 0, "--max-rel", 0)
    assert strict.returncode == 20 and "over the tolerance" in strict.stdout
    strict = adt("verify", small, "--max-abs", 0, "--max-rel", 0, "--json")
    assert strict.returncode == 20 and json.loads(strict.stdout)["passed"] is False


ROOT = Path(__file__).parents[2]
VERBS = {"up", "compile", "deploy", "run", "verify", "inspect"}
WORDS = VERBS | {"adt", "model.onnx", "model-pkg", "-o", "--input", "in.npz", "--output", "out.npz"}
"""Words of commands that work as they are, where there is a model and its input."""


def commands(page: Path) -> list[str]:
    """Return the commands in a page's blocks for the shell; of README's, those above the one with a phone."""
    blocks = re.findall(r"^```sh\n(.*?)^```", page.read_text().partition("## With a phone")[0], re.M | re.S)
    return [
        line.partition(" #")[0].strip() for line in "".join(blocks).splitlines() if line.startswith("adt ")
    ]


def test_the_first_commands_of_readme_and_pages_work_as_they_are(
    first_up: dict[str, Any], tmp_path: Path
) -> None:
    """Run them with a virtual device, without a phone and an NDK; a platform that is not named is the device's."""
    shutil.copy(first_up["model"], tmp_path / "model.onnx")
    shutil.copy(first_up["directory"] / "in.npz", tmp_path)
    pages = sorted((ROOT / "docs").glob("*.md"))
    lines = [*commands(ROOT / "README.md"), *(line for page in pages for line in commands(page)[:1])]
    pasted = [line for line in dict.fromkeys(lines) if set(line.split()) <= WORDS]
    assert len(pasted) >= 4, lines
    for line in dict.fromkeys(("adt compile model.onnx -o model-pkg", *pasted)):
        done = adt(*line.split()[1:], cwd=tmp_path)
        assert done.returncode == 0, f"{line}:\n{done.stderr}"
        assert ("for linux-aarch64 (the connected device)\n" in done.stderr) == (" compile " in line)
    done = adt("up", "model.onnx", cwd=tmp_path, env={**os.environ, "ADT_BUILD_PLATFORM": "linux-armhf"})
    assert done.returncode == 12, "a setting comes first"
    assert "remedy: Give --for linux-aarch64" in done.stderr


def test_devices_of_two_platforms_choose_none_until_one_is_named(
    first_up: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    (second,) = adt_json("emulator", "start", "second", "--abi", "x86_64")["emulators"]
    try:
        done = adt("build-target", "--explain")
        assert done.returncode == AmbiguousDevice.exit_code, done.stderr
        assert f"{second['serial']} is host" in done.stderr
        assert "--for host or --for linux-aarch64" in done.stderr
        monkeypatch.setenv("ANDROID_SERIAL", second["serial"])
        assert "for host (the connected device)" in adt("build-target", "--explain").stderr
        assert "(the" not in adt("build-target", "--explain", "--for", "linux-aarch64").stderr
    finally:
        assert adt("emulator", "stop", "second").returncode == 0


WRONG = {
    "none": ({}, "bytes"),
    "name": ({"byte": np.zeros((1, 2048), np.int32)}, "byte"),
    "shape": ({"bytes": np.zeros((1, 2047), np.int32)}, "2047"),
    "dtype": ({"bytes": np.zeros((1, 2048), np.float32)}, "float32"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_inputs_are_refused_with_what_was_wanted(
    first_up: dict[str, Any], tmp_path: Path, wrong: str
) -> None:
    arrays, message = WRONG[wrong]
    np.savez(tmp_path / "in.npz", **arrays)
    with pytest.raises(InputError, match=message) as caught:
        api.run(Path(first_up["package"]), files=[tmp_path / "in.npz"])
    assert caught.value.remedy


def test_the_program_ends_with_the_code_of_what_it_refused(first_up: dict[str, Any], tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", bytes=np.zeros((1, 2047), np.int32))
    done = adt("run", first_up["package"], "--input", tmp_path / "in.npz")
    assert done.returncode == InputError.exit_code == 19, done.stderr
    assert "2047" in done.stderr and "remedy:" in done.stderr


def test_a_package_for_another_platform_is_refused_before_anything_is_sent(
    first_up: dict[str, Any], tmp_path: Path
) -> None:
    adt_json("compile", small_model(tmp_path / "m.onnx"), "--for", "host", "-o", tmp_path / "pkg")
    assert adt("build-target", "--for", "host").returncode == 0
    done = adt("deploy", tmp_path / "pkg")
    assert done.returncode == 12 and "linux-aarch64" in done.stderr


def test_a_changed_package_is_refused(first_up: dict[str, Any], small: Path, tmp_path: Path) -> None:
    shutil.copytree(small, tmp_path / "pkg")
    (tmp_path / "pkg/mod.params").write_bytes(b"damage")
    done = adt("run", tmp_path / "pkg")
    assert done.returncode == 11 and "mod.params" in done.stderr
    document = json.loads((tmp_path / "pkg/mod.json").read_text())
    (tmp_path / "pkg/mod.json").write_text(json.dumps(document | {"requires": ["surprise"]}))
    done = adt("run", tmp_path / "pkg")
    assert done.returncode == 11 and "surprise" in done.stderr


def test_verify_needs_the_source_model(first_up: dict[str, Any], small: Path, tmp_path: Path) -> None:
    other = small_model(tmp_path / "other.onnx")
    done = adt("verify", small, "--model", other)
    assert done.returncode == 8 and "is not the model" in done.stderr
    assert adt("verify", small, "--model", small.parent / "small.onnx").returncode == 0


def test_a_deploy_alone_makes_a_server_ready_that_no_clean_takes_away(first_up: dict[str, Any]) -> None:
    try:
        done = adt("deploy", "--key", "e2e")
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1].startswith("ready: key=e2e tracker=127.0.0.1:")
        document = adt_json("deploy", first_up["package"], "--rpc", "--key", "e2e")
        assert document["rpc"]["key"] == "e2e" and len(document["deployments"]) == 2
        cleaned = adt_json("clean", "--keep", 0)
        assert len(cleaned["in_use"]) == 1 and cleaned["in_use"][0].startswith("bundle-linux-aarch64")
        assert document["rpc"] == adt_json("deploy", "--key", "e2e")["rpc"], "the same server goes on"
    finally:
        adt("rpc", "stop", "--all")
        adt("tracker", "stop")
    assert adt_json("clean", "--keep", 0)["in_use"] == []


def test_without_the_virtual_device_nothing_runs(first_up: dict[str, Any]) -> None:
    """Stop the device last: what ran before ran there."""
    assert adt("emulator", "stop").returncode == 0
    for verb in ("run", "verify", "deploy"):
        done = adt(verb, first_up["package"])
        assert done.returncode == 13, done.stderr
        assert "adt emulator start" in done.stderr
    done = adt("emulator", "stop")
    assert done.returncode == 21
    assert adt("emulator", "list").stdout.startswith("no virtual device")
