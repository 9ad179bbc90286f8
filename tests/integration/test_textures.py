"""Textured packages are right, on this machine's OpenCL; and a kernel that is not is found when it is compiled."""

from pathlib import Path
from typing import Any

import pytest

import adt
from adt.compiler import kernel_check
from adt.compiler.networks.builder import Network
from adt.compiler.passes.layout import blocks
from adt.errors import ToolNotFound, VerifyFailed
from adt.package.host_run.opencl import opencl_device
from adt.package.inputs.random import random_inputs
from adt.package.package import KernelCheck, ModelPackage, SkippedCheck
from adt.verbs.compile import CompileRequest, job_of
from support.devices import intel_opencl
from support.models import vision
from support.models.reference import largest_error, off_reference
from support.sampling import matrix, of_each_run


def compiled(model: Path, out: Path, **options: Any) -> ModelPackage:
    return adt.compile(
        model, out=out, **{"platform": "host", "target": "adreno", "use_cache": False, **options}
    )


def two_convolutions(path: Path) -> Path:
    """Write two convolutions so small that their kernels are compiled and checked in seconds."""
    net = Network((1, 4, 8, 8))
    return net.save(path, net.conv(net.relu(net.conv("x", 8)), 4, 1), (1, 4, 8, 8))


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ModelPackage]:
    """Compile the blocks of newer networks with textures."""
    place = tmp_path_factory.mktemp("mixed")
    model = vision.mixed_blocks(place / "model.onnx")
    return model, compiled(model, place / "package", check=True)


@pytest.mark.parametrize(
    "network",
    [
        vision.residual_blocks,
        *(pytest.param(each, marks=pytest.mark.nightly) for each in (vision.resnet18, vision.mobilenet_v2)),
    ],
    ids=lambda network: network.__name__,
)
def test_a_network_in_textures_is_right(tmp_path: Path, network: Any) -> None:
    model = network(tmp_path / "model.onnx")

    package = compiled(model, tmp_path / "package", check=False)

    assert off_reference(package, model) < 1e-5
    report = package.manifest.made.textures
    assert report is not None
    convolutions = [kernel for kernel in report.kernels if "conv" in kernel.kernel]
    textured = sum(kernel.operations for kernel in convolutions if kernel.reads or kernel.writes)
    assert textured >= 0.9 * sum(kernel.operations for kernel in convolutions)
    assert not [row for row in report.convolutions if row.reason and row.kind == "convolution"]


def test_the_blocks_of_newer_networks_are_right_and_checked(mixed: tuple[Path, ModelPackage]) -> None:
    model, package = mixed

    assert isinstance(package.checked, KernelCheck)
    assert package.checked.worst < 1e-5
    assert off_reference(package, model) < 1e-5
    assert package.manifest.target.vdevices == ("opencl", "opencl")


@pytest.mark.parametrize(
    ("target", "network"), matrix(["opencl", "mali"], [vision.mixed_blocks, vision.residual_blocks])
)
def test_a_gpu_without_textures_has_the_same_blocks_in_buffers(
    tmp_path: Path, target: str, network: Any
) -> None:
    model = network(tmp_path / "model.onnx")

    package = compiled(model, tmp_path / "package", target=target, texture_choice="always", check=False)

    assert off_reference(package, model) < 1e-5
    record = package.manifest.made
    assert record.textures is None and not package.manifest.entry().images
    assert package.manifest.target.vdevices == ("opencl",)
    assert record.blocked and not [row for row in record.blocked if row.reason and row.kind == "convolution"]
    sources = [path.read_text() for path in (package.path / "inspect" / "opencl").iterdir()]
    convolutions = [source for source in sources if "float4 conv_" in source]
    assert convolutions and all("__global float4* restrict" in source for source in convolutions)
    assert any("__local" in source for source in convolutions) == (target == "opencl")


