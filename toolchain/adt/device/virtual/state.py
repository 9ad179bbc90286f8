"""The record of each virtual device on disk, and whether its process is still the one recorded.

``$XDG_STATE_HOME/adt/emulators/NAME/`` (default ``~/.local/state``):

``emulator.json``  the record, there while the device runs
``emulator.log``   what init and the daemon say; kept
``data/``          the device's /data; kept from one start to the next
``root/``          an empty directory to mount the device's root on
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import select
import signal
from dataclasses import dataclass
from pathlib import Path

from adt.errors import AdtError, ConfigError
from adt.host import manifest

log = logging.getLogger("adt.virtual")

SCHEMA = "adt.emulator"
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")


@dataclass(frozen=True)
class Record:
    """A running device, as recorded when it was started."""

    schema: str
    schema_version: int
    name: str
    port: int
    pid: int
    start_time: int
    """Clock ticks from boot to the process's start, from /proc: with the boot, its identity."""
    boot: str
    """The kernel's boot_id."""
    mode: str
    userland: str
    data_size: str


@dataclass(frozen=True)
class Home:
    """The directory of one device."""

    directory: Path

    @property
    def name(self) -> str:
        """The device's name."""
        return self.directory.name

    @property
    def record(self) -> Path:
        """Its record."""
        return self.directory / "emulator.json"

    @property
    def log(self) -> Path:
        """Its log."""
        return self.directory / "emulator.log"

    @property
    def data(self) -> Path:
        """Its /data."""
        return self.directory / "data"

    @property
    def mount_point(self) -> Path:
        """Where its root is mounted, in its own mount namespace."""
        return self.directory / "root"


def emulators_directory() -> Path:
    """The directory that holds every device's own."""
    base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(base).expanduser().absolute() / "adt" / "emulators"


def home(name: str) -> Home:
    """The directory of the device *name* (it need not exist).

    Raises:
        ConfigError: not a name.
    """
    if not NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} cannot be the name of a virtual device",
            remedy="Use up to 32 of a-z, 0-9, - and _, beginning with a letter or digit.",
        )
    return Home(emulators_directory() / name)


def homes() -> list[Home]:
    """The directories of all devices that were ever started."""
    base = emulators_directory()
    if not base.is_dir():
        return []
    return [Home(path) for path in sorted(base.iterdir()) if path.is_dir() and NAME.fullmatch(path.name)]


def boot_id() -> str:
    """What tells this boot of the machine from every other."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def start_time(pid: int) -> int | None:
    """When process *pid* started, in clock ticks after boot; None when there is none or it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name in parentheses may hold anything
    return None if fields[0] in "ZX" else int(fields[19])


def alive(record: Record) -> bool:
    """Whether the recorded process still runs; a recycled pid is another process."""
    return record.boot == boot_id() and start_time(record.pid) == record.start_time


def read(at: Home) -> Record | None:
    """The record of a device that runs; one of a device that does not is removed.

    Removing happens under the caller's lock, or harmlessly twice.
    """
    if not at.record.is_file():
        return None
    try:
        record = manifest.load(
            Record, at.record, schema=SCHEMA, version=1, remedy="Run `adt emulator list`, which cleans up."
        )
    except AdtError as why:
        log.warning("the record of virtual device %s is unreadable and is removed: %s", at.name, why.what)
        at.record.unlink(missing_ok=True)
        return None
    if alive(record):
        return record
    log.warning("virtual device %s is no longer running; its last words are in %s", at.name, at.log)
    at.record.unlink(missing_ok=True)
    return None


def end(pid: int, started: int | None, grace: float) -> bool:
    """End process *pid*: SIGTERM, after *grace* seconds SIGKILL; True once it is gone.

    The process is held by a pidfd before its identity is looked at, so that no
    other process can get the signal.
    """
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        if started is None or start_time(pid) != started:
            return True
        for number, wait in ((signal.SIGTERM, grace), (signal.SIGKILL, 10.0)):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, number)
            if select.select([fd], [], [], wait)[0]:
                return True
        return False
    finally:
        os.close(fd)
