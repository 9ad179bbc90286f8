"""Read the few facts of an ELF file that decide whether it loads where it is sent."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from adt.errors import PackageError


@dataclass(frozen=True)
class ElfFacts:
    """One shared library or program."""

    machine: str
    """Without the ``EM_`` prefix: ``AARCH64``, ``X86_64``, …"""
    needed: tuple[str, ...]
    """DT_NEEDED, in order."""
    soname: str
    runpath: str
    page_alignment: int
    """Bytes: the smallest p_align of its LOAD segments."""
    functions: frozenset[str]
    """Functions it defines for others."""
    objects: frozenset[str]
    """Data symbols it defines for others."""
    undefined: frozenset[str]
    """Symbols it needs from others; weak ones left out."""


def read_elf(path: Path) -> ElfFacts:
    """Read *path*.

    Raises:
        PackageError: it is no ELF file or is damaged.
    """
    from elftools.common.exceptions import ELFError
    from elftools.elf.dynamic import DynamicSection
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import SymbolTableSection

    needed: list[str] = []
    soname = runpath = ""
    functions: set[str] = set()
    objects: set[str] = set()
    undefined: set[str] = set()
    try:
        with path.open("rb") as file:
            elf = ELFFile(file)
            loads = [s["p_align"] for s in elf.iter_segments() if s["p_type"] == "PT_LOAD"]
            for section in elf.iter_sections():
                if isinstance(section, DynamicSection):
                    for tag in section.iter_tags():
                        match tag.entry.d_tag:
                            case "DT_NEEDED":
                                needed.append(tag.needed)
                            case "DT_SONAME":
                                soname = tag.soname
                            case "DT_RUNPATH" | "DT_RPATH":
                                runpath = tag.runpath if tag.entry.d_tag == "DT_RUNPATH" else tag.rpath
                elif isinstance(section, SymbolTableSection) and section.name == ".dynsym":
                    for symbol in section.iter_symbols():
                        bind, kind = symbol["st_info"]["bind"], symbol["st_info"]["type"]
                        if not symbol.name or bind == "STB_LOCAL":
                            continue
                        if symbol["st_shndx"] == "SHN_UNDEF":
                            if bind != "STB_WEAK":
                                undefined.add(symbol.name)
                        elif kind == "STT_OBJECT":
                            objects.add(symbol.name)
                        else:
                            functions.add(symbol.name)
            machine = str(elf["e_machine"]).removeprefix("EM_")
    except (ELFError, OSError, ValueError, AssertionError) as why:
        raise PackageError(
            f"{path} is not a whole ELF file: {why}", remedy="Build or copy it again."
        ) from why
    return ElfFacts(
        machine,
        tuple(needed),
        soname,
        runpath,
        min(loads, default=0),
        frozenset(functions),
        frozenset(objects),
        frozenset(undefined),
    )
