"""Virtual devices."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from adt.device import selection
from adt.virtual import emulator
from adt.virtual.emulator import EmulatorInfo

if TYPE_CHECKING:
    from adt.options.option import AnyPath


def emulator_start(
    name: str = "default",
    *,
    port: int | None = None,
    rootfs: AnyPath | None = None,
    data_size: str | None = None,
    abi: str | None = None,
    opencl: bool = False,
) -> EmulatorInfo:
    """Start a virtual device (a Linux, arm64 by default, behind real ADB) and connect adb to it.

    Args:
        name: several can run.
        port: its ADB port on 127.0.0.1; None: a free one.
        rootfs: a root file system of one's own, e.g. an Android /system tree.
        data_size: size of /data, e.g. 64M; None: unlimited.
        abi: arm64-v8a, or x86_64 without emulation on such a machine.
        opencl: with PoCL, which computes on the processor.

    Raises:
        EmulatorError: this machine cannot run one; the message says what to install or switch on.
        ConfigError: an argument is not one.
    """
    root = Path(rootfs) if rootfs is not None else None
    info = emulator.start(name, port=port, rootfs=root, data_size=data_size, abi=abi, opencl=opencl)
    selection.connect(info.serial)
    return info


def emulator_stop(name: str = "default") -> EmulatorInfo:
    """Stop a virtual device and disconnect adb from it.

    Raises:
        EmulatorError: there is none of that name.
    """
    info = emulator.stop(name)
    selection.disconnect(info.serial)
    return info


def emulator_list() -> tuple[EmulatorInfo, ...]:
    """Every virtual device on this machine."""
    return emulator.listing()
