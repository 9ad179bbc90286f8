"""``adt elf``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adt.api.requests import ElfRequest
from adt.cli.command import Rendering, command
from adt.errors import BuildError

if TYPE_CHECKING:
    from adt.bundle.audit.report import ElfReport, FileAudit


@command("adt elf libfoo.so app.aar --for android-arm64-v8a")
def elf(request: ElfRequest) -> Rendering:
    """Say which libraries and programs would load on the device, why not, and what to send with them."""
    from adt.api.inspect import elf
    from adt.bundle.audit.report import table

    report = elf(request)
    return Rendering("elf", lambda: report_fields(report), [table(report)], _failure(report))


def report_fields(report: ElfReport) -> dict[str, Any]:
    """An audit as JSON fields."""
    return {
        "verdict": report.verdict,
        "files": [_file_fields(file) for file in report.files],
        "deploy": [vars(row) for row in report.deploy],
        "system_symbols": report.system_symbols,
    }


PLAIN_FACTS = (
    *("machine", "bits", "type", "program", "flags_1", "bind_now", "text_relocations"),
    *("executable_stack", "symbol_table", "debug_info"),
)
TEXTS = ("interpreter", "soname", "runpath", "build_id")
"""Facts whose empty text is null."""


def _file_fields(file: FileAudit) -> dict[str, Any]:
    facts = file.facts
    fields: dict[str, Any] = {
        "name": file.name,
        "verdict": file.verdict,
        "system": file.system or None,
        "judged_api_level": file.api_level,
        "page_sizes": file.page_sizes,
        "needed": [vars(need) for need in file.needs],
        "symbols": vars(file.symbols),
        "findings": [vars(finding) for finding in file.findings],
    }
    if facts is None:
        return fields
    fields |= {name: getattr(facts, name) for name in PLAIN_FACTS}
    fields |= {name: getattr(facts, name) or None for name in TEXTS}
    return fields | {
        "android": vars(facts.android) if facts.android else None,
        "load_alignments": [segment.align for segment in facts.loads],
    }


def _failure(report: ElfReport) -> BuildError | None:
    if not report.refused:
        return None
    first = report.refused[0]
    count = f"{len(report.refused)} of {len(report.files)} files would not load"
    return BuildError(f"{count}; {first.name}: {first.reasons[0].what}", remedy=first.reasons[0].remedy)
