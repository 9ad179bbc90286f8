"""The default userland: Debian's C and C++ libraries, mksh as Android's shell, toybox as its tools.

The tree has Android's shape where scripts look (``/system/bin/sh``, ``/vendor``, ``/sdcard``) and Debian's
where programs link (``/lib/ld-linux-aarch64.so.1``). There is one for each processor, with OpenCL or without;
each is made once, kept in the cache and mounted read-only.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import posixpath
import shutil
from dataclasses import dataclass
from pathlib import Path

from adt.errors import EmulatorError
from adt.host import cache, manifest, process
from adt.host.disk import scratch_directory
from adt.virtual import packages, properties
from adt.virtual.abis import ARM64, Abi

log = logging.getLogger("adt.virtual.rootfs")

FORMAT = 4
"""Raised whenever the tree that `make` builds from the same packages changes."""
SCHEMA = "adt.userland"
MANIFEST = "userland.json"
TREE = "root"

PACKAGES = ("libc6", "libgcc-s1", "libstdc++6", "libgomp1", "mksh", "toybox", "busybox-static")
"""Packages of the userland; apt adds what they depend on."""
OPENCL = ("ocl-icd-libopencl1", "pocl-opencl-icd")
"""Further packages to have OpenCL: the loader and PoCL, which computes on the processor."""

KNOWN: dict[str, dict[str, str]] = {
    "bookworm": {
        "busybox-static": "1:1.35.0-4+deb12u1+b1", "gcc-12-base": "12.2.0-14+deb12u1",
        "libc6": "2.36-9+deb12u14", "libcrypt1": "1:4.4.33-2", "libgcc-s1": "12.2.0-14+deb12u1",
        "libgomp1": "12.2.0-14+deb12u1", "libstdc++6": "12.2.0-14+deb12u1", "mksh": "59c-28+deb12u1",
        "toybox": "0.8.9+dfsg-1",
    },
    "trixie": {
        "busybox-static": "1:1.37.0-6+b9", "gcc-14-base": "14.2.0-19", "libc6": "2.41-12+deb13u4",
        "libcrypt1": "1:4.4.38-1", "libgcc-s1": "14.2.0-19", "libgomp1": "14.2.0-19",
        "libstdc++6": "14.2.0-19", "mksh": "59c-41+b2", "toybox": "0.8.9+dfsg-1.1",
    },
}  # fmt: skip
"""The versions that were tried, by release of the distribution."""

KNOWN_OPENCL: dict[str, dict[str, str]] = {
    "bookworm": {
        "clang-15": "1:15.0.6-4+b1", "libclang-cpp15": "1:15.0.6-4+b1", "libllvm15": "1:15.0.6-4+b1",
        "libpocl2": "3.1-3+deb12u1", "libpocl2-common": "3.1-3+deb12u1", "ocl-icd-libopencl1": "2.3.1-1",
        "pocl-opencl-icd": "3.1-3+deb12u1",
    },
}  # fmt: skip
"""Further files that OpenCL needs."""


@dataclass(frozen=True)
class Userland:
    """Sources of a userland in the cache."""

    schema: str
    schema_version: int
    release: str
    packages: tuple[packages.Package, ...]


def known_versions(*, opencl: bool) -> dict[str, str]:
    """Return the tried versions for this host's release; empty for a release that was not tried."""
    codename = packages.os_release().get("VERSION_CODENAME", "")
    return KNOWN.get(codename, {}) | (KNOWN_OPENCL.get(codename, {}) if opencl else {})


def userland_name(abi: Abi, *, opencl: bool) -> str:
    """Return the cache entry of a default userland, named by everything that decides what it holds."""
    decided = [
        FORMAT,
        abi.debian,
        PACKAGES + OPENCL * opencl,
        BUSYBOX_APPLETS,
        sorted(known_versions(opencl=opencl).items()),
        packages.release(),
        os.environ.get(packages.VARIABLE, ""),
    ]
    digest = hashlib.sha256(json.dumps(decided).encode()).hexdigest()[:16]
    return f"virtual-device/userland-{abi.debian}{'-opencl' * opencl}-{digest}"


