"""This machine's OpenCL: which device a package runs on here, and what it can do.

The drivers are asked by a process of its own (``python -m adt.package.host_run.opencl``, which needs no TVM),
since a driver that crashes takes its process along. It prints one JSON document:
``{"devices": [{…}, …], "reason": …}``, with the reason why there is none.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import logging
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from adt.host.process import run

log = logging.getLogger("adt.opencl")

SECONDS = 60.0  # seconds that the drivers may take to list their devices
NEW_ENOUGH = r"OpenCL (1\.[2-9]|[2-9]\.)"  # versions of OpenCL whose devices TVM's runtime takes
READ = ("OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH", "OCL_ICD_FILENAMES", "LD_LIBRARY_PATH", "POCL_DEVICES")
"""Variables that decide which drivers are found."""


@dataclass(frozen=True)
class HostOpenCl:
    """An OpenCL device of this machine."""

    platform: str
    """Name of the driver's platform, e.g. ``Portable Computing Language``."""
    name: str
    kind: str
    """``gpu``, ``cpu``, ``accelerator`` or ``other``."""
    version: str
    """``OpenCL 3.0 …``"""
    driver_version: str
    extensions: tuple[str, ...]
    images: bool
    """It has images, which textures need."""

    @property
    def fp16(self) -> bool:
        """True if kernels may compute in half precision."""
        return "cl_khr_fp16" in self.extensions

    @property
    def gpu(self) -> bool:
        """True if it is a GPU; its numbers and its time mean something."""
        return self.kind == "gpu"

    def __str__(self) -> str:
        return f"{self.name} ({self.platform}, driver {self.driver_version})"


def opencl_device() -> HostOpenCl | None:
    """Return the device that TVM's OpenCL runtime uses on this machine; None if it finds none.

    The first GPU of any platform, else the first CPU. The loader decides which drivers there are
    (``OCL_ICD_VENDORS`` and its like). The answer is kept for as long as those variables stay the same.
    """
    return choose(_all_devices(tuple(os.environ.get(name, "") for name in READ)))


def choose(devices: tuple[HostOpenCl, ...]) -> HostOpenCl | None:
    """Choose a device as TVM does."""
    able = [device for device in devices if re.match(NEW_ENOUGH, device.version)]
    return next((device for kind in ("gpu", "cpu") for device in able if device.kind == kind), None)


@functools.lru_cache(maxsize=4)
def _all_devices(_environment: tuple[str, ...]) -> tuple[HostOpenCl, ...]:
    argv = [sys.executable, "-P", "-m", "adt.package.host_run.opencl"]
    done = run(argv, timeout=SECONDS, check=False)
    if done.returncode != 0:
        log.warning(
            "asking this machine's OpenCL drivers what there is ended with exit code %d: taken for none",
            done.returncode,
        )
        log.debug("%s", done.tail())
        return ()
    return parse(done.stdout)


def parse(text: str) -> tuple[HostOpenCl, ...]:
    """Read what :mod:`adt.package.host_run.opencl` printed; drivers may have printed before."""
    lines = text.strip().splitlines()
    document: dict[str, Any] = json.loads(lines[-1])
    if not document["devices"]:
        log.debug("no OpenCL device is used: %s", document["reason"])
    return tuple(
        HostOpenCl(**{**device, "extensions": tuple(device["extensions"])}) for device in document["devices"]
    )


LIBRARIES = (
    "libOpenCL.so.1",
    "libOpenCL.so",
    "/usr/lib/libOpenCL.so",
    "/usr/local/lib/libOpenCL.so",
    "/usr/local/lib/libpocl.so",
    "/usr/lib64/libOpenCL.so",
)
"""Libraries of which TVM's OpenCL runtime (:mod:`adt.bundle.plugins`) opens the first that loads."""

KINDS = {2: "cpu", 4: "gpu", 8: "accelerator"}
ANY_KIND = 0xFFFFFFFF
PLATFORM_NAME = 0x0902
TYPE, IMAGE_SUPPORT = 0x1000, 0x1016
NAME, DRIVER_VERSION, VERSION, EXTENSIONS = 0x102B, 0x102D, 0x102F, 0x1030

Ask = Callable[..., int]
"""Function of OpenCL, given its first arguments."""


def main() -> None:
    """Print what there is."""
    devices, reason = list[Any](), "this machine has no OpenCL library"
    for name in LIBRARIES:
        with contextlib.suppress(OSError):
            devices, reason = _devices(ctypes.CDLL(name))
            break
    sys.stdout.write(json.dumps({"devices": devices, "reason": reason}) + "\n")


def _devices(cl: ctypes.CDLL) -> tuple[list[dict[str, Any]], str]:
    """Describe every device of every platform, or say why there is none."""
    platforms = _handles(cl.clGetPlatformIDs)
    if isinstance(platforms, int):
        return [], f"clGetPlatformIDs answered {platforms}"
    devices = []
    for platform in map(ctypes.c_void_p, platforms):
        handles = _handles(functools.partial(cl.clGetDeviceIDs, platform, ctypes.c_uint64(ANY_KIND)))
        platform_name = _text(functools.partial(cl.clGetPlatformInfo, platform), PLATFORM_NAME)
        for device in handles if isinstance(handles, list) else []:
            ask = functools.partial(cl.clGetDeviceInfo, ctypes.c_void_p(device))
            devices.append({"platform": platform_name, **_described(ask)})
    return devices, "" if devices else "no platform has a device"


def _described(ask: Ask) -> dict[str, Any]:
    return {
        "name": _text(ask, NAME),
        "kind": next((kind for bit, kind in KINDS.items() if _number(ask, TYPE) & bit), "other"),
        "version": _text(ask, VERSION),
        "driver_version": _text(ask, DRIVER_VERSION),
        "extensions": _text(ask, EXTENSIONS).split(),
        "images": bool(_number(ask, IMAGE_SUPPORT)),
    }


def _handles(ask: Ask) -> list[int] | int:
    """Ask for a list of handles; return the error code where that fails."""
    count = ctypes.c_uint(0)
    if code := ask(0, None, ctypes.byref(count)):
        return code
    room = (ctypes.c_void_p * count.value)()
    if code := ask(count.value, room, None):
        return code
    return [handle for handle in room if handle]


def _text(ask: Ask, what: int) -> str:
    return _property(ask, what).partition(b"\0")[0].decode(errors="replace").strip()


def _number(ask: Ask, what: int) -> int:
    """Ask for a number; 0 when the device does not know it."""
    return int.from_bytes(_property(ask, what), sys.byteorder)


def _property(ask: Ask, what: int) -> bytes:
    size = ctypes.c_size_t(0)
    if ask(what, ctypes.c_size_t(0), None, ctypes.byref(size)):
        return b""
    room = ctypes.create_string_buffer(size.value)
    return b"" if ask(what, size, room, None) else room.raw


if __name__ == "__main__":
    main()
