"""Linux namespaces, mounts, capabilities and binfmt_misc, straight from the C library.

Nothing here needs privileges of its own: with a user namespace an ordinary user may do all of it, without one
only root may. What the kernel does not allow is an OSError whose text says what was tried.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import grp
import os
import pwd
import socket
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY, MS_NOSUID, MS_REMOUNT, MS_BIND, MS_REC = 1, 2, 32, 4096, 16384
MS_PRIVATE, MS_RELATIME = 1 << 18, 1 << 21
MNT_DETACH = 2

PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 24, 38
CAPABILITY_VERSION = 0x20080522
CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_FSETID, CAP_KILL = 0, 1, 3, 4, 5
CAP_NET_BIND_SERVICE, CAP_SYS_ADMIN = 10, 21
FILE_CAPABILITIES = frozenset(
    {CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_FSETID, CAP_KILL, CAP_NET_BIND_SERVICE}
)
"""Capabilities of root on a device: over files, processes and ports, all of which are the device's own."""
SPARE_IDS: tuple[int, ...] = (*range(2_000_000_000, 2_000_000_016), *range(65533, 65500, -1))
"""Candidates for a user and group that nobody is. systemd leaves the first ones unused, as do accounts and
subordinate ids; a container that has 65536 ids has the others."""

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


def spare_id() -> int | None:
    """Find an id that no user and no group of this machine has; None unless we are root, and may take it."""
    if os.geteuid() != 0:
        return None
    maps = [Path(f"/proc/self/{kind}_map").read_text().splitlines() for kind in ("uid", "gid")]
    for number in SPARE_IDS:
        mapped = all(
            any(int(first) <= number < int(first) + int(count) for first, _, count in map(str.split, rows))
            for rows in maps
        )
        if mapped and not _has_account(number):
            return number
    return None


def _has_account(number: int) -> bool:
    for look_up in (pwd.getpwuid, grp.getgrgid):
        with contextlib.suppress(KeyError):
            return bool(look_up(number))
    return False


def enter(*, user: bool, host_id: int | None = None) -> None:
    """Move this process into new namespaces; only its next child is in the new pid namespace.

    Args:
        user: also take a user namespace, with one user and one group, both root.
        host_id: what these are on this machine, see :func:`spare_id`; None: the user and group of this
            process. Until :func:`become_root_user` it keeps its own rights to files.
    """
    uid, gid = os.getuid(), os.getgid()
    flags = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET
    if not user:
        _check(_libc.unshare(ctypes.c_int(flags)), "unshare")
        return
    with _mapped_from_outside(host_id) if host_id is not None else contextlib.nullcontext():
        _check(_libc.unshare(ctypes.c_int(flags | CLONE_NEWUSER)), "unshare")
    if host_id is None:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
        Path("/proc/self/gid_map").write_text(f"0 {gid} 1")


@contextlib.contextmanager
def _mapped_from_outside(host_id: int) -> Iterator[None]:
    """Map the user namespace that the block enters: another id than one's own takes rights outside of it."""
    ours, (waiting, entered) = os.getpid(), os.pipe()
    helper = os.fork()
    if helper == 0:
        code = 1
        try:
            os.close(entered)
            if os.read(waiting, 1):
                for kind in ("uid", "gid"):
                    Path(f"/proc/{ours}/{kind}_map").write_text(f"0 {host_id} 1")
                code = 0
        finally:
            os._exit(code)
    os.close(waiting)
    try:
        yield
        os.write(entered, b"+")
    finally:
        os.close(entered)
        failed = os.waitpid(helper, 0)[1]
    if failed:
        raise PermissionError(errno.EPERM, f"mapping root of the user namespace to {host_id}")


def become_root_user() -> None:
    """Take the identity that the user namespace has for root, and no other group."""
    with contextlib.suppress(PermissionError):  # an ordinary user's namespace has no say in groups
        os.setgroups([])
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)


def limit_programs(kept: Iterable[int]) -> None:
    """Let no program that this process or its children start have capabilities but *kept*, nor gain any."""
    for capability in range(64):
        if capability not in kept and _libc.prctl(PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0):
            break  # the kernel has no more
    _check(_libc.prctl(PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), 0, 0, 0), "no_new_privs")


def keep_capabilities(kept: Iterable[int]) -> None:
    """Give up this process's capabilities but *kept*."""
    mask = sum(1 << capability for capability in kept)
    header = struct.pack("Ii", CAPABILITY_VERSION, 0)
    data = struct.pack("6I", *(mask & 0xFFFFFFFF, mask & 0xFFFFFFFF, 0), *(mask >> 32, mask >> 32, 0))
    _check(_libc.capset(header, data), "capset")


def mount(source: str | Path, target: Path, kind: str = "", flags: int = 0, options: str = "") -> None:
    words = os.fsencode(source), os.fsencode(target), kind.encode() or None
    result = _libc.mount(*words, ctypes.c_ulong(flags), options.encode() or None)
    _check(result, f"mount {kind or 'bind'} {source} on {target}")


def keep_mounts_private() -> None:
    """Keep mounts of this mount namespace from being seen elsewhere, from now on."""
    mount("none", Path("/"), flags=MS_REC | MS_PRIVATE)


def bind(source: Path, target: Path, *, read_only: bool = False) -> None:
    """Show *source* at *target*, which exists and is of the same kind."""
    mount(source, target, flags=MS_BIND | MS_REC)
    if read_only:
        make_read_only(target)


def make_read_only(target: Path) -> None:
    """Let nobody write through the mount at *target*."""
    # in a user namespace a copied mount keeps its flags; statvfs has mount(2)'s bits, but for RELATIME
    present = os.statvfs(target).f_flag
    kept = present & (os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC | os.ST_NOATIME | os.ST_NODIRATIME)
    kept |= MS_RELATIME if present & os.ST_RELATIME else 0
    mount("none", target, flags=MS_BIND | MS_REMOUNT | MS_RDONLY | kept)


def unmount(target: Path) -> None:
    _check(_libc.umount2(os.fsencode(target), MNT_DETACH), f"umount {target}")


def enter_new_root(mount_point: Path, options: str) -> None:
    """Mount an empty tmpfs on *mount_point*, make it the working directory, and become its owner, root.

    Only this mount namespace sees it, so any directory does that nothing is needed from any more.
    """
    keep_mounts_private()
    # before the change of identity: the new one may not reach the mount point
    mount("adt-root", mount_point, "tmpfs", MS_NOSUID, f"{options},uid=0,gid=0")
    os.chdir(mount_point)
    become_root_user()


def become_root_directory() -> None:
    """Make the working directory, a mount point, this mount namespace's ``/`` and let go of the old one."""
    # pivot_root(".", "."): the old root lands on top of the new one, and is taken off again
    _check(_libc.pivot_root(b".", b"."), "pivot_root")
    unmount(Path())
    os.chdir("/")


def register_interpreter(binfmt: Path, interpreter: Path) -> None:
    """Mount this user namespace's own binfmt_misc on *binfmt* and run arm64 programs by *interpreter*."""
    mount("binfmt_misc", binfmt, "binfmt_misc")
    try:
        (binfmt / "register").write_text(AARCH64_RULE.format(interpreter=interpreter))
    except OSError as error:
        doing = f"registering {interpreter} for arm64 programs"
        raise OSError(error.errno, f"{doing}: {os.strerror(error.errno or 0)}") from error


def bring_loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP | IFF_RUNNING))


def set_hostname(name: str) -> None:
    raw = name.encode()
    _check(_libc.sethostname(raw, len(raw)), "sethostname")
