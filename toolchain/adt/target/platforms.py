"""The platforms that adt builds for: names, triples, compilers, ELF machines."""

from __future__ import annotations

import platform as host_platform
from dataclasses import dataclass

from adt.config.load import did_you_mean
from adt.errors import ConfigError


@dataclass(frozen=True)
class Platform:
    """One kind of machine that a bundle and a package are made for."""

    name: str
    """adt's name, also the name of the CMake preset."""
    abi: str
    """Android's ABI name, or the Linux machine name."""
    triple: str
    """What the code generator is told; ``{api}`` stands for Android's API level."""
    machine: str
    """ELF machine, as readelf names it without ``EM_``."""
    compiler: str
    """C++ compiler on PATH; empty: it comes from the NDK."""
    packages: str
    """Debian packages that bring the compiler."""
    alignment: int
    """Bytes; TVM_KALLOC_ALIGNMENT of the runtime unless configured otherwise."""

    @property
    def android(self) -> bool:
        """Whether this is Android: bionic, NDK, API levels."""
        return self.name.startswith("android-")

    @property
    def ndk_triple(self) -> str:
        """The triple as the NDK's compilers spell it, without an API level."""
        return self.triple.removesuffix("{api}")

    def llvm_triple(self, api_level: int) -> str:
        """The triple for LLVM and clang at *api_level* (which only Android has)."""
        return self.triple.format(api=api_level)


HOST_MACHINE = host_platform.machine()

PLATFORMS = {
    platform.name: platform
    for platform in (
        Platform(
            "android-arm64-v8a",
            abi="arm64-v8a",
            triple="aarch64-linux-android{api}",
            machine="AARCH64",
            compiler="",
            packages="",
            alignment=32,
        ),
        Platform(
            "linux-aarch64",
            abi="aarch64",
            triple="aarch64-linux-gnu",
            machine="AARCH64",
            compiler="aarch64-linux-gnu-g++",
            packages="g++-aarch64-linux-gnu",
            alignment=32,
        ),
        Platform(
            "host",
            abi=HOST_MACHINE,
            triple=f"{HOST_MACHINE}-linux-gnu",
            machine="X86_64" if HOST_MACHINE == "x86_64" else HOST_MACHINE.upper(),
            compiler="g++",
            packages="g++",
            alignment=64,
        ),
    )
}


def platform_named(name: str) -> Platform:
    """The platform *name*.

    Raises:
        ConfigError: there is none; the message suggests one.
    """
    if name not in PLATFORMS:
        raise ConfigError(
            f"unknown platform {name!r}.{did_you_mean(name, PLATFORMS)}",
            remedy=f"Choose one of: {', '.join(PLATFORMS)}.",
        )
    return PLATFORMS[name]
