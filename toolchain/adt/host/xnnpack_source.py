"""Obtain the source of XNNPACK, for bundles with it, and of the three libraries that it uses.

The user's own trees, cached ones, Debian's tarballs of pinned commits by their sha256, and upstream's
git at those commits for what Debian has no more, in that order.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from tarfile import TarInfo

from adt.errors import DownloadError, SourceError
from adt.host import cache
from adt.host.contained import unpack_source
from adt.host.process import run

log = logging.getLogger("adt.source")

POOL = "http://deb.debian.org/debian/pool/main"
APT_HELPER = "/usr/lib/apt/apt-helper"
"""Program of apt's for one file, with apt's proxies."""
LEFT_OUT = ("test/", "bench/", "doc/", "models/", "jni/", "examples/")
REMEDY = "Check the network, or name a directory with the four source trees: --xnnpack-source DIR."


@dataclass(frozen=True)
class Tree:
    name: str
    """Name of its directory, and of Debian's package."""
    url: str
    """Address of upstream's git repository."""
    commit: str
    date: str
    """As Debian's version has it."""
    sha256: str
    """Digest (sha256) of Debian's tarball."""
    header: str
    """A file that every such tree has."""

    @property
    def tarball(self) -> str:
        """Name of Debian's file."""
        return f"{self.name}_0.0~git{self.date}.{self.commit[:7]}.orig.tar.xz"


TREES = (
    Tree(
        "xnnpack",
        "https://github.com/google/XNNPACK",
        "4ea82e595b36106653175dcb04b2aa532660d0d8",
        "20241108",
        "90bde2caef0f880f627bab0dc805a86c4b8070cd98e3243db3046ab3f3be1a99",
        "include/xnnpack.h",
    ),
    Tree(
        "pthreadpool",
        "https://github.com/google/pthreadpool",
        "560c60d342a76076f0557a3946924c6478470044",
        "20240616",
        "4cc3cbd933b28131d2a34edc54f76af9fb41bc490af5eae1a5bd3cd07ea90708",
        "include/pthreadpool.h",
    ),
    Tree(
        "fxdiv",
        "https://github.com/Maratyszcza/FXdiv",
        "b408327ac2a15ec3e43352421954f5b1967701d1",
        "20200417",
        "7953482badaf4cb34026c3487c257b8e4ab2df061c019bd6fabbbc12ad52c44b",
        "include/fxdiv.h",
    ),
    Tree(
        "cpuinfo",
        "https://github.com/pytorch/cpuinfo",
        "877328f188a3c7d1fa855871a278eb48d530c4c0",
        "20250905",
        "557ca404a3836b9f335a3a06b65ff9fe9dbaaefab7fb5c0185f53d9f33615a10",
        "include/cpuinfo.h",
    ),
)


@dataclass(frozen=True)
class XnnpackSource:
    """The four trees, side by side in one directory."""

    path: Path
    reason: str
    """Description of where they came from."""
    digest: str
    """Digest (sha256) that names the contents."""


def find_xnnpack(own: str) -> XnnpackSource:
    """Find the source trees in the user's directory *own*, or obtain the pinned ones."""
    if own:
        path = Path(own).expanduser().absolute()
        _check(path)
        return XnnpackSource(path, "given with --xnnpack-source", cache.tree_digest(path))
    path, reused = cache.entry(_entry(), _obtain)
    reason = "obtained before" if reused else "Debian's tarballs or upstream's git"
    return XnnpackSource(path, reason, cache.contents_digest(path))


def cached_xnnpack() -> Path | None:
    """Return the pinned trees on this machine, if they were obtained before."""
    return cache.lookup(_entry())


def _entry() -> str:
    pins = hashlib.sha256(repr((TREES, LEFT_OUT)).encode()).hexdigest()
    return f"xnnpack-source/{pins[:12]}"


def _check(path: Path) -> None:
    missing = [
        f"{tree.name}/{tree.header}" for tree in TREES if not (path / tree.name / tree.header).is_file()
    ]
    if missing:
        raise SourceError(
            f"{path} is no directory of XNNPACK's source: it lacks {', '.join(missing)}",
            remedy=f"It needs the trees {', '.join(tree.name for tree in TREES)}; or leave it away.",
        )


def _obtain(directory: Path) -> None:
    for tree in TREES:
        try:
            archive = _fetch(tree)
        except DownloadError as error:
            if shutil.which("git") is None:
                raise
            log.info("%s; asking upstream's git", error.what)
            _clone(tree, directory / tree.name)
        else:
            _unpack(tree, archive, directory / tree.name)
    _check(directory)


def _clone(tree: Tree, directory: Path) -> None:
    log.info("fetching %s at %s", tree.url, tree.commit[:12])
    directory.mkdir()
    for command in (
        ["init", "-q"],
        ["fetch", "-q", "--depth", "1", tree.url, tree.commit],  # a commit's name is its contents' digest
        ["-c", "advice.detachedHead=false", "checkout", "-q", "FETCH_HEAD"],
    ):
        run(
            ["git", *command],
            cwd=directory,
            error=DownloadError,
            what=f"cannot fetch {tree.url}",
            remedy=REMEDY,
        )
    for name in (".git", *LEFT_OUT):
        shutil.rmtree(directory / name, ignore_errors=True)


def _fetch(tree: Tree) -> Path:
    url = f"{POOL}/{tree.name[0]}/{tree.name}/{tree.tarball}"

    def fetch(partial: Path) -> None:
        if not os.access(APT_HELPER, os.X_OK):
            raise DownloadError(f"there is no apt here to fetch Debian's {tree.tarball}", remedy=REMEDY)
        run(
            [APT_HELPER, "download-file", url, partial, f"SHA256:{tree.sha256}"],
            timeout=600,
            error=DownloadError,
            what=f"could not download {url}",
            remedy=REMEDY,
        )

    wrong = "It is not the file that was meant: do not use it."
    return cache.downloaded(tree.tarball, tree.sha256, fetch, url, remedy=REMEDY, wrong=wrong)


def _unpack(tree: Tree, archive: Path, directory: Path) -> None:
    top = f"{tree.name}-0.0~git{tree.date}.{tree.commit[:7]}/"

    def wanted(member: TarInfo) -> str:
        name = member.name.removeprefix("./").removeprefix(top)
        return name if member.isreg() and not name.startswith(LEFT_OUT) else ""

    directory.mkdir()
    unpack_source(archive, directory, wanted)
