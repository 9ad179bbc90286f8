"""Python packages that adt needs, the pairs of TVM's that work, and the commands that install them.

The commands name the requirements themselves, from adt's own metadata: ``adt`` is somebody else's name on
the package index, and the interpreter that runs adt need not be the ``python`` on PATH.
"""

from __future__ import annotations

import functools
import importlib
import logging
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
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


log = logging.getLogger("adt.compile")

TVM, FFI = "apache-tvm", "apache-tvm-ffi"
OURS = ("0.25.0.post1", "0.1.12")
"""The pair that adt asks pip for."""
IMPORT_FAILS = "`import tvm` fails"
TEXTURES = "it compiles Adreno textures wrongly, without an error (CPU and OpenCL buffers are right)"


@dataclass(frozen=True)
class Pairing:
    """Facts about one apache-tvm version."""

    works: tuple[str, ...]
    """The apache-tvm-ffi versions that were tried and work."""
    breaks: Mapping[str, str] = field(default_factory=dict)
    """Versions that were tried and do not work, and what happens."""
    limits: str = ""
    """Faults of this version even then."""


PAIRINGS = {
    "0.25.0": Pairing(("0.1.12",), {"0.1.15.post2": IMPORT_FAILS}),
    "0.25.0.post1": Pairing(
        ("0.1.12",), dict.fromkeys(("0.1.11", "0.1.13.post3", "0.1.14.post1", "0.1.15.post2"), IMPORT_FAILS)
    ),
    "0.26.0": Pairing(("0.1.13.post2",), limits=TEXTURES),
    "0.27.0.post1": Pairing(
        ("0.1.14.post0", "0.1.14.post1"),
        dict.fromkeys(
            ("0.1.15.post1", "0.1.15.post2"), "it imports, then crashes when it compiles Adreno textures"
        ),
        limits=TEXTURES,
    ),
}


def install(tvm: str, ffi: str) -> str:
    """Return the command that installs one pair."""
    return install_command(f"{TVM}=={tvm}", f"{FFI}=={ffi}")


def mend(tvm: str) -> str:
    """Return the command that completes the installed apache-tvm *tvm*, and the one for adt's own pair."""
    known = PAIRINGS.get(tvm)
    ours = install(*OURS)
    if known is None or tvm == OURS[0]:
        return ours
    return f"{install(tvm, known.works[-1])}   (or the pair that adt is made for: {ours})"


def installed_version(distribution: str) -> str | None:
    """Return the version of an installed distribution, without importing it; None: not installed."""
    import importlib.metadata

    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def require_tvm() -> str:
    """Return the version of the installed TVM, after a check of whether it can work; imports nothing."""
    return _judged(installed_version(TVM), installed_version(FFI))


@functools.cache  # its warning once
def _judged(tvm: str | None, ffi: str | None) -> str:
    if tvm is None or ffi is None:
        missing = " and ".join(name for name, version in ((TVM, tvm), (FFI, ffi)) if version is None)
        raise ToolNotFound(f"{missing} is not installed, and TVM compiles models", remedy=install(*OURS))
    known = PAIRINGS.get(tvm)
    if known is None:
        log.warning("adt has not been tried with %s %s; the pair that is known: %s", TVM, tvm, install(*OURS))
    elif ffi in known.breaks:
        raise ToolNotFound(
            f"{TVM} {tvm} with {FFI} {ffi} is a pair that breaks: {known.breaks[ffi]}", remedy=mend(tvm)
        )
    elif ffi not in known.works:
        log.warning("%s %s has not been tried with %s %s: %s", TVM, tvm, FFI, ffi, mend(tvm))
    return tvm


def texture_codegen_trusted(tvm: str) -> str | None:
    """Return why Adreno textures of TVM *tvm* must not be trusted unchecked; None: they were seen right.

    A texture store of 0.26 and 0.27 writes other texels than it should: errors of 100 %, and no message.
    """
    known = PAIRINGS.get(tvm)
    if known is None:
        return f"textures have not been tried with {TVM} {tvm}"
    return f"{TVM} {tvm}: {known.limits}" if known.limits == TEXTURES else None
