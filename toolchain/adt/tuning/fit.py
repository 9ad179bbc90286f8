"""Fit the row of a GPU to measured times: that by which the model of costs orders kernels best.

The kernels are convolutions and products on blocked tensors, measured with many tiles. Of all rows of a grid
the one is taken by which most pairs of schedules of one kernel are in the order of their times. What times
do not tell, the greatest work-group, stays.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from tvm import s_tir

from adt.compiler.passes.gpu.convolution import convolution_of
from adt.compiler.passes.gpu.tiles import Sums, Tile, cost
from adt.compiler.passes.layout.blocks import is_convolution
from adt.compiler.passes.scheduling import NoSchedule, refusals
from adt.compiler.targets.gpu import Gpu
from adt.errors import ConfigError
from adt.tuning.database.store import modules_of
from adt.tuning.records import BASELINE, Context, by_candidate, typical_record
from adt.tuning.results import GpuFit

if TYPE_CHECKING:
    from adt.tuning.database.store import Database

LEAST_TIMES = 24
"""Schedules that are to be fitted to, at least."""
CLEARLY = 0.05
"""Logarithm of the ratio of two times, from which on their order counts."""
BETTER = 0.005
"""Share of the pairs by which a row must be better to be taken instead of one nearer to the one before."""
WAVES = (4, 8, 16, 32, 64, 128)
SUMS = (4, 5, 8, 12, 16)
ITEMS = tuple(1 << power for power in range(7, 18))
SHARED_KERNELS = 3
"""Kernels, at least, whose times with shared sums and without say whether local memory is worth it."""


@dataclasses.dataclass(frozen=True)
class TimedTile:
    """A schedule of a convolution that was measured."""

    kernel: str
    sums: Sums
    tile: Tile
    seconds: float


def fit_gpu(database: Database, context: Context, before: Gpu) -> GpuFit:
    """Fit the row of the GPU of *context*, *before* so far, to the times that *database* has of it."""
    result = fit(timed_tiles(database, context), before)
    return dataclasses.replace(result, gpu=dataclasses.replace(result.gpu, name=context.device))


def fit(times: Sequence[TimedTile], before: Gpu) -> GpuFit:
    """Fit the row of a GPU by which :func:`~adt.compiler.passes.gpu.tiles.cost` orders *times* best."""
    pairs = _pairs(times) if len(times) >= LEAST_TIMES else None
    if pairs is None or not pairs.size:
        raise ConfigError(
            f"a GPU is fitted to {LEAST_TIMES} schedules of convolutions on blocked tensors at least, of "
            f"different times; the records have {len(times)}",
            remedy="Give more --trials, or a model with more convolutions; the records are kept.",
        )
    rows = [
        dataclasses.replace(before, wave=min(wave, before.work_group), sums=sums, items=items)
        for wave, sums, items in itertools.product(
            {before.wave, *WAVES}, {before.sums, *SUMS}, {before.items, *ITEMS}
        )
    ]
    gpu, ordered = before, _ordered(times, pairs, before)
    ordered_before = ordered
    for row in sorted(set(rows), key=lambda row: _distance(row, before)):
        if (share := _ordered(times, pairs, row)) > ordered + BETTER:
            gpu, ordered = row, share
    if _local_memory_slows(times):
        gpu = dataclasses.replace(gpu, local_bytes=0)
    kernels = len({each.kernel for each in times})
    return GpuFit(gpu, before, kernels, len(times), ordered, ordered_before)


def _pairs(times: Sequence[TimedTile]) -> Any:
    """Pair the indices in *times* of a kernel's schedules, (2, pairs): the clearly faster, the others."""
    kernels = np.unique([each.kernel for each in times], return_inverse=True)[1]
    logs = np.log([each.seconds for each in times])
    slower = logs[None, :] - logs[:, None] > CLEARLY
    return np.array(np.nonzero(slower & (kernels[None, :] == kernels[:, None])))


def _ordered(times: Sequence[TimedTile], pairs: Any, gpu: Gpu) -> float:
    """Return the share of *pairs* that the model orders rightly for *gpu*; equal costs count half."""
    fast, slow = np.array([cost(each.sums, each.tile, gpu) for each in times])[pairs]
    return float(np.mean((fast < slow) + 0.5 * (fast == slow)))


def _distance(row: Gpu, before: Gpu) -> float:
    """Sum the powers of two between the numbers of *row* and *before*."""
    numbers = ((row.wave, before.wave), (row.sums, before.sums), (row.items, before.items))
    return sum(abs(math.log2(new / old)) for new, old in numbers)


def _local_memory_slows(times: Sequence[TimedTile]) -> bool:
    """Return True if no fastest schedule of a kernel that has both forms keeps its sums in local memory."""
    fastest: dict[str, dict[bool, float]] = {}
    for each in times:
        forms = fastest.setdefault(each.kernel, {})
        shared = each.tile.parts > 1
        forms[shared] = min(each.seconds, forms.get(shared, math.inf))
    both = [forms for forms in fastest.values() if len(forms) == 2]
    return len(both) >= SHARED_KERNELS and all(forms[False] <= forms[True] for forms in both)


def timed_tiles(database: Database, context: Context) -> list[TimedTile]:
    """Read the measured schedules of convolutions on blocked tensors from *database* for *context*."""
    records = [record for record in database.records(context) if record.trace != BASELINE]
    workloads = [database.workloads[identity] for identity in sorted({each.workload for each in records})]
    modules = zip(workloads, modules_of(workloads), strict=True)
    sums = {workload.id: sums_of(module) for workload, module in modules if module is not None}
    times = []
    for (identity, trace), measured in by_candidate(records).items():
        record, computes = typical_record(measured), sums.get(identity)
        if record and computes and (tile := tile_of(trace)):
            times.append(TimedTile(identity, computes, tile, record.time))
    return times


def sums_of(module: Any) -> Sums | None:
    """Return the sums of the workload *module*; None: it is no convolution on blocked tensors."""

    if not is_convolution(module["main"]):
        return None
    try:
        with refusals():
            return convolution_of(s_tir.Schedule(module)).sums
    except NoSchedule:
        return None


def tile_of(trace: str) -> Tile | None:
    """Find the tile in *trace* of :mod:`adt.compiler.passes.gpu.convolution`; None: of another schedule."""
    steps, decisions = json.loads(trace)
    samples = {
        name: size  # as records had it whose tiles TVM drew
        for place, cut in decisions
        if isinstance(cut, list)
        for name, size in zip(steps[place][3], cut, strict=True)
    }
    cuts = [[samples.get(size, size) for size in step[1][1:]] for step in steps if step[0] == "Split"]
    axes = [cut for cut in cuts if len(cut) == 3]
    if len(axes) != 3:
        return None
    (_, across, wide), (_, down, high), (_, far, deep) = axes
    shared = any(step[0] == "RFactor" for step in steps)  # shared sums cut their channels first
    return Tile(wide, high, deep, (across, down, far), cuts[1][1] if shared else 1)
