"""What an Android application carries of bundles and packages, and where each file lies in its APK."""

from __future__ import annotations

from pathlib import Path

from adt.integrate.describe import Project
from adt.model.package.files import LIBRARY, MANIFEST, PARAMS

LIBRARIES = "lib/"
"""Beginning of the paths that Android loads code from."""


def carried(project: Project) -> dict[str, Path]:
    """Each file by its path in the APK: libraries, models, and licences once for all ABIs."""
    files: dict[str, Path] = {}
    for bundle in project.bundles:
        for name in sorted(bundle.manifest.files):
            if name.startswith("lib/"):
                files[library_path(bundle.manifest.abi, name)] = bundle.file(name)
        for name in sorted(bundle.manifest.licenses):
            files[f"assets/adt/{name}"] = bundle.file(name)
    for model in project.models:
        for variant in model.variants:
            package, assets = variant.package.path, f"assets/adt/{model.api.stem}/{variant.abi}"
            files[library_path(variant.abi, f"lib{model.api.library}.so")] = package / LIBRARY
            files[f"{assets}/{MANIFEST}"] = package / MANIFEST
            files[f"{assets}/{PARAMS}"] = package / PARAMS
    return files


def library_path(abi: str, name: str) -> str:
    """Where the library *name*, of a bundle (``lib/libx.so``) or by itself, lies in an APK."""
    return f"{LIBRARIES}{abi}/{name.removeprefix('lib/')}"
