"""Run a command with a small or read-only disk in a directory, seen by that command alone.

``python small_disk.py DIRECTORY OPTIONS FREE LISTING COMMAND…``: a tmpfs with the mount OPTIONS is mounted
on DIRECTORY and filled up to FREE bytes (empty: it stays empty; ``ro``: it is made read-only). The names
that are there when the command ended go to the file LISTING. As an ordinary user this takes a user
namespace, as the virtual device does; where the kernel allows none, it fails.
"""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
import sys
from pathlib import Path

from adt.virtual import namespaces

FILL = "filled"


def main(directory: Path, options: str, free: str, listing: Path, command: list[str]) -> int:
    """Mount, fill, run and list; returns the command's exit code."""
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
    code = subprocess.run(command, check=False).returncode
    listing.write_text("".join(f"{path.name}\n" for path in directory.iterdir() if path.name != FILL))
    return code


if __name__ == "__main__":
    at, mount_options, space, names, *words = sys.argv[1:]
    sys.exit(main(Path(at), mount_options, space, Path(names), words))
