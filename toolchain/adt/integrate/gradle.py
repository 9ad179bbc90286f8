"""Gradle projects: Android libraries of the runtime and of the models, alone or with an application.

The libraries are adt's: `adt generate` writes them again, and what the application's benchmark measures. That
of the runtime is the same for all models, so that the AARs of several projects share one in an application.
Build files, manifests and what is around the modules (settings, versions, the wrapper's properties) are
written where they are missing and then the user's, so the module can be generated into a project that exists.
So is the application. What depends on the models reaches build files by adt.properties and adt.cmake.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from adt import __version__
from adt.bundle.bundle import TargetBundle
from adt.errors import ConfigError
from adt.integrate import contents, jni
from adt.integrate.android_versions import BUILT_IN_KOTLIN
from adt.integrate.model_api import EntryApi, Project, TensorApi
from adt.integrate.names import RUNTIME_PACKAGE, kotlin_package
from adt.integrate.output import CopiedFile, DataFile, OutputFile, TextFile
from adt.integrate.templates import render

log = logging.getLogger("adt.generate")

APP_MODULE = "app"
RUNTIME_MODULE = "adt-runtime"
"""Directory of the runtime's library: no project can be called so."""
ADAPTIVE_ICONS, IMAGE_DECODER = 26, 28
"""Android's first API levels that have them."""


def aar_files(project: Project) -> tuple[OutputFile, ...]:
    values = {"min_sdk": _lowest_api_level(project), "project": project, "versions": project.android}
    readme = render("aar/README.md.j2", **values)
    modules = (*_runtime_module(project), *_library_module(project))
    return (TextFile("README.md", readme, users=True), *_gradle_project(project, app=False), *modules)


def android_app_files(project: Project) -> tuple[OutputFile, ...]:
    """Return a Gradle project of the libraries and an application: the user's, but for its benchmark."""
    modules = (*_runtime_module(project), *_library_module(project), *_app_module(project))
    return (*_gradle_project(project, app=True), *modules)


def _gradle_project(project: Project, *, app: bool) -> tuple[OutputFile, ...]:
    """Return the files around the modules; all of them are the user's."""
    values = {
        "app": app,
        "built_in_kotlin": BUILT_IN_KOTLIN,
        "picture": app and _picture(project.models[0].api.entries[0]) is not None,
        "modules": (*((APP_MODULE,) if app else ()), RUNTIME_MODULE, project.name),
        "project": project,
        "versions": project.android,
    }
    templates = {
        ".gitignore": "gitignore",
        "build.gradle.kts": "build.gradle.kts",
        "gradle.properties": "gradle.properties",
        "gradle/libs.versions.toml": "libs.versions.toml",
        "gradle/wrapper/gradle-wrapper.properties": "gradle-wrapper.properties",
        "settings.gradle.kts": "settings.gradle.kts",
    }
    return _rendered("aar", templates, values, users=True)


def _rendered(
    kind: str, templates: Mapping[str, str], values: Mapping[str, Any], module: str = "", *, users: bool
) -> tuple[TextFile, ...]:
    """Render the files of *module*, by their paths there, from *templates* of *kind*."""
    return tuple(
        TextFile(str(PurePosixPath(module, path)), render(f"{kind}/{template}.j2", **values), users=users)
        for path, template in templates.items()
    )


def _runtime_module(project: Project) -> tuple[OutputFile, ...]:
    """Return the files of the runtime's library, with the bundles; only the build file is the user's."""
    values = {
        "abis": project.abis,
        "min_sdk": _lowest_api_level(project),
        "project": project,
        "version": __version__,
        "versions": project.android,
    }
    templates = {
        "adt.properties": "adt.properties",
        "src/main/prefab/prefab.json": "prefab/prefab.json",
        "src/main/prefab/modules/adt_runner/module.json": "prefab/module.json",
    }
    users = {"build.gradle.kts": "runtime.gradle.kts"}
    headers = project.bundles[0]  # they are the same for every ABI
    names = [name for name in sorted(headers.manifest.headers) if name.startswith("include/adt/")]
    return (
        *_rendered("aar", users, values, RUNTIME_MODULE, users=True),
        *_rendered("aar", templates, values, RUNTIME_MODULE, users=False),
        *jni.runtime_files(f"{RUNTIME_MODULE}/src/main", "common", "android"),
        *(_prefab(project, bundle) for bundle in project.bundles),
        *(CopiedFile(f"{RUNTIME_MODULE}/src/main/cpp/{name}", headers.file(name)) for name in names),
        *_copies(f"{RUNTIME_MODULE}/src/main", contents.runtime_files(project)),
    )


