"""This machine's OpenCL: which device a package runs on here, and what it can do.

The drivers are asked by a process of its own (``python -m adt.package.host_run.opencl``, which needs no TVM),
since a driver that crashes takes its process along. It prints one JSON document:
``{"library": …, "devices": [{…}, …], "said": …}``.
"""

from __future__ import annotations

import ctypes
import functools
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from adt.host.process import run

log = logging.getLogger("adt.opencl")

SECONDS = 60.0  # seconds that the drivers may take to list their devices
TVM_VERSION = (1, 2)  # the oldest OpenCL of a device that TVM's runtime takes
READ = ("OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH", "OCL_ICD_FILENAMES", "LD_LIBRARY_PATH", "POCL_DEVICES")
"""Variables that decide which drivers are found."""


@dataclass(frozen=True)
class HostOpenCl:
    """An OpenCL device of this machine."""

    library: str
    platform: str
    """Name of the driver's platform, e.g. ``Portable Computing Language``."""
    platform_version: str
    name: str
    kind: str
    """``gpu``, ``cpu``, ``accelerator`` or ``other``."""
    version: str
    """``OpenCL 3.0 …``"""
    driver_version: str
    extensions: tuple[str, ...]
    images: bool
    """It has images, which textures need."""
    image2d_max_width: int
    """Pixels."""
    image2d_max_height: int
    """Pixels."""
    image_max_layers: int
    max_work_group_size: int
    """Work-items."""

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
    able = [device for device in devices if _version(device.version) >= TVM_VERSION]
    for kind in ("gpu", "cpu"):
        for device in able:
            if device.kind == kind:
                return device
    return None


def _version(text: str) -> tuple[int, int]:
    match = re.match(r"OpenCL (\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else (0, 0)


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
    if not document["library"]:
        log.debug("this machine has no OpenCL library")
    elif not document["devices"]:
        log.debug("%s offers no OpenCL device: %s", document["library"], document["said"])
    return tuple(
        HostOpenCl(library=document["library"], **{**device, "extensions": tuple(device["extensions"])})
        for device in document["devices"]
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
PLATFORM_VERSION, PLATFORM_NAME = 0x0901, 0x0902
TYPE, GROUP_SIZE = 0x1000, 0x1004
IMAGE_SUPPORT, IMAGE_WIDTH, IMAGE_HEIGHT, IMAGE_LAYERS = 0x1016, 0x1011, 0x1012, 0x1041
NAME, DRIVER_VERSION, VERSION, EXTENSIONS = 0x102B, 0x102D, 0x102F, 0x1030

Ask = Callable[[int, ctypes.c_size_t, Any, Any], int]


def main() -> int:
    """Print what there is."""
    library, opened = next(
        ((name, found) for name in LIBRARIES if (found := _open(name)) is not None), ("", None)
    )
    document: dict[str, Any] = {"library": library, "devices": [], "said": ""}
    if opened is not None:
        document["devices"], document["said"] = _devices(opened)
    sys.stdout.write(json.dumps(document) + "\n")
    return 0


def _open(name: str) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(name)
    except OSError:
        return None


def _devices(cl: ctypes.CDLL) -> tuple[list[dict[str, Any]], str]:
    """Describe every device of every platform, or say why there is none."""
    platforms = _handles(lambda room, to, count: cl.clGetPlatformIDs(room, to, count))
    if isinstance(platforms, int):
        return [], f"clGetPlatformIDs answered {platforms}"
    devices = [device for platform in platforms for device in _of_platform(cl, ctypes.c_void_p(platform))]
    return devices, "" if devices else "no platform has a device"


def _of_platform(cl: ctypes.CDLL, platform: ctypes.c_void_p) -> Iterator[dict[str, Any]]:
    def ask(what: int, room: ctypes.c_size_t, to: Any, size: Any) -> int:
        return int(cl.clGetPlatformInfo(platform, ctypes.c_uint(what), room, to, size))

    def list_devices(room: int, to: Any, count: Any) -> int:
        return int(cl.clGetDeviceIDs(platform, ctypes.c_uint64(ANY_KIND), ctypes.c_uint(room), to, count))

    devices = _handles(list_devices)
    for device in devices if isinstance(devices, list) else []:
        yield {
            "platform": _text(ask, PLATFORM_NAME),
            "platform_version": _text(ask, PLATFORM_VERSION),
            **_described(cl, ctypes.c_void_p(device)),
        }


def _described(cl: ctypes.CDLL, device: ctypes.c_void_p) -> dict[str, Any]:
    def ask(what: int, room: ctypes.c_size_t, to: Any, size: Any) -> int:
        return int(cl.clGetDeviceInfo(device, ctypes.c_uint(what), room, to, size))

    return {
        "name": _text(ask, NAME),
        "kind": next((kind for bit, kind in KINDS.items() if _number(ask, TYPE) & bit), "other"),
        "version": _text(ask, VERSION),
        "driver_version": _text(ask, DRIVER_VERSION),
        "extensions": _text(ask, EXTENSIONS).split(),
        "images": bool(_number(ask, IMAGE_SUPPORT)),
        "image2d_max_width": _number(ask, IMAGE_WIDTH),
        "image2d_max_height": _number(ask, IMAGE_HEIGHT),
        "image_max_layers": _number(ask, IMAGE_LAYERS),
        "max_work_group_size": _number(ask, GROUP_SIZE),
    }


def _handles(ask: Callable[[int, Any, Any], int]) -> list[int] | int:
    """Ask for a list of handles; return the error code where that fails."""
    count = ctypes.c_uint(0)
    if code := ask(0, None, ctypes.byref(count)):
        return code
    room = (ctypes.c_void_p * count.value)()
    if code := ask(count.value, room, None):
        return code
    return [handle for handle in room if handle]


def _text(ask: Ask, what: int) -> str:
    size = ctypes.c_size_t(0)
    if ask(what, ctypes.c_size_t(0), None, ctypes.byref(size)) or not size.value:
        return ""
    room = ctypes.create_string_buffer(size.value)
    if ask(what, size, room, None):
        return ""
    return room.value.decode(errors="replace").strip()


def _number(ask: Ask, what: int) -> int:
    """Ask for a number of up to 64 bits; 0 when the device does not know it."""
    value = ctypes.c_uint64(0)
    size = ctypes.c_size_t(0)
    if ask(what, ctypes.c_size_t(0), None, ctypes.byref(size)) or size.value > 8:
        return 0
    return 0 if ask(what, size, ctypes.byref(value), None) else value.value


if __name__ == "__main__":
    sys.exit(main())
