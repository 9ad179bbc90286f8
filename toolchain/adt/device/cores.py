"""Names of CPU cores, by implementer and part number of the ID register (MIDR_EL1).

Sources: Arm's technical reference manuals of each core, and the tables in
``arch/arm64/include/asm/cputype.h`` of Linux and ``sys-utils/lscpu-arm.c`` of util-linux.
"""

from __future__ import annotations

_ARM = {
    0xC07: "Cortex-A7",
    0xC09: "Cortex-A9",
    0xC0D: "Cortex-A12",
    0xC0E: "Cortex-A17",
    0xC0F: "Cortex-A15",
    0xD02: "Cortex-A34",
    0xD03: "Cortex-A53",
    0xD04: "Cortex-A35",
    0xD05: "Cortex-A55",
    0xD07: "Cortex-A57",
    0xD08: "Cortex-A72",
    0xD09: "Cortex-A73",
    0xD0A: "Cortex-A75",
    0xD0B: "Cortex-A76",
    0xD0C: "Neoverse-N1",
    0xD0D: "Cortex-A77",
    0xD0E: "Cortex-A76AE",
    0xD40: "Neoverse-V1",
    0xD41: "Cortex-A78",
    0xD42: "Cortex-A78AE",
    0xD44: "Cortex-X1",
    0xD46: "Cortex-A510",
    0xD47: "Cortex-A710",
    0xD48: "Cortex-X2",
    0xD49: "Neoverse-N2",
    0xD4B: "Cortex-A78C",
    0xD4C: "Cortex-X1C",
    0xD4D: "Cortex-A715",
    0xD4E: "Cortex-X3",
    0xD4F: "Neoverse-V2",
    0xD80: "Cortex-A520",
    0xD81: "Cortex-A720",
    0xD82: "Cortex-X4",
    0xD84: "Neoverse-V3",
    0xD85: "Cortex-X925",
    0xD87: "Cortex-A725",
    0xD8E: "Neoverse-N3",
}
_QUALCOMM = {
    0x001: "Oryon",
    0x205: "Kryo",
    0x211: "Kryo",
    0x800: "Kryo 2xx Gold",
    0x801: "Kryo 2xx Silver",
    0x802: "Kryo 3xx Gold",
    0x803: "Kryo 3xx Silver",
    0x804: "Kryo 4xx Gold",
    0x805: "Kryo 4xx Silver",
}
_SAMSUNG = {0x001: "Exynos M1", 0x002: "Exynos M3", 0x003: "Exynos M4", 0x004: "Exynos M5"}
_CORES = {
    0x41: _ARM,
    0x48: {0xD01: "TaiShan v110", 0xD40: "Cortex-A76"},
    0x4E: {0x003: "Denver 2", 0x004: "Carmel"},
    0x51: _QUALCOMM,
    0x53: _SAMSUNG,
    0x61: {0x022: "Icestorm", 0x023: "Firestorm"},
    0xC0: {0xAC3: "Ampere-1", 0xAC4: "Ampere-1a"},
}


def core_name(implementer: int, part: int) -> str:
    """The core's name; empty when the table does not know it."""
    return _CORES.get(implementer, {}).get(part, "")
