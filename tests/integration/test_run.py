"""`adt run` with a picture and a classifier: on this machine and on a virtual device, natively and over RPC."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw

import adt
from adt.device.deploy.payload import user_directory
from adt.device.device import Device
from adt.device.transport import forwards
from adt.errors import ConfigError, MismatchError, RpcError
from adt.measure.reference import run_reference
from adt.package.inputs.pictures import PictureOptions
from adt.rpc import state
from support.devices.fixtures import Rack, child, entries, processes
from support.devices.listeners import MARK
from support.devices.ports import own_rpc_ports
from support.devices.programs import adt as run_adt
from support.devices.programs import adt_json, command_lines
from support.models.broken_kernels import with_library
from support.models.onnx_graphs import f32, graph_of, node, write
from support.models.small import small_model
from support.waiting import wait_for

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
LABELS = ("n000 upright", "n001 turned left", "n002 upside down", "n003 turned right")
HOW = ("--mean", ",".join(map(str, MEAN)), "--std", ",".join(map(str, STD)))


def classifier(path: Path) -> Path:
    """Write a network with the input of a real classifier, and few layers: qemu runs it, too."""
    weights = {"w": f32(8, 3, 16, 16) / 8, "v": f32(8, 4)}
    nodes = [
        node("Conv", ["x", "w"], ["features"], strides=[16, 16]),
        node("Relu", ["features"], ["positive"]),
        node("ReduceMax", ["positive"], ["largest"], axes=[2, 3], keepdims=0),
        node("MatMul", ["largest", "v"], ["scores"]),
        node("Softmax", ["scores"], ["y"]),
    ]
    return write(graph_of(nodes, {"x": (1, 3, 224, 224)}, ["y"], weights), path)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Create a picture, labels, and the classifier for this machine; RPC on ports of our own."""
    directory = tmp_path_factory.mktemp("run")
    cat = Image.new("RGB", (320, 240), (205, 190, 160))
    draw = ImageDraw.Draw(cat)
    draw.ellipse((100, 70, 220, 200), fill=(110, 85, 60))
    for left in (110, 175):
        draw.polygon([(left, 90), (left + 15, 30), (left + 40, 75)], fill=(110, 85, 60))
    cat.save(directory / "cat.jpg", quality=95)
    (directory / "labels.txt").write_text("\n".join(LABELS))
    adt.build_target(platform="host")
    adt.compile(classifier(directory / "model.onnx"), out=directory / "host", platform="host")
    with own_rpc_ports():
        yield directory


@pytest.fixture(scope="module")
def device(site: Path, native_rack: Rack) -> Device:
    """Start a device with this machine's processor: what is compiled for here runs there, too."""
    return native_rack.start("run")


def expected(site: Path) -> np.ndarray[Any, Any]:
    """Compute the walk-through of TVM's tutorials (resize, normalize, run) with onnxruntime."""
    resized = Image.open(site / "cat.jpg").resize((224, 224), Image.Resampling.BILINEAR)
    values = np.asarray(resized).astype("float32").transpose(2, 0, 1) / 255
    values = (values - np.reshape(MEAN, (3, 1, 1))) / np.reshape(STD, (3, 1, 1))
    x = values[np.newaxis].astype("float32")
    (output,) = run_reference(site / "model.onnx", {"x": x}).values()
    return np.asarray(output)


def test_the_walk_through_with_a_picture_is_one_command(site: Path) -> None:
    out = site / "out.npy"
    document = adt_json(
        "run", site / "host", "--image", site / "cat.jpg", *HOW, "--labels", site / "labels.txt", "-o", out
    )
    reference = expected(site)
    np.testing.assert_allclose(np.load(out), reference, atol=1e-4)
    classes = document["classes"]
    assert not classes["softmax"], "this model ends with one"
    (row,) = classes["rows"]
    best = np.argsort(-reference[0])
    assert [entry["label"] for entry in row] == [LABELS[index] for index in best]
    np.testing.assert_allclose([entry["probability"] for entry in row], reference[0][best], atol=1e-4)
    assert document["inputs"][0]["source"].startswith("cat.jpg: 320x240 resized to 224x224, RGB, / 255")
    assert (document["place"], document["emulated"]) == ("this machine", False)


