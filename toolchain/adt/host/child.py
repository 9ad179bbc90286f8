"""A process of our own that answers one request at a time, and may crash or hang without harm to us.

The parent asks through :class:`Child`; the program it starts calls :func:`serve`. Requests and answers are
:mod:`adt.host.messages`, on pipes that nothing else writes to: what libraries print goes to stderr, whose end
explains a crash. A child ends with its parent, whatever it is doing, and takes what it started along. An
answer may come from a child that a stranger's file took over: it is data of the kinds that were agreed upon,
or the child counts as dead. Before its answer it may send notes.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, ClassVar

from adt.host.disk import temporary_directory
from adt.host.messages import encode, receive, send
from adt.host.process import kill_group, start
from adt.host.reaper import release_group

GRACE = 2.0
"""Seconds that a child has to end properly."""
OUTPUT = 1 << 16
"""Bytes of its end that explain a failure."""
IDLE_CODE = 64
"""Exit code of a child that ended since nobody asked it: a request that came then was not begun."""
NOTE = "\0note"
"""Key of a message that is no answer."""


class ChildFailed(Exception):
    """The child gave no answer."""

    def __init__(self, message: str, output: str = "", code: int = 0) -> None:
        super().__init__(message)
        self.output = output
        """The end of what it and its libraries printed."""
        self.code = code
        """It ended with it, or by the signal of its negative."""


class ChildDied(ChildFailed):
    """The child ended instead of answering; the message has its signal or exit code and its last words."""


class ChildHung(ChildFailed):
    """The child gave no answer in time, and was killed."""


@dataclass(frozen=True)
class Speech:
    """Annotations of requests and answers, of types that cattrs takes; Any: JSON, bytes and arrays."""

    request: Any = Any
    answer: Any = Any


ANYTHING = Speech()


def plain(value: Any, kind: Any) -> Any:
    """Return *value*, of the annotation *kind*, as :mod:`adt.host.messages` takes it."""
    return value if kind is Any else _converter(kind).unstructure(value, unstructure_as=kind)


def typed(value: Any, kind: Any) -> Any:
    """Return what :func:`plain` was given; an exception of cattrs when it is something else."""
    return value if kind is Any else _converter(kind).structure(value, kind)


@functools.cache
def _converter(kind: Any) -> Any:
    from cattrs.strategies import configure_tagged_union

    from adt.host.manifest import strict_converter

    converter = strict_converter()
    if isinstance(kind, types.UnionType) and types.NoneType not in kind.__args__:
        configure_tagged_union(kind, converter)
    return converter


_children: weakref.WeakSet[Child] = weakref.WeakSet()
os.register_at_fork(after_in_child=_children.clear)


@atexit.register
def _end_children() -> None:
    """End the children; the reaper would wait a second for one that this process does not wait for."""
    for child in list(_children):
        child.close()


class Child:
    """Runs ``python -m MODULE ARGUMENTS``, from the first request on; after it died, from the next one on.

    :meth:`ask` is for one thread; :meth:`close` for any.
    """

    def __init__(self, module: str, *arguments: str | Path, speech: Speech = ANYTHING) -> None:
        self._speech = speech
        self._argv = [sys.executable, "-P", "-m", module, *arguments]
        self._guard = threading.Lock()
        self._asking = threading.RLock()
        self._files: list[IO[bytes]] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._stderr: IO[bytes] | None = None
        self._closed = False
        _children.add(self)

    @property
    def pid(self) -> int | None:
        """Process id of the child, which leads a group of its own; None while there is none."""
        return process.pid if (process := self._process) is not None else None

    def ask(self, request: Any, timeout: float, on_note: Callable[[Any], None] | None = None) -> Any:
        """Return the child's answer to *request*; ChildHung if it is late, ChildDied if the child ended."""
        with self._asking:
            try:
                return self._ask(request, timeout, on_note)
            except ChildDied as died:
                if died.code != IDLE_CODE:
                    raise
                return self._ask(request, timeout, on_note)
            finally:
                if self._closed:
                    self._close_files()

    def _ask(self, request: Any, timeout: float, on_note: Callable[[Any], None] | None) -> Any:
        deadline = time.monotonic() + timeout
        message = encode(plain(request, self._speech.request))
        process = self.start()
        assert process.stdin is not None and process.stdout is not None
        try:
            send(process.stdin.fileno(), message, deadline)
            answer = receive(process.stdout.fileno(), deadline)
            while on_note and isinstance(answer, dict) and NOTE in answer:
                on_note(answer[NOTE])
                answer = receive(process.stdout.fileno(), deadline)
            value = typed(answer, self._speech.answer)
            if self._stderr is not None:  # what it printed explains no later failure
                os.ftruncate(self._stderr.fileno(), 0)
                os.lseek(self._stderr.fileno(), 0, os.SEEK_SET)  # of the child, too
            return value
        except TimeoutError:
            output = self._output()
            self.kill()
            raise ChildHung(f"no answer within {timeout:g} s", output) from None
        except Exception as error:  # the pipe is closed, at its end or by close(), or it is no answer
            raise self._death(process, error) from None
        except BaseException:  # ctrl-C: what it answers later would be taken for the next answer
            self.kill()
            raise

    def kill(self, grace: float = GRACE) -> None:
        """End the process and what it started, within *grace* seconds; the next request starts another."""
        with self._guard:
            process, self._process = self._process, None
        if process is not None:
            kill_group(process, grace)

    def close(self, grace: float = GRACE) -> None:
        """End the process and what it started; a request that is under way raises :class:`ChildDied`."""
        self._closed = True
        self.kill(grace)
        if self._asking.acquire(blocking=False):  # else the thread that asks closes what it reads
            self._close_files()
            self._asking.release()

    def _close_files(self) -> None:
        while self._files:
            self._files.pop().close()

    def start(self) -> subprocess.Popen[bytes]:
        """Start the process if there is none; it gets ready while the caller does something else."""
        with self._guard:
            if self._closed:
                raise ChildDied("it was closed")
            if self._process is not None and self._process.poll() is not None:
                release_group(self._process.pid)
                self._process = None
            if self._process is None:
                self._close_files()
                self._stderr = tempfile.TemporaryFile(dir=temporary_directory())  # noqa: SIM115
                self._process = start(
                    self._argv,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._stderr.fileno(),
                    reaped=True,  # native code that holds Python's lock hears of no end of ours
                )
                pipes = [pipe for pipe in (self._process.stdin, self._process.stdout) if pipe]
                self._files = [self._stderr, *pipes]
                for pipe in pipes:
                    os.set_blocking(pipe.fileno(), False)
            return self._process

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _output(self) -> str:
        if self._stderr is None:
            return ""
        size = os.fstat(self._stderr.fileno()).st_size
        return os.pread(self._stderr.fileno(), OUTPUT, max(size - OUTPUT, 0)).decode(errors="replace")

    def _death(self, process: subprocess.Popen[bytes], error: Exception) -> ChildDied:
        with self._guard:
            ours = self._process is process
            if ours:
                self._process = None
        if ours:
            kill_group(process)  # what it started
        else:  # close() took it and ends it: once that has waited for it, its pid may be another's
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=3 * GRACE)
        if self._closed:
            return ChildDied("it was closed")
        output = self._output()
        if not isinstance(error, EOFError | OSError):
            return ChildDied(f"gave an answer that is none: {error}", output)
        code = process.returncode
        end = f"by signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"with code {code}"
        lines = [line.strip() for line in output.splitlines() if line.strip()]
        return ChildDied(f"ended {end}" + (f": {lines[-1]}" if lines else ""), output, code)


