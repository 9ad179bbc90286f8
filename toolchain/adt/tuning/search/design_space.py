"""The schedules that a search may choose from: those of adt's rules, else those of TVM's.

Kernels that a rule of adt schedules, and leaves something open of, get that rule's schedules; the first
is the one without records. Others for CPUs get TVM's rules for them. For GPUs there are rules of their
own: TVM's CUDA rules assume what no phone offers (work-groups of up to 1024, 16-byte loads of three elements,
shared memory that is faster than the cache). Mali GPUs have no memory for it: copying into it costs time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule import mutator, postproc, schedule_rule
from tvm.s_tir.meta_schedule.space_generator import PostOrderApply

from adt.compiler.ir.nodes import tir_nodes
from adt.compiler.passes.cpu import schedules as cpu
from adt.compiler.passes.cpu.vectors import vectors_of
from adt.compiler.passes.gpu import schedules as gpu
from adt.compiler.passes.gpu.texels import moves_texels
from adt.compiler.passes.layout.blocks import is_convolution
from adt.compiler.passes.precision.half import HALF
from adt.compiler.passes.records.schedules import load_intrinsics
from adt.compiler.passes.records.traces import trace_text
from adt.compiler.passes.scheduling import Decisions, NoSchedule
from adt.compiler.targets.gpu import gpu_of
from adt.errors import last_line
from adt.package.reports import SCOPE
from adt.tuning.candidates import Candidate, NoSpace


@dataclass(frozen=True)
class Point:
    candidate: Candidate
    ways: Mapping[str, Sequence[object]]
    """The ways in which its rule could do each thing."""


class RuleSpace:
    """The schedules of one kernel by adt's rules."""

    def __init__(self, schedule: Callable[[Decisions], tuple[s_tir.Schedule, Any]]) -> None:
        """Take the function that schedules it with certain decisions: TVM's Schedule, and the kernel."""
        self._schedule = schedule

    def point(self, places: Mapping[str, int]) -> Point | None:
        """Return the schedule with these *places*, and others' first decisions; None: there is none."""
        chosen = Decisions(places)
        try:
            schedule, kernel = self._schedule(chosen)
        except NoSchedule:
            return None
        if any(place >= len(chosen.ways.get(what, ())) for what, place in places.items()):
            return None
        module = tvm.IRModule({"main": kernel})
        return Point(Candidate(trace_text(schedule.trace), str(tvm.ir.save_json(module))), chosen.ways)


def rule_space(function: Any, target: Any) -> RuleSpace | None:
    """Build the space of the unscheduled PrimFunc *function* for TVM's *target*; None: it is tuned as by TVM.

    NoSpace if it is for adt's rules alone, and none takes it.
    """
    if str(target.kind.name) == "llvm":
        half = any(str(buffer.dtype) == HALF for buffer in function.buffer_map.values())
        vectors = vectors_of(target, half=half)
        space = RuleSpace(partial(cpu.schedule_of, function, vectors, rules=cpu.TILED))
        usual = space.point({})
        return space if usual and any(len(ways) > 1 for ways in usual.ways.values()) else None
    if not uses_texels(function, target):
        return None
    limits = {str(name): int(value) for name, value in target.attrs.items() if isinstance(value, int)}
    row = gpu_of(str(target.attrs.get("device", "")), limits)
    reasons = []
    for form in (form for rule in gpu.TILED for form in rule.forms):
        schedule = partial(gpu.schedule_of, function, target, row, rules=(form,))
        try:
            schedule(Decisions())
        except NoSchedule as reason:
            reasons += [reason] if form.takes(function) else []
        else:
            return RuleSpace(schedule)
    raise NoSpace(str(next(iter(reasons), "no rule of adt takes it")))


def uses_texels(function: Any, target: Any) -> bool:
    """Return True if only adt's rules schedule the TIR *function* for TVM's *target*, a GPU."""
    if "texture" not in target.keys and moves_texels(function):
        return True
    return is_convolution(function) or any(buffer.scope() == SCOPE for buffer in function.buffer_map.values())


THREADS = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Work-items that may reduce together, or share a work-group, where the device takes as many."""
BLOCKS = 65535
"""Work-groups of an elementwise kernel, at most: each work-item computes one element."""
VECTORS = (1,)
"""Elements that a work-item loads at once into local memory. Not more: TVM 0.25 gets the bounds of
``(4 * x + 2) % 6`` wrong, as such loads have it, and then leaves out checks: numbers come out wrong."""
UNROLLED = (16, 64, 256)
"""Steps up to which loops are unrolled. Compilers on phones take minutes for what CUDA's takes: 1024."""
INNERMOST = 4
"""Elements along an axis that a work-item computes at once, at most: they live in registers. On an NVIDIA
H200, candidates with 64 sums or more were up to a thousand times as slow as the best: drivers put them
into memory."""


