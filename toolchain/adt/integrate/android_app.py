"""A Gradle project with an application: the library of :mod:`adt.integrate.aar`, and a screen to try it."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass

from adt import __version__
from adt.integrate import aar
from adt.integrate.android_versions import VERSIONS
from adt.integrate.describe import EntryApi, Project, TensorApi
from adt.integrate.files import OutputFile, TextFile
from adt.integrate.render import render

log = logging.getLogger("adt.generate")

MODULE = "app"
"""Directory of the application."""
ADAPTIVE_ICONS, IMAGE_DECODER = 26, 28
"""Android's first API levels that have them."""


@dataclass(frozen=True)
class _Count:
    """The open extent of an input that a file's size tells."""

    symbol: str
    bytes: int
    """Of each."""
    others: bool
    """The entry has further symbols."""


def files(project: Project) -> tuple[OutputFile, ...]:
    """Of a Gradle project with the library and an application that uses it.

    The application is the user's from the start, but for its benchmark.

    Raises:
        ConfigError: a bundle is not for Android.
    """
    return (*aar.gradle_project(project, app=True), *aar.module(project), *_application(project))


def _application(project: Project) -> tuple[OutputFile, ...]:
    model = project.models[0].api
    entry = model.entries[0]
    min_sdk = aar.lowest_api_level(project)
    picture = next((tensor for tensor in entry.inputs if tensor.image is not None), None)
    labels = _labels(project, entry)
    first = entry.inputs[0] if entry.inputs and picture is None else None
    values = {
        "abis": aar.abis(project),
        "adaptive_icon": min_sdk >= ADAPTIVE_ICONS,
        "adt_version": __version__,
        "app_package": application_package(project),
        "bundle_digests": project.bundle_digests,
        "count": _count(first, entry) if first is not None else None,
        "entry": entry,
        "first": first,
        "image_decoder": min_sdk >= IMAGE_DECODER,
        "imports": sorted(
            f"{project.java_package}.{cls}"
            for cls in ("RunnerInfo", "RunnerOptions", "Tensor", *(one.api.cls for one in project.models))
        ),
        "labels": labels,
        "min_sdk": min_sdk,
        "model": model,
        "picture": picture,
        "project": project,
        "symbolic": lambda one: any(not tensor.static for tensor in one.inputs),
        "ranked": [tensor.java for tensor in entry.outputs if _ranked(tensor, len(labels))],
        "versions": VERSIONS,
    }
    package = application_package(project).replace(".", "/")
    users = {
        "build.gradle.kts": "app.gradle.kts",
        "proguard-rules.pro": "proguard-rules.pro",
        "src/main/AndroidManifest.xml": "AndroidManifest.xml",
        f"src/main/kotlin/{package}/MainActivity.kt": "MainActivity.kt",
        "src/main/res/drawable/ic_launcher_foreground.xml": "res/ic_launcher_foreground.xml",
        "src/main/res/layout/activity_main.xml": "res/activity_main.xml",
        "src/main/res/values/colors.xml": "res/colors.xml",
        "src/main/res/values/strings.xml": "res/strings.xml",
        "src/main/res/values/themes.xml": "res/themes.xml",
    }
    if labels:
        users["src/main/res/raw/labels.txt"] = "labels.txt"
    if values["adaptive_icon"]:
        users["src/main/res/mipmap-anydpi-v26/ic_launcher.xml"] = "res/ic_launcher.xml"
    generated = {
        "src/benchmark/AndroidManifest.xml": "benchmark-manifest.xml",
        f"src/benchmark/kotlin/{package}/Benchmark.kt": "Benchmark.kt",
        f"src/benchmark/kotlin/{package}/BenchmarkActivity.kt": "BenchmarkActivity.kt",
        f"src/benchmark/kotlin/{package}/BenchmarkSubject.kt": "BenchmarkSubject.kt",
    }
    application = tuple(
        TextFile(f"{MODULE}/{path}", render(f"android-app/{template}.j2", **values), users=path in users)
        for path, template in (users | generated).items()
    )
    readme = TextFile("README.md", render("android-app/README.md.j2", **values), users=True)
    return (readme, *application)


def application_package(project: Project) -> str:
    """The application's Java package and its id: below the library's, since no two modules may share one."""
    return f"{project.java_package}.app"


def _count(tensor: TensorApi, entry: EntryApi) -> _Count | None:
    symbols = [extent for extent in tensor.shape if isinstance(extent, str)]
    every = {extent for one in entry.inputs for extent in one.shape if isinstance(extent, str)}
    if not symbols:
        return None
    fixed = [extent for extent in tensor.shape if isinstance(extent, int)]
    return _Count(symbols[0], max(1, math.prod(fixed) * tensor.element.size), len(every) > 1)


def _labels(project: Project, entry: EntryApi) -> tuple[str, ...]:
    """The labels, if an output has a score for each."""
    count = len(project.labels)
    if count and not any(_ranked(tensor, count) for tensor in entry.outputs):
        log.warning(
            "no output of %s has %d scores, so the screen shows no labels", project.models[0].api.name, count
        )
        return ()
    return project.labels


def _ranked(tensor: TensorApi, labels: int) -> bool:
    """Whether the output looks like scores of classes: its highest are shown, not its first."""
    if tensor.element.dtype not in ("float16", "float32") or tensor.elements is None or tensor.elements < 2:
        return False
    if labels:
        return tensor.elements == labels
    return sum(extent != 1 for extent in tensor.shape) == 1
