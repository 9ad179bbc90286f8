"""Generate code and projects that put packages into an application."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer

from adt.bundle.bundle import TargetBundle, load_bundle
from adt.cli.command import Rendering, command
from adt.errors import ConfigError, InputError
from adt.host.disk import check_directory
from adt.host.document import FLAT, form, in_document
from adt.integrate import cpp, gradle, jni
from adt.integrate.android_versions import NEWEST, VERSIONS
from adt.integrate.contents import apk_files, app_libraries, check_large_pages
from adt.integrate.model_api import Project
from adt.integrate.names import check_package
from adt.integrate.output import FileStep, OutputFile, WritePlan, diff, plan, write
from adt.integrate.project import project
from adt.options.option import MaybePath, OneOrMorePaths, Options, Paths, PathTo, Texts, option, python
from adt.options.request import Request, takes
from adt.package.classes import read_labels
from adt.package.inputs.pictures import PictureOptions, parse_numbers
from adt.package.package import ModelPackage, load_package
from adt.verbs.arrays import COLOR, LAYOUT, MEAN, SCALE, STD
from adt.verbs.bundles import choose_bundle
from adt.verbs.options import ALLOW_4K, BUNDLES


class GenerateRequest(Request):
    """Request of :func:`adt.generate`."""

    kind: str = option(
        "A C++ project, Java and Kotlin with their C++ part, an Android app, or an Android library.",
        kw_only=False,
        choices=["cpp", "jni", "android-app", "aar"],
    )
    packages: OneOrMorePaths = option(
        "Packages that `adt compile` made, for each platform; those of one name are one model.",
        kw_only=False,
        help="Packages that `adt compile` made, for each platform.",
        metavar="PACKAGE",
    )
    bundles: Paths = BUNDLES
    allow_4k: bool = ALLOW_4K
    out: PathTo = option("Directory of the project.", "--out", "-o", metavar="DIR", check=check_directory)
    java_package: str = option(
        "Java package of the code; its last part is the C++ namespace.",
        "--package",
        "--java-package",
        metavar="com.a.b",
        check=check_package,
    )
    classes: Mapping[str, str] | None = python(
        "Class of a model by its package's name, or by an empty name when there is one model; else it is "
        "made of the package's name.",
        default=None,
    )
    images: Mapping[str, PictureOptions] | None = python(
        "How pictures are prepared for inputs that take one, by the package's name, or by an empty one for "
        "all models without their own.",
        default=None,
    )
    labels: Texts = python("Of a classifier's scores, for the sample.", default=())
    agp: str = option(
        "Series of the Android Gradle plugin that a new project pins, with what goes with it.",
        default=NEWEST.series,
        choices=tuple(VERSIONS),
        help="Android Gradle plugin of a new project.",
    )
    dry_run: bool = option("Write nothing; show as a diff what would change.", default=False)
    force: bool = option(
        "Replace edited files, and files that adt did not write.",
        default=False,
        help="Replace generated files even if they were edited.",
    )


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
    project: Project = field(metadata=FLAT)
    plan: WritePlan = field(metadata=form("files", lambda plan: plan.by_step))
    """Steps taken with each file of *out*."""
    written: bool
    """False: nothing was, this is what would be done."""

    @property
    @in_document()
    def diff(self) -> str | None:
        """Changes as a unified diff; None when they were made."""
        return None if self.written else diff(self.plan)


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
        from adt.verbs.reference_run import with_references

        described = with_references(described, request.settings)
    steps = plan(KINDS[request.kind](described), request.out, kind=request.kind)
    if not request.dry_run:
        write(steps, force=request.force)
    return Generated(request.kind, request.out, described, steps, not request.dry_run)


def bundles_of(packages: Sequence[ModelPackage], explicit: Sequence[Path]) -> tuple[TargetBundle, ...]:
    """Load the bundles *explicit*, else for each platform of *packages* the newest one that fits."""
    if explicit:
        return tuple(load_bundle(path) for path in explicit)

    by_platform = {package.manifest.target.platform: package for package in packages}
    return tuple(choose_bundle(package) for package in by_platform.values())


TODAYS = "for adt's of today: another --out"


class GenerateFlags(Options):
    """Classes and pictures of each package."""

    classes: Texts = option(
        "Class of a package; with one package the class alone is enough.",
        "--class",
        default=(),
        metavar="NAME=Detector",
    )
    scale: Texts = option(SCALE, default=(), metavar="[NAME=]255")
    mean: Texts = option(MEAN, default=(), metavar="[NAME=]0.485,0.456,0.406")
    std: Texts = option(STD, default=(), metavar="[NAME=]0.229,0.224,0.225")
    layout: Texts = option(LAYOUT, default=(), metavar="[NAME=]{NCHW,NHWC}")
    color: Texts = option(COLOR, default=(), metavar="[NAME=]{RGB,BGR,GRAY}")
    labels: MaybePath = option(
        "Names of a classifier's classes, one on each line, or JSON.", default=None, metavar="FILE"
    )


@command(
    "adt generate cpp model-pkg --package com.example -o app",
    "adt generate android-app model-pkg --package com.example -o app",
)
def generate_command(request: GenerateRequest, flags: GenerateFlags) -> Rendering:
    """Write code and a project that put packages into an app; run again to update them."""
    classes, images = _by_package(flags.classes, "--class"), _images(flags)
    labels = read_labels(flags.labels) if flags.labels else ()
    result = generate(request.but(classes=classes, images=images, labels=labels))
    return Rendering("generate", result, _lines(result) if result.written else _changes(result))


def _by_package(texts: Sequence[str], flag: str) -> dict[str, str]:
    """Parse ``NAME=VALUE`` by the package's name; an empty one where there is only a value."""
    values: dict[str, str] = {}
    for text in texts:
        name, _, value = text.rpartition("=")
        if name in values:
            raise ConfigError(
                f"{flag} is given twice{f' for {name}' * bool(name)}",
                remedy=f"Give it once for each package: {flag} NAME=VALUE.",
            )
        values[name] = value
    return values


