"""Packages and bundles that nobody compiled, for what only reads their manifests: names and types at will."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from adt.host import manifest
from adt.model.package import (
    SCHEMA_VERSION,
    Entry,
    ModelPackage,
    PackageFile,
    PackageManifest,
    PackageTarget,
    PackageTvm,
    SourceModel,
    TensorSpec,
)
from adt.target.bundle import ACTIVITY, BundleFile, BundleManifest, BundleOptions, BundleTvm, TargetBundle
from adt.target.platforms import platform_named

SYMBOLS = ("__TVMFFIEnvModLookupFromImports",)
TVM, FFI = "0.25.0", "0.1.12"
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
    about = platform_named(platform)
    found = PackageManifest(
        adt_version="0.1.0",
        name=name,
        source=SourceModel(source, "onnx", hashlib.sha256(source.encode()).hexdigest()),
        entries=tuple(entries),
        target=PackageTarget(device, device, platform, about.llvm_triple(28), about.machine, {}, (device,)),
        tvm=PackageTvm(TVM, FFI, SYMBOLS),
        alignment=alignment,
        precision=precision,
        offload="none",
        kernels=(),
        tuned=0,
        total=0,
        files=files,
        schema_version=SCHEMA_VERSION,
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

    found = BundleManifest(
        adt_version="0.1.0",
        preset=f"{platform}-cpu",
        platform=platform,
        abi=about.abi,
        triple=about.llvm_triple(api_level),
        machine=about.machine,
        api_level=api_level if about.android else None,
        ndk_revision="27.2.12479018" if about.android else None,
        compiler="made up",
        tvm=BundleTvm(TVM, FFI, "0" * 64, "path"),
        context_symbols=SYMBOLS,
        options=BundleOptions(opencl=True, clml=False, rpc=False, alignment=alignment, build_type="Release"),
        page_alignment=16384,
        files=written(*(f"lib/{library}" for library in libraries)),
        headers=written(*HEADERS),
        build_files=written(*BUILD_FILES),
        app_files=written(ACTIVITY) if about.android else {},
        licenses=written("licenses/tvm/LICENSE", "licenses/tvm/NOTICE"),
    )
    manifest.write(found, directory / "bundle.json")
    return TargetBundle(directory, found)
