"""Checks of one file by itself, for the system that is to load it."""

from __future__ import annotations

from collections.abc import Iterator

from adt.bundle.audit.destination import (
    ANDROID,
    PAGE_SIZES,
    Destination,
    may_have_large_pages,
    obstacle,
    version_level,
    versions_asked,
)
from adt.bundle.audit.report import REFUSED, WARNING, Finding
from adt.bundle.platforms import BIG_PAGE
from adt.host.elf import PF_W, PF_X, ElfFacts

PACKED_SINCE = {"DT_ANDROID_REL": 23, "DT_ANDROID_RELA": 23, "DT_ANDROID_RELR": 28, "DT_RELR": 30}
GNU_HASH_SINCE, NO_TEXT_RELOCATIONS_SINCE, RUNPATH_SINCE = 23, 23, 24
SECTION_HEADERS_SINCE, WRITABLE_CODE_SINCE, ELF_TLS_SINCE = 24, 26, 29
BIONIC_TLS_ALIGNMENT = {"AARCH64": 64, "ARM": 32}
"""Machine to the least alignment, in bytes, of a program's thread-local segment on bionic."""
LARGE_PAGES_REMEDY = (
    "Link libraries and programs with -Wl,-z,max-page-size=16384 (NDK r28 and newer do by default); "
    "take a prebuilt library from a release that was built so."
)


def check_file(facts: ElfFacts, destination: Destination, system: str) -> Iterator[Finding]:
    """Find all faults that can be seen without looking at other files."""
    if facts.type not in ("DYN", "EXEC") or not facts.loads:
        yield Finding(REFUSED, "not-linked", f"it is of type {facts.type}, not linked", "Link it.")
        return
    if destination.machine and facts.machine != destination.machine:
        yield Finding(
            REFUSED,
            "machine",
            f"it is for {facts.machine}, not {destination.machine}",
            "Build it for the device's ABI, with that ABI's compiler.",
        )
        return
    yield from _pages(facts, system)
    if system == ANDROID:
        yield from _bionic(facts, destination.level_for(facts), stand_in=destination.stand_in)
    else:
        yield from _glibc(facts)
    if facts.executable_stack:
        remedy = "Link with -Wl,-z,noexecstack; assembler files need .note.GNU-stack."
        yield Finding(WARNING, "executable-stack", "it asks for an executable stack", remedy)
    yield from _search_paths(facts, system, destination.level_for(facts))


def _pages(facts: ElfFacts, system: str) -> Iterator[Finding]:
    bionic = system == ANDROID
    if reason := obstacle(facts, PAGE_SIZES[0], bionic=bionic):
        yield Finding(
            REFUSED, "segments", reason, "Link it again; a tool that patched it may have damaged it."
        )
    elif may_have_large_pages(facts.machine, system) and (reason := obstacle(facts, BIG_PAGE, bionic=bionic)):
        what = f"it does not load on devices with 16 KB pages: {reason}"
        yield Finding(WARNING, "16-kb-pages", what, LARGE_PAGES_REMEDY)


