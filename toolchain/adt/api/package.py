"""ModelPackages as files: check them, take their parameters out, put them together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from adt.host.disk import scratch_directory
from adt.options.request import resolve_settings
from adt.package.integrity import Integrity, examine
from adt.package.package import (
    ModelPackage,
    SplitPackage,
    load_package,
    merge_params,
    split_params,
    write_package,
)

if TYPE_CHECKING:
    from adt.bundle.audit.report import ElfReport
    from adt.options.option import AnyPath


@dataclass(frozen=True)
class PackageVerification:
    """The result of :func:`package_verify`."""

    integrity: Integrity
    elf: ElfReport | None
    """Would mod.so load on the platform; None when it is not even the file that it should be."""

    @property
    def passed(self) -> bool:
        """The package is whole, and its code would load."""
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
    with scratch_directory("merge") as scratch:
        return write_package(merge_params(Path(code), Path(params), scratch), Path(out))
