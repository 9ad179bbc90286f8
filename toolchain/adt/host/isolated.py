"""Functions that run in a process of their own: native libraries read a stranger's file in them.

A function with :func:`isolated` is called as any other; its first call starts the process. What crashes,
never ends or takes too much memory there becomes an AdtError, and ctrl-C ends it at once: here Python waits,
nothing else. Arguments and results are data; models go as files. Log lines and errors come back as what they
are, what libraries print does not.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
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
from adt.host.process import NEUTRAL

P = ParamSpec("P")
T = TypeVar("T")
MODELS = "models"
"""The process in which libraries read models."""


@dataclass(frozen=True)
class _Call:
    module: str
    name: str
    arguments: dict[str, Any]
    directory: str


@dataclass(frozen=True)
class _Answer:
    value: Any = None
    error: str = ""
    """Class of an AdtError with the following; BUG: of another exception; empty: there is none."""
    what: str = ""
    remedy: str = ""
    details: str = ""
    options: tuple[str, ...] = ()


BUG = "bug"
SPEECH = Speech(_Call, _Answer)


class _Processes:
    """The processes by name; in one of them there are none."""

    children: typing.ClassVar[dict[str, Child]] = {}
    lock = threading.RLock()
    inside = False


def _forget() -> None:
    """Leave the processes to the parent, after a fork."""
    _Processes.children, _Processes.lock = {}, threading.RLock()


os.register_at_fork(after_in_child=_forget)


def begin(*modules: str, process: str = MODELS) -> Child:
    """Start *process* if it does not run: it imports *modules* while the caller does something else."""
    with _Processes.lock:
        if process not in _Processes.children:
            arguments = ("adt.host.isolated", str(most_memory()), *modules)
            _Processes.children[process] = Child(*arguments, speech=SPEECH)
        _Processes.children[process].start()
        return _Processes.children[process]


def most_memory() -> int:
    """Return the bytes of memory of its own that a process may have: three quarters of the machine's."""
    return int(0.75 * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def isolated(
    work: str, seconds: float, *, process: str = MODELS, here: bool = False
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a function of a module to run in *process*, which *work* names (``reading {path.name}``).

    Its annotations say what crosses: what JSON has, bytes, arrays, paths and dataclasses of such. With *here*
    it runs in the caller's working directory, to which its paths may be relative; else in NEUTRAL.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            if _Processes.inside:
                return function(*args, **kwargs)
            bound = inspect.signature(function).bind(*args, **kwargs)
            bound.apply_defaults()
            kinds = typing.get_type_hints(function)
            values = {name: plain(value, kinds[name]) for name, value in bound.arguments.items()}
            directory = str(Path.cwd() if here else NEUTRAL)
            request = _Call(function.__module__, function.__qualname__, values, directory)
            try:
                with _Processes.lock:
                    answer: _Answer = begin(process=process).ask(request, seconds, _log)
                result: T = _value(answer, kinds["return"])
                return result
            except ChildFailed as failure:
                raise _failure(failure, work.format(**bound.arguments), seconds) from failure

        return call

    return decorate


def _value(answer: _Answer, kind: Any) -> Any:
    """Return what was answered, of the annotation *kind*, or raise what the function raised."""
    if answer.error == BUG:
        bug = RuntimeError(printable(answer.what))
        bug.add_note(printable(answer.details))
        raise bug
    if answer.error:
        error = {error.__name__: error for error in all_errors()}.get(answer.error, AdtError)
        raise error(answer.what, remedy=answer.remedy, details=answer.details, options=answer.options)
    try:
        return typed(answer.value, kind)
    except Exception as error:  # cattrs raises groups
        raise ChildFailed(f"gave an answer that is none: {error}") from None


def _failure(failure: ChildFailed, doing: str, seconds: float) -> AdtError:
    """Describe the end of a process in the midst of *doing*."""
    if isinstance(failure, ChildHung):
        return ModelError(
            f"{doing} did not end within {seconds / 60:g} minutes",
            remedy="A loop in its graph may never end: cut the model before it (onnx.utils.extract_model).",
            details=failure.output,
        )
    if failure.code == -signal.SIGKILL or re.search("bad_alloc|MemoryError", failure.output):
        return OutOfMemory(
            f"{doing} takes more memory than there is for it ({size_text(most_memory())})",
            remedy="Fix smaller extents with --shape, end other programs, or use a machine with more memory.",
        )
    return ModelError(
        f"{doing} {failure}",
        remedy="The file may be damaged: export or download it again. If others read it, report it.",
        details=failure.output,
    )


def _log(record: Any) -> None:
    name, level, text = record
    if str(name).partition(".")[0] == "adt" and isinstance(level, int):
        logging.getLogger(name).log(level, "%s", text)


class _Forward(logging.Handler):
    """Sends log lines to the parent, whose loggers decide on their level."""

    def emit(self, record: logging.LogRecord) -> None:
        note([record.name, record.levelno, record.getMessage()])


def _call(request: _Call) -> _Answer:
    try:
        os.chdir(request.directory)
        function = getattr(import_module(request.module), request.name)
        gc.freeze()  # no later collection looks through what was imported
        kinds = typing.get_type_hints(function)
        arguments = {name: typed(value, kinds[name]) for name, value in request.arguments.items()}
        return _Answer(plain(function(**arguments), kinds["return"]))
    except AdtError as error:
        kind = next((each for each in type(error).__mro__ if each in all_errors()), AdtError)
        return _Answer(None, kind.__name__, error.what, error.remedy, error.details, error.options)
    except MemoryError:
        raise  # ends the process, and what it holds is free again
    except Exception as error:
        return _Answer(None, BUG, f"{type(error).__name__}: {error}", details=traceback.format_exc())


def limit_memory(most: int) -> None:
    """Limit the memory of this process, apart from files that it maps and what it only reserves."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    limits = [limit for limit in resource.getrlimit(resource.RLIMIT_DATA) if limit != resource.RLIM_INFINITY]
    most = min([most, *limits])
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    with contextlib.suppress(OSError):  # some containers refuse it
        Path("/proc/self/oom_score_adj").write_text("1000")  # the kernel is to end this process first


def _serve(memory: int, modules: list[str]) -> None:
    _Processes.inside = True
    limit_memory(memory)
    gc.set_threshold(50_000)  # as in adt.cli.main
    logger = logging.getLogger("adt")
    logger.handlers[:], logger.propagate = [_Forward()], False
    logger.setLevel(logging.DEBUG)
    for name in modules:
        import_module(name)
    with contextlib.suppress(SystemExit):
        serve(_call, speech=SPEECH, after=_give_memory_back)
    os._exit(0)  # Python would take long to take its modules apart


def _give_memory_back() -> None:
    """Return to the system what libraries freed: the parent needs it next."""
    gc.collect()
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):  # glibc's
        trim(0)


if __name__ == "__main__":
    sys.modules["adt.host.isolated"] = sys.modules[__name__]  # functions ask that one whether they are inside
    _serve(int(sys.argv[1]), sys.argv[2:])
