"""A Gradle project with one Android library: the models, their classes, and C++ headers for other modules.

The library module is adt's: `adt generate` writes it again. What is around it (settings, versions,
the wrapper's properties) is written where it is missing and then the user's, so the module can be
generated into a project that exists.
"""

from __future__ import annotations

from dataclasses import dataclass

from adt import __version__
from adt.bundle.bundle import TargetBundle
from adt.errors import ConfigError
from adt.integrate import jni
from adt.integrate.android_versions import VERSIONS
from adt.integrate.carried import LIBRARIES, carried
from adt.integrate.describe import Project, TensorApi
from adt.integrate.files import CopiedFile, OutputFile, TextFile
from adt.integrate.opencl_libraries import OPENCL_LIBRARIES
from adt.integrate.render import render


def files(project: Project) -> tuple[OutputFile, ...]:
    """Of a Gradle project whose only module is the library.

    Raises:
        ConfigError: a bundle is not for Android.
    """
    readme = render("aar/README.md.j2", min_sdk=lowest_api_level(project), project=project, versions=VERSIONS)
    return (
        TextFile("README.md", readme, users=True),
        *gradle_project(project, app=False),
        *module(project),
    )


def gradle_project(project: Project, *, app: bool) -> tuple[OutputFile, ...]:
    """What stands around the modules; all of it the user's.

    Args:
        app: there is a module ``app``, too.
    """
    values = {
        "app": app,
        "modules": (*(("app",) if app else ()), project.name),
        "project": project,
        "root_name": project.name,
        "versions": VERSIONS,
    }
    templates = {
        ".gitignore": "gitignore",
        "build.gradle.kts": "build.gradle.kts",
        "gradle.properties": "gradle.properties",
        "gradle/libs.versions.toml": "libs.versions.toml",
        "gradle/wrapper/gradle-wrapper.properties": "gradle-wrapper.properties",
        "settings.gradle.kts": "settings.gradle.kts",
    }
    return tuple(
        TextFile(path, render(f"aar/{template}.j2", **values), users=True)
        for path, template in templates.items()
    )


def module(project: Project) -> tuple[OutputFile, ...]:
    """The library module, in a directory of the project's name.

    Raises:
        ConfigError: a bundle is not for Android.
    """
    min_sdk = lowest_api_level(project)
    sources = jni.sources(project, android=True)
    library = f"{project.name}_jni"
    values = {
        "abis": abis(project),
        "library": library,
        "min_sdk": min_sdk,
        "opencl_libraries": OPENCL_LIBRARIES
        if any(bundle.manifest.options.opencl for bundle in project.bundles)
        else (),
        "pictures": _pictures(project),
        "project": project,
        "sources": [
            file.path.removeprefix("cpp/")
            for file in sources
            if file.path.startswith("cpp/") and file.path.endswith(".cc")
        ],
        "version": __version__,
        "versions": VERSIONS,
    }
    templates = {
        "build.gradle.kts": "module.gradle.kts",
        "consumer-rules.pro": "consumer-rules.pro",
        "src/main/AndroidManifest.xml": "library-manifest.xml",
        "src/main/cpp/CMakeLists.txt": "CMakeLists.txt",
        "src/main/prefab/prefab.json": "prefab/prefab.json",
        "src/main/prefab/modules/adt_runner/module.json": "prefab/module.json",
    }
    if values["pictures"]:
        templates[f"src/main/kotlin/{project.java_path}/Bitmaps.kt"] = "Bitmaps.kt"
    made: list[OutputFile] = [
        TextFile(f"{project.name}/{path}", render(f"aar/{template}.j2", **values))
        for path, template in templates.items()
    ]
    made += [
        TextFile(
            f"{project.name}/src/androidTest/kotlin/{project.java_path}/{model.api.cls}Test.kt",
            render("aar/ModelTest.kt.j2", model=model.api, project=project),
        )
        for model in project.models
    ]
    made += [_in_module(project, file) for file in sources if file.path != "cpp/CMakeLists.txt"]
    made += [_prefab(project, bundle) for bundle in project.bundles]
    made += _headers(project)
    made += [
        CopiedFile(f"{project.name}/src/main/{_in_gradle(name)}", path)
        for name, path in carried(project).items()
    ]
    return tuple(made)


def abis(project: Project) -> tuple[str, ...]:
    """Android's ABIs that there are models and libraries for."""
    return tuple(bundle.manifest.abi for bundle in project.bundles)


def lowest_api_level(project: Project) -> int:
    """The lowest API level on which all of the bundles' libraries start.

    Raises:
        ConfigError: a bundle is not for Android.
    """
    levels = []
    for bundle in project.bundles:
        if bundle.manifest.api_level is None:
            raise ConfigError(
                f"the bundle {bundle.path} is for {bundle.manifest.platform}, which is no Android",
                remedy="Give bundles and packages for Android: adt build-target --for android-arm64-v8a",
            )
        levels.append(bundle.manifest.api_level)
    return max(levels)


@dataclass(frozen=True)
class _Picture:
    """An input that takes a picture, and where it is."""

    cls: str
    """The model's class."""
    inputs: str
    """The class in it that has the input."""
    tensor: TensorApi


def _pictures(project: Project) -> tuple[_Picture, ...]:
    return tuple(
        _Picture(model.api.cls, f"{entry.pascal}Inputs", tensor)
        for model in project.models
        for entry in model.api.entries
        for tensor in entry.inputs
        if tensor.image is not None
    )


def _in_module(project: Project, file: OutputFile) -> OutputFile:
    """A file of :func:`adt.integrate.jni.sources`, where Gradle looks for it."""
    path = f"{project.name}/src/main/{file.path}"
    if isinstance(file, CopiedFile):
        return CopiedFile(path, file.source)
    return TextFile(path, file.text, users=file.users, executable=file.executable)


def _in_gradle(path: str) -> str:
    """Where Gradle looks for what is to be at *path* in the APK."""
    return f"jniLibs/{path.removeprefix(LIBRARIES)}" if path.startswith(LIBRARIES) else path


def _prefab(project: Project, bundle: TargetBundle) -> TextFile:
    """What prefab says of the library for one ABI that C++ links."""
    manifest = bundle.manifest
    facts = render(
        "aar/prefab/abi.json.j2",
        abi=manifest.abi,
        api_level=manifest.api_level,
        ndk=int((manifest.ndk_revision or VERSIONS.ndk).split(".")[0]),
    )
    directory = f"{project.name}/src/main/prefab/modules/adt_runner/libs/android.{manifest.abi}"
    return TextFile(f"{directory}/abi.json", facts)


def _headers(project: Project) -> list[OutputFile]:
    """The runner's headers, which are the same for every ABI."""
    bundle = project.bundles[0]
    return [
        CopiedFile(f"{project.name}/src/main/cpp/{name}", bundle.file(name))
        for name in sorted(bundle.manifest.headers)
        if name.startswith("include/adt/")
    ]
