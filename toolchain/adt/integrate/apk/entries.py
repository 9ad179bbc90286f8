"""What an APK consists of besides its manifest: libraries, model files, and the plan of what is measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from adt.bundle.bundle import ACTIVITY, TargetBundle
from adt.bundle.platforms import BIG_PAGE, PLATFORMS
from adt.errors import MismatchError
from adt.integrate.carried import LIBRARIES, carried, library_path
from adt.integrate.describe import Project

BENCH_PLAN = "assets/adt/bench.json"
"""What the app runs and how it measures; see :mod:`adt.integrate.bench_plan`."""
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
    """Every file of the app of *project*, sorted by name.

    Args:
        bench_plan: JSON for :data:`BENCH_PLAN`.

    Raises:
        MismatchError: a bundle is not for Android, or was built without the activity.
    """
    files = carried(project)
    for bundle in project.bundles:
        _check(bundle)
        for name in bundle.manifest.app_files:
            files[library_path(bundle.manifest.abi, name)] = bundle.file(name)
    entries = [
        ApkEntry(name, path, alignment=BIG_PAGE if name.startswith(LIBRARIES) else WORD)
        for name, path in files.items()
    ]
    plan = ApkEntry(BENCH_PLAN, bench_plan.encode())
    return tuple(sorted([plan, *entries], key=lambda entry: entry.name))


def _check(bundle: TargetBundle) -> None:
    facts = bundle.manifest
    platform = PLATFORMS.get(facts.platform)
    if platform is None or not platform.android:
        raise MismatchError(
            f"the bundle {bundle.path} is for {facts.platform}: an APK runs on Android only",
            remedy="Build one for Android: adt build-target --for android-arm64-v8a; on this platform, "
            "`adt bench` runs the package.",
        )
    if ACTIVITY not in facts.app_files:
        raise MismatchError(
            f"the bundle {bundle.path} has no {ACTIVITY}, which is the app of the APK",
            remedy=f"Build it again with this adt: adt build-target --for {facts.platform}",
        )
