"""Paths of OpenCL libraries on devices, and adt_probe's report about them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from adt.bundle.platforms import platform_named
from adt.errors import MismatchError

PROGRAM = "bin/adt_probe"
SCHEMA = "adt.opencl-probe"
SCHEMA_VERSION = 1

_VENDOR = ("libOpenCL.so", "libOpenCL-pixel.so", "libOpenCL_adreno.so", "libPVROCL.so", "libmali.so")
_EGL = ("libGLES_mali.so", "libmali.so")
_ROOTS = ("/vendor", "/system/vendor", "/system", "/odm", "/system_ext", "/product")
_LINUX_ROOTS = """
    /usr/lib /usr/lib/aarch64-linux-gnu /usr/lib/arm-linux-gnueabihf /usr/lib/x86_64-linux-gnu
    /usr/lib64 /usr/lib32 /usr/local/lib
"""
PLACES = (
    *(
        f"{root}/{lib}/{name}"
        for lib in ("lib64", "lib")
        for root in _ROOTS
        for name in (*_VENDOR, *(f"egl/{name}" for name in _EGL))
    ),
    *(f"/data/data/org.pocl.libs/files/{lib}/libpocl.so" for lib in ("lib64", "lib")),
    *(
        f"{root}/{name}"
        for root in _LINUX_ROOTS.split()
        for name in ("libOpenCL.so", "libOpenCL.so.1", "libpocl.so", "libmali.so")
    ),
)
"""Paths of OpenCL libraries on Android, by vendor (Adreno, Pixel, Mali, PowerVR), and on Linux boards.

Every path that TVM's runtime opens is among them; which names it opens, and in
which order, adt_probe knows from the TVM tree that it was built with.
"""

TVM_VERSION = (1, 2)
"""The oldest OpenCL of a device that TVM's runtime takes."""


@dataclass(frozen=True)
class OpenclDevice:
    """One OpenCL device; None is what its driver does not answer."""

    name: str | None
    vendor: str | None
    version: str | None
    """``OpenCL 3.0 …``."""
    driver_version: str | None
    opencl_c_version: str | None
    kind: str
    """``gpu``, ``cpu``, ``accelerator``, ``custom`` or ``other``."""
    compute_units: int | None
    max_clock_mhz: int | None
    address_bits: int | None
    max_work_group_size: int | None
    global_memory: int | None
    """Bytes."""
    local_memory: int | None
    """Bytes of one work group."""
    max_allocation: int | None
    """Bytes of one buffer."""
    base_address_alignment_bits: int | None
    unified_memory: bool | None
    """Shared with the CPU."""
    half_vector_width: int | None
    """Preferred vector width of fp16; 0 without fp16."""
    images: bool | None
    image2d_max_width: int | None
    """Texels."""
    image2d_max_height: int | None
    """Texels."""
    image_max_buffer_size: int | None
    """Texels of an image that is made from a buffer, one-dimensional."""
    image_max_array_size: int | None
    """Images of an image array."""
    image_pitch_alignment: int | None
    """Texels that a row of a 2D image made from a buffer is aligned to; 0: it makes none."""
    image_base_address_alignment: int | None
    """Texels that such a buffer's start is aligned to."""
    extensions: tuple[str, ...]

    @property
    def fp16(self) -> bool:
        return "cl_khr_fp16" in self.extensions

    @property
    def qualcomm(self) -> tuple[str, ...]:
        return tuple(name for name in self.extensions if name.startswith("cl_qcom_"))

    @property
    def refused_by_tvm(self) -> str:
        """Return why TVM's runtime does not work with this device; empty when it does."""
        match = re.match(r"OpenCL (\d{1,9})\.(\d{1,9})", self.version or "")
        if not match or (int(match[1]), int(match[2])) < TVM_VERSION:
            return f"it has {self.version or 'no version'}, and TVM takes OpenCL 1.2 and later"
        if self.image_pitch_alignment is None:
            query = "CL_DEVICE_IMAGE_PITCH_ALIGNMENT"
            return f"its driver does not answer {query}, and TVM's runtime stops at that"
        return ""


