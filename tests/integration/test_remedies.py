"""Commands that remedies print are run as they are, where the error was met."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import adt as api
from adt.rpc import tracker
from adt.virtual import emulator
from support.devices.programs import path_with_adt
from support.models.onnx_graphs import graph_of, node, write
from support.remedies import PLACEHOLDER, TABLE, Case, commands

WORKING: set[str] = set()
"""Commands that worked in a fresh copy, as they will in another."""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write models and packages, some of them faulty."""
    at = tmp_path_factory.mktemp("prepared")
    host = api.build_target(platform="host").bundle.path
    picture = {"x": [1, 3, 8, 8]}
    write(graph_of([node("Relu", ["x"], ["y"])], picture, ["y"]), at / "m.onnx")
    write(
        graph_of(
            [node("Relu", ["x"], ["t"]), node("Mul", ["t", "c"], ["y"])],
            picture,
            ["y"],
            {"c": np.float32(1.1)},
        ),
        at / "float.onnx",
    )
    write(graph_of([node("Relu", ["x"], ["y"])], {"x": ["n", 3, "h", "w"]}, ["y"]), at / "open.onnx")
    cached = [
        node("Concat", ["past.key", "key"], ["present.key"], axis=2),
        node("Add", ["present.key", "mask"], ["y"]),
    ]
    shapes = {
        "key": ["batch", 2, 1, 4],
        "mask": ["batch", 1, "total", 4],
        "past.key": ["batch", 2, "past", 4],
    }
    write(graph_of(cached, shapes, ["y", "present.key"]), at / "cache.onnx")
    write(graph_of([node("Log", ["x"], ["y"])], {"x": [1, 8]}, ["y"]), at / "log.onnx")
    write(
        graph_of([node("Foo", ["x"], ["y"], domain="com.x")], {"x": [1, 8]}, ["y"], domain="com.x"),
        at / "foo.onnx",
    )
    write(
        graph_of([node("Conv", ["x", "w"], ["y"])], picture, ["y"], {"w": np.ones((4, 3, 3, 3), "f4")}),
        at / "conv.onnx",
    )
    write(graph_of([node("Identity", ["x"], ["y"])], picture, ["y"], kind=3, output_kind=3), at / "i8.onnx")
    write(graph_of([node("Not", ["x"], ["y"])], picture, ["y"], kind=9, output_kind=9), at / "bool.onnx")
    write(graph_of([node("ArgMax", ["x"], ["y"], axis=1)], picture, ["y"], output_kind=7), at / "arg.onnx")
    for name, package in {
        "m": "pkg",
        "log": "logpkg",
        "i8": "i8pkg",
        "bool": "boolpkg",
        "arg": "argpkg",
    }.items():
        api.compile(at / f"{name}.onnx", out=at / package, platform="host")
    shutil.copytree(at / "pkg", at / "dpkg")
    (at / "dpkg/mod.params").write_bytes(b"x")
    x = np.random.default_rng(0).normal(size=(1, 3, 8, 8)).astype("f4")
    some = np.linspace(-1, 2, 8, dtype="f4").reshape(1, 8)
    with np.errstate(invalid="ignore"):
        logarithms = np.log(some)
    arrays = {
        "wrong": {"y": np.full((1, 3, 8, 8), 2, "f4")},
        "x": {"x": x},
        "far": {"y": np.maximum(x, 0) * np.float32(1.234)},
        "some": {"x": some},
        "partly": {"y": logarithms + 1},
        "index": {"y": np.full((1, 1, 8, 8), 5)},
    }
    for name, values in arrays.items():
        np.savez(at / f"{name}.npz", **values)
    Image.new("RGB", (8, 8)).save(at / "p.png")
    (at / "linked").mkdir()
    import onnx

    onnx.save(
        onnx.load(at / "conv.onnx"),
        at / "elsewhere.onnx",
        save_as_external_data=True,
        location="w.bin",
        size_threshold=0,
    )
    shutil.move(at / "elsewhere.onnx", at / "linked/m.onnx")
    (at / "linked/w.bin").symlink_to("../w.bin")
    changed = shutil.copytree(host, tmp_path_factory.mktemp("changed") / "bundle", symlinks=True)
    with (changed / "bin/rtvm").open("ab") as file:
        file.write(b"x")
    (at / "changed").symlink_to(changed)  # it is large, and each case copies the rest
    (at / "arm").symlink_to(api.build_target(platform="linux-aarch64").bundle.path)
    return at


@pytest.fixture
def directory(prepared: Path, tmp_path: Path) -> Iterator[Path]:
    """Copy the files for one case, and stop what its remedy started."""
    copy = shutil.copytree(prepared, tmp_path / "at", symlinks=True)
    yield copy
    if emulator.listing():
        run("adt emulator stop", copy)
    tracker.stop()


def run(command: str, directory: Path) -> subprocess.CompletedProcess[str]:
    environ = os.environ | {"PATH": path_with_adt()}
    shell = ["sh", "-c", command]
    return subprocess.run(
        shell, cwd=directory, env=environ, capture_output=True, text=True, timeout=600, check=False
    )


@pytest.mark.parametrize("case", TABLE, ids=lambda case: case.line)
def test_a_remedy_is_followed(case: Case, directory: Path) -> None:
    line = f"adt {case.line}"
    done = run(line, directory)
    assert done.returncode not in (0, 1), done.stdout + done.stderr
    message, remedy = done.stderr.partition("error: ")[2].split("\nremedy: ", 1)
    assert re.fullmatch(re.escape(case.message).replace("…", ".*"), message.strip(), re.DOTALL), message

    printed = commands(remedy)
    assert printed, remedy
    followed = [each for each in printed if not set(PLACEHOLDER.findall(each)) & set(case.unknown)]
    for command in followed:
        if followed == [command] and command in WORKING and not (case.again or case.after):
            continue
        assert not PLACEHOLDER.search(command), f"a placeholder: {command}"
        codes = next((codes for start, codes in case.codes.items() if command.startswith(start)), (0,))
        result = run(command, directory)
        assert result.returncode in codes, f"{command}: {result.returncode}\n{result.stdout}{result.stderr}"
        if command == followed[0]:
            WORKING.add(command)
    for check in ([line] if case.again else []) + ([f"adt {case.after}"] if case.after else []):
        result = run(check, directory)
        assert result.returncode == 0, f"{check}\n{result.stdout}{result.stderr}"
    assert followed or case.unknown
