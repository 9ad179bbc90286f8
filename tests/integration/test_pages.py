"""Commands of README and docs/, page by page as a reader pastes them, with a virtual device and no NDK."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import adt as api
from adt.compiler.networks.builder import Network
from adt.virtual import emulator
from support.devices.programs import path_with_adt

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NEEDS = {
    r"android|\bndk\b|phone-pkg|adt (apk|install)\b|--like|--serial|R5CT": "a phone, or an NDK",
    r"--cuda|cuda:|--clml|--offload clml|clml-pkg|/path/to|-opencl-sdk": "a library or an SDK",
    r"--key|--tracker|--serial|rpc start|desk1|db (publish|fetch)|dask": "other machines, or their records",
    r"gpu-pkg|adreno-pkg|int8-pkg|clml-pkg|other-pkg|before-pkg|detector.tflite|my_models": "another model",
    r"--shape|--keep-float32|--threads 4|--trace|--fail-on|llm.onnx|https:": "the reader's own model, or processor",
    r"--target (adreno|mali|opencl)|-device=(adreno|mali)|target mali": "a GPU, whose kernels are checked here for long",
    r"NAME|VERB|bundle bundle|libfoo|app-release|adb --|--import|xnnpack|armhf|armv7": "what the page says before",
}
"""Pattern of commands that are not run here → what they need."""


def commands(page: Path) -> list[str]:
    """Return the commands of adt in a page's blocks for the shell that need nothing more."""
    blocks = re.findall(r"^```(?:sh|console)\n(.*?)^```", page.read_text(), re.M | re.S)
    lines = [line.removeprefix("$ ").split(" #")[0].strip() for line in "".join(blocks).splitlines()]
    adts = [line for line in lines if line.startswith("adt ") and "…" not in line]
    return [line for line in adts if not any(re.search(pattern, line) for pattern in NEEDS)]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Write a small model, its package and its inputs, and start the virtual device."""
    at = tmp_path_factory.mktemp("pages")
    net = Network((1, 3, 32, 32))
    layers = net.relu(net.conv(net.relu(net.conv("x", 8, 3, 2)), 8, 3))
    model = net.save(at / "model.onnx", net.classifier(layers, 5), (1, 5))
    rng = np.random.default_rng(0)
    for name in ("in", "photo", "noise", "sample", "samples"):
        shape = (8 if name == "samples" else 1, 3, 32, 32)
        np.savez(at / f"{name}.npz", x=rng.normal(size=shape).astype(np.float32))
    (at / "pictures").mkdir()
    for name in ("cat.png", "cat.jpg", "pictures/1.png", "pictures/2.png"):
        Image.fromarray(rng.integers(0, 255, (40, 30, 3), dtype=np.uint8)).save(at / name)
    for name in ("synset.txt", "labels.txt"):
        (at / name).write_text("\n".join(f"kind {number}" for number in range(5)))
    (at / "labels.json").write_text('["a", "b", "c", "d", "e"]')
    for name in ("detector", "q", "efficientnet-lite0"):
        shutil.copy(model, at / f"{name}.onnx")
    api.build_target(platform="host")
    api.build_target(platform="linux-aarch64")
    api.emulator_start()
    for name in ("model", "photo", "resnet", "q"):
        api.compile(model, platform="linux-aarch64", out=at / f"{name}-pkg")
    api.tune(model, platform="host", trials=4, db=at / "records")
    yield at
    for info in emulator.listing():
        emulator.stop(info.name)


@pytest.mark.nightly
@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=lambda page: page.name)
def test_a_page_works_as_it_is_pasted(
    page: Path, prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", path_with_adt())
    monkeypatch.setenv("ADT_TUNE_REPEAT", "1")
    if page.name == "virtual-device.md":
        emulator.stop("default")  # the page starts its own
    directory = shutil.copytree(prepared, tmp_path / "page")
    try:
        for line in commands(page):
            done = subprocess.run(
                ["bash", "-c", line],
                cwd=directory, capture_output=True, text=True, timeout=900, check=False, stdin=subprocess.DEVNULL,
            )  # fmt: skip
            assert done.returncode == 0, f"{line}:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    finally:
        if not any(info.running for info in emulator.listing()):
            api.emulator_start()


def test_the_rules_leave_commands_to_run() -> None:
    assert sum(len(commands(page)) for page in PAGES) >= 80
