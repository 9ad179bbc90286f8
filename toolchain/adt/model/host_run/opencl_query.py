"""Ask this machine's OpenCL what it offers: ``python -m adt.model.host_run.opencl_query``.

A process of its own, since a driver that crashes takes its process along. Prints one
JSON document: ``{"library": …, "devices": [{…}, …], "said": …}``. Needs no TVM.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable
from typing import Any

LIBRARIES = (
    "libOpenCL.so.1",
    "libOpenCL.so",
    "/usr/lib/libOpenCL.so",
    "/usr/local/lib/libOpenCL.so",
    "/usr/local/lib/libpocl.so",
    "/usr/lib64/libOpenCL.so",
)
"""What TVM's OpenCL runtime, as :mod:`adt.model.plugins` builds it, opens: the first that loads."""

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
    """Every device of every platform, and why there is none."""
    handles = _handles(lambda room, to, count: cl.clGetPlatformIDs(room, to, count))
    if isinstance(handles, int):
        return [], f"clGetPlatformIDs answered {handles}"
    found = []
    for platform in handles:
        handle = ctypes.c_void_p(platform)

        def ask_platform(what: int, room: ctypes.c_size_t, to: Any, size: Any, of: Any = handle) -> int:
            return int(cl.clGetPlatformInfo(of, ctypes.c_uint(what), room, to, size))

        def list_devices(room: int, to: Any, count: Any, of: Any = handle) -> int:
            return int(cl.clGetDeviceIDs(of, ctypes.c_uint64(ANY_KIND), ctypes.c_uint(room), to, count))

        devices = _handles(list_devices)
        for device in devices if isinstance(devices, list) else []:
            found.append(
                {
                    "platform": _text(ask_platform, PLATFORM_NAME),
                    "platform_version": _text(ask_platform, PLATFORM_VERSION),
                    **_described(cl, ctypes.c_void_p(device)),
                }
            )
    return found, "" if found else "no platform has a device"


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
    """A list of handles, or the error code."""
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
    """A number of up to 64 bits; 0 when the device does not know it."""
    value = ctypes.c_uint64(0)
    size = ctypes.c_size_t(0)
    if ask(what, ctypes.c_size_t(0), None, ctypes.byref(size)) or size.value > 8:
        return 0
    return 0 if ask(what, size, ctypes.byref(value), None) else value.value


if __name__ == "__main__":
    sys.exit(main())
