"""Leftovers of adt on a device, for tests that kill it and then count.

Nothing here goes by adt's own idea of what it made: the device's processes,
files and forwards are listed as they are.
"""

import json

from adt.device.device import Device
from adt.device.transport import adb
from adt.device.transport.deadline import Deadline
from support.waiting import wait_for

OURS = "/data/local/tmp/adt"

_FILES = """
cd "$1" 2>/dev/null || exit 0
for d in */tmp/* */runs/* */clean/* */rpc/* */tmp/.[!.]* */deployments/.[!.]*; do
  [ -e "$d" ] && echo "temporary $d"
done
for d in */deployments/*; do
  [ -d "$d" ] || continue
  set -- "${d%/*}"/*."${d##*/}".json
  [ -f "$1" ] || echo "deployment without manifest $d"
done
exit 0
"""

_SUMS = """
cd "$1" || exit 1
shift
busybox sha256sum "$@"
"""


def remains(device: Device) -> list[str]:
    """List everything of ours on *device* that should not outlive an adt: one sentence each."""
    leftovers = [line for line in device.script(_FILES, OURS).out.splitlines() if line]
    rows = device.shell(["ps", "-A", "-o", "PID,ARGS"]).out.splitlines()[1:]
    leftovers += [f"process {row.strip()}" for row in rows if OURS in row and " -o PID,ARGS" not in row]
    forwards = adb.query("host:list-forward", doing="listing forwards")
    leftovers += [f"forward {line}" for line in forwards.splitlines() if line.startswith(f"{device.serial} ")]
    deadline = Deadline(120, "listing reverses")
    with adb.open_device(device.serial, "reverse:list-forward", deadline=deadline) as wire:
        leftovers += [f"reverse {line}" for line in wire.read_text().splitlines() if line]
    return leftovers


def soon_nothing(device: Device, *, after: str = "") -> None:
    """Assert that nothing remains, once what was ended has had time to clean up after itself."""
    leftovers: list[str] = []

    def nothing() -> bool:
        leftovers[:] = remains(device)
        return not leftovers

    try:
        wait_for(nothing)
    except AssertionError:
        raise AssertionError("\n".join([after, *leftovers])) from None


def wrong_files(device: Device, directory: str, manifest: str) -> list[str]:
    """Return names of a deployment whose contents, read through its links, differ from its manifest."""
    read = json.loads(device.shell(["cat", manifest]).out)["files"]
    names = sorted(read)
    lines = device.script(_SUMS, directory, *names, check=False, timeout=120).out.splitlines()
    sums = {line[66:]: line[:64] for line in lines}
    return [name for name in names if sums.get(name) != read[name]["sha256"]]
