"""Audit of files: by request, or as the gate that what adt made must pass, better than merely loadable."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from adt.bundle.audit.binaries import Binary, Providers, Unreadable, collect
from adt.bundle.audit.checks import check_file, check_needed, check_reach, check_symbols
from adt.bundle.audit.destination import (
    ANDROID,
    KERNEL,
    PAGE_SIZES,
    Destination,
    destination,
    obstacle,
    own_directories,
    system_of,
)
from adt.bundle.audit.report import REFUSED, WARNING, Deploy, ElfReport, FileAudit, Finding, Symbols, table
from adt.bundle.bundle import MANIFEST, load_bundle
from adt.bundle.platforms import BIG_PAGE, Platform, platform_named
from adt.errors import AdtError, MismatchError, NdkError
from adt.host.contained import read_contained
from adt.host.ndk import Ndk, find_ndk
from adt.limits import parse_json
from adt.options.sections import BuildSettings

NO_SYMBOLS = Symbols(0, (), 0, ())


def audit(
    files: Iterable[Binary | Unreadable], destination: Destination, *, bundle: Path | None = None
) -> ElfReport:
    """Judge *files*, and what the NDK lends them, for *destination*; the *bundle* only supplies symbols."""
    given = tuple(files)
    suppliers = collect(bundle, kind="bundle") if bundle else ()
    providers = Providers((*given, *suppliers), destination)
    likely = _likely_system(given, destination)
    audits = [_audit_one(file, providers, likely) for file in given]
    loaded = [  # what each brings in, with the system that loads it
        (audited.system, providers.closure(file, audited.system).files)
        for file, audited in zip(given, audits, strict=True)
        if isinstance(file, Binary) and audited.needs
    ]
    deploy = tuple(_deploy(loaded, providers))
    lent = {file.place: file for _, files in loaded for file in files if file.kind == "ndk"}
    audits += [_audit_one(file, providers, likely) for file in lent.values()]  # they too must load
    return ElfReport(tuple(audits), deploy, _symbols_checked(audits, destination))


def _likely_system(files: tuple[Binary | Unreadable, ...], destination: Destination) -> str:
    """Guess the system of a file that does not tell: that of the others, else Android, the stricter one."""
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
    sizes = tuple(page for page in PAGE_SIZES if not obstacle(facts, page, bionic=system == ANDROID))
    if system == KERNEL or any(finding.code in ("machine", "not-linked") for finding in findings):
        return FileAudit(file.name, facts, system, level, sizes, (), NO_SYMBOLS, tuple(findings))
    needs, about_needs = check_needed(file, providers, system)
    symbols, about_symbols = check_symbols(file, providers, system)
    findings += [*about_needs, *about_symbols, *check_reach(file, providers)]
    return FileAudit(file.name, facts, system, level, sizes, needs, symbols, tuple(findings))


def _in_apk(binary: Binary) -> Iterator[Finding]:
    """Check the place in an APK: an app with extractNativeLibs=false maps its libraries from there."""
    at = binary.stored_at
    if at is not None and at % BIG_PAGE and ".apk/" in binary.place:
        what = f"it is stored uncompressed at byte {at} of the APK, no multiple of 16 KB"
        remedy = "zipalign -P 16 -f 4 IN.apk OUT.apk, then sign it (Gradle's plugin does since 8.5.1)."
        yield Finding(WARNING, "apk-alignment", what, remedy)


def _deploy(loaded: list[tuple[str, list[Binary]]], providers: Providers) -> Iterator[Deploy]:
    """Yield the files that must be sent beside the others, each once for each machine."""
    askers: dict[tuple[str, str], tuple[str, list[str]]] = {}
    for system, files in loaded:
        for asker in files:
            for name in asker.facts.needed:
                need, file = providers.need(name, asker, system)
                if need.provider in ("bundle", "ndk", "missing"):
                    source = file.place if file else ""
                    _, by = askers.setdefault((name, asker.facts.machine), (source, []))
                    if asker.name not in by:
                        by.append(asker.name)
    for (name, machine), (source, by) in askers.items():
        yield Deploy(name, machine, source, tuple(by))


def _symbols_checked(audits: list[FileAudit], destination: Destination) -> str:
    if not any(need.provider in ("android", "glibc") for audited in audits for need in audited.needs):
        return ""
    android = any(audited.system == ANDROID for audited in audits)
    if any(audited.symbols.unchecked for audited in audits):
        if android and not destination.ndk:
            return "not checked: pass --ndk DIR to check them against its stub libraries"
        return "not checked, their libraries are not here"
    if android and destination.ndk:
        return f"checked against the stub libraries of NDK {destination.ndk.revision}"
    return "checked"


log = logging.getLogger("adt.elf")

NEVER_MADE = {"16-kb-pages", "absolute-runpath", "rpath", "bring-along", "unreachable", "api-level"}
"""Warnings about other people's files that are errors in what adt makes."""
PREBUILT = ("libc++_shared.so",)
"""Files of a bundle that come from the NDK as they are; no flag changes their pages."""


