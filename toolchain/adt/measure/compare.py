"""Two packages against each other, taking turns, so that what disturbs the machine disturbs both."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from adt.device.place import Opened
from adt.device.rtvm import RtvmRun
from adt.measure.bench import Plan, shorter, timed_run
from adt.measure.statistics import Interval, ratio_interval

if TYPE_CHECKING:
    import numpy as np

    from adt.measure.statistics import Times

log = logging.getLogger("adt.bench")


@dataclass(frozen=True)
class Side:
    """One of the two."""

    opened: Opened
    first: RtvmRun
    """Its pilot run."""
    inputs: Mapping[str, np.ndarray] | None


@dataclass(frozen=True)
class Turns:
    """The runs of one side."""

    runs: tuple[RtvmRun, ...]
    """Two for each round, in order."""

    @property
    def times(self) -> Times:
        """Milliseconds of every run."""
        import numpy as np

        return np.concatenate([run.times["run_ms"] for run in self.runs])

    @property
    def round_medians(self) -> Times:
        """Of each round, the median of its two turns."""
        import numpy as np

        pairs = zip(self.runs[::2], self.runs[1::2], strict=True)
        both = [np.concatenate([one.times["run_ms"], other.times["run_ms"]]) for one, other in pairs]
        return np.array([np.median(times) for times in both])


def take_turns(a: Side, b: Side, plan: Plan) -> tuple[Turns, Turns]:
    """Run A B B A in each round of the plan's protocol, each turn in a process of its own.

    A drift that is steady over a round is the same for both, for their turns lie
    about the same moment.

    Raises:
        RunError, DeviceError, …: as :meth:`adt.device.place.Place.run`.
    """
    protocol = shorter(plan.protocol)
    runs: tuple[list[RtvmRun], list[RtvmRun]] = ([], [])
    for number in range(plan.protocol.rounds):
        log.info("round %d of %d", number + 1, plan.protocol.rounds)
        for which in (0, 1, 1, 0):
            side = (a, b)[which]
            runs[which].append(timed_run(side.opened, plan, protocol, side.first, side.inputs))
    return Turns(tuple(runs[0])), Turns(tuple(runs[1]))


def times_as_fast(a: Turns, b: Turns) -> Interval:
    """How many times as fast B is as A, with the 95 % interval."""
    return ratio_interval(a.round_medians, b.round_medians)


def sentence(ratio: Interval, names: Sequence[str] = ("A", "B")) -> str:
    """What the interval says, in words."""
    a, b = names
    if ratio.low > 1:
        return f"{b} is {ratio.low:.3g} to {ratio.high:.3g} × as fast as {a}"
    if ratio.high < 1:
        return f"{a} is {1 / ratio.high:.3g} to {1 / ratio.low:.3g} × as fast as {b}"
    return (
        f"no difference can be told: {b} is {ratio.low:.3g} to {ratio.high:.3g} × as fast as {a}, "
        "which has 1 in it"
    )