def _library_module(project: Project) -> tuple[OutputFile, ...]:
    """Return the files of the models' library; only build file and manifest are the user's."""
    values = {"project": project, "runtime": RUNTIME_MODULE, "versions": project.android}
    users = {"build.gradle.kts": "module.gradle.kts", "src/main/AndroidManifest.xml": "library-manifest.xml"}
    return (
        *_rendered("aar", users, values, project.name, users=True),
        *device_tests(project),
        *jni.sources(project, f"{project.name}/src/main/", android=True),
        *_copies(f"{project.name}/src/main", contents.model_files(project)),
    )


def _copies(directory: str, files: Mapping[str, Path]) -> tuple[CopiedFile, ...]:
    """Copy *files*, by their paths in the APK, to where Gradle looks for them below *directory*."""
    copies = []
    for name, path in files.items():
        library = name.startswith(contents.LIBRARIES)
        place = f"jniLibs/{name.removeprefix(contents.LIBRARIES)}" if library else name
        copies.append(CopiedFile(f"{directory}/{place}", path))
    return tuple(copies)


def device_tests(project: Project) -> tuple[OutputFile, ...]:
    """Return a test of each model, and the arrays of its reference."""
    files: list[OutputFile] = []
    directory = f"{project.name}/src/androidTest"
    for model in project.models:
        text = render("aar/ModelTest.kt.j2", model=model.api, project=project, reference=model.reference)
        files.append(TextFile(f"{directory}/kotlin/{project.java_path}/{model.api.cls}Test.kt", text))
        if model.reference is None:
            continue
        arrays = f"{directory}/assets/adt-reference/{model.api.stem}"
        outputs = [output.data for output in model.reference.outputs]
        for kind, arguments in (("input", model.reference.inputs), ("output", outputs)):
            files += [DataFile(f"{arrays}/{kind}{i}.bin", data) for i, data in enumerate(arguments)]
    return tuple(files)


def _lowest_api_level(project: Project) -> int:
    """Return the lowest API level on which all of the bundles' libraries start."""
    levels = []
    for bundle in project.bundles:
        if bundle.manifest.api_level is None:
            raise ConfigError(
                f"the bundle {bundle.path} is for {bundle.manifest.platform}, which is no Android",
                remedy="Give bundles and packages for Android: adt build-target --for android-arm64-v8a",
            )
        levels.append(bundle.manifest.api_level)
    return max(levels)


def _prefab(project: Project, bundle: TargetBundle) -> TextFile:
    """Return the metadata of prefab for the library of one ABI that C++ links."""
    manifest = bundle.manifest
    ndk = int((manifest.ndk_revision or project.android.ndk).split(".")[0])
    facts = render("aar/prefab/abi.json.j2", abi=manifest.abi, api_level=manifest.api_level, ndk=ndk)
    directory = f"{RUNTIME_MODULE}/src/main/prefab/modules/adt_runner/libs/android.{manifest.abi}"
    return TextFile(f"{directory}/abi.json", facts)


@dataclass(frozen=True)
class _Count:
    symbol: str
    bytes: int
    """Bytes of each."""
    others: bool
    """The entry has further symbols."""


