"""Kernels get their schedules: those of records, or marks by which they are found again."""

from __future__ import annotations

import importlib
import logging
import sys
from collections import defaultdict
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec
from typing import Any, Protocol

import tvm
import tvm.s_tir
from tvm import tirx

from adt.compiler.ir.flops import SCHEDULED
from adt.compiler.ir.passes import module_pass
from adt.compiler.passes.cpu.schedules import finished
from adt.compiler.passes.dot import register
from adt.compiler.passes.indices import narrow_indices
from adt.compiler.passes.layout.blocks import is_convolution
from adt.compiler.passes.records.schedule_limits import gpu_features
from adt.compiler.passes.records.traces import TraceError, scheduled
from adt.compiler.passes.records.trial import Trials, without_instructions
from adt.compiler.passes.records.tuning import TunedKernel, Tuning
from adt.compiler.passes.records.workload import KEPT, REFUSED, TUNED, marked, same, structural_hash, workload
from adt.compiler.passes.words import define_words
from adt.compiler.targets import ModelTarget
from adt.errors import lines_of
from adt.package.graphs import GraphError, kernels_of, read_graphs
from adt.package.inspection.graph import CPU_SCHEDULE

log = logging.getLogger("adt.compile")

INTRINSICS = "tvm.s_tir.tensor_intrin"
INTRINSICS_OF = {"x86_64": "x86", "aarch64": "arm_cpu"}
"""Module of the intrinsics by architecture, the first word of LLVM's triple."""


class KernelSchedules(Protocol):
    """Source of schedules for kernels that have none."""

    def take(self, function: Any) -> Any:
        """Schedule *function*; or return it, perhaps with a mark, where it is to get the usual schedule."""


class Untuned:
    """Each kernel gets the usual schedule."""

    def take(self, function: Any) -> Any:
        return function


class Tuned:
    """Kernels get the schedules of records, those that are right. To be closed."""

    def __init__(self, tuning: Tuning, target: ModelTarget) -> None:
        load_intrinsics(str(target.spec.get("mtriple", "")))
        self._cpu = target.device == "cpu"
        self._trials = Trials(target.spec)
        self._by_hash: defaultdict[str, list[tuple[Any, TunedKernel]]] = defaultdict(list)
        self._applied: dict[TunedKernel, Any] = {}
        """Record → the scheduled module, or a TraceError."""
        modules = read_graphs([kernel.workload for kernel in tuning.kernels])
        for kernel, module in zip(tuning.kernels, modules, strict=True):
            if isinstance(module, GraphError):
                log.warning("a workload on record is not read: it has %s", module)
            else:
                self._by_hash[structural_hash(module)].append((module, kernel))

    def close(self) -> None:
        """End the process in which kernels are compared."""
        self._trials.close()

    def take(self, function: Any) -> Any:
        """Schedule *function* by its record, if there is one that is faster than the usual schedule."""
        module = workload(function)
        for known, kernel in self._by_hash.get(structural_hash(module), ()):
            if same(known, module):
                return self._apply(function, module, kernel) if kernel.faster else marked(function, KEPT)
        return function

    def leave_out(self, build: Callable[[Any], Any]) -> bool:
        """Leave out each record whose kernel *build*, which takes a module, fails on; or all, if none is to
        blame by itself. False if there is no record to leave out."""
        applied = {k: module for k, module in self._applied.items() if not isinstance(module, TraceError)}
        failed = {kernel: error for kernel, module in applied.items() if (error := _failure(build, module))}
        for kernel in failed or applied:
            reason = TraceError(failed.get(kernel, "a kernel is not built with it"))
            log.warning("a record is left out: %s", reason)
            self._applied[kernel] = reason
        return bool(applied)

    def _apply(self, function: Any, module: Any, kernel: TunedKernel) -> Any:
        if kernel not in self._applied:
            try:
                self._applied[kernel] = self._scheduled(function, module, kernel.trace)
            except TraceError as error:
                log.warning("a record does not apply: %s", error)
                self._applied[kernel] = error
        applied = self._applied[kernel]
        if isinstance(applied, TraceError):
            return marked(function, REFUSED)
        own = applied["main"]
        result = tirx.PrimFunc(own.params, own.body, own.ret_type, own.buffer_map, function.attrs)
        if own.attrs is not None and CPU_SCHEDULE in own.attrs:
            result = result.with_attr(CPU_SCHEDULE, own.attrs[CPU_SCHEDULE])
        return marked(result.with_attr(SCHEDULED, True), TUNED)

    def _scheduled(self, function: Any, module: Any, trace: str) -> Any:
        """Schedule the workload *module* of *function* by *trace*, if the kernel computes the same then."""
        if self._cpu and CPU_SCHEDULE not in trace and is_convolution(function):
            raise TraceError("it is of TVM's schedules, and this kernel is computed by tiles: tune it again")
        result = schedule_by_record(module, trace)
        if not self._cpu:
            return result
        if feature := gpu_features(result["main"]):
            raise TraceError(f"it uses {feature} of a GPU, and this is a CPU")
        portable = schedule_by_record(module, without_instructions(trace))
        if fault := self._trials.fault(module, result, portable):
            raise TraceError(fault)
        return result


