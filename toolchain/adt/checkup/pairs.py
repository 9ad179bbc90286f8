"""Judge the installed TVM by what is known of its versions (:mod:`adt.model.versions`)."""

from __future__ import annotations

from adt.checkup.check import Area, Check, Status
from adt.model.versions import FFI, OURS, PAIRINGS, TVM, install, mend


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
    if ffi in known.breaks:
        return verdict(Status.FAILED, f"{pair} is a pair that breaks: {known.breaks[ffi]}", mend(tvm))
    if ffi not in known.works:
        return verdict(
            Status.WARNING,
            f"{pair} has not been tried; {' and '.join(known.works)} is known to work",
            mend(tvm),
        )
    if known.limits:
        return verdict(Status.WARNING, f"{pair} works, but {known.limits}", ours)
    return verdict(Status.OK, pair)
