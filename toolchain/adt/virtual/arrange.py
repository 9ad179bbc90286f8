"""Build the default userland's tree from unpacked Debian packages."""

from __future__ import annotations

import os
import posixpath
import shutil
from pathlib import Path

from adt.errors import EmulatorError
from adt.host import process
from adt.virtual import packages, properties
from adt.virtual.abis import Abi

BUSYBOX_APPLETS = (
    *("awk", "dd", "diff", "expr", "find", "getopt", "gzip", "hexdump", "ip", "less", "more"),
    *("stty", "tr", "unzip", "vi", "which"),
)
"""Programs that Android has and Debian's toybox leaves out (where it has one, toybox's is taken)."""

SHELLS = ("usr/lib/{machine}-linux-musl/bin/mksh", "usr/bin/mksh-static", "usr/bin/mksh")
"""Where mksh lies, the static build first."""
UNUSED = ("gconv", "audit", "pkgconfig", "cmake", "python3*", "*.py", "*.a")
"""Parts of library directories that nothing on the device needs."""
LINKED = ("libgcc.a", "libc_nonshared.a")
"""Static libraries that the linker needs all the same, for the kernels that PoCL compiles."""


def merge_usr(tree: Path) -> None:
    """Move /bin, /sbin and /lib of packages from before the merge into /usr."""
    for top in ("bin", "sbin", "lib", "lib64"):
        old = tree / top
        if old.is_dir() and not old.is_symlink():
            shutil.copytree(old, tree / "usr" / top, symlinks=True, dirs_exist_ok=True)
            shutil.rmtree(old)


def arrange(unpacked: Path, tree: Path, abi: Abi, interpreter: Path | None, *, opencl: bool) -> None:
    """Build the device's tree from unpacked packages.

    Raises:
        EmulatorError: no shell, no toybox, no C library or (with *opencl*) no OpenCL is among them.
    """
    merge_usr(unpacked)
    programs, libraries = tree / "system/bin", tree / "usr/lib"
    for directory in ("system/bin", "system/lib64", "system/etc", "vendor/bin", "vendor/lib64", "etc", "usr"):
        (tree / directory).mkdir(parents=True)
    shutil.copytree(
        unpacked / "usr/lib" / abi.multiarch,
        libraries / abi.multiarch,
        symlinks=True,
        ignore=_unused,
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
    (tree / "system/build.prop").write_text(
        properties.text({"ro.adt.virtual": "1", "ro.adt.notice": properties.linux_notice(abi)})
    )
    for script in properties.SCRIPTS:
        (programs / script).symlink_to(f"{properties.TOOLS}/{script}")
    link_applets(tree, programs, abi, interpreter)
    if opencl:
        add_opencl(unpacked, tree, abi)


def _unused(directory: str, names: list[str]) -> set[str]:
    """What of the entries *names* is left out."""
    return set(shutil.ignore_patterns(*UNUSED)(directory, names)) - set(LINKED)


def add_opencl(unpacked: Path, tree: Path, abi: Abi) -> None:
    """Add PoCL, the compiler and linker that it runs, and the name that programs load it by.

    Raises:
        EmulatorError: the packages hold no OpenCL.
    """
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
    """Link every program that toybox says it is, and what busybox adds, unless the name is taken.

    Raises:
        EmulatorError: toybox does not run.
    """
    loader = tree / "usr" / abi.loader
    libraries = tree / "usr/lib" / abi.multiarch
    argv: list[str | Path] = [loader, "--library-path", libraries, programs / "toybox"]
    if interpreter:
        argv = [interpreter, "-L", tree, programs / "toybox"]
    listed = process.run(
        argv,
        error=EmulatorError,
        what=f"the {abi.title} toybox does not run",
        remedy="Check `qemu-aarch64-static --version` (7.0 or newer is needed) when it is emulated.",
    )
    for applet in (*listed.stdout.split(), *BUSYBOX_APPLETS):
        link = programs / applet
        if not os.path.lexists(link):
            link.symlink_to("toybox" if applet in listed.stdout.split() else "busybox")


def missing(abi: Abi, what: str) -> EmulatorError:
    """The packages do not hold *what*."""
    return EmulatorError(
        f"the {abi.title} packages of {packages.release()} hold no {what}",
        remedy=f"Set {packages.VARIABLE} to a source of Debian 12 (bookworm), or give --rootfs DIR.",
    )
