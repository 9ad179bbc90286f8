"""Packages and bundles that nobody compiled, for what only reads their manifests: names and types at will."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from adt.bundle.bundle import ACTIVITY, BundleFile, TargetBundle
from adt.bundle.platforms import platform_named
from adt.host import manifest
from adt.model.package import Entry, ModelPackage, PackageFile, SourceModel, TensorSpec
from standin_payload import bundle_manifest, package_manifest

LIBRARIES = ("libadt_runner.so", "libtvm_ffi.so", "libtvm_runtime.so")
HEADERS = ("include/adt/adt_runner.h", "include/adt/runner.h")
BUILD_FILES = ("lib/cmake/adt_runner/adt_runnerConfig.cmake", "lib/pkgconfig/adt_runner.pc")


def tensor(name: str, shape: Sequence[int | str], dtype: str = "float32") -> TensorSpec:
    """One input or output."""
    return TensorSpec(name, tuple(shape), dtype)


def entry(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], name: str = "main") -> Entry:
    """One function of a model."""
    return Entry(name, tuple(inputs), tuple(outputs), ())


def made_up_package(
    directory: Path,
    name: str,
    entries: Sequence[Entry],
    *,
    platform: str = "android-arm64-v8a",
    source: str = "model.onnx",
    precision: str = "float32",
    device: str = "cpu",
    alignment: int = 64,
) -> ModelPackage:
    """A package whose mod.so and mod.params are a few bytes of text, in *directory*."""
    directory.mkdir(parents=True, exist_ok=True)
    files = {}
    for file in ("mod.so", "mod.params"):
        text = f"{file} of {name} for {platform}\n".encode()
        (directory / file).write_bytes(text)
        files[file] = PackageFile(hashlib.sha256(text).hexdigest(), len(text))
    found = replace(
        package_manifest(platform, name, device=device),
        source=SourceModel(source, "onnx", hashlib.sha256(source.encode()).hexdigest()),
        entries=tuple(entries),
        alignment=alignment,
        precision=precision,
        files=files,
    )
    manifest.write(found, directory / "mod.json")
    return ModelPackage(directory, found)


def made_up_bundle(
    directory: Path, platform: str = "android-arm64-v8a", *, alignment: int = 64, api_level: int = 24
) -> TargetBundle:
    """A bundle whose libraries and headers are a few bytes of text, in *directory*."""
    about = platform_named(platform)
    libraries = (*LIBRARIES, "libc++_shared.so") if about.android else LIBRARIES

    def written(*paths: str) -> dict[str, BundleFile]:
        found = {}
        for path in paths:
            text = f"{path} for {platform}\n".encode()
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            (directory / path).write_bytes(text)
            found[path] = BundleFile(hashlib.sha256(text).hexdigest(), len(text), ())
        return found

    found = bundle_manifest(platform, api_level=api_level)
    found = replace(
        found,
        preset=f"{platform}-cpu",
        options=replace(found.options, opencl=True, alignment=alignment),
        files=written(*(f"lib/{library}" for library in libraries)),
        headers=written(*HEADERS),
        build_files=written(*BUILD_FILES),
        app_files=written(ACTIVITY) if about.android else {},
        licenses=written("licenses/tvm/LICENSE", "licenses/tvm/NOTICE"),
    )
    manifest.write(found, directory / "bundle.json")
    return TargetBundle(directory, found)
