"""Which apache-tvm works with which apache-tvm-ffi: the wheels only say ``>=``, and pip's pick breaks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from adt.checkup.check import Area, Check, Status

TVM, FFI = "apache-tvm", "apache-tvm-ffi"
OURS = ("0.25.0.post1", "0.1.12")
"""The pair that adt asks pip for."""
IMPORT_FAILS = "`import tvm` fails"
TEXTURES = "it compiles Adreno textures wrongly, without an error (CPU and OpenCL buffers are right)"


@dataclass(frozen=True)
class Pairing:
    """What is known of one apache-tvm version."""

    works: tuple[str, ...]
    """The apache-tvm-ffi versions that were tried and work."""
    breaks: Mapping[str, str] = field(default_factory=dict)
    """Those that were tried and do not, and what happens."""
    limits: str = ""
    """What is wrong with this version even then."""


PAIRINGS = {
    "0.25.0": Pairing(("0.1.12",), {"0.1.15.post2": IMPORT_FAILS}),
    "0.25.0.post1": Pairing(
        ("0.1.12",),
        dict.fromkeys(("0.1.11", "0.1.13.post3", "0.1.14.post1", "0.1.15.post2"), IMPORT_FAILS),
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
    """The command that installs one pair."""
    return f"pip install '{TVM}=={tvm}' '{FFI}=={ffi}'"


def check_pair(tvm: str | None, ffi: str | None) -> Check:
    """Judge the installed versions (None: not installed) by the table."""

    def verdict(status: Status, found: str, remedy: str = "") -> Check:
        return Check(Area.HOST, "TVM", status, found, "installed packages", remedy)

    ours = install(*OURS)
    if tvm is None or ffi is None:
        missing = " and ".join(name for name, version in ((TVM, tvm), (FFI, ffi)) if version is None)
        return verdict(Status.FAILED, f"{missing} not installed", ours)
    pair = f"{TVM} {tvm} with {FFI} {ffi}"
    known = PAIRINGS.get(tvm)
    if known is None:
        return verdict(
            Status.WARNING,
            f"{pair}: adt has not been tried with {TVM} {tvm}",
            f"The pair that is known: {ours}",
        )
    mend = install(tvm, known.works[-1])
    if tvm != OURS[0]:
        mend += f"   (or the pair that adt is made for: {ours})"
    if ffi in known.breaks:
        return verdict(Status.FAILED, f"{pair} is a pair that breaks: {known.breaks[ffi]}", mend)
    if ffi not in known.works:
        return verdict(
            Status.WARNING, f"{pair} has not been tried; {' and '.join(known.works)} is known to work", mend
        )
    if known.limits:
        return verdict(Status.WARNING, f"{pair} works, but {known.limits}", ours)
    return verdict(Status.OK, pair)
