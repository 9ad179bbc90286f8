"""Providers of what a file needs, as its dynamic linker finds them: files, the system, the NDK's sysroot."""

from __future__ import annotations

import posixpath
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from adt.bundle.audit.binaries import Binary, Unreadable
from adt.bundle.audit.destination import (
    ANDROID,
    GLIBC_LIBRARIES,
    PRIVATE,
    PUBLIC,
    VENDOR,
    Destination,
    may_supply,
)
from adt.bundle.audit.report import Need
from adt.host.elf import ElfFacts, Import, read_elf
from adt.host.ndk import Ndk


@dataclass(frozen=True)
class Closure:
    """A file and all that its DT_NEEDED brings, directly and through others."""

    files: tuple[Binary, ...]
    """The file itself first, then breadth first."""
    stubs: tuple[tuple[str, ElfFacts], ...]
    """System libraries whose symbols are known."""
    blind: tuple[str, ...]
    """System libraries whose symbols are not known."""
    absent: tuple[str, ...]
    """Libraries that nobody has here."""


class Providers:
    """All files that may answer for one another, and the system's libraries."""

    def __init__(self, files: Iterable[Binary | Unreadable], destination: Destination) -> None:
        self.files = tuple(file for file in files if isinstance(file, Binary))
        self.destination = destination
        self.stubs = Stubs(destination.ndk)
        self._by_name: dict[tuple[str, int, str], list[Binary]] = {}
        self._owners: dict[tuple[str, int, str], list[Binary]] = {}
        self._read: dict[Path, Binary] = {}
        for binary in self.files:
            self._by_name.setdefault(_key(binary.facts, binary.filename), []).append(binary)
            for symbol in binary.facts.exports:
                self._owners.setdefault(_key(binary.facts, symbol), []).append(binary)

    def find(self, name: str, asker: Binary) -> Binary | None:
        """Find the file that *asker* means by *name*: one beside it, else the nearest one."""
        libraries = self._by_name.get(_key(asker.facts, name), [])
        return max(libraries, key=lambda file: _nearness(file.directory, asker.directory), default=None)

    def named_otherwise(self, name: str, asker: Binary) -> Binary | None:
        """Find a file whose SONAME is *name*, though it is called otherwise."""
        key = _key(asker.facts, name)
        return next((file for file in self.files if _key(file.facts, file.facts.soname) == key), None)

    def need(self, name: str, asker: Binary, system: str) -> tuple[Need, Binary | None]:
        """Return the provider of *name* for *asker*, and its file where there is one."""
        if library := self.find(name, asker):
            return Need(name, library.kind, library.name), library
        facts = asker.facts
        level = self.destination.level_for(facts)
        if system == ANDROID and self.stubs.facts(name, facts.machine, level):
            return Need(name, "android", f"API {level}, by the NDK"), None
        if system == ANDROID and not self.destination.stand_in:
            if name in PUBLIC and PUBLIC[name].since <= level:
                return Need(name, "android", f"public since API {PUBLIC[name].since}"), None
        elif here := self._on_this_machine(name, facts):
            return Need(name, "glibc", here.place), here
        elif GLIBC_LIBRARIES.fullmatch(name):
            return Need(name, "glibc", ""), None
        if VENDOR.fullmatch(name):
            return Need(name, "vendor", "some devices"), None
        if system == ANDROID and (lent := self._lent_by_ndk(name, facts)):
            return Need(name, "ndk", lent.place), lent
        if system == ANDROID and (
            name in PUBLIC or GLIBC_LIBRARIES.fullmatch(name) or PRIVATE.fullmatch(name)
        ):
            return Need(name, "not-public", "another copy of it would not help"), None
        return Need(name, "missing", ""), None

    def _on_this_machine(self, name: str, facts: ElfFacts) -> Binary | None:
        """Find the system's own library *name*, when the destination is this machine."""
        for directory in self.destination.directories:
            if (directory / name).is_file():
                library = self._library(directory / name, "glibc")
                if _key(library.facts, name) == _key(facts, name):
                    return library
        return None

    def _lent_by_ndk(self, name: str, facts: ElfFacts) -> Binary | None:
        """Find the library *name* of the NDK that apps bring along."""
        root = self.stubs.sysroot(facts.machine)
        file = root.lent(name) if root else None
        return self._library(file, "ndk") if file else None

    def _library(self, file: Path, kind: str) -> Binary:
        if file not in self._read:
            self._read[file] = Binary(file.name, str(file), read_elf(file), kind=kind)
        return self._read[file]

    def closure(self, binary: Binary, system: str) -> Closure:
        """Return the libraries that *binary* brings in when it is loaded on its own."""
        level = self.destination.level_for(binary.facts)
        files, stubs = [binary], []
        blind: list[str] = []
        absent: list[str] = []
        queue, seen = deque([binary]), {binary.filename}
        while queue:
            asker = queue.popleft()
            for name in asker.facts.needed:
                if name in seen:
                    continue
                seen.add(name)
                need, library = self.need(name, asker, system)
                if library:
                    files.append(library)
                    queue.append(library)
                elif stub := self.stubs.facts(name, asker.facts.machine, level):
                    stubs.append((name, stub))
                else:
                    (blind if need.provider in ("android", "glibc") else absent).append(name)
        return Closure(tuple(files), tuple(stubs), tuple(blind), tuple(absent))

    def owners(self, symbol: Import, asker: ElfFacts) -> list[Binary]:
        """Return the files, of the asker's kind, that have the symbol."""
        owners = self._owners.get(_key(asker, symbol.name), [])
        return [file for file in owners if file.facts.supplies(symbol)]


