"""OpenCL on a device: which libraries lie there, by the names that vendors and TVM's loader use."""

from __future__ import annotations

from collections.abc import Iterator

from adt.checkup.check import Area, Check, Status
from adt.device.device import DeviceFacts

_VENDOR = ("libOpenCL.so", "libOpenCL-pixel.so", "libOpenCL_adreno.so", "libPVROCL.so", "libmali.so")
_EGL = ("libGLES_mali.so", "libmali.so")
_ROOTS = ("/vendor", "/system/vendor", "/system", "/odm", "/system_ext", "/product")
CANDIDATES = (
    *(
        f"{root}/{lib}/{name}"
        for lib in ("lib64", "lib")
        for root in _ROOTS
        for name in (*_VENDOR, *(f"egl/{name}" for name in _EGL))
    ),
    *(f"/data/data/org.pocl.libs/files/{lib}/libpocl.so" for lib in ("lib64", "lib")),
    *(
        f"{root}/{name}"
        for root in (
            "/usr/lib",
            "/usr/lib/aarch64-linux-gnu",
            "/usr/lib/arm-linux-gnueabihf",
            "/usr/lib64",
            "/usr/local/lib",
        )
        for name in ("libOpenCL.so", "libOpenCL.so.1", "libpocl.so", "libmali.so")
    ),
)
"""Where OpenCL libraries lie on Android, by vendor (Adreno, Pixel, Mali, PowerVR), and on Linux boards."""
ORIGIN = "files on the device"
NOT_TRIED = "loading was not tried: that takes a probe program on the device"


def libraries(listed: str) -> dict[str, list[str]]:
    """Each library that is there, with the paths that lead to it.

    Args:
        listed: one ``PATH REAL_PATH`` per line.
    """
    found: dict[str, list[str]] = {}
    for line in listed.splitlines():
        path, _, real = line.partition(" ")
        found.setdefault(real or path, []).append(path)
    return found


def check(serial: str, facts: DeviceFacts, listed: str, public: str) -> Iterator[Check]:
    """Say which OpenCL libraries the device has.

    Args:
        listed: what :func:`libraries` reads.
        public: the device's lists of libraries that apps may open.
    """
    name = f"{serial}: OpenCL"
    found = libraries(listed)
    if not found:
        places = f"none in {len(CANDIDATES)} known places"
        if facts.virtual:
            yield Check(Area.DEVICE, name, Status.OK, f"{places}, as on every virtual device", ORIGIN)
            return
        yield Check(
            Area.DEVICE,
            name,
            Status.WARNING,
            f"{places}: models compiled for OpenCL will not run here",
            ORIGIN,
            "Compile for the CPU: adt compile MODEL --target cpu",
        )
        return
    shown = "; ".join(
        real + (f" (also {', '.join(also)})" if (also := [p for p in paths if p != real]) else "")
        for real, paths in found.items()
    )
    yield Check(Area.DEVICE, name, Status.OK, f"{shown}; {NOT_TRIED}", ORIGIN)
    names = {path.rpartition("/")[2] for paths in found.values() for path in paths}
    allowed = sorted(names & {line.split()[0] for line in public.splitlines() if line.strip()})
    if facts.abis and not facts.virtual:
        app = f"apps may open {', '.join(allowed)}" if allowed else "apps may open none of them"
        yield Check(
            Area.DEVICE,
            f"{serial}: OpenCL in apps",
            Status.OK if allowed else Status.WARNING,
            app,
            "public.libraries.txt",
            ""
            if allowed
            else "Programs run by adt are not affected; an app on this device has to use the CPU.",
        )
