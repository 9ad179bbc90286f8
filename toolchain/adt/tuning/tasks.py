"""The kernels of a model that can be tuned, as `adt compile` makes them, and why others cannot."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import tvm
from tvm import ir, relax
from tvm.tirx import BufferStore, Call, While

from adt.bundle.libraries import parse_libraries, titles
from adt.compiler.assemble import offload, preparation
from adt.compiler.compilation import Compilation
from adt.compiler.cuda_code import cuda_code
from adt.compiler.ir.flops import flops_of
from adt.compiler.ir.nodes import operator_name, relax_nodes, tir_nodes
from adt.compiler.passes.records.arguments import Argument, arguments
from adt.compiler.passes.records.schedules import Recording, is_scheduled
from adt.compiler.passes.records.trial import is_static
from adt.compiler.passes.records.workload import marks, named_main, same, structural_hash, workload
from adt.compiler.targets import ModelTarget
from adt.tuning.candidates import Toolchain
from adt.tuning.results import UntunableKernel


@dataclass(frozen=True)
class Task:
    """One workload to tune."""

    name: str
    module: Any
    """The workload: ``tvm.IRModule {"main": PrimFunc}``, see :mod:`adt.compiler.passes.records.workload`."""
    weight: int
    flops: int | None
    baseline: str
    """TVM's JSON of ``{"main": PrimFunc}`` with the schedule that compiling gives it without records."""
    arguments: tuple[Argument, ...]
    outputs: int
    """Number of the last arguments that are outputs."""
    kernels: tuple[str, ...]
    """Every kernel of the model that is this workload; :attr:`name` is the first."""


@dataclass(frozen=True)
class Extraction:
    """The tunable and the untunable parts of a model."""

    tasks: tuple[Task, ...]
    untunable: tuple[UntunableKernel, ...]


def extract(compilation: Compilation) -> Extraction:
    """Take the kernels out of the imported model, fused and placed in textures exactly as compiling does."""
    compilation, offloaded = offload(compilation)
    recording = Recording()
    with preparation(compilation, recording) as prepared:
        lowered = prepared.relax_pipeline(prepared.module)
    library = titles(parse_libraries(offloaded.libraries)) if offloaded else ""
    return extraction_of(lowered, recording, library or "a library")


def toolchain_of(compilation: Compilation) -> Toolchain:
    """Return how candidates become libraries, so that they are as in a package."""
    return Toolchain(
        target=dict(compilation.target.spec),
        device=compilation.target.device,
        alignment=compilation.alignment,
        textures=compilation.target.textures,
        opt_level=compilation.settings.compile.opt_level,
        compiler=str(compilation.linker.compiler),
        link_options=compilation.linker.flags,
        cuda=cuda_code(compilation.target, compilation.settings.tvm),
    )


def tuning_target(target: ModelTarget, cores: int) -> dict[str, Any]:
    """Return TVM's dictionary of *target* for the search, which wants to know how many *cores* take part."""
    return dict(target.spec) | ({"num-cores": max(1, cores)} if target.device == "cpu" else {})


def extraction_of(lowered: Any, recording: Recording, library: str) -> Extraction:
    """Extract the tasks of *lowered*, the module after its last Relax pass; *library* computes the rest."""
    functions = {str(variable.name_hint): function for variable, function in lowered.functions_items()}
    calls = _count_calls(functions)
    marked = {name: (function, mark) for name, function, mark in marks(lowered)}
    tunable: list[Task] = []
    untunable: list[UntunableKernel] = []
    of_hash: defaultdict[str, list[int]] = defaultdict(list)
    for name, count in calls.items():
        if name not in marked:
            if reason := _unmarked_reason(functions.get(name), name, library):
                untunable.append(UntunableKernel(name, reason))
            continue
        scheduled, mark = marked[name]
        plain = recording.functions[int(mark)]
        if reason := untunable_reason(plain):
            untunable.append(UntunableKernel(name, reason))
            continue
        module = workload(plain)
        twins = of_hash[structural_hash(module)]
        twin = next((at for at in twins if same(tunable[at].module, module)), None)
        if twin is None:
            twins.append(len(tunable))
            baseline = str(tvm.ir.save_json(tvm.IRModule({"main": named_main(scheduled)})))
            facts = flops_of(plain), baseline, arguments(plain), count_outputs(module)
            tunable.append(Task(name, module, count, *facts, (name,)))
        else:
            task = tunable[twin]
            tunable[twin] = replace(task, weight=task.weight + count, kernels=(*task.kernels, name))
    return Extraction(tuple(tunable), tuple(sorted(untunable, key=lambda kernel: kernel.name)))


def _count_calls(functions: Mapping[str, Any]) -> Counter[str]:
    """Count the calls of each function in the Relax functions among *functions*, in order of first calls."""
    calls: Counter[str] = Counter()
    for name in sorted(functions, key=lambda name: (name != "main", name)):
        if isinstance(functions[name], relax.Function):
            for call in relax_nodes(functions[name], relax.Call):
                callee = call.args[0] if operator_name(call) == "relax.call_tir_dyn" else call.op
                if isinstance(callee, ir.GlobalVar):
                    calls[str(callee.name_hint)] += 1
                elif isinstance(callee, relax.ExternFunc):
                    calls[str(callee.global_symbol)] += 1
    return calls


def _unmarked_reason(function: Any, name: str, library: str) -> str:
    """Return why a *function* without a mark is not tuned; empty: it computes nothing."""
    if isinstance(function, tvm.tirx.PrimFunc):
        return SCHEDULED
    computes = not isinstance(function, relax.Function) and not name.startswith(RUNTIME)
    return f"{library} computes it" if computes else ""


def untunable_reason(function: Any) -> str:
    """Return the reason why the PrimFunc *function* cannot be tuned; empty: none is known."""
    if is_scheduled(function):
        return SCHEDULED
    if not is_static(function):
        return "its shapes are known at run time only"
    for node in tir_nodes(function.body, Call | While):
        if isinstance(node, While):
            return "it loops until a condition holds"
        if getattr(node.op, "name", "").removeprefix("tirx.") in CALLS:
            return "it calls a function outside of it"
    return ""


def count_outputs(module: Any) -> int:
    """Count the last arguments of the workload *module* (``{"main": PrimFunc}``) that are outputs."""
    function = module["main"]
    stored = [store.buffer for store in tir_nodes(function.body, BufferStore)]
    buffers = [function.buffer_map.get(parameter) for parameter in reversed(list(function.params))]
    written = [buffer is not None and any(map(buffer.same_as, stored)) for buffer in buffers]
    return [*written, False].index(False)


SCHEDULED = "its schedule is given (sorting, scanning, recurrent steps)"
RUNTIME = ("vm.", "runtime.")
"""Prefixes of functions of TVM's virtual machine, which compute nothing."""
CALLS = ("tvm_call_packed", "tvm_call_cpacked", "call_extern")
"""TVM's operators in TIR for calls of functions elsewhere; math functions of C are pure and have others."""
