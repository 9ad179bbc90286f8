"""Each example in cells, from a copy and in a directory of its own, as a user runs it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from adt.rpc import server, tracker
from adt.virtual import emulator
from support.devices.programs import path_with_adt

EXAMPLES = Path(__file__).parents[2] / "examples"
SHOWN = {
    "adreno.sh": (
        "android  1      1     0",
        "mod.json\nmod.so\nmod.params\n",
        "__read_only image2d_array_t",
        "✓ out: float32[1, 16, ",
        "1 × openclml.relu.bias.nn.conv2d",
        "CMakePresets.json",
    ),
    "mobile_gpu_tuning.sh": (
        "rk3399  2      2     0",
        "of 2 kernels (records of",
        "outputs     right: 1 of 1",
    ),
    "cross_compile_and_rpc.py": ("add_one.so for linux-aarch64", "cpu: right", "opencl: right"),
    "host_tuning.py": (
        " with probability=0.",
        "8 of 8",
        "kernels are tuned",
        "unoptimised",
    ),
    "external_library.py": (
        "fused_conv_blocks_add_relu",
        '"xnnpack.conv2d": 1',
        "off by at most",
        "which is faster?",
    ),
    "own_relax.py": ("kernel own_clip\n", "on this machine's CPU: right"),
}
"""Words that each example prints only when it succeeds."""
SMALL_NETWORK = ("simple_network.py", "SHAPE = (1, 3, 224, 224)", "SHAPE = (1, 3, 32, 32)")
"""File of an example, and what makes its network a small one."""
QUICK = {
    "ADT_COMPILE_CHECK": "off",
    "ADT_TUNE_BUILDERS": "1",
    "ADT_TUNE_COST_MODEL": "none",
    "ADT_TUNE_REPEAT": "2",
    "ADT_TUNE_MIN_REPEAT_MS": "1",
}
"""Settings of the small ones: they run what they compile, and tune with a few candidates."""
SMALL_CLASSIFIER = """
import json
from PIL import Image
from adt.compiler.networks.builder import Network
from adt.verbs import options

options.PROTOCOL.default = "quick"  # for the comparison after tuning

def download(directory):
    Image.new("RGB", (40, 30), "orange").save(directory / "cat.png")
    (directory / "labels.json").write_text(json.dumps([f"kind {number}" for number in range(5)]))
    net = Network((1, 3, 16, 16))
    x = net.relu(net.conv(net.relu(net.conv("x", 8, 3, 2)), 8, 3))
    return net.save(directory / "small.onnx", net.classifier(x, 5), (1, 5))
"""
"""Stand-in for efficientnet_lite0.py."""


def test_every_example_in_cells_is_run() -> None:
    in_cells = {path.name for path in EXAMPLES.iterdir() if path.is_file() and "# %%" in path.read_text()}
    assert in_cells == SHOWN.keys()


@pytest.mark.parametrize(
    "small", [True, pytest.param(False, marks=pytest.mark.nightly)], ids=["small", "real"]
)
@pytest.mark.parametrize("name", SHOWN)
def test_an_example_runs_from_a_copy(name: str, small: bool, tmp_path: Path) -> None:
    copy = shutil.copytree(EXAMPLES, tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    environ = os.environ | {"PATH": path_with_adt()}
    if small:
        file, extent, less = SMALL_NETWORK
        text = (copy / file).read_text()
        assert extent in text
        (copy / file).write_text(text.replace(extent, less))
        (copy / "efficientnet_lite0.py").write_text(SMALL_CLASSIFIER)
        environ |= QUICK
    (tmp_path / "work").mkdir()
    program = "bash" if name.endswith(".sh") else sys.executable
    done = subprocess.run(
        [program, copy / name],
        cwd=tmp_path / "work",
        env=environ,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    output = done.stdout + done.stderr
    assert [text for text in SHOWN[name] if text not in output] == [], output
    if name == "host_tuning.py":
        assert done.stdout.count("class=") == 10, "five before tuning and five after"
        assert small or "class='Egyptian cat' with" in done.stdout
    assert not any((tmp_path / "work").iterdir()), "an example removes its files"
    assert not any(info.running for info in emulator.listing())
    assert not server.statuses() and not tracker.running()
