"""`adt verify` against each reference, and kernel by kernel: a kernel that was broken on purpose is named."""

import contextlib
import functools
import json
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import adt as api
from adt.errors import ConfigError, InputError, PackageError, VerifyFailed
from adt.measure import layers
from adt.measure.host_kernels import KernelProcess
from adt.measure.layers import PASSES_ON, RIGHT, LayerScan
from adt.package.graphs import reference_file
from adt.package.package import ModelPackage
from adt.verbs.verify import LayersResult, _layers_failure, _layers_lines
from support.devices.fixtures import Rack
from support.devices.programs import adt, adt_json
from support.models import vision
from support.models.broken_kernels import broken_source, broken_tir
from support.models.onnx_graphs import graph_of, node, write

pytestmark = pytest.mark.usefixtures("host_bundle")

KERNEL = {
    "cpu": "fused_conv_blocks2_add2_relu",
    "adreno-buffer": "fused_conv_blocks2_add2_relu",
    "adreno": "fused_conv_blocks2_add2_relu_texture",
}
"""The kernel that is broken, in the middle of the model, by target."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = vision.mixed_blocks(tmp_path_factory.mktemp("model") / "mixed.onnx")
    assert len(onnx.load(path).graph.node) >= 30
    return path


@pytest.fixture(scope="module")
def packages(model: Path) -> dict[str, Path]:
    paths: dict[str, Path] = {}
    for target in KERNEL:
        out = model.parent / target
        paths[target] = api.compile(model, out=out, platform="host", target=target, check=False).path
    return paths


@pytest.fixture(scope="module")
def broken(model: Path, packages: dict[str, Path]) -> dict[str, Path]:
    """Compile the same with one kernel that takes the smaller number where the larger one is right."""
    paths = {
        target: broken_source(packages[target], model.parent / f"bad-{target}", kernel, b"max(", b"min(")
        for target, kernel in KERNEL.items()
        if target != "cpu"
    }
    with broken_tir(KERNEL["cpu"], "tirx.Max", "tirx.Min"):
        out = model.parent / "bad-cpu"
        paths["cpu"] = api.compile(model, out=out, platform="host", check=False, use_cache=False).path
    return paths


@pytest.fixture(scope="module")
def scans(broken: dict[str, Path]) -> Callable[[str], LayerScan]:
    """Return the comparison of all kernels of the broken package for a target, which is made once."""
    return functools.cache(lambda target: api.verify_layers(broken[target]).layers)


@pytest.fixture(scope="module", autouse=True)
def shared_kernels() -> Iterator[None]:
    """Let one process compute equal kernels of all packages: starting and compiling takes longest."""
    with contextlib.ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        processes: dict[bytes, KernelProcess] = {}

        def shared(package: ModelPackage, writes: dict[str, int]) -> Any:
            key = reference_file(package).read_bytes() + repr(writes).encode()
            if key not in processes:
                processes[key] = stack.enter_context(KernelProcess(package, writes))
            return contextlib.nullcontext(processes[key])

        patch.setattr(layers, "KernelProcess", shared)
        yield


@pytest.mark.parametrize("target", KERNEL)
def test_a_sound_package_has_no_wrong_kernel(packages: dict[str, Path], target: str) -> None:
    scan = api.verify_layers(packages[target]).layers

    assert scan.passed and scan.compared == scan.total >= 14
    assert {call.verdict for call in scan.calls} == {RIGHT}
    assert max(call.along for call in scan.calls) < 1e-5
    assert any(call.texture for call in scan.calls) == (target == "adreno")


@pytest.mark.parametrize("target", KERNEL)
def test_the_broken_kernel_is_named(scans: Callable[[str], LayerScan], target: str) -> None:
    scan = scans(target)

    (wrong,) = scan.wrong
    assert wrong.name == KERNEL[target] and wrong.texture == (target == "adreno")
    assert scan.first_diverging is wrong and not scan.passed
    after = [call for call in scan.calls if call.index > wrong.index]
    assert len(after) >= 8 and {call.verdict for call in after} == {PASSES_ON}
    assert max(call.alone for call in after) < 1e-5 < 1e-3 < min(call.along for call in after)
    assert any("conv" in operator for operator in wrong.operators)


def test_on_the_command_line(broken: dict[str, Path], scans: Callable[[str], LayerScan]) -> None:
    scan = scans("cpu")
    at = scan.wrong[0].index
    text = "\n".join(_layers_lines(LayersResult("", False, scan), False))
    assert f"first wrong kernel: {KERNEL['cpu']} (call" in text and "conv_blocks" in text
    error = _layers_failure(broken["cpu"], scan)
    assert error and f"the kernel {KERNEL['cpu']} computes wrong numbers" in error.what
    assert "adt inspect" in error.remedy

    done = adt("verify", broken["cpu"], "--layers", "--json", "--calls", f"{at - 1}:{at + 1}")
    assert done.returncode == VerifyFailed.exit_code
    facts = json.loads(done.stdout)
    assert facts["schema"] == "adt.verify-layers" and facts["passed"] is False
    (wrong,) = [call for call in facts["calls"] if call["verdict"] == "wrong"]
    assert wrong["index"] == facts["first_wrong"] == facts["first_diverging"]
    assert wrong["metrics"]["worst"]["reference"] == 0 and wrong["arguments"][-1]["written"]

    done = adt("verify", broken["cpu"])
    assert done.returncode == VerifyFailed.exit_code and "--layers" in done.stderr


def test_tensors_are_fetched_in_chunks_and_the_first_wrong_one_ends_it(
    broken: dict[str, Path], scans: Callable[[str], LayerScan]
) -> None:
    whole = scans("cpu")
    assert [call.verdict for call in whole.calls].count("wrong") == 1 and len(whole.calls) == whole.total
    place = whole.calls.index(whole.wrong[0])
    before, wrong, after = (call.index for call in whole.calls[place - 1 : place + 2])

    # each call a chunk, of which the wrong one ends it, unless all is asked for
    span = {"chunk_bytes": 1, "calls": (before, after + 1)}
    short = api.verify_layers(broken["cpu"], **span).layers
    assert [(call.index, call.verdict) for call in short.calls] == [(before, RIGHT), (wrong, "wrong")]
    full = api.verify_layers(broken["cpu"], **span, all=True).layers
    assert [call.verdict for call in full.calls] == [RIGHT, "wrong", PASSES_ON]
    assert full.calls[:2] == short.calls

    later = api.verify_layers(broken["cpu"], calls=(after, 10_000)).layers
    assert later.passed, "what came before is the device's own"
    with pytest.raises(InputError, match="no call of a kernel is in 9000:9001"):
        api.verify_layers(broken["cpu"], calls=(9000, 9001))


def test_a_package_without_its_plain_kernels(packages: dict[str, Path], tmp_path: Path) -> None:
    bare = Path(shutil.copytree(packages["cpu"], tmp_path / "bare"))
    shutil.rmtree(bare / "inspect")
    with pytest.raises(PackageError, match=r"no inspect/plain\.json\.gz"):
        api.verify_layers(bare)


def test_kernels_of_a_package_made_elsewhere_run_when_it_is_trusted(
    packages: dict[str, Path],
    scans: Callable[[str], LayerScan],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    total = scans("cpu").total
    monkeypatch.setenv("ADT_DATA_DIR", str(tmp_path / "data"))
    done = adt("verify", packages["cpu"], "--layers", "--calls", "4:13")
    assert done.returncode == PackageError.exit_code and "was not compiled here" in done.stderr
    assert "--trust" in done.stderr
    done = adt("verify", packages["cpu"], "--layers", "--all", "--calls", "4:13", "--trust")
    assert done.returncode == 0, done.stderr
    assert f"no kernel diverges: 3 of {total} calls" in done.stdout and done.stdout.count("✓") == 3


def test_references(packages: dict[str, Path], broken: dict[str, Path], model: Path, tmp_path: Path) -> None:
    own = api.verify(packages["adreno"])
    assert own.verification.passed and own.reference == "onnxruntime"

    host = api.verify(packages["adreno"], reference="host", model=model)
    assert host.verification.passed and host.reference == "host"
    assert not api.verify(broken["cpu"], reference="host").verification.passed

    right = tmp_path / "right.npz"
    ((name, output),) = own.outputs.items()
    np.savez(right, allow_pickle=False, **{name: output})
    result = api.verify(packages["adreno"], reference=str(right))
    assert result.verification.passed and result.reference == "file"
    (row,) = result.verification.outputs
    assert row.max_abs < 1e-6 and row.metrics.elements == row.shape[1] * 64

    with pytest.raises(ConfigError, match="a model of onnxruntime, which tflite does not run"):
        api.verify(packages["cpu"], reference="tflite")
    with pytest.raises(ConfigError, match="oracle is no reference"):
        api.verify(packages["cpu"], reference="oracle")
    with pytest.raises(InputError, match=r"none\.npz is not an \.npz file"):
        api.verify(packages["cpu"], reference=str(tmp_path / "none.npz"))
    with pytest.raises(ConfigError, match="several sets of inputs cannot be given together"):
        api.verify(packages["cpu"], reference=str(right), seeds=2)


def test_several_sets_of_inputs(packages: dict[str, Path], tmp_path: Path) -> None:
    facts = adt_json("verify", packages["cpu"], "--seeds", 3, "--seed", 5)
    assert facts["passed"] and facts["inputs"] == ["seed 5", "seed 6", "seed 7"]
    worst = max(run["outputs"][0]["max_rel"] for run in facts["runs"])
    assert facts["outputs"][0]["max_rel"] == worst and facts["outputs"][0]["inputs"] in facts["inputs"]
    assert facts["reference"] == "onnxruntime"
    ones = adt_json("verify", packages["cpu"], "--fill-mode", "ones")
    assert ones["passed"] and ones["inputs"] == ["ones"]
    assert adt("verify", packages["cpu"], "--fill-mode", "ones", "--seeds", 2).returncode == 3

    files = []
    for number in range(2):
        files.append(tmp_path / f"{number}.npz")
        np.savez(files[-1], x=np.full((1, 3, 32, 32), number, np.float32))
    done = adt("verify", packages["cpu"], "--input", files[0], "--input", files[1])
    assert done.returncode == 0 and "worst of 2 sets of inputs" in done.stdout and "[input " in done.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--layers", "--seeds", "2"), "--seeds cannot be given together with --layers"),
        (
            ("--layers", "--reference", "host", "--max-abs", "1"),
            "--max-abs and --reference cannot be given together",
        ),
        (("--calls", "1:2"), "--calls can be given only with --layers"),
        (("--layers", "--calls", "2:1"), "--calls '2:1'"),
        (("--seeds", "3", "--fill-mode", "ones"), "--seeds cannot be given together with --fill-mode ones"),
    ],
)
def test_options_that_do_not_fit(packages: dict[str, Path], options: tuple[str, ...], message: str) -> None:
    done = adt("verify", packages["cpu"], *options)
    assert done.returncode == ConfigError.exit_code and message in done.stderr


def test_on_a_virtual_device(tmp_path: Path, rack: Rack) -> None:
    """Verify on an emulated arm64 processor, where a wrong kernel counts, too."""
    api.build_target(platform="linux-aarch64")
    device = rack.start("layers")
    net, kernel = vision.VisionNetwork((1, 8, 8, 8)), "fused_conv_blocks1_add1_relu1"
    value = net.relu(net.conv(net.relu(net.conv("x", 8)), 16, 3, 2))
    model = net.save(tmp_path / "small.onnx", net.classifier(value, 4), (1, 4))
    with broken_tir(kernel, "tirx.Max", "tirx.Min"):
        out = tmp_path / "bad"
        bad = api.compile(model, out=out, platform="linux-aarch64", check=False, use_cache=False).path

    result = api.verify_layers(bad, serial=device.serial)

    (wrong,) = result.layers.wrong
    assert wrong.name == kernel and result.emulated and result.serial == device.serial
    before = [call.verdict for call in result.layers.calls if call.index < wrong.index]
    assert len(before) >= 2 and set(before) == {RIGHT}


@pytest.mark.nightly
def test_textures_of_a_virtual_device(packages: dict[str, Path], broken: dict[str, Path]) -> None:
    info = api.emulator_start("layers-opencl", abi="x86_64", opencl=True)
    try:
        sound = api.verify_layers(packages["adreno"], serial=info.serial)
        bad = api.verify_layers(broken["adreno"], serial=info.serial)
    finally:
        api.emulator_stop(info.name)

    assert sound.layers.passed and sound.serial == info.serial
    assert [call.name for call in bad.layers.wrong] == [KERNEL["adreno"]]


@pytest.mark.nightly
def test_in_a_real_network(tmp_path: Path) -> None:
    """Break a kernel of MobileNet-v2 in textures that two of 54 calls run: both are reported."""
    model = vision.mobilenet_v2(tmp_path / "model.onnx")
    sound = api.compile(model, out=tmp_path / "sound", platform="host", target="adreno", check=False).path
    assert api.verify_layers(sound).layers.passed
    name = "fused_conv_blocks7_add5_maximum3_minimum3_texture"

    bad = broken_source(sound, tmp_path / "bad", name, b"max(", b"min(")

    assert {call.name for call in api.verify_layers(bad, all=True).layers.wrong} == {name}


def test_a_network_by_name_is_compiled_and_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare rtvm with onnxruntime on the same file, from any directory."""
    monkeypatch.chdir(tmp_path)
    api.build_target(platform="host")
    package = api.compile("squeezenet_v1.1", platform="host", shapes=["size=64,batch=2"], check=False)
    assert package.path.name == "squeezenet-v1_1-untrained-host"
    assert package.manifest.source.file == "squeezenet-v1.1-untrained.onnx"
    assert package.manifest.entry().inputs[0].shape == (2, 3, 64, 64)
    assert api.verify(package.path, model="squeezenet-v1.1").verification.passed


def test_the_option_that_is_offered_for_a_cache_compiles_and_verifies(tmp_path: Path) -> None:
    """Give keys of earlier steps and of this one, and a mask as long as both."""
    nodes = [
        node("Concat", ["past_key.0", "key"], ["present_key.0"], axis=2),
        node("Transpose", ["present_key.0"], ["t"], perm=[0, 1, 3, 2]),
        node("MatMul", ["key", "t"], ["scores"]),
        node("Add", ["scores", "mask"], ["masked"]),
        node("Softmax", ["masked"], ["y"], axis=-1),
    ]
    shapes = {
        "key": ("batch", 2, 1, 4),
        "mask": ("batch", 1, 1, "total"),
        "past_key.0": ("batch", 2, "past", 4),
    }
    path = write(graph_of(nodes, shapes, ["y", "present_key.0"]), tmp_path / "step.onnx")
    refused = adt("compile", path, "--for", "host", "-o", tmp_path / "pkg")
    (options,) = re.findall(r"with your numbers: (--shape .*)", refused.stderr)
    adt("compile", path, "--for", "host", "-o", tmp_path / "pkg", *shlex.split(options)).check_returncode()
    adt("verify", tmp_path / "pkg", "--model", path).check_returncode()
