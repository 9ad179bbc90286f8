"""Small stand-ins for a TargetBundle and a ModelPackage: valid manifests, no real programs.

They are enough for what deploy and the runner's plumbing do with them; ``rtvm``
is a shell script that keeps rtvm's command-line contract and answers as told by
its inputs. No model runs here: tests of real models use the real artefacts.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from adt.bundle import bundle as bundle_module
from adt.bundle.bundle import BundleFile, BundleManifest, BundleOptions, BundleTvm, TargetBundle
from adt.bundle.platforms import platform_named
from adt.host import manifest
from adt.model import package as package_module
from adt.model.package import (
    Entry,
    ModelPackage,
    PackageFile,
    PackageManifest,
    PackageTarget,
    PackageTvm,
    SourceModel,
    TensorSpec,
)

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
  fit) echo "rtvm: error: built for another module ABI" >&2; echo "remedy: compile it again" >&2; exit 3;;
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


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def bundle_manifest(platform: str = "linux-aarch64", *, api_level: int = 28) -> BundleManifest:
    """The manifest of an empty bundle; *api_level* is Android's."""
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
    """The manifest of a package without files."""
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


def make_bundle(directory: Path, files: dict[str, bytes] | None = None) -> TargetBundle:
    """Write a stand-in bundle with *files* beside its stand-in rtvm."""
    contents = {"bin/rtvm": STANDIN_RTVM.encode(), "lib/libone.so": b"one" * 1000, **(files or {})}
    for name, data in contents.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    found = replace(
        bundle_manifest(),
        files={name: BundleFile(_digest(data), len(data), ()) for name, data in contents.items()},
    )
    manifest.write(found, directory / bundle_module.MANIFEST)
    return bundle_module.load_bundle(directory)


def make_package(
    directory: Path, *, library: bytes = b"library", params: bytes = b"params", name: str = "toy"
) -> ModelPackage:
    """Write a stand-in package."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / package_module.LIBRARY).write_bytes(library)
    (directory / package_module.PARAMS).write_bytes(params)
    files = {
        package_module.LIBRARY: PackageFile(_digest(library), len(library)),
        package_module.PARAMS: PackageFile(_digest(params), len(params)),
    }
    manifest.write(replace(package_manifest(name=name), files=files), directory / package_module.MANIFEST)
    return package_module.load_package(directory)
