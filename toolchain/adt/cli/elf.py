"""``adt elf``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from adt.api.requests import ElfRequest
from adt.cli.app import emit_json
from adt.cli.command import Keywords, command

if TYPE_CHECKING:
    from adt.bundle.audit.report import ElfReport, FileAudit


@command("adt elf libfoo.so app.aar --for android-arm64-v8a", ElfRequest)
def elf(keywords: Keywords, as_json: bool) -> None:
    """Say which libraries and programs would load on the device, why not, and what to send with them."""
    import adt
    from adt.bundle.audit.table import table

    report = adt.elf(**keywords)
    if as_json:
        emit_json("elf", report_fields(report))
    else:
        typer.echo(table(report))
    raise_unless_loadable(report, as_json)


def report_fields(report: ElfReport) -> dict[str, Any]:
    """An audit as JSON fields."""
    return {
        "verdict": report.verdict,
        "files": [_file_fields(file) for file in report.files],
        "deploy": [vars(row) for row in report.deploy],
        "system_symbols": report.system_symbols,
    }


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
    return fields | {
        "machine": facts.machine,
        "bits": facts.bits,
        "type": facts.type,
        "program": facts.program,
        "interpreter": facts.interpreter or None,
        "android": vars(facts.android) if facts.android else None,
        "load_alignments": [segment.align for segment in facts.loads],
        "soname": facts.soname or None,
        "runpath": facts.runpath or None,
        "flags_1": facts.flags_1,
        "bind_now": facts.bind_now,
        "text_relocations": facts.text_relocations,
        "executable_stack": facts.executable_stack,
        "symbol_table": facts.symbol_table,
        "debug_info": facts.debug_info,
        "build_id": facts.build_id or None,
    }


def raise_unless_loadable(report: ElfReport, as_json: bool) -> None:
    """End with BuildError's exit code, and its message unless JSON said it, when a file would not load."""
    from adt.errors import BuildError

    if not report.refused:
        return
    if as_json:
        raise typer.Exit(BuildError.exit_code)
    first = report.refused[0]
    count = f"{len(report.refused)} of {len(report.files)} files would not load"
    raise BuildError(f"{count}; {first.name}: {first.reasons[0].what}", remedy=first.reasons[0].remedy)
