"""The schedules among which a kernel on blocked tensors is tuned, in images or in buffers.

Upstream's rules know no images: they store lanes one by one and stage tiles in shared memory. Here each
work-item computes whole texels. A convolution's schedules are those of
:mod:`adt.compiler.passes.gpu.schedules`, which compiling takes, too: what its cost model decides there is
sampled here, with that decision as the first one, so that the search explores around it. Of other kernels the
shape of the work-group and the texels of a work-item are sampled. All of it is by TVM's instructions, so that
its evolutionary search can change one decision of a trace and replay the rest. The last part distributes the
texels of a kernel's output over work-groups, work-items and registers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from tvm import s_tir, tirx
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.postproc import PyPostproc

from adt.compiler.ir.nodes import tir_nodes
from adt.compiler.passes.gpu.convolution import convolution_of, schedule_convolution
from adt.compiler.passes.gpu.kernel_blocks import kernel_blocks, reduction_loops, refusals, texel_loops
from adt.compiler.passes.gpu.schedules import WORK_GROUP, moves_texels, prove
from adt.compiler.passes.gpu.tiles import DEEPEST, STATEMENTS, best_tile
from adt.compiler.passes.layout.blocks import is_convolution
from adt.compiler.passes.layout.signature import REDUCE
from adt.compiler.passes.scheduling import NoSchedule, divisors
from adt.compiler.targets.gpu import Gpu, gpu_of
from adt.package.reports import LANES, SCOPE

ITEMS = (32, 64, 128, 256)
"""Work-items in a work-group of a kernel that writes a buffer."""


def uses_texels(function: Any, target: Any) -> bool:
    """Return True if :func:`texture_space` is the space of the TIR *function* for TVM's *target*: an argument
    is an image, or it is a convolution on blocked tensors for a GPU, or writes a blocked tensor of one
    without textures."""
    if target.kind.name == "llvm":
        return False
    if "texture" not in target.keys and moves_texels(function):
        return True
    return is_convolution(function) or any(buffer.scope() == SCOPE for buffer in function.buffer_map.values())


def texture_space(function: Any, target: Any) -> Any:
    """Make TVM's generator of the design spaces of *function*, some of whose arguments are images.

    It brings its own postprocessors and mutators. Of each space, the member whose decisions
    are those of the trace that is generated is checked to use the images rightly.

    Args:
        function: of :func:`adt.compiler.passes.gpu.placement.with_images`: static shapes, not scheduled.
        target: TVM's; the context in which the generator is used must name the same.
    """
    spaces = _usable_spaces(function, target)

    def generate(schedule: Any) -> list[Any]:
        copies = [schedule.copy() for _ in spaces]
        for space, copy in zip(spaces, copies, strict=True):
            space(copy)
        return copies

    return ms.space_generator.ScheduleFn(
        generate,
        sch_rules=[],
        postprocs=[
            ms.postproc.DisallowDynamicLoop(),
            ms.postproc.RewriteParallelVectorizeUnroll(),
            kernel_limits()(),
            ms.postproc.VerifyGPUCode(),
        ],
        mutator_probs={ms.mutator.MutateTileSize(): 0.9, ms.mutator.MutateUnroll(): 0.1},
    )


def _usable_spaces(function: Any, target: Any) -> tuple[Callable[[Any], None], ...]:
    errors: list[NoSchedule] = []

    def usable_of(spaces: Iterable[Callable[[Any], None]]) -> list[Callable[[Any], None]]:
        return [space for space in spaces if _is_usable(function, target, space, errors)]

    usable: list[Callable[[Any], None]] = []
    for by_lane in (False, True):
        if is_convolution(function):
            gpu = gpu_of(str(target.attrs.get("device", "")), limits_of(target))
            usable = usable_of(
                partial(_convolution_space, gpu=gpu, shared=shared, by_lane=by_lane)
                for shared in (False, True)
            )
        usable = usable or usable_of(
            partial(_texel_space, by_lane=by_lane, rounded=rounded) for rounded in (False, True)
        )
        if usable:
            break
    if list(function.buffer_map.values())[-1].scope() != SCOPE and not is_convolution(function):
        usable += usable_of((_element_space,))
    if not usable:
        raise errors[0]
    return tuple(usable)


def limits_of(target: Any) -> dict[str, int]:
    """The integers among the attributes of TVM's *target*."""
    return {str(name): int(value) for name, value in target.attrs.items() if isinstance(value, int)}


def _is_usable(function: Any, target: Any, space: Callable[[Any], None], errors: list[NoSchedule]) -> bool:
    """Return True if the first member of *space* uses images rightly; if not, *errors* get the reason."""
    schedule = s_tir.Schedule(function)
    try:
        with refusals():
            space(schedule)
        prove(schedule.mod["main"], target)
    except NoSchedule as error:
        errors.append(error)
        return False
    return True


