"""Python packages that adt needs, the TVM that it is made for, and the commands that install them.

The commands name the requirements themselves, from adt's own metadata: ``adt`` is somebody else's name on
the package index, and the interpreter that runs adt need not be the ``python`` on PATH.
"""

from __future__ import annotations

import importlib
import re
import shlex
import sys
from pathlib import Path
from typing import Any

from adt.errors import ToolNotFound

DISTRIBUTION = "adt-toolchain"
"""Name of adt on the package index."""
EXTRAS = {
    "tflite": ("tflite", "flatbuffers"),
    "torch": ("torch",),
    "keras": ("keras", "torch", "onnxscript"),
    "image": ("PIL",),
}
_EXTRA = re.compile(r"""extra\s*==\s*['"](.*)['"]""")


def install_command(*names: str, extra: str = "") -> str:
    """Return the command that installs *names*, as adt asks for them, and the requirements of *extra*."""
    pinned, of_extra = {}, []
    for requirement in _requirements():
        text, _, marker = (part.strip() for part in requirement.partition(";"))
        match = _EXTRA.fullmatch(marker)
        if not marker:
            pinned[re.split(r"[^A-Za-z0-9._-]", text)[0]] = text
        elif match and match[1] == extra:
            of_extra.append(text)
    listed = [pinned.get(name, name) for name in names] + of_extra
    if extra and not of_extra:  # adt runs from its sources
        listed.append(f"{Path(__file__).parents[3]}[{extra}]")
    return shlex.join([sys.executable, "-m", "pip", "install", *listed])


def _requirements() -> list[str]:
    import importlib.metadata  # slow, and only errors need it

    try:
        return importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return []


def need(extra: str, purpose: str) -> None:
    """Check that the packages of *extra* can be imported, for a *purpose* ("importing a .tflite file")."""
    for module in EXTRAS[extra]:
        load(module, extra, purpose)


def load(module: str, extra: str, purpose: str) -> Any:
    """Import *module*, or name the command that installs *extra*."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0].replace("_", "-")
        raise ToolNotFound(
            f"{purpose} needs the Python package {package}, which is not usable here ({error})",
            remedy=install_command(extra=extra),
        ) from error


TVM, FFI = "apache-tvm", "apache-tvm-ffi"
OURS = ("0.25.0.post1", "0.1.12")
"""Versions of both for which adt is made, and which it asks pip for."""


def install_tvm() -> str:
    """Return the command that installs TVM as adt needs it."""
    return install_command(*(f"{name}=={version}" for name, version in zip((TVM, FFI), OURS, strict=True)))


def installed_version(distribution: str) -> str | None:
    """Return the version of an installed distribution, without importing it; None: not installed."""
    import importlib.metadata

    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def wrong_tvm() -> str:
    """Describe what is wrong with the installed versions of TVM, without importing it; empty: nothing.

    Of other pairs, most fail at the import, and TVM 0.26 and 0.27 write other texels than they should.
    """
    installed = (installed_version(TVM), installed_version(FFI))
    absent = [name for name, version in zip((TVM, FFI), installed, strict=True) if version is None]
    if absent:
        return " and ".join(absent) + " not installed"
    pair, ours = (f"{TVM} {tvm} with {FFI} {ffi}" for tvm, ffi in (installed, OURS))
    return "" if pair == ours else f"{pair} is installed, and adt is made for {ours}"


def require_tvm() -> str:
    """Return the version of the installed TVM, without importing it; ToolNotFound if it is not adt's."""
    if reason := wrong_tvm():
        raise ToolNotFound(f"TVM cannot be used: {reason}", remedy=install_tvm())
    return OURS[0]
