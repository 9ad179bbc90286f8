"""Remove what a server left: its forward, its reverse, its processes and its directory on the device.

Also a program, ``python -m adt.rpc.cleanup DIRECTORY``, so that a server whose watchdog was killed is cleaned
up through the adb server that it used, whatever the environment of the one who cleans says.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from adt.device import selection
from adt.device.device import Device
from adt.device.scripts import script
from adt.device.transport import adb, forwards
from adt.device.transport.forwards import Forward
from adt.errors import AdtError
from adt.host import process
from adt.rpc import state

log = logging.getLogger("adt.rpc")

SECONDS = 30.0
"""For ending what is on the device."""
ANSWER_SECONDS = 10.0
"""For one short request; a device that takes longer does not answer."""


def usable(serial: str) -> Device | None:
    """Return the device when it is connected and usable; start no adb server and connect nothing."""
    if not adb.server_listens():
        return None
    try:
        ready = any(device.serial == serial and device.ready for device in selection.listing())
    except AdtError:
        return None
    return Device(serial) if ready else None


def clean(record: state.ServerRecord) -> bool:
    """Remove what *record* speaks of; False when the device is out of reach.

    Then nothing is left: adb's ports go with the device, whose wrapper has seen its connection end.
    """
    if not adb.server_listens():
        return False
    serial = record.serial
    try:
        if record.port:
            _end(serial, Forward(record.port, record.port))
        device = usable(serial)
        if device is None:
            return False
        device.shell(["true"], timeout=ANSWER_SECONDS)  # one that hangs is not asked for more
        if record.there.tracker_port and record.tracker:
            local = int(record.tracker.rpartition(":")[2])
            _end(serial, Forward(local, record.there.tracker_port, reverse=True))
        words = (record.parent, record.tag, record.app)
        device.script(script("server_end"), *words, timeout=SECONDS, check=False)
    except AdtError as error:
        log.warning("cleaning up on %s: %s", serial, error.what)
        return False
    return True


def _end(serial: str, link: Forward) -> None:
    """End *link* unless its port leads elsewhere by now: then it is somebody else's."""
    ports = forwards.listed(serial, reverse=link.reverse, seconds=ANSWER_SECONDS)
    if ports.get(link.listening) == link.leads:
        forwards.end(serial, link, seconds=ANSWER_SECONDS)


def clean_elsewhere(at: state.Home, record: state.ServerRecord) -> None:
    """Run :func:`clean` in a process that talks to the adb server of the record."""
    done = process.run(
        [sys.executable, "-P", "-m", "adt.rpc.cleanup", at.directory],
        env={**process.python_path(), "ADB_SERVER_SOCKET": f"tcp:{record.adb_port}"},
        timeout=2 * SECONDS,
        check=False,
    )
    if done.returncode != 0:
        log.warning("%s is not reached; the server there ends by itself when it is", record.serial)
        log.debug("%s", done.tail())


def main() -> int:
    """Clean up behind the server whose directory is named."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
    record = state.read_server(state.Home(Path(sys.argv[1]), "server"))
    return 0 if record is None or clean(record) else 1


if __name__ == "__main__":
    sys.exit(main())
