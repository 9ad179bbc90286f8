"""Packages that this user's adt compiled: their code may run on this machine without a question."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from adt.host.directories import data_dir
from adt.package.files import INSPECT
from adt.package.inspection.reference_kernels import PLAIN
from adt.package.manifest import PackageManifest

log = logging.getLogger("adt.compile")

NAME = "compiled-kernels.txt"
"""The file in adt's data directory: the sha256 of each package's kernels, one a line."""


def remember(manifest: PackageManifest) -> None:
    """Keep in mind that the package with *manifest* was compiled here; else it counts as another's."""
    if is_known(manifest):
        return
    try:
        _path().parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(_path(), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(
                descriptor, f"{_digest(manifest)}\n".encode()
            )  # at once: lines of several processes stay whole
        finally:
            os.close(descriptor)
    except OSError as error:
        log.debug("%s is not kept: %s", _path(), error)


def is_known(manifest: PackageManifest) -> bool:
    """Return True if the package has no kernels, or those of one that was compiled here."""
    digest = _digest(manifest)
    try:
        return not digest or digest in _path().read_text(errors="replace").split()
    except OSError:
        return False


def _path() -> Path:
    return data_dir() / NAME


def _digest(manifest: PackageManifest) -> str:
    facts = manifest.inspection.get(f"{INSPECT}/{PLAIN}")
    return facts.sha256 if facts else ""
