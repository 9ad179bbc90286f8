"""ModelPackages as files: check them, take their parameters out, put them together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from adt.host.disk import scratch_directory
from adt.model import compiled
from adt.model.package import ModelPackage, load_package
from adt.model.packaging import parts
from adt.model.packaging.parts import Parts
from adt.model.packaging.soundness import Soundness, examine
from adt.options.resolve import load_settings

if TYPE_CHECKING:
    from adt.bundle.audit.report import ElfReport


@dataclass(frozen=True)
class PackageVerification:
    """What :func:`package_verify` found."""

    soundness: Soundness
    elf: ElfReport | None
    """Would mod.so load on the platform; None when it is not even the file that it should be."""

    @property
    def passed(self) -> bool:
        """The package is whole, and its code would load."""
        return self.soundness.passed and self.elf is not None and not self.elf.refused


def package_verify(
    package: Path, *, bundle: Path | None = None, ndk: str | None = None
) -> PackageVerification:
    """Check every byte of a package, its description, and whether its code would load.

    Args:
        package: a directory or .tar.
        bundle: the bundle that will be on the device too: what it supplies counts as there.
        ndk: checks Android's system symbols; by default the one that Android tools would find, if any.

    Raises:
        PackageError: there is nothing at *package*. A fault does not raise: look at ``result.passed``.
    """
    found = examine(package)
    if found.package is None or not found.code:
        return PackageVerification(found, None)
    from adt.bundle.audit.request import audit_paths

    elf = audit_paths(
        [found.package.path],
        platform=found.package.manifest.target.platform,
        api_level=None,
        settings=load_settings({"build.ndk": ndk}).settings.build,
        bundle=bundle,
    )
    return PackageVerification(found, elf)


def package_split_params(package: Path, out: Path) -> Parts:
    """Write a package as ``out/code`` and ``out/params``: an app can ship the parameters as an asset pack.

    Raises:
        PackageError: *package* is none, or *out* is something else.
    """
    return parts.split_params(load_package(package), out)


def package_merge(code: Path, params: Path, *, out: Path) -> ModelPackage:
    """Put the two parts of a package together again: the same bytes as before it was split.

    Args:
        code: ``DIR/code`` of :func:`package_split_params`.
        params: ``DIR/params``, or ``mod.params`` wherever it is.
        out: directory or .tar.

    Raises:
        PackageError: they are not the parts of one package, or *out* is something else.
    """
    with scratch_directory("merge") as scratch:
        return compiled.write(parts.merged(code, params, scratch), out)
