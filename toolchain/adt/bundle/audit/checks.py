"""Checks of one file for the system that is to load it: by itself, its libraries, and its symbols.

bionic looks for symbols in the program, then in the library's own DT_NEEDED and theirs. glibc also looks in
all that the program has loaded.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from adt.bundle.audit.binaries import Binary, Closure, Providers, may_be_in_system
from adt.bundle.audit.destination import (
    ANDROID,
    GLIBC,
    GLIBC_LIBRARIES,
    PRIVATE,
    PUBLIC,
    Destination,
    may_have_large_pages,
    obstacle,
    version_level,
    versions_asked,
)
from adt.bundle.audit.report import REFUSED, WARNING, Finding, Need, Symbols
from adt.bundle.platforms import BIG_PAGE, PAGE
from adt.host.elf import PF_W, PF_X, ElfFacts, Import

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
        what = f"it is for {facts.machine}, not {destination.machine}"
        yield Finding(REFUSED, "machine", what, "Build it for the device's ABI, with that ABI's compiler.")
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
    if reason := obstacle(facts, PAGE, bionic=bionic):
        remedy = "Link it again; a tool that patched it may have damaged it."
        yield Finding(REFUSED, "segments", reason, remedy)
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
        what = "it is a program at a fixed address; Android starts only PIE"
        yield refused("not-pie", what, "Link with -pie.")
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


def check_needed(binary: Binary, providers: Providers, system: str) -> tuple[tuple[Need, ...], list[Finding]]:
    """Return the provider of each DT_NEEDED entry, and the faults."""
    needs = tuple(providers.need(name, binary, system)[0] for name in binary.facts.needed)
    findings: list[Finding] = []
    for need in needs:
        if need.provider == "vendor":
            findings.append(_vendor(need.name, system))
        elif need.provider == "ndk":
            what = f"it needs {need.name}, which must be sent with it"
            findings.append(Finding(WARNING, "bring-along", what, f"Take it from {need.where}."))
    missing = [need.name for need in needs if need.provider in ("missing", "not-public")]
    return needs, findings + list(_missing(missing, binary, providers, system))


def _vendor(name: str, system: str) -> Finding:
    what = f"it needs {name}, which only some devices have"
    remedy = "Open it with dlopen instead, as adt's bundles do unless told to link it"
    if system == ANDROID:
        what += " and which is no public library of Android"
        element = f'<uses-native-library android:name="{name}" android:required="false"/>'
        remedy += f", and name it in the app's manifest: {element}"
    return Finding(WARNING, "vendor-library", what, remedy)


def _missing(names: list[str], binary: Binary, providers: Providers, system: str) -> Iterator[Finding]:
    """Yield a finding for each reason why libraries are missing."""
    unknown: list[str] = []
    foreign: list[str] = []
    private: list[str] = []
    for name in names:
        if other := providers.named_otherwise(name, binary):
            what = f"it needs {name}; {other.name} has that SONAME but another file name"
            yield Finding(REFUSED, "missing-library", what, f"Call that file {name}.")
        elif "/" in name:
            what = f"it needs the path {name}, not a library's name"
            remedy = "Give that library a SONAME (-Wl,-soname) and link again."
            yield Finding(REFUSED, "missing-library", what, remedy)
        elif system == ANDROID and name in PUBLIC:
            level = providers.destination.level_for(binary.facts)
            what = f"it needs {name}, which Android has since API {PUBLIC[name].since}, to run at {level}"
            remedy = "Open it with dlopen, or raise the lowest API level."
            yield Finding(REFUSED, "library-too-new", what, remedy)
        elif name == "libc++_shared.so":
            remedy = "It comes from the NDK: pass --ndk DIR, send it along, or link with -static-libstdc++."
            yield Finding(REFUSED, "missing-library", f"it needs {name}, which nobody here provides", remedy)
        elif system == ANDROID and GLIBC_LIBRARIES.fullmatch(name):
            foreign.append(name)
        elif system == ANDROID and PRIVATE.fullmatch(name):
            private.append(name)
        else:
            unknown.append(name)
    if foreign:
        what = f"it needs {', '.join(foreign)}: it was built for Linux with glibc, not for Android"
        yield Finding(REFUSED, "not-for-android", what, "Build it with the NDK.")
    if private:
        what = f"it needs {', '.join(private)}, private to Android: apps may not load that since API 24"
        yield Finding(REFUSED, "private-library", what, "Link your own copy of it statically.")
    if unknown:
        what = f"it needs {', '.join(unknown)}, which nobody here provides"
        remedy = "Name the files or directories that have them too, or --bundle DIR."
        yield Finding(REFUSED, "missing-library", what, remedy)


def check_reach(binary: Binary, providers: Providers) -> Iterator[Finding]:
    """Yield the faults of RUNPATHs that do not lead a started program to its libraries among the files.

    Each library is looked for along the RUNPATH of the first file that needs it.
    """
    if not binary.facts.program:
        return
    searched = set(map(str, providers.destination.directories))
    loaded, askers = {binary.filename}, [binary]
    for asker in askers:  # which grow meanwhile
        origin = asker.directory
        paths = {
            posixpath.normpath(part.replace("${ORIGIN}", origin).replace("$ORIGIN", origin))
            for part in asker.facts.runpath.split(":")
            if part
        }
        for name in asker.facts.needed:
            library = providers.find(name, asker)
            if library is None or name in loaded:
                continue
            loaded.add(name)
            askers.append(library)
            if posixpath.normpath(library.directory) not in paths | searched:
                what = f"{asker.filename} needs {name}, and no RUNPATH of it leads to {library.name}"
                remedy = "Start the program with LD_LIBRARY_PATH, or link with -Wl,-rpath,'$ORIGIN/…'."
                yield Finding(WARNING, "unreachable", what, remedy)


NAMES_SHOWN = 5


def check_symbols(binary: Binary, providers: Providers, system: str) -> tuple[Symbols, list[Finding]]:
    """Count the imports by what became of them, and say what is wrong with those without an owner."""
    closure = providers.closure(binary, system)
    missing: dict[str, list[Import]] = {}
    weak: list[str] = []
    unchecked = 0
    for symbol in binary.facts.imports:
        owners = providers.owners(symbol, binary.facts)
        if _in_scope(symbol, closure, owners):
            continue
        if may_be_in_system(symbol, closure, providers.destination, system, elsewhere=bool(owners)):
            unchecked += 1
        elif symbol.weak:
            weak.append(symbol.name)
        else:
            missing.setdefault(owners[0].name if owners else "", []).append(symbol)
    names = tuple(symbol.name for symbols in missing.values() for symbol in symbols)
    findings = list(_findings(missing, binary, closure, providers, system))
    return Symbols(len(binary.facts.imports), names, unchecked, tuple(weak)), findings


def _in_scope(symbol: Import, closure: Closure, owners: list[Binary]) -> bool:
    """Return True if the file's own closure has the symbol, or that of a program that could load the file."""
    return (
        any(file.facts.program for file in owners)
        or any(file.facts.supplies(symbol) for file in closure.files)
        or any(stub.supplies(symbol) for _, stub in closure.stubs)
    )


