"""Obtain source trees of TVM, and of XNNPACK with the libraries that it uses.

TVM: the user's own, a cached one, upstream's tag, or a registry package, in that order; the answer says which
one gave the tree and why. XNNPACK: the user's own trees, cached ones, Debian's tarballs of pinned commits by
their sha256, and upstream's git at those commits for what Debian has no more. A digest names the contents.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tarfile import TarInfo

from adt.errors import DownloadError, SourceError
from adt.host import cache, download
from adt.host.contained import unpack_source
from adt.host.extras import install_command
from adt.host.process import run
from adt.options.sections import TvmSettings

log = logging.getLogger("adt.source")

GIT_URL = "https://github.com/apache/tvm"
SUBMODULES = ("3rdparty/tvm-ffi", "3rdparty/OpenCL-Headers")
"""Submodules that the runtime needs, of which a given version has some or all."""

SDIST = download.RegistryFile(
    project="tilelang",
    filename="tilelang-0.1.14.tar.gz",
    sha256="7ae0fba6c63dae80b3c9c5c11a70bb8d7165794994f290f36e2fe87bfb143cfc",
)
"""A source package that carries a TVM 0.25 tree, with tvm-ffi 0.1.11, in 3rdparty/tvm."""
SDIST_PREFIX = "tilelang-0.1.14/3rdparty/tvm/"
SDIST_KEEP = (
    "CMakeLists.txt", "LICENSE", "NOTICE", "README.md", "version.py", "apps/cpp_rpc/", "apps/android_rpc/",
    "cmake/", "include/", "jvm/", "licenses/", "src/", "3rdparty/OpenCL-Headers/", "3rdparty/compiler-rt/",
    "3rdparty/tvm-ffi/",
)  # fmt: skip
"""Parts of the tree that a runtime, the runner and the plugins need; the rest (350 MB) stays packed."""

_SUBMODULE = "it is a submodule: git submodule update --init --recursive"
NEEDED = {
    "CMakeLists.txt": "it is the build's entry",
    "include/tvm/runtime/tensor.h": "it declares the runtime's API",
    "3rdparty/tvm-ffi/CMakeLists.txt": _SUBMODULE,
    "3rdparty/tvm-ffi/3rdparty/dlpack/include/dlpack/dlpack.h": _SUBMODULE,
    "3rdparty/OpenCL-Headers/CL/cl.h": _SUBMODULE,
    "apps/cpp_rpc/main.cc": "it is the RPC server",
}
"""Files without which the cross-build fails much later, and what their absence means."""


@dataclass(frozen=True)
class TvmSource:
    """A TVM source tree on this machine."""

    path: Path
    provider: str
    """``path``, ``cache``, ``git`` or ``registry``."""
    reason: str
    """One sentence for people: why this provider."""
    version: str
    """Version the tree states, e.g. ``0.25.dev0``."""
    ffi_version: str
    digest: str


def wheel_version() -> str:
    """Return the version of the installed apache-tvm wheel, which the tree must match.

    It is in a directory's name: importlib.metadata takes a fifth of the time of a build with nothing to do.
    """
    for place in sys.path:
        for directory in Path(place).glob("apache_tvm-*.dist-info"):
            return directory.name.removesuffix(".dist-info").partition("-")[2]
    raise SourceError(
        "the apache-tvm wheel is not installed", remedy=install_command("apache-tvm", "apache-tvm-ffi")
    )


def find_source(settings: TvmSettings, *, environ: Mapping[str, str] = os.environ) -> TvmSource:
    """Walk the provider chain and return the first tree; SourceError if a named one, or every one, fails."""
    if settings.tvm_source:
        return _own_tree(Path(settings.tvm_source), "given with --tvm-source or the tvm.source setting")
    if home := environ.get("TVM_HOME"):
        return _own_tree(Path(home), "TVM_HOME names it")
    tag = f"v{wheel_version()}"
    selection = hashlib.sha256("\n".join(SDIST_KEEP).encode()).hexdigest()[:8]
    git_entry = f"tvm-source/git-{tag}"
    sdist_entry = f"tvm-source/registry-{SDIST.sha256[:12]}-{selection}"
    if settings.provider == "auto":
        for name, origin in ((git_entry, f"upstream's tag {tag}"), (sdist_entry, SDIST.filename)):
            if cached := cache.lookup(name):
                return _described(cached, "cache", f"it was obtained before, from {origin}")
    if settings.provider == "git" or (settings.provider == "auto" and git_reaches(tag)):
        path, reused = cache.entry(git_entry, lambda directory: _clone_tvm(tag, directory))
        return _described(path, "cache" if reused else "git", f"upstream's tag {tag}, as the installed wheel")
    path, reused = cache.entry(sdist_entry, _unpack_sdist)
    reason = f"{SDIST.filename} of the package index carries a tree for {tag}"
    if settings.provider == "auto" and not reused:
        reason += "; git does not reach upstream's tag from here"
    return _described(path, "cache" if reused else "registry", reason)


def git_reaches(tag: str) -> bool:
    """True if git is installed and upstream answers for *tag* within 10 s."""
    if shutil.which("git") is None:
        return False
    ask = ["git", "ls-remote", "--exit-code", GIT_URL, f"refs/tags/{tag}"]
    return run(ask, timeout=10, check=False).returncode == 0


def _own_tree(path: Path, reason: str) -> TvmSource:
    path = path.expanduser().absolute()
    if not path.is_dir():
        raise SourceError(
            f"TVM source {path} is not a directory ({reason})", remedy="Name TVM's root directory."
        )
    return _described(path, "path", reason)


def _described(path: Path, provider: str, reason: str) -> TvmSource:
    for name, meaning in NEEDED.items():
        if not (path / name).is_file():
            raise SourceError(
                f"{path} is no complete TVM source tree: {name} is missing ({meaning})",
                remedy="Name a complete tree, or leave --tvm-source and TVM_HOME out to let adt obtain one.",
            )
    digest = _own_digest(path) if provider == "path" else cache.contents_digest(path)
    return TvmSource(path, provider, reason, _tree_version(path), _ffi_version(path), digest)


def _own_digest(path: Path) -> str:
    """Hash what a build reads of the user's tree; read it again only when a name, size or time changed."""
    quick = cache.stat_digest(path)
    memory = cache.cache_dir() / "tvm-digests" / hashlib.sha256(str(path).encode()).hexdigest()[:16]
    if memory.is_file():
        digest, _, known = memory.read_text().partition(" ")
        if known == quick:
            return digest
    digest = cache.tree_digest(path, SDIST_KEEP)
    cache.write_text(memory, f"{digest} {quick}")
    return digest