def audit_made(
    path: Path,
    platform: Platform,
    *,
    error: type[AdtError],
    api_level: int | None = None,
    ndk: Ndk | None = None,
    bundle: Path | None = None,
) -> ElfReport:
    """Audit *path*, just made for *platform* and used with the bundle in the directory *bundle*."""
    report = audit(collect(path), destination(platform, api_level=api_level, ndk=ndk), bundle=bundle)
    for file in report.files:
        for finding in file.findings:
            if _is_error(file, finding):
                raise error(
                    f"{file.name} is not fit for {platform.name}: {finding.what}",
                    remedy=f"{finding.remedy} Which compiler was used: run again with -v.",
                    details=table(report),
                )
    return report


def _is_error(file: FileAudit, finding: Finding) -> bool:
    if finding.code == "16-kb-pages" and PurePosixPath(file.name).name in PREBUILT:
        log.warning("%s: %s. A newer NDK has one with larger pages.", file.name, finding.what)
        return False
    return finding.verdict == REFUSED or finding.code in NEVER_MADE


PACKAGE_MANIFEST = "mod.json"
"""Marks a ModelPackage; only its platform is read here."""
ANDROID_ARCHIVES = (".aar", ".apk")
"""Archives whose content is for Android, whatever it was built for."""


def audit_paths(
    paths: Sequence[Path],
    *,
    platform: str | None,
    api_level: int | None,
    settings: BuildSettings,
    bundle: Path | None = None,
) -> ElfReport:
    """Audit all *paths* as one set, whose files answer for one another; MismatchError if platforms differ.

    *settings* name the NDK, and the API level of files that do not say theirs.
    """
    made_for = dict(filter(None, map(_made_for, (*paths, *([bundle] if bundle else [])))))
    platforms = dict(made_for.values())
    if platform is None and len(platforms) > 1:
        raise MismatchError(
            f"these were made for different platforms: {', '.join(platforms)}",
            remedy="Audit them apart, or choose one with --for.",
        )
    name = platform or next(iter(platforms), None)
    ndk = audit_ndk(settings.ndk)
    if name is None:
        system = ANDROID if all(path.suffix in ANDROID_ARCHIVES for path in paths) else ""
        audited = Destination(system=system, api_level=api_level, ndk=ndk, directories=own_directories())
    else:
        chosen = platform_named(name)
        audited = destination(chosen, api_level=api_level or platforms.get(name), ndk=ndk)
    names = [path.name + ("/" if path.is_dir() else "!") if paths[1:] else "" for path in paths]
    files = [file for path, prefix in zip(paths, names, strict=True) for file in collect(path, prefix=prefix)]
    audited = dataclasses.replace(audited, default_api_level=settings.api_level)
    return audit(files, audited, bundle=bundle)


def _made_for(path: Path) -> tuple[Path, tuple[str, int | None]] | None:
    """Return platform and API level of a bundle or package; None for anything else."""
    if (path / MANIFEST).is_file():
        bundle = load_bundle(path, check_hashes=False).manifest
        return path, (bundle.platform, bundle.api_level)
    if (path / PACKAGE_MANIFEST).is_file():
        try:
            facts = parse_json(read_contained(path, PACKAGE_MANIFEST))
            return path, (str(facts["target"]["platform"]), None)
        except (ValueError, KeyError, TypeError, OSError):
            log.warning("%s is damaged: its files are judged by what they say", path / PACKAGE_MANIFEST)
    return None


def audit_ndk(explicit: str) -> Ndk | None:
    """Find the NDK that is named, which must be right, else any; None where there is none."""
    if explicit:
        return find_ndk(explicit)
    try:
        return find_ndk()
    except NdkError as error:
        log.debug("no NDK: %s", error.what)
        return None
