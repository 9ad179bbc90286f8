"""Files of bundles and packages in a generated project or an application, their paths and pages; bench plans.

The plan, ``assets/adt/bench.json``, tells what an application measures, and how; libadt_activity.so reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from adt import __version__
from adt.bundle.audit.binaries import Binary, Unreadable, collect
from adt.bundle.audit.destination import ANDROID, may_have_large_pages, obstacle
from adt.bundle.bundle import ACTIVITY
from adt.bundle.platforms import BIG_PAGE, PLATFORMS
from adt.errors import BuildError, ConfigError, MismatchError, PackageError
from adt.host import manifest
from adt.integrate.model_api import Project
from adt.integrate.output import CopiedFile
from adt.package.files import LIBRARY, MANIFEST, PARAMS

LIBRARIES = "lib/"
"""Beginning of the paths that Android loads code from."""
OPENCL_LIBRARIES = (
    "libOpenCL.so",
    "libOpenCL-pixel.so",
    "libOpenCL-car.so",
    "libGLES_mali.so",
    "libPVROCL.so",
)
"""For ``<uses-native-library>``: Adreno and most others, Google's phones, cars, Mali, PowerVR. From
targetSdkVersion 31 on, an app sees a vendor's library only if its manifest names it and the vendor's list of
public libraries has it, too."""


def apk_files(project: Project) -> dict[str, Path]:
    return runtime_files(project) | model_files(project)


def runtime_files(project: Project) -> dict[str, Path]:
    """Return the bundles' libraries and, once for all ABIs, licences, by their path in the APK."""
    files: dict[str, Path] = {}
    for bundle in project.bundles:
        for name in sorted(bundle.manifest.files):
            if name.startswith("lib/"):
                files[_library_path(bundle.manifest.abi, name)] = bundle.file(name)
        for name in sorted(bundle.manifest.licenses):
            files[f"assets/adt/{name}"] = bundle.file(name)
    return files


def model_files(project: Project) -> dict[str, Path]:
    """Return libraries, descriptions and parameters by path in the APK; equal parameters once."""
    files: dict[str, Path] = {}
    for model in project.packaged:
        for variant in model.variants:
            package, assets = variant.package.path, f"assets/adt/{model.api.stem}"
            files[_library_path(variant.abi, f"lib{model.api.library}.so")] = package / LIBRARY
            files[f"{assets}/{variant.abi}/{MANIFEST}"] = package / MANIFEST
            params = PARAMS if model.shares_params else f"{variant.abi}/{PARAMS}"
            files.setdefault(f"{assets}/{params}", package / PARAMS)
    return files


def app_libraries(files: Mapping[str, Path]) -> tuple[Binary | Unreadable, ...]:
    """Return the libraries among *files*, which are called as in the APK."""
    libraries = [
        (name, each) for name in files if name.startswith(LIBRARIES) for each in collect(files[name])
    ]
    return tuple(
        replace(each, name=name, place=name) if isinstance(each, Binary) else replace(each, name=name)
        for name, each in libraries
    )


def benchmark_files(project: Project) -> dict[str, Path]:
    """Return libadt_activity.so for each ABI, which an app that measures has, too, by its path in the APK."""
    files: dict[str, Path] = {}
    for bundle in project.bundles:
        manifest = bundle.manifest
        platform = PLATFORMS.get(manifest.platform)
        if platform is None or not platform.android:
            raise MismatchError(
                f"the bundle {bundle.path} is for {manifest.platform}: an APK runs on Android only",
                remedy="Build one for Android: adt build-target --for android-arm64-v8a; on this platform, "
                "`adt bench` runs the package.",
            )
        if ACTIVITY not in manifest.app_files:
            raise MismatchError(
                f"the bundle {bundle.path} has no {ACTIVITY}, which is what measures in an app",
                remedy=f"Build it again with this adt: adt build-target --for {manifest.platform}",
            )
        for name in manifest.app_files:
            files[_library_path(manifest.abi, name)] = bundle.file(name)
    return files


def _library_path(abi: str, name: str) -> str:
    """Return the path in an APK of the library *name*, of a bundle (``lib/libx.so``) or by itself."""
    return f"{LIBRARIES}{abi}/{name.removeprefix('lib/')}"


def cmake_files(project: Project) -> tuple[CopiedFile, ...]:
    """Return ``bundles/<platform>/…`` to compile against and ship, ``models/<platform>/<model>/mod.*``."""
    files = list[CopiedFile]()
    for bundle in project.bundles:
        manifest = bundle.manifest
        if not manifest.build_files:
            raise PackageError(
                f"the bundle {bundle.path} has no CMake package: an older adt made it",
                remedy=f"Build it again: adt build-target --for {manifest.preset}",
            )
        libraries = [name for name in manifest.files if name.startswith("lib/")]
        names = (*libraries, *manifest.headers, *manifest.build_files, *manifest.licenses)
        files += [CopiedFile(f"bundles/{manifest.platform}/{name}", bundle.file(name)) for name in names]
    for model in project.packaged:
        for variant in model.variants:
            directory = f"models/{variant.bundle.manifest.platform}/{model.api.stem}"
            files += [CopiedFile(f"{directory}/{path.name}", path) for path in variant.package.files]
    return tuple(files)