def _tree_version(path: Path) -> str:
    header, script = _text(path / "include/tvm/runtime/base.h"), _text(path / "version.py")
    versions = re.findall(r'#define TVM_VERSION "([^"]+)"', header)
    versions += re.findall(r'__version__ = "([^"]+)"', script)
    return versions[0] if versions else "unknown"


def _ffi_version(path: Path) -> str:
    header = _text(path / "3rdparty/tvm-ffi/include/tvm/ffi/c_api.h")
    parts = dict(re.findall(r"#define TVM_FFI_VERSION_(MAJOR|MINOR|PATCH) (\d+)", header))
    return "{MAJOR}.{MINOR}.{PATCH}".format(**parts) if len(parts) == 3 else "unknown"


def _text(file: Path) -> str:
    return file.read_text(errors="replace") if file.is_file() else ""


def _clone_tvm(tag: str, directory: Path) -> None:
    log.info("cloning %s at %s", GIT_URL, tag)
    remedy = "Check the network, or use another source: --tvm-source PATH, or ADT_TVM_PROVIDER=registry."
    git = ["git", "-c", "advice.detachedHead=false"]
    clone = [*git, "clone", "--depth", "1", "--branch", tag, GIT_URL, str(directory)]
    run(clone, error=SourceError, what=f"cannot clone TVM at {tag}", remedy=remedy)
    listed = run([*git, "config", "-f", ".gitmodules", "--get-regexp", "path"], cwd=directory).stdout.split()
    submodules = [name for name in SUBMODULES if name in listed]
    update = [*git, "submodule", "update", "--init", "--recursive", "--depth", "1", *submodules]
    run(update, cwd=directory, error=SourceError, what="cannot get TVM's submodules", remedy=remedy)
    shutil.rmtree(directory / ".git")


def _unpack_sdist(directory: Path) -> None:
    def wanted(member: TarInfo) -> str:
        name = member.name.removeprefix(SDIST_PREFIX)
        return name if name != member.name and name.startswith(SDIST_KEEP) and not member.isdir() else ""

    archive = download.fetch(SDIST)
    log.info("unpacking the TVM part of %s", SDIST.filename)
    unpack_source(archive, directory, wanted)


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

    @property
    def version(self) -> str:
        """Debian's version of it."""
        return f"0.0~git{self.date}.{self.commit[:7]}"


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
    digest: str


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
    headers = [f"{tree.name}/{tree.header}" for tree in TREES]
    if missing := [header for header in headers if not (path / header).is_file()]:
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
        what = f"cannot fetch {tree.url}"
        run(["git", *command], cwd=directory, error=DownloadError, what=what, remedy=REMEDY)
    for name in (".git", *LEFT_OUT):
        shutil.rmtree(directory / name, ignore_errors=True)


def _fetch(tree: Tree) -> Path:
    tarball = f"{tree.name}_{tree.version}.orig.tar.xz"
    url = f"{POOL}/{tree.name[0]}/{tree.name}/{tarball}"

    def fetch(partial: Path) -> None:
        if not os.access(APT_HELPER, os.X_OK):
            raise DownloadError(f"there is no apt here to fetch Debian's {tarball}", remedy=REMEDY)
        command = [APT_HELPER, "download-file", url, str(partial), f"SHA256:{tree.sha256}"]
        what = f"could not download {url}"
        run(command, timeout=600, error=DownloadError, what=what, remedy=REMEDY)

    wrong = "It is not the file that was meant: do not use it."
    return cache.downloaded(tarball, tree.sha256, fetch, url, remedy=REMEDY, wrong=wrong)


def _unpack(tree: Tree, archive: Path, directory: Path) -> None:
    top = f"{tree.name}-{tree.version}/"

    def wanted(member: TarInfo) -> str:
        name = member.name.removeprefix("./").removeprefix(top)
        return name if member.isreg() and not name.startswith(LEFT_OUT) else ""

    directory.mkdir()
    unpack_source(archive, directory, wanted)
