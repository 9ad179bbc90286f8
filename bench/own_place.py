"""A place of its own for a benchmark: state, adb's keys and an adb server that nobody else uses."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from adt.device import selection
from adt.device.device import Device
from adt.device.transport import adb
from adt.host.cache import cache_dir
from adt.virtual import emulator
from adt.virtual.emulator import EmulatorInfo


def free_port() -> int:
    """Return a port of the loopback on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def own_place() -> Iterator[Path]:
    """Make a directory that is HOME of this process and holds its state; bundles are the user's.

    The adb server is ended afterwards. The environment stays changed: a benchmark ends then.
    """
    cache = cache_dir()
    for name in ("ADB_SERVER_SOCKET", "ANDROID_ADB_SERVER_ADDRESS", "ANDROID_SERIAL"):
        os.environ.pop(name, None)
    with tempfile.TemporaryDirectory(prefix="adt-bench-") as scratch:
        os.environ |= {
            "ADT_CACHE_DIR": str(cache),
            "HOME": scratch,
            "XDG_STATE_HOME": f"{scratch}/state",
            "ANDROID_ADB_SERVER_PORT": str(free_port()),
            "ADB_MDNS": "0",
        }
        try:
            yield Path(scratch)
        finally:
            end_server()


def end_server() -> None:
    """End the adb server, if it runs."""
    subprocess.run([adb.find_adb().path, "kill-server"], check=False, capture_output=True)


@contextlib.contextmanager
def own_device(name: str, start: Callable[[str], EmulatorInfo] = emulator.start) -> Iterator[Device]:
    """Start a virtual device, connected, in a place of its own, that is gone afterwards."""
    info = start(name)
    try:
        selection.connect(info.serial)
        yield selection.select(info.serial)
    finally:
        emulator.stop(name)
