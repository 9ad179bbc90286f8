"""The NDK's sysroot: stub libraries with the system's symbols by API level, and what it lends to apps."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from adt.host.elf import ElfFacts, read_elf
from adt.host.ndk import Ndk

TRIPLES = {
    "AARCH64": "aarch64-linux-android",
    "ARM": "arm-linux-androideabi",
    "X86_64": "x86_64-linux-android",
    "386": "i686-linux-android",
    "RISCV": "riscv64-linux-android",
}
"""ELF machine to the name of its directory."""


@dataclass(frozen=True)
class Sysroot:
    """The libraries of one machine in an NDK."""

    libraries: Path
    """Holds libc++_shared.so and one directory for each API level."""

    @property
    def levels(self) -> tuple[int, ...]:
        """API levels that it has stubs for, lowest first."""
        return tuple(sorted(int(d.name) for d in self.libraries.glob("[0-9]*") if d.name.isdigit()))

    def level(self, api_level: int) -> int:
        """The level whose stubs answer for *api_level*: the nearest one not above, else the lowest."""
        return max((have for have in self.levels if have <= api_level), default=min(self.levels))

    def stub(self, name: str, api_level: int) -> Path | None:
        """The stub of the public library *name* at *api_level*."""
        stub = self.libraries / str(self.level(api_level)) / name
        return stub if stub.is_file() else None

    def first_level_with(self, name: str, symbol: str) -> int | None:
        """The lowest API level whose library *name* has *symbol*."""
        for level in self.levels:
            file = self.libraries / str(level) / name
            if file.is_file() and symbol in read_elf(file).exports:
                return level
        return None

    def lent(self, name: str) -> Path | None:
        """A library that the NDK has for apps to bring along, such as libc++_shared.so."""
        library = self.libraries / name
        return library if library.is_file() else None


def sysroot(ndk: Ndk | None, machine: str) -> Sysroot | None:
    """The sysroot of *ndk* for *machine*, None when there is none."""
    if ndk is None or machine not in TRIPLES:
        return None
    tree = Sysroot(ndk.bin.parent / "sysroot/usr/lib" / TRIPLES[machine])
    return tree if tree.libraries.is_dir() and tree.levels else None


class Stubs:
    """Stub libraries, each read once."""

    def __init__(self, ndk: Ndk | None) -> None:
        self._ndk = ndk
        self._read: dict[Path, ElfFacts] = {}

    def sysroot(self, machine: str) -> Sysroot | None:
        """The sysroot for *machine*, if there is one."""
        return sysroot(self._ndk, machine)

    def facts(self, name: str, machine: str, api_level: int) -> ElfFacts | None:
        """The symbols of the system's library *name*, None when they are not known here."""
        root = self.sysroot(machine)
        file = root.stub(name, api_level) if root else None
        if file is None:
            return None
        if file not in self._read:
            self._read[file] = read_elf(file)
        return self._read[file]
