"""ELF files in files, directories and archives (never unpacked to disk), and who provides what they need.

Providers are found as a file's dynamic linker does: among the files, the system, the NDK's sysroot.
"""

from __future__ import annotations

import os
import posixpath
import stat
import struct
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

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
from adt.errors import PackageError
from adt.host.elf import MAGIC, Damaged, ElfFacts, Import, parse_elf, read_elf
from adt.host.ndk import Ndk

ARCHIVES = (".whl", ".aar", ".apk", ".jar", ".zip")
MOST_MEMBERS = 50_000
LARGEST_MEMBER, LARGEST_TOTAL = 512 << 20, 4 << 30
"""Bytes of one ELF file of an archive, and of all of them, uncompressed."""


def archive_members(path: Path) -> Iterator[tuple[str, bytes, int | None]]:
    """Yield name, contents and, if stored plain, place of each file in *path* that begins as ELF files do."""
    total = 0
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if len(members) > MOST_MEMBERS:
                raise _refused(path, f"it has {len(members)} members")
            for member in members:
                if member.is_dir() or member.file_size < 64:
                    continue
                with archive.open(member) as opened:
                    if opened.read(len(MAGIC)) != MAGIC:
                        continue
                    opened.seek(0)
                    contents = opened.read(LARGEST_MEMBER + 1)
                total += len(contents)
                if len(contents) > LARGEST_MEMBER or total > LARGEST_TOTAL:
                    raise _refused(path, f"{member.filename} is larger than adt reads")
                stored = member.compress_type == zipfile.ZIP_STORED
                name = "".join(c if c.isprintable() else "\ufffd" for c in member.filename)
                yield name, contents, _begin(path, member) if stored else None
    except PackageError:
        raise
    except Exception as error:  # zipfile and the decompressors raise a dozen kinds for damaged archives
        raise _refused(path, f"{type(error).__name__}: {error}") from error


def _begin(path: Path, member: zipfile.ZipInfo) -> int:
    """Return the byte after the member's local header, whose extra field may differ from the directory's."""
    with path.open("rb") as file:
        file.seek(member.header_offset + 26)
        name, extra = struct.unpack("<HH", file.read(4))
    return member.header_offset + 30 + int(name) + int(extra)


def _refused(path: Path, reason: str) -> PackageError:
    return PackageError(
        f"{path} cannot be read as a zip archive: {reason}", remedy="Download or build it again."
    )


DEBUG_FILES = (".debug", ".dbg")
"""Separated debug information: ELF files that no dynamic linker reads."""


@dataclass(frozen=True)
class Binary:
    """One ELF file."""

    name: str
    """For people: below the directory or archive that was named."""
    place: str
    """Path of the file, ``/``-separated; inside an archive, below the archive's own path."""
    facts: ElfFacts
    stored_at: int | None = None
    kind: str = "file"
    """``file`` (judged), ``bundle``, ``ndk`` or ``glibc`` (only asked for symbols)."""

    @property
    def filename(self) -> str:
        """Its name in DT_NEEDED."""
        return self.place.rpartition("/")[2]

    @property
    def directory(self) -> str:
        return self.place.rpartition("/")[0]


@dataclass(frozen=True)
class Unreadable:
    """A file that should be an ELF file and is none, or a damaged one."""

    name: str
    reason: str


def collect(path: Path, *, kind: str = "file", prefix: str = "") -> tuple[Binary | Unreadable, ...]:
    """Return the ELF files at *path*: itself, linked ones below a directory, those in an archive."""
    if not path.exists():
        raise PackageError(f"{path} does not exist", remedy="Name a file, a directory or an archive.")
    if path.is_dir():
        binaries = tuple(_in_directory(path, kind, prefix))
    elif path.suffix in ARCHIVES:
        binaries = tuple(_in_archive(path, kind, prefix))
    else:
        return (_read(path, path.name, kind),)
    if not binaries:
        raise PackageError(f"there is no ELF file in {path}", remedy="Name a file, or another directory.")
    return binaries


def _in_directory(directory: Path, kind: str, prefix: str) -> Iterator[Binary | Unreadable]:
    for top, below, files in os.walk(directory):
        below.sort()
        for file in (Path(top) / name for name in sorted(files)):
            if file.suffix not in DEBUG_FILES and _begins_as_elf(file):
                binary = _read(file, prefix + file.relative_to(directory).as_posix(), kind)
                if _linked(binary):
                    yield binary


