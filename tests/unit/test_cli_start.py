"""The command line starts without the heavy parts, and every verb has help with an example."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import adt
from adt.cli.verbs import app

HEAVY = ("tvm", "adbutils", "PIL", "jinja2", "onnx", "numpy", "onnxruntime", "cattrs", "requests")
PROBE = """
import atexit, json, sys
atexit.register(lambda: print("LOADED", json.dumps([m for m in sys.modules if "." not in m]), file=sys.stderr))
from adt.cli.main import main
sys.argv[0] = "adt"
main()
"""


def adt_program(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROBE, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environ},
        check=False,
        timeout=300,
    )


@pytest.mark.parametrize(
    ("arguments", "environ"),
    [
        (["--version"], {}),
        (["--help"], {}),
        (["up", "--help"], {}),
        ([], {"_ADT_COMPLETE": "complete_bash", "COMP_WORDS": "adt em", "COMP_CWORD": "1"}),
    ],
    ids=["version", "help", "verb help", "completion"],
)
def test_start_imports_nothing_heavy(arguments: list[str], environ: dict[str, str]) -> None:
    done = adt_program(*arguments, **environ)
    loaded = json.loads(done.stderr.split("LOADED", 1)[1])
    assert not set(HEAVY) & set(loaded)
    assert done.returncode == 0, done.stderr
    if environ:
        assert "emulator" in done.stdout


def test_version() -> None:
    assert adt_program("--version").stdout == f"adt {adt.__version__}\n"


def verbs(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    children = getattr(command, "commands", {})
    if not children:
        yield path, command
    for name, child in children.items():
        yield from verbs(f"{path} {name}".strip(), child)


@pytest.mark.parametrize(
    ("path", "command"), list(verbs("", typer.main.get_command(app))), ids=lambda x: str(x)
)
def test_each_verb_has_an_example_and_json(path: str, command: Any) -> None:
    assert (command.epilog and command.epilog.startswith(f"Example: adt {path}")) or "config" in path
    options = {name for parameter in command.params for name in parameter.opts}
    assert "--verbose" in options
    assert "--json" in options or path == "init"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["buld"], 2, "No such command"),
        (["compile"], 2, "Missing"),
        (["compile", "absent.onnx", "--for", "host"], 8, "no model file absent.onnx"),
        (["compile", "absent.onnx", "--for", "android-arm64-v8a", "--ndk", "/absent"], 8, "absent.onnx"),
        (["up", "absent.onnx", "--for", "android-arm64-v8a", "--ndk", "/absent"], 8, "absent.onnx"),
        (["tune", "absent.onnx", "--db", "db", "--ndk", "/absent"], 8, "absent.onnx"),
        (["build-target", "--for", "hots"], 3, "Did you mean 'host'"),
        (["build"], 2, "adt build-target"),
        (["push", "x"], 2, "adt deploy"),
        (["shell"], 2, "adb shell"),
        (["version"], 2, "adt --version"),
        (["build-target", "--ndk", "/absent"], 5, "/absent (from --ndk) is not a directory"),
    ],
)
def test_errors_have_a_code_and_a_remedy(arguments: list[str], code: int, said: str, tmp_path: Path) -> None:
    done = adt_program(*arguments, HOME=str(tmp_path), ADT_CACHE_DIR=str(tmp_path))
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    if code != 2:
        assert "remedy: " in done.stderr


def test_errors_as_json(tmp_path: Path) -> None:
    done = adt_program("build-target", "--ndk", "/absent", "--json", HOME=str(tmp_path))
    document = json.loads(done.stdout)
    assert (document["schema"], document["error"], document["exit_code"]) == ("adt.error", "NdkError", 5)
    assert document["remedy"]


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["compile", "--json"], "Missing argument"),
        (["buld", "--json"], "No such command"),
        (["devices", "--nope", "--json"], "No such option"),
        (["run", "x", "--seed", "many", "--json"], "not a valid int"),
    ],
)
def test_usage_errors_as_json(arguments: list[str], what: str) -> None:
    done = adt_program(*arguments)
    document = json.loads(done.stdout)
    assert (document["schema"], document["error"], document["exit_code"]) == ("adt.error", "UsageError", 2)
    assert what in document["what"] and document["remedy"].endswith("--help") and done.returncode == 2
    assert "Error: " in done.stderr


INTERRUPT = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n"


@pytest.mark.parametrize("module", ["typer", "onnx", "logging"])
@pytest.mark.parametrize("flags", [[], ["--json"]], ids=["text", "json"])
def test_ctrl_c_ends_with_one_line_whatever_is_being_imported(
    module: str, flags: list[str], tmp_path: Path
) -> None:
    """At once (what the command line imports) and later (what the verb does)."""
    (tmp_path / f"{module}.py").write_text(INTERRUPT)
    model = tmp_path / "m.onnx"
    model.write_bytes(b"\x08\x08\x12\x00")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = adt_program("compile", str(model), "--explain", *flags, PYTHONPATH=path)
    assert done.returncode == 130
    lines = [line for line in done.stderr.splitlines() if not line.startswith("LOADED")]
    assert lines == ["interrupted: what was complete before is still there"]
    if flags:
        document = json.loads(done.stdout)
        assert (document["schema"], document["error"]) == ("adt.error", "Interrupted")
        assert document["exit_code"] == 130
    else:
        assert not done.stdout


def test_the_ready_command_is_the_users_own(tmp_path: Path) -> None:
    from onnx_graphs import graph_of, node, write

    path = write(graph_of([node("Relu", ["x"], ["y"])], {"x": (1, "n")}, ["y"]), tmp_path / "a model.onnx")
    done = adt_program("compile", str(path), "--for", "host", "--explain")
    command = f"adt compile '{path}' --for host --explain --shape n=16"
    assert command in done.stdout.splitlines()[-1]
    assert adt_program(*shlex.split(command)[1:]).returncode == 0


def test_verbs_are_functions_of_the_package() -> None:
    assert sorted(adt.VERBS) == adt.__all__
    for verb in adt.VERBS:
        assert callable(getattr(adt, verb))
    with pytest.raises(AttributeError):
        adt.no_such_verb  # noqa: B018
