"""File systems of the device: the userland read-only, and writable places of its own.

| on the device | what it is |
|---|---|
| every top-level entry of the userland | the userland, read-only, shared by all devices |
| ``/data`` | the device's own: a directory that stays, or a tmpfs of a given size |
| ``/tmp``, ``/dev``, ``/adt`` | tmpfs; ``/dev`` holds the usual nodes and its own terminals |
| ``/proc`` | the device's own processes, read-only: most of the rest is the host kernel's |
| ``/sys/devices/system/cpu`` | the host's processors (how many there are), read-only |

A mount that is not allowed is an OSError whose text names it.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from pathlib import Path

from adt.virtual import namespaces, properties, rootfs
from adt.virtual.abis import Abi

NODES = ("null", "zero", "full", "random", "urandom", "tty")
LINKS = {
    "ptmx": "pts/ptmx",
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
}
STANDARD_LINKS = {"sdcard": "/data/media/0", "bin": "/system/bin", "etc": "/system/etc"}
"""Links that every device has at its root, unless the userland brings something of that name."""


def build(
    name: str, userland: Path, data: Path, *, data_size: str, abi: Abi, interpreter: Path | None
) -> None:
    """Mount everything and make it ``/``. Called by PID 1 of the new namespaces.

    Args:
        userland: a tree with /system/bin/sh in it.
        data: becomes /data; the new root is mounted on the directory that it is in.
        data_size: instead of *data*: the size of a tmpfs, such as ``64m``; empty for none.
        interpreter: the static qemu for this user namespace's own binfmt_misc; None when arm64 programs
            already run (a host-wide rule, or an arm64 host).
    """
    scripts = properties.scripts()
    if interpreter is not None:
        interpreter.stat()
    # by descriptor, as root of the device may not reach these places below the starter's home directory
    mount_point = data.parent
    userland, data = (
        Path(f"/proc/self/fd/{os.open(place, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)}")
        for place in (userland, data)
    )
    namespaces.enter_new_root(mount_point, "mode=0755,size=16m")
    root = Path()
    for directory in rootfs.OWN:
        (root / directory).mkdir()
    # a descriptor's name is a link, which would pass for one that the userland has
    namespaces.bind(userland, root / "tmp")
    for shown, source in rootfs.parts(root / "tmp").items():
        if source.is_symlink():
            (root / shown).symlink_to(source.readlink())
        elif source.is_dir() or source.is_file():
            (root / shown).mkdir() if source.is_dir() else (root / shown).touch()
            namespaces.bind(source, root / shown, read_only=True)
    for link, target in STANDARD_LINKS.items():
        if not os.path.lexists(root / link):
            (root / link).symlink_to(target)
    namespaces.mount("proc", root / "proc", "proc")
    if interpreter is not None:
        namespaces.register_interpreter(root / "proc/sys/fs/binfmt_misc", interpreter)
    make_dev(root / "dev", properties.of_device(name, root / "tmp", abi))
    # a boot identifier of its own, where the kernel's is read
    new_boot_id(root / BOOT_ID.lstrip("/"))
    namespaces.bind(root / BOOT_ID.lstrip("/"), root / KERNEL_BOOT_ID.lstrip("/"))
    namespaces.unmount(root / "tmp")
    namespaces.mount("tmp", root / "tmp", "tmpfs", 0, "mode=1777")
    make_data(root / "data", data, data_size)
    make_sys(root / "sys")
    hide_host(root / "proc")
    tools = root / properties.TOOLS.lstrip("/")
    tools.mkdir(parents=True)
    for script, content in scripts.items():
        (tools / script).write_bytes(content)
        (tools / script).chmod(0o755)
    namespaces.set_hostname(name)
    namespaces.bring_loopback_up()
    namespaces.become_root_directory()
    namespaces.make_read_only(Path("/"))
    for descriptor in (userland, data):
        os.close(int(descriptor.name))


def hide_host(proc: Path) -> None:
    """Take writing away from ``/proc``, with all settings of the host's kernel, and hide memory and keys."""
    for name in ("kcore", "keys", "kmsg", "sched_debug", "timer_list"):
        if (proc / name).exists():
            namespaces.bind(Path("/dev/null"), proc / name)
    interpreters = proc / "sys/fs/binfmt_misc"
    for place in (interpreters, proc) if interpreters.is_mount() else (proc,):
        namespaces.make_read_only(place)


def give_data(data: Path, owner: int) -> None:
    """Make *owner* the user and group of all that lies in a device's ``/data``; links are not followed."""
    for _, directories, files, at in os.fwalk(data, follow_symlinks=False):
        for name in (".", *directories, *files):
            if os.stat(name, dir_fd=at, follow_symlinks=False).st_uid != owner:
                os.chown(name, owner, owner, dir_fd=at, follow_symlinks=False)


def make_dev(dev: Path, at_boot: dict[str, str]) -> None:
    """Fill ``/dev``: the host's harmless nodes, own terminals, shared memory, the properties."""
    namespaces.mount("dev", dev, "tmpfs", namespaces.MS_NOSUID, "mode=0755")
    for node in filter(lambda node: Path("/dev", node).exists(), NODES):
        (dev / node).touch()
        namespaces.bind(Path("/dev", node), dev / node)
    for link, target in LINKS.items():
        (dev / link).symlink_to(target)
    (dev / "pts").mkdir()
    namespaces.mount("devpts", dev / "pts", "devpts", 0, "newinstance,ptmxmode=0666,mode=0620")
    (dev / "shm").mkdir()
    (dev / "shm").chmod(0o1777)
    store = dev / Path(properties.STORE).relative_to("/dev")
    store.parent.mkdir()
    store.write_text(properties.text(at_boot))


def make_data(data: Path, source: Path, size: str) -> None:
    """Mount *source*, or a tmpfs of *size*, on *data* and make the directories that tools expect in it."""
    if size:
        namespaces.mount("data", data, "tmpfs", namespaces.MS_NOSUID, f"mode=0771,size={size}")
    else:
        namespaces.bind(source, data)
    for directory in ("local/tmp", "log", "media/0"):
        (data / directory).mkdir(parents=True, exist_ok=True)
    (data / "local/tmp").chmod(0o1777)
    (data / "log/main").touch()  # of scripts/log.sh and scripts/logcat.sh


def make_sys(sys: Path) -> None:
    """Show how many processors there are, where the kernel lets us; nothing else of the host's /sys."""
    cpus = sys / "devices/system/cpu"
    cpus.mkdir(parents=True)
    with contextlib.suppress(OSError):
        namespaces.bind(Path("/sys/devices/system/cpu"), cpus, read_only=True)


BOOT_ID = "/dev/adt/boot_id"
"""Lies under /proc/sys/kernel/random/boot_id; the machine's own identifier is not shown."""
KERNEL_BOOT_ID = "/proc/sys/kernel/random/boot_id"


def new_boot_id(path: Path) -> None:
    """Write a fresh random identifier, as the kernel does at a boot, to *path* in place."""
    path.write_text(f"{uuid.uuid4()}\n")
    path.chmod(0o444)