def _begins_as_elf(file: Path) -> bool:
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            return False
        with file.open("rb") as opened:
            return opened.read(len(MAGIC)) == MAGIC
    except OSError:  # a dangling link, or not ours to read: it cannot be sent either
        return False


def _linked(binary: Binary | Unreadable) -> bool:
    return isinstance(binary, Unreadable) or binary.facts.type not in ("REL", "CORE")


def _read(file: Path, name: str, kind: str) -> Binary | Unreadable:
    try:
        return Binary(name, str(file.absolute()), read_elf(file), kind=kind)
    except PackageError as error:
        return Unreadable(name, error.what)


def _in_archive(archive: Path, kind: str, prefix: str) -> Iterator[Binary | Unreadable]:
    for member, contents, stored_at in archive_members(archive):
        name = prefix + member
        try:
            binary = Binary(name, f"{archive.absolute()}/{member}", parse_elf(contents), stored_at, kind)
        except Damaged as error:
            yield Unreadable(name, f"{name} is not a whole ELF file: {error}")
        else:
            if _linked(binary):
                yield binary


@dataclass(frozen=True)
class Closure:
    """A file and all that its DT_NEEDED brings, directly and through others."""

    files: list[Binary]
    """The file itself first, then breadth first."""
    stubs: list[tuple[str, ElfFacts]] = field(default_factory=list)
    """System libraries whose symbols are known."""
    blind: list[str] = field(default_factory=list)
    """System libraries whose symbols are not known."""
    absent: list[str] = field(default_factory=list)
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
        known = name in PUBLIC or GLIBC_LIBRARIES.fullmatch(name) or PRIVATE.fullmatch(name)
        if system == ANDROID and known:
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
        libraries = self.stubs.libraries(facts.machine)
        file = libraries / name if libraries else None
        return self._library(file, "ndk") if file and file.is_file() else None

    def _library(self, file: Path, kind: str) -> Binary:
        if file not in self._read:
            self._read[file] = Binary(file.name, str(file), read_elf(file), kind=kind)
        return self._read[file]

    def closure(self, binary: Binary, system: str) -> Closure:
        """Return the libraries that *binary* brings in when it is loaded on its own."""
        level = self.destination.level_for(binary.facts)
        closure, seen = Closure([binary]), {binary.filename}
        for asker in closure.files:  # which grows meanwhile
            for name in asker.facts.needed:
                if name in seen:
                    continue
                seen.add(name)
                need, library = self.need(name, asker, system)
                if library:
                    closure.files.append(library)
                elif stub := self.stubs.facts(name, asker.facts.machine, level):
                    closure.stubs.append((name, stub))
                else:
                    known = need.provider in ("android", "glibc")
                    (closure.blind if known else closure.absent).append(name)
        return closure

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

    Symbols of glibc's libraries and of bionic's libc have versions: they are none that is asked for without,
    if the file asks for any with one, or if another file is known to have it (*elsewhere*).
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


class Stubs:
    """Stub libraries of an NDK, each read once."""

    def __init__(self, ndk: Ndk | None) -> None:
        self._ndk = ndk
        self._read: dict[Path, ElfFacts] = {}

    def libraries(self, machine: str) -> Path | None:
        """Find the directory for *machine*: libc++_shared.so, and a directory of stubs for each API level."""
        if self._ndk is None or machine not in TRIPLES:
            return None
        libraries = self._ndk.bin.parent / "sysroot/usr/lib" / TRIPLES[machine]
        return libraries if libraries.is_dir() and _levels(libraries) else None

    def facts(self, name: str, machine: str, api_level: int) -> ElfFacts | None:
        """Read the symbols of the system's library *name* at *api_level* or the level nearest to it."""
        libraries = self.libraries(machine)
        if libraries is None:
            return None
        levels = _levels(libraries)
        level = max((level for level in levels if level <= api_level), default=levels[0])
        return self._stub(libraries / str(level) / name)

    def first_level_with(self, name: str, machine: str, symbol: str) -> int | None:
        """Find the lowest API level whose library *name* has *symbol*."""
        libraries = self.libraries(machine)
        if libraries is not None:
            for level in _levels(libraries):
                facts = self._stub(libraries / str(level) / name)
                if facts and symbol in facts.exports:
                    return level
        return None

    def _stub(self, file: Path) -> ElfFacts | None:
        if file not in self._read:
            if not file.is_file():
                return None
            self._read[file] = read_elf(file)
        return self._read[file]


def _levels(libraries: Path) -> list[int]:
    """List the API levels that have stubs, lowest first."""
    return sorted(int(each.name) for each in libraries.glob("[0-9]*") if each.name.isdigit())
