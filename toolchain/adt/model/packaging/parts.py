"""Take the parameters of a package out, for apps that ship them as an asset pack, and put them back."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from adt.errors import PackageError
from adt.host import cache
from adt.model.package import ModelPackage, PackageManifest, load_package, read_manifest
from adt.model.packaging import archive
from adt.model.packaging.files import LIBRARY, MANIFEST, PARAMS

CODE_PART, PARAMS_PART = "code", "params"


@dataclass(frozen=True)
class Parts:
    """A package in two directories; ``mod.json`` of the code still names the parameters by their sha256."""

    code: Path
    """``mod.json``, ``mod.so`` and ``inspect/``."""
    params: Path
    """``mod.params`` alone."""
    manifest: PackageManifest


def split_params(package: ModelPackage, out: Path) -> Parts:
    """Write ``code/`` and ``params/`` into the directory *out*, which appears complete or not at all.

    Raises:
        PackageError: *out* exists and is not of our making.
    """
    cache.leave_alone(out, lambda there: (there / CODE_PART / MANIFEST).is_file(), "a split package")
    with cache.fresh_dir(out) as directory:
        (directory / PARAMS_PART).mkdir()
        archive.copy(package.path, directory / CODE_PART, without=PARAMS)
        shutil.copyfile(package.path / PARAMS, directory / PARAMS_PART / PARAMS)
    return Parts(out / CODE_PART, out / PARAMS_PART, package.manifest)


def merged(code: Path, params: Path, directory: Path) -> ModelPackage:
    """Put a split package together in *directory*; its files are those that were split, byte by byte.

    Args:
        code: the directory with ``mod.json`` and ``mod.so``, or one that has it as ``code/``.
        params: ``mod.params``, or the directory that it is in.

    Raises:
        PackageError: one of the two is not a part, or they are parts of different packages.
    """
    if (code / CODE_PART / MANIFEST).is_file():
        code = code / CODE_PART
    params = params / PARAMS if params.is_dir() else params
    remedy = (
        "Name the parts that `adt package split-params` made: adt package merge DIR/code DIR/params -o PKG"
    )
    found = read_manifest(code / MANIFEST, remedy=remedy)
    if not (code / LIBRARY).is_file():
        raise PackageError(f"{code} has no {LIBRARY}: it is no part of a package", remedy=remedy)
    if not params.is_file():
        raise PackageError(f"there is no parameter file {params}", remedy=remedy)
    if cache.file_sha256(params) != found.files[PARAMS].sha256:
        raise PackageError(
            f"{params} does not have the parameters of {found.name} in {code}",
            remedy="Take the parts of the same package; several models stay several packages.",
        )
    archive.copy(code, directory, without=PARAMS)
    shutil.copyfile(params, directory / PARAMS)
    return load_package(directory)
