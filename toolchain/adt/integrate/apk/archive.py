"""Write the zip archive that an APK is, with each file where Android can map it.

Android maps libraries, parameters and resources straight from an APK when they
are stored uncompressed at the right place: libraries at a multiple of the page
size, which is 16 KB on newer devices. The ``zipalign`` of older build-tools and
of Debian knows pages of 4 KB only, so the places are made right as the archive
is written: a field of padding before each file, in the form that apksigner
reads and keeps.
"""

from __future__ import annotations

import shutil
import struct
import zipfile
from collections.abc import Iterable
from pathlib import Path

from adt.integrate.apk.entries import ApkEntry

EARLIEST = (1980, 1, 1, 0, 0, 0)
"""The same time for every file: the same contents give the same archive."""
LOCAL_HEADER = 30
"""Bytes of a file's header, before its name and extra field."""
ALIGNMENT_FIELD = 0xD935
"""Extra field that says what a file is aligned to; apksigner aligns it so again when it moves it."""
FIELD = struct.Struct("<HHH")
"""Its header, its size, the alignment; zeros follow."""
READABLE = 0o100644 << 16


def write_archive(entries: Iterable[ApkEntry], path: Path) -> None:
    """Write *entries* to *path*, in order, each stored as it is and aligned as it says.

    Raises:
        OSError: *path* cannot be written.
    """
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for entry in entries:
            member = zipfile.ZipInfo(entry.name, EARLIEST)
            member.external_attr = READABLE
            assert archive.fp is not None
            begin = archive.fp.tell() + LOCAL_HEADER + len(entry.name.encode())
            member.extra = _padding(begin, entry.alignment)
            if isinstance(entry.contents, bytes):
                archive.writestr(member, entry.contents)
            else:
                member.file_size = entry.contents.stat().st_size
                with entry.contents.open("rb") as source, archive.open(member, "w") as target:
                    shutil.copyfileobj(source, target, 1 << 20)


def _padding(begin: int, alignment: int) -> bytes:
    """The extra field after which *begin* bytes and itself end at a multiple of *alignment*."""
    field = FIELD.pack(ALIGNMENT_FIELD, FIELD.size - 4 + -(begin + FIELD.size) % alignment, alignment)
    return field + bytes(-(begin + FIELD.size) % alignment)
