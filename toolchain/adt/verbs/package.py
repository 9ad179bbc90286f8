"""ModelPackages as files: check them, take their parameters out, put them together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adt.cli.app import Commands, app
from adt.cli.command import Rendering, command
from adt.errors import PackageError
from adt.host.disk import check_directory, scratch_directory
from adt.host.document import FLAT, in_document
from adt.options.option import AnyPath, option
from adt.options.request import resolve_settings
from adt.options.sections import BuildSettings
from adt.verbs.options import ELF_BUNDLE, PACKAGE

if TYPE_CHECKING:
    from adt.bundle.audit.report import ElfReport
    from adt.package.integrity import Integrity
    from adt.package.package import ModelPackage, SplitPackage


@dataclass(frozen=True)
class PackageVerification:
    """The result of :func:`package_verify`."""

    integrity: Integrity = field(metadata=FLAT)
    elf: ElfReport | None
    """Would mod.so load on the platform; None when it is not even the file that it should be."""

    @property
    @in_document()
    def passed(self) -> bool:
        """True if the package is whole, and its code would load."""
        return self.integrity.passed and self.elf is not None and not self.elf.refused


def package_verify(
    package: AnyPath, *, bundle: AnyPath | None = None, ndk: AnyPath | None = None
) -> PackageVerification:
    """Check every byte of a package, its description, and whether its code would load.

    Args:
        bundle: the bundle that will be on the device too.
        ndk: build.ndk; None: that of the settings.

    Raises:
        PackageError: there is nothing at *package*. A fault does not raise: look at ``result.passed``.
    """
    from adt.package.integrity import examine

    settings = resolve_settings({"build.ndk": ndk}).settings.build
    integrity = examine(Path(package))
    if integrity.package is None or not integrity.code:
        return PackageVerification(integrity, None)
    from adt.bundle.audit.auditing import audit_paths

    elf = audit_paths(
        [integrity.package.path],
        platform=integrity.package.manifest.target.platform,
        api_level=None,
        settings=settings,
        bundle=Path(bundle) if bundle is not None else None,
    )
    return PackageVerification(integrity, elf)


def package_split_params(package: AnyPath, out: AnyPath) -> SplitPackage:
    """Write a package as ``out/code`` and ``out/params``: an app can ship the parameters as an asset pack.

    Raises:
        PackageError: *package* is none, or *out* is something else.
    """
    from adt.package.package import load_package, split_params

    return split_params(load_package(Path(package)), Path(out))


def package_merge(code: AnyPath, params: AnyPath, *, out: AnyPath) -> ModelPackage:
    """Put the two parts of a package together again: the same bytes as before it was split.

    Args:
        code: the part with mod.json and mod.so.
        params: mod.params, or the directory that it is in.
        out: directory of the package, or x.tar.

    Raises:
        PackageError: they are not the parts of one package, or *out* is something else.
    """
    from adt.package.package import merge_params, write_package

    with scratch_directory("merge") as scratch:
        return write_package(merge_params(Path(code), Path(params), scratch), Path(out))


package = typer.Typer(
    cls=Commands, no_args_is_help=True, help="Check packages; take their parameters out and put them back."
)
app.add_typer(package, name="package")


@command("adt package verify model-pkg", group=package)
def verify_command(
    package: Annotated[Path, PACKAGE],
    ndk: Annotated[str | None, BuildSettings.ndk],
    bundle: Annotated[Path | None, ELF_BUNDLE],
) -> Rendering:
    """Check hashes, description, code and parameters of a package, and whether its code would load."""
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
    return Rendering("package-verify", result, _lines(result), error)


def _lines(result: PackageVerification) -> Iterator[str]:
    from adt.bundle.audit.report import table

    for finding in result.integrity.findings:
        yield f"{'✓' if finding.passed else '✗'} {finding.name:<12} {finding.found}"
    if result.elf:
        yield table(result.elf)


@command("adt package split-params model-pkg -o parts", group=package, name="split-params")
def split_params_command(
    package: Annotated[Path, PACKAGE],
    out: Annotated[
        Path,
        option(
            "Parent of code/ and params/.", "--out", "-o", kw_only=False, check=check_directory, metavar="DIR"
        ),
    ],
) -> Rendering:
    """Write the code and the parameters of a package apart, for an app's asset pack."""
    parts = package_split_params(package, out)
    sizes = {name: facts.size for name, facts in parts.manifest.files.items()}
    return Rendering(
        "package-split-params",
        {"code": parts.code, "params": parts.params, "sizes": sizes},
        [
            f"code    {parts.code}  ({sizes['mod.so']:,} bytes of code)",
            f"params  {parts.params}  ({sizes['mod.params']:,} bytes)",
        ],
    )


@command("adt package merge parts/code parts/params -o model-pkg", group=package)
def merge_command(
    code: Annotated[Path, option("Part with mod.json and mod.so.", kw_only=False)],
    params: Annotated[Path, option("Part with mod.params, or that file.", kw_only=False)],
    out: Annotated[
        Path,
        option("Directory of the package, or x.tar.", "--out", "-o", metavar="PATH", check=check_directory),
    ],
) -> Rendering:
    """Put the parts of one package together again: the same bytes as before."""
    merged = package_merge(code, params, out=out)
    return Rendering("package-merge", merged, [f"package  {merged.place}"])
