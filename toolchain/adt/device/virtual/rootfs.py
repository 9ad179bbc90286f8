"""The default arm64 userland: Debian's C and C++ libraries, mksh as Android's shell, toybox as its tools.

The tree has Android's shape where scripts look (``/system/bin/sh``, ``/vendor``,
``/sdcard``) and Debian's where programs link (``/lib/ld-linux-aarch64.so.1``). It is
made once, kept in the cache and mounted read-only.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from adt.device.virtual import packages, properties
from adt.errors import EmulatorError
from adt.host import cache, manifest, process

log = logging.getLogger("adt.virtual.rootfs")

FORMAT = 2
"""Raised whenever the tree that `make` builds from the same packages changes."""
SCHEMA = "adt.userland"
MANIFEST = "userland.json"
TREE = "root"

WANTED = ("libc6", "libgcc-s1", "libstdc++6", "libgomp1", "mksh", "toybox", "busybox-static")
"""What is asked for; apt adds what they depend on."""

KNOWN: dict[str, dict[str, str]] = {
    "bookworm": {
        "busybox-static": "1:1.35.0-4+deb12u1+b1",
        "gcc-12-base": "12.2.0-14+deb12u1",
        "libc6": "2.36-9+deb12u14",
        "libcrypt1": "1:4.4.33-2",
        "libgcc-s1": "12.2.0-14+deb12u1",
        "libgomp1": "12.2.0-14+deb12u1",
        "libstdc++6": "12.2.0-14+deb12u1",
        "mksh": "59c-28+deb12u1",
        "toybox": "0.8.9+dfsg-1",
    },
    "trixie": {
        "busybox-static": "1:1.37.0-6+b9",
        "gcc-14-base": "14.2.0-19",
        "libc6": "2.41-12+deb13u4",
        "libcrypt1": "1:4.4.38-1",
        "libgcc-s1": "14.2.0-19",
        "libgomp1": "14.2.0-19",
        "libstdc++6": "14.2.0-19",
        "mksh": "59c-41+b2",
        "toybox": "0.8.9+dfsg-1.1",
    },
}
"""The versions that were tried, by release of the distribution."""

BUSYBOX_APPLETS = (
    *("awk", "dd", "diff", "expr", "find", "getopt", "gzip", "hexdump", "ip", "less", "more"),
    *("stty", "tr", "unzip", "vi", "which"),
)
"""Programs that Android has and Debian's toybox leaves out (where it has one, toybox's is taken)."""

SHELLS = ("usr/lib/aarch64-linux-musl/bin/mksh", "usr/bin/mksh-static", "usr/bin/mksh")
"""Where mksh lies, the static build first."""


@dataclass(frozen=True)
class Userland:
    """What a userland in the cache was made of."""

    schema: str
    schema_version: int
    release: str
    packages: tuple[packages.Package, ...]


def release() -> str:
    """The host's release, such as ``debian bookworm``; part of the cache key."""
    fields = packages.os_release()
    return f"{fields.get('ID', 'unknown')} {fields.get('VERSION_CODENAME', 'unknown')}"


def known_versions() -> dict[str, str]:
    """The tried versions for this host's release; empty for a release that was not tried."""
    return KNOWN.get(packages.os_release().get("VERSION_CODENAME", ""), {})


def key() -> str:
    """Everything that decides what the userland holds, as a short digest."""
    decided = [
        FORMAT,
        WANTED,
        BUSYBOX_APPLETS,
        sorted(known_versions().items()),
        release(),
        os.environ.get(packages.VARIABLE, ""),
    ]
    return hashlib.sha256(json.dumps(decided).encode()).hexdigest()[:16]


def ensure(interpreter: Path | None) -> Path:
    """The default userland's tree, made when the cache has none or a damaged one.

    Args:
        interpreter: static qemu-aarch64; None when this machine runs arm64 programs itself.

    Raises:
        DownloadError: the packages cannot be fetched.
        ToolNotFound: apt or dpkg is missing.
        EmulatorError: the packages do not hold what they should.
        DiskError: the cache cannot be written.
    """
    entry, there = cache.entry(f"virtual-device/userland-{key()}", lambda into: make(into, interpreter))
    if there:
        log.debug("arm64 userland from the cache: %s", entry)
    return entry / TREE


def make(into: Path, interpreter: Path | None) -> None:
    """Fetch the packages and build the tree and its manifest in the directory *into*."""
    log.info("fetching the arm64 userland for the virtual device (about 20 MB, once)")
    known = known_versions()
    if not known:
        log.info("adt was not tried with the arm64 packages of %s; its newest ones are taken", release())
    # mkdtemp makes the directory for us alone
    with tempfile.TemporaryDirectory(prefix=".apt-", dir=into.parent) as work:
        apt = packages.PrivateApt(Path(work, "apt"), packages.host_sources())
        apt.update()
        archives = apt.download(WANTED, known)
        unpacked = Path(work, "unpacked")
        for archive in archives:
            packages.unpack(archive, unpacked)
        arrange(unpacked, into / TREE, interpreter)
        taken = tuple(packages.describe(archive) for archive in archives)
    manifest.write(Userland(SCHEMA, 1, release(), taken), into / MANIFEST)
    log.info("arm64 userland: %s", ", ".join(f"{package.name} {package.version}" for package in taken))


