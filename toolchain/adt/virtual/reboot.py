"""A restart of the virtual device, as far as programs and hosts can tell.

Every process is killed without notice, what lives in memory (`/tmp`, `/dev/shm`,
properties that were set, sockets) is gone, `/data` stays, and the boot identifier is
a new one. PID 1 and the daemon go on: they are the device's hardware, so to speak.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
from pathlib import Path

from adt.virtual import properties

BOOT_ID = "/dev/adt/boot_id"
"""Lies under /proc/sys/kernel/random/boot_id; the machine's own identifier is not shown."""
KERNEL_BOOT_ID = "/proc/sys/kernel/random/boot_id"
VOLATILE = ("/tmp", "/dev/shm")
DOWN = 1.0
"""Seconds in which connections are refused after a restart."""


def new_boot_id(path: Path) -> None:
    """Write a fresh random identifier, as the kernel does at a boot, to *path* in place."""
    raw = bytearray(secrets.token_bytes(16))
    raw[6] = raw[6] & 0x0F | 0x40  # a UUID of version 4
    raw[8] = raw[8] & 0x3F | 0x80
    text = raw.hex()
    path.write_text("-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:])) + "\n")


def restart(at_boot: dict[str, str]) -> None:
    """Kill everything but PID 1 and this process, and bring the memory's contents to those after a boot.

    Args:
        at_boot: the properties of a fresh start.
    """
    with contextlib.suppress(ProcessLookupError):  # there may be nobody else
        os.kill(-1, signal.SIGKILL)  # spares PID 1 and, on Linux, the caller
    for directory in VOLATILE:
        for entry in Path(directory).iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)
    store = Path(properties.STORE)
    with contextlib.suppress(OSError):
        Path(f"{store}.lock").rmdir()
    store.write_text(properties.text(at_boot))
    new_boot_id(Path(BOOT_ID))
