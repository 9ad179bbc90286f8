"""Result of an audit: as values, and as text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from adt.bundle.audit.destination import may_have_large_pages
from adt.bundle.platforms import BIG_PAGE
from adt.host.document import OR_NULL, aligned, form, in_document
from adt.host.elf import ElfFacts

VERDICTS = OK, WARNING, REFUSED = "ok", "warning", "would not load"
"""Verdicts, best first."""
MARKS = {OK: "✓", WARNING: "!", REFUSED: "✗"}
HEAD = ("", "file", "machine", "API", "NDK", "p_align", "16 KB", "stripped", "verdict")


@dataclass(frozen=True)
class Finding:
    """One reason for a verdict."""

    verdict: str
    """``warning`` or ``would not load``."""
    code: str
    """Short name that stays the same: ``missing-library``, ``pages``, …"""
    what: str
    remedy: str


@dataclass(frozen=True)
class Need:
    """One DT_NEEDED entry and who provides it."""

    name: str
    provider: str
    """``file`` (one of those given), ``bundle``, ``android``, ``glibc``, ``ndk``, ``vendor``,
    ``not-public`` (Android's own, of a newer Android, or glibc's), ``missing``."""
    where: str
    """The file that was found, or a word on the provider; may be empty."""


@dataclass(frozen=True)
class Symbols:
    """The symbols that a file needs from others."""

    imported: int
    missing: tuple[str, ...]
    """Nobody that its dynamic linker asks has them."""
    unchecked: int
    """They may be in libraries whose symbols are not known here."""
    weak_missing: tuple[str, ...]
    """Nobody has them, and the file says that it works without."""


FACTS = (
    *("machine", "bits", "type", "program", "flags_1", "bind_now", "text_relocations", "android"),
    *("executable_stack", "symbol_table", "debug_info"),
)
"""Facts that documents have …"""
TEXTS = ("interpreter", "soname", "runpath", "build_id")
"""Facts that are null where their text is empty."""


def _facts(facts: ElfFacts | None) -> dict[str, Any] | None:
    if facts is None:
        return None
    fields = {name: getattr(facts, name) for name in FACTS}
    fields |= {name: getattr(facts, name) or None for name in TEXTS}
    return fields | {"load_alignments": [segment.align for segment in facts.loads]}


@dataclass(frozen=True)
class FileAudit:
    name: str
    facts: ElfFacts | None = field(metadata=form(convert=_facts, flat=True))
    """None: it is no ELF file, or a damaged one."""
    system: str = field(metadata=OR_NULL)
    """``android``, ``glibc``, ``kernel`` (a static program)."""
    api_level: int | None = field(metadata=form("judged_api_level"))
    """Android API level that it was judged at."""
    page_sizes: tuple[int, ...]
    """Bytes: page sizes of kernels that it loads on, of 4096, 16384 and 65536."""
    needs: tuple[Need, ...] = field(metadata=form("needed"))
    symbols: Symbols
    findings: tuple[Finding, ...]

    @property
    def reasons(self) -> tuple[Finding, ...]:
        """The findings that its verdict comes from."""
        return tuple(finding for finding in self.findings if finding.verdict == self.verdict)

    @property
    @in_document()
    def verdict(self) -> str:
        """The worst of its findings."""
        return max((finding.verdict for finding in self.findings), key=VERDICTS.index, default=OK)


@dataclass(frozen=True)
class Deploy:
    """A file that must be on the device beside those given."""

    name: str
    machine: str
    source: str
    """Path to take it from; empty: it was not found."""
    needed_by: tuple[str, ...]


@dataclass(frozen=True)
class ElfReport:
    """All files."""

    files: tuple[FileAudit, ...]
    deploy: tuple[Deploy, ...]
    system_symbols: str
    """Description of what the symbols of the system's own libraries were checked against."""

    @property
    @in_document()
    def verdict(self) -> str:
        """The worst of its files."""
        return max((file.verdict for file in self.files), key=VERDICTS.index, default=OK)

    @property
    def refused(self) -> tuple[FileAudit, ...]:
        """The files that would not load."""
        return tuple(file for file in self.files if file.verdict == REFUSED)


def table(report: ElfReport) -> str:
    """Return the audit as text: a row for each file, then reasons, then what else to send."""
    head, *rows = aligned([HEAD, *map(_row, report.files)])
    lines = [head]
    for row, file in zip(rows, report.files, strict=True):
        lines.append(row)
        lines.extend(f"     {line}" for line in _reasons(file))
    lines.extend(_deploy(report))
    if report.system_symbols:
        lines.append(f"symbols of the system's libraries: {report.system_symbols}")
    return "\n".join(lines)


def _row(file: FileAudit) -> tuple[str, ...]:
    facts = file.facts
    if facts is None:
        return (MARKS[file.verdict], file.name, "–", "–", "–", "–", "–", "–", file.verdict)
    large = "yes" if BIG_PAGE in file.page_sizes else "no"
    return (
        MARKS[file.verdict],
        file.name,
        facts.machine,
        str(facts.android.api_level) if facts.android else "–",
        (facts.android.ndk if facts.android else "") or "–",
        str(facts.page_alignment),
        large if may_have_large_pages(facts.machine, file.system) else "–",
        "debug info" if facts.debug_info else "no" if facts.symbol_table else "yes",
        file.verdict,
    )


def _reasons(file: FileAudit) -> Iterator[str]:
    if file.needs:
        words = (
            need.name if need.provider in ("android", "glibc") else f"{need.name} ({need.provider})"
            for need in file.needs
        )
        yield f"needs {', '.join(words)}"
    for finding in file.findings:
        yield f"{MARKS[finding.verdict]} {finding.what}"
        yield f"  → {finding.remedy}"


def _deploy(report: ElfReport) -> Iterator[str]:
    if report.deploy:
        yield "to be sent with them:"
    for row in report.deploy:
        others = f" and {len(row.needed_by) - 1} more" if row.needed_by[1:] else ""
        yield f"  {row.name} ({row.machine}): {row.source or 'not found'}; for {row.needed_by[0]}{others}"
