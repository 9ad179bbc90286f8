"""Make the APK: link the manifest, write the archive, sign it, check it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from adt.host.android_sdk import ApkTools
from adt.host.cache import fresh_file
from adt.host.disk import scratch_directory
from adt.integrate.apk.archive import write_archive
from adt.integrate.apk.entries import ApkEntry
from adt.integrate.apk.keystore import Keystore
from adt.integrate.apk.manifest import link_manifest
from adt.integrate.apk.sign import check, sign


@dataclass(frozen=True)
class BuiltApk:
    """An APK on this machine."""

    path: Path
    size: int
    """Bytes."""
    schemes: tuple[str, ...]
    """Its signatures: ``v2``, ``v3``."""


def build_apk(
    manifest: str,
    entries: Sequence[ApkEntry],
    out: Path,
    *,
    min_sdk: int,
    tools: ApkTools,
    keystore: Keystore,
) -> BuiltApk:
    """Write the APK with *manifest* and *entries* to *out*, which appears complete and checked or not at all.

    The same contents, tools and key give the same bytes.

    Args:
        min_sdk: the manifest's.

    Raises:
        BuildError: a tool fails, or what it made cannot be installed.
        ConfigError: the keystore is not right.
        DiskError: *out* cannot be written.
    """
    with (
        fresh_file(out) as fresh,
        scratch_directory("apk", beside=out) as scratch,
    ):
        linked = link_manifest(manifest, tools, scratch)
        unsigned = scratch / "unsigned.apk"  # beside *out*: models may be larger than /tmp
        write_archive((*linked, *entries), unsigned)
        sign(unsigned, fresh, keystore, tools, min_sdk=min_sdk)
        return BuiltApk(out, fresh.stat().st_size, check(fresh, tools, min_sdk=min_sdk))
