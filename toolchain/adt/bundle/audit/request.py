"""Request of an audit: paths, and the destination that they are judged for by default."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from pathlib import Path

from adt.bundle.audit.auditing import audit
from adt.bundle.audit.binaries import collect
from adt.bundle.audit.destination import ANDROID, Destination, destination, own_directories
from adt.bundle.audit.report import ElfReport
from adt.bundle.bundle import MANIFEST, load_bundle
from adt.bundle.platforms import platform_named
from adt.errors import MismatchError, NdkError
from adt.host.contained import read_contained
from adt.host.ndk import Ndk, find_ndk
from adt.limits import parse_json
from adt.options.sections import BuildSettings

log = logging.getLogger("adt.elf")

PACKAGE_MANIFEST = "mod.json"
"""Marks a ModelPackage; only its platform is read here."""
ANDROID_ARCHIVES = (".aar", ".apk")
"""Archives whose content is for Android, whatever it was built for."""


def audit_paths(
    paths: Sequence[Path],
    *,
    platform: str | None,
    api_level: int | None,
    settings: BuildSettings,
    bundle: Path | None = None,
) -> ElfReport:
    """Audit all *paths* as one set, whose files answer for one another.

    Args:
        settings: which NDK to look at, and the API level of files that do not say theirs.

    Raises:
        MismatchError: they were made for different platforms and none was chosen.
    """
    made_for = dict(filter(None, map(_made_for, (*paths, *([bundle] if bundle else [])))))
    platforms = dict(made_for.values())
    if platform is None and len(platforms) > 1:
        raise MismatchError(
            f"these were made for different platforms: {', '.join(platforms)}",
            remedy="Audit them apart, or choose one with --for.",
        )
    name = platform or next(iter(platforms), None)
    ndk = audit_ndk(settings.ndk)
    if name is None:
        system = ANDROID if all(path.suffix in ANDROID_ARCHIVES for path in paths) else ""
        audited = Destination(system=system, api_level=api_level, ndk=ndk, directories=own_directories())
    else:
        chosen = platform_named(name)
        audited = destination(chosen, api_level=api_level or platforms.get(name), ndk=ndk)
    files = [file for path in paths for file in collect(path, prefix=_prefix(path) if paths[1:] else "")]
    return audit(
        files,
        dataclasses.replace(audited, default_api_level=settings.api_level),
        with_bundle=collect(bundle, kind="bundle") if bundle else (),
    )


def _prefix(path: Path) -> str:
    """Return the prefix that tells the files below *path* from those of the other paths."""
    return f"{path.name}/" if path.is_dir() else f"{path.name}!"


def _made_for(path: Path) -> tuple[Path, tuple[str, int | None]] | None:
    """Platform and API level of a bundle or package, None for anything else."""
    if (path / MANIFEST).is_file():
        bundle = load_bundle(path, check_hashes=False).manifest
        return path, (bundle.platform, bundle.api_level)
    if (path / PACKAGE_MANIFEST).is_file():
        try:
            facts = parse_json(read_contained(path, PACKAGE_MANIFEST))
            return path, (str(facts["target"]["platform"]), None)
        except (ValueError, KeyError, TypeError, OSError):
            log.warning("%s is damaged: its files are judged by what they say", path / PACKAGE_MANIFEST)
    return None


def audit_ndk(explicit: str) -> Ndk | None:
    """The NDK that is named, which must be right, else one that is found, else none."""
    if explicit:
        return find_ndk(explicit)
    try:
        return find_ndk()
    except NdkError as error:
        log.debug("no NDK: %s", error.what)
        return None
