"""The schedules among which a kernel with images is tuned.

Upstream's rules know no images: they store lanes one by one and stage tiles in shared
memory. Here, as in :mod:`adt.model.texture.schedule`, each work-item computes whole
texels; what is sampled is the shape of the work-group, how many texels of a row, a
column and of neighbouring channels a work-item keeps in registers, in which order it
accumulates, and what is unrolled. All of it is sampled by TVM's instructions, so that
its evolutionary search can change one decision of a trace and replay the rest.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from adt.model.texture.blocks import LANES
from adt.model.texture.schedule import (
    REDUCE,
    NotSchedulable,
    kernel_blocks,
    proven,
    reduction_loops,
    refusals,
    texel_loops,
)
from adt.model.texture.scopes import SCOPE
from adt.tuning.texture_parts import parts_space
from adt.tuning.texture_tiles import accumulate, bind_groups, bind_items, sample_tiles, sample_unrolling

ITEMS = (32, 64, 128, 256)
"""Work-items in a work-group of a kernel that writes a buffer."""


def uses_images(function: Any) -> bool:
    """Whether an argument of the TIR *function* is an image, so that :func:`texture_space` is its space."""
    return any(buffer.scope() == SCOPE for buffer in function.buffer_map.values())


def texture_space(function: Any, target: Any) -> Any:
    """TVM's generator of the design spaces of *function*, some of whose arguments are images.

    It brings its own postprocessors and mutators. Of each space, the member whose decisions
    are those of the trace that is generated is proven to use the images rightly.

    Args:
        function: as :func:`adt.model.texture.scopes.scoped` gives it: static shapes, not scheduled.
        target: TVM's; the context in which the generator is used must name the same.

    Raises:
        NotSchedulable: there is no such space; the reason.
    """
    from tvm.s_tir import meta_schedule as ms

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
            ms.postproc.VerifyGPUCode(),
        ],
        mutator_probs={ms.mutator.MutateTileSize(): 0.9, ms.mutator.MutateUnroll(): 0.1},
    )


@dataclass(frozen=True)
class _Texels:
    """What differs between the spaces of a kernel whose work-items compute texels."""

    by_lane: bool
    """See :func:`adt.model.texture.schedule.texel_schedule`."""
    rounded: bool
    """Rows and columns of few divisors are rounded up; what is beyond their end is not stored."""
    taps_outside: bool
    """It accumulates over the channels inside of a window's taps, not outside of them."""


def _usable(function: Any, target: Any) -> tuple[Callable[[Any], None], ...]:
    refused: list[NotSchedulable] = []

    def proven_of(spaces: Iterable[Callable[[Any], None]]) -> list[Callable[[Any], None]]:
        return [space for space in spaces if _proves(function, target, space, refused)]

    usable = proven_of(itertools.chain(_texel_spaces(by_lane=False), (parts_space,))) or proven_of(
        _texel_spaces(by_lane=True)
    )
    if list(function.buffer_map.values())[-1].scope() != SCOPE:
        usable += proven_of((_element_space,))
    if not usable:
        raise refused[0]
    return tuple(usable)


def _texel_spaces(*, by_lane: bool) -> Iterator[Callable[[Any], None]]:
    for rounded, taps_outside in itertools.product((False, True), repeat=2):
        yield partial(_texel_space, how=_Texels(by_lane, rounded, taps_outside))


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


def _texel_space(schedule: Any, how: _Texels) -> None:
    """Sample a schedule whose work-items compute whole texels.

    Raises:
        NotSchedulable: the kernel is not of that form, or *how* changes nothing of it.
    """
    blocks = kernel_blocks(schedule, by_lane=how.by_lane)
    *outer, lane = texel_loops(schedule, blocks.store)
    axes = sample_tiles(schedule, outer, rounded=how.rounded)
    bind_groups(schedule, axes)
    bind_items(schedule, *(axis.item for axis in axes))
    depth = len(schedule.get_loops(blocks.store)) - len(axes) - 1
    for part in blocks.before:
        schedule.compute_at(part, axes[0].item, preserve_unit_loops=True)
    if blocks.reduction is not None:
        _accumulate(schedule, blocks.reduction, depth, taps_outside=how.taps_outside)
    elif how.taps_outside:
        raise NotSchedulable("it does not accumulate")
    for axis in axes:
        schedule.unroll(axis.register)
    schedule.vectorize(lane)
    if blocks.reduction is not None:
        sample_unrolling(schedule)


def _accumulate(schedule: Any, reduction: Any, depth: int, *, taps_outside: bool) -> None:
    """Order the loops of *reduction* inside the *depth* outermost ones.

    The channels are read in fours, the lanes of one texel, where their number allows that.
    """
    spatial, (first, *taps) = reduction_loops(schedule, reduction, depth)
    if taps_outside and not taps:
        raise NotSchedulable("it accumulates over one axis")
    inner = []
    if taps and int(schedule.get(first).extent) % LANES == 0:
        first, four = schedule.split(first, [None, LANES])
        inner = [four]
    accumulate(schedule, reduction, spatial, [*taps, first] if taps_outside else [first, *taps], inner)


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
        sample_unrolling(schedule)
