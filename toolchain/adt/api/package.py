"""ModelPackages as files: check them, take their parameters out, put them together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from adt.api.requests import MergeRequest, PackageVerifyRequest, SplitRequest
from adt.host.disk import scratch_directory
from adt.options.request import takes
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


@takes(PackageVerifyRequest)
def package_verify(request: PackageVerifyRequest) -> PackageVerification:
    """Check every byte of a package, its description, and whether its code would load.

    Raises:
        PackageError: there is nothing at *package*. A fault does not raise: look at ``result.passed``.
    """
    integrity = examine(request.package)
    if integrity.package is None or not integrity.code:
        return PackageVerification(integrity, None)
    from adt.bundle.audit.auditing import audit_paths

    elf = audit_paths(
        [integrity.package.path],
        platform=integrity.package.manifest.target.platform,
        api_level=None,
        settings=request.settings.build,
        bundle=request.bundle,
    )
    return PackageVerification(integrity, elf)


@takes(SplitRequest)
def package_split_params(request: SplitRequest) -> SplitPackage:
    """Write a package as ``out/code`` and ``out/params``: an app can ship the parameters as an asset pack.

    Raises:
        PackageError: *package* is none, or *out* is something else.
    """
    return split_params(load_package(request.package), request.out)


@takes(MergeRequest)
def package_merge(request: MergeRequest) -> ModelPackage:
    """Put the two parts of a package together again: the same bytes as before it was split.

    Raises:
        PackageError: they are not the parts of one package, or *out* is something else.
    """
    with scratch_directory("merge") as scratch:
        return write_package(merge_params(request.code, request.params, scratch), request.out)
