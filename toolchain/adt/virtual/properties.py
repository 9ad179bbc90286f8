"""System properties of the virtual device, and the small programs that read them.

Tools of the Android world ask `getprop`; the answers here say truthfully what the device is. The programs are
shell scripts, because Android's own need services that a Linux does not have.
"""

from __future__ import annotations

from pathlib import Path

from adt.virtual import rootfs
from adt.virtual.abis import Abi

IMAGES = ("product", "odm", "vendor", "system_ext", "system")
"""Android's images, in the order in which they name the product."""
PROPERTY_FILES = (
    *("/system/build.prop", "/system_ext/etc/build.prop", "/vendor/build.prop", "/odm/etc/build.prop"),
    *("/product/build.prop", "/product/etc/build.prop"),
)

TOOLS = "/adt/bin"
"""Directory of the scripts on the device."""
STORE = "/dev/adt/properties"
"""The device's properties, one ``key=value`` a line."""


def linux_notice(abi: Abi) -> str:
    """Describe what a device with the default userland is, and is not."""
    return f"{abi.title} Linux behind real ADB: not Android, and {abi.speed}"


def notice(userland: Path, abi: Abi) -> str:
    """Describe what a device with this userland is, and is not."""
    if rootfs.is_bionic(userland):
        return f"your Android userland behind real ADB: none of Android's services, and {abi.speed}"
    return linux_notice(abi)


def of_device(name: str, userland: Path, abi: Abi) -> dict[str, str]:
    """Build the properties of the virtual device *name*: the userland's own, with adt's over them.

    ``ro.adt.virtual`` and ``ro.adt.platform`` are what adt itself relies on. ``ro.product.cpu.abi`` and the
    SDK level exist because many tools stop without them; without Android's userland neither means that there
    is a bionic here. An Android userland says its own model, maker and SDK level; of its ABIs only the one
    that runs here is left.
    """
    bionic = rootfs.is_bionic(userland)
    kind = "Android userland" if bionic else f"{abi.title} Linux, not Android"
    assumed = {
        "ro.build.version.sdk": "33",
        "ro.build.version.release": "13",
        "ro.build.type": "userdebug",
        "ro.product.name": "adt_virtual_device",
        "ro.product.model": f"adt virtual device ({kind})",
        "ro.product.manufacturer": "adt",
        "ro.product.brand": "adt",
    }
    own = images(userland)
    if not bionic:
        own = {key: value for key, value in own.items() if key not in assumed or ".version." in key}
    return {
        **assumed,
        **own,
        "ro.adt.virtual": "1",
        "ro.adt.platform": f"android-{abi.name}" if bionic else abi.linux_platform,
        "ro.adt.notice": notice(userland, abi),
        "ro.product.device": "adt_virtual",
        "ro.product.cpu.abi": abi.name,
        "ro.product.cpu.abilist": abi.name,
        "ro.product.cpu.abilist64": abi.name,
        "ro.product.cpu.abilist32": "",
        "ro.hardware": abi.hardware,
        "ro.serialno": f"adt-{name}",
        "sys.boot_completed": "1",
    }


def images(userland: Path) -> dict[str, str]:
    """Return the properties in the build.prop files of a userland's images; a later image's counts more.

    Newer Androids keep the product's names by image (``ro.product.vendor.model``); as
    Android's init does, the names without one are taken from the first image that has them.
    """
    entries, result = rootfs.parts(userland), {}
    for path in PROPERTY_FILES:
        if file := rootfs.locate(entries, path):
            result.update(read(file))
    for name in ("brand", "manufacturer", "model", "name"):
        values = (result.get(f"ro.product.{image}.{name}") for image in IMAGES)
        if (value := next(filter(None, values), None)) and f"ro.product.{name}" not in result:
            result[f"ro.product.{name}"] = value
    return result


def read(path: Path) -> dict[str, str]:
    """Read the ``key=value`` lines of a build.prop; nothing when there is none."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return {}
    pairs = (line.partition("=") for line in lines if "=" in line and not line.lstrip().startswith("#"))
    return {key.strip(): value.strip() for key, _, value in pairs}


def text(properties: dict[str, str]) -> str:
    """Write the properties as ``key=value`` lines."""
    return "".join(f"{key}={value}\n" for key, value in properties.items())


BY_PATH = ("getprop", "setprop", "log", "logcat")
"""Scripts that are in /system/bin as well."""
SCRIPTS = (*BY_PATH, "settings", "svc")
"""Programs of the device: files of their own in ``scripts/``, where STORE stands as it is here."""


def scripts() -> dict[str, bytes]:
    return {name: Path(__file__).with_name("scripts").joinpath(f"{name}.sh").read_bytes() for name in SCRIPTS}
