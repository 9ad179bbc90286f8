"""Generate code and projects that put packages into an application."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from adt.bundle.bundle import TargetBundle, load_bundle
from adt.errors import ConfigError
from adt.integrate import cpp, gradle, jni
from adt.integrate.model_api import Project
from adt.integrate.output import OutputFile, WritePlan, plan, write
from adt.integrate.project import project
from adt.model.package.package import ModelPackage, load_package

if TYPE_CHECKING:
    from adt.model.inputs.pictures import PictureOptions

Generator = Callable[[Project], tuple[OutputFile, ...]]
KINDS: dict[str, Generator] = {
    "cpp": cpp.files,
    "jni": jni.files,
    "android-app": gradle.android_app_files,
    "aar": gradle.aar_files,
}
"""What can be generated, and what makes its files."""


@dataclass(frozen=True)
class Generated:
    """What was generated, or would be."""

    kind: str
    out: Path
    project: Project
    plan: WritePlan
    """What was done to each file of *out*."""
    written: bool
    """False: nothing was, this is what would be done."""


def generate(
    kind: str,
    packages: Path | Sequence[Path],
    *,
    out: Path,
    java_package: str,
    bundles: Sequence[Path] = (),
    classes: Mapping[str, str] | None = None,
    images: Mapping[str, PictureOptions] | None = None,
    labels: Sequence[str] = (),
    dry_run: bool = False,
    force: bool = False,
) -> Generated:
    """Write code and a project for *packages* into the directory *out*.

    A second time what changed is written anew. Files that are the user's are written only once, and files of
    adt's that were edited are replaced only by *force*.

    Args:
        kind: ``cpp``, ``jni``, ``android-app`` or ``aar``.
        packages: one or several models; packages of one name are one model for several platforms.
        java_package: ``com.example.vision``; its last part is the C++ namespace.
        bundles: one for each platform; none: the newest ones built here that fit.
        classes: class of a model by its package's name, or by an empty name when there is one model;
            else it is made of the package's name.
        images: how pictures are prepared for inputs that take one, by the package's name, or by an empty
            one for all models without their own.
        labels: of a classifier's scores, for the sample.
        dry_run: write nothing.
        force: replace edited files and files that adt did not write.

    Raises:
        ConfigError: an unknown kind, a name that cannot be used, something missing or given twice.
        MismatchError: packages and bundles do not fit each other.
        PackageError: a package or bundle is damaged, or *out* is of another kind.
        InputError: *images* do not fit an input.
        WouldOverwrite: edited files are in the way; nothing was written.
        DiskError: no room, or no access.
    """
    files_of = generator(kind)
    paths = (packages,) if isinstance(packages, Path) else tuple(packages)
    opened = tuple(load_package(path) for path in paths)
    described = project(
        opened,
        bundles_of(opened, bundles),
        java_package=java_package,
        classes=classes,
        images=images,
        labels=labels,
    )
    made = plan(files_of(described), out, kind=kind)
    if not dry_run:
        write(made, force=force)
    return Generated(kind, out, described, made, not dry_run)


def generator(kind: str) -> Generator:
    """What makes the files of *kind*.

    Raises:
        ConfigError: there is no such kind.
    """
    if kind not in KINDS:
        raise ConfigError(f"nothing is generated as {kind!r}", remedy=f"Choose one of: {', '.join(KINDS)}.")
    return KINDS[kind]


def bundles_of(packages: Sequence[ModelPackage], explicit: Sequence[Path]) -> tuple[TargetBundle, ...]:
    """The bundles *explicit*, else for each platform of *packages* the newest one built here that fits."""
    if explicit:
        return tuple(load_bundle(path) for path in explicit)
    from adt.api.bundles import package_bundle

    by_platform = {package.manifest.target.platform: package for package in packages}
    return tuple(package_bundle(package) for package in by_platform.values())
