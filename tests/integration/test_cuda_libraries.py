"""Offload to cuDNN and cuBLAS, right also where TVM's own path to cuDNN is wrong.

Stand-ins for the driver and both libraries compute on this machine, with what the real ones refuse and round;
TVM's kernels compute nothing there, so that those networks go to the libraries as a whole. The last test is
for machines with an NVIDIA GPU and the real libraries.
"""

import ctypes
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adt
from adt.measure.reference import run_reference
from adt.package.package import ModelPackage
from support.devices.programs import try_program
from support.models.offload import Net
from support.standins.cuda import make_driver, make_runtime
from support.standins.cuda_libraries import make_libraries

SHAPE = (1, 4, 10, 12)
X = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)


@dataclass(frozen=True)
class Machine:
    """One with stand-ins for a GPU and NVIDIA's libraries."""

    directory: Path
    bundle: Path

    def run(self, package: Path, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run *package* twice by rtvm; what the libraries were asked for is in :meth:`calls` then."""
        files = [self.directory / name for name in ("x.npz", "y.npz", "log")]
        for file in files:
            file.unlink(missing_ok=True)
        np.savez(files[0], x=X)
        own = {
            "LD_PRELOAD": str(self.directory / "libcuda_runtime.so"),
            "LD_LIBRARY_PATH": f"{self.directory}:{self.bundle / 'lib'}",
            "CUDA_STANDIN_LOG": str(files[2]),
        }
        words = ("--model", package, "--input", files[0], "--output", files[1], "--run-count", 2, "--json")
        return try_program(self.bundle / "bin/rtvm", *words, **(own | environ))

    def compute(self, package: Path, model: Path, **environ: str) -> float:
        """Run *package*: how far outputs are off those of *model*, as a share of the largest."""
        done = self.run(package, **environ)
        assert done.returncode == 0, done.stderr
        with np.load(self.directory / "y.npz") as outputs:
            gaps = [
                float(np.abs(outputs[name] - value).max() / np.abs(value).max())
                for name, value in run_reference(model, {"x": X}).items()
            ]
        return max(gaps)

    @property
    def calls(self) -> list[str]:
        return (self.directory / "log").read_text().splitlines()


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    directory = tmp_path_factory.mktemp("machine")
    bundle = adt.build_target(platform="host").bundle.path
    make_driver(directory)
    make_libraries(directory)
    make_runtime(directory, adt.source().path, bundle)
    return Machine(directory, bundle)


@pytest.fixture(scope="module")
def layers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build convolutions with all that one call of cuDNN computes, and one without a bias."""
    net = Net()
    y = net.node("Relu", net.conv("x", 4, 8))
    alone = net.conv(y, 8, 8, (1, 1))
    grouped = net.conv(y, 8, 8, group=2, dilations=[2, 2], pads=[2, 2, 2, 2])
    y = net.node("Relu", net.node("Add", grouped, alone))
    y = net.node("Add", y, net.conv(y, 8, 8, (3, 5)))
    y = net.conv(y, 8, 6, strides=[2, 1], bias=False)
    return net.save(tmp_path_factory.mktemp("layers") / "layers.onnx", SHAPE, [y])


def compiled(model: Path, out: Path, offload: str = "cudnn,cublas", **options: object) -> ModelPackage:
    return adt.compile(
        model, out=out, platform="host", target="cuda:sm_90", offload=offload, accuracy="off", **options
    )


def subgraphs(package: ModelPackage) -> list[list[dict[str, Any]]]:
    """Return the nodes of each of cuDNN's graphs, the last of which computes."""
    return [graph["nodes"] for graph in adt.inspect(package.path).subgraphs()["cudnn"].values()]


@pytest.fixture(scope="module")
def package(layers: Path, tmp_path_factory: pytest.TempPathFactory) -> ModelPackage:
    return compiled(layers, tmp_path_factory.mktemp("package") / "layers", "cudnn")


def test_a_call_computes_a_layer_with_bias_sum_and_relu(
    package: ModelPackage, layers: Path, machine: Machine
) -> None:
    """Choose the one algorithm for a bias without an activation; look at each shape once."""
    assert package.manifest.made.offload.left == ()
    assert machine.compute(package.path, layers) < 1e-6
    fused = ["fused 6 relu", "fused 1", "fused 6 add relu", "fused 1 add", "convolution 6"]
    calls = [call.removeprefix("cudnn ") for call in machine.calls]
    assert calls.count("find") == len(fused) and (calls[0], calls[-1]) == ("create", "destroy")
    assert [call for call in calls[1:-1] if call != "find"] == 2 * fused
    most = json.loads(machine.run(package.path).stdout)["memory"]["workspace_bytes"]
    assert most == 4096, "of all algorithms that were chosen, which compute one after the other"


def test_a_layer_is_computed_in_steps_where_cudnn_fuses_nothing(
    package: ModelPackage, layers: Path, machine: Machine
) -> None:
    assert machine.compute(package.path, layers, CUDNN_STANDIN_PLAIN="1") < 1e-6
    assert {call.split()[1] for call in machine.calls} >= {"convolution", "add", "activation"}
    assert not any("fused" in call for call in machine.calls)


def test_float32_stays_as_exact_as_it_is_unless_tf32_is_asked_for(
    layers: Path, machine: Machine, tmp_path: Path
) -> None:
    rounded = compiled(layers, tmp_path / "tf32", "cudnn", tf32=True)
    assert 1e-5 < machine.compute(rounded.path, layers) < 1e-2


def test_half_precision(layers: Path, tmp_path: Path) -> None:
    package = compiled(layers, tmp_path / "half", "cudnn", precision="float16")
    graphs = subgraphs(package)
    assert len(graphs) == 5
    assert all(node["attrs"]["dtype"] == ["float16"] for graph in graphs for node in graph)


@pytest.fixture
def products(tmp_path: Path) -> Path:
    net = Net()
    y = net.node("MatMul", "x", net.weight(12, 10, scale=0.3))
    y = net.node("MatMul", net.weight(7, 10, scale=0.3), net.node("MatMul", y, y))
    return net.save(tmp_path / "products.onnx", SHAPE, [y])


def test_products(products: Path, machine: Machine, tmp_path: Path) -> None:
    package = compiled(products, tmp_path / "package")
    shares = {share.library: share.ops for share in package.manifest.made.offload.shares}
    assert shares == {"cudnn": 0, "cublas": 3} and package.manifest.offload == "cublas"
    assert machine.compute(package.path, products) < 1e-6
    once = ["cublas 1 products", "cublas 4 products", "cublas 4 products"]
    assert machine.calls == ["cublas create", *once, *once, "cublas destroy"]
    rounded = compiled(products, tmp_path / "tf32", tf32=True)
    assert 1e-5 < machine.compute(rounded.path, products) < 1e-2


def traps(path: Path) -> Path:
    """Write a graph that TVM's patterns for cuDNN mistake for a bias, ReLU, or padding of both sides."""
    net = Net()
    y = net.conv("x", 4, 8, bias=False)
    y = net.node("Add", y, net.weight(1, 8, 10, 12))
    y = net.node("Clip", net.conv(y, 8, 8), net.constant(0.0), net.constant(0.5))
    y = net.node("LeakyRelu", net.conv(y, 8, 8), alpha=0.3)
    y = net.conv(y, 8, 8, pads=[0, 0, 2, 2])
    y = net.node("Flatten", net.node("GlobalAveragePool", net.node("Relu", y)))
    return net.save(path, SHAPE, [net.node("MatMul", y, net.weight(8, 5))])


def test_what_cudnn_computes_otherwise_stays(tmp_path: Path) -> None:
    """Keep a tensor of the result's shape from being a bias, and ReLU6 and leaky ReLU from being ReLU."""
    package = compiled(traps(tmp_path / "traps.onnx"), tmp_path / "package")
    left = "\n".join(package.manifest.made.offload.left)
    assert "cuDNN pads both sides of a picture alike" in left and "1 × nn.conv2d" in left
    assert all(f"1 × {name}" in left for name in ("minimum", "nn.leakyrelu", "nn.relu"))
    kernels = [nodes[-1] for nodes in subgraphs(package)]
    assert [kernel["name"] for kernel in kernels] == ["cudnn.conv2d", "cudnn.conv2d_bias"]
    assert all(kernel["attrs"]["relu"] == 0 for kernel in kernels)
    assert package.manifest.offload == "cudnn,cublas"


def test_a_library_that_is_not_there_is_named_with_what_brings_it(
    package: ModelPackage, machine: Machine, tmp_path: Path
) -> None:
    for name in ("libcuda.so.1", "libcuda_runtime.so"):
        (tmp_path / name).symlink_to(machine.directory / name)
    done = machine.run(package.path, LD_LIBRARY_PATH=f"{tmp_path}:{machine.bundle / 'lib'}")
    assert done.returncode != 0
    assert "libcudnn.so.9" in done.stderr and "nvidia-cudnn-cu13" in done.stderr


def there_is_a_gpu() -> bool:
    try:
        for name in ("libcuda.so.1", "libcudnn.so.9", "libcublas.so.13"):
            ctypes.CDLL(name)
    except OSError:
        return False
    return True


@pytest.mark.skipif(not there_is_a_gpu(), reason="needs an NVIDIA GPU, cuDNN 9 and cuBLAS 13")
@pytest.mark.parametrize("offload", ["none", "cudnn", "cublas", "cudnn,cublas"])
def test_on_a_gpu(offload: str, layers: Path, tmp_path: Path) -> None:
    """Compare the results, and expect the process to end well."""
    bundle = adt.build_target(platform="host", cuda=True).bundle
    for model in (layers, traps(tmp_path / "traps.onnx")):
        package = compiled(model, tmp_path / model.stem, offload)
        ran = adt.run(package.path, inputs={"x": X}, bundle=bundle.path, run_count=2)
        for name, value in run_reference(model, {"x": X}).items():
            np.testing.assert_allclose(ran.outputs[name], value, rtol=1e-5, atol=1e-5 * np.abs(value).max())
