"""Read the facts of an ELF file that decide whether it loads where it is sent."""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from adt.errors import PackageError
from adt.host.elf_image import (
    PF_X,
    PT_GNU_RELRO,
    PT_GNU_STACK,
    PT_INTERP,
    PT_LOAD,
    PT_TLS,
    Damaged,
    Image,
    Segment,
)
from adt.host.elf_symbols import DT_GNU_HASH, DT_HASH, dynamic_strings, read_symbols, read_versions

MAGIC = b"\x7fELF"

DT_NEEDED, DT_SONAME, DT_RPATH, DT_TEXTREL, DT_BIND_NOW, DT_FLAGS, DT_RUNPATH = 1, 14, 15, 22, 24, 30, 29
DT_FLAGS_1 = 0x6FFFFFFB
DF_TEXTREL, DF_BIND_NOW, DF_1_NOW, DF_1_PIE = 4, 8, 1, 0x08000000
FLAGS_1 = {
    0x1: "NOW",
    0x2: "GLOBAL",
    0x4: "GROUP",
    0x8: "NODELETE",
    0x20: "INITFIRST",
    0x40: "NOOPEN",
    0x80: "ORIGIN",
    0x400: "INTERPOSE",
    0x800: "NODEFLIB",
    0x8000000: "PIE",
}
HASH_TABLES = {DT_HASH: "sysv", DT_GNU_HASH: "gnu"}
PACKED_RELOCATIONS = {
    0x6000000F: "DT_ANDROID_REL",
    0x60000011: "DT_ANDROID_RELA",
    0x6FFFE000: "DT_ANDROID_RELR",
    36: "DT_RELR",
}
"""Compact forms of relocation tables that only newer linkers read."""
STB_LOCAL, STB_WEAK = 0, 2
STT_OBJECT = 1
STV_DEFAULT, STV_PROTECTED = 0, 3


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
    """DT_RPATH."""
    page_alignment: int
    """Bytes: the smallest p_align of its LOAD segments."""
    loads: tuple[Segment, ...]
    """Its LOAD segments, in order."""
    relro: Segment | None
    """Segment that is made read-only after relocation."""
    tls: Segment | None
    """Thread-local storage."""
    executable_stack: bool | None
    """Flag of PT_GNU_STACK; None: there is none."""
    dynamic: bool
    """It has a dynamic section."""
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
        """Return True if it is a program: started, not loaded."""
        pie = "PIE" in self.flags_1 or (bool(self.interpreter) and not self.soname)
        return self.type == "EXEC" or (self.type == "DYN" and pie)

    def supplies(self, wanted: Import) -> bool:
        """Return True if a dynamic linker that looks *wanted* up in this file finds it."""
        versions = self.exports.get(wanted.name)
        if versions is None:
            return False
        return not wanted.version or not self.versions or wanted.version in versions


def read_elf(path: Path) -> ElfFacts:
    """Read *path*."""
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


def parse_elf(data: bytes | mmap.mmap) -> ElfFacts:
    """Parse the contents *data* of an ELF file; Damaged if it is none, cut short or contradictory."""
    image = Image(data)
    text = dynamic_strings(image)
    symbols = list(read_symbols(image))
    versions = read_versions(image, len(symbols))
    imports: list[Import] = []
    exports: dict[str, set[str]] = {}
    functions: set[str] = set()
    objects: set[str] = set()
    for position, symbol in enumerate(symbols):
        if not symbol.name or symbol.bind == STB_LOCAL:
            continue
        index = versions.of_symbol[position] & 0x7FFF if versions.of_symbol else 0
        if symbol.section == 0:
            library, version = versions.needed.get(index, ("", ""))
            imports.append(Import(symbol.name, version, library, symbol.bind == STB_WEAK))
        elif symbol.visibility in (STV_DEFAULT, STV_PROTECTED):
            exports.setdefault(symbol.name, set()).add(versions.defined.get(index, ""))
            (objects if symbol.kind == STT_OBJECT else functions).add(symbol.name)
    loads = tuple(s for s in image.segments if s.kind == PT_LOAD)
    stack = _segment(image, PT_GNU_STACK)
    interpreter = _segment(image, PT_INTERP)
    flags, flags_1 = image.tag(DT_FLAGS) or 0, image.tag(DT_FLAGS_1) or 0
    rpath, runpath = (
        text(offset) if (offset := image.tag(tag)) is not None else "" for tag in (DT_RPATH, DT_RUNPATH)
    )
    soname = image.tag(DT_SONAME)
    tags = {tag for tag, _ in image.dynamic}
    android, build_id = _notes(image)
    names = {section.name for section in image.sections}
    return ElfFacts(
        machine=image.machine,
        bits=image.bits,
        type=image.type,
        interpreter=image.string(interpreter.offset, interpreter.filesz, 0) if interpreter else "",
        needed=tuple(text(value) for tag, value in image.dynamic if tag == DT_NEEDED),
        soname=text(soname) if soname is not None else "",
        runpath=runpath or rpath,
        rpath=rpath,
        page_alignment=min((s.align for s in loads), default=0),
        loads=loads,
        relro=_segment(image, PT_GNU_RELRO),
        tls=_segment(image, PT_TLS),
        executable_stack=bool(stack.flags & PF_X) if stack else None,
        dynamic=bool(image.dynamic),
        section_headers=bool(image.sections),
        hash_tables=frozenset(name for tag, name in HASH_TABLES.items() if tag in tags),
        packed_relocations=tuple(name for tag, name in PACKED_RELOCATIONS.items() if tag in tags),
        text_relocations=DT_TEXTREL in tags or bool(flags & DF_TEXTREL),
        bind_now=DT_BIND_NOW in tags or bool(flags & DF_BIND_NOW) or bool(flags_1 & DF_1_NOW),
        flags_1=tuple(name for bit, name in FLAGS_1.items() if flags_1 & bit),
        android=android,
        build_id=build_id,
        symbol_table=".symtab" in names,
        debug_info=any(name.startswith((".debug_", ".zdebug_")) for name in names),
        imports=tuple(imports),
        exports={name: frozenset(found) for name, found in exports.items()},
        versions=frozenset(versions.defined.values()),
        functions=frozenset(functions),
        objects=frozenset(objects),
    )


def _segment(image: Image, kind: int) -> Segment | None:
    return next((segment for segment in image.segments if segment.kind == kind), None)


def _notes(image: Image) -> tuple[AndroidNote | None, str]:
    """The NDK's note and the build-id."""
    android, build_id = None, ""
    for name, kind, content in image.notes():
        if name == "Android" and kind == 1 and len(content) >= 4:
            (api_level,) = struct.unpack_from(image.order + "I", content)
            android = android or AndroidNote(api_level, _field(content[4:68]), _field(content[68:132]))
        elif name == "GNU" and kind == 3:
            build_id = build_id or content.hex()
    return android, build_id


def _field(content: bytes) -> str:
    """A text that ends at its first NUL; what would do something to a terminal is left out."""
    text = content.split(b"\0", 1)[0].decode("utf-8", "replace")
    return "".join(character for character in text if character.isprintable())
