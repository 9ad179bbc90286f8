"""``adt package verify|split-params|merge``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adt.api.requests import ELF_BUNDLE, PACKAGE
from adt.cli.app import app
from adt.cli.command import Rendering, command
from adt.errors import PackageError
from adt.options.option import option
from adt.options.sections import BuildSettings

if TYPE_CHECKING:
    from adt.api.package import PackageVerification

package = typer.Typer(
    no_args_is_help=True, help="Check packages; take their parameters out and put them back."
)
app.add_typer(package, name="package")


@command("adt package verify model-pkg", group=package)
def verify(
    package: Annotated[Path, PACKAGE],
    ndk: Annotated[str | None, BuildSettings.ndk],
    bundle: Annotated[Path | None, ELF_BUNDLE],
) -> Rendering:
    """Check hashes, description, code and parameters of a package, and whether its code would load."""
    from adt.api.package import package_verify

    result = package_verify(package, ndk=ndk, bundle=bundle)
    problems = [
        f"{finding.name}: {finding.found}" for finding in result.integrity.findings if not finding.passed
    ]
    if result.elf:
        problems += [
            f"mod.so would not load: {reason.what}" for file in result.elf.refused for reason in file.reasons
        ]
    error = None
    if not result.passed:
        error = PackageError(
            f"{package} is not sound: {problems[0]}",
            remedy="Get it again, or compile the model again: adt compile MODEL",
        )
    return Rendering("package-verify", lambda: _fields(result), _lines(result), error)


def _fields(result: PackageVerification) -> dict[str, Any]:
    from adt.cli.elf import report_fields

    return {
        "path": result.integrity.place,
        "passed": result.passed,
        "findings": [vars(finding) for finding in result.integrity.findings],
        "elf": report_fields(result.elf) if result.elf else None,
    }


def _lines(result: PackageVerification) -> Iterator[str]:
    from adt.bundle.audit.report import table

    for finding in result.integrity.findings:
        yield f"{'✓' if finding.passed else '✗'} {finding.name:<12} {finding.found}"
    if result.elf:
        yield table(result.elf)


@command("adt package split-params model-pkg -o parts", group=package, name="split-params")
def split_params(
    package: Annotated[Path, PACKAGE],
    out: Annotated[Path, option("Directory for code/ and params/.", "--out", "-o", kw_only=False)],
) -> Rendering:
    """Write the code and the parameters of a package apart, for an app's asset pack."""
    from adt.api.package import package_split_params

    parts = package_split_params(package, out)
    sizes = {name: facts.size for name, facts in parts.manifest.files.items()}
    return Rendering(
        "package-split-params",
        lambda: {"code": parts.code, "params": parts.params, "sizes": sizes},
        [
            f"code    {parts.code}  ({sizes['mod.so']:,} bytes of code)",
            f"params  {parts.params}  ({sizes['mod.params']:,} bytes)",
        ],
    )


@command("adt package merge parts/code parts/params -o model-pkg", group=package)
def merge(
    code: Annotated[Path, option("The part with mod.json and mod.so.", kw_only=False)],
    params: Annotated[Path, option("mod.params, or the directory that it is in.", kw_only=False)],
    out: Annotated[Path, option("Directory of the package, or x.tar.", "--out", "-o")],
) -> Rendering:
    """Put the parts of one package together again: the same bytes as before."""
    from adt.api.package import package_merge
    from adt.host.manifest import fields_of

    merged = package_merge(code, params, out=out)
    return Rendering(
        "package-merge",
        lambda: {"path": merged.place, "package": fields_of(merged.manifest)},
        [f"package  {merged.place}"],
    )
