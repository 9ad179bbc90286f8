"""Where OpenCL libraries lie on devices, and what adt_probe reports about them."""

from __future__ import annotations

import json
from typing import Any

from adt.device.probe.facts import OpenclReport

PROGRAM = "bin/adt_probe"
"""The program, in a bundle."""
SCHEMA = "adt.opencl-probe"
SCHEMA_VERSION = 1

_VENDOR = ("libOpenCL.so", "libOpenCL-pixel.so", "libOpenCL_adreno.so", "libPVROCL.so", "libmali.so")
_EGL = ("libGLES_mali.so", "libmali.so")
_ROOTS = ("/vendor", "/system/vendor", "/system", "/odm", "/system_ext", "/product")
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
        for root in (
            "/usr/lib",
            "/usr/lib/aarch64-linux-gnu",
            "/usr/lib/arm-linux-gnueabihf",
            "/usr/lib/x86_64-linux-gnu",
            "/usr/lib64",
            "/usr/lib32",
            "/usr/local/lib",
        )
        for name in ("libOpenCL.so", "libOpenCL.so.1", "libpocl.so", "libmali.so")
    ),
)
"""Where OpenCL libraries lie on Android, by vendor (Adreno, Pixel, Mali, PowerVR), and on Linux boards.

Every path that TVM's runtime opens is among them; which names it opens, and in
which order, adt_probe knows from the TVM tree that it was built with.
"""


def places(platform: str) -> tuple[str, ...]:
    """The places that a program built for *platform* can load from: not those of the other word size."""
    other = "/lib/" if "64" in platform else "/lib64/"
    return tuple(path for path in PLACES if other not in path or path.startswith("/usr/"))


def parse_report(text: str) -> OpenclReport:
    """Read the document that adt_probe printed.

    Raises:
        ValueError: it is none, or one of another version.
    """
    import cattrs

    document: Any = json.loads(text)
    if not isinstance(document, dict) or (document.pop("schema", ""), document.pop("schema_version", 0)) != (
        SCHEMA,
        SCHEMA_VERSION,
    ):
        raise ValueError(f"not a {SCHEMA} document of version {SCHEMA_VERSION}")
    try:
        found: OpenclReport = cattrs.structure(document, OpenclReport)
    except Exception as why:  # cattrs raises an exception group
        raise ValueError("; ".join(cattrs.transform_error(why))) from why
    return found
