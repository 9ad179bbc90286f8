"""The last probe of each device, kept on this machine for as long as the device is not restarted."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

from adt.device.probe.facts import SCHEMA, SCHEMA_VERSION, Probe
from adt.errors import DiskError, PackageError
from adt.host import manifest
from adt.host.cache import cache_dir

log = logging.getLogger("adt.probe")


def _file(serial: str) -> Path:
    return cache_dir() / "probes" / f"{hashlib.sha256(serial.encode()).hexdigest()[:24]}.json"


def remembered(serial: str, boot: str) -> Probe | None:
    """The last probe of the device *serial*, if it is of the boot that *boot* names; asks no device.

    Args:
        boot: what ``boot.sh`` prints there; empty matches nothing.
    """
    path = _file(serial)
    if not boot.strip() or not path.is_file():
        return None
    try:
        found = manifest.load(Probe, path, schema=SCHEMA, version=SCHEMA_VERSION, remedy="")
    except PackageError as why:  # of another adt, or damaged: it is made again
        log.debug("%s", why)
        return None
    return found if (found.serial, found.boot) == (serial, boot.strip()) else None


def remember(probe: Probe) -> None:
    """Keep *probe*; a cache that cannot be written only costs the next probe some time."""
    if not probe.boot:
        return
    try:
        manifest.write(probe, _file(probe.serial))
    except (DiskError, OSError) as why:
        log.debug("the probe of %s is not kept: %s", probe.serial, why)
