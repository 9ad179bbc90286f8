"""Run a command with a small or read-only disk in a directory, seen by that command alone.

``python small_disk.py DIRECTORY OPTIONS FREE LISTING COMMAND…``: a tmpfs with the mount OPTIONS is mounted
on DIRECTORY and filled up to FREE bytes (empty: it stays empty; ``ro``: it is made read-only). The names
that are there when the command ended go to the file LISTING. As an ordinary user this takes a user
namespace, as the virtual device does; where the kernel allows none, it fails.
"""

import ctypes
import errno
import os
import sys
from pathlib import Path

from adt.virtual import namespaces

FILL = "filled"


def fork(at: str, options: str, free: str, listing: str, *command: str) -> list[str]:
    """Mount and fill the disk, and return *command* in a fork; this process lists the names, and ends as it does."""
    mount(Path(at), options, free)
    if pid := os.fork():
        _, status = os.waitpid(pid, 0)
        names = [path.name for path in Path(at).iterdir() if path.name != FILL]
        Path(listing).write_text("".join(f"{name}\n" for name in names))
        os._exit(os.waitstatus_to_exitcode(status) % 256)
    return list(command)


def mount(directory: Path, options: str, free: str) -> None:
    """Mount a tmpfs on *directory* for this process and its children, and fill it."""
    uid, gid = os.getuid(), os.getgid()
    flags = namespaces.CLONE_NEWNS | (namespaces.CLONE_NEWUSER if uid else 0)
    if ctypes.CDLL(None, use_errno=True).unshare(flags):
        raise OSError(ctypes.get_errno(), "unshare")
    if uid:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
        Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
    namespaces.keep_mounts_private()
    namespaces.mount("small", directory, "tmpfs", 0, options)
    if free == "ro":
        namespaces.mount("none", directory, flags=namespaces.MS_REMOUNT | namespaces.MS_RDONLY)
    elif free:
        facts = os.statvfs(directory)
        with (directory / FILL).open("wb", buffering=0) as file:
            for _ in range((facts.f_bavail * facts.f_frsize - int(free)) // 4096):
                try:
                    file.write(bytes(4096))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    break


if __name__ == "__main__":
    words = fork(*sys.argv[1:5], *sys.argv[5:])
    os.execvp(words[0], words)
