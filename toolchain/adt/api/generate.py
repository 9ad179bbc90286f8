"""Generate code and projects that put packages into an application."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from adt.api.requests import GenerateRequest
from adt.bundle.bundle import TargetBundle, load_bundle
from adt.errors import ConfigError
from adt.integrate import cpp, gradle, jni
from adt.integrate.model_api import Project
from adt.integrate.output import OutputFile, WritePlan, plan, write
from adt.integrate.project import project
from adt.model.package.package import ModelPackage, load_package
from adt.options.request import takes

KINDS: dict[str, Callable[[Project], tuple[OutputFile, ...]]] = {
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


@takes(GenerateRequest)
def generate(request: GenerateRequest) -> Generated:
    """Write code and a project for packages into a directory.

    A second time what changed is written anew. Files that are the user's are written only once, and files of
    adt's that were edited are replaced only by *force*.

    Raises:
        ConfigError: an unknown kind, a name that cannot be used, something missing or given twice.
        MismatchError: packages and bundles do not fit each other.
        PackageError: a package or bundle is damaged, or *out* is of another kind.
        InputError: *images* do not fit an input.
        WouldOverwrite: edited files are in the way; nothing was written.
        DiskError: no room, or no access.
    """
    if request.kind not in KINDS:
        raise ConfigError(
            f"nothing is generated as {request.kind!r}", remedy=f"Choose one of: {', '.join(KINDS)}."
        )
    packages = tuple(load_package(path) for path in request.packages)
    described = project(
        packages,
        bundles_of(packages, request.bundles),
        java_package=request.java_package,
        classes=request.classes,
        images=request.images,
        labels=request.labels,
    )
    steps = plan(KINDS[request.kind](described), request.out, kind=request.kind)
    if not request.dry_run:
        write(steps, force=request.force)
    return Generated(request.kind, request.out, described, steps, not request.dry_run)


def bundles_of(packages: Sequence[ModelPackage], explicit: Sequence[Path]) -> tuple[TargetBundle, ...]:
    """The bundles *explicit*, else for each platform of *packages* the newest one built here that fits."""
    if explicit:
        return tuple(load_bundle(path) for path in explicit)
    from adt.api.bundles import package_bundle

    by_platform = {package.manifest.target.platform: package for package in packages}
    return tuple(package_bundle(package) for package in by_platform.values())
