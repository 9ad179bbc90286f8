"""Start a process of ours that stays when we go, and know that it came up.

The starter sends one message (:mod:`adt.host.messages`) to the new process's standard input and takes one
from its standard output: ``{"ready": …}`` or ``{"error": …}``. Then it sends ``commit``. Until it has, the
end of standard input (the starter was interrupted or killed) ends the process, which cleans up behind itself:
nothing runs that nobody asked for to the end.
"""

from __future__ import annotations

import contextlib
import logging
import logging.handlers
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from adt import errors
from adt.device.transport.deadline import Deadline, DeviceTimeout, allowed
from adt.errors import AdtError, RpcError
from adt.host import process
from adt.host.disk import disk_errors
from adt.host.messages import COMMIT, BadMessage, encode, receive, send
from adt.rpc.state import Home, tail

LOG_LIMIT = 4 << 20
"""Bytes after which a log is begun anew; one older log is kept."""
END_SECONDS = 20.0
"""Seconds that a process that is not wanted any more may take to clean up."""


def launch(
    module: str,
    plan: Mapping[str, Any],
    at: Home,
    *,
    seconds: float,
    doing: str,
    pass_fds: Sequence[int] = (),
) -> dict[str, Any]:
    """Run *module* in the background with *plan*, and return what it reports, within *seconds*, when it is
    ready.

    AdtError of the class and text that it reports; RpcError if it ended without a word, or took too long.
    """
    with disk_errors(f"writing {at.log}", at.log):
        at.directory.mkdir(parents=True, exist_ok=True)
        output = at.log.open("ab")
    with output:
        child = process.start(
            [sys.executable, "-P", "-m", module, at.directory],
            cwd=at.directory,
            env=process.python_path(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output.fileno(),
            pass_fds=pass_fds,
        )
    assert child.stdin is not None and child.stdout is not None
    committed = False
    try:
        with contextlib.suppress(BrokenPipeError):
            send(child.stdin.fileno(), encode(plan))
        report = _report(child.stdout.fileno(), Deadline(seconds, doing))
        if "error" in report:
            raise _reported(report)
        if "ready" not in report:
            raise RpcError(
                f"{module} did not come up",
                remedy=f"Its last words are below and in {at.log}.",
                details=tail(at.log),
            )
        send(child.stdin.fileno(), encode(COMMIT))
        committed = True
        ready: dict[str, Any] = report["ready"]
        return ready
    finally:
        for pipe in (child.stdin, child.stdout):
            with contextlib.suppress(OSError):
                pipe.close()
        if committed:  # should it end before us, its exit status is collected
            threading.Thread(target=child.wait, daemon=True).start()
        else:
            _wait(child)


def _wait(child: subprocess.Popen[bytes]) -> None:
    """Let the process, whose standard input has ended, clean up; then end it.

    After ctrl-C it is left to itself where it takes longer: it waits for a device.
    """
    seconds = allowed(END_SECONDS)
    try:
        child.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        if seconds == END_SECONDS:
            process.kill_group(child)
    except BaseException:
        process.kill_group(child)
        raise


def _report(fd: int, deadline: Deadline) -> dict[str, Any]:
    """Read the report of the process; empty when there was none in time."""
    try:
        while not select.select([fd], [], [], deadline.patience())[0]:
            pass
        report: dict[str, Any] = receive(fd, time.monotonic() + (deadline.remaining() or END_SECONDS))
    except (DeviceTimeout, OSError, EOFError, BadMessage):
        return {}
    return report


def _reported(report: Mapping[str, Any]) -> AdtError:
    kinds = {kind.__name__: kind for kind in errors.all_errors()}
    kind = kinds.get(str(report.get("kind")), RpcError)
    return kind(str(report["error"]), remedy=str(report["remedy"]), details=str(report.get("details", "")))


class Starter:
    """The process that started this one, as seen from here."""

    def __init__(self) -> None:
        self._out = os.dup(1)
        os.dup2(2, 1)  # what anybody prints goes to the log
        self._in = os.dup(0)
        with open(os.devnull) as nothing:  # noqa: PTH123 - a descriptor is wanted, not a path
            os.dup2(nothing.fileno(), 0)

    def plan(self) -> dict[str, Any]:
        plan: dict[str, Any] = receive(self._in)
        return plan

    def watch(self) -> None:
        """End this process (by SIGTERM) from now on if the starter goes before it has said ``commit``."""

        def wait() -> None:
            try:
                committed = receive(self._in) == COMMIT
            except (OSError, EOFError, BadMessage):
                committed = False
            if not committed:
                os.kill(os.getpid(), signal.SIGTERM)
            os.close(self._in)

        threading.Thread(target=wait, name="starter", daemon=True).start()

    def ready(self, **facts: object) -> None:
        """Report that all is well."""
        self._say({"ready": facts})

    def failed(self, error: AdtError) -> None:
        """Report what went wrong, with the class that the other side knows, too."""
        kind = next(kind.__name__ for kind in errors.all_errors() if isinstance(error, kind))
        self._say({"error": error.what, "kind": kind, "remedy": error.remedy, "details": error.details})

    def _say(self, message: Mapping[str, object]) -> None:
        with contextlib.suppress(OSError):  # nobody listens any more: `watch` deals with that
            send(self._out, encode(message))
        with contextlib.suppress(OSError):
            os.close(self._out)


def log_to(at: Home) -> None:
    """Write what this process logs to its own log, which never grows beyond twice LOG_LIMIT."""
    handler = logging.handlers.RotatingFileHandler(at.log, maxBytes=LOG_LIMIT, backupCount=1)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
