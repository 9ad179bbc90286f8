"""An audit as text."""

from __future__ import annotations

from collections.abc import Iterator

from adt.bundle.audit.checks import may_have_large_pages
from adt.bundle.audit.pages import LARGE_PAGES
from adt.bundle.audit.report import OK, REFUSED, ElfReport, FileAudit
from adt.host.columns import aligned

MARKS = {OK: "✓", "warning": "!", REFUSED: "✗"}
HEAD = ("", "file", "machine", "API", "NDK", "p_align", "16 KB", "stripped", "verdict")


def table(report: ElfReport) -> str:
    """The audit for people: a row for each file, then reasons, then what else to send."""
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
    large = "yes" if LARGE_PAGES in file.page_sizes else "no"
    if not may_have_large_pages(facts.machine, file.system):
        large = "–"
    stripped = "debug info" if facts.debug_info else "no" if facts.symbol_table else "yes"
    return (
        MARKS[file.verdict],
        file.name,
        facts.machine,
        str(facts.android.api_level) if facts.android else "–",
        (facts.android.ndk if facts.android else "") or "–",
        str(facts.page_alignment),
        large,
        stripped,
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
