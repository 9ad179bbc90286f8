"""Facts of an ELF file that decide whether it loads where it is sent.

pyelftools knows the layouts, but follows what a file says without bounds: 65,536 names in a string table
of 1 MiB without an end cost it more than a minute. Files come from anywhere, so this reads no more than
the file's size allows: a file that lies ends in :class:`Damaged`, never in a long loop, a large allocation
or an exception of the library. Symbols and versions are those that the dynamic section names, which is what
a dynamic linker reads; pyelftools finds versions by section headers alone.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from adt.errors import PackageError

MAGIC = b"\x7fELF"
PF_X, PF_W = 1, 2
HASH_TABLES = {"DT_HASH": "sysv", "DT_GNU_HASH": "gnu"}
PACKED_RELOCATIONS = ("DT_ANDROID_REL", "DT_ANDROID_RELA", "DT_ANDROID_RELR", "DT_RELR")
"""Compact forms of relocation tables that only newer linkers read."""
DF_TEXTREL, DF_BIND_NOW, DF_1_NOW = 4, 8, 1
STB_LOCAL, STB_WEAK, STT_OBJECT, STV_DEFAULT, STV_PROTECTED, VER_FLG_BASE = 0, 2, 1, 0, 3, 1
HIDDEN = 0x8000
"""Bit of a symbol's version index: not the default version of that name."""

LONGEST_NAME = 1 << 16
"""Bytes; the longest names of C++ templates that were met are a tenth of it."""
MOST_NAMES = 4
"""Bound on the size of all names together, in sizes of the file: names overlap a little in real files."""
MOST_NOTES = 1 << 20
"""Bytes of notes that are looked at."""
MOST_READ = 1 << 25
"""Bytes that pyelftools may read, with each field as :data:`LEAST_READ`; they take a second or two."""
LEAST_READ = 16
MOST_SYMBOLS = 1 << 20
"""Dynamic symbols; the largest libraries export fewer."""
MOST_VERSIONS = 1 << 14
"""Symbol versions that one file may need or define; glibc itself has fewer than a hundred."""


class Damaged(ValueError):
    """The file is no ELF file, is cut short, or contradicts itself."""


class Segment(NamedTuple):
    """One program header; sizes and offsets in bytes."""

    kind: str
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
class AndroidNote:
    """The note that the NDK's startup objects leave in each file linked with them."""

    api_level: int
    ndk: str
    """NDK release, e.g. ``r27d``; empty in files of very old NDKs."""
    ndk_build: str


@dataclass(frozen=True)
class Import:
    """One symbol that another file must supply."""

    name: str
    version: str
    """Symbol version that is asked for; empty: any."""
    library: str
    """Library that the version is asked from; empty: any."""
    weak: bool
    """It may stay without an address."""


