"""Linux namespaces, mounts and binfmt_misc, straight from the C library.

Nothing here needs privileges of its own: with a user namespace an ordinary user
may do all of it, without one only root may. What the kernel does not allow is an
OSError whose text says what was tried.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from pathlib import Path

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_NOATIME, MS_NODIRATIME, MS_BIND, MS_REC = 32, 1024, 2048, 4096, 16384
MS_PRIVATE, MS_RELATIME = 1 << 18, 1 << 21
MNT_DETACH = 2

SIOCSIFFLAGS, IFF_UP, IFF_RUNNING = 0x8914, 0x1, 0x40

AARCH64_RULE = (
    r":qemu-aarch64:M::"
    r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:"
    r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:"
    "{interpreter}:FP"
)
"""Matches 64-bit little-endian ARM executables. The kernel wants the backslash escapes as text (raw
NULs would end the rule). F opens the interpreter now, so it need not exist in the device's root;
P keeps argv[0]."""

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, doing: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{doing}: {os.strerror(number)}")


def enter(*, user: bool) -> None:
    """Move this process into new namespaces; only its next child is in the new pid namespace.

    Args:
        user: also take a user namespace, in which our user is root.
    """
    uid, gid = os.getuid(), os.getgid()
    flags = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET
    _check(_libc.unshare(ctypes.c_int(flags | (CLONE_NEWUSER if user else 0))), "unshare")
    if user:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
        Path("/proc/self/gid_map").write_text(f"0 {gid} 1")


def mount(source: str | Path, target: Path, kind: str = "", flags: int = 0, options: str = "") -> None:
    """mount(2).

    Raises:
        OSError: with the source and target in its text.
    """
    result = _libc.mount(
        os.fsencode(source),
        os.fsencode(target),
        kind.encode() or None,
        ctypes.c_ulong(flags),
        options.encode() or None,
    )
    _check(result, f"mount {kind or 'bind'} {source} on {target}")


def keep_mounts_private() -> None:
    """What is mounted from now on in this mount namespace is seen nowhere else."""
    mount("none", Path("/"), flags=MS_REC | MS_PRIVATE)


def bind(source: Path, target: Path, *, read_only: bool = False) -> None:
    """Show *source* at *target*, which exists and is of the same kind."""
    mount(source, target, flags=MS_BIND | MS_REC)
    if read_only:
        # in a user namespace the flags of the mount we copied must be kept
        flags = 0
        present = os.statvfs(target).f_flag
        for flag, bit in (
            (os.ST_NOSUID, MS_NOSUID),
            (os.ST_NODEV, MS_NODEV),
            (os.ST_NOEXEC, MS_NOEXEC),
            (os.ST_NOATIME, MS_NOATIME),
            (os.ST_NODIRATIME, MS_NODIRATIME),
            (os.ST_RELATIME, MS_RELATIME),
        ):
            flags |= bit if present & flag else 0
        mount("none", target, flags=MS_BIND | MS_REMOUNT | MS_RDONLY | flags)


def become_root_directory(new_root: Path) -> None:
    """Make the mount point *new_root* this mount namespace's ``/`` and let go of the old one."""
    os.chdir(new_root)
    # pivot_root(".", "."): the old root lands on top of the new one, and is taken off again
    _check(_libc.pivot_root(b".", b"."), "pivot_root")
    _check(_libc.umount2(b".", MNT_DETACH), "umount of the old root")
    os.chdir("/")


def register_interpreter(binfmt: Path, interpreter: Path) -> None:
    """Mount this user namespace's own binfmt_misc on *binfmt* and run arm64 programs by *interpreter*.

    Raises:
        OSError: the kernel is older than 6.7, or does not allow it.
    """
    mount("binfmt_misc", binfmt, "binfmt_misc")
    try:
        (binfmt / "register").write_text(AARCH64_RULE.format(interpreter=interpreter))
    except OSError as error:
        doing = f"registering {interpreter} for arm64 programs"
        raise OSError(error.errno, f"{doing}: {os.strerror(error.errno or 0)}") from error


def bring_loopback_up() -> None:
    """Give a fresh network namespace its 127.0.0.1."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP | IFF_RUNNING))


def set_hostname(name: str) -> None:
    """Name this UTS namespace."""
    raw = name.encode()
    _check(_libc.sethostname(raw, len(raw)), "sethostname")
