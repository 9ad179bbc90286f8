"""The symbols that a file imports: whether each has an owner where its dynamic linker looks.

bionic looks in the program, then in the library's own DT_NEEDED and theirs, and
binds everything at once. glibc also looks in all that the program has loaded.
"""

from __future__ import annotations

from collections.abc import Iterator

from adt.bundle.audit.binaries import Binary
from adt.bundle.audit.closure import Closure, Providers, may_be_in_system
from adt.bundle.audit.destination import GLIBC
from adt.bundle.audit.report import REFUSED, WARNING, Finding, Symbols
from adt.host.elf import Import

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
    """*missing* is by the name of the file that has the symbols, outside of the closure; empty: none has."""
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
