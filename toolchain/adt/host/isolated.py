"""Functions that run in a process of their own: native libraries read a stranger's file in them.

A function with :func:`isolated` is called as any other. The first call starts the one process that all such
functions of this process share. What crashes, never ends or takes too much memory there becomes an AdtError,
and ctrl-C ends it at once: here is nobody but Python, who waits. Arguments and results are data; models go
as files. Log lines and errors come back as what they are, what libraries print does not.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
import re
import resource
import signal
import sys
import threading
import traceback
import typing
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from adt.errors import AdtError, ModelError, OutOfMemory, all_errors, printable
from adt.host.child import Child, ChildFailed, ChildHung, Speech, note, plain, serve, typed
from adt.host.disk import size_text

P = ParamSpec("P")
T = TypeVar("T")
MEMORY_SHARE = 0.75
"""Part of this machine's memory that the process may take."""

NEUTRAL = "/"


@dataclass(frozen=True)
class _Call:
    module: str
    name: str
    arguments: dict[str, Any]
    directory: str


@dataclass(frozen=True)
class _Result:
    value: Any


@dataclass(frozen=True)
class _Refusal:
    """An AdtError."""

    kind: str
    what: str
    remedy: str
    details: str
    options: tuple[str, ...]


@dataclass(frozen=True)
class _Bug:
    """Any other exception."""

    text: str
    trace: str


SPEECH = Speech(_Call, _Result | _Refusal | _Bug)


class _Shared:
    """The process; in the process itself there is none."""

    lock = threading.Lock()
    child: Child | None = None
    inside = False


def _forget() -> None:
    """After a fork: the process is the parent's."""
    _Shared.lock, _Shared.child = threading.Lock(), None


os.register_at_fork(after_in_child=_forget)


def begin(*modules: str) -> None:
    """Start the process, which imports *modules* while the caller does something else."""
    if not _Shared.inside:
        with _Shared.lock:
            _child(*modules).start()


def _child(*modules: str) -> Child:
    if _Shared.child is None:
        _Shared.child = Child("adt.host.isolated", str(most_memory()), *modules, speech=SPEECH)
    return _Shared.child


def most_memory() -> int:
    """Return how many bytes of memory of its own the process may have."""
    return int(MEMORY_SHARE * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def isolated(work: str, seconds: float, *, here: bool = False) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a function of a module so that it runs in the process for native libraries.

    Its annotations say what crosses: what JSON has, bytes, arrays, paths and dataclasses of such.

    Args:
        work: what it does, for errors; a format of its arguments (``reading {path.name}``).
        seconds: after which it hangs.
        here: it runs in the caller's working directory, to which its paths may be relative; else in one
            where libraries find nothing.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            if _Shared.inside:
                return function(*args, **kwargs)
            bound = inspect.signature(function).bind(*args, **kwargs)
            bound.apply_defaults()
            kinds = typing.get_type_hints(function)
            values = {name: plain(value, kinds[name]) for name, value in bound.arguments.items()}
            directory = str(Path.cwd()) if here else NEUTRAL
            request = _Call(function.__module__, function.__qualname__, values, directory)
            doing = work.format(**bound.arguments)
            result: T = _answer(request, doing, seconds, kinds["return"])
            return result

        return call

    return decorate


def _answer(request: _Call, doing: str, seconds: float, kind: Any) -> Any:
    """Have *request* done, and return its result, of the annotation *kind*.

    Raises:
        AdtError: the function raised it, or the process hung, crashed or had not enough memory.
        RuntimeError: the function raised something else.
    """
    try:
        with _Shared.lock:
            answer = _child().ask(request, seconds, _log)
        if isinstance(answer, _Result):
            return typed(answer.value, kind)
    except ChildFailed as failure:
        raise _failure(failure, doing, seconds) from None
    if isinstance(answer, _Refusal):
        errors = {error.__name__: error for error in all_errors()}
        error = errors.get(answer.kind, AdtError)
        raise error(answer.what, remedy=answer.remedy, details=answer.details, options=answer.options)
    bug = RuntimeError(printable(answer.text))
    bug.add_note(printable(answer.trace))
    raise bug


def _failure(failure: ChildFailed, doing: str, seconds: float) -> AdtError:
    """Describe the end of the process in the midst of *doing*."""
    if isinstance(failure, ChildHung):
        return ModelError(
            f"{doing} did not end within {seconds / 60:g} minutes",
            remedy="A loop in its graph may never end: cut the model before it (onnx.utils.extract_model).",
            details=failure.output,
        )
    if failure.code == -signal.SIGKILL or re.search("bad_alloc|MemoryError", failure.output):
        return _out_of_memory(doing)
    return ModelError(
        f"{doing} {failure}",
        remedy="The file may be damaged: export or download it again. If others read it, report it.",
        details=failure.output,
    )


def _out_of_memory(doing: str) -> OutOfMemory:
    return OutOfMemory(
        f"{doing} takes more memory than there is for it ({size_text(most_memory())})",
        remedy="Fix smaller extents with --shape, end other programs, or use a machine with more memory.",
    )


def _log(record: Any) -> None:
    """Log what the process logged."""
    name, level, text = record
    if str(name).partition(".")[0] == "adt" and isinstance(level, int):
        logging.getLogger(name).log(level, "%s", text)


class _Forward(logging.Handler):
    """Sends log lines to the parent."""

    def emit(self, record: logging.LogRecord) -> None:
        """Send one; the parent's loggers decide on its level."""
        note([record.name, record.levelno, record.getMessage()])


def _call(request: _Call) -> _Result | _Refusal | _Bug:
    """Run the function that *request* names."""
    try:
        os.chdir(request.directory)
        function = getattr(import_module(request.module), request.name)
        kinds = typing.get_type_hints(function)
        arguments = {name: typed(value, kinds[name]) for name, value in request.arguments.items()}
        return _Result(plain(function(**arguments), kinds["return"]))
    except AdtError as error:
        kind = next((each for each in type(error).__mro__ if each in all_errors()), AdtError)
        return _Refusal(kind.__name__, error.what, error.remedy, error.details, error.options)
    except MemoryError:
        raise  # ends the process, and what it holds is free again
    except Exception as error:
        return _Bug(f"{type(error).__name__}: {error}", traceback.format_exc())


def _main(memory: int, modules: list[str]) -> None:
    _Shared.inside = True
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    Path("/proc/self/oom_score_adj").write_text("1000")  # of all processes the kernel is to end this one
    logger = logging.getLogger("adt")
    logger.handlers[:], logger.propagate = [_Forward()], False
    logger.setLevel(logging.DEBUG)
    for name in modules:
        import_module(name)
    serve(_call, speech=SPEECH)


if __name__ == "__main__":
    from adt.host import isolated as this

    this._main(int(sys.argv[1]), sys.argv[2:])
