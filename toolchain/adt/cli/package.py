"""``adt package verify|split-params|merge``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from adt.cli.app import Json, Verbose, app, emit_json
from adt.cli.options import Ndk
from adt.errors import PackageError

package = typer.Typer(
    no_args_is_help=True, help="Check packages; take their parameters out and put them back."
)
app.add_typer(package, name="package")

Package = Annotated[Path, typer.Argument(help="A package: its directory, or x.tar.")]


@package.command(epilog="Example: adt package verify model-pkg")
def verify(
    package: Package,
    bundle: Annotated[
        Path | None, typer.Option(help="The bundle that will be on the device too.", metavar="DIR")
    ] = None,
    ndk: Ndk = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Check hashes, description, code and parameters of a package, and whether its code would load."""
    import adt
    from adt.bundle.audit.table import table
    from adt.cli.elf import report_fields

    found = adt.package_verify(package, bundle=bundle, ndk=ndk)
    findings = found.integrity.findings
    if as_json:
        fields: dict[str, Any] = {
            "path": found.integrity.place,
            "passed": found.passed,
            "findings": [vars(finding) for finding in findings],
            "elf": report_fields(found.elf) if found.elf else None,
        }
        emit_json("package-verify", fields)
    else:
        for finding in findings:
            typer.echo(f"{'✓' if finding.passed else '✗'} {finding.name:<12} {finding.found}")
        if found.elf:
            typer.echo(table(found.elf))
    if found.passed:
        return
    if as_json:
        raise typer.Exit(PackageError.exit_code)
    wrong = [f"{f.name}: {f.found}" for f in findings if not f.passed]
    wrong += (
        [f"{LOAD}: {reason.what}" for file in found.elf.refused for reason in file.reasons]
        if found.elf
        else []
    )
    raise PackageError(
        f"{package} is not sound: {wrong[0]}",
        remedy="Get it again, or compile the model again: adt compile MODEL",
    )


LOAD = "mod.so would not load"


@package.command("split-params", epilog="Example: adt package split-params model-pkg -o parts")
def split_params(
    package: Package,
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory for code/ and params/.")],
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Write the code and the parameters of a package apart, for an app's asset pack."""
    import adt

    parts = adt.package_split_params(package, out)
    sizes = {name: facts.size for name, facts in parts.manifest.files.items()}
    if as_json:
        emit_json("package-split-params", {"code": parts.code, "params": parts.params, "sizes": sizes})
        return
    typer.echo(f"code    {parts.code}  ({sizes['mod.so']:,} bytes of code)")
    typer.echo(f"params  {parts.params}  ({sizes['mod.params']:,} bytes)")


@package.command(epilog="Example: adt package merge parts/code parts/params -o model-pkg")
def merge(
    code: Annotated[Path, typer.Argument(help="The part with mod.json and mod.so.")],
    params: Annotated[Path, typer.Argument(help="mod.params, or the directory that it is in.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Directory of the package, or x.tar.")],
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Put the parts of one package together again: the same bytes as before."""
    import adt
    from adt.host.manifest import fields_of

    merged = adt.package_merge(code, params, out=out)
    if as_json:
        emit_json("package-merge", {"path": merged.place, "package": fields_of(merged.manifest)})
        return
    typer.echo(f"package  {merged.place}")
