"""What this machine offers for a virtual device, and records of devices that no longer run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from adt.checkup.check import Action, Area, Check, Fix, Question, Status
from adt.errors import AdtError
from adt.host import manifest
from adt.virtual import prerequisites, state

NAME = "virtual device"
PACKAGES = {prerequisites.INSTALL_QEMU: ("qemu-user-static",)}
"""Remedies that are an apt-get of these packages."""


def check_prerequisites(found: Iterable[prerequisites.Check]) -> Iterator[Check]:
    """Each prerequisite as a check; a virtual device is a convenience, so none fails."""
    for one in found:
        packages = PACKAGES.get(one.remedy, ())
        yield Check(
            Area.HOST,
            f"{NAME}: {one.name}",
            Status.OK if one.ok else Status.WARNING,
            one.found,
            remedy=one.remedy,
            fix=Fix(Action.INSTALL, packages) if packages else None,
        )


def running() -> list[state.Record]:
    """The virtual devices that run; removes nothing."""
    return [record for _, record in _records() if record is not None and state.alive(record)]


def stale() -> list[str]:
    """Names of virtual devices with a record but without a process; removes nothing."""
    return [name for name, record in _records() if record is None or not state.alive(record)]


def _records() -> Iterator[tuple[str, state.Record | None]]:
    """Name and record of each device that has one; None for a record that cannot be read."""
    for at in state.homes():
        if not at.record.is_file():
            continue
        try:
            yield at.name, manifest.load(state.Record, at.record, schema=state.SCHEMA, version=1, remedy="")
        except AdtError:
            yield at.name, None


def check_stale(names: Sequence[str]) -> Iterator[Check]:
    """One check for records that nothing stands behind."""
    if names:
        yield Check(
            Area.HOST,
            f"{NAME}: records",
            Status.WARNING,
            f"{', '.join(names)} is recorded as running but does not run",
            str(state.emulators_directory()),
            "adt doctor host --fix, or adt emulator list (both remove the record; /data and the log stay)",
            Fix(Action.REMOVE_RECORDS, tuple(names)),
        )


def questions() -> Iterator[Question]:
    """Prerequisites, then records."""

    def tried() -> Iterator[Check]:
        try:
            found = prerequisites.probe()
        except AdtError as why:
            yield Check(Area.HOST, NAME, Status.WARNING, why.what, remedy=why.remedy)
            return
        yield from check_prerequisites(found)

    yield Question(Area.HOST, NAME, tried)
    yield Question(Area.HOST, f"{NAME}: records", lambda: check_stale(stale()))
