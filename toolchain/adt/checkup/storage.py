"""The cache directory: room, access, and entries that were changed or left behind."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from adt.bundle.bundle import load_bundle
from adt.checkup.check import Action, Check, Fix, Question, failed, ok, warning
from adt.errors import AdtError
from adt.host import cache
from adt.host.disk import size_text

NAME = "cache"
COMFORTABLE = 2 << 30
"""Bytes: TVM's source, one build and the virtual device's userland fit in this."""
NEEDED = 200 << 20
"""Bytes: below this the next step fails."""
DEPTH = 3
"""Directories below the cache in which an entry can lie."""
SIZE_SECONDS = 5.0
"""Budget for adding up sizes; of a larger cache the sum so far is shown, with "at least"."""
LEFTOVER_AGE = 24 * 3600.0
"""Seconds: what is on its way for longer than this was left by a process that was killed."""
LEFTOVER = re.compile(r"\..+\.[0-9a-f]{12}\.(tmp|old)|.+\.part")


def check_place(directory: Path, writable: str, free: int) -> Check:
    """Judge where the cache lies; *writable* says why nothing can be written there, *free* is in bytes."""
    origin = "ADT_CACHE_DIR" if os.environ.get("ADT_CACHE_DIR") else "default; ADT_CACHE_DIR chooses another"
    name = f"{NAME} directory"
    elsewhere = "Set ADT_CACHE_DIR to a directory that is writable and has room."
    if writable:
        return failed(name, f"{directory} cannot be written: {writable}", origin, elsewhere)
    room = f"{directory}, {size_text(free)} free"
    if free < NEEDED:
        return failed(name, f"{room}: too little for anything", origin, elsewhere)
    if free < COMFORTABLE:
        scarce = f"{room}; a first build with all it needs takes up to {size_text(COMFORTABLE)}"
        return warning(name, scarce, origin, elsewhere)
    return ok(name, room, origin)


def check_contents(root: Path) -> Iterator[Check]:
    """Judge names, sizes and times in the cache; reads no contents but stamps and manifests."""
    size, whole = _size(root)
    directories = [path for path in _directories(root) if not path.name.startswith(".")]
    entries = [path for path in directories if (path / cache.STAMP).is_file()]
    bundles = sorted(path.parent for path in (root / "bundles").glob("*/bundle.json"))
    counted = f"{size_text(size)} in {len(entries)} entries and {len(bundles)} bundles"
    origin = "names, sizes and times, not every byte"
    yield ok(f"{NAME} contents", counted if whole else f"at least {counted}", origin)
    command = "adt doctor host --fix"
    changed = "changed since it was made; if its bytes differ, adt makes it again when it is needed"
    for name in (path.relative_to(root).as_posix() for path in entries if _changed(path)):
        remedy = f"{command}   (reads every byte; removes it only if it is damaged)"
        yield warning(f"{NAME} entry {name}", changed, "", remedy, Fix(Action.DROP_ENTRY, (name,)))
    for bundle in bundles:
        if problem := _bundle_problem(bundle):
            remedy = f"{command}   (removes it; `adt build-target` packs it again)"
            fix = Fix(Action.DROP_BUNDLE, (bundle.name,))
            yield warning(f"bundle {bundle.name}", problem, "", remedy, fix)
    if leftovers := tuple(path.relative_to(root).as_posix() for path in _leftovers(root)):
        shown = ", ".join(leftovers[:3]) + ", …" * (len(leftovers) > 3)
        problem = f"{len(leftovers)} left by processes that were killed: {shown}"
        yield warning(f"{NAME} leftovers", problem, "", command, Fix(Action.DROP_LEFTOVER, leftovers))


def _size(root: Path) -> tuple[int, bool]:
    """Sum the bytes on disk below *root*, each hard-linked file once; False if time was over before."""
    end, total, pending, seen = time.monotonic() + SIZE_SECONDS, 0, [str(root)], set()
    while pending:
        if time.monotonic() > end:
            return total, False
        with contextlib.suppress(OSError), os.scandir(pending.pop()) as entries:
            for item in entries:
                if item.is_dir(follow_symlinks=False):
                    pending.append(item.path)
                    continue
                facts = item.stat(follow_symlinks=False)
                if facts.st_nlink > 1:
                    if (facts.st_dev, facts.st_ino) in seen:
                        continue
                    seen.add((facts.st_dev, facts.st_ino))
                total += facts.st_blocks * 512
    return total, True


def _directories(root: Path, depth: int = DEPTH) -> Iterator[Path]:
    """Yield directories down to *depth*, without looking into entries."""
    inside: list[Path] = []
    with contextlib.suppress(OSError):
        inside = sorted(path for path in root.iterdir() if path.is_dir() and not path.is_symlink())
    for path in inside:
        yield path
        if depth > 1 and not (path / cache.STAMP).is_file():
            yield from _directories(path, depth - 1)


def _changed(entry: Path) -> bool:
    try:
        quick = (entry / cache.STAMP).read_text().strip().partition(" ")[2]
        return cache.stat_digest(entry) != quick
    except OSError:
        return True


def _bundle_problem(path: Path) -> str:
    try:
        bundle = load_bundle(path, check_hashes=False)
    except AdtError as error:
        return error.what
    for name, facts in bundle.manifest.files.items():
        if (size := bundle.file(name).stat().st_size) != facts.size:
            return f"{name} has {size} bytes instead of {facts.size}"
    return ""


def _leftovers(root: Path) -> Iterator[Path]:
    oldest = time.time() - LEFTOVER_AGE
    for directory in (root, *_directories(root)):
        with contextlib.suppress(OSError):
            for path in sorted(directory.iterdir()):
                if not LEFTOVER.fullmatch(path.name):
                    continue
                facts = path.lstat()
                if facts.st_mtime < oldest and (stat.S_ISREG(facts.st_mode) or stat.S_ISDIR(facts.st_mode)):
                    yield path


def not_writable(directory: Path) -> str:
    """Return why no file can be made in *directory* (or in its parent to be); empty when one can."""
    place = next(path for path in (directory, *directory.parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=place):
            return ""
    except OSError as error:
        return error.strerror or str(error)


def questions() -> Iterator[Question]:
    """Yield the questions about the cache: where it is, and what is in it."""
    root = cache.cache_dir()

    def place() -> Iterator[Check]:
        existing = next(path for path in (root, *root.parents) if path.exists())
        yield check_place(root, not_writable(root), shutil.disk_usage(existing).free)

    yield Question(f"{NAME} directory", place)
    yield Question(f"{NAME} contents", lambda: check_contents(root) if root.is_dir() else ())
