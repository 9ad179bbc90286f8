"""Faults that tests inject into a virtual device: their specifications, and what is armed in a running one.

A specification is ``KIND``, ``KIND=VALUE``, and ``@once`` behind either: the fault is gone after it struck
once. One :class:`Injector` belongs to the daemon. Connections, streams and services ask it at the point where
a real device would fail; with nothing armed every question is a dictionary look-up that finds nothing.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from adt.errors import ConfigError
from adt.options.resolve import did_you_mean
from adt.virtual import namespaces

ONCE = "@once"
BYTES = re.compile(r"([0-9]+)([kmg]?)", re.I)
UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


@dataclass(frozen=True)
class Kind:
    """One kind of fault."""

    name: str
    value: str
    """What follows ``=``: ``BYTES``, ``SECONDS`` or ``DIR``; in brackets when it may be left out; empty
    when there is none."""
    effect: str
    """What happens, for the error message and the documentation."""
    state: bool = False
    """Whether it is a state of the device, which has no moment at which it strikes: no ``@once``."""

    @property
    def usage(self) -> str:
        """How it is written."""
        if self.value.startswith("["):
            return f"{self.name}[={self.value[1:]}"
        return f"{self.name}={self.value}" if self.value else self.name


KINDS = {
    kind.name: kind
    for kind in (
        Kind("drop-after", "BYTES", "the connection is cut after that many bytes of streams, both ways"),
        Kind("stall-after", "BYTES", "after that many bytes nothing is answered, and the connection stays"),
        Kind("reboot-after", "BYTES", "after that many bytes the device restarts"),
        Kind("bandwidth", "BYTES", "each direction carries so many bytes a second"),
        Kind("truncate", "[BYTES]", "answers of sync and shell end early (by default half-way) and close"),
        Kind("enospc", "[BYTES]", "pushed files find no space once that many bytes (by default 0) are in"),
        Kind("wrong-hash", "", "a pushed file is stored with one byte changed"),
        Kind("readonly", "DIR", "that directory of the device is mounted read-only", state=True),
        Kind("unauthorized", "[SECONDS]", "the host's key is not accepted (or only after so long)"),
        Kind("offline", "", "connections are taken and the handshake is never answered"),
        Kind("no-shell-v2", "", "shell protocol 2 is not offered"),
    )
}
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
        """The specification."""
        return f"{self.kind}{'=' * bool(self.value)}{self.value}{ONCE * self.once}"

    @property
    def amount(self) -> int | None:
        """The value in bytes; None without one."""
        match = BYTES.fullmatch(self.value)
        return int(match[1]) * UNITS[match[2].lower()] if match else None

    @property
    def seconds(self) -> float | None:
        """The value in seconds; None without one."""
        return float(self.value) if self.value else None


def parse(specifications: Iterable[str]) -> tuple[Fault, ...]:
    """The faults named by *specifications*.

    Raises:
        ConfigError: an unknown kind, a value that does not fit it, or one kind twice (several
            ``readonly`` directories are fine).
    """
    faults: list[Fault] = []
    for text in specifications:
        fault = _parse_one(text)
        if any(other.kind == fault.kind and not KINDS[fault.kind].state for other in faults):
            raise ConfigError(
                f"fault {fault.kind} is given twice", remedy="Give each kind once; see --help for the list."
            )
        faults.append(fault)
    return tuple(faults)


def _parse_one(text: str) -> Fault:
    words, once, rest = text.strip().partition(ONCE)
    name, equals, value = words.partition("=")
    kind = KINDS.get(name)
    if kind is None or rest:
        raise bad(f"{text!r} is not a fault.{did_you_mean(name, KINDS)}")
    fault = Fault(name, value, bool(once))
    if once and kind.state:
        raise ConfigError(
            f"{text!r}: {name} is a state of the device and cannot strike once",
            remedy=f"Leave {ONCE} away, and clear the fault when it is no longer wanted.",
        )
    if bool(equals) != bool(value) or not (_fits(kind, fault) if value else kind.value[:1] in ("", "[")):
        raise bad(f"{text!r} is not written as {kind.usage}")
    return fault


def _fits(kind: Kind, fault: Fault) -> bool:
    if kind.value.strip("[]") == "BYTES":
        amount = fault.amount
        return amount is not None and (amount > 0 or kind.name != "bandwidth")
    if kind.value.strip("[]") == "SECONDS":
        return re.fullmatch(r"[0-9]+(\.[0-9]+)?", fault.value) is not None
    return kind.value == "DIR" and fault.value.startswith("/")


def bad(what: str) -> ConfigError:
    """An error with every kind and what it does in its details."""
    return ConfigError(
        what,
        remedy=f"Use one of the faults listed here; {ONCE} behind it has it strike once.",
        details="\n".join(f"{kind.usage:<24} {kind.effect}" for kind in KINDS.values()),
    )


log = logging.getLogger("adt.virtual.faults")


class Injector:
    """What is armed, and what is told when that changes."""

    def __init__(self) -> None:
        self._armed: dict[str, Fault] = {}
        self._read_only: list[str] = []
        self._reduced = False  # whether a host was offered less than everything
        self._room: int | None = None  # bytes of pushed files until `enospc` strikes
        self.boots = 1
        """How often the device has started."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when other faults were armed."""
        self.on_new_handshake: Callable[[], None] = lambda: None
        """Called when a fault was armed that only a new connection shows."""
        self.on_reboot: Callable[[], None] = lambda: None
        """Called when the device is to restart."""

    def armed(self) -> tuple[Fault, ...]:
        """Every fault that may still strike."""
        directories = (Fault("readonly", directory) for directory in self._read_only)
        return (*self._armed.values(), *directories)

    def features(self, all_features: tuple[str, ...]) -> tuple[str, ...]:
        """What is offered to a host that connects now."""
        if not self.strikes("no-shell-v2"):
            return all_features
        self._reduced = True
        return tuple(feature for feature in all_features if feature != "shell_v2")

    def replace(self, faults: Sequence[Fault]) -> None:
        """Arm *faults* in place of what was armed; every count begins again.

        Raises:
            OSError: a directory cannot be made read-only; one that does not exist changes nothing else.
        """
        self._mount([fault.value for fault in faults if fault.kind == "readonly"])
        before = self._armed
        self._armed = {fault.kind: fault for fault in faults if fault.kind != "readonly"}
        self._start_counting()
        log.warning("fault injection: %s", ", ".join(map(str, self.armed())) or "none")
        self.on_change()
        restored = self._reduced and "no-shell-v2" not in self._armed
        if restored or any(kind in self._armed and kind not in before for kind in HANDSHAKE):
            self._reduced = False
            self.on_new_handshake()

    def get(self, kind: str) -> Fault | None:
        """The armed fault of *kind*."""
        return self._armed.get(kind)

    def strikes(self, kind: str) -> Fault | None:
        """The armed fault of *kind*, which strikes now: one that strikes once is gone with that."""
        fault = self._armed.get(kind)
        if fault is not None:
            log.info("fault injection: %s strikes", fault)
            if fault.once:
                self.disarm(kind)
        return fault

    def disarm(self, kind: str) -> None:
        """*kind* has done its work."""
        self._armed.pop(kind, None)
        if kind == "enospc":
            self._room = None

    def take_room(self, count: int) -> bool:
        """Note *count* bytes of a pushed file; False when there is no space for them."""
        if self._room is None:
            return True
        if count <= self._room:
            self._room -= count
            return True
        self.strikes("enospc")
        return False

    def keep(self, written: int, length: int) -> int | None:
        """How much of the next *length* bytes of an answer are sent before it ends early; None for all.

        Args:
            written: bytes of this answer that were sent before.
            length: bytes that are to be sent now.
        """
        fault = self._armed.get("truncate")
        if fault is None:
            return None
        left = length // 2 if fault.amount is None else max(0, fault.amount - written)
        if left >= length:
            return None
        self.strikes("truncate")
        return left

    def _start_counting(self) -> None:
        full = self._armed.get("enospc")
        self._room = None if full is None else full.amount or 0

    def _mount(self, directories: list[str]) -> None:
        """Mount *directories* of the device read-only, and no others any more."""
        for directory in directories:
            if not Path(directory).is_dir():
                raise NotADirectoryError(f"the device has no directory {directory} to make read-only")
        while self._read_only:
            namespaces.unmount(Path(self._read_only.pop()))
        for directory in dict.fromkeys(map(os.path.normpath, directories)):
            namespaces.bind(Path(directory), Path(directory), read_only=True)
            self._read_only.append(directory)
