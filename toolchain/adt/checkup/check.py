"""One checked thing, and how a question becomes checks without ever raising."""

from __future__ import annotations

import enum
import logging
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from adt.errors import AdtError

log = logging.getLogger("adt.doctor")


class Area(enum.StrEnum):
    """Area that can be looked at by itself."""

    HOST = "host"
    NDK = "ndk"
    DEVICE = "device"
    RPC = "rpc"
    PACKAGE = "package"


class Status(enum.StrEnum):
    """Result of a check."""

    OK = "ok"
    WARNING = "warning"
    """Something is absent that not everybody needs, or will bite some day."""
    FAILED = "failed"
    """Something that is needed, or that was named, does not work."""


class Action(enum.StrEnum):
    """Action of ``--fix``; each is safe, and what it removes is made again when needed."""

    START_SERVER = "start-adb-server"
    RECONNECT_OFFLINE = "reconnect-offline-devices"
    CONNECT = "connect-device"
    REMOVE_RECORDS = "remove-stale-emulator-records"
    DROP_ENTRY = "remove-damaged-cache-entry"
    DROP_BUNDLE = "remove-damaged-bundle"
    DROP_LEFTOVER = "remove-leftover"
    INSTALL = "install-debian-packages"


@dataclass(frozen=True)
class Fix:
    """One repair that ``--fix`` can make."""

    action: Action
    arguments: tuple[str, ...] = ()
    """Package names, cache entries or serials, as the action needs them."""


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    area: str = field(default="", kw_only=True)
    """Put in by :func:`answers`."""
    name: str
    status: Status
    found: str
    """Fact, or fault."""
    origin: str = ""
    """Source of the fact: a path, a variable, a setting."""
    remedy: str = ""
    """Remedy of the fault, ideally a command; empty when nothing is to be mended."""
    fix: Fix | None = None
    """Action of ``--fix`` for it."""


def ok(name: str, found: str, origin: str = "") -> Check:
    """A check that came out well."""
    return Check(name, Status.OK, found, origin)


def warning(name: str, found: str, origin: str = "", remedy: str = "", fix: Fix | None = None) -> Check:
    """A check that came out with a warning."""
    return Check(name, Status.WARNING, found, origin, remedy, fix)


def failed(name: str, found: str, origin: str = "", remedy: str = "", fix: Fix | None = None) -> Check:
    """A check that failed."""
    return Check(name, Status.FAILED, found, origin, remedy, fix)


@dataclass(frozen=True)
class Question:
    """Something to be looked at; asking takes bounded time."""

    name: str
    ask: Callable[[], Iterable[Check]]


def answers(area: Area, question: Question) -> Iterator[Check]:
    """Ask, and yield each check as it comes; whatever asking raises becomes a failed check."""
    try:
        for check in question.ask():
            yield replace(check, area=area)
    except AdtError as error:
        yield replace(failed(question.name, error.what, remedy=error.remedy), area=area)
    except Exception as bug:
        log.debug("%s", traceback.format_exc())
        remedy = "This is a bug in adt: please report it with the output of `adt doctor -v`."
        what = f"this check itself failed: {type(bug).__name__}: {bug}"
        yield replace(failed(question.name, what, remedy=remedy), area=area)