def _key(facts: ElfFacts, name: str) -> tuple[str, int, str]:
    return facts.machine, facts.bits, name


def _nearness(one: str, other: str) -> int:
    """Count the common parts of two directories; the same directory is nearest."""
    return 1 << 20 if one == other else len(posixpath.commonpath([one or "/", other or "/"]))


def may_be_in_system(
    symbol: Import, closure: Closure, destination: Destination, system: str, *, elsewhere: bool
) -> bool:
    """Return True if a library whose symbols are not known here can have the symbol.

    Symbols of glibc's libraries and of bionic's libc have versions. So they do not have one that is asked for
    without, if the file asks for any with one, or if another file is known to have it (*elsewhere*).
    """
    if closure.absent:
        return True
    if symbol.library:
        return symbol.library in closure.blind
    facts = closure.files[0].facts
    libraries = {symbol.library for symbol in facts.imports if symbol.library}
    if not closure.blind:
        return False
    if system != ANDROID or destination.stand_in:
        return not libraries and not elsewhere
    versions_in_use = elsewhere or bool(libraries & {"libc.so", "libm.so", "libdl.so"})
    return any(
        may_supply(name, symbol.name, versions_in_use=versions_in_use, machine=facts.machine)
        for name in closure.blind
    )


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
        """Return the level whose stubs answer for *api_level*: the nearest one not above, else the lowest."""
        return max((have for have in self.levels if have <= api_level), default=min(self.levels))

    def stub(self, name: str, api_level: int) -> Path | None:
        """Find the stub of the public library *name* at *api_level*."""
        stub = self.libraries / str(self.level(api_level)) / name
        return stub if stub.is_file() else None

    def first_level_with(self, name: str, symbol: str) -> int | None:
        """Find the lowest API level whose library *name* has *symbol*."""
        for level in self.levels:
            file = self.libraries / str(level) / name
            if file.is_file() and symbol in read_elf(file).exports:
                return level
        return None

    def lent(self, name: str) -> Path | None:
        """Find a library that the NDK has for apps to bring along, such as libc++_shared.so."""
        library = self.libraries / name
        return library if library.is_file() else None


class Stubs:
    """Stub libraries, each read once."""

    def __init__(self, ndk: Ndk | None) -> None:
        self._ndk = ndk
        self._read: dict[Path, ElfFacts] = {}

    def sysroot(self, machine: str) -> Sysroot | None:
        """Find the NDK's sysroot for *machine*; None when there is none."""
        if self._ndk is None or machine not in TRIPLES:
            return None
        tree = Sysroot(self._ndk.bin.parent / "sysroot/usr/lib" / TRIPLES[machine])
        return tree if tree.libraries.is_dir() and tree.levels else None

    def facts(self, name: str, machine: str, api_level: int) -> ElfFacts | None:
        """Read the symbols of the system's library *name*; None when they are not known here."""
        root = self.sysroot(machine)
        file = root.stub(name, api_level) if root else None
        if file is None:
            return None
        if file not in self._read:
            self._read[file] = read_elf(file)
        return self._read[file]
