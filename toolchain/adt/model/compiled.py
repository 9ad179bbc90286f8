"""The compile cache: what was compiled once from the same model with the same options is copied.

An entry is ``packages/<name>-<key>`` in the cache; the key is over all that decides
a package's bytes: the model, the [compile] settings and what they stand for on this
machine, the platform, what mod.so is linked with, the versions of TVM and of the
importers, the plugins, and adt's own code.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
from functools import cache as once
from importlib import metadata
from pathlib import Path
from typing import Any

import adt
from adt.bundle.bundle import TargetBundle
from adt.bundle.platforms import Platform
from adt.errors import PackageError
from adt.host import cache
from adt.host.disk import scratch_directory
from adt.host.ndk import Ndk
from adt.host.tools import compiler_identity
from adt.model.assemble import Making, package_name
from adt.model.compile import compile_model, package_target, readied, say_tuned
from adt.model.host_run.opencl import opencl_device
from adt.model.importers.imported_model import ImportedModel
from adt.model.link import linker_for
from adt.model.package import files, model_store, origin
from adt.model.package.files import MANIFEST
from adt.model.package.manifest import SCHEMA_VERSION, PackageLike
from adt.model.package.package import ModelPackage, load_check, load_package, save_check
from adt.model.passes.offload.partition import PLUGINS, check_combination, plugin_for
from adt.model.tuning.tuning import Tuning
from adt.options.option import values_of
from adt.options.sections import Settings

log = logging.getLogger("adt.compile")

TOOLS = ("apache-tvm", "apache-tvm-ffi")
IMPORTERS = (
    "onnx", "onnxslim", "onnxruntime", "numpy", "tflite", "flatbuffers", "ai-edge-litert", "torch", "keras",
    "onnxscript",
)  # fmt: skip
"""Distributions whose version can change what a model becomes."""
CHECKED = "package.json"
"""What came of running the kernels here, beside a package in the cache; no part of the package."""
CODE = ("bundle", "host", "model", "options")
"""Packages of adt that a compile runs."""


@dataclasses.dataclass(frozen=True)
class Job:
    """A model and all that it is compiled with."""

    model: Path
    platform: Platform
    settings: Settings
    ndk: Ndk | None = None
    bundle: TargetBundle | None = None
    like: PackageLike | None = None
    accuracy_inputs: tuple[Path, ...] = ()
    tuning: Tuning | None = None
    """Records that kernels get their schedules from."""

    def readied(self, *, accuracy: bool = True) -> tuple[ImportedModel, Making]:
        """The model imported, and what it is to be compiled for; see :func:`adt.model.compile.readied`.

        Args:
            accuracy: measure that of reduced precision, as configured.
        """
        settings = self.settings
        if not accuracy:
            off = settings.compile.but(accuracy="off")
            settings = dataclasses.replace(settings, compile=off)
        imported, making = readied(
            self.model,
            platform=self.platform,
            settings=settings,
            ndk=self.ndk,
            bundle=self.bundle,
            like=self.like,
            accuracy_inputs=self.accuracy_inputs if accuracy else (),
        )
        return imported, dataclasses.replace(making, tuning=self.tuning)

    def compile(self, directory: Path) -> ModelPackage:
        """Compile into *directory*; see :func:`adt.model.compile.compile_model`."""
        return compile_model(
            self.model,
            directory,
            platform=self.platform,
            settings=self.settings,
            ndk=self.ndk,
            bundle=self.bundle,
            like=self.like,
            accuracy_inputs=self.accuracy_inputs,
            tuning=self.tuning,
        )


def identity(job: Job) -> dict[str, Any] | None:
    """Everything that decides the bytes of the package; None when that cannot be told.

    A callable that builds a model, or a TVM that is no installed distribution, has no
    digest: such a model is compiled each time.

    Raises:
        ModelError, ConfigError, ToolNotFound, NdkError, MismatchError: as compiling would.
    """
    versions = _versions()
    if not job.model.is_file() or not all(versions[name] for name in TOOLS):
        return None
    try:
        sha256 = model_store.model_sha256(job.model)
    except Exception as why:  # no model at all: compiling it says what is wrong with it
        log.debug("%s has no digest: %s", job.model, why)
        return None
    build, offload = job.settings.build, job.settings.compile.offload
    target = package_target(job.platform, job.settings, job.like)
    check_combination(offload, target.device, job.platform, build.api_level)
    linker = linker_for(job.platform, ndk=job.ndk, api_level=build.api_level, bundle=job.bundle)
    bundle = job.bundle.manifest if job.bundle else None
    return {
        "schema": SCHEMA_VERSION,
        "adt": [adt.__version__, _code()],
        "model": [job.model.name, sha256],
        "settings": {
            name: value
            for name, value in values_of(job.settings.compile).items()
            if name not in ("db", "tuned_on")  # what they choose is the tuning
        },
        "platform": [job.platform.name, build.api_level if job.platform.android else 0, build.alignment],
        "target": dataclasses.asdict(target),
        "like": dataclasses.asdict(job.like) if job.like else None,
        "accuracy_inputs": [
            [file.name, cache.file_sha256(file)] for file in job.accuracy_inputs if file.is_file()
        ],
        "compiler": compiler_identity(linker.compiler),
        "bundle": {
            "libraries": {n: f.sha256 for n, f in bundle.files.items() if n.startswith("lib/")},
            "alignment": bundle.options.alignment,
        }
        if bundle
        else None,
        "plugin": _plugin(job.settings),
        "versions": versions,
        "tuning": job.tuning.digest if job.tuning else "",
        "checking": str(opencl_device())
        if target.device == "opencl" and job.settings.compile.check != "off"
        else "",
    }


def cached_package(job: Job) -> ModelPackage:
    """The package of *job* in the cache, compiled when it is not there; two at once compile it once.

    Raises:
        ModelError, UnsupportedOp, CompileError, …: see :func:`adt.model.compile.compile_model`.
    """
    facts = identity(job)
    if facts is not None:
        package = _cached(job, facts)
        origin.remember(package.manifest)
        return package
    raise PackageError(
        f"{job.model} has no digest by which its package could be found again",
        remedy="Compile it to a directory: adt compile MODEL -o DIR",
    )


def _cached(job: Job, facts: dict[str, Any]) -> ModelPackage:
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()
    name = f"packages/{package_name(job.model)}-{digest[:24]}"
    path, found = cache.entry(name, lambda directory: _compile_into(directory, job))
    if found:
        model_store.keep(job.model, facts["model"][1])  # what `adt verify` compares with
    try:
        package = load_package(path)
    except PackageError as why:
        raise PackageError(why.what, remedy=f"Remove {path} and run this again.") from why
    if found:
        say_tuned(package.manifest)
    return dataclasses.replace(package, cached=found, checked=load_check(path / CHECKED))


def _compile_into(directory: Path, job: Job) -> None:
    save_check(job.compile(directory).checked, directory / CHECKED)


def compile_to(job: Job, out: Path, *, use_cache: bool = True) -> ModelPackage:
    """Compile to the directory or .tar *out*, which appears complete or not at all.

    Args:
        use_cache: False compiles, whatever is in the cache, and leaves nothing there.

    Raises:
        PackageError: *out* exists and is no package.
        ModelError, UnsupportedOp, CompileError, …: see :func:`adt.model.compile.compile_model`.
    """
    package = _compile_to(job, out, use_cache)
    origin.remember(package.manifest)
    return package


def _compile_to(job: Job, out: Path, use_cache: bool) -> ModelPackage:
    _leave_alone(out)
    facts = identity(job) if use_cache else None
    if facts is not None:
        package = _cached(job, facts)
        if package.cached:
            log.info("compiled before with all the same: copied from the cache (--no-cache compiles again)")
        return dataclasses.replace(write(package, out), cached=package.cached)
    if not files.is_archive(out):
        return job.compile(out)
    with scratch_directory("compile") as scratch:
        return write(job.compile(scratch / "package"), out)


def write(package: ModelPackage, out: Path) -> ModelPackage:
    """Copy *package* to the directory or .tar *out*, which appears complete or not at all.

    Raises:
        PackageError: *out* exists and is no package.
    """
    _leave_alone(out)
    if files.is_archive(out):
        files.pack(package.path, out)
        return dataclasses.replace(load_package(out), checked=package.checked)
    with cache.fresh_dir(out) as directory:
        files.copy(package.path, directory)
    return ModelPackage(out, package.manifest, checked=package.checked)


def _leave_alone(out: Path) -> None:
    if files.is_archive(out) and not out.is_dir():
        files.leave_alone(out)
    else:
        cache.leave_alone(out, lambda there: (there / MANIFEST).is_file(), "a package")


def _plugin(settings: Settings) -> str:
    """Which build of a vendor library's code generator takes part; empty: none."""
    kind = settings.compile.offload
    return plugin_for(kind, settings.tvm).parent.name if kind in PLUGINS else ""


def _versions() -> dict[str, str]:
    found = {}
    for name in (*TOOLS, *IMPORTERS):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = ""
    return found


@once
def _code() -> str:
    """One digest of the code that compiles, so that another adt of the same version has other entries."""
    root = Path(adt.__file__).parent
    total = hashlib.sha256()
    for path in sorted(file for name in CODE for file in (root / name).rglob("*") if file.is_file()):
        if "__pycache__" not in path.parts:
            total.update(f"{path.relative_to(root)} {cache.file_sha256(path)}\n".encode())
    return total.hexdigest()
