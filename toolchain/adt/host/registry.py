"""Fetch a file of a Python package index by its sha256, never by its name alone."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from adt.errors import DownloadError
from adt.host.cache import downloaded
from adt.host.process import run

if TYPE_CHECKING:
    from pypi_simple import PyPISimple


@dataclass(frozen=True)
class RegistryFile:
    """One file of one release in the package index, pinned."""

    project: str
    """Name of the project in the index."""
    filename: str
    """Name of the file, as the index lists it."""
    sha256: str
    """The only contents we accept, in hex."""


def pip_setting(name: str) -> str | None:
    """What pip is set up with: its ``PIP_<NAME>`` variable, then its configuration files, else None."""
    if value := os.environ.get("PIP_" + name.upper().replace("-", "_")):
        return value
    answer = run([sys.executable, "-m", "pip", "config", "get", f"global.{name}"], check=False)
    return answer.stdout.strip() or None


def open_index() -> PyPISimple:
    """A client of the index that pip would use here, trusting the certificates that pip trusts."""
    from pypi_simple import PyPISimple

    url = pip_setting("index-url")
    index = PyPISimple(endpoint=url) if url else PyPISimple()
    if certificates := pip_setting("cert"):
        index.s.verify = certificates
    return index


def fetch(file: RegistryFile) -> Path:
    """Return the local copy of *file*, downloading it when it is absent or damaged.

    Raises:
        DownloadError: the index cannot be reached, does not list the file, or its bytes differ.
    """

    def download(partial: Path) -> None:
        with open_index() as index:
            page = index.get_project_page(file.project, timeout=60)
            listed = next((p for p in page.packages if p.filename == file.filename), None)
            if listed is None:
                raise DownloadError(
                    f"the package index does not list {file.filename}",
                    remedy="Check which index pip uses (`pip config list`); it must carry it.",
                )
            # Not verified against the index's own digest: ours is the one that counts.
            index.download_package(listed, partial, verify=False, timeout=60)

    return downloaded(
        file.filename,
        file.sha256,
        download,
        not_had=lambda reason: DownloadError(
            f"could not download {file.filename}: {reason}",
            remedy="Check the network and pip's index (`pip config list`), then run this again.",
        ),
        differs=lambda found: DownloadError(
            f"{file.filename} has sha256 {found}, expected {file.sha256}",
            remedy="The index serves another file under this name: do not use it; check the index.",
        ),
    )
