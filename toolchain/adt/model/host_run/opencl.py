"""This machine's OpenCL: which device a package runs on here, and what it can do."""

from __future__ import annotations

import functools
import json
import logging
import os
import re
import sys
from dataclasses import dataclass
from typing import Any

from adt.host.process import run

log = logging.getLogger("adt.opencl")

SECONDS = 60.0
"""How long the drivers may take to say what they have."""
TVM_VERSION = (1, 2)
"""The oldest OpenCL of a device that TVM's runtime takes."""
READ = ("OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH", "OCL_ICD_FILENAMES", "LD_LIBRARY_PATH", "POCL_DEVICES")
"""Variables that decide which drivers are found."""


@dataclass(frozen=True)
class HostOpenCl:
    """An OpenCL device of this machine."""

    library: str
    """The OpenCL library that was opened."""
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
    """Most layers of an image array."""
    max_work_group_size: int
    """Work-items."""

    @property
    def fp16(self) -> bool:
        """Kernels may compute in half precision."""
        return "cl_khr_fp16" in self.extensions

    @property
    def gpu(self) -> bool:
        """It is a GPU; its numbers and its time mean something."""
        return self.kind == "gpu"

    def __str__(self) -> str:
        return f"{self.name} ({self.platform}, driver {self.driver_version})"


def opencl_device() -> HostOpenCl | None:
    """The device that TVM's OpenCL runtime uses on this machine; None if it finds none.

    The first GPU of any platform, else the first CPU. The loader decides which drivers
    there are (``OCL_ICD_VENDORS`` and its like). The answer is kept for as long as
    those variables stay the same.
    """
    return choose(_all_devices(tuple(os.environ.get(name, "") for name in READ)))


def choose(devices: tuple[HostOpenCl, ...]) -> HostOpenCl | None:
    """The device that TVM's rule takes."""
    able = [device for device in devices if _version(device.version) >= TVM_VERSION]
    for kind in ("gpu", "cpu"):
        for device in able:
            if device.kind == kind:
                return device
    return None


def _version(text: str) -> tuple[int, int]:
    found = re.match(r"OpenCL (\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


@functools.lru_cache(maxsize=4)
def _all_devices(_environment: tuple[str, ...]) -> tuple[HostOpenCl, ...]:
    argv = [sys.executable, "-P", "-m", "adt.model.host_run.opencl_query"]
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
    """Read what :mod:`adt.model.host_run.opencl_query` printed; drivers may have printed before."""
    lines = text.strip().splitlines()
    document: dict[str, Any] = json.loads(lines[-1])
    if not document["library"]:
        log.debug("this machine has no OpenCL library")
    elif not document["devices"]:
        log.debug("%s offers no OpenCL device: %s", document["library"], document["said"])
    return tuple(
        HostOpenCl(
            library=document["library"],
            **{**device, "extensions": tuple(device["extensions"])},
        )
        for device in document["devices"]
    )
