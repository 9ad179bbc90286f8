"""CUDA without a GPU: machine code is made, packed and looked at, and launched on a stand-in for the driver.

What computes the right numbers, and how fast, only a GPU shows: docs/cuda.md says what was run on one.
"""

import json
import os
import re
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from test_build_presets import check_syntax, nightly

import adt
from adt.bundle.bundle import TargetBundle
from adt.bundle.plan import cuda_headers
from adt.compiler import cuda_code
from adt.compiler.networks.builder import Network
from adt.errors import CompileError, MismatchError, ToolNotFound
from adt.host.directories import resource
from adt.host.elf import read_elf
from adt.host.extras import install_command
from adt.host.process import cmake, ninja
from adt.package.inspection.inspection import Inspection
from adt.package.package import KernelCheck, ModelPackage, SkippedCheck
from adt.tuning.database.contents import describe
from support.devices.programs import try_program
from support.models.onnx_graphs import CONVERTED, graph_of, joined, node, recurrent, write
from support.models.sequences import SequenceNetwork
from support.models.small import small_model
from support.standins.cuda import make_bundle, make_driver, make_runtime

CUDA = 190
"""The ELF machine of NVIDIA's code."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build convolutions, a pool over a map (sums that work-items share) and what lies between."""
    net = Network((1, 3, 32, 32))
    y = net.relu(net.conv("x", 16))
    y = net.max_pool(net.add(net.conv(y, 16, 1), y), 2, 2)
    return net.save(
        tmp_path_factory.mktemp("model") / "net.onnx",
        net.average_pool(y, 16, 16, padded=False),
        (1, 16, 1, 1),
    )


@pytest.fixture(scope="module")
def package(model: Path, tmp_path_factory: pytest.TempPathFactory) -> ModelPackage:
    return adt.compile(model, out=tmp_path_factory.mktemp("here"), platform="host", target="cuda:sm_86")


def machine_codes(package: ModelPackage) -> list[int]:
    """Return the architecture of each program of NVIDIA's machine code in the package's mod.so."""
    code = (package.path / "mod.so").read_bytes()
    images = [match.start() for match in re.finditer(rb"\x7fELF", code)][1:]
    assert all(struct.unpack_from("<H", code, at + 18)[0] == CUDA for at in images)
    return [struct.unpack_from("<I", code, at + 48)[0] & 0xFF for at in images]


def test_machine_code_is_for_the_named_architecture_and_nothing_of_cuda_is_linked(
    package: ModelPackage, model: Path, tmp_path: Path
) -> None:
    board = adt.compile(model, out=tmp_path / "board", platform="linux-aarch64", target="cuda:jetson-orin")

    assert (machine_codes(package), machine_codes(board)) == ([86], [87])
    for compiled, machine in ((package, "X86_64"), (board, "AARCH64")):
        elf = read_elf(compiled.path / "mod.so")
        assert elf.machine == machine and not any("cuda" in name or "nv" in name for name in elf.needed)
        assert b"__global__" not in (compiled.path / "mod.so").read_bytes(), "the source is in it"
    manifest = package.manifest
    assert (manifest.target.name, manifest.target.device) == ("cuda:sm_86", "cuda")
    assert manifest.target.spec["arch"] == "sm_86"


def test_schedules_are_checked_by_opencl_if_that_is_asked_for(
    package: ModelPackage, model: Path, tmp_path: Path
) -> None:
    assert isinstance(package.checked, SkippedCheck) and "--check" in package.checked.reason
    checked = adt.compile(model, out=tmp_path / "y", platform="host", target="cuda:sm_86", check=True).checked
    assert isinstance(checked, KernelCheck) and checked.worst < 1e-5


def test_without_an_architecture_the_driver_compiles(model: Path, tmp_path: Path) -> None:
    package = adt.compile(model, out=tmp_path / "any", platform="host", target="cuda")

    code = (package.path / "mod.so").read_bytes()
    assert b"\n.target sm_53\n" in code and b".visible .entry" in code
    assert machine_codes(package) == [] and b"__global__" not in code


def test_half_precision_compiles(model: Path, tmp_path: Path) -> None:
    package = adt.compile(
        model,
        out=tmp_path / "half",
        platform="host",
        target="cuda:sm_53",
        precision="float16",
        accuracy="off",
    )
    assert machine_codes(package) == [53]


def attention(path: Path) -> Path:
    net = SequenceNetwork()
    attended = net.op("Add", net.attention("x", net.weight(1, 1, 1, 24), 24, 64, 4), "x")
    return net.save(path, {"x": (1, 24, 64)}, net.gelu(net.layer_norm(attended, 64)), (1, 24, 64))


def operators(path: Path) -> Path:
    """Write operators that converters of adt's own import, in the latest of their opsets, which changes none."""
    models = [make() for make in list(CONVERTED.values())[::6]]
    return write(joined(sorted(models, key=lambda model: model.opset_import[0].version)), path)


