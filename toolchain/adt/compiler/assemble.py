"""Files of a package from an imported model: offload, passes, code, and what mod.json says."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

import adt
from adt.bundle.libraries import NONE
from adt.compiler.compilation import Compilation
from adt.compiler.cuda_code import cuda_code, machine_code
from adt.compiler.importers.functions import called_functions
from adt.compiler.importers.layers import reason_of
from adt.compiler.ir.nodes import tir_nodes
from adt.compiler.passes.gpu.choice import TextureChooser
from adt.compiler.passes.lowering import tir_pipeline
from adt.compiler.passes.offload.partition import OffloadedModel, offload_module
from adt.compiler.passes.pipeline import PreparedModule, prepare_module
from adt.compiler.passes.precision.single import has_half
from adt.compiler.passes.records.schedules import KernelSchedules, Tuned, Untuned
from adt.compiler.passes.records.tuning import Tuning
from adt.compiler.passes.records.workload import KEPT, REFUSED, TUNED, marks
from adt.compiler.precision import blocks_half
from adt.compiler.record import record, recorded_files
from adt.compiler.targets.gpu import ANY_ADRENO
from adt.errors import AdtError, CompileError, UnsupportedOp, last_line, lines_of
from adt.host import manifest
from adt.host.elf import ElfFacts, read_elf
from adt.host.interrupts import pass_through_tvm, pending
from adt.options.option import values_of
from adt.package.files import LIBRARY, MANIFEST, PARAMS, write_params
from adt.package.graphs import kernels_of
from adt.package.integrity import context_symbols
from adt.package.manifest import (
    CompilationRecord,
    Entry,
    Kernel,
    PackageFile,
    PackageManifest,
    PackageTarget,
    PackageTvm,
)
from adt.package.package import ModelPackage
from adt.package.reports import TuningReport

_PREFIX = "__tvm_ffi_"  # prefix that the code generator gives functions that a module exports


def assemble(compilation: Compilation, directory: Path) -> ModelPackage:
    """Compile the imported model and write mod.so, mod.params and mod.json into *directory*."""
    compilation, offloaded = offload(compilation)
    prepared, lowered, built = _compiled_by_records(compilation)
    on_cpu = compilation.target.device == "cpu"
    write_params(prepared.params, directory / PARAMS, compilation.alignment if on_cpu else 1)
    params = PackageFile.of(directory / PARAMS)
    with tvm_errors("the model"):
        compilation.linker.export(built, directory / LIBRARY, params=params.sha256)
    images = record(directory, lowered, built, prepared.plain)
    if offloaded is not None:
        offloaded.write(directory)
    imported, settings = compilation.imported, compilation.settings
    target, platform = compilation.target, compilation.platform
    elf = read_elf(directory / LIBRARY)
    names = exported_functions(elf)
    textures = prepared.textures
    # The settings that decide the package's bytes; the check does not, records are listed apart.
    recorded = {
        name: value
        for name, value in values_of(settings.compile).items()
        if name not in ("check", "db", "tuned_on")
    }
    entry = Entry(
        "main",
        imported.inputs,
        imported.outputs,
        tuple(prepared.params),
        images=textures.images if textures else (),
        unused=imported.unused,
    )
    origins = {name: mark for name, _, mark in marks(lowered)}
    tuned = [name for name in names if origins.get(name) == TUNED]
    facts = PackageManifest(
        adt_version=adt.__version__,
        name=package_name(Path(imported.source.file)),
        source=imported.source,
        entries=(entry,),
        target=PackageTarget(
            name=target.name,
            device=target.device,
            platform=platform.name,
            triple=platform.llvm_triple(settings.build.api_level),
            machine=elf.machine,
            spec=target.spec,
            vdevices=target.vdevices,
            cpu_features=target.cpu_features,
        ),
        tvm=PackageTvm(str(tvm.__version__), str(tvm_ffi.__version__), context_symbols(elf)),
        alignment=compilation.alignment,
        precision=settings.compile.precision,
        offload=offloaded.libraries if offloaded else NONE,
        kernels=tuple(
            Kernel(name, target.device, tuned=name in tuned, textures=images.get(name, 0)) for name in names
        ),
        tuned=len(tuned),
        total=len(names),
        files={LIBRARY: PackageFile.of(directory / LIBRARY, elf.needed), PARAMS: params},
        like=compilation.like,
        made=CompilationRecord(
            settings=recorded,
            textures=textures,
            blocked=prepared.blocked,
            integers=prepared.integers,
            accuracy=compilation.accuracy,
            offload=offloaded.report if offloaded else None,
            tuning=_tuning_report(compilation.tuning, origins),
            functions=called_functions(built, lowered),
            quanta=dict(imported.quanta),
            half=has_half(imported.module),
        ),
        inspection=recorded_files(directory),
    )
    manifest.write(facts, directory / MANIFEST)
    return ModelPackage(directory, facts)


def offload(compilation: Compilation) -> tuple[Compilation, OffloadedModel | None]:
    """Hand operators to libraries, if that was asked for: what is left, and what was handed over."""
    imported, settings = compilation.imported, compilation.settings
    libraries = settings.compile.offload
    if libraries == NONE:
        return compilation, None
    with tvm_errors(f"the part for {libraries}"):
        offloaded = offload_module(
            imported.module,
            imported.params,
            libraries,
            tvm=settings.tvm,
            half=compilation.target.device == "cpu" and blocks_half(compilation.target),
            tf32=settings.compile.tf32,
            apart=compilation.apart,
        )
    left = dataclasses.replace(imported, module=offloaded.module, params=offloaded.params)
    return dataclasses.replace(compilation, imported=left), offloaded


@contextlib.contextmanager
def preparation(compilation: Compilation, schedules: KernelSchedules) -> Iterator[PreparedModule]:
    """Yield the model ready for ``tvm.compile``, while TVM is set up for *compilation*, also its target."""
    target, settings, imported = compilation.target, compilation.settings.compile, compilation.imported
    module, params, plain = imported.module, imported.params, compilation.plain
    with tvm_errors("the model", imported.suspects), tvm.target.Target(target.spec):
        chooser = TextureChooser(settings.texture_choice, target.gpu or ANY_ADRENO)
        # Without asserts of the user's, no kernel checks its arguments: TVM's checks are half of a small
        # model's code, and repeat what the VM checks of the inputs of ``main``.
        asserts = any(tir_nodes(kernel.body, tirx.AssertStmt) for kernel in kernels_of(module).values())
        config = {"tirx.disable_assert": not asserts}
        with tvm.transform.PassContext(opt_level=settings.opt_level, config=config):
            alignment = compilation.alignment
            yield prepare_module(module, params, target, alignment, schedules, chooser, plain=plain)


def _compiled_by_records(compilation: Compilation) -> tuple[PreparedModule, Any, Any]:
    """Compile the model as :func:`_compiled` does, with those schedules of records that can be built."""
    if compilation.tuning is None:
        return _compiled(compilation, Untuned())
    with contextlib.closing(Tuned(compilation.tuning, compilation.target)) as tuned:
        try:
            return _compiled(compilation, tuned)
        except (CompileError, UnsupportedOp):
            if not tuned.leave_out(functools.partial(_compiled_alone, compilation)):
                raise
            return _compiled(compilation, tuned)


def _compiled(compilation: Compilation, schedules: KernelSchedules) -> tuple[PreparedModule, Any, Any]:
    """Compile the model with *schedules*: as prepared, after the last Relax pass, and TVM's executable."""
    with (
        preparation(compilation, schedules) as prepared,
        machine_code(cuda_code(compilation.target, compilation.settings.tvm)),
    ):
        target, tir = tvm.target.Target.current(), prepared.tir_pipeline
        lowered = prepared.relax_pipeline(prepared.module)
        return prepared, lowered, tvm.compile(lowered, target, relax_pipeline=None, tir_pipeline=tir)


