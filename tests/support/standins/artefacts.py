"""Stand-ins for a TargetBundle and a ModelPackage: valid manifests, no real programs.

They are enough for what deploy and the runner's plumbing do with them; ``rtvm``
is a shell script that keeps rtvm's command-line contract and answers as told by
its inputs. No model runs here: tests of real models use the real artefacts.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from adt.bundle import bundle as bundle_module
from adt.bundle.bundle import ACTIVITY, BundleFile, BundleManifest, BundleOptions, BundleTvm, TargetBundle
from adt.bundle.platforms import platform_named
from adt.compiler.record import recorded_files
from adt.host import manifest
from adt.integrate.model_api import Project
from adt.integrate.project import project
from adt.package.files import LIBRARY, MANIFEST, PARAMS
from adt.package.inspection.graph import DeviceKernel, Graph, Subgraph
from adt.package.manifest import (
    Entry,
    PackageFile,
    PackageManifest,
    PackageTarget,
    PackageTvm,
    SourceModel,
    TensorSpec,
)
from adt.package.package import ModelPackage, load_package
from support.devices.fixtures import NATIVE

LIBRARIES = ("libadt_runner.so", "libtvm_ffi.so", "libtvm_runtime.so")
HEADERS = ("include/adt/adt_runner.h", "include/adt/runner.h")
BUILD_FILES = ("lib/cmake/adt_runner/adt_runnerConfig.cmake", "lib/pkgconfig/adt_runner.pc")

STANDIN_RTVM = r"""#!/system/bin/sh
# Stand-in for rtvm: keeps its command line and exit codes, copies its inputs to its outputs.
input= output= entry= model=
while [ $# -gt 0 ]; do
  case $1 in
    --input) input=$2; shift;;
    --output) output=$2; shift;;
    --entry) entry=$2; shift;;
    --model) model=$2; shift;;
    --device|--dry-run|--run-count|--seed|--program-cache) shift;;
    --json) ;;
    *) echo "rtvm: error: unknown option $1" >&2; exit 2;;
  esac
  shift
done
[ -f "$model/mod.json" ] || { echo "rtvm: error: no mod.json in $model" >&2; exit 3; }
case $entry in
  fit) echo "rtvm: error: built for another module ABI" >&2; echo "remedy: compile it again" >&2; exit 6;;
  input) echo "rtvm: error: input x has the wrong shape" >&2; echo "remedy: give 1x4" >&2; exit 4;;
  fail) echo "rtvm: error: the device ran out of luck" >&2; exit 5;;
  segv) kill -SEGV $$;;
  hang) echo "$$" >/data/local/tmp/hanging; sleep 4321;;
  mute) exit 0;;
  silent) cp "$input" "$output"; echo nothing useful; exit 0;;
