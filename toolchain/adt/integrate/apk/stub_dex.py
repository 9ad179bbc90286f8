"""``classes.dex`` of an app that has no code of its own: one class without methods.

From targetSdkVersion 31 on, Android hands the libraries that a manifest names to the class loader of the
app's code (``LoadedApk``, ``ApplicationLoaders``), so an app needs some to see the vendor's OpenCL.

The format is https://source.android.com/docs/core/runtime/dex-format, version 035.
"""

from __future__ import annotations

import hashlib
import struct
import zlib

CLASSES_DEX = "classes.dex"
_TYPES = ("Ladt/Stub;", "Ljava/lang/Object;")  # sorted, as the format wants
_PUBLIC_FINAL = 0x11
_NO_INDEX = 0xFFFFFFFF
_HEADER = struct.Struct("<8sI20s20I")
_LITTLE_ENDIAN = 0x12345678
# Types of the map's items.
_HEADER_ITEM, _STRING_IDS, _TYPE_IDS, _CLASS_DEFS, _MAP, _STRING_DATA = 0, 1, 2, 6, 0x1000, 0x2002


def stub_dex() -> bytes:
    """Return the file, always the same."""
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
