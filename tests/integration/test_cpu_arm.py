"""Networks in blocks of NEON's four lanes give onnxruntime's numbers on emulated Arm processors."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import adt
from support.devices.emulated import outputs_of
from support.models.networks import mixed_blocks, mobilenet_v2, resnet18

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
NETWORKS = (resnet18, mobilenet_v2, mixed_blocks)


@pytest.mark.parametrize(
    ("network", "cpu"), [(resnet18, "cortex-a76"), (mobilenet_v2, "cortex-a55"), (mixed_blocks, "")]
)
def test_on_arm64(network: Callable[[Path, int], Path], cpu: str, tmp_path: Path) -> None:
    like_onnxruntime(network(tmp_path / "model.onnx", 40), "linux-aarch64", cpu)


@pytest.mark.parametrize("layer", ["3x3", "first3x3", "points", "depthwise@14", "product"])
def test_sums_stay_in_registers(layer: str, tmp_path: Path) -> None:
    from cpu_asm import assembly, kernel_loops

    loops = dict(kernel_loops(assembly(tmp_path, layer, "cortex-a76", "linux-aarch64")))

    (loop,) = (loop for name, loop in loops.items() if name.startswith("fused_"))
    assert loop.multiply_adds >= 48
    assert not loop.spills, loop.text


@pytest.mark.nightly  # the bundle alone takes minutes
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.__name__)
def test_on_armv7(network: Callable[[Path, int], Path], tmp_path: Path) -> None:
    like_onnxruntime(network(tmp_path / "model.onnx", 40), "linux-armhf", "cortex-a7")


def like_onnxruntime(model: Path, platform: str, cpu: str) -> None:
    """Check the outputs of the blocked *model* for random inputs, by rtvm."""
    import onnxruntime

    package = adt.compile(model, out=model.parent / "package", platform=platform, cpu=cpu).path
    session = onnxruntime.InferenceSession(str(model))
    (spec,) = session.get_inputs()
    x = np.random.default_rng(3).normal(size=spec.shape).astype(np.float32)
    (have,) = outputs_of(package, {spec.name: x}).values()
    (want,) = session.run(None, {spec.name: x})
    assert np.abs(have - want).max() <= 1e-4 * np.abs(want).max()
