"""Functions that do what libraries do of a stranger's file."""

import ctypes
import logging
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adt.errors import UnsupportedOp
from adt.host.isolated import isolated


@dataclass(frozen=True)
class Answer:
    pid: int
    path: Path
    names: tuple[str, ...]
    array: Any


def never() -> str:
    """Wait, with Python's lock, for a lock that this thread has itself; no signal but KILL ends that."""
    lock = ctypes.create_string_buffer(256)
    for _ in range(2):
        ctypes.PyDLL(None).pthread_mutex_lock(lock)
    return "not reached"


@isolated("copying {path.name}", 60)
def copy(path: Path, names: tuple[str, ...], array: Any) -> Answer:
    sys.stdout.write("\x1b]0;stdout\x07")
    os.write(2, b"\x1b]0;stderr\x07")
    logging.getLogger("adt.import").warning("%s was read", path.name)
    logging.getLogger("adt.import").debug("a detail")
    return Answer(os.getpid(), path, names, array)


@isolated("converting {path.name}", 60)
def refuse(path: Path) -> str:
    class Special(UnsupportedOp):
        pass

    raise Special("no", remedy="Do.", details="why\x07", options=("--shape", "x:1"))


@isolated("mistaking {path.name}", 60)
def mistake(path: Path) -> str:
    raise KeyError(path.name)


@isolated("crashing in {path.name}", 60)
def crash(path: Path) -> str:
    sys.stderr.write("\x1b[2Jlast words\n")
    sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGSEGV)
    return "not reached"


@isolated("waiting for {path.name}", 1.5)
def hang(path: Path) -> str:
    return never()


@isolated("filling {path.name}", 60)
def fill(path: Path) -> str:
    pieces = []
    while True:
        pieces.append(bytes(64 << 20))


@isolated("counting in {path.name}", 60, here=True)
def directory(path: Path) -> str:
    return str(Path.cwd())


@isolated("counting in {path.name}", 60)
def elsewhere(path: Path) -> str:
    return str(Path.cwd())


@isolated("waiting for {path.name}", 1000)
def endless(path: Path) -> str:
    logging.getLogger("adt.import").warning("in native code")
    return never()
