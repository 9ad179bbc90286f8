"""The kernels of a model that can be tuned, as `adt compile` makes them, and why others cannot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Set
from dataclasses import dataclass, replace
from typing import Any

import tvm
from tvm import ir, relax
from tvm.tirx import BufferStore, IntImm, stmt_functor

from adt.bundle.libraries import parse_libraries, titles
from adt.compiler.assemble import offload, preparation
from adt.compiler.compilation import Compilation
from adt.compiler.cuda_code import cuda_code
from adt.compiler.ir.flops import flops_of
from adt.compiler.passes.records.arguments import Argument, arguments
from adt.compiler.passes.records.schedules import Recording, is_scheduled
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
    with preparation(compilation, recording) as (_target, prepared):
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
    calls = _count_calls(lowered)
    tunable: list[Task] = []
    of_hash: dict[str, list[int]] = {}
    marked = {name: (function, mark) for name, function, mark in marks(lowered)}
    untunable = list(_unmarked(lowered, calls.keys() - marked.keys(), library))
    for name in (name for name in calls if name in marked):
        scheduled, mark = marked[name]
        plain = recording.functions[int(mark)]
        if reason := untunable_reason(plain):
            untunable.append(UntunableKernel(name, reason))
            continue
        module = workload(plain)
        digest = structural_hash(module)
        twin = next((at for at in of_hash.get(digest, ()) if same(tunable[at].module, module)), None)
        if twin is not None:
            task = tunable[twin]
            weight = task.weight + calls[name]
            tunable[twin] = replace(task, weight=weight, kernels=(*task.kernels, name))
            continue
        of_hash.setdefault(digest, []).append(len(tunable))
        baseline = str(tvm.ir.save_json(tvm.IRModule({"main": named_main(scheduled)})))
        facts = flops_of(plain), baseline, arguments(plain), count_outputs(module)
        tunable.append(Task(name, module, calls[name], *facts, (name,)))
    return Extraction(tuple(tunable), tuple(sorted(untunable, key=lambda kernel: kernel.name)))


def _count_calls(lowered: Any) -> Counter[str]:
    """Count the calls of each function in the Relax functions of *lowered*, in order of first calls."""
    calls: Counter[str] = Counter()

    def visit(node: Any) -> None:
        if not isinstance(node, relax.Call):
            return
        callee = node.op
        if isinstance(callee, ir.Op) and callee.name == "relax.call_tir_dyn":
            callee = node.args[0]
        if isinstance(callee, ir.GlobalVar | relax.ExternFunc):
            calls[str(callee.name_hint if isinstance(callee, ir.GlobalVar) else callee.global_symbol)] += 1

    functions = {str(variable.name_hint): function for variable, function in lowered.functions_items()}
    for _, function in sorted(functions.items(), key=lambda item: (item[0] != "main", item[0])):
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, visit)
    return calls


def _unmarked(lowered: Any, names: Set[str], library: str) -> Iterator[UntunableKernel]:
    """Yield what of *names* is no Relax function, and why: TVM scheduled it, or *library* computes it."""
    functions = {str(variable.name_hint): function for variable, function in lowered.functions_items()}
    for name in names:
        function = functions.get(name)
        if isinstance(function, tvm.tirx.PrimFunc):
            yield UntunableKernel(name, SCHEDULED)
        elif not isinstance(function, relax.Function) and not name.startswith(RUNTIME):
            yield UntunableKernel(name, f"{library} computes it")


def untunable_reason(function: Any) -> str:
    """Return the reason why the PrimFunc *function* cannot be tuned; empty: none is known."""
    if is_scheduled(function):
        return SCHEDULED
    buffers = [function.buffer_map.get(parameter) for parameter in function.params]
    if not all(b is not None and all(isinstance(extent, IntImm) for extent in b.shape) for b in buffers):
        return "its shapes are known at run time only"
    reasons: list[str] = []

    def visit(node: Any) -> None:
        kind = type(node).__name__
        if kind == "Call" and getattr(node.op, "name", "").removeprefix("tirx.") in CALLS:
            reasons.append("it calls a function outside of it")
        elif kind == "While":
            reasons.append("it loops until a condition holds")

    stmt_functor.post_order_visit(function.body, visit)
    return reasons[0] if reasons else ""


def count_outputs(module: Any) -> int:
    """Count the last arguments of the workload *module* (``{"main": PrimFunc}``) that are outputs."""
    function = module["main"]
    stored: set[Any] = set()

    def visit(node: Any) -> None:
        if isinstance(node, BufferStore):
            stored.add(node.buffer)

    stmt_functor.post_order_visit(function.body, visit)
    count = 0
    for parameter in reversed(list(function.params)):
        buffer = function.buffer_map.get(parameter)
        if buffer is None or not any(buffer.same_as(other) for other in stored):
            break
        count += 1
    return count


SCHEDULED = "its schedule is given (sorting, scanning, recurrent steps)"
RUNTIME = ("vm.", "runtime.")
"""Prefixes of functions of TVM's virtual machine, which compute nothing."""
CALLS = ("tvm_call_packed", "tvm_call_cpacked", "call_extern")
"""TVM's operators in TIR for calls of functions elsewhere; math functions of C are pure and have others."""
