"""A directory on the device that lives exactly as long as the connection that made it.

Each one has a guardian: a shell on the device that waits on its stdin and
removes the directory when that ends, be it because we are done or because adt
was killed. Directories whose guardian is gone too (the device restarted) are
removed by whoever makes the next one. Two users of one device never share one.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections.abc import Iterator

from adt.device.deadline import Deadline
from adt.device.device import SHORT, Device
from adt.device.room import no_room
from adt.device.shell import STDERR, STDOUT
from adt.errors import AdtError, DeviceError, DeviceFull

log = logging.getLogger("adt.device.workspace")

_GUARDIAN = """
umask 022
parent=$1 tag=$2
mkdir -p "$parent" || exit 1
for d in "$parent"/*-adt*; do
  [ -d "$d" ] || continue
  n=${d##*/}
  # tr, because toybox's grep stops at the zero bytes between a process's arguments
  case $({ tr '\\0' ' ' <"/proc/${n%%-*}/cmdline"; } 2>/dev/null) in
    *"${n#*-}"*) ;;
    *) rm -rf "$d";;
  esac
done
dir=$parent/$$-$tag
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
mkdir "$dir" || exit 1
echo "$dir"
read -r line
exit 0
"""


@contextlib.contextmanager
def workspace(device: Device, parent: str) -> Iterator[str]:
    """Make a fresh directory below *parent* on the device, for as long as the block runs.

    Yields:
        Its absolute path there.

    Raises:
        DeviceFull: there is no room for it.
        DeviceError: it cannot be made, or the connection broke.
    """
    argv = ("sh", "-c", _GUARDIAN, "sh", parent, f"adt{secrets.token_hex(8)}")
    with device.start(argv, timeout=SHORT, keep_stdin=True) as guardian:
        said = {STDOUT: b"", STDERR: b""}
        events = guardian.output()
        while b"\n" not in said[STDOUT]:
            event = next(events, None)
            if event is None:
                raise _not_made(device, parent, said[STDERR].decode(errors="replace").strip())
            said[event[0]] += event[1]
        path = said[STDOUT].decode().rstrip("\n")
        try:
            yield path
        finally:
            with contextlib.suppress(
                AdtError
            ):  # the device is gone: so is the directory, at the latest next time
                guardian.set_deadline(Deadline(SHORT, f"removing {path}"))
                if not guardian.close_stdin():
                    guardian.kill()
                for _ in events:
                    pass


def _not_made(device: Device, parent: str, said: str) -> DeviceError | DeviceFull:
    if "No space left" in said:
        return no_room(device.serial, "there is no room for a directory", free=device.free_space())
    return DeviceError(
        f"device {device.serial} does not let us make a directory in {parent}",
        remedy="Look at the permissions of /data/local/tmp/adt on the device (`adb shell ls -ld`).",
        details=said,
    )
