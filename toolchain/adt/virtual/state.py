"""The record of each virtual device on disk, and whether its process is still the one recorded.

``$XDG_STATE_HOME/adt/emulators/NAME/`` (default ``~/.local/state``):

``emulator.json``  the record, there while the device runs
``emulator.log``   what init and the daemon say; kept
``data/``          the device's /data; kept from one start to the next
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from pathlib import Path

from adt.errors import AdtError, ConfigError
from adt.host import manifest
from adt.host.directories import state_dir
from adt.host.process import boot_id, start_time
from adt.virtual.abis import ARM64

log = logging.getLogger("adt.virtual")

SCHEMA = "adt.emulator"
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")


@dataclass(frozen=True)
class EmulatorRecord:
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
    abi: str = ARM64.name


@dataclass(frozen=True)
class Home:
    """The directory of one device."""

    directory: Path

    @property
    def name(self) -> str:
        return self.directory.name

    @property
    def record(self) -> Path:
        return self.directory / "emulator.json"

    @property
    def log(self) -> Path:
        return self.directory / "emulator.log"

    @property
    def data(self) -> Path:
        return self.directory / "data"


def emulators_directory() -> Path:
    """Return the directory that holds every device's own."""
    return state_dir() / "emulators"


def home(name: str) -> Home:
    """Return the directory of the device *name* (perhaps none yet); raise ConfigError for a bad name."""
    if not NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} cannot be the name of a virtual device",
            remedy="Use up to 32 of a-z, 0-9, - and _, beginning with a letter or digit.",
        )
    return Home(emulators_directory() / name)


def homes() -> list[Home]:
    """List the directories of all devices that were ever started."""
    base = emulators_directory()
    paths = sorted(base.iterdir()) if base.is_dir() else []  # one that cannot be read is an error
    return [Home(path) for path in paths if path.is_dir() and NAME.fullmatch(path.name)]


def alive(record: EmulatorRecord) -> bool:
    """Return True if the recorded process still runs; a recycled pid is another process."""
    return record.boot == boot_id() and start_time(record.pid) == record.start_time


def load(home: Home) -> EmulatorRecord:
    """Load the record of a device, which may have ended since."""
    remedy = "Run `adt emulator list`, which cleans up."
    return manifest.load(EmulatorRecord, home.record, schema=SCHEMA, version=1, remedy=remedy)


def read(home: Home) -> EmulatorRecord | None:
    """Read the record of a device that runs; remove one that does not, under a lock or harmlessly twice."""
    if not home.record.is_file():
        return None
    try:
        record = load(home)
        if alive(record):
            return record
        log.warning("virtual device %s is no longer running; its last words are in %s", home.name, home.log)
    except AdtError as error:
        log.warning("the record of virtual device %s is unreadable and is removed: %s", home.name, error.what)
    home.record.unlink(missing_ok=True)
    return None
