"""Identity of the process behind a pid, and its end."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from adt.host import process

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
            started = process.start_time(child.pid)
            end = time.monotonic() + 60
            while ") Z " not in Path(f"/proc/{child.pid}/stat").read_text():
                assert time.monotonic() < end
                time.sleep(0.01)
            assert started is not None and process.start_time(child.pid) == started, "it holds its files"
            assert process.end(child.pid, started, 10)
            assert process.start_time(child.pid) is None
        finally:
            child.kill()
