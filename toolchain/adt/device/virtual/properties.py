"""System properties of the virtual device, and the small programs that read them.

Tools of the Android world ask `getprop`; the answers here say truthfully what
the device is. `getprop`, `setprop`, `log` and `logcat` are shell scripts, because
Android's own need services that an arm64 Linux does not have.
"""

from __future__ import annotations

import os
from pathlib import Path

NOTICE = "arm64 Linux behind real ADB: not Android, and emulated, so it has no speed"
BIONIC_NOTICE = (
    "your Android userland behind real ADB: none of Android's services, and emulated, so it has no speed"
)
ABI = "arm64-v8a"

TOOLS = "/adt/bin"
"""Where the scripts lie on the device."""
STORE = "/dev/adt/properties"
"""The device's properties, one ``key=value`` a line."""
LOG = "/data/log/main"
"""What `log` writes and `logcat` shows."""


def is_bionic(userland: Path) -> bool:
    """Whether an own userland is Android's: its programs are started by Android's loader."""
    return os.path.lexists(userland / "system/bin/linker64")


def notice(userland: Path) -> str:
    """What a device with this userland is, and is not."""
    return BIONIC_NOTICE if is_bionic(userland) else NOTICE


def of_device(name: str, userland: Path) -> dict[str, str]:
    """Properties of the virtual device *name*: the userland's own, with what it is on top.

    ``ro.adt.virtual`` and ``ro.adt.platform`` are what adt itself relies on.
    ``ro.product.cpu.abi`` and the SDK level exist because many tools stop without
    them; neither means that there is a bionic here.
    """
    bionic = is_bionic(userland)
    level = {"ro.build.version.sdk": "33", "ro.build.version.release": "13"}
    return {
        **level,
        **read(userland / "system/build.prop"),
        "ro.adt.virtual": "1",
        "ro.adt.platform": f"android-{ABI}" if bionic else "linux-aarch64",
        "ro.adt.notice": notice(userland),
        "ro.product.name": "adt_virtual_device",
        "ro.product.model": "adt virtual device (arm64 Linux, not Android)"
        if not bionic
        else "adt virtual device (Android userland, emulated)",
        "ro.product.device": "adt_virtual",
        "ro.product.manufacturer": "adt",
        "ro.product.brand": "adt",
        "ro.product.cpu.abi": ABI,
        "ro.product.cpu.abilist": ABI,
        "ro.product.cpu.abilist64": ABI,
        "ro.build.type": "userdebug",
        "ro.hardware": "qemu-user",
        "ro.serialno": f"adt-{name}",
        "sys.boot_completed": "1",
    }


def read(path: Path) -> dict[str, str]:
    """The ``key=value`` lines of a build.prop; nothing when there is none."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return {}
    pairs = (line.partition("=") for line in lines if "=" in line and not line.lstrip().startswith("#"))
    return {key.strip(): value.strip() for key, _, value in pairs}


def text(properties: dict[str, str]) -> str:
    """The properties as ``key=value`` lines."""
    return "".join(f"{key}={value}\n" for key, value in properties.items())


GETPROP = f"""#!/system/bin/sh
# getprop [KEY [DEFAULT]]
if [ $# -eq 0 ]; then
  while IFS='=' read -r key value; do echo "[$key]: [$value]"; done < {STORE}
  exit 0
fi
while IFS='=' read -r key value; do
  if [ "$key" = "$1" ]; then echo "$value"; exit 0; fi
done < {STORE}
echo "$2"
"""

SETPROP = f"""#!/system/bin/sh
# setprop KEY VALUE
if [ $# -ne 2 ]; then echo "usage: setprop NAME VALUE" >&2; exit 1; fi
case $1 in
  ro.*|*=*|'') echo "setprop: failed to set property '$1' to '$2'" >&2; exit 1;;
esac
tries=0
until mkdir {STORE}.lock 2>/dev/null; do
  tries=$((tries + 1))
  if [ $tries -gt 200 ]; then echo "setprop: the property store is locked" >&2; exit 1; fi
  sleep 0.02
done
trap 'rmdir {STORE}.lock' EXIT
while IFS='=' read -r key value; do
  [ "$key" = "$1" ] || echo "$key=$value"
done < {STORE} > {STORE}.new
echo "$1=$2" >> {STORE}.new
mv {STORE}.new {STORE}
"""

LOG_SCRIPT = f"""#!/system/bin/sh
# log [-t TAG] [-p PRIORITY] MESSAGE...
tag=shell priority=I
while getopts t:p: option; do
  case $option in
    t) tag=$OPTARG;;
    p) priority=$OPTARG;;
    *) exit 1;;
  esac
done
shift $((OPTIND - 1))
echo "$(date '+%m-%d %H:%M:%S.000') $PPID $PPID $priority $tag: $*" >> {LOG}
"""

LOGCAT = f"""#!/system/bin/sh
# logcat [-c] [-d]: all of the log; filters and formats are accepted and not applied
for word in "$@"; do
  case $word in
    -c|--clear) : > {LOG}; exit 0;;
    -d) exec cat {LOG};;
  esac
done
exec tail -n +1 -f {LOG}
"""

SCRIPTS = {"getprop": GETPROP, "setprop": SETPROP, "log": LOG_SCRIPT, "logcat": LOGCAT}


def install(tools: Path) -> None:
    """Write the scripts into the directory *tools*."""
    for name, script in SCRIPTS.items():
        path = tools / name
        path.write_text(script)
        path.chmod(0o755)
