"""The default userland: Debian's C and C++ libraries, mksh as Android's shell, toybox as its tools.

The tree has Android's shape where scripts look (``/system/bin/sh``, ``/vendor``,
``/sdcard``) and Debian's where programs link (``/lib/ld-linux-aarch64.so.1``). There is
one for each processor, with OpenCL or without; each is made once, kept in the cache
and mounted read-only.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from dataclasses import dataclass
from pathlib import Path

from adt.host import cache, manifest
from adt.host.disk import scratch_directory
from adt.virtual import arrange, packages
from adt.virtual.abis import ARM64, Abi

log = logging.getLogger("adt.virtual.rootfs")

FORMAT = 4
"""Raised whenever the tree that `make` builds from the same packages changes."""
SCHEMA = "adt.userland"
MANIFEST = "userland.json"
TREE = "root"
DOWNLOAD, OPENCL_DOWNLOAD = 20, 150
"""Megabytes that are fetched, roughly."""

WANTED = ("libc6", "libgcc-s1", "libstdc++6", "libgomp1", "mksh", "toybox", "busybox-static")
"""What is asked for; apt adds what they depend on."""
OPENCL = ("ocl-icd-libopencl1", "pocl-opencl-icd")
"""What is asked for besides to have OpenCL: the loader and PoCL, which computes on the processor."""

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

KNOWN_OPENCL: dict[str, dict[str, str]] = {
    "bookworm": {
        "clang-15": "1:15.0.6-4+b1",
        "libclang-cpp15": "1:15.0.6-4+b1",
        "libllvm15": "1:15.0.6-4+b1",
        "libpocl2": "3.1-3+deb12u1",
        "libpocl2-common": "3.1-3+deb12u1",
        "ocl-icd-libopencl1": "2.3.1-1",
        "pocl-opencl-icd": "3.1-3+deb12u1",
    },
}
"""The same for what OpenCL needs besides."""


@dataclass(frozen=True)
class Userland:
    """What a userland in the cache was made of."""

    schema: str
    schema_version: int
    release: str
    packages: tuple[packages.Package, ...]


def known_versions(*, opencl: bool) -> dict[str, str]:
    """The tried versions for this host's release; empty for a release that was not tried."""
    codename = packages.os_release().get("VERSION_CODENAME", "")
    return KNOWN.get(codename, {}) | (KNOWN_OPENCL.get(codename, {}) if opencl else {})


def wanted(*, opencl: bool) -> tuple[str, ...]:
    """The packages to ask for."""
    return (*WANTED, *(OPENCL if opencl else ()))


def key(abi: Abi, *, opencl: bool) -> str:
    """Everything that decides what the userland holds, as a short digest."""
    decided = [
        FORMAT,
        abi.debian,
        wanted(opencl=opencl),
        arrange.BUSYBOX_APPLETS,
        sorted(known_versions(opencl=opencl).items()),
        packages.release(),
        os.environ.get(packages.VARIABLE, ""),
    ]
    return hashlib.sha256(json.dumps(decided).encode()).hexdigest()[:16]


def name(abi: Abi, *, opencl: bool) -> str:
    """The cache entry of a default userland."""
    return f"virtual-device/userland-{abi.debian}{'-opencl' * opencl}-{key(abi, opencl=opencl)}"


def ensure(interpreter: Path | None, abi: Abi = ARM64, *, opencl: bool = False) -> Path:
    """The default userland's tree, made when the cache has none or a damaged one.

    Args:
        interpreter: static qemu-aarch64; None when this machine runs the programs itself.
        abi: its processor.
        opencl: whether it has OpenCL.

    Raises:
        DownloadError: the packages cannot be fetched.
        ToolNotFound: apt or dpkg is missing.
        EmulatorError: the packages do not hold what they should.
        DiskError: the cache cannot be written.
    """
    entry, there = cache.entry(
        name(abi, opencl=opencl), lambda into: make(into, interpreter, abi, opencl=opencl)
    )
    if there:
        log.debug("%s userland from the cache: %s", abi.title, entry)
    return entry / TREE


def make(into: Path, interpreter: Path | None, abi: Abi, *, opencl: bool) -> None:
    """Fetch the packages and build the tree and its manifest in the directory *into*."""
    size = OPENCL_DOWNLOAD if opencl else DOWNLOAD
    log.info("fetching the %s userland for the virtual device (about %d MB, once)", abi.title, size)
    known = known_versions(opencl=opencl)
    if not known:
        log.info("adt was not tried with the packages of %s; its newest ones are taken", packages.release())
    with scratch_directory("apt", beside=into) as work:
        apt = packages.PrivateApt(work / "apt", packages.host_sources(abi), abi.debian)
        apt.update()
        archives = apt.download(wanted(opencl=opencl), known)
        unpacked = work / "unpacked"
        for archive in archives:
            packages.unpack(archive, unpacked)
        arrange.arrange(unpacked, into / TREE, abi, interpreter, opencl=opencl)
        taken = tuple(packages.describe(archive) for archive in archives)
    manifest.write(Userland(SCHEMA, 1, packages.release(), taken), into / MANIFEST)
    log.info("%s userland: %s", abi.title, ", ".join(f"{one.name} {one.version}" for one in taken))
