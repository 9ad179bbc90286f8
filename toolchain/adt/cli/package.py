"""``adt package verify|split-params|merge``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import typer

from adt.api.requests import MergeRequest, PackageVerifyRequest, SplitRequest
from adt.cli.app import app
from adt.cli.command import Keywords, Rendering, command
from adt.errors import PackageError

if TYPE_CHECKING:
    from adt.api.package import PackageVerification

package = typer.Typer(
    no_args_is_help=True, help="Check packages; take their parameters out and put them back."
)
app.add_typer(package, name="package")


@command("adt package verify model-pkg", PackageVerifyRequest, group=package)
def verify(keywords: Keywords) -> Rendering:
    """Check hashes, description, code and parameters of a package, and whether its code would load."""
    import adt

    result = adt.package_verify(**keywords)
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
            f"{keywords['package']} is not sound: {problems[0]}",
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


@command("adt package split-params model-pkg -o parts", SplitRequest, group=package, name="split-params")
def split_params(keywords: Keywords) -> Rendering:
    """Write the code and the parameters of a package apart, for an app's asset pack."""
    import adt

    parts = adt.package_split_params(**keywords)
    sizes = {name: facts.size for name, facts in parts.manifest.files.items()}
    return Rendering(
        "package-split-params",
        lambda: {"code": parts.code, "params": parts.params, "sizes": sizes},
        [
            f"code    {parts.code}  ({sizes['mod.so']:,} bytes of code)",
            f"params  {parts.params}  ({sizes['mod.params']:,} bytes)",
        ],
    )


@command("adt package merge parts/code parts/params -o model-pkg", MergeRequest, group=package)
def merge(keywords: Keywords) -> Rendering:
    """Put the parts of one package together again: the same bytes as before."""
    import adt
    from adt.host.manifest import fields_of

    merged = adt.package_merge(**keywords)
    return Rendering(
        "package-merge",
        lambda: {"path": merged.place, "package": fields_of(merged.manifest)},
        [f"package  {merged.place}"],
    )