@pytest.mark.parametrize("target", of_each_run(1, "adreno", "opencl"))
def test_volumes_are_blocked_and_lie_in_images_whose_layers_are_frames(tmp_path: Path, target: str) -> None:
    model = vision.resnet3d(tmp_path / "model.onnx", 16, 4, ((32, 1), (64, 2)))

    package = compiled(model, tmp_path / "package", target=target, check=False)

    assert off_reference(package, model) < 1e-5
    record = package.manifest.made
    rows = record.textures.convolutions if record.textures else record.blocked
    convolutions = [row for row in rows if row.kind == "convolution"]
    assert len(convolutions) == 6 and not [row for row in convolutions if row.reason]
    if record.textures:
        written = [kernel.writes for kernel in record.textures.kernels if "conv_blocks" in kernel.kernel]
        assert len(written) >= 5 and sum(written) >= len(written) - 1


def test_blocks_that_nobody_wants_are_not_made(tmp_path: Path) -> None:
    model = two_convolutions(tmp_path / "model.onnx")

    package = compiled(model, tmp_path / "package", target="opencl", texture_choice="never", check=False)

    assert package.checked is None and package.manifest.made.blocked == ()
    assert off_reference(package, model) < 1e-5
    assert not [kernel.name for kernel in package.manifest.kernels if "blocks" in kernel.name]


def test_a_package_for_another_machine_is_checked_here_too(tmp_path: Path) -> None:
    model = two_convolutions(tmp_path / "model.onnx")

    package = compiled(model, tmp_path / "package", platform="linux-aarch64", check=True)

    assert isinstance(package.checked, KernelCheck)
    assert package.manifest.target.machine == "AARCH64"


def test_kernels_that_compute_wrong_numbers_make_no_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inject a fault: each blocked convolution is off by 1 %."""
    right = blocks.convolution

    def wrong(*args: Any, **options: Any) -> Any:
        from tvm import te

        result = right(*args, **options)
        return te.compute(result.shape, lambda *at: result(*at) * 1.01, name="off")

    monkeypatch.setattr(blocks, "convolution", wrong)
    model = two_convolutions(tmp_path / "model.onnx")

    with pytest.raises(VerifyFailed, match="wrong numbers") as caught:
        compiled(model, tmp_path / "package")

    assert "adreno-buffer" in caught.value.remedy
    assert not (tmp_path / "package").exists()


def test_kernels_that_are_not_checked_say_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the check without OpenCL, and where it would take a CPU minutes, unless it is asked for."""
    model = two_convolutions(tmp_path / "model.onnx")
    compilation = job_of(CompileRequest(model, platform="host", target="adreno")).load(accuracy=False)
    monkeypatch.setattr(kernel_check, "MUCH", 1000)

    package = compiled(model, tmp_path / "package")

    assert isinstance(package.checked, SkippedCheck)
    assert "--check does it" in package.checked.reason
    assert isinstance(kernel_check.check(compilation, package, "on"), KernelCheck)
    monkeypatch.setattr(kernel_check, "opencl_device", lambda: None)
    skipped = kernel_check.check(compilation, package, "auto")
    assert isinstance(skipped, SkippedCheck) and "no OpenCL device" in skipped.reason
    with pytest.raises(ToolNotFound, match="cannot be checked"):
        kernel_check.check(compilation, package, "on")


def test_the_bundle_runs_textures_where_a_driver_makes_single_images_from_buffers(
    mixed: tuple[Path, ModelPackage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run on a driver like Intel's, which refuses image arrays made from buffers (src/opencl_images.cc)."""
    model, package = mixed
    adt.build_target(platform="host")
    inputs = random_inputs(package.manifest.entry().inputs, seed=3)
    monkeypatch.setenv("OCL_ICD_VENDORS", str(intel_opencl.vendors()))

    ran = adt.run(package.path, inputs=inputs)

    device = opencl_device()
    assert device and "Intel" in device.platform and ran.report["device"]["name"] == device.name
    assert largest_error(ran.outputs, model, inputs) < 1e-5