def _compiled_alone(compilation: Compilation, module: Any) -> None:
    """Compile the kernel *module* by itself, as :func:`_compiled` would."""
    target = compilation.target
    buffers = target.device != "cpu" and not target.textures
    pipeline = tir_pipeline(compilation.alignment, textures=target.textures, buffers=buffers)
    with machine_code(cuda_code(target, compilation.settings.tvm)):
        tvm.compile(module, target=tvm.target.Target(target.spec), tir_pipeline=pipeline)


@contextlib.contextmanager
def tvm_errors(what: str, suspects: Sequence[str] = ()) -> Iterator[None]:
    """Turn whatever TVM raises while it compiles *what* into a CompileError; ours pass unchanged.

    It becomes an UnsupportedOp if one of *suspects*, which TVM could not compile alone, failed for the same
    reason.
    """
    pass_through_tvm()
    try:
        yield
    except AdtError:
        raise
    except Exception as error:  # TVM raises InternalError, ValueError, TypeError, …
        if pending():  # nothing is tried otherwise
            raise KeyboardInterrupt from error
        last = lines_of(error)[-10:]
        if guilty := [suspect for suspect in suspects if suspect.endswith(reason_of(error))]:
            raise UnsupportedOp(
                f"TVM cannot compile {guilty[0]}",
                remedy="Export the model without it, or with other types or extents, and report it.",
                details="\n".join((*guilty[1:], *last)),
            ) from error
        raise CompileError(
            f"TVM could not compile {what}: {type(error).__name__}: {last_line(error)}",
            remedy="TVM's last lines are below; another --opt-level may avoid the failing pass.",
            details="\n".join(last),
        ) from error


def exported_functions(elf: ElfFacts) -> tuple[str, ...]:
    """Return the functions that a module offers to its callers, sorted."""
    kernels = (name for name in elf.functions if re.match(f"{_PREFIX}(?!_)", name))
    return tuple(sorted(name.removeprefix(_PREFIX) for name in kernels))


def package_name(model: Path) -> str:
    """Derive a short name from the model's file name: letters, digits, ``_`` and ``-``."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", model.stem).strip("_") or "model"


def _tuning_report(tuning: Tuning | None, origins: Mapping[str, str]) -> TuningReport | None:
    if tuning is None:
        return None
    kept, refused = (tuple(n for n in sorted(origins) if origins[n] == mark) for mark in (KEPT, REFUSED))
    return TuningReport(tuning.digest, tuning.device, tuning.driver, tuning.emulated, kept, refused)
