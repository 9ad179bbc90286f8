"""Pairs of apache-tvm and apache-tvm-ffi that work together: the wheels only say ``>=``, and pip's pick
breaks.

Asked before TVM is imported, from the metadata of what is installed: a pair that
breaks ends the import with a missing symbol, or much later with a crash.
"""

from __future__ import annotations

import functools
import importlib.metadata
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from adt.errors import ToolNotFound
from adt.host.extras import install_command

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