esac
[ -n "$input" ] || { echo "rtvm: error: this stand-in makes up no inputs" >&2; exit 4; }
cp "$input" "$output" || exit 5
printf '{"standin": true, "cwd": "%s", "libraries": "%s"}\n' "$PWD" "$LD_LIBRARY_PATH"
"""


def _write_files(directory: Path, contents: dict[str, bytes]) -> dict[str, tuple[str, int]]:
    """Write *contents*; return the sha256 and the size of each, as a manifest has them."""
    for name, data in contents.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(data)
    return {name: (hashlib.sha256(data).hexdigest(), len(data)) for name, data in contents.items()}


def bundle_manifest(platform: str = "linux-aarch64", *, api_level: int = 28) -> BundleManifest:
    about = platform_named(platform)
    return BundleManifest(
        adt_version="0",
        preset=platform,
        platform=platform,
        abi=about.abi,
        triple=about.llvm_triple(api_level),
        machine=about.machine,
        api_level=api_level if about.android else None,
        ndk_revision="27.2.12479018" if about.android else None,
        compiler="stand-in",
        tvm=BundleTvm("0.25.0.post1", "0.1.12", "0" * 64, "path"),
        context_symbols=("__TVMBackendGetFuncFromEnv", "__TVMFFIEnvModLookupFromImports"),
        options=BundleOptions(opencl=False, clml=False, rpc=False, alignment=32, build_type="Release"),
        page_alignment=16384,
    )


def package_manifest(
    platform: str = "linux-aarch64", name: str = "toy", *, device: str = "cpu"
) -> PackageManifest:
    about = platform_named(platform)
    x = TensorSpec("x", (1, 4), "float32")
    return PackageManifest(
        adt_version="0",
        name=name,
        source=SourceModel("toy.onnx", "onnx", "0" * 64),
        entries=(Entry("main", (x,), (x,), ()),),
        target=PackageTarget(
            device, device, platform, about.llvm_triple(28), about.machine, {"kind": "llvm"}, (device,)
        ),
        tvm=PackageTvm("0.25.0.post1", "0.1.12", ("__TVMBackendGetFuncFromEnv",)),
        alignment=32,
        precision="float32",
        offload="none",
        kernels=(),
        tuned=0,
        total=0,
    )


def make_bundle(
    directory: Path, files: dict[str, bytes] | None = None, *, platform: str = "linux-aarch64"
) -> TargetBundle:
    """Write a bundle with *files* beside its stand-in rtvm."""
    contents = {"bin/rtvm": STANDIN_RTVM.encode(), "lib/libone.so": b"one" * 1000, **(files or {})}
    return _bundle(directory, replace(bundle_manifest(platform), files=_bundle_files(directory, contents)))


def make_package(
    directory: Path,
    *,
    library: bytes = b"library",
    params: bytes = b"params",
    name: str = "toy",
    platform: str = "linux-aarch64",
) -> ModelPackage:
    """Write a package of one entry x → x, float32 (1, 4)."""
    return _package(directory, package_manifest(platform, name), library, params)


native_bundle = partial(make_bundle, platform=NATIVE.linux_platform)
native_package = partial(make_package, platform=NATIVE.linux_platform)


def make_inspected_package(directory: Path) -> ModelPackage:
    """Write a package whose ``inspect/`` has a graph of one kernel of OpenCL and one subgraph of CLML."""
    kernel = DeviceKernel("k", "f", (), ("x",), (1,), (1,), "opencl/k.cl", 1)
    subgraph = Subgraph("sub", hashlib.sha256(b"{}").hexdigest())
    manifest.write(Graph((), (), (), (), (kernel,), (subgraph,)), directory / "inspect/graph.json")
    texts = {"opencl/k.cl": "__kernel void k() {}\n", "clml/0.json": "{}\n", "tir.py": "", "other": ""}
    _write_files(directory / "inspect", {name: text.encode() for name, text in texts.items()})
    described = replace(package_manifest(), offload="clml", inspection=recorded_files(directory))
    return _package(directory, described, b"library", b"params")


def tensor(name: str, shape: Sequence[int | str], dtype: str = "float32") -> TensorSpec:
    return TensorSpec(name, tuple(shape), dtype)


def entry(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], name: str = "main") -> Entry:
    return Entry(name, tuple(inputs), tuple(outputs), ())


def make_typed_package(
    directory: Path,
    name: str,
    entries: Sequence[Entry],
    *,
    platform: str = "android-arm64-v8a",
    source: str = "model.onnx",
    precision: str = "float32",
    device: str = "cpu",
    alignment: int = 64,
    params: str = "",
) -> ModelPackage:
    """Write a package with names and types at will, for what reads its manifest only.

    Args:
        params: text of mod.params; empty: the same for every platform.
    """
    typed = replace(
        package_manifest(platform, name, device=device),
        source=SourceModel(source, "onnx", hashlib.sha256(source.encode()).hexdigest()),
        entries=tuple(entries),
        alignment=alignment,
        precision=precision,
    )
    library, params = f"mod.so of {name} for {platform}\n", params or f"mod.params of {name}\n"
    return _package(directory, typed, library.encode(), params.encode())


def make_project(
    directory: Path,
    models: Mapping[str, Sequence[Entry]],
    platforms: Sequence[str] = ("linux-aarch64",),
    *,
    api_level: int = 24,
    java_package: str = "com.example.vision",
    **options: Any,
) -> Project:
    """Describe a project with *models* for *platforms*, from packages and bundles of bytes of text."""
    return project(
        [
            make_typed_package(directory / f"package{number}-{platform}", name, entries, platform=platform)
            for number, (name, entries) in enumerate(models.items())
            for platform in platforms
        ],
        [make_app_bundle(directory / f"bundle-{name}", name, api_level=api_level) for name in platforms],
        java_package=java_package,
        **options,
    )


def at_levels(app: Project, levels: Sequence[int]) -> Project:
    """Return *app* with a bundle for each of the API *levels*, in its order of platforms."""
    bundles = (
        replace(bundle, manifest=replace(bundle.manifest, api_level=level))
        for bundle, level in zip(app.bundles, levels, strict=True)
    )
    return replace(app, bundles=tuple(bundles))


def make_app_bundle(
    directory: Path,
    platform: str = "android-arm64-v8a",
    *,
    alignment: int = 64,
    api_level: int = 24,
    contents: Mapping[str, bytes] | None = None,
) -> TargetBundle:
    """Write a bundle with what apps link: libraries, headers, build files and licenses of a few bytes of text.

    Args:
        contents: of files that are not to be text.
    """
    about = platform_named(platform)
    libraries = (*LIBRARIES, "libc++_shared.so") if about.android else LIBRARIES

    def write(*paths: str) -> dict[str, BundleFile]:
        texts = {path: f"{path} for {platform}\n".encode() for path in paths}
        return _bundle_files(directory, texts | {path: own[path] for path in paths if path in own})

    own = contents or {}
    empty = bundle_manifest(platform, api_level=api_level)
    return _bundle(
        directory,
        replace(
            empty,
            preset=f"{platform}-cpu",
            options=replace(empty.options, opencl=True, alignment=alignment),
            files=write(*(f"lib/{library}" for library in libraries)),
            headers=write(*HEADERS),
            build_files=write(*BUILD_FILES),
            app_files=write(ACTIVITY) if about.android else {},
            licenses=write("licenses/tvm/LICENSE", "licenses/tvm/NOTICE"),
        ),
    )


def _bundle_files(directory: Path, contents: dict[str, bytes]) -> dict[str, BundleFile]:
    return {name: BundleFile(*file, ()) for name, file in _write_files(directory, contents).items()}


def _bundle(directory: Path, described: BundleManifest) -> TargetBundle:
    manifest.write(described, directory / bundle_module.MANIFEST)
    return bundle_module.load_bundle(directory)


def _package(directory: Path, described: PackageManifest, library: bytes, params: bytes) -> ModelPackage:
    contents = {LIBRARY: library, PARAMS: params}
    files = {name: PackageFile(*file) for name, file in _write_files(directory, contents).items()}
    manifest.write(replace(described, files=files), directory / MANIFEST)
    return load_package(directory)
