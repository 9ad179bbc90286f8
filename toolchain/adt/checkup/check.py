"""One checked thing, the scope of the checks, and how a question becomes checks without ever raising."""

from __future__ import annotations

import enum
import logging
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from adt.bundle.platforms import PRESETS, Platform
from adt.errors import AdtError
from adt.options.resolve import load_settings, show_programs
from adt.options.sections import Settings

log = logging.getLogger("adt.doctor")


class Area(enum.StrEnum):
    """Area that can be looked at by itself."""

    HOST = "host"
    NDK = "ndk"
    DEVICE = "device"
    RPC = "rpc"
    PACKAGE = "package"


class Status(enum.StrEnum):
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
    origin: str = ""
    """Source of the fact: a path, a variable, a setting."""
    remedy: str = ""
    """Remedy of the fault, ideally a command; empty when nothing is to be mended."""
    fix: Fix | None = None


def ok(name: str, found: str, origin: str = "") -> Check:
    return Check(name, Status.OK, found, origin)


def warning(name: str, found: str, origin: str = "", remedy: str = "", fix: Fix | None = None) -> Check:
    return Check(name, Status.WARNING, found, origin, remedy, fix)


def failed(
    name: str, found: str, origin: str = "", remedy: str = "", fix: Fix | None = None, *, needed: bool = True
) -> Check:
    """Make a check that failed; of something that is not *needed*, that is a warning."""
    return Check(name, Status.FAILED if needed else Status.WARNING, found, origin, remedy, fix)


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


@dataclass(frozen=True)
class Scope:
    """Areas to look at, and the settings."""

    settings: Settings
    environ: Mapping[str, str]
    areas: tuple[Area, ...] = ()
    """The areas that were named; empty: all of them."""
    package: Path | None = None
    bundle: Path | None = None
    settings_error: AdtError | None = None
    """Reason why the settings are the defaults and not the user's."""

    @property
    def serial(self) -> str:
        """The device that was named; empty when none was."""
        return self.settings.device.serial or self.environ.get("ANDROID_SERIAL", "")

    def named(self, area: Area) -> bool:
        """Return True if *area* was asked for by name: what it needs must then be there."""
        return area in self.areas

    @property
    def platform(self) -> Platform | None:
        """Platform that the settings build for; None when they name none."""
        platform, _ = PRESETS.get(self.settings.build.platform, (None, ""))
        return platform


def make_scope(
    flags: Mapping[str, object],
    environ: Mapping[str, str],
    *,
    areas: tuple[Area, ...] = (),
    package: Path | None = None,
    bundle: Path | None = None,
) -> Scope:
    """Resolve the settings, *flags* by ``section.key``; if that fails, take the defaults and say why."""
    error: AdtError | None = None
    try:
        resolved = load_settings(flags, environ=environ)
    except AdtError as cause:
        error, resolved = cause, load_settings(flags, environ={}, start=Path("/"))
    show_programs(resolved)  # a compiler is asked for its version
    return Scope(resolved.settings, environ, areas, package, bundle, error)
