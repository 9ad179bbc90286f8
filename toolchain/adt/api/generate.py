"""Generate code and projects that put packages into an application."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from adt.api.reference_run import with_references
from adt.api.requests import GenerateRequest
from adt.bundle.bundle import TargetBundle, load_bundle
from adt.errors import ConfigError
from adt.integrate import cpp, gradle, jni
from adt.integrate.android_versions import VERSIONS
from adt.integrate.contents import apk_files, app_libraries
from adt.integrate.large_pages import check_large_pages
from adt.integrate.model_api import Project
from adt.integrate.output import OutputFile, WritePlan, plan, write
from adt.integrate.project import project
from adt.options.request import takes
from adt.package.package import ModelPackage, load_package

KINDS: dict[str, Callable[[Project], tuple[OutputFile, ...]]] = {
    "cpp": cpp.files,
    "jni": jni.files,
    "android-app": gradle.android_app_files,
    "aar": gradle.aar_files,
}
"""Kinds of output, and the functions that make their files."""
APP_KINDS = ("android-app", "aar")
"""Kinds whose libraries become part of an APK."""


@dataclass(frozen=True)
class Generated:
    """Result of a generation, or of its rehearsal."""

    kind: str
    out: Path
    project: Project
    plan: WritePlan
    """Steps taken with each file of *out*."""
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
        BuildError: a library does not load on devices with pages of 16 KB, and *allow_4k* is not given.
        DiskError: no room, or no access.
    """
    if request.kind not in KINDS:
        raise ConfigError(
            f"nothing is generated as {request.kind!r}", remedy=f"Choose one of: {', '.join(KINDS)}."
        )
    if request.agp not in VERSIONS:
        raise ConfigError(
            f"no versions are known for the Android Gradle plugin {request.agp!r}",
            remedy=f"Choose one of: {', '.join(VERSIONS)}. "
            "For another, change gradle/libs.versions.toml afterwards.",
        )
    packages = tuple(load_package(path) for path in request.packages)
    described = project(
        packages,
        bundles_of(packages, request.bundles),
        java_package=request.java_package,
        classes=request.classes,
        images=request.images,
        labels=request.labels,
        android=VERSIONS[request.agp],
    )
    if request.kind in APP_KINDS:
        if not request.allow_4k:
            check_large_pages(app_libraries(apk_files(described)))
        described = with_references(described, request.settings)
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
