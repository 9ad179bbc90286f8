"""Libraries and symbols that a file needs, and whether its dynamic linker finds them.

bionic looks for symbols in the program, then in the library's own DT_NEEDED and theirs, and
binds everything at once. glibc also looks in all that the program has loaded.
"""

from __future__ import annotations

import posixpath
from collections import deque
from collections.abc import Iterator

from adt.bundle.audit.binaries import Binary
from adt.bundle.audit.closure import Closure, Providers, may_be_in_system
from adt.bundle.audit.destination import ANDROID, GLIBC, GLIBC_LIBRARIES, PRIVATE, PUBLIC
from adt.bundle.audit.report import REFUSED, WARNING, Finding, Need, Symbols
from adt.host.elf import Import


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

    Each library is looked for along the RUNPATH of the first file that needs it;
    a library that is loaded on its own is the business of what loads it.
    """
    if not binary.facts.program:
        return
    searched = set(map(str, providers.destination.directories))
    loaded, queue = {binary.filename}, deque([binary])
    while queue:
        asker = queue.popleft()
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
            queue.append(library)
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
    if root := providers.stubs.sysroot(closure.files[0].facts.machine):
        for library, _ in closure.stubs:
            if (first := root.first_level_with(library, symbol.name)) is not None:
                has = f"{library} has {symbol.name} since API {first}"
                return f"{has}: raise the lowest API level, or find it with dlsym."
    return "Link it with the library that has it, or name the program that exports it too."


def _list(symbols: list[Import]) -> str:
    shown = [s.name + (f"@{s.version}" if s.version else "") for s in symbols[:NAMES_SHOWN]]
    more = len(symbols) - len(shown)
    count = "symbol" if len(symbols) == 1 else f"{len(symbols)} symbols"
    return f"{count} {', '.join(shown)}" + (f" and {more} more" if more else "")
