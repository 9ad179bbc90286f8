"""Audit a set of files: each on its own, and what they need from one another and from the system."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from adt.bundle.audit.binaries import Binary, Unreadable
from adt.bundle.audit.checks import check_file
from adt.bundle.audit.closure import Providers
from adt.bundle.audit.destination import ANDROID, KERNEL, Destination, system_of
from adt.bundle.audit.needed import check_needed, check_reach
from adt.bundle.audit.pages import LARGE_PAGES, page_sizes
from adt.bundle.audit.report import REFUSED, WARNING, Deploy, ElfReport, FileAudit, Finding, Symbols
from adt.bundle.audit.symbols import check_symbols

NO_SYMBOLS = Symbols(0, (), 0, ())


def audit(
    files: Iterable[Binary | Unreadable],
    destination: Destination,
    *,
    with_bundle: Iterable[Binary | Unreadable] = (),
) -> ElfReport:
    """Judge *files* for *destination*, and the libraries that the NDK lends them.

    Args:
        with_bundle: files that will be on the device beside them; asked for symbols, not judged.
    """
    given = tuple(files)
    providers = Providers((*given, *with_bundle), destination)
    likely = _likely_system(given, destination)
    audits = [_audit_one(file, providers, likely) for file in given]
    loadable = [
        (file, audited.system)
        for file, audited in zip(given, audits, strict=True)
        if isinstance(file, Binary) and audited.needs
    ]
    deploy = tuple(_deploy(loadable, providers))
    audits += [_audit_one(file, providers, likely) for file in _lent(loadable, providers)]
    return ElfReport(tuple(audits), deploy, _symbols_checked(audits, destination))


def _likely_system(files: tuple[Binary | Unreadable, ...], destination: Destination) -> str:
    """The system of a file that does not tell: that of the others, else Android, the stricter one."""
    if destination.system:
        return destination.system
    systems = [system_of(file.facts) for file in files if isinstance(file, Binary)]
    known = [system for system in systems if system not in ("", KERNEL)]
    return max(sorted(set(known)), key=known.count, default=ANDROID)


def _audit_one(file: Binary | Unreadable, providers: Providers, likely: str) -> FileAudit:
    if isinstance(file, Unreadable):
        damaged = Finding(REFUSED, "not-elf", file.reason, "Build or copy it again.")
        return FileAudit(file.name, None, "", None, (), (), NO_SYMBOLS, (damaged,))
    facts, destination = file.facts, providers.destination
    own = system_of(facts)
    system = own if own == KERNEL else destination.system or own or likely
    findings = [*check_file(facts, destination, system), *_in_apk(file)]
    level = destination.level_for(facts) if system == ANDROID else None
    sizes = page_sizes(facts, bionic=system == ANDROID)
    if system == KERNEL or any(finding.code in ("machine", "not-linked") for finding in findings):
        return FileAudit(file.name, facts, system, level, sizes, (), NO_SYMBOLS, tuple(findings))
    needs, about_needs = check_needed(file, providers, system)
    symbols, about_symbols = check_symbols(file, providers, system)
    findings += [*about_needs, *about_symbols, *check_reach(file, providers)]
    return FileAudit(file.name, facts, system, level, sizes, needs, symbols, tuple(findings))


def _in_apk(binary: Binary) -> Iterator[Finding]:
    """An app with extractNativeLibs=false maps its libraries straight from the APK."""
    at = binary.stored_at
    if at is not None and at % LARGE_PAGES and ".apk/" in binary.place:
        what = f"it is stored uncompressed at byte {at} of the APK, no multiple of 16 KB"
        remedy = "zipalign -P 16 -f 4 IN.apk OUT.apk, then sign it (Gradle's plugin does since 8.5.1)."
        yield Finding(WARNING, "apk-alignment", what, remedy)


def _deploy(loadable: list[tuple[Binary, str]], providers: Providers) -> Iterator[Deploy]:
    """Yield the files that must be sent beside the others, each once for each machine."""
    askers: dict[tuple[str, str], tuple[str, list[str]]] = {}
    for binary, system in loadable:
        for asker in providers.closure(binary, system).files:
            for name in asker.facts.needed:
                need, file = providers.need(name, asker, system)
                if need.provider in ("bundle", "ndk", "missing"):
                    source = file.place if file else ""
                    _, by = askers.setdefault((name, asker.facts.machine), (source, []))
                    if asker.name not in by:
                        by.append(asker.name)
    for (name, machine), (source, by) in askers.items():
        yield Deploy(name, machine, source, tuple(by))


def _lent(loadable: list[tuple[Binary, str]], providers: Providers) -> Iterable[Binary]:
    """The NDK's libraries that are to be sent along: they too must load."""
    lent = (
        file
        for binary, system in loadable
        for file in providers.closure(binary, system).files
        if file.kind == "ndk"
    )
    return {file.place: file for file in lent}.values()


def _symbols_checked(audits: list[FileAudit], destination: Destination) -> str:
    if not any(need.provider in ("android", "glibc") for audited in audits for need in audited.needs):
        return ""
    android = any(audited.system == ANDROID for audited in audits)
    if any(audited.symbols.unchecked for audited in audits):
        remedy = ": pass --ndk DIR to check them against its stub libraries"
        return "not checked" + (
            remedy if android and not destination.ndk else ", their libraries are not here"
        )
    if android and destination.ndk:
        return f"checked against the stub libraries of NDK {destination.ndk.revision}"
    return "checked"