def _convolution_space(schedule: Any, gpu: Gpu, *, shared: bool, by_lane: bool) -> None:
    """Sample around the best schedule whose sums are shared by work-items, or are not."""
    conv = convolution_of(schedule, by_lane=by_lane)
    tile = best_tile(conv.sums, gpu, shared=shared)
    if tile is None:
        raise NoSchedule("no tile of it fits the GPU")
    schedule_convolution(schedule, conv, tile, Sampled())


def _texel_space(schedule: Any, *, by_lane: bool, rounded: bool) -> None:
    """Sample a schedule whose work-items compute whole texels.

    If *rounded*, rows and columns of few divisors are rounded up; what is beyond their end is not stored.
    *by_lane* is as in :func:`adt.compiler.passes.gpu.schedules.texel_schedule`.
    """
    blocks = kernel_blocks(schedule, by_lane=by_lane)
    *outer, lane = texel_loops(schedule, blocks.store)
    axes = sample_tiles(schedule, outer, rounded=rounded)
    bind_groups(schedule, axes)
    bind_items(schedule, *(axis.item for axis in axes))
    depth = len(schedule.get_loops(blocks.store)) - len(axes) - 1
    for part in blocks.before:
        schedule.compute_at(part, axes[0].item, preserve_unit_loops=True)
    if blocks.reduction is not None:
        accumulate(schedule, blocks.reduction, *reduction_loops(schedule, blocks.reduction, depth))
    for axis in axes:
        schedule.unroll(axis.register)
    schedule.vectorize(lane)
    if blocks.reduction is not None:
        sample_unrolling(schedule, wanted=0)


def _element_space(schedule: Any) -> None:
    """Sample a schedule whose work-items compute one element each, of a buffer."""
    blocks = kernel_blocks(schedule)
    loops = schedule.get_loops(blocks.store)
    if not loops:
        raise NoSchedule("it computes one number")
    items = schedule.sample_categorical(ITEMS, [1 / len(ITEMS)] * len(ITEMS), decision=1)
    group, item = schedule.split(schedule.fuse(*loops), [None, items])
    schedule.bind(group, "blockIdx.x")
    schedule.bind(item, "threadIdx.x")
    for part in blocks.before:
        schedule.compute_at(part, item, preserve_unit_loops=True)
    if blocks.reduction is not None:
        inside = schedule.get_loops(blocks.reduction)[2:]
        kinds = schedule.get(blocks.reduction).iter_vars[-len(inside) :]
        reduce = [loop for loop, kind in zip(inside, kinds, strict=True) if int(kind.iter_type) == REDUCE]
        schedule.decompose_reduction(blocks.reduction, reduce[0])
        sample_unrolling(schedule, wanted=0)


UNROLL = (0, 64, 128, 256)
"""Statements up to which the loops of a kernel are unrolled, besides those that always are. A driver was
seen to compile for 20 s what 1024 give."""