def check_large_pages(libraries: Iterable[Binary | Unreadable]) -> None:
    """Refuse *libraries* that pages of 16 KB cannot map, as `adt elf` judges them and Google Play does."""
    small = {
        binary.name: reason
        for binary in libraries
        if isinstance(binary, Binary)
        and may_have_large_pages(binary.facts.machine, ANDROID)
        and (reason := obstacle(binary.facts, BIG_PAGE, bionic=True))
    }
    if small:
        first = next(iter(small))
        raise BuildError(
            f"{first} does not load on devices with pages of 16 KB: {small[first]}"
            + (f"; nor do {len(small) - 1} more" if len(small) > 1 else ""),
            remedy="Build the bundle with NDK r28 or newer, whose libc++_shared.so is for such pages, too: "
            "adt build-target --ndk DIR; then compile the package anew. For devices with pages of 4 KB alone "
            "give --allow-4k.",
            details="\n".join(f"{name}: {reason}" for name, reason in small.items()),
        )


SCHEMA = "adt.app-bench-plan"
SCHEMA_VERSION = 1
BENCH_PLAN = "assets/adt/bench.json"
ACTIVITY_CLASS = "android.app.NativeActivity"
"""Android's own; it loads libadt_activity.so, which the manifest names."""
RESULTS = "adt-bench"
"""Directory below the app's media files."""
ERROR = "error.json"
"""Instead of all results, when the app could not begin."""


@dataclass(frozen=True)
class PlannedExtent:
    symbol: str
    extent: int


@dataclass(frozen=True)
class PlannedModel:
    stem: str
    """Name of its directory below assets/adt/, and of its result's file."""
    library: str
    """Name of mod.so as the app carries it: ``libdetector_model.so``."""
    entry: str
    extents: tuple[PlannedExtent, ...] = ()
    """Extents of all symbols in the shapes of the entry's inputs."""
    shared_params: bool = False
    """True if mod.params lies in the directory itself, not in each ABI's below it."""


@dataclass(frozen=True)
class BenchPlan:
    """The file; the activity refuses one that lacks a field or has another."""

    app: str
    """The application's id: ``com.example.vision``."""
    bundle_digests: dict[str, str]
    """Digest of each bundle's bundle.json (sha256), by ABI."""
    models: tuple[PlannedModel, ...]
    """None: the application measures nothing, it is an RPC server."""
    device: str = ""
    """``cpu`` or ``opencl``; empty for what each package was compiled for."""
    threads: int = 0
    """CPU threads; 0 for the runtime's choice."""
    affinity: str = ""
    """``big``, ``little``, ``all`` or CPU numbers; empty for the runtime's choice."""
    seed: int = 0
    end_to_end: bool = False
    """A timed run copies the inputs in and the outputs out, too."""
    warmup_runs: int = 3
    """Untimed runs, at least …"""
    warmup_ms: int = 500
    """Least duration of the warm-up, in milliseconds."""
    runs: int = 50
    """Timed runs, at least …"""
    min_ms: int = 3000
    """Least duration of the measurement, in milliseconds."""
    sample_ms: int = 1000
    """Temperatures and clocks between the runs, at most so often; 0 for never."""
    adt_version: str = __version__
    schema: str = SCHEMA
    schema_version: int = SCHEMA_VERSION

    def text(self) -> str:
        return manifest.dumps(self)


def planned_models(project: Project, *, extent: int | None = None) -> tuple[PlannedModel, ...]:
    """Return each model with the entry that is measured: ``main``, else its first.

    Each symbol in the shapes of that entry's inputs has *extent*; None: no shape may have one.
    """
    planned = []
    for model in project.packaged:
        entries = model.api.entries
        entry = next((entry for entry in entries if entry.name == "main"), entries[0])
        for tensor in entry.inputs if extent is None else ():
            if not tensor.static:
                shape = ", ".join(map(str, tensor.shape))
                raise ConfigError(
                    f"the input {tensor.name!r} of {model.api.name} has no fixed shape ([{shape}]): the app "
                    "cannot make up data for it",
                    remedy=f"Compile the model with --shape {tensor.name}:EXTENTS.",
                )
        symbols = {size for tensor in entry.inputs for size in tensor.shape if isinstance(size, str)}
        extents = tuple(PlannedExtent(symbol, extent or 1) for symbol in sorted(symbols))
        library = f"lib{model.api.library}.so"
        planned.append(PlannedModel(model.api.stem, library, entry.name, extents, model.shares_params))
    return tuple(planned)
