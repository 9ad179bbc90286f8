"""The commands of docs/from-tvmc.md: each adt line is a command, and each compile there compiles."""

import itertools
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import adt as api
from adt.cli.app import app
from adt.compiler.targets import model_target, settings_and_platform
from adt.options.resolve import load_settings
from adt.package.package import load_package
from support.devices.programs import adt
from support.models.onnx_graphs import f32, graph_of, node, write
from support.models.small import MAGIKA
from support.standins.ndk import make_standin_ndk

PAGE = (Path(__file__).parents[2] / "docs/from-tvmc.md").read_text()
BLOCKS = re.findall(r"^```(\S+)( \S+)?\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
LINES = [
    line for kind, _, text in BLOCKS if kind == "sh" for line in text.splitlines() if line.startswith("adt ")
]
COMPILE = [line for line in LINES if line.startswith("adt compile ")]
NOT_COMPILED = {
    "--offload": "the plugin that it needs is built and tested with the offload",
    "--db": "the records that it needs are made and compiled with where tuning is tested",
}
"""Options whose lines are only parsed, and why."""


@pytest.fixture(scope="module", autouse=True)
def unchecked() -> Iterator[None]:
    """Turn off the checks of numbers, which other tests make."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ADT_COMPILE_CHECK", "off")
        patch.setenv("ADT_COMPILE_ACCURACY", "off")
        yield


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("page")
    shutil.copy(MAGIKA, directory / "model.onnx")
    return directory


@pytest.fixture(scope="module")
def ndk() -> Path:
    path = make_standin_ndk()
    api.build_target(platform="android-arm64-v8a", ndk=str(path))
    return path


@pytest.mark.parametrize("line", LINES)
def test_each_line_is_a_command(line: str) -> None:
    command: Any = typer.main.get_command(app)
    words = shlex.split(line)[1:]
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    command.make_context(line, words)  # raises for an unknown option or a wrong value


def option(line: str, name: str) -> str:
    """Return the value of an option in a line; empty without it."""
    words = shlex.split(line)
    return words[words.index(name) + 1] if name in words else ""


def classic(line: str) -> bool:
    """Return True if the line spells its target as TVM does."""
    return " " in option(line, "--target")


def test_tvms_words_stand_for_the_line_before_them(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    for ours, theirs in itertools.pairwise(COMPILE):
        if classic(theirs):
            targets = []
            for line in (ours, theirs):
                flags = {"compile.target": option(line, "--target"), "build.platform": option(line, "--for")}
                settings, platform = settings_and_platform(
                    load_settings({key: value or None for key, value in flags.items()})
                )
                targets.append((platform, model_target(settings.compile.target, platform, 28)))
            assert targets[0] == targets[1], theirs
    assert sum(map(classic, COMPILE)) == 3


def runs(line: str) -> Any:
    """Return the line as a test's parameter: the same target in TVM's words is compiled nightly only."""
    return pytest.param(line, marks=[pytest.mark.nightly] if classic(line) else [])


@pytest.mark.parametrize(
    "line", [runs(line) for line in COMPILE if not set(shlex.split(line)) & NOT_COMPILED.keys()]
)
def test_each_compile_command_compiles(line: str, ndk: Path, tmp_path: Path) -> None:
    write(
        graph_of([node("Conv", ["x", "w"], ["y"])], {"x": (1, 8, 6, 6)}, ["y"], {"w": f32(8, 8, 3, 3)}),
        tmp_path / "model.onnx",
    )
    done = adt(*shlex.split(line)[1:], cwd=tmp_path, env=os.environ | {"ANDROID_NDK_HOME": str(ndk)})
    assert done.returncode == 0, done.stderr
    assert ("is read as" in done.stderr) == classic(line), done.stderr
    target = load_package(tmp_path / option(line, "-o")).manifest.target
    assert target.platform == meant(line)
    device = "opencl" if re.search("adreno|mali", option(line, "--target")) else "cpu"
    assert target.device == device


def meant(line: str) -> str:
    """Return the platform that the line means, read another way than adt does."""
    marks = {"android": "android-arm64-v8a", "aarch64": "linux-aarch64", "arm": "linux-armhf"}
    return next((platform for mark, platform in marks.items() if mark in line), "host")


def test_the_python_blocks(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    names: dict[str, Any] = {}
    for kind, mark, text in BLOCKS:
        if kind == "python":
            code = compile(text, "from-tvmc.md", "exec")
            if not mark:
                exec(code, names)
    assert names["outputs"].numpy().shape == (1, 214)
    assert [names[name].device for name in ("board", "gpu", "pi3")] == ["cpu", "opencl", "cpu"]
    assert names["pi3"].platform == "linux-armhf"


def test_the_table_names_what_exists() -> None:
    """Find each adt command and function of the page's tables and text."""
    command: Any = typer.main.get_command(app)
    for words in re.findall(r"`adt ([a-z-]+)(?: ([a-z-]+))?", PAGE):
        group = command.commands[words[0]]
        if hasattr(group, "commands"):
            assert words[1] in group.commands
    for name in re.findall(r"`adt\.(\w+)\(", PAGE):
        assert name in api.NAMES
