"""Programs that adt starts inherit no directory, and no variable that has them run other code."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import adt
from adt.host import download, process, sources
from adt.host.child import Child
from adt.host.process import NOT_PASSED, environment, find_tool, run, start
from support.devices.programs import write_program
from support.traps import lay_traps

TAG = "v0.0.1"
SHOW = "import json, os, sys; print(json.dumps([os.getcwd(), dict(os.environ), sys.argv[1:]]))"


def shown(*words: str | Path) -> tuple[str, dict[str, str], list[str]]:
    """Return directory, variables and arguments of a program."""
    directory, variables, arguments = json.loads(run([sys.executable, "-c", SHOW, *words]).stdout)
    return directory, variables, arguments


@pytest.fixture
def traps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a stranger's working directory, in which whatever is run writes a line to the file that is returned."""
    directory, note = tmp_path / "project", tmp_path / "ran"
    lay_traps(directory, note, upstream=sources.GIT_URL)
    monkeypatch.chdir(directory)
    return note


def test_children_start_in_a_directory_of_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert shown()[0] == "/"
    child = start([sys.executable, "-c", SHOW], stdout=subprocess.PIPE)
    assert json.loads(child.communicate()[0])[0] == "/"


def test_a_path_is_ours_wherever_the_child_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert shown(Path("model.onnx"), "model.onnx")[2] == [str(tmp_path / "model.onnx"), "model.onnx"]
    write_program(tmp_path / "program", "echo ran")
    assert run(["./program"]).stdout == "ran\n"


def test_paths_in_variables_stay_what_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", "lib", "/abs"]))
    monkeypatch.setenv("ADT_CACHE_DIR", "cache")
    variables = shown()[1]
    assert variables["PYTHONPATH"] == f"{tmp_path}/lib{os.pathsep}/abs"  # empty is the working directory
    assert variables["ADT_CACHE_DIR"] == f"{tmp_path}/cache"


def test_variables_that_run_other_code_are_not_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NOT_PASSED:
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("https_proxy", "http://proxy")
    variables = shown()[1]
    assert not NOT_PASSED & variables.keys()
    assert variables["https_proxy"] == "http://proxy"
    assert environment({"GIT_DIR": "/mine"})["GIT_DIR"] == "/mine"


def test_pip_is_asked_and_not_the_directory(traps: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", str(traps.with_name("mine.conf")))
    traps.with_name("mine.conf").write_text("[global]\nindex-url = http://127.0.0.1:9/mine\n")
    monkeypatch.delenv("PIP_INDEX_URL", raising=False)
    assert download.pip_settings()["index-url"] == "http://127.0.0.1:9/mine"
    assert not traps.exists(), traps.read_text()


def test_git_is_asked_and_not_the_directory(
    traps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fetch from an upstream on this machine, to which the user's own configuration redirects the network."""
    upstream = tmp_path / "upstream"
    subprocess.run(["git", "init", "-q", upstream], check=True)
    identity = ["-c", "user.name=x", "-c", "user.email=x"]
    subprocess.run(["git", "-C", upstream, *identity, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    subprocess.run(["git", "-C", upstream, "tag", TAG], check=True)
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", f"url.file://{upstream}.insteadOf")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", sources.GIT_URL)
    monkeypatch.setenv("GIT_DIR", str(traps.with_name("project") / ".git"))  # as a hook of git has it
    assert sources.git_reaches(TAG)
    assert not traps.exists(), traps.read_text()


def test_programs_of_the_directory_are_not_found(traps: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ignore an empty part of PATH, as of a colon too many, which means the working directory."""
    monkeypatch.setenv("PATH", f":{os.environ['PATH']}:")
    assert find_tool("cc").path.parent != Path.cwd()
    assert process.which("adb") != "adb"


def test_our_own_children_run_our_own_code(traps: Path) -> None:
    with Child("adt.package.host_run.child") as child:
        assert child.ask({}, timeout=100)["stage"] == "start"
    assert not traps.exists(), traps.read_text()


def test_nothing_is_contacted_unasked() -> None:
    """Ensure it by `import adt` alone, before any dependency is there; what the user set stays."""
    code = f"import adt, json, os; print(json.dumps({{n: os.environ[n] for n in {list(adt.SILENT)!r}}}))"
    clean = {name: value for name, value in os.environ.items() if name not in adt.SILENT}
    here = clean | process.python_path()
    for environ, expected in ((here, adt.SILENT), (here | dict.fromkeys(adt.SILENT, "mine"), None)):
        output = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, check=True)
        assert json.loads(output.stdout) == (expected or dict.fromkeys(adt.SILENT, "mine"))
