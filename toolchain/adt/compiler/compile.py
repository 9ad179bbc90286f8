"""Compilation of a model to a package, or a copy of what the same model and options once gave.

:func:`compile_model` is the whole way: import and precision (:meth:`CompileJob.load`), offload, passes and
code (:func:`adt.compiler.assemble.assemble`), the audit of mod.so, and the kernels' check on this machine.

A cached package is ``packages/<name>-<key>``; the key is over all that decides its bytes: the
model, the [compile] settings and what they stand for on this machine, the platform, what mod.so is
linked with, the versions of TVM and of the importers, the plugins, and adt's own code.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import logging
from pathlib import Path
from typing import Any

import adt
from adt.bundle import plugins
from adt.bundle.libraries import parse_libraries
from adt.compiler.assemble import assemble, package_name
from adt.compiler.compilation import Compilation, CompileJob
from adt.compiler.cuda_code import find_compiler
from adt.compiler.importers import model_store
from adt.compiler.importers.functions import check_functions
from adt.compiler.kernel_check import check
from adt.errors import PackageError, VerifyFailed
from adt.host import cache
from adt.host.disk import scratch_directory
from adt.host.extras import installed_version
from adt.host.process import compiler_identity
from adt.options.option import values_of
from adt.package import files, integrity
from adt.package.files import LIBRARY
from adt.package.host_run.opencl import opencl_device
from adt.package.manifest import SCHEMA_VERSION, PackageManifest
from adt.package.package import (
    ModelPackage,
    load_check,
    load_package,
    refuse_others,
    save_check,
    write_package,
)

log = logging.getLogger("adt.compile")

TOOLS = ("apache-tvm", "apache-tvm-ffi")
IMPORTERS = (
    "onnx", "onnxslim", "onnxruntime", "numpy", "tflite", "flatbuffers", "ai-edge-litert", "torch", "keras",
    "onnxscript",
)  # fmt: skip
"""Distributions whose version can change what a model becomes."""
CHECKED = "checked.json"
"""Result of running the kernels here, beside a package in the cache; no part of the package."""
CODE = ("bundle", "compiler", "host", "options", "package")  # packages of adt that a compile runs


def compile_to(job: CompileJob, out: Path, *, use_cache: bool = True) -> ModelPackage:
    """Compile to the directory or .tar *out*, which appears complete or not at all.

    Without *use_cache* nothing is read from the cache, and nothing left there.
    """
    refuse_others(out)
    facts = identity(job) if use_cache else None
    if facts is not None:
        cached = _cached(job, facts)
        if cached.cached:
            log.info("compiled before with all the same: copied from the cache (--no-cache compiles again)")
        package = dataclasses.replace(write_package(cached, out), cached=cached.cached)
    elif not files.is_archive(out):
        package = compile_model(job, out)
    else:
        with scratch_directory("compile") as scratch:
            package = write_package(compile_model(job, scratch / "package"), out)
    integrity.remember(package.manifest)
    return package


def compile_model(job: CompileJob, out: Path) -> ModelPackage:
    """Compile into the directory *out*, which appears complete or not at all."""
    refuse_others(out)
    compilation = job.load()
    try:
        return _compile_as_loaded(job, compilation, out)
    except VerifyFailed as error:
        if compilation.tuning is None:
            raise
        log.warning("%s: all its tuning records are left out: %s", package_name(job.model), error.what)
        return _compile_as_loaded(job, dataclasses.replace(compilation, tuning=None), out)


def _compile_as_loaded(job: CompileJob, compilation: Compilation, out: Path) -> ModelPackage:
    """Compile *compilation*, which *job* has loaded; see :func:`compile_model`."""
    mode, bundle = job.settings.compile.check, job.bundle
    with cache.fresh_dir(out) as directory:
        package = assemble(compilation, directory)
        job.audit(directory / LIBRARY)
        registered = bundle.manifest.functions if bundle is not None else ()
        check_functions(compilation.imported, package.manifest.made.functions, registered)
        _log_tuned(package.manifest)
        checks = compilation.target.device != "cpu" and mode != "off"
        checked = check(compilation, package, mode) if checks else None
    return ModelPackage(out, package.manifest, checked=checked)


def _log_tuned(manifest: PackageManifest) -> None:
    """Say how many kernels have the schedule of a record, and of which device."""
    if report := manifest.made.tuning:
        log.info("tuned %d of %d kernels (%s)", manifest.tuned, manifest.total, report.origin)
        for kernel in report.refused:
            log.warning("the record of %s does not apply to it any more: it is untuned", kernel)


def cached_package(job: CompileJob) -> ModelPackage:
    """Return the package of *job* in the cache, compiled when it is not there, once by two at a time."""
    facts = identity(job)
    if facts is None:
        raise PackageError(
            f"{job.model} has no digest by which its package could be found again",
            remedy="Compile it to a directory: adt compile MODEL -o DIR",
        )
    package = _cached(job, facts)
    integrity.remember(package.manifest)
    return package


def _cached(job: CompileJob, facts: dict[str, Any]) -> ModelPackage:
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()
    name = f"packages/{package_name(job.model)}-{digest[:24]}"

    def compile_into(directory: Path) -> None:
        save_check(compile_model(job, directory).checked, directory / CHECKED)

    path, hit = cache.entry(name, compile_into)
    if hit:
        model_store.keep(job.model, facts["model"][1])  # what `adt verify` compares with
    try:
        package = load_package(path)
    except PackageError as error:
        raise PackageError(error.what, remedy=f"Remove {path} and run this again.") from error
    if hit:
        _log_tuned(package.manifest)
    return dataclasses.replace(package, cached=hit, checked=load_check(path / CHECKED))


def identity(job: CompileJob) -> dict[str, Any] | None:
    """Return everything that decides the bytes of the package; None when that cannot be told.

    A callable that builds a model, a pass of the user's own, or a TVM that is no installed
    distribution, has no digest: such a model is compiled each time.
    """
    versions = {name: installed_version(name) or "" for name in (*TOOLS, *IMPORTERS)}
    if job.passes or not job.model.is_file() or not all(versions[name] for name in TOOLS):
        return None
    try:
        sha256 = model_store.model_sha256(job.model)
    except Exception as error:  # no model at all: compiling it says what is wrong with it
        log.debug("%s has no digest: %s", job.model, error)
        return None
    build, options = job.settings.build, job.settings.compile
    target, linker = job.target(), job.linker()
    bundle = job.bundle.manifest if job.bundle else None
    return {
        "schema": SCHEMA_VERSION,
        "adt": [adt.__version__, _code()],
        "model": [job.model.name, sha256],
        # what db and tuned_on choose is the tuning
        "settings": {n: value for n, value in values_of(options).items() if n not in ("db", "tuned_on")},
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
        "plugins": [
            plugins.build(plugins.code_generator(library), job.settings.tvm).parent.name
            for library in parse_libraries(options.offload)
        ],
        "cuda": [
            find_compiler(target.spec["arch"]).identity,
            plugins.build(plugins.CUDA, job.settings.tvm).parent.name,
        ]
        if target.device == "cuda"
        else None,
        "versions": versions,
        "tuning": job.tuning.digest if job.tuning else "",
        "plain": job.plain,
        "apart": job.apart,
        "checking": str(opencl_device()) if target.device != "cpu" and options.check != "off" else "",
    }


@functools.cache
def _code() -> str:
    """Hash the code that compiles, so that another adt of the same version has other entries."""
    root = Path(adt.__file__).parent
    total = hashlib.sha256()
    for path in sorted(file for name in CODE for file in (root / name).rglob("*") if file.is_file()):
        if "__pycache__" not in path.parts:
            total.update(f"{path.relative_to(root)} {cache.file_sha256(path)}\n".encode())
    return total.hexdigest()
