"""The audit at the end of a build or a compile: what adt made itself must be better than merely loadable."""

from __future__ import annotations

import logging
from pathlib import Path, PurePosixPath

from adt.bundle.audit.auditing import audit
from adt.bundle.audit.binaries import collect
from adt.bundle.audit.destination import destination
from adt.bundle.audit.report import REFUSED, ElfReport, FileAudit, Finding, table
from adt.bundle.platforms import Platform
from adt.errors import AdtError
from adt.host.ndk import Ndk

log = logging.getLogger("adt.elf")

NEVER_MADE = frozenset(
    {"16-kb-pages", "absolute-runpath", "rpath", "bring-along", "unreachable", "api-level"}
)
"""Warnings about other people's files that are errors in what adt makes."""
PREBUILT = ("libc++_shared.so",)
"""Files of a bundle that come from the NDK as they are; no flag changes their pages."""


def audit_made(
    path: Path,
    platform: Platform,
    *,
    error: type[AdtError],
    api_level: int | None = None,
    ndk: Ndk | None = None,
    bundle: Path | None = None,
) -> ElfReport:
    """Audit *path*, just made for *platform* and used with the bundle in the directory *bundle*.

    Raises:
        AdtError: of class *error*, when it would not load or has what adt never makes;
            the whole table is in the details.
    """
    report = audit(
        collect(path),
        destination(platform, api_level=api_level, ndk=ndk),
        with_bundle=collect(bundle, kind="bundle") if bundle else (),
    )
    for file in report.files:
        for finding in file.findings:
            if _is_error(file, finding):
                raise error(
                    f"{file.name} is not fit for {platform.name}: {finding.what}",
                    remedy=f"{finding.remedy} Which compiler was used: run again with -v.",
                    details=table(report),
                )
    return report


def _is_error(file: FileAudit, finding: Finding) -> bool:
    if finding.code == "16-kb-pages" and PurePosixPath(file.name).name in PREBUILT:
        log.warning("%s: %s. A newer NDK has one with larger pages.", file.name, finding.what)
        return False
    return finding.verdict == REFUSED or finding.code in NEVER_MADE
