"""Files of an APK besides its manifest, and a check that its libraries would load."""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from adt.bundle.audit.auditing import audit
from adt.bundle.audit.binaries import Binary, Unreadable
from adt.bundle.audit.destination import destination
from adt.bundle.audit.report import ElfReport, table
from adt.bundle.bundle import TargetBundle
from adt.bundle.platforms import BIG_PAGE, platform_named
from adt.errors import BuildError
from adt.host.ndk import Ndk
from adt.integrate.bench_plan import BENCH_PLAN
from adt.integrate.contents import LIBRARIES, apk_files, benchmark_files
from adt.integrate.model_api import Project
from adt.package.files import PARAMS

WORD = 4
"""Bytes at which Android wants what it maps from an APK and is no library."""


@dataclass(frozen=True)
class ApkEntry:
    """One file of the APK, stored as it is, so that Android can map it."""

    name: str
    contents: Path | bytes
    alignment: int = WORD
    """Bytes: its place in the APK is a multiple of this."""


def apk_entries(project: Project, bench_plan: str) -> tuple[ApkEntry, ...]:
    """Return every file of the app of *project*, sorted by name."""
    files = apk_files(project) | benchmark_files(project)
    entries = [ApkEntry(name, path, _alignment(name)) for name, path in files.items()]
    made = [ApkEntry(BENCH_PLAN, bench_plan.encode()), ApkEntry(CLASSES_DEX, stub_dex())]
    return tuple(sorted([*made, *entries], key=lambda entry: entry.name))


def _alignment(name: str) -> int:
    """Return the alignment of a file: pages of libraries, and of parameters, are used where they lie."""
    return BIG_PAGE if name.startswith(LIBRARIES) or name.endswith(f"/{PARAMS}") else WORD


def audit_libraries(
    libraries: Sequence[Binary | Unreadable], bundle: TargetBundle, *, api_level: int, ndk: Ndk | None
) -> ElfReport:
    """Judge those of *libraries*, named as in the APK, that are for the ABI of *bundle*, from *api_level* on.

    Without an *ndk*, symbols of the system stay unchecked.
    """
    platform = platform_named(bundle.manifest.platform)
    judged = [library for library in libraries if library.name.startswith(f"{LIBRARIES}{platform.abi}/")]
    report = audit(judged, destination(platform, api_level=api_level, ndk=ndk))
    if report.refused:
        first = report.refused[0]
        raise BuildError(
            f"{first.name} would not load from the APK: {first.reasons[0].what}",
            remedy=first.reasons[0].remedy,
            details=table(report),
        )
    return report


CLASSES_DEX = "classes.dex"
_TYPES = ("Ladt/Stub;", "Ljava/lang/Object;")  # sorted, as the format wants
_PUBLIC_FINAL = 0x11
_NO_INDEX = 0xFFFFFFFF
_HEADER = struct.Struct("<8sI20s20I")
_LITTLE_ENDIAN = 0x12345678
# Types of the map's items.
_HEADER_ITEM, _STRING_IDS, _TYPE_IDS, _CLASS_DEFS, _MAP, _STRING_DATA = 0, 1, 2, 6, 0x1000, 0x2002


def stub_dex() -> bytes:
    """Return ``classes.dex``, version 035, of an app without code of its own: one class without methods.

    From targetSdkVersion 31 on, Android hands the libraries that a manifest names to the class loader of the
    app's code (``LoadedApk``, ``ApplicationLoaders``), so an app needs some to see the vendor's OpenCL. The
    format is https://source.android.com/docs/core/runtime/dex-format.
    """
    count = len(_TYPES)
    string_ids = _HEADER.size
    type_ids = string_ids + 4 * count
    class_defs = type_ids + 4 * count
    data = class_defs + 32
    texts = [bytes([len(text)]) + text.encode() + b"\0" for text in _TYPES]
    starts = [data + sum(map(len, texts[:index])) for index in range(count)]
    end = data + sum(map(len, texts))
    map_list = end + -end % 4
    sections = (
        (_HEADER_ITEM, 1, 0),
        (_STRING_IDS, count, string_ids),
        (_TYPE_IDS, count, type_ids),
        (_CLASS_DEFS, 1, class_defs),
        (_STRING_DATA, count, data),
        (_MAP, 1, map_list),
    )
    body = struct.pack(f"<{2 * count}I", *starts, *range(count))
    # class, access, superclass, interfaces, source file, annotations, members, values of static fields
    body += struct.pack("<8I", 0, _PUBLIC_FINAL, 1, 0, _NO_INDEX, 0, 0, 0)
    body += b"".join(texts) + bytes(-end % 4)
    body += struct.pack("<I", len(sections)) + b"".join(
        struct.pack("<HHII", kind, 0, *at) for kind, *at in sections
    )
    size = _HEADER.size + len(body)
    fields = [size, _HEADER.size, _LITTLE_ENDIAN, 0, 0, map_list, count, string_ids, count, type_ids]
    fields += [0, 0, 0, 0, 0, 0, 1, class_defs, size - data, data]  # no prototypes, fields or methods
    signed = struct.pack("<20I", *fields) + body
    summed = hashlib.sha1(signed, usedforsecurity=False).digest() + signed
    return b"dex\n035\0" + struct.pack("<I", zlib.adler32(summed)) + summed
