"""AndroidManifest.xml: as text from its template, and linked to the binary form that Android reads."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

from adt import __version__
from adt.errors import BuildError
from adt.host import process
from adt.host.android_sdk import ApkTools
from adt.integrate.apk.entries import ApkEntry
from adt.integrate.describe import Project
from adt.integrate.names import Names
from adt.integrate.opencl_libraries import OPENCL_LIBRARIES
from adt.integrate.render import render

TEMPLATE = "apk/AndroidManifest.xml.j2"
NAME = "AndroidManifest.xml"
ACTIVITY_CLASS = "android.app.NativeActivity"
"""Android's own; it loads the library that the manifest names."""
MAPS_LIBRARIES_SINCE = 23
"""The first API level that maps libraries straight from an APK."""
TARGET_SDK = 30
"""The API level whose rules the app asks for. From 31 on, Android hands the libraries that a manifest names
to the class loader of an app's code: an app without code sees none of the vendor's, and so no OpenCL."""
NEWER_ELEMENTS = re.compile(r"unexpected element <uses-native-library>")
"""What older aapt2 (Debian's) warns of: Android reads it all the same."""


def application_id(name: str) -> str:
    """``com.example.my_model_bench`` for the model ``my-model``: a name for an app that is only tried out."""
    return f"com.example.{Names().give(name, 'model').snake}_bench"


def min_sdk(project: Project) -> int:
    """The lowest API level on which every bundle of *project* runs."""
    return max(MAPS_LIBRARIES_SINCE, *(bundle.manifest.api_level or 0 for bundle in project.bundles))


def manifest_text(project: Project, *, debuggable: bool = False) -> str:
    """The manifest of the app of *project*."""
    opencl = any(bundle.manifest.options.opencl for bundle in project.bundles)
    return render(
        TEMPLATE,
        project=project,
        activity=ACTIVITY_CLASS,
        version_name=__version__,
        min_sdk=min_sdk(project),
        target_sdk=TARGET_SDK,
        native_libraries=OPENCL_LIBRARIES if opencl else (),
        debuggable=debuggable,
    )


def link_manifest(text: str, tools: ApkTools, directory: Path) -> tuple[ApkEntry, ...]:
    """The manifest *text* in Android's binary form, and the table of its resources.

    Args:
        directory: an empty one, for what aapt2 writes.

    Raises:
        BuildError: aapt2 refuses the manifest.
    """
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
    if unexpected := [line for line in _warnings(done) if not NEWER_ELEMENTS.search(line)]:
        raise BuildError(
            "aapt2 does not understand the app's manifest", remedy=remedy, details="\n".join(unexpected)
        )
    with zipfile.ZipFile(linked) as archive:
        return tuple(ApkEntry(member.filename, archive.read(member)) for member in archive.infolist())


def _warnings(done: process.Finished) -> Iterator[str]:
    lines = f"{done.stdout}\n{done.stderr}".splitlines()
    return (line for line in lines if re.search(r"\bwarn(ing)?:", line))
