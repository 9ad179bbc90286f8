"""Programs: echo, failure text, time limits, identity behind a pid, nothing left behind."""

import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest

from adt.errors import TRACE, BuildError, ToolNotFound
from adt.host.process import end, kill_group, run, start, start_time
from support.waiting import running, wait_for, wait_gone


def test_failure_carries_command_code_and_tail(caplog: pytest.LogCaptureFixture) -> None:
    script = "import sys; print('\\n'.join(map(str, range(100)))); print('bad', file=sys.stderr); sys.exit(3)"
    with caplog.at_level(logging.DEBUG, "adt"), pytest.raises(BuildError) as caught:
        run([sys.executable, "-c", script], error=BuildError, what="building failed", remedy="mend it")
    assert caught.value.what == "building failed (exit code 3)"
    assert caught.value.remedy == "mend it"
    assert "99\nbad" in caught.value.details and "\n50\n" not in caught.value.details
    assert caught.value.details.startswith(f"$ {sys.executable} -c")
    assert f"$ {sys.executable}" in caplog.text


@pytest.mark.parametrize(("level", "script"), [(logging.DEBUG, "<2 lines>"), (TRACE, "'true\n:'")])
def test_a_command_is_logged_with_its_seconds_and_a_script_only_in_all_detail(
    level: int, script: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(level, "adt"):
        run(["sh", "-c", "true\n:"])
    (line,) = caplog.messages
    assert line.startswith(f"$ sh -c {script}  # ") and line.endswith(" s")


def test_missing_program() -> None:
    with pytest.raises(ToolNotFound, match="no-such-program"):
        run(["no-such-program"])


def test_a_program_for_another_machine(tmp_path: Path) -> None:
    (tmp_path / "program").write_bytes(b"\x7fELF\x02\x01\x01" + bytes(60))
    (tmp_path / "program").chmod(0o755)
    with pytest.raises(ToolNotFound, match="program"):
        run([tmp_path / "program"])


def test_timeout_ends_the_whole_group(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    argv = ["sh", "-c", f"sleep 60 & echo $! > {pid_file}; wait"]
    with pytest.raises(BuildError, match="exit code 124"):
        run(argv, timeout=1.5, error=BuildError)
    wait_gone(int(pid_file.read_text()))


def test_interrupt_ends_the_whole_group(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"

    def interrupt(_line: str) -> None:
        raise KeyboardInterrupt

    argv = ["sh", "-c", f"sleep 60 & echo $! > {pid_file}; echo ready; wait"]
    with pytest.raises(KeyboardInterrupt):
        run(argv, on_line=interrupt)
    wait_gone(int(pid_file.read_text()))


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_in_the_midst_of_a_start_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, sig: signal.Signals
) -> None:
    started: list[int] = []
    popen = subprocess.Popen

    def interrupted(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        child = popen(*arguments, **options)
        started.append(child.pid)
        os.kill(os.getpid(), sig)
        return child

    def terminated(_number: int, _frame: object) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(sig, terminated)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(subprocess, "Popen", interrupted)
            with pytest.raises(KeyboardInterrupt):
                start(["sleep", "60"])
        wait_gone(started[0])
        assert signal.getsignal(sig) is terminated
    finally:
        signal.signal(sig, before)


def test_kill_group_uses_force_when_term_is_ignored() -> None:
    child = start(
        [sys.executable, "-c", "import signal,time; signal.signal(15, signal.SIG_IGN); time.sleep(60)"]
    )
    kill_group(child, grace=0.3)
    assert child.returncode is not None


def test_lines_come_as_they_are_printed() -> None:
    lines: list[str] = []
    done = run(["sh", "-c", "echo a; echo b >&2; echo c"], on_line=lines.append)
    assert lines == ["a", "b", "c"]
    assert done.stdout == "a\nb\nc\n"


HALF_GONE = """
import ctypes, platform, sys, threading
threading.Thread(target=sys.stdin.read).start()
print("begun", flush=True)
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)  # exit, of this thread alone
"""


def test_a_process_has_ended_when_its_last_thread_has() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HALF_GONE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        try:
            assert child.stdout is not None and child.stdout.readline() == b"begun\n"
            started = start_time(child.pid)
            wait_for(lambda: not running(child.pid), "the end of its first thread")
            assert started is not None and start_time(child.pid) == started, "it holds its files"
            assert end(child.pid, started, 10)
            assert start_time(child.pid) is None
        finally:
            child.kill()