class Sampled:
    """A :class:`adt.compiler.passes.gpu.convolution.Decisions` of TVM's instructions that sample."""

    def tile(self, schedule: Any, loop: Any, wanted: Sequence[int], most: int) -> Sequence[Any]:
        """Any extents whose product is the loop's."""
        extent = int(schedule.get(loop).extent)
        first = [extent // math.prod(wanted[1:]), *wanted[1:]]
        tile: Sequence[Any] = schedule.sample_perfect_tile(loop, len(first), most, decision=first)
        return tile

    def unroll(self, schedule: Any, _loop: Any, wanted: int) -> None:
        """Unroll the whole kernel, by TVM's postprocessor."""
        sample_unrolling(schedule, wanted)


def sample_unrolling(schedule: Any, wanted: int) -> None:
    """Sample how far TVM's postprocessor unrolls what accumulates, *wanted* of :data:`UNROLL` first."""
    steps = schedule.sample_categorical(
        UNROLL, [1 / len(UNROLL)] * len(UNROLL), decision=UNROLL.index(wanted)
    )
    schedule.annotate(schedule.get_sblock("root"), "meta_schedule.unroll_explicit", steps)


MAX_STATEMENTS = 2 * STATEMENTS
"""Statements of a kernel, with those of unrolled loops as often as they are there."""


@cache
def kernel_limits() -> Any:
    """The class of TVM's postprocessor that refuses over :data:`MAX_STATEMENTS` statements, and too deep
    work-groups."""

    @derived_object
    class KernelLimits(PyPostproc):  # type: ignore[misc]
        def _initialize_with_tune_context(self, context: Any) -> None:
            pass

        def apply(self, schedule: Any) -> bool:
            return all(
                statements(function) <= MAX_STATEMENTS and _depth(function) <= DEEPEST
                for function in schedule.mod.functions.values()
            )

        def clone(self) -> Any:
            return KernelLimits()

    return KernelLimits


def _depth(function: Any) -> int:
    """Work-items of a work-group along z."""
    bound = (loop for loop in tir_nodes(function.body, tirx.For) if loop.thread_binding is not None)
    extents = [int(loop.extent) for loop in bound if loop.thread_binding.thread_tag == "threadIdx.z"]
    return max(extents, default=1)


def statements(function: Any) -> int:
    """Stores in the TIR *function*, each as often as unrolled loops repeat it; a vector's is one."""

    def count(node: Any) -> int:
        if isinstance(node, tirx.BufferStore):
            return 1
        if isinstance(node, tirx.For):
            unrolled = int(node.kind) == int(tirx.ForKind.UNROLLED)
            return count(node.body) * (int(node.extent) if unrolled else 1)
        if isinstance(node, tirx.SeqStmt):
            return sum(map(count, node.seq))
        if isinstance(node, tirx.SBlockRealize):
            return count(node.block)
        if isinstance(node, tirx.SBlock):
            return count(node.body) + (count(node.init) if node.init is not None else 0)
        if isinstance(node, tirx.IfThenElse):
            otherwise = count(node.else_case) if node.else_case is not None else 0
            return count(node.then_case) + otherwise
        return count(node.body) if isinstance(node, tirx.AttrStmt) else 0

    return count(function.body)


MOST_TEXELS = (4, 2, 4)
"""Most texels that a work-item computes along x, y and the axis before them (channels); each fills four
registers."""


@dataclass(frozen=True)
class Axis:
    """The loops that one axis of the output was cut into."""

    groups: tuple[Any, ...]
    """Over work-groups, from the outermost on."""
    item: Any
    """Over work-items of a work-group."""
    register: Any
    """Over texels of one work-item."""


def sample_tiles(schedule: Any, loops: Sequence[Any], *, rounded: bool = False) -> tuple[Axis, ...]:
    """Cut *loops* into tiles and put them in order; nothing is bound yet. Returns x, y, z, if they exist.

    Args:
        loops: over texels; the last is x, the one before y, then z, and further ones are left whole.
        rounded: round x and y up where they are hard to divide; what is beyond their end is not stored.
    """
    others = list(loops)
    room = WORK_GROUP
    axes: list[Axis] = []
    for name, most in zip("xyz", MOST_TEXELS, strict=True):
        if not others:
            break
        loop = others.pop()
        extent = int(schedule.get(loop).extent)
        outside: tuple[Any, ...] = ()
        if rounded and name != "z" and (up := _rounded(extent)) != extent:
            beyond, loop = schedule.split(loop, [None, up])
            outside, extent = (beyond,), up
        first = divisors(extent, room)[-1]
        room //= first
        tile = schedule.sample_perfect_tile(loop, 3, most, decision=[extent // first, first, 1])
        group, item, register = schedule.split(loop, tile)
        axes.append(Axis((*outside, group), item, register))
    if rounded and all(len(axis.groups) == 1 for axis in axes):
        raise NoSchedule("it has no axis to round up")
    last = axes[-1]
    axes[-1] = Axis((*others, *last.groups), last.item, last.register)
    backwards = axes[::-1]
    schedule.reorder(
        *itertools.chain.from_iterable(axis.groups for axis in backwards),
        *(axis.item for axis in backwards),
        *(axis.register for axis in backwards),
    )
    return tuple(axes)


def bind_groups(schedule: Any, axes: Sequence[Axis]) -> Any:
    """Make work-groups of OpenCL of *axes*; returns the innermost loop over them."""
    groups = []
    for name, axis in zip("xyz", axes, strict=False):
        groups.append(schedule.fuse(*axis.groups) if len(axis.groups) > 1 else axis.groups[0])
        schedule.bind(groups[-1], f"blockIdx.{name}")
    return groups[0]


def bind_items(schedule: Any, *items: Any) -> None:
    """Make work-items of OpenCL of the loops *items*: along x, y and z."""
    for name, item in zip("xyz", items, strict=False):
        schedule.bind(item, f"threadIdx.{name}")


def accumulate(schedule: Any, reduction: Any, spatial: list[Any], reduce: list[Any]) -> None:
    """Order the loops of *reduction*: *reduce*, all texels unrolled, the lanes of each at once."""
    *texels, lane = spatial
    schedule.reorder(*reduce, *texels, lane)
    for loop in texels:
        schedule.unroll(loop)
    schedule.vectorize(lane)  # before the decomposition, after which it is refused
    schedule.decompose_reduction(reduction, reduce[0])


def _rounded(extent: int) -> int:
    """*extent*, or where it is hard to divide, the next multiple of four."""
    rest = extent
    for prime in (2, 3, 5, 7):
        while rest % prime == 0:
            rest //= prime
    return extent if rest == 1 else extent + -extent % LANES
