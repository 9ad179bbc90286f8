"""Compilation of kernels without a model: TE or TIR functions to one library, for any of adt's targets."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm
from tvm import te, tirx
from tvm.s_tir import dlight

from adt.compiler.assemble import exported_functions, tvm_errors
from adt.compiler.compilation import CompileJob, package_target
from adt.compiler.cuda_code import cuda_code, machine_code
from adt.compiler.ir.nodes import tir_nodes
from adt.compiler.passes.lowering import tir_pipeline
from adt.compiler.passes.workarounds import plain_unit_reductions
from adt.compiler.targets import ModelTarget
from adt.errors import ModelError
from adt.host.disk import scratch_directory
from adt.host.elf import read_elf

log = logging.getLogger("adt.compile")


@dataclass(frozen=True)
class CompiledKernel:
    """A library of kernels."""

    path: Path
    """The shared library: ``remote.upload(path)``, or ``tvm.runtime.load_module(path)`` on this machine."""
    functions: tuple[str, ...]
    """Names of its functions; each takes its tensors in the order of the kernel's arguments."""
    target: str
    """Name of the target in adt."""
    device: str
    """Device that the tensors live on: ``cpu``, ``opencl`` or ``cuda``."""
    platform: str
    alignment: int
    """Bytes: each tensor's data must be aligned to this; the platform's runtime does so."""


def compile_kernel(kernel: Any, out: Path, job: CompileJob, *, name: str) -> CompiledKernel:
    """Compile *kernel* as *job* says to the shared library *out*, which appears complete or not at all.

    Args:
        kernel: a ``tvm.IRModule`` of PrimFuncs, one PrimFunc (of TVMScript or TE), or the tensors of
            a TE computation, inputs first.
        name: what a single function is called; empty: as it calls itself, else ``main``.
    """
    module = _module(kernel, name)
    settings, platform = job.settings, job.platform
    linker, target = job.linker(), package_target(platform, settings, None)
    tvm_target = tvm.target.Target(target.spec)
    log.info("compiling %s for %s on %s", ", ".join(_names(module)), target.name, platform.name)
    with scratch_directory("kernel", beside=out) as scratch:
        library = scratch / out.name
        with (
            tvm_errors("the kernel"),
            tvm.transform.PassContext(opt_level=settings.compile.opt_level),
            tvm_target,
            machine_code(cuda_code(target, settings.tvm)),
        ):
            built = tvm.compile(
                _scheduled(module, target), tvm_target, tir_pipeline=tir_pipeline(job.alignment)
            )
            linker.export(built, library, scratch)
        job.audit(library)
        library.replace(out)
    exported = exported_functions(read_elf(out))
    functions = tuple(name for name in _names(module) if name in exported)
    return CompiledKernel(out, functions, target.name, target.device, platform.name, job.alignment)


def _module(kernel: Any, name: str) -> Any:
    """Convert *kernel* to an IRModule of named PrimFuncs."""
    own = ""  # TE's functions are all called main, and a module's have their names
    if isinstance(kernel, te.Tensor):
        kernel = [kernel]
    if isinstance(kernel, Sequence) and kernel and all(isinstance(tensor, te.Tensor) for tensor in kernel):
        with tvm_errors("the kernel"):
            kernel = te.create_prim_func(list(kernel))
    elif isinstance(kernel, tirx.PrimFunc):
        own = str((kernel.attrs or {}).get("global_symbol", ""))
    elif isinstance(kernel, tvm.IRModule) and kernel.functions:
        for variable, function in kernel.functions.items():
            if not isinstance(function, tirx.PrimFunc):
                raise ModelError(
                    f"{variable.name_hint} is no kernel but a {type(function).__name__}",
                    remedy="Give a module of PrimFuncs; a whole model is compiled by adt.compile(…).",
                )
        if not name:
            return kernel
        if len(kernel.functions) > 1:
            raise ModelError(
                f"the module has {len(kernel.functions)} functions and one name was given: {name}",
                remedy="Leave the name out: each keeps its own.",
            )
        (kernel,) = kernel.functions.values()
    else:
        raise ModelError(
            f"a {type(kernel).__name__} is no kernel",
            remedy="Give a tvm.IRModule of PrimFuncs, a PrimFunc, or the tensors of a TE computation.",
        )
    called = name or own or "main"
    return tvm.IRModule({called: kernel.with_attr("global_symbol", called)})


def _names(module: Any) -> list[str]:
    return sorted(str(variable.name_hint) for variable in module.functions)


def _scheduled(module: Any, target: ModelTarget) -> Any:
    """Give a simple schedule to each function of a GPU that has none of its own."""
    if target.device == "cpu":
        return module
    done = {
        variable: function.with_attr("tirx.is_scheduled", True) if _is_bound(function) else function
        for variable, function in module.functions.items()
    }
    plain = plain_unit_reductions()(tvm.IRModule(done))
    return dlight.ApplyDefaultSchedule(dlight.gpu.Fallback())(plain)


def _is_bound(function: Any) -> bool:
    """Return True if the function already says what a thread of the GPU does."""
    return any(
        statement.attr_key == "thread_extent"
        if isinstance(statement, tirx.AttrStmt)
        else statement.thread_binding is not None
        for statement in tir_nodes(function.body, (tirx.For, tirx.AttrStmt))
    )