def ensure_userland(interpreter: Path | None, abi: Abi = ARM64, *, opencl: bool = False) -> Path:
    """Return the default userland's tree, made when the cache has none; *interpreter*: static qemu."""
    name = userland_name(abi, opencl=opencl)
    entry, _ = cache.entry(name, lambda into: make(into, interpreter, abi, opencl=opencl))
    return entry / TREE


def make(into: Path, interpreter: Path | None, abi: Abi, *, opencl: bool) -> None:
    """Fetch the packages and build the tree and its manifest in the directory *into*."""
    megabytes = 150 if opencl else 20
    log.info("fetching the %s userland for the virtual device (about %d MB, once)", abi.title, megabytes)
    if not (known := known_versions(opencl=opencl)):
        log.info("adt was not tried with the packages of %s; its newest ones are taken", packages.release())
    with scratch_directory("apt", beside=into) as work:
        apt = packages.PrivateApt(work / "apt", packages.host_sources(abi), abi.debian)
        apt.update()
        archives = apt.download(PACKAGES + OPENCL * opencl, known)
        unpacked = work / "unpacked"
        for archive in archives:
            process.run(["dpkg-deb", "-x", archive, unpacked])
        arrange(unpacked, into / TREE, abi, interpreter, opencl=opencl)
        installed = tuple(packages.describe(archive) for archive in archives)
    manifest.write(Userland(SCHEMA, 1, packages.release(), installed), into / MANIFEST)
    names = ", ".join(f"{package.name} {package.version}" for package in installed)
    log.info("%s userland: %s", abi.title, names)


BUSYBOX_APPLETS = (
    *("awk", "dd", "diff", "expr", "find", "getopt", "gzip", "hexdump", "ip", "less", "more"),
    *("stty", "tr", "unzip", "vi", "which"),
)
"""Programs that Android has and Debian's toybox leaves out (where it has one, toybox's is taken)."""

SHELLS = ("usr/lib/{machine}-linux-musl/bin/mksh", "usr/bin/mksh-static", "usr/bin/mksh")
"""Paths of mksh, the static build first."""


def merge_usr(tree: Path) -> None:
    """Move /bin, /sbin and /lib of packages from before the merge into /usr."""
    for top in ("bin", "sbin", "lib", "lib64"):
        old = tree / top
        if old.is_dir() and not old.is_symlink():
            shutil.copytree(old, tree / "usr" / top, symlinks=True, dirs_exist_ok=True)
            shutil.rmtree(old)


def arrange(unpacked: Path, tree: Path, abi: Abi, interpreter: Path | None, *, opencl: bool) -> None:
    """Build the device's tree from unpacked packages."""
    merge_usr(unpacked)
    programs, libraries = tree / "system/bin", tree / "usr/lib"
    for directory in ("system/bin", "system/lib64", "system/etc", "vendor/bin", "vendor/lib64", "etc", "usr"):
        (tree / directory).mkdir(parents=True)
    shutil.copytree(
        unpacked / "usr/lib" / abi.multiarch, libraries / abi.multiarch, symlinks=True, ignore=_unused
    )
    directory, _, loader = abi.loader.partition("/")
    (tree / "usr" / directory).mkdir(exist_ok=True)
    (tree / "usr" / abi.loader).symlink_to(f"../lib/{abi.multiarch}/{loader}")
    if not (libraries / abi.multiarch / loader).is_file():
        raise missing(abi, loader)
    shells = (unpacked / path.format(machine=abi.machine) for path in SHELLS)
    shell = next((path for path in shells if path.is_file()), None)
    if shell is None:
        raise missing(abi, "mksh")
    shutil.copy(shell, programs / "sh")
    for program in ("toybox", "busybox"):
        if not (unpacked / "usr/bin" / program).is_file():
            raise missing(abi, program)
        shutil.copy(unpacked / "usr/bin" / program, programs / program)
    for top in {"lib", directory}:
        (tree / top).symlink_to(f"usr/{top}")
    (tree / "bin").symlink_to("system/bin")
    (tree / "usr/bin").symlink_to("../system/bin")
    (tree / "sdcard").symlink_to("/data/media/0")
    (tree / "etc/passwd").write_text("root:x:0:0:root:/data:/system/bin/sh\n")
    (tree / "etc/group").write_text("root:x:0:\n")
    (tree / "etc/hosts").write_text("127.0.0.1 localhost\n")
    about = {"ro.adt.virtual": "1", "ro.adt.notice": properties.linux_notice(abi)}
    (tree / "system/build.prop").write_text(properties.text(about))
    for script in properties.BY_PATH:
        (programs / script).symlink_to(f"{properties.TOOLS}/{script}")
    link_applets(tree, programs, abi, interpreter)
    if opencl:
        add_opencl(unpacked, tree, abi)
    process.run(["chmod", "-R", "a+rX", tree])  # whatever the umask: see `rootfs.check_readable`


