"""ELF files in files, directories and archives (wheels, AARs, APKs), which are never unpacked to disk."""

from __future__ import annotations

import os
import stat
import struct
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from adt.errors import PackageError
from adt.host.elf import MAGIC, Damaged, ElfFacts, parse_elf, read_elf

ARCHIVES = (".whl", ".aar", ".apk", ".jar", ".zip")
MOST_MEMBERS = 50_000
LARGEST_MEMBER = 512 << 20
"""Bytes, uncompressed."""
LARGEST_TOTAL = 4 << 30
"""Bytes of all ELF files of one archive, uncompressed."""


@dataclass(frozen=True)
class Member:
    """One ELF file in an archive."""

    name: str
    contents: bytes
    stored_at: int | None
    """Byte at which it begins in the archive, when it is stored uncompressed."""


def archive_members(path: Path) -> Iterator[Member]:
    """Yield each file of the archive *path* that begins as ELF files do; PackageError if it is damaged."""
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
                yield Member(name, contents, _begin(path, member) if stored else None)
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
    """Byte at which it begins in its archive, when it is stored there uncompressed."""
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
    """Return the ELF files at *path*: itself, those below a directory, those in an archive.

    In directories and archives only linked ELF files count; names of files below *path* begin with *prefix*.
    PackageError if there are none.
    """
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
    for member in archive_members(archive):
        binary = _parse(archive, member, kind, prefix)
        if _linked(binary):
            yield binary


def _parse(archive: Path, member: Member, kind: str, prefix: str) -> Binary | Unreadable:
    name, place = prefix + member.name, f"{archive.absolute()}/{member.name}"
    try:
        return Binary(name, place, parse_elf(member.contents), member.stored_at, kind)
    except Damaged as error:
        return Unreadable(name, f"{name} is not a whole ELF file: {error}")
