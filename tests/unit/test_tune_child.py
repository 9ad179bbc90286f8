"""Processes that answer one request at a time, and may crash or hang."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from adt.tuning.child import Child, ChildDied, ChildHung


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> Iterator[Child]:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parents[1]), *sys.path]))
    child = Child("talking_child")
    yield child
    child.close()


def gone(pid: int) -> bool:
    """Whether the process ends soon."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


def test_requests_of_any_size_are_answered_by_one_process(child: Child) -> None:
    large = os.urandom(3 << 20)
    assert child.ask(("echo", large), 20) == large
    pid, parent, niceness = child.ask(("pid", None), 20)
    assert (pid, parent) == (child.pid, os.getpid()) and niceness >= 3
    assert child.ask(("pid", None), 20)[0] == pid


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (("signal", "SIGSEGV"), "ended by signal 11 (SIGSEGV): the last words"),
        (("exit", 3), "ended with code 3"),
        (("raise", "no"), "ended with code 1: ValueError: no"),
    ],
)
def test_the_next_request_after_a_crash_finds_another_process(
    child: Child, request_: tuple[str, object], said: str
) -> None:
    with pytest.raises(ChildDied, match="^" + said.replace("(", r"\(").replace(")", r"\)") + "$"):
        child.ask(request_, 20)
    assert child.ask(("echo", 1), 20) == 1


def test_what_hangs_is_killed_with_all_it_started(child: Child) -> None:
    started = child.ask(("start", None), 20)
    pid = child.pid
    with pytest.raises(ChildHung, match=r"within 0\.2 s"):
        child.ask(("sleep", 100), 0.2)
    assert pid is not None and gone(pid) and gone(started)
    assert child.ask(("echo", 2), 20) == 2


def test_closing_interrupts_a_request(child: Child) -> None:
    child.ask(("echo", None), 20)
    timer = threading.Timer(0.1, child.close)
    timer.start()
    with pytest.raises(ChildDied, match="it was closed"):
        child.ask(("sleep", 100), 50)
    timer.join()
    with pytest.raises(ChildDied, match="it was closed"):
        child.ask(("echo", 1), 20)


def test_it_ends_by_itself_when_nobody_asks(child: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    idle = Child("talking_child", "0.1")
    pid = idle.ask(("pid", None), 20)[0]
    assert gone(pid)
    assert idle.ask(("pid", None), 20)[0] != pid
    idle.close()


def test_it_ends_with_its_parent_in_the_midst_of_work(child: Child) -> None:
    """Killed with -9, the parent can end nothing."""
    program = (
        "import threading, time; from adt.tuning.child import Child; child = Child('talking_child')\n"
        "print(child.ask(('start', None), 20), child.pid, flush=True)\n"
        "threading.Thread(target=child.ask, args=(('sleep', 1000), 2000), daemon=True).start()\n"
        "time.sleep(0.2); print('ready', flush=True); time.sleep(1000)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        started, pid = map(int, parent.stdout.readline().split())
        assert parent.stdout.readline() == "ready\n"
        parent.kill()
    assert gone(pid) and gone(started)
