"""Distribution of the units of a recurrent layer over a GPU's work-items, by a model of what launches and
reads take."""

from __future__ import annotations

import math
from dataclasses import dataclass

from adt.compiler.passes.layout.blocks import ceil_blocks
from adt.compiler.passes.recurrence import Recurrence
from adt.compiler.targets.gpu import Gpu
from adt.package.reports import LANES

MOST_ROWS = 4
"""Sequences of a batch that are multiplied with weights which are read once."""
MOST_SHARES = 8
"""Work-items that share a sum: one of them adds their parts up."""
LEAST_TERMS = 4
"""Times four terms of a sum that a work-item adds, at least, where it shares the sum."""
LAUNCH = 10.0
"""Microseconds that a kernel more takes on a phone: 5 to 30, by the public benchmarks of launches."""
CORE_BYTES = 30e3
"""Bytes in a microsecond that one core reads of weights which lie in the GPU's cache."""
CORES = 4
"""Number of cores of a phone's usual GPU."""


@dataclass(frozen=True)
class StepTile:
    """Distribution of the units of a layer."""

    units: int
    """Units of a work-group at a time."""
    shares: int
    """Work-items that share the sums of a unit."""
    groups: int
    """Times *units* of a layer, with those of zeros behind them."""
    rows: int
    """Sequences of a work-group."""
    alone: bool
    """A work-group computes all units and steps."""

    @property
    def items(self) -> int:
        """Work-items of a work-group."""
        return self.units * self.shares

    @property
    def width(self) -> int:
        """Units with those of zeros."""
        return self.units * self.groups

    @property
    def terms(self) -> int:
        """Times four terms of a sum that a work-item adds."""
        return self.width // (LANES * self.shares)


def step_tile(layer: Recurrence, gpu: Gpu) -> StepTile:
    """Choose the tile of *layer* by a model of what launches and reads take."""
    rows = ceil_blocks(layer.batch, ceil_blocks(layer.batch, MOST_ROWS))
    parts = layer.directions * ceil_blocks(layer.batch, rows)
    work = layer.gates * layer.hidden**2 * 4 / CORE_BYTES
    together = (2 if layer.resets_first else 1) * LAUNCH + parts * work / CORES
    parts_alone = layer.directions * layer.batch
    if ceil_blocks(parts_alone, CORES) * work <= together:
        return _tile(layer, gpu.largest_group, gpu.largest_group * parts_alone, parts_alone, 1, alone=True)
    return _tile(layer, gpu.work_group, gpu.items, parts, rows, alone=False)


def _tile(layer: Recurrence, most: int, busy: int, parts: int, rows: int, *, alone: bool) -> StepTile:
    """Choose the tile of groups of up to *most* work-items, of which *busy* are to be there in *parts*."""
    shares = 1
    while (
        shares < MOST_SHARES
        and 2 * shares * layer.hidden * parts <= busy
        and 2 * shares * LANES * LEAST_TERMS <= layer.hidden
        and 2 * shares <= most
    ):
        shares *= 2
    even = LANES * shares
    least = ceil_blocks(layer.hidden, even) * even
    for groups in range(ceil_blocks(least, max(1, most // shares)), least + 1):
        quantum = even // math.gcd(groups, even)
        units = ceil_blocks(least, groups * quantum) * quantum
        if units * shares <= most:
            break
    return StepTile(units, shares, groups, rows, alone)