def _bionic(facts: ElfFacts, level: int, *, stand_in: bool) -> Iterator[Finding]:
    def refused(code: str, what: str, remedy: str) -> Finding:
        return Finding(REFUSED, code, what, remedy)

    if facts.android and facts.android.api_level > level:
        built = f"it was built for API level {facts.android.api_level}, to run at {level}"
        yield Finding(WARNING, "api-level", built, f"Build it with -target …-android{level}.")
    if facts.type == "EXEC" and facts.interpreter:
        yield refused(
            "not-pie", "it is a program at a fixed address; Android starts only PIE", "Link with -pie."
        )
    linker = "/system/bin/linker64" if facts.bits == 64 else "/system/bin/linker"
    if facts.interpreter not in ("", linker) and facts.program and not stand_in:
        what = f"it asks for the dynamic linker {facts.interpreter}; Android's is {linker}"
        yield refused("interpreter", what, "Build it with the NDK.")
    if facts.text_relocations:
        verdict = REFUSED if facts.bits == 64 or level >= NO_TEXT_RELOCATIONS_SINCE else WARNING
        what = "it has text relocations, which Android refuses (32-bit ones since API 23)"
        yield Finding(verdict, "text-relocations", what, "Compile everything in it with -fPIC.")
    if level >= WRITABLE_CODE_SINCE and any(s.flags & PF_W and s.flags & PF_X for s in facts.loads):
        what = "a LOAD segment is writable and executable"
        yield refused("writable-code", what, "Link without -N (--omagic) or a linker script that joins them.")
    for tag in facts.packed_relocations:
        if level < PACKED_SINCE[tag]:
            what = f"its relocations are packed ({tag}), which Android reads since API {PACKED_SINCE[tag]}"
            yield refused("packed-relocations", what, f"Link with the NDK for API {level}.")
    if facts.tls and level < ELF_TLS_SINCE and not stand_in:
        what = f"it has ELF thread-local storage, which Android has since API {ELF_TLS_SINCE}"
        yield refused("thread-local", what, "Compile with -femulated-tls (the NDK does below API 29).")
    least = BIONIC_TLS_ALIGNMENT.get(facts.machine, 0)
    if facts.program and facts.tls and facts.tls.align < least and not stand_in:
        what = f"its thread-local segment is aligned to {facts.tls.align} bytes; Android wants {least}"
        yield refused("thread-local", what, "Link it with the NDK's startup files (API 29 or newer).")
    if not facts.program:
        yield from _bionic_library(facts, level)
    newest = max((version_level(version) for version in versions_asked(facts)), default=1)
    strong = [s for s in facts.imports if not s.weak and version_level(s.version) > level]
    if strong:
        names = ", ".join(f"{symbol.name}@{symbol.version}" for symbol in strong[:5])
        what = f"it needs symbols that Android has since API {newest}, to run at {level}: {names}"
        yield refused("newer-symbols", what, f"Build it for API {level}, or raise the lowest API level.")


def _bionic_library(facts: ElfFacts, level: int) -> Iterator[Finding]:
    if not facts.dynamic:
        yield Finding(REFUSED, "not-dynamic", "it has no dynamic section", "Link it with -shared.")
    elif not facts.section_headers and level >= SECTION_HEADERS_SINCE:
        what = f"it has no section headers, which Android wants since API {SECTION_HEADERS_SINCE}"
        yield Finding(REFUSED, "no-section-headers", what, "Strip it with llvm-strip, not sstrip.")
    if facts.dynamic and not facts.hash_tables:
        remedy = "Link with -Wl,--hash-style=both."
        yield Finding(REFUSED, "no-hash-table", "it has no symbol hash table", remedy)
    elif facts.hash_tables == {"gnu"} and level < GNU_HASH_SINCE:
        what = f"it has only a GNU hash table, which Android reads since API {GNU_HASH_SINCE}"
        yield Finding(REFUSED, "no-hash-table", what, "Link with -Wl,--hash-style=both.")


def _glibc(facts: ElfFacts) -> Iterator[Finding]:
    if not facts.program and not facts.dynamic:
        yield Finding(REFUSED, "not-dynamic", "it has no dynamic section", "Link it with -shared.")
    if facts.interpreter.startswith("/system/bin/linker") or "libc.so" in facts.needed or facts.android:
        what = "it was built for Android, not for glibc"
        yield Finding(REFUSED, "interpreter", what, "Build it with the platform's own compiler.")
    if facts.text_relocations:
        what = "it has text relocations: a hardened system refuses it"
        yield Finding(WARNING, "text-relocations", what, "Compile everything in it with -fPIC.")


def _search_paths(facts: ElfFacts, system: str, level: int) -> Iterator[Finding]:
    absolute = [part for part in facts.runpath.split(":") if part.startswith("/")]
    if absolute:
        what = f"its RUNPATH names an absolute directory, which the device may lack: {':'.join(absolute)}"
        remedy = "Link with -Wl,-rpath,'$ORIGIN' or none; in CMake, set CMAKE_INSTALL_RPATH."
        yield Finding(WARNING, "absolute-runpath", what, remedy)
    if system == ANDROID and facts.rpath and facts.rpath == facts.runpath:
        what = "it has a DT_RPATH, which Android ignores"
        yield Finding(WARNING, "rpath", what, "Link with -Wl,--enable-new-dtags.")
    elif system == ANDROID and facts.runpath and level < RUNPATH_SINCE:
        what = f"it has a RUNPATH, which Android ignores before API {RUNPATH_SINCE}"
        yield Finding(WARNING, "runpath", what, "Start programs with LD_LIBRARY_PATH there.")
