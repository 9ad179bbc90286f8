"""The ELF files inside zip archives: wheels, AARs, APKs. Read with limits, never unpacked to disk."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from adt.errors import PackageError
from adt.host.elf import MAGIC

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
    """Yield each file of the archive *path* that begins as ELF files do, in the archive's order.

    Raises:
        PackageError: it is no zip archive, is damaged, encrypted, or larger than any real one.
    """
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
    """The byte after the member's local header, whose extra field may differ from the directory's."""
    with path.open("rb") as file:
        file.seek(member.header_offset + 26)
        name, extra = struct.unpack("<HH", file.read(4))
    return member.header_offset + 30 + int(name) + int(extra)


def _refused(path: Path, reason: str) -> PackageError:
    return PackageError(
        f"{path} cannot be read as a zip archive: {reason}", remedy="Download or build it again."
    )