@dataclass(frozen=True)
class ElfFacts:
    """One shared library or program."""

    machine: str
    """Without the ``EM_`` prefix: ``AARCH64``, ``X86_64``, …"""
    bits: int
    """32 or 64."""
    type: str
    """``DYN`` (libraries, position-independent programs), ``EXEC``, ``REL``, ``CORE``."""
    interpreter: str
    """The dynamic linker that a program asks for; empty: none."""
    needed: tuple[str, ...]
    """DT_NEEDED, in order."""
    soname: str
    runpath: str
    """DT_RUNPATH, or DT_RPATH where that is all there is."""
    rpath: str
    page_alignment: int
    """Bytes: the smallest p_align of its LOAD segments."""
    loads: tuple[Segment, ...]
    relro: Segment | None
    """Segment that is made read-only after relocation."""
    tls: Segment | None
    """Thread-local storage."""
    executable_stack: bool | None
    """Flag of PT_GNU_STACK; None: there is none."""
    dynamic: bool
    section_headers: bool
    hash_tables: frozenset[str]
    """``sysv``, ``gnu``."""
    packed_relocations: tuple[str, ...]
    """The compact relocation tables that it has, by their tags."""
    text_relocations: bool
    bind_now: bool
    flags_1: tuple[str, ...]
    """Names of the DT_FLAGS_1 that are set, without ``DF_1_``."""
    android: AndroidNote | None
    build_id: str
    """In hex; empty: none."""
    symbol_table: bool
    """``.symtab`` is still there: not stripped."""
    debug_info: bool
    """``.debug_*`` are still there."""
    imports: tuple[Import, ...]
    exports: Mapping[str, frozenset[str]]
    """Symbols that it defines for others, each with its versions (empty: without one)."""
    versions: frozenset[str]
    """Symbol versions that it defines."""
    functions: frozenset[str]
    """Functions it defines for others."""
    objects: frozenset[str]
    """Data symbols it defines for others."""

    @property
    def undefined(self) -> frozenset[str]:
        """Symbols it needs from others; weak ones left out."""
        return frozenset(symbol.name for symbol in self.imports if not symbol.weak)

    @property
    def program(self) -> bool:
        """True if it is a program: started, not loaded."""
        pie = "PIE" in self.flags_1 or (bool(self.interpreter) and not self.soname)
        return self.type == "EXEC" or (self.type == "DYN" and pie)

    def supplies(self, symbol: Import) -> bool:
        """Return True if a dynamic linker that looks *symbol* up in this file finds it."""
        versions = self.exports.get(symbol.name)
        unversioned = not symbol.version or not self.versions
        return versions is not None and (unversioned or symbol.version in versions)


def read_elf(path: Path) -> ElfFacts:
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise Damaged("it is empty")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as contents:
                return parse_elf(contents)
    except (Damaged, OSError) as error:
        raise PackageError(
            f"{path} is not a whole ELF file: {error}", remedy="Build or copy it again."
        ) from error


@contextmanager
def _damage() -> Iterator[None]:
    """Turn any exception into Damaged: pyelftools raises its own, those of construct and plain ones."""
    try:
        yield
    except Damaged:
        raise
    except Exception as error:
        raise Damaged(f"it is cut short or damaged: {str(error) or type(error).__name__}") from error


@_damage()
def section_names(data: bytes) -> frozenset[str]:
    """Return the names of the sections of the ELF file *data*; Damaged as for :func:`parse_elf`."""
    return frozenset(_Image(data).section_names)


@_damage()
def parse_elf(data: bytes | mmap.mmap) -> ElfFacts:
    """Parse the contents *data* of an ELF file; Damaged if it is none, cut short or contradictory."""
    from elftools.elf.enums import ENUM_DT_FLAGS_1

    image = _Image(data)
    symbols = list(image.symbols())
    needed, defined = image.versions()
    indices = image.version_indices(len(symbols))
    imports: list[Import] = []
    exports: dict[str, set[str]] = {}
    functions: set[str] = set()
    objects: set[str] = set()
    for (name, info, other, section), index in zip(symbols, indices, strict=True):
        bind, visibility = info >> 4, other & 3
        if not name or bind == STB_LOCAL:
            continue
        if section == 0:
            library, version = needed.get(index & ~HIDDEN, ("", ""))
            imports.append(Import(name, version, library, bind == STB_WEAK))
        elif visibility in (STV_DEFAULT, STV_PROTECTED):
            exports.setdefault(name, set()).add(defined.get(index & ~HIDDEN, ""))
            (objects if info & 15 == STT_OBJECT else functions).add(name)
    loads = tuple(segment for segment in image.segments if segment.kind == "PT_LOAD")
    stack, interpreter = image.segment("PT_GNU_STACK"), image.segment("PT_INTERP")
    flags, flags_1 = image.tag("DT_FLAGS") or 0, image.tag("DT_FLAGS_1") or 0
    rpath, tags = image.text_of("DT_RPATH"), {tag for tag, _ in image.dynamic}
    android, build_id = _notes(image)
    header = image.elf.header
    return ElfFacts(
        machine=_name(header.e_machine, "EM_", "machine"),
        bits=image.elf.elfclass,
        type=_name(header.e_type, "ET_", "type"),
        interpreter=image.string(interpreter.offset, interpreter.filesz, 0) if interpreter else "",
        needed=tuple(image.dynamic_string(value) for tag, value in image.dynamic if tag == "DT_NEEDED"),
        soname=image.text_of("DT_SONAME"),
        runpath=image.text_of("DT_RUNPATH") or rpath,
        rpath=rpath,
        page_alignment=min((segment.align for segment in loads), default=0),
        loads=loads,
        relro=image.segment("PT_GNU_RELRO"),
        tls=image.segment("PT_TLS"),
        executable_stack=bool(stack.flags & PF_X) if stack else None,
        dynamic=bool(image.dynamic),
        section_headers=bool(image.sections),
        hash_tables=frozenset(name for tag, name in HASH_TABLES.items() if tag in tags),
        packed_relocations=tuple(tag for tag in PACKED_RELOCATIONS if tag in tags),
        text_relocations="DT_TEXTREL" in tags or bool(flags & DF_TEXTREL),
        bind_now="DT_BIND_NOW" in tags or bool(flags & DF_BIND_NOW) or bool(flags_1 & DF_1_NOW),
        flags_1=tuple(name[5:] for name, bit in ENUM_DT_FLAGS_1.items() if flags_1 & bit),
        android=android,
        build_id=build_id,
        symbol_table=".symtab" in image.section_names,
        debug_info=any(name.startswith((".debug_", ".zdebug_")) for name in image.section_names),
        imports=tuple(imports),
        exports={name: frozenset(versions) for name, versions in exports.items()},
        versions=frozenset(defined.values()),
        functions=frozenset(functions),
        objects=frozenset(objects),
    )