def _unused(directory: str, names: list[str]) -> set[str]:
    """Return which of the entries *names* of a library directory nothing on the device needs."""
    unused = shutil.ignore_patterns("gconv", "audit", "pkgconfig", "cmake", "python3*", "*.py", "*.a")
    # but the linker needs these two, for the kernels that PoCL compiles
    return unused(directory, names) - {"libgcc.a", "libc_nonshared.a"}


def add_opencl(unpacked: Path, tree: Path, abi: Abi) -> None:
    """Add PoCL, the compiler and linker that it runs, and the name that programs load it by."""
    icd = unpacked / "etc/OpenCL/vendors/pocl.icd"
    library = tree / "usr/lib" / abi.multiarch / "libOpenCL.so"
    if not icd.is_file() or not library.with_name("libOpenCL.so.1").exists():
        raise missing(abi, "OpenCL")
    for part in ("usr/lib", "usr/share/pocl"):
        shutil.copytree(
            unpacked / part,
            tree / part,
            symlinks=True,
            dirs_exist_ok=True,
            ignore=lambda directory, names: (
                {abi.multiarch, posixpath.basename(abi.loader)}
                if Path(directory) == unpacked / "usr/lib"
                else _unused(directory, names)
            ),
        )
    (tree / "etc/OpenCL/vendors").mkdir(parents=True)
    shutil.copy(icd, tree / "etc/OpenCL/vendors")
    if not os.path.lexists(library):
        library.symlink_to("libOpenCL.so.1")
    for program in (unpacked / "usr/bin").iterdir():
        link = tree / "system/bin" / program.name
        if os.path.lexists(link):
            continue
        if program.is_symlink():  # told from /usr/bin, and that is /system/bin here
            link.symlink_to(posixpath.normpath(posixpath.join("/usr/bin", program.readlink())))
        else:
            shutil.copy(program, link)


def link_applets(tree: Path, programs: Path, abi: Abi, interpreter: Path | None) -> None:
    """Link every program that toybox says it is, and what busybox adds, unless the name is taken."""
    loader = (tree / "usr" / abi.loader, "--library-path", tree / "usr/lib" / abi.multiarch)
    done = process.run(
        [*((interpreter, "-L", tree) if interpreter else loader), programs / "toybox"],
        error=EmulatorError,
        what=f"the {abi.title} toybox does not run",
        remedy="Check `qemu-aarch64-static --version` (7.0 or newer is needed) when it is emulated.",
    )
    applets = dict.fromkeys(BUSYBOX_APPLETS, "busybox") | dict.fromkeys(done.stdout.split(), "toybox")
    for applet, program in applets.items():
        if not os.path.lexists(programs / applet):
            (programs / applet).symlink_to(program)


def missing(abi: Abi, what: str) -> EmulatorError:
    """Return the error for packages that do not hold *what*."""
    return EmulatorError(
        f"the {abi.title} packages of {packages.release()} hold no {what}",
        remedy=f"Set {packages.VARIABLE} to a source of Debian 12 (bookworm), or give --rootfs DIR.",
    )
