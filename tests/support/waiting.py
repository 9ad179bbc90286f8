"""Waiting for what another thread, process or device does, and output on a terminal."""

import os
import pty
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path


def wait_for(condition: Callable[[], object], event: str = "it", seconds: float = 120) -> None:
    """Poll until *condition* holds; the limit is for what never happens, on a slow machine under load, too.

    Between two polls it waits for as long as one takes: one that asks a device would slow down what it waits for.
    """
    end = time.monotonic() + seconds
    while begun := time.monotonic():
        if condition():
            return
        assert time.monotonic() < end, f"{event} did not happen"
        time.sleep(max(0.02, time.monotonic() - begun))


def wait_gone(pid: int) -> None:
    """Wait for the end of the process *pid*; one that nobody has waited for has ended, too."""
    wait_for(lambda: not running(pid), f"the end of process {pid}")


def running(pid: int) -> bool:
    """True if the process *pid* has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def on_terminal(command: Sequence[str], **environ: str) -> str:
    """Return the output of *command* on a terminal."""
    leader, follower = pty.openpty()
    environ = os.environ | {"TERM": "xterm"} | environ
    child = subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, env=environ)
    os.close(follower)
    text = b""
    try:
        while data := os.read(leader, 1 << 16):
            text += data
    except OSError:  # the end of a terminal
        pass
    finally:
        os.close(leader)
        child.wait(60)
    return text.decode()