def test_what_a_person_sees(site: Path) -> None:
    done = run_adt(
        "run", site / "host", "--image", site / "cat.jpg", "--top", 2, "--softmax", "--run-count", 3
    )
    assert done.returncode == 0, done.stderr
    assert "ran on this machine" in done.stdout and "softmax applied: as asked" in done.stdout
    assert "the median of 3 runs" in done.stdout
    assert [line.split()[0] for line in done.stdout.splitlines()[-2:]] == ["1.", "2."]
    done = run_adt("run", site / "host", "--image", site / "labels.txt")
    assert done.returncode == 19 and "no picture in a format" in done.stderr
    done = run_adt("run", site / "host", "--top", 3, "--crop", "left")
    assert done.returncode == 19 and "--crop center" in done.stderr


@pytest.mark.parametrize("target", ["cpu", "opencl"])
def test_rpc_on_this_machine_gives_the_same_numbers(
    site: Path, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = site / "host"
    if target == "opencl":
        model = small_model(tmp_path / "small.onnx")
        package = adt.compile(model, out=site / "cl", platform="host", target=target, check=False).path
    remote = adt.run(package, via="rpc", seed=3)
    assert remote.report is None and remote.place == "this machine" and remote.emulated is False
    assert servers_here() == []
    native = adt.run(package, seed=3)
    assert set(native.outputs) == set(remote.outputs)
    for name, array in native.outputs.items():
        np.testing.assert_allclose(remote.outputs[name], array, atol=1e-6)
    counted = [adt.run(package, via=via, fill_mode="arange").outputs for via in ("rpc", "native")]
    assert counted[0].keys() == counted[1].keys() == native.outputs.keys()
    for name, array in native.outputs.items():
        np.testing.assert_allclose(*(each[name] for each in counted), rtol=1e-6)
        assert not np.allclose(counted[0][name], array)


def servers_here() -> list[str]:
    """Return running servers of bundles that this test run started."""
    return list(command_lines("/bin/tvm_rpc server", f"{MARK}={os.environ[MARK]}").values())


def test_an_interrupt_ends_the_server_of_the_block(site: Path) -> None:
    code = """
import sys, time
from pathlib import Path
from adt.verbs.remote import open_remote
with open_remote(Path(sys.argv[1])):
    print("loaded", flush=True)
    time.sleep(60)
"""
    with child(code, str(site / "host")) as process:
        assert process.stdout is not None and process.stdout.readline() == "loaded\n"
        assert len(servers_here()) >= 1
        process.send_signal(signal.SIGINT)
        process.wait(120)
    wait_for(lambda: servers_here() == [], "the server ends")


def test_a_library_that_is_no_model_is_refused_over_rpc(site: Path, tmp_path: Path) -> None:
    broken = with_library(site / "host", tmp_path / "broken", b"\x7fELF and no more")
    with pytest.raises(MismatchError, match="cannot be loaded"):
        adt.run(broken, via="rpc")
    assert servers_here() == []


def nothing_is_left(device: Device) -> None:
    assert [row for row in processes(device) if "tvm_rpc" in row or "wrapper" in row] == []
    assert entries(device, f"{user_directory()}/rpc") == []
    assert forwards.listed(device.serial) == {}
    assert state.read_server(state.server_home(device.serial)) is None


def test_a_virtual_device_natively_and_over_rpc(site: Path, device: Device) -> None:
    words = ("run", site / "host", "--serial", device.serial, "--image", site / "cat.jpg", *HOW)
    done = run_adt(*words, "--run-count", 2, "-o", site / "n.npy")
    assert done.returncode == 0, done.stderr
    assert "time does not" in done.stdout and " ms" not in done.stdout
    labels = ("--labels", site / "labels.txt", "--top", 1)
    document = adt_json(*words, "--via", "rpc", "-o", site / "r.npy", *labels)
    assert (document["emulated"], document["report"], document["place"]) == (True, None, device.serial)
    np.testing.assert_array_equal(np.load(site / "r.npy"), np.load(site / "n.npy"))
    np.testing.assert_allclose(np.load(site / "r.npy"), expected(site), atol=1e-4)
    nothing_is_left(device)


def test_a_server_that_runs_is_used_and_stays(site: Path, device: Device) -> None:
    x = site / "x.raw"
    np.random.default_rng(0).random((1, 3, 224, 224), dtype=np.float32).tofile(x)
    (reference,) = adt.run(site / "host", files=[x]).outputs.values()
    try:
        began = adt.rpc_start(serial=device.serial, key="runs")
        for options in ({"serial": device.serial}, {"key": "runs"}):
            result = adt.run(site / "host", files=[x], via="rpc", **options)
            (output,) = result.outputs.values()
            np.testing.assert_allclose(output, reference, atol=1e-4)
            assert (result.place, result.emulated) == (device.serial, True)
        left = device.script('find "$1" -name "*.so"', f"{user_directory()}/rpc").out
        assert left == "", "what was uploaded is gone"
        assert adt.rpc_status().servers[0].address == began.address
        arm = Path(shutil.copytree(site / "host", site / "arm"))
        facts = json.loads((arm / "mod.json").read_text())
        facts["target"]["platform"] = "linux-aarch64"
        (arm / "mod.json").write_text(json.dumps(facts))
        with pytest.raises(MismatchError, match="compiled for linux-aarch64"):
            adt.run(arm, via="rpc", key="runs")
        with pytest.raises(ConfigError, match="chooses the device"):
            adt.run(site / "host", via="rpc", key="runs", serial=device.serial)
    finally:
        adt.rpc_stop(all=True)
        adt.tracker_stop()
    nothing_is_left(device)


def test_a_bundle_that_was_built_since_does_not_replace_that_of_a_server(
    site: Path, device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = adt.build_target(platform="host").bundle.path
    monkeypatch.setenv("ADT_CACHE_DIR", str(tmp_path))
    older, newer = tmp_path / "bundles/older", tmp_path / "bundles/newer"
    shutil.copytree(bundle, older)
    try:
        began = adt.rpc_start(serial=device.serial, key="runs")
        shutil.copytree(bundle, newer, copy_function=shutil.copyfile)
        facts = json.loads((newer / "bundle.json").read_text())
        del facts["files"]["bin/adt_probe"]
        (newer / "bundle.json").write_text(json.dumps(facts))
        assert [each.path for each in adt.bundles()] == [newer, older]
        assert adt.run(site / "host", serial=device.serial, via="rpc").outputs
        assert adt.rpc_status().servers[0].address == began.address
        with pytest.raises(RpcError, match="another bundle"):
            adt.run(site / "host", serial=device.serial, via="rpc", bundle=newer)
    finally:
        adt.rpc_stop(all=True)
        adt.tracker_stop()
    nothing_is_left(device)


def test_pictures_in_python(site: Path) -> None:
    options = PictureOptions(mean=MEAN, std=STD, crop=True, resize=(256,))
    result = adt.run(site / "host", images=[site / "cat.jpg"], picture=options)
    (tensor,) = result.inputs
    assert tensor.array.shape == (1, 3, 224, 224) and "the middle 224x224" in tensor.source
    assert next(iter(result.outputs.values())).shape == (1, 4)


def test_a_bundle_without_a_server_is_refused_over_rpc(site: Path, tmp_path: Path) -> None:
    bundle = adt.build_target(platform="host").bundle.path
    bare = tmp_path / "bare"
    subprocess.run(["cp", "-r", bundle, bare], check=True)
    facts = json.loads((bare / "bundle.json").read_text())
    del facts["files"]["bin/tvm_rpc"]
    (bare / "bundle.json").write_text(json.dumps(facts))
    with pytest.raises(RpcError, match="no tvm_rpc") as caught:
        adt.run(site / "host", via="rpc", bundle=bare)
    assert "--via native" in caught.value.remedy
