"""``adt package verify|split-params|merge``."""

from __future__ import annotations

from typing import Any

import typer

from adt.api.requests import MergeRequest, PackageVerifyRequest, SplitRequest
from adt.cli.app import app, emit_json
from adt.cli.command import Keywords, command
from adt.errors import PackageError

package = typer.Typer(
    no_args_is_help=True, help="Check packages; take their parameters out and put them back."
)
app.add_typer(package, name="package")


@command("adt package verify model-pkg", PackageVerifyRequest, group=package)
def verify(keywords: Keywords, as_json: bool) -> None:
    """Check hashes, description, code and parameters of a package, and whether its code would load."""
    import adt
    from adt.bundle.audit.table import table
    from adt.cli.elf import report_fields

    result = adt.package_verify(**keywords)
    findings = result.integrity.findings
    if as_json:
        fields: dict[str, Any] = {
            "path": result.integrity.place,
            "passed": result.passed,
            "findings": [vars(finding) for finding in findings],
            "elf": report_fields(result.elf) if result.elf else None,
        }
        emit_json("package-verify", fields)
    else:
        for finding in findings:
            typer.echo(f"{'✓' if finding.passed else '✗'} {finding.name:<12} {finding.found}")
        if result.elf:
            typer.echo(table(result.elf))
    if result.passed:
        return
    if as_json:
        raise typer.Exit(PackageError.exit_code)
    wrong = [f"{f.name}: {f.found}" for f in findings if not f.passed]
    wrong += (
        [f"{LOAD}: {reason.what}" for file in result.elf.refused for reason in file.reasons]
        if result.elf
        else []
    )
    raise PackageError(
        f"{keywords['package']} is not sound: {wrong[0]}",
        remedy="Get it again, or compile the model again: adt compile MODEL",
    )


LOAD = "mod.so would not load"


@command("adt package split-params model-pkg -o parts", SplitRequest, group=package, name="split-params")
def split_params(keywords: Keywords, as_json: bool) -> None:
    """Write the code and the parameters of a package apart, for an app's asset pack."""
    import adt

    parts = adt.package_split_params(**keywords)
    sizes = {name: facts.size for name, facts in parts.manifest.files.items()}
    if as_json:
        emit_json("package-split-params", {"code": parts.code, "params": parts.params, "sizes": sizes})
        return
    typer.echo(f"code    {parts.code}  ({sizes['mod.so']:,} bytes of code)")
    typer.echo(f"params  {parts.params}  ({sizes['mod.params']:,} bytes)")


@command("adt package merge parts/code parts/params -o model-pkg", MergeRequest, group=package)
def merge(keywords: Keywords, as_json: bool) -> None:
    """Put the parts of one package together again: the same bytes as before."""
    import adt
    from adt.host.manifest import fields_of

    merged = adt.package_merge(**keywords)
    if as_json:
        emit_json("package-merge", {"path": merged.place, "package": fields_of(merged.manifest)})
        return
    typer.echo(f"package  {merged.place}")
