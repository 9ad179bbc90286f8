"""Work on several devices at once: one that fails does not stop the others.

Each device has a thread. Ctrl-C sets an event that ends every operation under
way on any of them (see :func:`adt.device.transport.deadline.cancel_on`); each thread then
cleans up as it would alone, and all of them are waited for.
"""

from __future__ import annotations

import contextlib
import queue
import re
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from adt.device import selection
from adt.device.device import Device
from adt.device.transport import adb
from adt.device.transport.deadline import Cancelled, cancel_on
from adt.errors import AdtError, ConfigError
from adt.host.document import FLAT, form
from adt.host.transfers import silence

WORKERS = 8
"""Devices that are worked on at once; the others wait for their turn."""
POLL = 0.2
"""Seconds between two looks for ctrl-C."""

T = TypeVar("T")
Say = Callable[[str], None]
"""Told by the work what it is doing now, in a few words."""


@dataclass(frozen=True)
class Event:
    """Something that happened on one device."""

    serial: str
    text: str
    """Description of its work, in a few words; of its end when *done*."""
    done: bool = False
    failed: bool = False
    silent: float = 0.0
    """Seconds for which no byte has come while it does that, when they are worth showing."""


def _error_fields(error: AdtError | None) -> dict[str, Any]:
    if error is None:
        return {"error": None}
    name = type(error).__name__
    return {"error": name, "exit_code": error.exit_code, "what": error.what, "remedy": error.remedy}


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """Outcome of the work on one device: a value or an error."""

    serial: str
    seconds: float
    value: T | None = field(default=None, metadata=FLAT)
    error: AdtError | None = field(default=None, metadata=form(convert=_error_fields, flat=True))


@dataclass(frozen=True)
class Outcomes(Generic[T]):
    """Outcomes of the work on all devices, in the order in which they were named."""

    all: tuple[Outcome[T], ...]

    @property
    def failed(self) -> tuple[Outcome[T], ...]:
        """Return the outcomes that are errors."""
        return tuple(outcome for outcome in self.all if outcome.error is not None)

    @property
    def exit_code(self) -> int:
        """0, or the code of the first one that failed."""
        return next((outcome.error.exit_code for outcome in self.all if outcome.error is not None), 0)


def _split(serials: str) -> tuple[str, ...]:
    """Split a list with commas, in which the serial of a connected device may have commas itself."""
    devices = selection.listing() if "," in serials and adb.server_listens() else ()
    known = sorted((device.serial for device in devices if "," in device.serial), key=len, reverse=True)
    choices = "|".join([*map(re.escape, known), "[^,]+"])
    parts = re.findall(rf"(?:^|(?<=,))\s*({choices})\s*(?=,|$)", serials)
    return tuple(part.strip() for part in parts if part.strip())


def named_serials(serials: str | None, *, everyone: bool) -> tuple[str, ...]:
    """Return the serials that ``--serial a,b`` or ``--all`` mean; empty for the usual device."""
    named = _split(serials or "")
    if everyone and named:
        raise ConfigError("--serial and --all contradict each other", remedy="Give one of them.")
    if len(set(named)) < len(named):
        raise ConfigError(f"--serial {serials} names a device twice", remedy="Name each device once.")
    if not everyone:
        return named
    devices = selection.reachable()
    if not devices:
        selection.choose(devices, "", origin="--all")  # raises: there is none
    return tuple(device.serial for device in devices)


def for_each(
    serials: Sequence[str],
    work: Callable[[Device, Say], T],
    *,
    opened: Callable[[str], Device],
    on_event: Callable[[Event], None],
) -> Outcomes[T]:
    """Do *work* on every device of *serials*, at most WORKERS at a time.

    *work* gets the device and a function to report its progress; *on_event* is called in the caller's thread.
    KeyboardInterrupt, and a bug in *work*, are raised once all threads have ended.
    """
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    cancel = threading.Event()
    # A thread whose start is interrupted is not waited for: so none does anything before all are started.
    started = threading.Event()

    def work_on(serial: str) -> Outcome[T]:
        began = time.monotonic()

        def outcome(value: T | None, error: AdtError | None, text: str) -> Outcome[T]:
            events.put(Event(serial, text, done=True, failed=error is not None))
            return Outcome(serial, time.monotonic() - began, value, error)

        def say(text: str) -> None:
            if cancel.is_set():
                raise Cancelled(f"work on {serial} was cancelled", remedy="Run the same command again.")
            events.put(Event(serial, text))

        def quiet(doing: str, seconds: float) -> None:
            events.put(Event(serial, doing, silent=seconds))

        started.wait()
        silence.set(quiet)
        try:
            with cancel_on(cancel):
                say("connecting")
                return outcome(work(opened(serial), say), None, "done")
        except AdtError as error:
            return outcome(None, error, error.what)
        except BaseException as bug:
            events.put(Event(serial, f"{type(bug).__name__}: {bug}", done=True, failed=True))
            raise

    pool = ThreadPoolExecutor(max_workers=max(1, min(WORKERS, len(serials))), thread_name_prefix="adt-device")
    futures: list[Future[Outcome[T]]] = []
    try:
        for serial in serials:
            futures.append(pool.submit(work_on, serial))
        started.set()
        left = len(futures)
        while left:
            with contextlib.suppress(queue.Empty):
                event = events.get(timeout=POLL)
                left -= event.done
                on_event(event)
    finally:
        cancel.set()  # of no effect when all are done
        started.set()
        pool.shutdown(wait=True, cancel_futures=True)
    return Outcomes(tuple(future.result() for future in futures))
