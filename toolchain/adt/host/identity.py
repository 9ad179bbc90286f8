"""Identity of a process: the one that was recorded, or another that got its number later."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from pathlib import Path


def boot_id() -> str:
    """Return what tells this boot of the machine from every other."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def start_time(pid: int) -> int | None:
    """Return the start of process *pid*, in clock ticks after boot; None when there is none or it has ended.

    It has ended when all its threads have: until then it holds its ports and files, though its first thread,
    which alone the state tells of, may be gone already.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
        threads = len([*Path(f"/proc/{pid}/task").iterdir()])
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name in parentheses may hold anything
    return None if fields[0] in "ZX" and threads <= 1 else int(fields[19])


def end(pid: int, started: int | None, grace: float, *, insist: bool = True) -> bool:
    """End process *pid*: SIGTERM, after *grace* seconds SIGKILL if we *insist*; True once it is gone.

    The process is held by a pidfd before its identity is looked at, so that no
    other process can get the signal.
    """
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        if started is None or start_time(pid) != started:
            return True
        for number, wait in ((signal.SIGTERM, grace), (signal.SIGKILL, 10.0))[: 1 + insist]:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, number)
            if select.select([fd], [], [], wait)[0]:
                return True
        return False
    finally:
        os.close(fd)