@dataclass(frozen=True)
class OpenclPlatform:
    """One OpenCL platform: a driver."""

    name: str | None
    vendor: str | None
    version: str | None
    extensions: tuple[str, ...]
    devices: tuple[OpenclDevice, ...]
    error: str | None
    """Reason why its devices could not be listed."""


@dataclass(frozen=True)
class OpenclCandidate:
    """One library that may be OpenCL's, and what came of opening it."""

    library: str
    """As the dynamic linker was given it: a name or a path."""
    tvm: bool
    """It is one of those that TVM's runtime opens."""
    outcome: str
    """``answered``, ``not-loaded``, ``unusable``, ``crashed`` or ``timed-out``."""
    said: str
    """Reason why it did not answer, in the dynamic linker's or the driver's words."""
    path: str | None
    platforms: tuple[OpenclPlatform, ...]
    clml_versions: tuple[str, ...]
    """Versions of Qualcomm's CLML that it offers, ``MAJOR.MINOR``."""

    @property
    def absent(self) -> bool:
        """There simply is no such file, in the words of glibc's and of Android's dynamic linker."""
        library = re.escape(self.library)
        words = re.search(rf"(?:{library}: .*No such file|\"{library}\" not found)", self.said)
        return self.outcome == "not-loaded" and words is not None


@dataclass(frozen=True)
class OpenclReport:
    candidates: tuple[OpenclCandidate, ...]
    """In the order in which they were tried; TVM's first."""
    taken: str | None
    """The library that TVM's runtime stops at; None: it finds none."""

    @property
    def chosen(self) -> OpenclCandidate | None:
        return next((c for c in self.candidates if c.tvm and c.library == self.taken), None)

    @property
    def platform(self) -> OpenclPlatform | None:
        """The platform of :attr:`device`."""
        platforms = self.chosen.platforms if self.chosen else ()
        return next((p for p in platforms if self.device in p.devices), None)

    @property
    def device(self) -> OpenclDevice | None:
        """The device that TVM's runtime computes on: the first GPU, without one the first CPU."""
        platforms = self.chosen.platforms if self.chosen else ()
        usable = [d for p in platforms for d in p.devices if not d.refused_by_tvm]
        return next((d for kind in ("gpu", "cpu") for d in usable if d.kind == kind), None)


def no_opencl(serial: str, *, virtual: bool) -> MismatchError:
    """Return the error for the device *serial*, which cannot compute kernels of OpenCL."""
    remedy = f"`adt probe --serial {serial}` shows where it was looked for: install the GPU's driver"
    if virtual:
        remedy = "Start one with it, adt emulator start cl --opencl, and name that by --serial"
    return MismatchError(
        f"{serial} has no OpenCL that TVM's runtime can use",
        remedy=f"{remedy}; or compute on the CPU: --target cpu.",
    )


def places(platform: str) -> tuple[str, ...]:
    """Return the places that a program for *platform* can load from: not those of the other word size."""
    other = "/lib/" if "64" in platform_named(platform).machine else "/lib64/"
    return tuple(path for path in PLACES if other not in path or path.startswith("/usr/"))


def parse_report(text: str) -> OpenclReport:
    """Read the document that adt_probe printed; ValueError for anything else, or another version."""
    import cattrs

    document: Any = json.loads(text)
    version = {"schema": SCHEMA, "schema_version": SCHEMA_VERSION}
    if not isinstance(document, dict) or {name: document.pop(name, None) for name in version} != version:
        raise ValueError(f"not a {SCHEMA} document of version {SCHEMA_VERSION}")
    try:
        report: OpenclReport = cattrs.structure(document, OpenclReport)
    except Exception as error:  # cattrs raises an exception group
        raise ValueError("; ".join(cattrs.transform_error(error))) from error
    return report
