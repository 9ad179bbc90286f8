"""Operators handed to XNNPACK: a bundle with it computes what onnxruntime computes, here and on arm64."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import adt
from adt.bundle.bundle import TargetBundle
from adt.device.place import RtvmOptions
from adt.errors import MismatchError
from adt.measure.reference import run_reference
from adt.package.host_run.run import run_package
from adt.package.package import ModelPackage
from support.devices.fixtures import Rack, rack  # noqa: F401
from support.models.offload import mobile_net, residual_net, wide_net
from support.models.quantized_onnx import examples, written_by_onnxruntime
from support.sampling import of_each_run


@pytest.fixture(scope="session")
def bundle() -> TargetBundle:
    built = adt.build_target(platform="host", xnnpack=True).bundle
    assert isinstance(built, TargetBundle)
    return built


@pytest.fixture(scope="module")
def arm64(rack: Rack) -> str:  # noqa: F811
    """Return the serial of a virtual device."""
    adt.build_target(platform="linux-aarch64", xnnpack=True)
    return str(rack.start("xnnpack").serial)


Compile = Callable[[Callable[[Path], Path]], tuple[Path, ModelPackage]]


@pytest.fixture(scope="module")
def compiled(bundle: TargetBundle, tmp_path_factory: pytest.TempPathFactory) -> Compile:
    """Return a function that writes a network and compiles it for this machine, each one once."""

    @functools.cache
    def compile_once(net: Callable[[Path], Path]) -> tuple[Path, ModelPackage]:
        place = tmp_path_factory.mktemp("net")
        model = net(place / "net.onnx")
        return model, compile_for(model, place / "package", "host")

    return compile_once


@functools.cache
def integers(kind: str, place: Path) -> tuple[Path, dict[str, np.ndarray]]:
    """Return a model in integers and inputs for it."""
    (directory := place / kind.replace(" ", "-")).mkdir()
    model = written_by_onnxruntime("convolutions", kind, directory)
    (feeds,) = examples(onnx.load(model), 1)
    return model, feeds


def compile_for(model: Path, out: Path, platform: str) -> ModelPackage:
    return adt.compile(model, out=out, platform=platform, offload="xnnpack", use_cache=False)


def test_the_bundle_has_it_and_all_others_stay_as_they_are(bundle: TargetBundle) -> None:
    facts = bundle.manifest
    assert facts.options.xnnpack and "XNNPACK" in facts.summary
    assert "lib/libadt_xnnpack.so" in facts.files and "licenses/xnnpack/LICENSE" in facts.licenses
    assert "libadt_xnnpack.so" in facts.files["lib/libadt_runner.so"].needed
    plain = adt.build_target(platform="host").bundle.manifest
    assert not plain.options.xnnpack and "lib/libadt_xnnpack.so" not in plain.files
    same = {"lib/libtvm_ffi.so", "lib/libtvm_runtime.so"}
    assert all(plain.files[name].sha256 == facts.files[name].sha256 for name in same)


@pytest.mark.parametrize("net", [residual_net, mobile_net, wide_net])
def test_networks_through_rtvm(net: Callable[[Path], Path], compiled: Compile, bundle: TargetBundle) -> None:
    model, package = compiled(net)
    (share,) = package.manifest.made.offload.shares
    assert share.ops >= 5
    shape = package.manifest.entry().inputs[0].shape
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    reference = run_reference(model, {"x": x})
    for threads in (1, 2):
        options = RtvmOptions(threads=threads)
        ran = adt.run(package.path, inputs={"x": x}, bundle=bundle.path, run_count=2, options=options)
        for name, expected in reference.items():
            np.testing.assert_allclose(ran.outputs[name], expected, rtol=1e-4, atol=1e-5)
    if net is residual_net:
        assert adt.verify(package.path).verification.passed, "the newest fitting bundle is one with XNNPACK"


def test_what_stays_says_why(compiled: Compile) -> None:
    left = "\n".join(compiled(mobile_net)[1].manifest.made.offload.left)
    assert "1 × nn.avg_pool2d: XNNPACK leaves padding out of averages" in left
    assert "1 × nn.conv2d_transpose" in left
    whole = compiled(residual_net)[1]
    assert [line.partition(":")[0] for line in whole.manifest.made.offload.left] == ["1 × nn.softmax"]
    assert len(adt.inspect(whole.path).subgraphs()["xnnpack"]) == 1


@pytest.mark.parametrize("kind", of_each_run(1, "QDQ int8", "QDQ uint8"))
def test_integers_through_rtvm(kind: str, bundle: TargetBundle, workdir: Path, tmp_path: Path) -> None:
    """Compare within some steps of the output's scale: onnxruntime rounds sums before an activation, too."""
    model, feeds = integers(kind, workdir)
    package = compile_for(model, tmp_path / "package", "host")
    ran = adt.run(package.path, inputs=feeds, bundle=bundle.path)
    for name, expected in run_reference(model, feeds).items():
        assert np.abs(ran.outputs[name] - expected).max() <= 0.05 * np.abs(expected).max()


@pytest.mark.parametrize("net", [residual_net, mobile_net])
def test_networks_on_arm64(net: Callable[[Path], Path], arm64: str, tmp_path: Path) -> None:
    package = compile_for(net(tmp_path / "net.onnx"), tmp_path / "package", "linux-aarch64")
    result = adt.verify(package.path, serial=arm64)
    assert result.verification.passed and result.emulated


def test_half_precision_on_arm64(arm64: str, tmp_path: Path) -> None:
    model = residual_net(tmp_path / "net.onnx")
    how = {"platform": "linux-aarch64", "offload": "xnnpack", "precision": "float16"}
    package = adt.compile(model, out=tmp_path / "package", cpu="cortex-a76", use_cache=False, **how)
    (share,) = package.manifest.made.offload.shares
    assert share.ops >= 25
    nodes = adt.inspect(package.path).subgraphs()["xnnpack"]["xnnpack_0"]["nodes"]
    assert {kind for node in nodes for kind in node["attrs"]["dtype"]} == {"float16"}
    assert adt.verify(package.path, serial=arm64).verification.passed
    older = adt.compile(model, out=tmp_path / "older", cpu="cortex-a72", **how)
    assert "not in float16" in "\n".join(older.manifest.made.offload.left)


@pytest.mark.parametrize("kind", of_each_run(1, "QDQ uint8", "QDQ int8"))
def test_integers_on_arm64(kind: str, arm64: str, workdir: Path, tmp_path: Path) -> None:
    model, feeds = integers(kind, workdir)
    package = compile_for(model, tmp_path / "package", "linux-aarch64")
    result = adt.verify(package.path, serial=arm64, inputs=feeds)
    ((name, step),) = package.manifest.made.quanta.items()
    assert np.abs(result.outputs[name] - result.right[name]).max() <= 1.01 * step


def test_a_bundle_without_it_refuses_the_package(compiled: Compile) -> None:
    package = compiled(residual_net)[1]
    plain = adt.build_target(platform="host").bundle
    with pytest.raises(MismatchError, match="no XNNPACK runtime") as caught:
        adt.run(package.path, bundle=plain.path)
    assert "adt build-target --for host --xnnpack" in caught.value.remedy
    with pytest.raises(MismatchError, match="XNNPACK, which is not here"):
        run_package(package.path, {"x": np.zeros((1, 3, 32, 32), np.float32)}, timeout=300)
