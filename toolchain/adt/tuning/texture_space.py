"""The schedules among which a kernel with images is tuned.

Upstream's rules know no images: they store lanes one by one and stage tiles in shared
memory. Here each work-item computes whole texels. A convolution's schedules are those
of :mod:`adt.model.texture.schedule`, which compiling takes, too: what its cost model
decides there is sampled here, with that decision as the first one, so that the search
explores around it. Of other kernels the shape of the work-group and the texels of a
work-item are sampled. All of it is by TVM's instructions, so that its evolutionary
search can change one decision of a trace and replay the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from adt.model.targets.gpu import Gpu, gpu_of
from adt.model.texture.direct import convolution_of
from adt.model.texture.kernel_blocks import (
    REDUCE,
    NotSchedulable,
    kernel_blocks,
    reduction_loops,
    refusals,
    texel_loops,
)
from adt.model.texture.schedule import is_convolution, proven, schedule_convolution
from adt.model.texture.specialized import SCOPE
from adt.model.texture.tiles import best_tile
from adt.tuning.sampled import Sampled, sample_unrolling
from adt.tuning.texture_tiles import accumulate, bind_groups, bind_items, sample_tiles

ITEMS = (32, 64, 128, 256)
"""Work-items in a work-group of a kernel that writes a buffer."""


def uses_texels(function: Any) -> bool:
    """Whether :func:`texture_space` is the space of the TIR *function*: an argument is an image, or it is a
    convolution on blocked tensors."""
    return is_convolution(function) or any(buffer.scope() == SCOPE for buffer in function.buffer_map.values())


def texture_space(function: Any, target: Any) -> Any:
    """TVM's generator of the design spaces of *function*, some of whose arguments are images.

    It brings its own postprocessors and mutators. Of each space, the member whose decisions
    are those of the trace that is generated is proven to use the images rightly.

    Args:
        function: as :func:`adt.model.texture.specialized.scoped` gives it: static shapes, not scheduled.
        target: TVM's; the context in which the generator is used must name the same.

    Raises:
        NotSchedulable: there is no such space; the reason.
    """
    from tvm.s_tir import meta_schedule as ms

    from adt.tuning.texture_bounds import Bounded

    spaces = _usable(function, target)

    def generate(schedule: Any) -> list[Any]:
        made = [schedule.copy() for _ in spaces]
        for space, copy in zip(spaces, made, strict=True):
            space(copy)
        return made

    return ms.space_generator.ScheduleFn(
        generate,
        sch_rules=[],
        postprocs=[
            ms.postproc.DisallowDynamicLoop(),
            ms.postproc.RewriteParallelVectorizeUnroll(),
            Bounded(),
            ms.postproc.VerifyGPUCode(),
        ],
        mutator_probs={ms.mutator.MutateTileSize(): 0.9, ms.mutator.MutateUnroll(): 0.1},
    )


def _usable(function: Any, target: Any) -> tuple[Callable[[Any], None], ...]:
    refused: list[NotSchedulable] = []

    def proven_of(spaces: Iterable[Callable[[Any], None]]) -> list[Callable[[Any], None]]:
        return [space for space in spaces if _proves(function, target, space, refused)]

    usable: list[Callable[[Any], None]] = []
    for by_lane in (False, True):
        if is_convolution(function):
            gpu = gpu_of("", limits_of(target))
            usable = proven_of(
                partial(_convolution_space, gpu=gpu, shared=shared, by_lane=by_lane)
                for shared in (False, True)
            )
        usable = usable or proven_of(
            partial(_texel_space, by_lane=by_lane, rounded=rounded) for rounded in (False, True)
        )
        if usable:
            break
    if list(function.buffer_map.values())[-1].scope() != SCOPE and not is_convolution(function):
        usable += proven_of((_element_space,))
    if not usable:
        raise refused[0]
    return tuple(usable)


def limits_of(target: Any) -> dict[str, int]:
    """The whole numbers among the attributes of TVM's *target*."""
    return {str(name): int(value) for name, value in target.attrs.items() if isinstance(value, int)}


def _proves(function: Any, target: Any, space: Callable[[Any], None], refused: list[NotSchedulable]) -> bool:
    """Whether the first member of *space* uses images rightly; if not, why is added to *refused*."""
    from tvm import s_tir

    schedule = s_tir.Schedule(function)
    try:
        with refusals():
            space(schedule)
        proven(schedule.mod["main"], target)
    except NotSchedulable as why:
        refused.append(why)
        return False
    return True


def _convolution_space(schedule: Any, gpu: Gpu, *, shared: bool, by_lane: bool) -> None:
    """Sample around the best schedule whose sums are shared by work-items, or are not.

    Raises:
        NotSchedulable: there is none.
    """
    conv = convolution_of(schedule, by_lane=by_lane)
    tile = best_tile(conv.sums, gpu, shared=shared)
    if tile is None:
        raise NotSchedulable("no tile of it fits the GPU")
    schedule_convolution(schedule, conv, tile, Sampled())


def _texel_space(schedule: Any, *, by_lane: bool, rounded: bool) -> None:
    """Sample a schedule whose work-items compute whole texels.

    Args:
        by_lane: see :func:`adt.model.texture.schedule.texel_schedule`.
        rounded: rows and columns of few divisors are rounded up; what is beyond their end is not stored.

    Raises:
        NotSchedulable: the kernel is not of that form, or *rounded* changes nothing of it.
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
        raise NotSchedulable("it computes one number")
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
