"""Packages of npm, by its own client; nothing of them is installed or run by it."""

import hashlib
import shutil
import subprocess
from pathlib import Path


def npm_archive(package: str, sha256: str, directory: Path) -> Path:
    """Download *package* (``name@version``) to *directory*; its bytes are pinned."""
    npm = shutil.which("npm")
    assert npm, "the tests need npm: apt-get install npm"
    done = subprocess.run(
        [npm, "pack", "--silent", "--pack-destination", directory, package],
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    (archive,) = directory.glob("*.tgz")
    with archive.open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == sha256, f"{package} is another file"
    return archive
