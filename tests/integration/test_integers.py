"""Quantized models are computed in whole numbers, with what each processor has for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

import adt
from adt.model.package.package import ModelPackage
from support.devices.emulated import outputs_of
from support.models.quantized_onnx import NETWORKS, Examples, written_by_onnxruntime
from support.models.vision import mobilenet_v2, resnet18

HERE = frozenset(Path("/proc/cpuinfo").read_text().split())
PROCESSORS = {
    "x86-64": ("sse2", "pmaddwd"),
    "haswell": ("avx2", "vpmaddwd"),
    "skylake-avx512": ("avx512bw", "vpmaddwd"),
    "cascadelake": ("avx512_vnni", "vpdpbusd"),
}
"""Core to the feature that a machine runs its code with, and the instruction that sums products."""
KINDS = ("QDQ uint8", "QOperator int8")


@pytest.fixture(params=PROCESSORS)
def cpu(request: pytest.FixtureRequest) -> str:
    feature, _ = PROCESSORS[request.param]
    assert "sse2" in HERE, "these tests run on x86-64"
    if feature not in HERE:
        pytest.skip(f"this machine has no {feature}")
    return str(request.param)


def quantized(network: Callable[[Path, int], Path], activations: QuantType, directory: Path) -> Path:
    """The *network* of 40 pixels, by onnxruntime's quantizer."""
    source = network(directory / "float.onnx", 40)
    quantize_static(
        source, directory / "q.onnx", Examples(onnx.load(source)), quant_format=QuantFormat.QDQ,
        activation_type=activations, weight_type=QuantType.QInt8, per_channel=True, reduce_range=True,
    )  # fmt: skip
    return directory / "q.onnx"


def inputs_of(model: Path, seed: int = 5) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {
        spec.name: random.integers(0, 2, spec.shape)
        if "int" in spec.type
        else random.uniform(-1, 1, spec.shape).astype(np.float32)
        for spec in onnxruntime.InferenceSession(str(model)).get_inputs()
    }


def quanta_off(model: Path, have: np.ndarray, quantum: float, seed: int = 5) -> float:
    """How many quanta the output is from onnxruntime's."""
    (want,) = onnxruntime.InferenceSession(str(model)).run(None, inputs_of(model, seed))
    assert have.shape == want.shape and np.abs(want).max() > 2 * quantum > 0
    return float(np.abs(have - want).max() / quantum)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("network", ["convolutions", "transformer"])
def test_what_onnxruntime_writes(network: str, kind: str, cpu: str, tmp_path: Path) -> None:
    assert network in NETWORKS
    model = written_by_onnxruntime(network, kind, tmp_path)

    package = adt.compile(model, out=tmp_path / "package", platform="host", cpu=cpu)

    (have,) = outputs_of(package.path, inputs_of(model)).values()
    (quantum,) = package.manifest.made.quanta.values()
    assert quanta_off(model, have, quantum) <= 2.01
    assert f"\t{PROCESSORS[cpu][1]}\t" in adt.inspect(package.path).assembly()


@pytest.mark.parametrize("cpu", ["x86-64", "cascadelake"], indirect=True)
def test_what_is_quantized_at_run_time(cpu: str, tmp_path: Path) -> None:
    model = written_by_onnxruntime("transformer", "dynamic", tmp_path)

    package = adt.compile(model, out=tmp_path / "package", platform="host", cpu=cpu)

    (have,) = outputs_of(package.path, inputs_of(model)).values()
    (want,) = onnxruntime.InferenceSession(str(model)).run(None, inputs_of(model))
    assert np.abs(want).max() > 0 and np.abs(have - want).max() <= 1e-5
    assert f"\t{PROCESSORS[cpu][1]}\t" in adt.inspect(package.path).assembly()


def assert_like_onnxruntime(model: Path, package: ModelPackage) -> None:
    """In a deep network one value on the edge of two quanta spreads: of five inputs the best is no more than
    two quanta off onnxruntime's kernels."""
    (quantum,) = package.manifest.made.quanta.values()
    off = []
    for seed in range(5):
        (have,) = outputs_of(package.path, inputs_of(model, seed)).values()
        off.append(quanta_off(model, have, quantum, seed))
    assert min(off) <= 2.01


@pytest.mark.parametrize(
    ("network", "activations", "cpu"),
    [
        (resnet18, QuantType.QInt8, "cascadelake"),
        (mobilenet_v2, QuantType.QUInt8, "haswell"),
        (mobilenet_v2, QuantType.QInt8, "x86-64"),
    ],
    indirect=["cpu"],
)
def test_networks(
    network: Callable[[Path, int], Path], activations: QuantType, cpu: str, tmp_path: Path
) -> None:
    model = quantized(network, activations, tmp_path)

    assert_like_onnxruntime(model, adt.compile(model, out=tmp_path / "package", platform="host", cpu=cpu))


@pytest.mark.parametrize("network", [resnet18, mobilenet_v2])
def test_on_arm64(network: Callable[[Path, int], Path], tmp_path: Path) -> None:
    model = quantized(network, QuantType.QUInt8, tmp_path)

    package = adt.compile(model, out=tmp_path / "package", platform="linux-aarch64", cpu="cortex-a76")

    assert_like_onnxruntime(model, package)
    assert "\tsdot\t" in adt.inspect(package.path).assembly()