def names(path: Path) -> Path:
    """Write a sum of tensors that are called as what CUDA knows."""
    words = ["exp", "float4", "threadIdx", "class", "half", "a/b:0"]
    return write(graph_of([node("Sum", words, ["y"])], dict.fromkeys(words, (1, 4)), ["y"]), path)


MODELS: dict[str, Callable[[Path], Path]] = {
    "names": names,
    "attention": attention,
    "recurrence": lambda path: write(recurrent("LSTM", 4, direction="bidirectional"), path),
    "open batch": lambda path: small_model(path, dims=("n", 4)),
    "operators": operators,
}


@pytest.mark.parametrize("name", MODELS)
def test_kernels_of_other_kinds_compile(name: str, tmp_path: Path) -> None:
    model = MODELS[name](tmp_path / "net.onnx")
    package = adt.compile(model, out=tmp_path / "p", platform="host", target="cuda:sm_87")
    assert machine_codes(package) == [87]
    assert b"__global__" not in (package.path / "mod.so").read_bytes()


def test_kernels_without_a_model_become_machine_code(tmp_path: Path) -> None:
    from tvm import te

    x = te.placeholder((64,), "float32", "x")
    twice = te.compute((64,), lambda i: x[i] * 2, "twice")
    kernel = adt.compile_kernel([x, twice], out=tmp_path / "k.so", platform="host", target="cuda:sm_75")
    assert kernel.device == "cuda"
    code = kernel.path.read_bytes()
    assert b"__global__" not in code and b"cubin" in code


def test_nvcc_compiles_where_nvrtc_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Call a stand-in for nvcc, which writes its command line."""
    nvcc = tmp_path / "nvcc"
    nvcc.write_text(
        '#!/bin/sh\nfor last; do :; done\necho "$@" > "$(dirname "$last")/code"; grep -q wrong "$last" && exit 1\nexit 0\n'
    )
    nvcc.chmod(0o755)
    monkeypatch.setattr(cuda_code, "_package", lambda _name: None)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    compiler = cuda_code.find_compiler()

    assert compiler.name == str(nvcc)
    assert b"-cubin -arch=sm_87 " in compiler.compile("", "sm_87", ptx=False)
    assert b"-ptx -arch=compute_53 " in compiler.compile("", "sm_53", ptx=True)
    with pytest.raises(CompileError, match="refuses the kernels"):
        compiler.compile("wrong", "sm_87", ptx=False)


def test_without_a_compiler_the_extra_is_named(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_code, "_package", lambda _name: None)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    real = shutil.which
    monkeypatch.setattr(
        shutil, "which", lambda name, *more, **named: None if name == "nvcc" else real(name, *more, **named)
    )
    with pytest.raises(ToolNotFound) as caught:
        adt.compile(model, out=tmp_path / "none", platform="host", target="cuda:sm_86")
    assert install_command(extra="cuda") in caught.value.remedy
    assert not (tmp_path / "none").exists()


def test_an_architecture_that_the_compiler_does_not_know(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_code, "_nvcc", lambda: None)
    with pytest.raises(CompileError, match=r"NVRTC 12\S* compiles nothing for sm_30") as caught:
        adt.compile(model, out=tmp_path / "old", platform="host", target="cuda:sm_30")
    assert caught.value.remedy.endswith("--target cuda")


def test_of_several_compilers_one_that_knows_the_architecture_is_taken(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offer a stand-in for CUDA 13, which knows Thor and compiles nothing."""
    monkeypatch.setattr(cuda_code, "_nvcc", lambda: None)
    with pytest.raises(CompileError) as caught:
        adt.compile(model, out=tmp_path / "thor", platform="host", target="cuda:jetson-thor")
    assert install_command(*cuda_code.NVRTC_13) in caught.value.remedy

    source, place = tmp_path / "nvrtc.c", tmp_path / "cu13/lib"
    source.write_text(
        "int nvrtcGetNumSupportedArchs(int* n) { *n = 2; return 0; }\n"
        "int nvrtcGetSupportedArchs(int* all) { all[0] = 87; all[1] = 110; return 0; }\n"
    )
    place.mkdir(parents=True)
    subprocess.run(["gcc", "-shared", "-fPIC", source, "-o", place / "libnvrtc.so.13"], check=True)
    package, version = cuda_code._package, cuda_code.metadata.version
    monkeypatch.setattr(
        cuda_code, "_package", lambda name: tmp_path / name if name == "cu13" else package(name)
    )
    monkeypatch.setattr(
        cuda_code.metadata, "version", lambda name: "13" if name == "nvidia-cuda-nvrtc" else version(name)
    )

    compilers = {arch: cuda_code.find_compiler(arch).name.split(".")[0] for arch in ("", "sm_87", "sm_110")}
    assert compilers == {"": "NVRTC 12", "sm_87": "NVRTC 12", "sm_110": "NVRTC 13"}


