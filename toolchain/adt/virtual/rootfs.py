"""Userlands that the user brings: what is in them, and whether programs can start there.

DIR is either a root directory with ``system/`` in it, or such a ``system`` itself (as the system image of an
Android device unpacks). It is only ever mounted read-only.
"""

from __future__ import annotations

import logging
import os
import shlex
import stat
from pathlib import Path, PurePosixPath

from adt.errors import EmulatorError, PackageError
from adt.host.elf import read_elf
from adt.virtual.abis import ABIS, Abi

log = logging.getLogger("adt.virtual")

SHELL = "/system/bin/sh"
OWN = ("adt", "data", "dev", "proc", "sys", "tmp")
"""Top-level names that are the device's own even when the userland has them."""
MOUNT_POINTS = ("apex", "product", "vendor")
"""Top-level directories that an image holds empty, and whose contents may lie in ``system`` instead."""


def parts(tree: Path) -> dict[str, Path]:
    """Locate the top-level entries of the device's root in *tree*, a root or the system tree itself."""
    rooted = (tree / "system").is_dir()
    entries = {entry.name: entry for entry in sorted(tree.iterdir())} if rooted else {"system": tree}
    for name in OWN:
        entries.pop(name, None)
    for name in MOUNT_POINTS:
        there = entries.get(name)
        inside = entries["system"] / name
        empty = there is None or (not there.is_symlink() and there.is_dir() and _is_empty(there))
        if empty and inside.is_dir() and not inside.is_symlink():
            entries[name] = inside
    return entries


def _is_empty(directory: Path) -> bool:
    """True if nothing is in *directory*, as far as root of the device may know."""
    return os.access(directory, os.R_OK) and not any(directory.iterdir())


def locate(entries: dict[str, Path], path: str) -> Path | None:
    """Locate the device's absolute *path* among *entries* (see :func:`parts`), links followed."""
    rest, place = [part for part in path.split("/") if part], PurePosixPath("/")
    for _ in range(40):  # as many links as the kernel follows
        current: Path | None = None
        while rest:
            name = rest.pop(0)
            if name == "..":
                place = place.parent
                continue
            here = place / name
            current = _on_this_machine(entries, here)
            if current is None or not os.path.lexists(current):
                return None
            if current.is_symlink():
                target = os.readlink(current)  # noqa: PTH115 - as text: a slash at its start counts
                place = PurePosixPath("/") if target.startswith("/") else place
                rest = [part for part in target.split("/") if part not in ("", ".")] + rest
                break
            place = here
        else:
            return _on_this_machine(entries, place)
    return None


def _on_this_machine(entries: dict[str, Path], path: PurePosixPath) -> Path | None:
    top, *rest = path.parts[1:] or ("",)
    return entries[top].joinpath(*rest) if top in entries else None


def is_bionic(tree: Path) -> bool:
    """Return True if a userland is Android's: its programs are started by Android's loader."""
    return os.path.lexists(parts(tree)["system"] / "bin/linker64")


def check_rootfs(tree: Path, expected: Abi | None) -> tuple[Path, Abi]:
    """Check that the user's tree looks like a userland whose shell can start, for *expected* or any ABI."""
    tree = tree.expanduser().resolve()
    remedy = (
        "Give the directory that holds Android's /system (and /apex where there is one), or the /system tree "
        "itself; or leave --rootfs away for the default userland."
    )
    if not tree.is_dir():
        raise EmulatorError(f"{tree} is not a directory", remedy=remedy)
    if not any(os.path.lexists(tree / shell) for shell in ("system/bin/sh", "bin/sh")):
        what = f"{tree} is not a userland: neither system/bin/sh nor bin/sh is in it"
        raise EmulatorError(what, remedy=remedy)
    entries = parts(tree)
    shell = _follow(entries, SHELL, tree)
    try:
        facts = read_elf(shell)
    except PackageError as error:
        what = f"{shell}, the userland's shell, is not a program: {error.what}"
        raise EmulatorError(what, remedy=remedy) from error
    actual = next((abi for abi in ABIS.values() if abi.elf == facts.machine and facts.bits == 64), None)
    if actual is None or expected not in (None, actual):
        runs = expected.elf if expected else " or ".join(abi.elf for abi in ABIS.values())
        raise EmulatorError(
            f"{shell}, the userland's shell, is for {facts.machine} ({facts.bits} bits); "
            f"{runs} was looked for",
            remedy=f"Give a userland of that processor{', or the --abi that it has' if actual else ''}.",
        )
    if facts.interpreter:
        _follow(entries, facts.interpreter, tree)
    return tree, actual


def check_readable(tree: Path) -> None:
    """Check that any user can start programs of *tree*, as root's device must; others may be private."""
    entries = parts(tree)
    shell = _follow(entries, SHELL, tree)
    loader = read_elf(shell).interpreter
    programs = {shell, _follow(entries, loader, tree)} if loader else {shell}
    needed, private = {*programs, tree}, set[Path]()
    places = [tree, *entries.values()]
    for entry in entries.values():
        places += [] if entry.is_symlink() else entry.rglob("*")
    for place in places:
        mode = place.lstat().st_mode
        bits = stat.S_IXOTH if stat.S_ISDIR(mode) else stat.S_IROTH if stat.S_ISREG(mode) else 0
        bits |= stat.S_IXOTH if place in programs else stat.S_IROTH if place == tree else 0
        if mode & bits != bits:
            private.add(place)
        if place in programs or ".so" in place.suffixes:
            needed |= {place, *place.parents}
    command = f"chmod -R a+rX {shlex.quote(str(tree))}"
    reason = "where root starts a virtual device its programs run as another user"
    if broken := private & needed:
        raise EmulatorError(
            f"programs of {tree} cannot start: {min(broken)} is not for every user to read, and {reason}",
            remedy=f"Run `{command}`.",
        )
    if private:
        text = "%s is not for every user to read (nor are %d others), and %s; `%s` changes that"
        log.warning(text, min(private), len(private) - 1, reason, command)


def _follow(entries: dict[str, Path], path: str, tree: Path) -> Path:
    """Follow the links of the device's *path*."""
    place = locate(entries, path)
    if place is not None and place.is_file():
        return place
    top = _on_this_machine(entries, PurePosixPath(path))
    link = f" (a link to {os.readlink(top)})" if top is not None and top.is_symlink() else ""  # noqa: PTH115
    raise EmulatorError(
        f"no program of {tree} can start: {path}{link} is not in it",
        remedy="Complete the tree. Android keeps its dynamic linker in the APEX com.android.runtime: unpack "
        "its image to apex/com.android.runtime beside system/; or copy the linker of early boot, "
        "system/bin/bootstrap/linker64, to apex/com.android.runtime/bin/, and system/lib64/bootstrap to "
        "apex/com.android.runtime/lib64/bionic.",
    )
