"""Faults of a virtual device: their specifications, and what is armed in a running one.

A specification is ``KIND``, ``KIND=VALUE``, and ``@once`` behind either: the fault is gone after it struck
once. Bytes may have k, m or g behind them.

| specification | what happens |
|---|---|
| ``drop-after=BYTES`` | the connection is cut; adb finds the device again by itself |
| ``stall-after=BYTES`` | nothing is answered, and the connection stays; it goes on when the faults change |
| ``reboot-after=BYTES`` | the device restarts: every process is killed, /tmp, /dev/shm, setprops and reverse |
|                        | ports are gone, /data stays (half a pushed file too), the boot id is new; for a |
|                        | second it takes no connection |
| ``bandwidth=BYTES`` | each direction carries so many bytes a second |
| ``truncate`` | an answer of sync, shell or exec ends half-way through its first part, and the stream closes |
| ``enospc[=BYTES]`` | pushed files find no space once so many bytes (by default none) are in |
| ``wrong-hash`` | a pushed file is stored with the byte in its middle changed |
| ``readonly=DIR`` | that directory is mounted read-only; several may be; never ``@once`` |
| ``unauthorized`` | the host's key is not accepted |
| ``offline`` | connections are taken and the handshake is never answered |
| ``no-shell-v2`` | shell protocol 2 is not offered: no exit codes, no separate stderr |

The ``-after`` faults count the streams in both directions, for each connection by itself. ``unauthorized``,
``offline`` and ``no-shell-v2`` cut the connections there are.
"""

import ctypes
import logging
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from adt.virtual import namespaces

ONCE = "@once"
READ_ONLY = "readonly"
"""A state of the device: it has no moment at which it strikes."""
BYTES = r"([0-9]+)([kmg]?)"
UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
VALUES = {
    "drop-after": BYTES,
    "stall-after": BYTES,
    "reboot-after": BYTES,
    "bandwidth": r"([1-9][0-9]*)([kmg]?)",
    "truncate": "",
    "enospc": rf"({BYTES})?",
    "wrong-hash": "",
    READ_ONLY: "/.*",
    "unauthorized": "",
    "offline": "",
    "no-shell-v2": "",
}
"""Spelling of each kind's value."""
HANDSHAKE = ("unauthorized", "offline", "no-shell-v2")
"""Kinds that strike when an adb server connects."""


@dataclass(frozen=True)
class Fault:
    """One fault to inject."""

    kind: str
    value: str = ""
    """As it was written."""
    once: bool = False

    def __str__(self) -> str:
        return f"{self.kind}{'=' * bool(self.value)}{self.value}{ONCE * self.once}"

    @property
    def amount(self) -> int | None:
        """The value in bytes; None without one."""
        match = re.fullmatch(BYTES, self.value, re.I)
        return int(match[1]) * UNITS[match[2].lower()] if match else None


def parse(specifications: Iterable[str]) -> tuple[Fault, ...]:
    faults: list[Fault] = []
    for text in specifications:
        words, once, _ = text.partition(ONCE)
        kind, _, value = words.partition("=")
        if kind not in VALUES or not re.fullmatch(VALUES[kind], value, re.I):
            raise ValueError(f"{text!r} is not a fault")
        faults.append(Fault(kind, value, bool(once)))
    return tuple(faults)


log = logging.getLogger("adt.virtual.faults")


class Connection(Protocol):
    """A connection of the device that faults strike."""

    def on_faults(self) -> None:
        """Apply other armed faults."""

    def cut(self) -> None:
        """End at once, as a pulled cable does."""


class Injector:
    """Faults that are armed in one device."""

    def __init__(self) -> None:
        self._armed: dict[str, Fault] = {}
        self._read_only: list[str] = []
        self._reduced = False  # whether a host was offered less than everything
        self._room: int | None = None  # bytes of pushed files until `enospc` strikes
        self.connections: set[Connection] = set()
        """Open connections."""
        self.boots = 1
        """Number of the device's starts."""
        self.down_until = 0.0
        """The event loop's time until which adb servers are cut off, after a restart."""
        self.on_reboot: Callable[[], None] = lambda: None
        """Called when the device is to restart."""

    def armed(self) -> tuple[Fault, ...]:
        directories = (Fault(READ_ONLY, directory) for directory in self._read_only)
        return (*self._armed.values(), *directories)

    def features(self, all_features: tuple[str, ...]) -> tuple[str, ...]:
        if not self.strikes("no-shell-v2"):
            return all_features
        self._reduced = True
        return tuple(feature for feature in all_features if feature != "shell_v2")

    def replace(self, faults: Sequence[Fault]) -> None:
        """Set *faults* in place of those before; every count begins again.

        Raises:
            OSError: a directory cannot be made read-only; one that does not exist changes nothing else.
        """
        self._mount([fault.value for fault in faults if fault.kind == READ_ONLY])
        before = self._armed
        self._armed = {fault.kind: fault for fault in faults if fault.kind != READ_ONLY}
        full = self._armed.get("enospc")
        self._room = None if full is None else full.amount or 0
        log.warning("fault injection: %s", ", ".join(map(str, self.armed())) or "none")
        for connection in list(self.connections):
            connection.on_faults()
        restored = self._reduced and "no-shell-v2" not in self._armed
        if restored or any(kind in self._armed and kind not in before for kind in HANDSHAKE):
            self._reduced = False
            self.cut_everyone_off()

    def cut_everyone_off(self) -> None:
        for connection in list(self.connections):
            connection.cut()

    def get(self, kind: str) -> Fault | None:
        return self._armed.get(kind)

    def strikes(self, kind: str) -> Fault | None:
        """Return the armed fault of *kind*, which strikes now; one that strikes once is disarmed."""
        fault = self._armed.get(kind)
        if fault is not None:
            log.info("fault injection: %s strikes", fault)
            if fault.once:
                self._armed.pop(kind)
                if kind == "enospc":
                    self._room = None
        return fault

    def take_room(self, count: int) -> bool:
        """Note *count* bytes of a pushed file; False when there is no space for them."""
        if self._room is None:
            return True
        if count <= self._room:
            self._room -= count
            return True
        self.strikes("enospc")
        return False

    def _mount(self, directories: list[str]) -> None:
        """Mount *directories* of the device read-only, and no others any more."""
        for directory in directories:
            if not Path(directory).is_dir():
                raise NotADirectoryError(f"the device has no directory {directory} to make read-only")
        while self._read_only:
            _unmount(self._read_only.pop())
        for directory in dict.fromkeys(map(os.path.normpath, directories)):
            namespaces.bind(Path(directory), Path(directory), read_only=True)
            self._read_only.append(directory)


_libc = ctypes.CDLL(None, use_errno=True)


def _unmount(directory: str) -> None:
    """Take the topmost mount off *directory*, also while it is in use."""
    if _libc.umount2(os.fsencode(directory), namespaces.MNT_DETACH):
        raise OSError(ctypes.get_errno(), f"umount {directory}")