def merge_usr(tree: Path) -> None:
    """Move /bin, /sbin and /lib of packages from before the merge into /usr."""
    for top in ("bin", "sbin", "lib"):
        old = tree / top
        if old.is_dir() and not old.is_symlink():
            shutil.copytree(old, tree / "usr" / top, symlinks=True, dirs_exist_ok=True)
            shutil.rmtree(old)


def arrange(unpacked: Path, tree: Path, interpreter: Path | None) -> None:
    """Build the device's tree from unpacked packages.

    Raises:
        EmulatorError: no shell, no toybox or no C library is among them.
    """
    merge_usr(unpacked)
    programs, libraries = tree / "system/bin", tree / "usr/lib"
    for directory in ("system/bin", "system/lib64", "system/etc", "vendor/bin", "vendor/lib64", "etc", "usr"):
        (tree / directory).mkdir(parents=True)
    multiarch = "aarch64-linux-gnu"
    shutil.copytree(
        unpacked / "usr/lib" / multiarch,
        libraries / multiarch,
        symlinks=True,
        ignore=shutil.ignore_patterns("gconv", "audit", "pkgconfig", "*.py"),
    )
    loader = "ld-linux-aarch64.so.1"
    (libraries / loader).symlink_to(f"{multiarch}/{loader}")
    if not (libraries / multiarch / loader).is_file():
        raise missing(loader)
    shell = next((unpacked / path for path in SHELLS if (unpacked / path).is_file()), None)
    if shell is None:
        raise missing("mksh")
    shutil.copy(shell, programs / "sh")
    for program in ("toybox", "busybox"):
        if not (unpacked / "usr/bin" / program).is_file():
            raise missing(program)
        shutil.copy(unpacked / "usr/bin" / program, programs / program)
    (tree / "lib").symlink_to("usr/lib")
    (tree / "bin").symlink_to("system/bin")
    (tree / "usr/bin").symlink_to("../system/bin")
    (tree / "sdcard").symlink_to("/data/media/0")
    (tree / "etc/passwd").write_text("root:x:0:0:root:/data:/system/bin/sh\n")
    (tree / "etc/group").write_text("root:x:0:\n")
    (tree / "etc/hosts").write_text("127.0.0.1 localhost\n")
    (tree / "system/build.prop").write_text(
        properties.text({"ro.adt.virtual": "1", "ro.adt.notice": properties.NOTICE})
    )
    for script in properties.SCRIPTS:
        (programs / script).symlink_to(f"{properties.TOOLS}/{script}")
    link_applets(tree, programs, interpreter)


def link_applets(tree: Path, programs: Path, interpreter: Path | None) -> None:
    """Link every program that toybox says it is, and what busybox adds, unless the name is taken.

    Raises:
        EmulatorError: toybox does not run.
    """
    loader = tree / "usr/lib/ld-linux-aarch64.so.1"
    libraries = tree / "usr/lib/aarch64-linux-gnu"
    argv: list[str | Path] = [loader, "--library-path", libraries, programs / "toybox"]
    if interpreter:
        argv = [interpreter, "-L", tree, programs / "toybox"]
    listed = process.run(
        argv,
        error=EmulatorError,
        what="the arm64 toybox does not run",
        remedy="Check `qemu-aarch64-static --version`; it must be 7.0 or newer.",
    )
    for applet in (*listed.stdout.split(), *BUSYBOX_APPLETS):
        link = programs / applet
        if not os.path.lexists(link):
            link.symlink_to("toybox" if applet in listed.stdout.split() else "busybox")


def missing(what: str) -> EmulatorError:
    """The packages do not hold *what*."""
    return EmulatorError(
        f"the arm64 packages of {release()} hold no {what}",
        remedy=f"Set {packages.VARIABLE} to a source of Debian 12 (bookworm), or give --rootfs DIR.",
    )


def check_own(tree: Path) -> Path:
    """A userland that the user gives: the tree itself, once it is seen to have a shell.

    Raises:
        EmulatorError: it does not look like one.
    """
    tree = tree.expanduser().resolve()
    shell = tree / "system/bin/sh"
    if not os.path.lexists(shell):
        raise EmulatorError(
            f"{tree} is not an arm64 userland: it has no system/bin/sh",
            remedy="Give the directory that holds Android's /system tree (and /apex where there is one), "
            "or leave --rootfs away for the default userland.",
        )
    return tree


def runs_natively() -> bool:
    """Whether this machine's own processor runs arm64 programs."""
    return platform.machine() == "aarch64"
