"""Packages of npm, by its own client; nothing of them is installed or run by it."""

import hashlib
import shutil
from pathlib import Path

from support.devices.programs import run_program


def npm_archive(package: str, sha256: str, directory: Path) -> Path:
    """Download *package* (``name@version``) to *directory*; its bytes are pinned."""
    npm = shutil.which("npm")
    assert npm, "the tests need npm: apt-get install npm"
    run_program(npm, "pack", "--silent", "--pack-destination", directory, package)
    (archive,) = directory.glob("*.tgz")
    with archive.open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == sha256, f"{package} is another file"
    return archive