def _name(value: str | int, prefix: str, kind: str) -> str:
    """Return pyelftools' name *value* without *prefix*; a number without a name as ``<kind> <number>``."""
    return value.removeprefix(prefix) if isinstance(value, str) else f"{kind} {value}"


def _notes(image: _Image) -> tuple[AndroidNote | None, str]:
    """Return the NDK's note and the build-id."""
    android, build_id = None, ""
    for note in image.notes():
        content = note.n_descdata
        if note.n_name == "Android" and note.n_type == "NT_GNU_ABI_TAG" and len(content) >= 4:
            (api_level,) = struct.unpack_from(image.order + "I", content)
            android = android or AndroidNote(api_level, _field(content[4:68]), _field(content[68:132]))
        elif note.n_name == "GNU" and note.n_type == "NT_GNU_BUILD_ID":
            build_id = build_id or content.hex()
    return android, build_id


def _field(content: bytes) -> str:
    """Return a text that ends at its first NUL, without characters that would change a terminal."""
    text = content.split(b"\0", 1)[0].decode("utf-8", "replace")
    return "".join(character for character in text if character.isprintable())


class _Stream:
    """The bytes of a file for pyelftools, which may read :data:`MOST_READ` of them."""

    def __init__(self, data: bytes | mmap.mmap) -> None:
        self.data, self.position, self.room = data, 0, MOST_READ

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> None:
        self.position = offset if whence == os.SEEK_SET else len(self.data)

    def tell(self) -> int:
        return self.position

    def read(self, size: int) -> bytes:
        self.room -= max(size, LEAST_READ)
        if self.room < 0:
            raise Damaged("its tables have too many fields, or too large ones")
        part = bytes(self.data[self.position : self.position + size])
        self.position += len(part)
        return part


