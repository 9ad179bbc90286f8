"""AndroidManifest.xml: as text, in the binary form that Android reads, and what an APK says of itself."""

from __future__ import annotations

import re
import zipfile
from dataclasses import dataclass
from pathlib import Path

from adt import __version__
from adt.errors import BuildError, InputError
from adt.host import process
from adt.host.ndk import ApkTools
from adt.integrate.android_versions import NEWEST
from adt.integrate.apk.entries import ApkEntry
from adt.integrate.bench_plan import ACTIVITY_CLASS, BENCH_PLAN
from adt.integrate.contents import opencl_libraries
from adt.integrate.model_api import Project
from adt.integrate.names import NamePool
from adt.integrate.templates import render
from adt.limits import parse_json

TEMPLATE = "apk/AndroidManifest.xml.j2"
NAME = "AndroidManifest.xml"
MAPS_LIBRARIES_SINCE = 23
"""The first API level that maps libraries straight from an APK."""
WARNING = re.compile(r"\bwarn(ing)?:")
NEWER_ELEMENTS = re.compile(r"unexpected element <uses-native-library>")
"""Warning of older versions of aapt2 (Debian's): Android reads it all the same."""


def application_id(name: str) -> str:
    """Return ``com.example.my_model_bench`` for the model ``my-model``, for an app that is only tried out."""
    return f"com.example.{NamePool().give(name, 'model').snake}_bench"


def min_sdk(project: Project) -> int:
    """Return the lowest API level on which every bundle of *project* runs."""
    return max(MAPS_LIBRARIES_SINCE, *(bundle.manifest.api_level or 0 for bundle in project.bundles))


def manifest_text(project: Project, *, debuggable: bool = False) -> str:
    """Write the manifest of the app of *project*."""
    return render(
        TEMPLATE,
        project=project,
        activity=ACTIVITY_CLASS,
        process="",
        version_name=__version__,
        min_sdk=min_sdk(project),
        target_sdk=NEWEST.target_sdk,
        native_libraries=opencl_libraries(project),
        debuggable=debuggable,
    )


def link_manifest(text: str, tools: ApkTools, directory: Path) -> tuple[ApkEntry, ...]:
    """Link the manifest *text* to Android's binary form, and the table of its resources."""
    source, linked = directory / NAME, directory / "linked.apk"
    source.write_text(text, encoding="utf-8")
    remedy = "Check --sdk: its aapt2 and its platform must be of about the same age."
    done = process.run(
        [
            *(tools.aapt2, "link", "--warn-manifest-validation"),
            *("--manifest", source, "-I", tools.framework, "-o", linked),
        ],
        error=BuildError,
        what="aapt2 cannot link the app's manifest",
        remedy=remedy,
    )
    warnings = [line for line in f"{done.stdout}\n{done.stderr}".splitlines() if WARNING.search(line)]
    if unexpected := [line for line in warnings if not NEWER_ELEMENTS.search(line)]:
        raise BuildError(
            "aapt2 does not understand the app's manifest", remedy=remedy, details="\n".join(unexpected)
        )
    with zipfile.ZipFile(linked) as archive:
        return tuple(ApkEntry(member.filename, archive.read(member)) for member in archive.infolist())


STEM = re.compile("[a-z0-9_]+")
LARGEST_PLAN = 1 << 20
"""Bytes; a real one has some hundred for each model."""


@dataclass(frozen=True)
class ApkContents:
    """Facts of an APK that installing and running it need."""

    app: str
    """Application id; empty: `adt apk` did not make it."""
    stems: tuple[str, ...]
    """The models that it measures, by their directories; an app of `adt apk` with none is an RPC server."""
    abis: tuple[str, ...]
    """ABIs that it has libraries for; none: it runs on every one."""

    @property
    def serves(self) -> bool:
        """Return True if it is an RPC server."""
        return bool(self.app) and not self.stems


def read_apk(path: Path) -> ApkContents:
    """Look into the APK *path*; raises InputError if there is no file, or it is no APK."""
    remedy = "Name an APK, such as `adt apk` writes."
    if not path.is_file():
        raise InputError(f"there is no APK {path}", remedy=remedy)
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            app, stems = _plan(archive) if BENCH_PLAN in names else ("", ())
    except Exception as error:  # zipfile, zlib and the plan's fields: BadZipFile, RuntimeError, KeyError, …
        raise InputError(f"{path} is no APK, or is damaged: {error}", remedy=remedy) from error
    if NAME not in names:
        raise InputError(f"{path} is no APK: it has no {NAME}", remedy=remedy)
    libraries = [match[1] for name in names if (match := re.fullmatch(r"lib/([^/]+)/[^/]+\.so", name))]
    return ApkContents(app, stems, tuple(dict.fromkeys(libraries)))


def _plan(archive: zipfile.ZipFile) -> tuple[str, tuple[str, ...]]:
    """Return the application id and the models."""
    with archive.open(BENCH_PLAN) as file:
        plan = parse_json(file.read(LARGEST_PLAN))
    app, stems = plan["app"], tuple(model["stem"] for model in plan["models"])
    if not re.fullmatch(r"\w+(\.\w+)+", app, re.ASCII) or not all(map(STEM.fullmatch, stems)):
        raise ValueError(f"{BENCH_PLAN} has names that adt does not give")  # they become paths
    return app, stems
