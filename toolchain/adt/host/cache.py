"""The cache: things that can be made again, kept by content under one directory.

An entry is a directory that appears by one rename and carries a ``.complete`` stamp with the digest of its
contents, so a half-written or damaged entry is never used.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from adt.errors import AdtError, Busy, DownloadError, PackageError
from adt.host.contained import open_lock
from adt.host.directories import cache_dir as cache_dir
from adt.host.disk import disk_errors, temporary_name
from adt.host.reaper import reaped_path

log = logging.getLogger("adt.cache")

STAMP = ".complete"


@contextlib.contextmanager
def lock(path: Path, *, timeout: float = 3600.0) -> Iterator[None]:
    """Hold the file lock ``<path>.lock``, and say so if another process has it; Busy after *timeout*."""
    with disk_errors(f"locking {path}", path):
        handle = _acquired(path)
        if handle is None:
            log.info("waiting for another adt process that holds %s.lock", path)
            deadline = time.monotonic() + timeout
            while (handle := _acquired(path)) is None:
                if time.monotonic() >= deadline:
                    raise Busy(
                        f"another process has held {path}.lock for {timeout:g} s",
                        remedy="Wait for it to end, or end it; the lock goes with the process.",
                    )
                time.sleep(0.05)
    try:
        yield
    finally:
        os.close(handle)


def _acquired(path: Path) -> int | None:
    """Open and take the lock of *path*; None while another process has it, or when it was just removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(BlockingIOError, FileNotFoundError), contextlib.ExitStack() as stack:
        handle = open_lock(Path(f"{path}.lock"))
        stack.callback(os.close, handle)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(handle).st_nlink:
            stack.pop_all()
            return handle
    return None


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def downloaded(
    name: str, sha256: str, fetch: Callable[[Path], object], source: str, *, remedy: str, wrong: str
) -> Path:
    """Return the file *name* with this sha256 (64 lower-case hex digits), fetched if it is absent or damaged.

    Nothing is kept of other contents, no lock either. *fetch* writes the file to the given path; *source* is
    its address, for people; *remedy* helps where it cannot be fetched, *wrong* where its sha256 differs.
    """
    target = cache_dir() / "downloads" / sha256[:12] / name
    with lock(target):
        if target.is_file():
            if file_sha256(target) == sha256:
                return target
            log.warning("%s is damaged; downloading it again", target)
            target.unlink()
        partial = target.with_name(target.name + ".part")
        log.info("downloading %s", name)
        with reaped_path(partial):
            try:
                with disk_errors(f"downloading {name}", target):
                    fetch(partial)
                if (digest := file_sha256(partial)) != sha256:
                    raise DownloadError(f"{source} has sha256 {digest}, expected {sha256}", remedy=wrong)
                partial.replace(target)
            except AdtError:
                raise
            except Exception as error:  # requests, urllib3 and digest errors: all mean "not downloaded"
                raise DownloadError(f"could not download {source}: {error}", remedy=remedy) from error
            finally:
                partial.unlink(missing_ok=True)
                if not target.exists():
                    target.with_name(f"{name}.lock").unlink()  # who waits for it sees that it is gone
                    with contextlib.suppress(OSError):  # another file with these digits
                        target.parent.rmdir()
    return target


def tree_digest(root: Path, only: tuple[str, ...] = ("",)) -> str:
    """Hash names, kinds, executable bits and bytes of files below *root* with one of the prefixes *only*."""
    total = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if name == STAMP or not name.startswith(only) or (path.is_dir() and not path.is_symlink()):
            continue
        if path.is_symlink():
            row = f"l {name} {path.readlink()}"
        else:
            row = f"{'x' if os.access(path, os.X_OK) else 'f'} {name} {file_sha256(path)}"
        total.update(row.encode(errors="surrogateescape") + b"\n")
    return total.hexdigest()


def stat_digest(root: Path) -> str:
    """Hash names, sizes and times of every file below *root*: cheap, for "did it change?"."""
    total = hashlib.sha256()
    pending = [str(root)]
    while pending:
        with os.scandir(pending.pop()) as found:
            for item in sorted(found, key=lambda e: e.name):
                if item.is_dir(follow_symlinks=False):
                    if item.name not in (".git", "__pycache__"):
                        pending.append(item.path)
                elif item.name != STAMP:
                    stat = item.stat(follow_symlinks=False)
                    name = item.path[len(str(root)) :]
                    row = f"{name} {stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns}\n"
                    total.update(row.encode(errors="surrogateescape"))
    return total.hexdigest()


