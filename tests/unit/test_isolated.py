"""Functions that run in the process for native libraries: all that crosses, and all that may happen there."""

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from adt.errors import ModelError, OutOfMemory, UnsupportedOp
from adt.host import isolated
from support.sampling import of_each_run
from support.standins import isolated as functions
from support.waiting import wait_gone

MODEL = Path("/models/m.onnx")


@pytest.fixture(autouse=True)
def its_own_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Start a process that finds the functions of these tests."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setattr(isolated._Processes, "children", {})
    yield
    for child in isolated._Processes.children.values():
        child.close()


def pid() -> int:
    return functions.copy(MODEL, (), np.zeros(1)).pid


def test_data_and_log_lines_cross_and_what_libraries_print_does_not(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.INFO, "adt.import"):
        answer = functions.copy(MODEL, names=("a", "b"), array=np.arange(6, dtype="int8").reshape(2, 3))
    assert (answer.path, answer.names) == (MODEL, ("a", "b")) and answer.pid != os.getpid()
    assert answer.array.dtype == "int8" and answer.array.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert caplog.messages == ["m.onnx was read"]
    assert capfd.readouterr() == ("", "")
    assert pid() == answer.pid, "one process for all"


def test_errors_cross_as_what_they_are() -> None:
    with pytest.raises(UnsupportedOp, match=r"(?m)^no$") as refused:
        functions.refuse(MODEL)
    assert (refused.value.remedy, refused.value.details) == ("Do.", "why")
    assert refused.value.options == ("--shape", "x:1")
    with pytest.raises(RuntimeError, match=r"KeyError: 'm.onnx'") as mistaken:
        functions.mistake(MODEL)
    assert "in mistake" in "".join(mistaken.value.__notes__)


def test_a_crash_is_an_error_with_the_last_words() -> None:
    before = pid()
    with pytest.raises(ModelError, match=r"crashing in m.onnx ended by signal 11 \(SIGSEGV\)") as crashed:
        functions.crash(MODEL)
    assert "\x1b" not in crashed.value.what + crashed.value.details
    assert pid() != before, "the next call finds another"


def test_what_never_ends_is_an_error() -> None:
    with pytest.raises(ModelError, match=r"waiting for m.onnx did not end within"):
        functions.hang(MODEL)
    assert pid()


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated, "most_memory", lambda: 1 << 30)
    with pytest.raises(
        OutOfMemory, match=r"filling m.onnx takes more memory than there is for it \(1.0 GiB\)"
    ):
        functions.fill(MODEL)
    assert pid(), "what it held is free again"


def test_a_fork_has_a_process_of_its_own() -> None:
    mine = pid()
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.write(writer, str(pid()).encode())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = int(os.read(reader, 32))
    assert theirs not in (mine, child)
    assert pid() == mine
    wait_gone(theirs)


@pytest.mark.parametrize(
    ("number", "times"),
    of_each_run(
        3,
        (signal.SIGINT, 1),
        (signal.SIGTERM, 2),
        (signal.SIGKILL, 1),
        (signal.SIGINT, 2),
        (signal.SIGTERM, 1),
    ),
)
def test_it_ends_with_us_even_if_it_holds_pythons_lock(number: signal.Signals, times: int) -> None:
    """Interrupt this process a second time while it ends the other."""
    program = (
        "import logging, sys; from pathlib import Path; from adt.host import interrupts, isolated\n"
        "from support.standins import isolated as functions\n"
        "interrupts.handle(interrupts.interrupt)\n"
        "print(isolated.begin().pid, flush=True)\n"
        "logging.basicConfig(stream=sys.stdout, format='%(message)s')\n"
        "functions.endless(Path('/m.onnx'))\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert parent.stdout.readline() == "in native code\n"
        for _ in range(times):
            time.sleep(0.5)  # for it to be in that code; nothing depends on it but what is tested
            parent.send_signal(number)
        parent.wait(60)
    wait_gone(child)


def test_it_has_ended_before_the_reaper_would_wait_for_it() -> None:
    """End it before: the reaper takes a process that ended, and is still ours, for a running one, and waits a second."""
    program = (
        "import atexit, os\n"
        "import adt.host.reaper\n"
        "atexit.register(lambda: print(os.path.exists(f'/proc/{number}')))\n"
        "from adt.host import isolated\n"
        "number = isolated.begin().pid\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_it_runs_where_libraries_find_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert (functions.directory(MODEL), functions.elsewhere(MODEL)) == (str(tmp_path), "/")
