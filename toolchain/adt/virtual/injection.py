"""The faults that are armed in a running device: who asks for one learns whether it strikes now.

One :class:`Injector` belongs to the daemon. Connections, streams and services ask
it at the point where a real device would fail; with nothing armed every question
is a dictionary look-up that finds nothing.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from adt.virtual import namespaces
from adt.virtual.faults import HANDSHAKE, Fault

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