def design_space(module: Any, target: Any, *, seed: int, logger: Any) -> tuple[list[Any], Any]:
    """Return the Schedules of ``{"main": PrimFunc}`` for TVM's *target* with open decisions; TVM's generator.

    The *seed* is 1 … 2³¹ - 1. NoSpace where there is nothing to choose.
    """
    triple = str(target.attrs.get("mtriple", ""))
    load_intrinsics(triple)
    _register_schedule_rules(module, target)
    if str(target.kind.name) == "llvm":
        # TVM's Arm intrinsics are those of 64-bit processors
        rules = "llvm" if triple.startswith(("arm-", "armv7", "thumb")) else "from-target"
        generators = [PostOrderApply(sch_rules=rules, postprocs=rules, mutator_probs=rules)]
    else:
        mali = "mali" in {str(key) for key in target.keys}
        generators = [_gpu(target, local) for local in ((False,) if mali else (False, True))]
    schedules: dict[str, Any] = {}
    try:
        for generator in generators:
            context = ms.TuneContext(
                module,
                target=target,
                space_generator=generator,
                rand_state=seed,
                num_threads=1,
                logger=logger,
            )
            for schedule in context.generate_design_space():
                schedules.setdefault(str(schedule.trace.simplified(remove_postproc=True)), schedule)
    except (tvm.error.InternalError, RuntimeError, ValueError, TypeError) as error:
        raise NoSpace(f"TVM's schedule rules fail on it: {last_line(error):.160}") from error
    if not any(schedule.trace.decisions for schedule in schedules.values()):
        raise NoSpace("TVM's schedule rules leave nothing to choose")
    # generators differ in rules only: the postprocessors are the same
    return list(schedules.values()), generators[0]


def _gpu(target: Any, local: bool) -> Any:
    """Make the space for a GPU; with *local*, tiles of the operands are copied into local memory together."""
    most = int(target.attrs["max_threads_per_block"])
    threads = [size for size in THREADS if size <= most]
    reads = schedule_rule.ReuseType(req="must", levels=[4], scope="shared") if local else None
    rules = [
        schedule_rule.ApplyCustomRule(),
        # What follows a convolution becomes one block, which its tiles can then take in. TVM's CUDA rules
        # leave x * sigmoid(x) to a kernel of its own. Padding (a choice) stays until tiles are loaded.
        schedule_rule.AutoInline(
            into_producer=False,
            into_consumer=True,
            inline_const_tensor=True,
            disallow_if_then_else=True,
            require_injective=True,
            require_ordered=True,
        ),
        schedule_rule.MultiLevelTiling(
            structure="SSSRRS",  # CUDA's SSSRRSRS has a second level inside, which nothing limits
            tile_binds=["blockIdx.x", "vthread.x", "threadIdx.x"],
            max_innermost_factor=INNERMOST,
            vector_load_lens=list(VECTORS),
            reuse_read=reads,
            reuse_write=schedule_rule.ReuseType(req="must", levels=[3], scope="local"),
        ),
        schedule_rule.InlineConstantScalars(),
        schedule_rule.AutoInline(
            into_producer=True,
            into_consumer=True,
            inline_const_tensor=True,
            disallow_if_then_else=False,
            require_injective=False,
            require_ordered=False,
        ),
        schedule_rule.CrossThreadReduction(thread_extents=threads),
        schedule_rule.ParallelizeVectorizeUnroll(
            max_jobs_per_core=-1,
            max_vectorize_extent=-1,
            unroll_max_steps=list(UNROLLED),
            unroll_explicit=True,
        ),
        schedule_rule.AutoBind(max_threadblocks=BLOCKS, thread_extents=threads),
    ]
    checks = [
        postproc.DisallowDynamicLoop(),
        postproc.RewriteCooperativeFetch(),
        postproc.RewriteUnboundBlock(max_threadblocks=BLOCKS),
        postproc.RewriteParallelVectorizeUnroll(),
        postproc.RewriteReductionBlock(),
        postproc.VerifyGPUCode(),
    ]
    mutators = {
        mutator.MutateTileSize(): 0.9,
        mutator.MutateUnroll(): 0.08,
        mutator.MutateThreadBinding(): 0.02,
    }
    return ms.space_generator.PostOrderApply(sch_rules=rules, postprocs=checks, mutator_probs=mutators)


def _register_schedule_rules(module: Any, target: Any) -> None:
    """Let the general rules schedule blocks that ask for a rule which TVM does not have, as poolings do.

    TVM does the same, but says so on stderr each time.
    """

    def ordinary(schedule: Any, block: Any) -> list[Any]:
        schedule.unannotate(block, "schedule_rule")
        return [schedule]

    for block in tir_nodes(module["main"].body, tirx.SBlock):
        if name := block.annotations.get("schedule_rule"):
            rules = [f"s_tir.meta_schedule.{key}.{name}" for key in target.keys]
            if not any(tvm_ffi.get_global_func(rule, allow_missing=True) for rule in rules):
                tvm_ffi.register_global_func(rules[0], ordinary)
