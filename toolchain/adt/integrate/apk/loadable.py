"""Whether the libraries of an APK would load: those of one ABI together, as the app's process has them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

from adt.bundle.audit.auditing import audit
from adt.bundle.audit.binaries import Binary, Unreadable, collect
from adt.bundle.audit.destination import destination
from adt.bundle.audit.report import ElfReport
from adt.bundle.audit.table import table
from adt.bundle.bundle import TargetBundle
from adt.bundle.platforms import platform_named
from adt.errors import BuildError
from adt.host.ndk import Ndk
from adt.integrate.apk.entries import ApkEntry


def audit_libraries(
    entries: Sequence[ApkEntry], bundle: TargetBundle, *, api_level: int, ndk: Ndk | None
) -> ElfReport:
    """Judge those of *entries* that are for the ABI of *bundle*.

    Args:
        api_level: the lowest that the app runs on.
        ndk: has the system's symbols; None: they stay unchecked.

    Raises:
        BuildError: one of them would not load.
    """
    platform = platform_named(bundle.manifest.platform)
    report = audit(_binaries(entries, platform.abi), destination(platform, api_level=api_level, ndk=ndk))
    if report.refused:
        first = report.refused[0]
        raise BuildError(
            f"{first.name} would not load from the APK: {first.reasons[0].what}",
            remedy=first.reasons[0].remedy,
            details=table(report),
        )
    return report


def _binaries(entries: Sequence[ApkEntry], abi: str) -> Iterator[Binary | Unreadable]:
    """The libraries, by the names that they have in the APK."""
    for entry in entries:
        if entry.name.startswith(f"lib/{abi}/") and isinstance(entry.contents, Path):
            for found in collect(entry.contents):
                if isinstance(found, Binary):
                    yield dataclasses.replace(found, name=entry.name, place=entry.name)
                else:
                    yield dataclasses.replace(found, name=entry.name)