def serve(
    handle: Callable[[Any], Any],
    *,
    speech: Speech = ANYTHING,
    niceness: int = 0,
    idle: float | None = None,
    after: Callable[[], None] = lambda: None,
) -> None:
    """Answer requests until the parent closes its end of the pipe or dies, or none comes for *idle* seconds.

    An exception of *handle* ends the process: the parent is told its last line. To be ended is SystemExit in
    *handle*, so that it can remove its files and end programs that it started.
    """
    os.nice(niceness)
    signal.signal(signal.SIGTERM, _end)
    requests, answers = os.dup(0), os.dup(1)
    _Parent.descriptor = answers
    os.dup2(2, 1)  # what libraries print
    waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()
    orphaned = threading.Event()
    threading.Thread(target=_receive, args=(requests, waiting, orphaned), daemon=True).start()
    try:
        request = waiting.get()  # that it was started for, however long that takes to arrive
        while True:
            answer = handle(typed(request, speech.request))
            send(answers, encode(plain(answer, speech.answer)))
            after()
            request = waiting.get(timeout=idle)
    except queue.Empty:
        raise SystemExit(IDLE_CODE) from None
    finally:
        if orphaned.is_set():
            _kill_group()


class _Parent:
    """The process that :func:`serve` answers."""

    descriptor: ClassVar[int]


def note(message: Any) -> None:
    """Send *message*, of JSON's kinds, bytes and arrays, to the parent while it waits for an answer."""
    send(_Parent.descriptor, encode({NOTE: message}))


def _end(number: int, _frame: types.FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # a second one would come in the midst of cleaning up
    raise SystemExit(128 + number)


def _receive(source: int, waiting: queue.SimpleQueue[Any], orphaned: threading.Event) -> None:
    """Pass requests on; when there can be no more, end this process in the midst of what it does."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            waiting.put(receive(source))
    orphaned.set()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE)
    _kill_group()


def _kill_group() -> None:
    """End this process, and what it started."""
    if os.getpgid(0) == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(0)