def _findings(
    missing: dict[str, list[Import]], binary: Binary, closure: Closure, providers: Providers, system: str
) -> Iterator[Finding]:
    """Judge the symbols in *missing*, by the file outside of the closure that has them; empty: none has."""
    strict = binary.facts.program or system != GLIBC
    for owner, symbols in missing.items():
        names = _list(symbols)
        if owner and strict:
            what = f"{names}: in {owner}, which its DT_NEEDED does not name, and nobody looks anywhere else"
            remedy = f"Link it with that library named: -Wl,--no-as-needed -l:{owner.rpartition('/')[2]}"
            yield Finding(REFUSED, "symbol-not-in-needed", what, remedy)
        elif strict:
            what = f"{names}: no library in its DT_NEEDED has it"
            if not binary.facts.program:
                what += ", so only a program that exports it could load this library"
            yield Finding(REFUSED, "symbol-missing", what, _remedy(symbols[0], closure, providers))
        elif not owner:  # with an owner, glibc finds it through what the program has loaded
            what = f"{names}: only the program that loads it can supply that"
            remedy = "Link it with the library that has it, or audit it with --bundle DIR."
            yield Finding(WARNING, "symbol-from-program", what, remedy)


def _remedy(symbol: Import, closure: Closure, providers: Providers) -> str:
    machine = closure.files[0].facts.machine
    for library, _ in closure.stubs:
        if (first := providers.stubs.first_level_with(library, machine, symbol.name)) is not None:
            has = f"{library} has {symbol.name} since API {first}"
            return f"{has}: raise the lowest API level, or find it with dlsym."
    return "Link it with the library that has it, or name the program that exports it too."


def _list(symbols: list[Import]) -> str:
    shown = [s.name + (f"@{s.version}" if s.version else "") for s in symbols[:NAMES_SHOWN]]
    more = len(symbols) - len(shown)
    count = "symbol" if len(symbols) == 1 else f"{len(symbols)} symbols"
    return f"{count} {', '.join(shown)}" + (f" and {more} more" if more else "")