def _failure(build: Callable[[Any], Any], module: Any) -> str:
    """Return the first line of what *build* raises on *module*; empty if it raises nothing."""
    try:
        build(module)
    except Exception as error:  # TVM raises InternalError, ValueError, TypeError, …
        return lines_of(error)[0]
    return ""


def schedule_by_record(module: Any, trace: str) -> Any:
    """Schedule the workload *module* by a record's *trace*: TVM's, or that of a rule for CPUs, which is
    finished as without a record."""
    if CPU_SCHEDULE not in trace:
        return scheduled(module, trace).mod
    narrow = tvm.IRModule({"main": narrow_indices(module["main"])})
    try:
        return tvm.IRModule({"main": finished(scheduled(narrow, trace))})
    except KeyError as error:
        raise TraceError(f"it says {error} otherwise than the rules for CPUs") from error


class Recording:
    """Each kernel gets the usual schedule, and a mark: the place of what it was in :attr:`functions`."""

    def __init__(self) -> None:
        self.functions: list[Any] = []

    def take(self, function: Any) -> Any:
        """Note *function*, and return it with its mark."""
        self.functions.append(function)
        return marked(function, str(len(self.functions) - 1))


def take_schedules(schedules: KernelSchedules) -> Any:
    """Return a pass that has *schedules* take each kernel that is not scheduled yet."""

    @module_pass("adt.TakeSchedules")
    def take(module: tvm.IRModule) -> tvm.IRModule:
        result = tvm.IRModule(dict(module.functions_items()), module.attrs, module.global_infos)
        for name, kernel in kernels_of(module).items():
            if not is_scheduled(kernel):
                result[name] = schedules.take(kernel)
        return result

    return take()


def is_scheduled(function: Any) -> bool:
    """Return True if TVM's schedule rules leave the PrimFunc *function* alone."""
    return function.attrs is not None and bool(function.attrs.get(SCHEDULED, False))


def load_intrinsics(triple: str = "") -> None:
    """Make TVM know its intrinsics and adt's for *triple*; for a GPU, without one, adt's operators.

    MetaSchedule imports all that TVM has, which takes ten seconds for the tensor cores of CUDA GPUs alone;
    no device that adt serves has any.

    TVM's package is put in place without running what it runs on import; a module of it that
    somebody else wants can still be imported.
    """
    if INTRINSICS not in sys.modules and (spec := find_spec(INTRINSICS)) and spec.submodule_search_locations:
        bare = ModuleSpec(INTRINSICS, None, is_package=True)
        bare.submodule_search_locations = list(spec.submodule_search_locations)
        sys.modules[INTRINSICS] = module_from_spec(bare)
    arch = triple.partition("-")[0]
    if arch:
        register(arch)
    else:
        define_words()
    if module := INTRINSICS_OF.get(arch):
        importlib.import_module(f"{INTRINSICS}.{module}")
