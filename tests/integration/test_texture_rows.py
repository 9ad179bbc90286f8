"""Softmax and normalizations are one kernel of a GPU each, and right on this machine's OpenCL."""

from pathlib import Path

import pytest

import adt
from adt.compiler.networks.builder import Network
from support.models.reference import off_reference
from support.models.sequences import SequenceNetwork
from support.sampling import matrix

SHAPES = [
    (1, 2, 1), (1, 5, 3), (2, 3, 7), (1, 2, 16), (2, 3, 20), (1, 4, 61), (4, 8, 128), (1, 3, 197),
    (1, 197, 192), (1, 3, 1000), (1, 2, 4096), (1, 1, 50257), (4, 1024, 64),
]  # fmt: skip
"""Row kernels: one or several rows of a work-item, by vectors or elements, kept in registers or read
again."""


@pytest.mark.parametrize(("target", "part"), matrix(["opencl", "mali", "adreno"], range(3)))
def test_rows_of_any_length_are_right_in_one_kernel_each(tmp_path: Path, target: str, part: int) -> None:
    net = SequenceNetwork()
    inputs, outputs = {}, {}
    for count, shape in enumerate(SHAPES[part::3]):
        x = f"x{count}"
        inputs[x] = shape
        rows = net.op("Softmax", x, axis=-1), net.layer_norm(x, shape[-1], decomposed=count % 2 == 1)
        outputs |= {net.op("Tanh", row): shape for row in rows}
        outputs[net.op("Softmax", x, axis=1)] = shape
    first, *others = outputs
    model = net.save(
        tmp_path / "rows.onnx", inputs, first, outputs[first], {name: outputs[name] for name in others}
    )

    package = adt.compile(
        model, out=tmp_path / "package", platform="host", target=target, check=False, use_cache=False
    )

    assert off_reference(package, model, least=1e-3) < 2e-6
    names = {kernel.name for kernel in package.manifest.kernels}
    assert names and all("softmax" in name or "normalization" in name for name in names)
    sources = [path.read_text() for path in (package.path / "inspect" / "opencl").iterdir()]
    assert all("own_" in source for source in sources)


@pytest.mark.parametrize(("target", "channels"), matrix(["opencl", "adreno"], [20, 6]))
def test_maps_are_normalized_in_blocks(tmp_path: Path, target: str, channels: int) -> None:
    """Normalize by instance behind a convolution, of 20 channels and of 6, which leave spare lanes."""
    net = Network((2, 4, 12, 9))
    y = net.conv("x", channels)
    constants = [net.drawn((channels,), 0.3, 1.0) for _ in range(2)]
    y = net.relu(net.op("InstanceNormalization", [y, *constants], channels, epsilon=1e-3))
    model = net.save(tmp_path / "maps.onnx", net.conv(y, 8), (2, 8, 12, 9))

    package = adt.compile(
        model,
        out=tmp_path / "package",
        platform="host",
        target=target,
        texture_choice="always",
        check=False,
        use_cache=False,
    )

    assert off_reference(package, model, least=1e-3) < 2e-6
    names = [kernel.name for kernel in package.manifest.kernels]
    assert len([name for name in names if "normalization_blocks" in name and "relu" in name]) == 1
    assert not [name for name in names if "pool" in name or "variance" in name]
