"""The dynamic symbols of an ELF file and their versions."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from adt.host.elf_image import Damaged, Image

DT_HASH, DT_STRTAB, DT_SYMTAB, DT_STRSZ = 4, 5, 6, 10
DT_GNU_HASH, DT_VERSYM = 0x6FFFFEF5, 0x6FFFFFF0
DT_VERDEF, DT_VERDEFNUM, DT_VERNEED, DT_VERNEEDNUM = 0x6FFFFFFC, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF
SHT_DYNSYM = 11
HIDDEN = 0x8000
"""Bit of a symbol's version index: not the default version of that name."""
MOST_SYMBOLS = 1 << 20
"""More than the largest libraries export."""
MOST_VERSIONS = 1 << 14
"""Symbol versions that one file may need or define; glibc itself has fewer than a hundred."""


class Symbol(NamedTuple):
    """One entry of the dynamic symbol table; the numbers are those of elf.h."""

    name: str
    bind: int
    kind: int
    visibility: int
    section: int
    """0: it is undefined, another file must supply it."""


@dataclass(frozen=True)
class Versions:
    """Content of the version tables."""

    of_symbol: tuple[int, ...]
    """Version index of each symbol; empty: the file has no versions."""
    needed: dict[int, tuple[str, str]]
    """Version index to the library it is asked from and the version's name."""
    defined: dict[int, str]
    """Version index to the name of a version that this file defines."""


def dynamic_strings(image: Image) -> Callable[[int], str]:
    """A function from an offset in the dynamic string table to the text there.

    It raises Damaged when there is no such text, or no such table.
    """
    table, size = image.tag(DT_STRTAB), image.tag(DT_STRSZ)
    if table is None or size is None:
        return _no_string
    return partial(image.string, image.file_offset(table), size)


def _no_string(_offset: int) -> str:
    raise Damaged("its dynamic section names no string table")


def read_symbols(image: Image) -> Iterator[Symbol]:
    """Read every entry of the dynamic symbol table, the empty first one included."""
    table = image.tag(DT_SYMTAB)
    if table is None:
        return
    offset = image.file_offset(table)
    form = "IBBHQQ" if image.bits == 64 else "IIIBBH"
    entry = struct.Struct(image.order + form)
    count = _symbol_count(image, offset, entry.size)
    if count > MOST_SYMBOLS:
        raise Damaged(f"it is said to have {count} dynamic symbols")
    text = dynamic_strings(image)
    for row in entry.iter_unpack(image.part(offset, count * entry.size, "the dynamic symbol table")):
        if image.bits == 64:
            name, info, other, section = row[:4]
        else:
            name, _, _, info, other, section = row
        yield Symbol(text(name) if name else "", info >> 4, info & 15, other & 3, section)


def _symbol_count(image: Image, offset: int, entry_size: int) -> int:
    """From the section header as other tools do; a file without those still has a hash table."""
    for section in image.sections:
        if section.kind == SHT_DYNSYM and section.offset == offset:
            return section.size // entry_size
    if (classic := image.tag(DT_HASH)) is not None:
        return image.unpack("II", image.file_offset(classic))[1]
    if (gnu := image.tag(DT_GNU_HASH)) is not None:
        return _count_by_gnu_hash(image, image.file_offset(gnu))
    return 0


def _count_by_gnu_hash(image: Image, offset: int) -> int:
    """The highest symbol that a bucket begins with, then along its chain to the entry with bit 0 set."""
    buckets, first, bloom, _ = image.unpack("IIII", offset)
    at = offset + 16 + bloom * (image.bits // 8)
    starts = array("I", image.part(at, 4 * buckets, "the hash table"))
    if not image.little:
        starts.byteswap()
    last = max(starts, default=0)
    if last < first:
        return first
    while not image.unpack("I", at + 4 * (buckets + last - first))[0] & 1:
        last += 1
        if last > MOST_SYMBOLS:
            break
    return last + 1


def read_versions(image: Image, symbols: int) -> Versions:
    """Read the versions of the first *symbols* dynamic symbols."""
    place = image.tag(DT_VERSYM)
    if place is None:
        return Versions((), {}, {})
    of_symbol = image.unpack(f"{symbols}H", image.file_offset(place))
    text = dynamic_strings(image)
    room = [MOST_VERSIONS]
    needed: dict[int, tuple[str, str]] = {}
    defined: dict[int, str] = {}
    for at, (_, count, file, auxiliary, _) in _table(image, DT_VERNEED, DT_VERNEEDNUM, "HHIII", room):
        library = text(file)
        for _, (_, _, index, name, _) in _list(image, at + auxiliary, count, "IHHII", room):
            needed[index & ~HIDDEN] = library, text(name)
    for at, (_, flags, index, _, _, auxiliary, _) in _table(image, DT_VERDEF, DT_VERDEFNUM, "HHHHIII", room):
        if not flags & 1:  # VER_FLG_BASE: the file's own name, no version
            defined[index & ~HIDDEN] = text(image.unpack("I", at + auxiliary)[0])
    return Versions(of_symbol, needed, defined)


def _table(
    image: Image, table: int, count: int, form: str, room: list[int]
) -> Iterator[tuple[int, tuple[int, ...]]]:
    place, length = image.tag(table), image.tag(count)
    if place is not None and length is not None:
        yield from _list(image, image.file_offset(place), length, form, room)


def _list(
    image: Image, at: int, count: int, form: str, room: list[int]
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Offset and fields of each entry of a list whose last field says how far ahead the next one is.

    *room* is how many entries the file's lists may still have together.
    """
    for _ in range(count):
        room[0] -= 1
        if room[0] < 0:
            raise Damaged(f"it has more than {MOST_VERSIONS} symbol versions")
        fields = image.unpack(form, at)
        yield at, fields
        if fields[-1] == 0:
            return
        at += fields[-1]
