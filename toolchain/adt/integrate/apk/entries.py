"""Files of an APK besides its manifest, and a check that its libraries would load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from adt.bundle.audit.auditing import audit
from adt.bundle.audit.binaries import Binary, Unreadable
from adt.bundle.audit.destination import destination
from adt.bundle.audit.report import ElfReport, table
from adt.bundle.bundle import TargetBundle
from adt.bundle.platforms import BIG_PAGE, platform_named
from adt.errors import BuildError
from adt.host.ndk import Ndk
from adt.integrate.apk.stub_dex import CLASSES_DEX, stub_dex
from adt.integrate.bench_plan import BENCH_PLAN
from adt.integrate.contents import LIBRARIES, apk_files, benchmark_files
from adt.integrate.model_api import Project
from adt.package.files import PARAMS

WORD = 4
"""Bytes at which Android wants what it maps from an APK and is no library."""


@dataclass(frozen=True)
class ApkEntry:
    """One file of the APK, stored as it is, so that Android can map it."""

    name: str
    contents: Path | bytes
    alignment: int = WORD
    """Bytes: its place in the APK is a multiple of this."""


def apk_entries(project: Project, bench_plan: str) -> tuple[ApkEntry, ...]:
    """Return every file of the app of *project*, sorted by name."""
    files = apk_files(project) | benchmark_files(project)
    entries = [ApkEntry(name, path, _alignment(name)) for name, path in files.items()]
    made = [ApkEntry(BENCH_PLAN, bench_plan.encode()), ApkEntry(CLASSES_DEX, stub_dex())]
    return tuple(sorted([*made, *entries], key=lambda entry: entry.name))


def _alignment(name: str) -> int:
    """Return the alignment of a file: pages of libraries, and of parameters, are used where they lie."""
    return BIG_PAGE if name.startswith(LIBRARIES) or name.endswith(f"/{PARAMS}") else WORD


def audit_libraries(
    libraries: Sequence[Binary | Unreadable], bundle: TargetBundle, *, api_level: int, ndk: Ndk | None
) -> ElfReport:
    """Judge those of *libraries*, named as in the APK, that are for the ABI of *bundle*, from *api_level* on.

    Without an *ndk*, symbols of the system stay unchecked.
    """
    platform = platform_named(bundle.manifest.platform)
    judged = [library for library in libraries if library.name.startswith(f"{LIBRARIES}{platform.abi}/")]
    report = audit(judged, destination(platform, api_level=api_level, ndk=ndk))
    if report.refused:
        first = report.refused[0]
        raise BuildError(
            f"{first.name} would not load from the APK: {first.reasons[0].what}",
            remedy=first.reasons[0].remedy,
            details=table(report),
        )
    return report