class _Image:
    """The tables of one file, each checked against the file's size before it is read."""

    def __init__(self, data: bytes | mmap.mmap) -> None:
        from elftools.elf.elffile import ELFFile

        self.data, self.size = data, len(data)
        self._room_for_names = max(1 << 20, MOST_NAMES * self.size)
        self._room_for_versions = MOST_VERSIONS
        self.elf = ELFFile(_Stream(data))
        self.order = "<" if self.elf.little_endian else ">"
        head, structs = self.elf.header, self.elf.structs
        rows = self._table(structs.Elf_Phdr, head.e_phoff, head.e_phentsize, head.e_phnum)
        self.segments = tuple(self._segment(row) for row in rows)
        count = head.e_shnum if head.e_shoff else 0
        self.sections = self._table(structs.Elf_Shdr, head.e_shoff, head.e_shentsize, count)
        self.section_names = tuple(self._section_names(head.e_shstrndx))
        self.dynamic = tuple(self._read_dynamic())
        """Tag and value of each entry of the dynamic section, in order, without DT_NULL."""

    def part(self, offset: int, size: int) -> bytes:
        if offset < 0 or size < 0 or offset + size > self.size:
            raise Damaged(f"a table lies outside of its {self.size} bytes: it is cut short or damaged")
        return bytes(self.data[offset : offset + size])

    def _parse(self, layout: Any, offset: int) -> Any:
        self.elf.stream.seek(offset)
        return layout.parse_stream(self.elf.stream)

    def _table(self, layout: Any, offset: int, entry_size: int, count: int) -> tuple[Any, ...]:
        if count and entry_size != layout.sizeof():
            raise Damaged(f"its headers are said to have {entry_size} bytes each")
        self.part(offset, entry_size * count)
        return tuple(self._parse(layout, offset + index * entry_size) for index in range(count))

    def _segment(self, row: Any) -> Segment:
        if row.p_type == "PT_LOAD":
            if (end := row.p_offset + row.p_filesz) > self.size:
                raise Damaged(f"a LOAD segment ends at byte {end} of {self.size}: cut short")
            if row.p_filesz > row.p_memsz:
                raise Damaged("a LOAD segment is larger in the file than in memory")
        sizes = row.p_offset, row.p_vaddr, row.p_filesz, row.p_memsz, row.p_align
        return Segment(row.p_type, row.p_flags, *sizes)

    def _section_names(self, names_index: int) -> Iterator[str]:
        for section in self.sections:
            names = self.sections[names_index]
            used = section.sh_name and section.sh_type != "SHT_NULL"
            yield self.string(names.sh_offset, names.sh_size, section.sh_name) if used else ""

    def segment(self, kind: str) -> Segment | None:
        return next((segment for segment in self.segments if segment.kind == kind), None)

    def _read_dynamic(self) -> Iterator[tuple[str | int, int]]:
        if (segment := self.segment("PT_DYNAMIC")) is None:
            return
        self.part(segment.offset, segment.filesz)
        layout = self.elf.structs.Elf_Dyn
        for index in range(segment.filesz // layout.sizeof()):
            entry = self._parse(layout, segment.offset + index * layout.sizeof())
            if entry.d_tag == "DT_NULL":
                return
            yield entry.d_tag, entry.d_val

    def tag(self, tag: str) -> int | None:
        """Return the value of the first entry *tag* of the dynamic section."""
        return next((value for name, value in self.dynamic if name == tag), None)

    def file_offset(self, tag: str) -> int | None:
        """Return the file offset of the table that *tag* points to; Damaged if no LOAD segment has it."""
        if (vaddr := self.tag(tag)) is None:
            return None
        for segment in self.segments:
            if segment.kind == "PT_LOAD" and 0 <= vaddr - segment.vaddr < segment.filesz:
                return vaddr - segment.vaddr + segment.offset
        raise Damaged(f"its dynamic section points to {vaddr:#x}, which no LOAD segment holds")

    def string(self, table: int, size: int, offset: int) -> str:
        """Return the printable text at *offset* of a string table of *size* bytes at file offset *table*."""
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

    @cached_property
    def _dynamic_strings(self) -> tuple[int, int]:
        table, size = self.file_offset("DT_STRTAB"), self.tag("DT_STRSZ")
        if table is None or size is None:
            raise Damaged("its dynamic section names no string table")
        return table, size

    def dynamic_string(self, offset: int) -> str:
        return self.string(*self._dynamic_strings, offset)

    def text_of(self, tag: str) -> str:
        """Return the text that the entry *tag* of the dynamic section names; empty: there is none."""
        return "" if (offset := self.tag(tag)) is None else self.dynamic_string(offset)

    def symbols(self) -> Iterator[tuple[str, int, int, int]]:
        """Read name, info, other and section of each dynamic symbol; pyelftools takes 14 times as long."""
        if (offset := self.file_offset("DT_SYMTAB")) is None:
            return
        wide = self.elf.elfclass == 64
        entry = struct.Struct(self.order + ("IBBHQQ" if wide else "IIIBBH"))
        count = self._symbol_count(offset, entry.size)
        if count > MOST_SYMBOLS:
            raise Damaged(f"it is said to have {count} dynamic symbols")
        for row in entry.iter_unpack(self.part(offset, count * entry.size)):
            info, other, section = row[1:4] if wide else row[3:]
            yield self.dynamic_string(row[0]) if row[0] else "", info, other, section

    def _symbol_count(self, offset: int, entry_size: int) -> int:
        """Return the count of the section header, as other tools do, or that of a hash table."""
        from elftools.elf.hash import GNUHashTable

        for section in self.sections:
            if section.sh_type == "SHT_DYNSYM" and section.sh_offset == offset:
                return int(section.sh_size // entry_size)
        if (table := self.file_offset("DT_HASH")) is not None:
            return int(struct.unpack(self.order + "II", self.part(table, 8))[1])
        if (table := self.file_offset("DT_GNU_HASH")) is not None:
            return int(GNUHashTable(self.elf, table, None).get_number_of_symbols())
        return 0

    def version_indices(self, symbols: int) -> tuple[int, ...]:
        """Return the version index of each of *symbols* dynamic symbols, 0 in a file without versions."""
        if (table := self.file_offset("DT_VERSYM")) is None:
            return (0,) * symbols
        return struct.unpack(f"{self.order}{symbols}H", self.part(table, 2 * symbols))

    def versions(self) -> tuple[dict[int, tuple[str, str]], dict[int, str]]:
        """Return library and name of each version needed, and name of each version defined, by index."""
        structs, text = self.elf.structs, self.dynamic_string
        needed: dict[int, tuple[str, str]] = {}
        defined: dict[int, str] = {}
        if (table := self.file_offset("DT_VERNEED")) is not None:
            for at, need in self._list(structs.Elf_Verneed, table, self.tag("DT_VERNEEDNUM"), "vn_next"):
                library = text(need.vn_file)
                for _, version in self._list(structs.Elf_Vernaux, at + need.vn_aux, need.vn_cnt, "vna_next"):
                    needed[version.vna_other & ~HIDDEN] = library, text(version.vna_name)
        if (table := self.file_offset("DT_VERDEF")) is not None:
            for at, version in self._list(structs.Elf_Verdef, table, self.tag("DT_VERDEFNUM"), "vd_next"):
                if not version.vd_flags & VER_FLG_BASE:  # which has the file's own name, no version
                    name = self._parse(structs.Elf_Verdaux, at + version.vd_aux).vda_name
                    defined[version.vd_ndx & ~HIDDEN] = text(name)
        return needed, defined

    def _list(self, layout: Any, at: int, count: int | None, following: str) -> Iterator[tuple[int, Any]]:
        """Read offset and fields of each list entry; its field *following* is the distance to the next."""
        for _ in range(count or 0):
            self._room_for_versions -= 1
            if self._room_for_versions < 0:
                raise Damaged(f"it has more than {MOST_VERSIONS} symbol versions")
            entry = self._parse(layout, at)
            yield at, entry
            if entry[following] == 0:
                return
            at += entry[following]

    def notes(self) -> Iterator[Any]:
        """Read the notes of segments and sections, the first MiB of them."""
        from elftools.common.exceptions import ELFError
        from elftools.construct import ConstructError
        from elftools.elf.notes import iter_notes

        places = [(s.offset, s.filesz) for s in self.segments if s.kind == "PT_NOTE"]
        places += [(s.sh_offset, s.sh_size) for s in self.sections if s.sh_type == "SHT_NOTE"]
        room = MOST_NOTES
        for offset, size in dict.fromkeys(places):
            room -= size
            if room < 0:
                return
            self.part(offset, size)
            with suppress(ConstructError, ELFError):  # padding, or a note that lies: no more is here
                yield from iter_notes(self.elf, offset, size)