def _app_module(project: Project) -> tuple[OutputFile, ...]:
    model = project.models[0].api
    entry = model.entries[0]
    min_sdk = _lowest_api_level(project)
    app_package = application_package(project)
    picture = _picture(entry)
    labels = _labels(project, entry)
    first = entry.inputs[0] if entry.inputs and picture is None else None
    values = {
        "abis": project.abis,
        "adaptive_icon": min_sdk >= ADAPTIVE_ICONS,
        "activity": contents.ACTIVITY_CLASS,
        "app_package": app_package,
        "count": _count(first, entry) if first is not None else None,
        "entry": entry,
        "first": first,
        "image_decoder": min_sdk >= IMAGE_DECODER,
        "imports": _imports(project, model.cls, entry, picture),
        "labels": labels,
        "min_sdk": min_sdk,
        "model": model,
        "picture": picture,
        "process": ":benchmark",
        "project": project,
        "runtime": RUNTIME_MODULE,
        "ranked": [tensor.java for tensor in entry.outputs if _ranked(tensor, len(labels))],
        "versions": project.android,
    }
    kotlin = f"src/main/kotlin/{app_package.replace('.', '/')}"
    users = {
        "build.gradle.kts": "app.gradle.kts",
        "proguard-rules.pro": "proguard-rules.pro",
        "src/main/AndroidManifest.xml": "AndroidManifest.xml",
        f"{kotlin}/MainActivity.kt": "MainActivity.kt",
        f"{kotlin}/MainViewModel.kt": "MainViewModel.kt",
        "src/main/res/drawable/ic_launcher_foreground.xml": "res/ic_launcher_foreground.xml",
        "src/main/res/layout/activity_main.xml": "res/activity_main.xml",
        "src/main/res/xml/data_extraction_rules.xml": "res/data_extraction_rules.xml",
        "src/main/res/values/strings.xml": "res/strings.xml",
        "src/main/res/values/themes.xml": "res/themes.xml",
    }
    if labels:
        users["src/main/res/raw/labels.txt"] = "labels.txt"
    if values["adaptive_icon"]:
        users["src/main/res/values/colors.xml"] = "res/colors.xml"
        users["src/main/res/mipmap-anydpi-v26/ic_launcher.xml"] = "res/ic_launcher.xml"
    application = _rendered("android-app", users, values, APP_MODULE, users=True)
    readme = TextFile("README.md", render("android-app/README.md.j2", **values), users=True)
    return (readme, *application, *_benchmark(project, values))


def _benchmark(project: Project, values: dict[str, Any]) -> tuple[OutputFile, ...]:
    """Return the files of the build type that measures: the activity of ``adt apk``, and its plan."""
    directory = f"{APP_MODULE}/src/benchmark"
    plan = contents.BenchPlan(
        app=application_package(project),
        bundle_digests=project.bundle_digests,
        models=contents.planned_models(project, extent=1),
        end_to_end=True,  # as the typed classes, which copy inputs in and outputs out
    )
    manifest = render("android-app/benchmark-manifest.xml.j2", **values)
    return (
        TextFile(f"{directory}/AndroidManifest.xml", manifest, users=True),
        TextFile(f"{directory}/{contents.BENCH_PLAN}", plan.text()),
        *_copies(directory, contents.benchmark_files(project)),
    )


def application_package(project: Project) -> str:
    """Return the application's Java package and id: below the library's, as no two modules may share one."""
    return f"{project.java_package}.app"


def _picture(entry: EntryApi) -> TensorApi | None:
    """Return the input that the camera's frames go into; None: the application has no camera."""
    return next((tensor for tensor in entry.inputs if tensor.image is not None), None)


def _imports(project: Project, cls: str, entry: EntryApi, picture: TensorApi | None) -> list[str]:
    """Return what the view model imports from both libraries' packages."""
    runtime = ["AdtException", "RunnerInfo", "RunnerOptions"]
    runtime += ["PictureFit", "YuvFrame"] if picture else []
    own, package = (cls, f"load{cls}", f"{entry.java}Suspending"), kotlin_package(project.java_package)
    return sorted([f"{RUNTIME_PACKAGE}.{name}" for name in runtime] + [f"{package}.{name}" for name in own])


def _count(tensor: TensorApi, entry: EntryApi) -> _Count | None:
    symbols = [extent for extent in tensor.shape if isinstance(extent, str)]
    if not symbols:
        return None
    every = {extent for each in entry.inputs for extent in each.shape if isinstance(extent, str)}
    fixed = [extent for extent in tensor.shape if isinstance(extent, int)]
    return _Count(symbols[0], max(1, math.prod(fixed) * tensor.element.size), len(every) > 1)


def _labels(project: Project, entry: EntryApi) -> tuple[str, ...]:
    """Return the labels, if an output has a score for each."""
    count = len(project.labels)
    if count and not any(_ranked(tensor, count) for tensor in entry.outputs):
        name = project.models[0].api.name
        log.warning("no output of %s has %d scores, so the screen shows no labels", name, count)
        return ()
    return project.labels


def _ranked(tensor: TensorApi, labels: int) -> bool:
    """Return True if the output looks like scores of classes: its highest are shown, not its first."""
    if tensor.element.dtype not in ("float16", "float32") or tensor.elements is None or tensor.elements < 2:
        return False
    if labels:
        return tensor.elements == labels
    return sum(extent != 1 for extent in tensor.shape) == 1
