"""The processors that a virtual device can have."""

from __future__ import annotations

import platform
from dataclasses import dataclass

from adt.errors import ConfigError
from adt.options.option import did_you_mean


@dataclass(frozen=True)
class Abi:
    """One kind of processor, under the names that different people call it."""

    name: str
    """Android's."""
    machine: str
    """``uname -m``."""
    title: str
    """For people."""
    debian: str
    """Debian's architecture."""
    elf: str
    """ELF machine without ``EM_``."""
    linux_platform: str
    """The adt platform of a Linux userland on it."""
    loader: str
    """Path of the C library's dynamic linker."""
    hardware: str
    """``ro.hardware``: what executes its programs."""

    @property
    def multiarch(self) -> str:
        """Debian's directory of its libraries."""
        return f"{self.machine}-linux-gnu"

    @property
    def native(self) -> bool:
        """Return True if this machine's own processor runs its programs."""
        return platform.machine() == self.machine

    @property
    def speed(self) -> str:
        """Describe what a time measured on it means."""
        return "emulated, so it has no speed" if not self.native else "its speed is this machine's"


ARM64 = Abi(
    "arm64-v8a",
    machine="aarch64",
    title="arm64",
    debian="arm64",
    elf="AARCH64",
    linux_platform="linux-aarch64",
    loader="lib/ld-linux-aarch64.so.1",
    hardware="qemu-user",
)
X86_64 = Abi(
    "x86_64",
    machine="x86_64",
    title="x86-64",
    debian="amd64",
    elf="X86_64",
    # it runs without emulation, so only where the bundle of this very machine is right
    linux_platform="host",
    loader="lib64/ld-linux-x86-64.so.2",
    hardware="native",
)
ABIS = {abi.name: abi for abi in (ARM64, X86_64)}


def named(name: str) -> Abi:
    """Return the ABI *name*; raise ConfigError if no virtual device can have it."""
    if name not in ABIS:
        raise ConfigError(
            f"{name!r} is not an ABI of the virtual device.{did_you_mean(name, ABIS)}",
            remedy=f"Use one of {', '.join(ABIS)}.",
        )
    return ABIS[name]
