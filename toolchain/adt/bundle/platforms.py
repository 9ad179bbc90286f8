"""The platforms that adt builds for: names, triples, compilers, ELF machines."""

from __future__ import annotations

import platform as host_platform
from dataclasses import dataclass

from adt.errors import ConfigError
from adt.options.option import did_you_mean

BIG_PAGE = 16384
"""Bytes; pages of 64-bit devices with Android 15 and later, and of many arm64 servers."""
PAGE = 4096


@dataclass(frozen=True)
class Platform:
    """One kind of machine that a bundle and a package are made for."""

    name: str
    """Name of the platform in adt, also that of the CMake preset."""
    abi: str
    """Android's ABI name, or the Linux machine name."""
    triple: str
    """Target triple of the code generator; ``{api}`` stands for Android's API level."""
    machine: str
    """ELF machine, as readelf names it without ``EM_``."""
    compiler: str = ""
    """C++ compiler on PATH; empty: it comes from the NDK."""
    packages: str = ""
    alignment: int = 32
    """Bytes; TVM_KALLOC_ALIGNMENT of the runtime unless configured otherwise."""
    page_alignment: int = BIG_PAGE
    """Bytes; the smallest p_align that a LOAD segment may have."""
    variants: tuple[str, ...] = ("cpu", "opencl")
    """Variants that can follow the name in a preset's name."""
    cpu_features: tuple[str, ...] = ()
    """LLVM features that every such machine has and that the triple leaves out."""
    float_abi: str = ""
    """ABI of floating-point arguments for LLVM (``hard``, ``soft``); empty: that of the triple."""

    @property
    def cuda(self) -> bool:
        """True if there are machines of it with NVIDIA's GPUs."""
        return not self.android and self.machine in ("X86_64", "AARCH64")

    @property
    def android(self) -> bool:
        """True if this is Android: bionic, NDK, API levels."""
        return self.name.startswith("android-")

    @property
    def ndk_triple(self) -> str:
        """The triple as the NDK's compilers spell it, without an API level."""
        return self.triple.removesuffix("{api}")

    def llvm_triple(self, api_level: int) -> str:
        """Return the triple for LLVM and clang at *api_level* (which only Android has)."""
        return self.triple.format(api=api_level)


HOST_MACHINE = host_platform.machine()
HOST = "host"
ANDROID = "android-arm64-v8a"
"""Name of the platform of most phones."""

PLATFORMS = {
    platform.name: platform
    for platform in (
        Platform(
            ANDROID,
            abi="arm64-v8a",
            triple="aarch64-linux-android{api}",
            machine="AARCH64",
            variants=("cpu", "opencl", "clml"),
        ),
        Platform(
            "android-armeabi-v7a",
            abi="armeabi-v7a",
            triple="armv7a-linux-androideabi{api}",
            machine="ARM",
            page_alignment=PAGE,
            cpu_features=("+neon",),
        ),
        Platform(
            "android-x86_64",
            abi="x86_64",
            triple="x86_64-linux-android{api}",
            machine="X86_64",
            cpu_features=("+sse4.2", "+popcnt"),
        ),
        Platform(
            "linux-aarch64",
            abi="aarch64",
            triple="aarch64-linux-gnu",
            machine="AARCH64",
            compiler="aarch64-linux-gnu-g++",
            packages="g++-aarch64-linux-gnu",
            variants=("cpu", "opencl", "clml"),
        ),
        Platform(
            "linux-armhf",
            abi="armhf",
            triple="armv7a-unknown-linux-gnueabihf",  # without a vendor LLVM knows no ABI
            machine="ARM",
            compiler="arm-linux-gnueabihf-g++",
            packages="g++-arm-linux-gnueabihf",
            page_alignment=PAGE,
            cpu_features=("+neon", "+vfp4"),
            float_abi="hard",
        ),
        Platform(
            HOST,
            abi=HOST_MACHINE,
            triple=f"{HOST_MACHINE}-linux-gnu",
            machine={"armv7l": "ARM"}.get(HOST_MACHINE, HOST_MACHINE.upper()),
            compiler="g++",
            packages="g++",
            alignment=64,
            page_alignment=BIG_PAGE if HOST_MACHINE == "aarch64" else 1,
        ),
    )
}

PRESETS = {
    preset: (platform, variant)
    for platform in PLATFORMS.values()
    for preset, variant in (
        (platform.name, ""),
        *((f"{platform.name}-{variant}", variant) for variant in platform.variants),
    )
}
"""Name of each CMake preset to its platform and variant; a bare platform's name has none."""


def platform_named(name: str) -> Platform:
    """Return the platform *name*, or the platform of the preset *name*."""
    return preset_named(name)[0]


def preset_named(name: str) -> tuple[Platform, str]:
    """Return platform and variant (``cpu``, ``opencl``, ``clml`` or empty) of the preset *name*."""
    if name not in PRESETS:
        raise ConfigError(
            f"unknown platform {name!r}.{did_you_mean(name, PRESETS)}",
            remedy=f"Choose one of: {', '.join(PLATFORMS)}; `adt presets` lists the variants of each.",
        )
    return PRESETS[name]