def test_schedules_are_measured_where_the_driver_is_and_a_package_takes_them(
    model: Path, host_bundle: TargetBundle, tmp_path: Path
) -> None:
    """Measure on the stand-in, for which every kernel takes as long, so that none beats the untuned one."""
    standin = make_bundle(tmp_path, adt.source().path, host_bundle)
    options = {"platform": "host", "target": "cuda:sm_86", "db": tmp_path / "records"}

    result = adt.tune(model, **options, bundle=standin.path, trials=2, per_task=True, min_repeat_ms=1)

    assert result.context is not None and result.context.device == "STAND-IN GPU"
    assert not result.failures and result.done == 2 * len(result.tasks)
    assert {task.baseline_ms for task in result.tasks} == {0.25}
    assert "cuda sm_86" in describe(result.context)
    package = adt.compile(model, out=tmp_path / "tuned", **options)
    report = package.manifest.made.tuning
    assert report is not None and len(report.kept) == len(result.tasks) == package.manifest.total
    other = adt.compile(model, out=tmp_path / "other", **{**options, "target": "cuda:sm_87"})
    assert other.manifest.made.tuning is None  # another architecture's records are not these


def test_each_kernel_compiles_on_its_own(package: ModelPackage) -> None:
    inspection = Inspection(package)
    assert {kernel.device for kernel in inspection.graph.kernels} == {"cuda"}
    sources = inspection.sources("cuda")
    assert len(sources) >= 4
    compiler = cuda_code.find_compiler()
    for name, source in sources.items():
        assert f".entry {name}(" in compiler.compile(source, "sm_86", ptx=True).decode()


def test_a_bundle_without_cuda_refuses_the_package(package: ModelPackage, host_bundle: TargetBundle) -> None:
    with pytest.raises(MismatchError) as caught:
        adt.run(package.path, bundle=host_bundle.path)
    assert "adt build-target --for host --cuda" in caught.value.remedy


def test_the_runtime_loads_the_machine_code_and_launches_its_kernels(
    package: ModelPackage, host_bundle: TargetBundle, tmp_path: Path
) -> None:
    """Find each kernel in the machine code by the stand-in, which computes nothing."""
    runtime = make_runtime(tmp_path, adt.source().path, host_bundle.path)
    rtvm = [host_bundle.path / "bin/rtvm", "--model", package.path, "--json", "--run-count", "2"]
    environ = {"LD_PRELOAD": str(runtime), "LD_LIBRARY_PATH": f"{tmp_path}:{host_bundle.path / 'lib'}"}

    without = try_program(*rtvm, **environ)
    assert without.returncode == 7 and "there is no cuda device" in without.stderr
    assert "libcuda.so.1" in without.stderr

    make_driver(tmp_path)
    done = try_program(*rtvm, **environ, CUDA_STANDIN_LOG=str(tmp_path / "log"))

    assert done.returncode == 0, done.stderr
    device = json.loads(done.stdout)["device"]
    assert (device["kind"], device["name"], device["type"]) == ("cuda", "STAND-IN GPU", "gpu")
    launches = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    graph = Inspection(package).graph
    kernels = {kernel.name: [*kernel.grid, *kernel.block] for kernel in graph.kernels}
    assert {name for name, *_ in launches} == set(kernels)
    assert all([int(extent) for extent in extents] == kernels[name] for name, *extents in launches)
    assert len(launches) == 2 * sum(call.kind == "kernel" for call in graph.calls)


def test_what_cuda_adds_to_a_board_compiles(tmp_path: Path) -> None:
    flags = [f"ADT_TVM_SOURCE={adt.source().path}", f"CMAKE_MAKE_PROGRAM={ninja().path}", "ADT_CUDA=ON"]
    flags.append(f"ADT_CUDA_HEADERS={cuda_headers()}")
    words = [cmake().path, "--preset", "linux-aarch64", "-B", tmp_path, *(f"-D{text}" for text in flags)]
    subprocess.run(words, cwd=resource("cmake_presets"), check=True, capture_output=True)

    assert json.loads((tmp_path / "adt_build_info.json").read_text())["cuda"]
    check_syntax(tmp_path, "cuda_(device_api|module|library)|cu(blas|dnn)_runtime")


@nightly
@pytest.mark.parametrize("platform", ["host", "linux-aarch64"])
def test_a_bundle_with_cuda(platform: str) -> None:
    bundle = adt.build_target(platform=platform, cuda=True).bundle
    assert bundle.manifest.options.cuda and "CUDA" in bundle.manifest.summary
    assert "device_api.cuda" in bundle.manifest.functions
    libraries = bundle.manifest.files.values()
    assert not any("cuda" in name for library in libraries for name in library.needed)