@contextlib.contextmanager
def _written(final: Path) -> Iterator[Path]:
    """Yield a temporary name beside *final*; what is left under it at the end of the block is removed."""
    temporary = temporary_name(final)
    with reaped_path(temporary):
        try:
            with disk_errors(f"writing {final}", final, temporary=temporary):
                temporary.parent.mkdir(parents=True, exist_ok=True)
                yield temporary
        finally:
            if temporary.is_dir() and not temporary.is_symlink():
                shutil.rmtree(temporary, ignore_errors=True)
            else:
                with contextlib.suppress(OSError):
                    temporary.unlink()


@contextlib.contextmanager
def fresh_dir(final: Path) -> Iterator[Path]:
    """Yield a temporary directory that takes the place of *final* when the block succeeds, and else goes."""
    with _written(final) as temporary:
        temporary.mkdir()
        yield temporary
        _put(temporary, final)


def _put(temporary: Path, final: Path) -> None:
    """Let the directory *temporary* be *final*; the old one, if any, is then *temporary*."""
    if not final.exists():
        temporary.rename(final)
        return
    import ctypes

    renameat2 = getattr(ctypes.CDLL(None), "renameat2", None)  # of glibc, from 2.28 on
    at_cwd, exchange = -100, 2  # of Linux's fcntl.h and fs.h
    paths = at_cwd, os.fsencode(temporary), at_cwd, os.fsencode(final)
    if renameat2 is None or renameat2(*paths, exchange):  # the file system cannot
        old = temporary.with_suffix(".old")
        final.rename(old)
        temporary.rename(final)
        old.rename(temporary)


@contextlib.contextmanager
def fresh_file(final: Path, *, durable: bool = False) -> Iterator[Path]:
    """Yield a temporary path that replaces *final* when the block succeeds, by then on disk if *durable*."""
    with _written(final) as temporary:
        yield temporary
        if durable:
            sync(temporary)
        temporary.replace(final)
        if durable:
            sync(temporary.parent)


def write_text(final: Path, text: str) -> None:
    """Write *text* to *final*, at once or not at all."""
    with fresh_file(final) as temporary:
        temporary.write_text(text, encoding="utf-8")


def sync(path: Path) -> None:
    """Bring the contents of a file, or the names in a directory, to the disk."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def leave_alone(final: Path, ours: Callable[[Path], bool], kind: str) -> None:
    """Refuse to write to *final* if something is there that is not *ours*, a *kind* ("a bundle")."""
    if final.is_dir():
        if any(final.iterdir()) and not ours(final):
            raise PackageError(
                f"{final} exists and is not {kind}; it was left alone",
                remedy="Choose another -o directory, or remove this one.",
            )
    elif final.exists():
        raise PackageError(f"{final} is a file", remedy="Choose another -o directory.")


def lookup(name: str) -> Path | None:
    """Return the cache entry *name* if it is there and whole; warn of a damaged one, which counts as absent.

    Names, sizes and change times decide; every byte is read again only when those differ.
    """
    final = cache_dir() / name
    stamp = final / STAMP
    if not stamp.is_file():
        return None
    contents, _, quick = stamp.read_text().strip().partition(" ")
    if stat_digest(final) == quick:
        return final
    if tree_digest(final) == contents:  # only touched or copied: remember the new times
        stamp.write_text(f"{contents} {stat_digest(final)}\n")
        return final
    log.warning("cache entry %s is damaged; making it again", final)
    stamp.unlink()
    return None


def entry(name: str, make: Callable[[Path], None]) -> tuple[Path, bool]:
    """Return the cache entry *name* and whether it existed; an absent or damaged one is made with *make*.

    The relative path *name* has everything that determines the content; *make* fills a fresh directory.
    """
    final = cache_dir() / name
    with lock(final):
        if lookup(name):
            return final, True
        with fresh_dir(final) as directory:
            make(directory)
            (directory / STAMP).write_text(f"{tree_digest(directory)} {stat_digest(directory)}\n")
    return final, False


def contents_digest(directory: Path) -> str:
    """Return the contents digest that :func:`entry` recorded for one of its directories."""
    return (directory / STAMP).read_text().split()[0]
