"""Calls of frameworks (torch, Keras, TVM's importers), which print, warn and raise exceptions of any kind."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator

from adt.errors import AdtError, ModelError, last_line

log = logging.getLogger("adt.import")


@contextlib.contextmanager
def framework_errors(what: str, remedy: str) -> Iterator[None]:
    """Call a framework quietly, and turn what it raises into a ModelError that says *what* failed."""
    try:
        with quiet():
            yield
    except AdtError:
        raise
    except Exception as error:
        raise ModelError(f"{what}: {type(error).__name__}: {last_line(error)}", remedy=remedy) from error


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Hide all threads' logs up to warnings, and move what is printed and warned of to the debug log."""
    printed, before = io.StringIO(), logging.root.manager.disable
    caught: list[warnings.WarningMessage] = []
    try:
        with (
            warnings.catch_warnings(record=True) as caught,
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(printed),
        ):
            warnings.simplefilter("always")
            logging.disable(logging.WARNING)
            yield
    finally:  # outside: a handler may write to the stderr of now
        logging.disable(before)
        for text in (*(str(warning.message) for warning in caught), printed.getvalue()):
            if text.strip():
                log.debug("printed while importing: %s", text.strip())