def _images(flags: GenerateFlags) -> dict[str, PictureOptions]:
    """Parse how pictures are prepared, by package; options without a name hold for those with one, too."""
    options_of: dict[str, dict[str, Any]] = {}
    for name in ("scale", "mean", "std", "layout", "color"):
        for package, text in _by_package(getattr(flags, name), f"--{name}").items():
            words = name in ("layout", "color")
            options_of.setdefault(package, {})[name] = (
                text.upper() if words else parse_numbers(text, f"--{name}")
            )
    for options in options_of.values():
        if len(options.get("scale", (1,))) != 1:
            raise InputError("--scale takes one number", remedy="Give it for all channels: --scale 255")
        options |= {"scale": options["scale"][0]} if "scale" in options else {}
    return {
        name: PictureOptions(**(options_of.get("", {}) | options)) for name, options in options_of.items()
    }


def _changes(result: Generated) -> Iterator[str]:
    """Yield the diff; say on stderr what it does not: which files are in the way."""
    if text := diff(result.plan):
        yield text.removesuffix("\n")
    for step, note in (
        (FileStep.EDITED, "was edited, and is replaced only with --force"),
        (FileStep.FOREIGN, "was not written by adt, and is replaced only with --force"),
        (FileStep.LEAVE, "is no longer generated and was edited: it stays"),
        (FileStep.KEEP, f"is yours: it stays ({TODAYS})"),
    ):
        for path in result.plan.paths(step):
            typer.echo(f"{path} {note}", err=True)
    if not result.plan.changes:
        typer.echo("nothing would change", err=True)


def _lines(result: Generated) -> Iterator[str]:
    for model in result.project.models:
        abis = ", ".join(variant.abi for variant in model.variants)
        name = f"{result.project.java_package}.{model.api.cls}"
        yield f"{'class':<11} {name}, of {model.api.name!r} for {abis}"
    for outcome, steps in (
        ("wrote", (FileStep.CREATE, FileStep.UPDATE, FileStep.EDITED, FileStep.FOREIGN)),
        ("unchanged", (FileStep.SAME,)),
        ("yours", (FileStep.KEEP,)),
        ("removed", (FileStep.REMOVE,)),
        ("left", (FileStep.LEAVE,)),
    ):
        paths = result.plan.paths(*steps)
        if paths:
            names = f": {', '.join(paths)}" if outcome in ("yours", "removed", "left") else ""
            how = f" ({TODAYS})" if outcome == "yours" else ""
            yield f"{outcome:<11} {len(paths)} file{'s' * (len(paths) > 1)}{names}{how}"
    yield f"{'in':<11} {result.out}"
