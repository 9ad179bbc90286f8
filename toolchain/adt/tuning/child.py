"""A process of our own that answers one request at a time, and may crash or hang without harm to us.

The parent asks through :class:`Child`; the program it starts calls :func:`serve`. Requests and
answers are pickles behind their length, on pipes that nothing else writes to: what libraries print
goes to stderr, whose end explains a crash. A child ends with its parent, whatever it is doing, and
takes what it started along.
"""

from __future__ import annotations

import os
import pickle
import queue
import select
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import IO, Any

from adt.host.process import kill_group, start

LENGTH = struct.Struct("<Q")
GRACE = 2.0
"""Seconds that a child has to end properly."""
STDERR_KEPT = 1 << 20
"""Bytes of stderr after which it is emptied before the next request."""


class ChildDied(Exception):
    """The child ended instead of answering; the message has its signal or exit code and its last words."""


class ChildHung(Exception):
    """The child gave no answer in time, and was killed."""


class Child:
    """Runs ``python -m MODULE ARGUMENTS``, from the first request on; after it died, from the next one on.

    :meth:`ask` is for one thread; :meth:`close` for any.
    """

    def __init__(self, module: str, *arguments: str) -> None:
        self._argv = [sys.executable, "-P", "-m", module, *arguments]
        self._guard = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._stderr: IO[bytes] | None = None
        self._closed = False

    @property
    def pid(self) -> int | None:
        """Of the process, which leads a group of its own; None while there is none."""
        process = self._process
        return process.pid if process is not None else None

    def ask(self, request: Any, timeout: float) -> Any:
        """The child's answer to *request* (both can be pickled).

        Args:
            timeout: seconds; the start of the process counts, too.

        Raises:
            ChildHung: there was no answer in time.
            ChildDied: the child ended, or was closed.
            ToolNotFound: Python cannot be started.
        """
        deadline = time.monotonic() + timeout
        process = self._running()
        assert process.stdin is not None and process.stdout is not None
        data = pickle.dumps(request, protocol=pickle.HIGHEST_PROTOCOL)
        try:
            _write(process.stdin.fileno(), LENGTH.pack(len(data)) + data, deadline)
            answer = _read_frame(process.stdout.fileno(), deadline)
        except TimeoutError:
            self.kill()
            raise ChildHung(f"no answer within {timeout:g} s") from None
        except (OSError, ValueError):  # its end of the pipe is closed, or ours was, by close()
            answer = None
        except BaseException:  # ctrl-C: what it answers later would be taken for the next answer
            self.kill()
            raise
        if answer is None:
            raise ChildDied(self._last_words(process))
        return pickle.loads(answer)

    def kill(self) -> None:
        """End the process and what it started, now; the next request starts another."""
        with self._guard:
            process, self._process = self._process, None
        if process is not None:
            kill_group(process, GRACE)

    def close(self) -> None:
        """End the process and what it started; a request that is under way raises :class:`ChildDied`."""
        self._closed = True
        self.kill()

    def _running(self) -> subprocess.Popen[bytes]:
        with self._guard:
            if self._closed:
                raise ChildDied("it was closed")
            if self._process is not None and self._process.poll() is not None:
                self._process = None
            if self._process is None:
                self._stderr = tempfile.TemporaryFile(prefix="adt-child-")  # noqa: SIM115
                self._process = start(
                    self._argv,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._stderr.fileno(),
                )
                for pipe in (self._process.stdin, self._process.stdout):
                    assert pipe is not None
                    os.set_blocking(pipe.fileno(), False)
            elif self._stderr is not None and os.fstat(self._stderr.fileno()).st_size > STDERR_KEPT:
                os.ftruncate(self._stderr.fileno(), 0)
            return self._process

    def _last_words(self, process: subprocess.Popen[bytes]) -> str:
        kill_group(process)  # what it started
        with self._guard:
            if self._process is process:
                self._process = None
        if self._closed:
            return "it was closed"
        code = process.returncode
        end = (
            f"ended by signal {-code} ({signal.Signals(-code).name})"
            if code < 0
            else f"ended with code {code}"
        )
        assert self._stderr is not None
        size = os.fstat(self._stderr.fileno()).st_size
        text = os.pread(self._stderr.fileno(), 4096, max(size - 4096, 0)).decode(errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return f"{end}: {lines[-1]}" if lines else end


def serve(handle: Callable[[Any], Any], *, niceness: int = 0, idle: float | None = None) -> None:
    """Answer requests until the parent closes its end of the pipe or dies.

    An exception of *handle* ends the process: the parent is told its last line. To be ended is
    SystemExit in *handle*, so that it can remove its files and end programs that it started.

    Args:
        niceness: give way to other processes, as ``nice`` does.
        idle: end after so many seconds without a request.
    """
    os.nice(niceness)
    signal.signal(signal.SIGTERM, _end)
    requests, answers = os.dup(0), os.dup(1)
    os.dup2(2, 1)  # what libraries print
    waiting: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    orphaned = threading.Event()
    threading.Thread(target=_receive, args=(requests, waiting, orphaned), daemon=True).start()
    try:
        while True:
            try:
                request = waiting.get(timeout=idle)
            except queue.Empty:
                return
            data = pickle.dumps(handle(pickle.loads(request)), protocol=pickle.HIGHEST_PROTOCOL)
            _write(answers, LENGTH.pack(len(data)) + data, None)
    finally:
        if orphaned.is_set():
            _kill_group()


def _end(number: int, _frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # a second one would come in the midst of cleaning up
    raise SystemExit(128 + number)


def _receive(source: int, waiting: queue.SimpleQueue[bytes], orphaned: threading.Event) -> None:
    """Pass requests on; when there can be no more, end this process in the midst of what it does."""
    while (request := _read_frame(source, None)) is not None:
        waiting.put(request)
    orphaned.set()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE)
    _kill_group()


def _kill_group() -> None:
    """End this process, and what it started."""
    if os.getpgid(0) == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


def _write(to: int, data: bytes, deadline: float | None) -> None:
    view = memoryview(data)
    while view:
        _wait(to, select.POLLOUT, deadline)
        view = view[os.write(to, view[: 1 << 16]) :]


def _read_frame(source: int, deadline: float | None) -> bytes | None:
    """The next frame; None at the end."""
    head = _read(source, LENGTH.size, deadline)
    return None if head is None else _read(source, LENGTH.unpack(head)[0], deadline)


def _read(source: int, size: int, deadline: float | None) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        _wait(source, select.POLLIN, deadline)
        part = os.read(source, min(size - len(data), 1 << 20))
        if not part:
            return None
        data += part
    return bytes(data)


def _wait(fd: int, event: int, deadline: float | None) -> None:
    """Until *fd* is ready, or its other end is closed.

    Raises:
        TimeoutError: that did not come before *deadline* (of the monotonic clock).
    """
    poll = select.poll()  # select() takes no descriptor above 1023
    poll.register(fd, event)
    left = None if deadline is None else max(deadline - time.monotonic(), 0) * 1000
    if not poll.poll(left):
        raise TimeoutError
