"""Turn what came of candidates into records, and keep those before anybody hears of them."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

from adt.tuning.candidates import Measured
from adt.tuning.confirming import timing_again
from adt.tuning.jobs import Outcome
from adt.tuning.plan import Observer, Plan, Records
from adt.tuning.ranking import CONFIRMED
from adt.tuning.records import BASELINE, Context, Failure, Record
from adt.tuning.works import Work

Made: TypeAlias = tuple[Work, Failure | None, Outcome | None]
"""A candidate, its failure if it failed, and its measurement; None where it could not be built."""


class Keeper:
    """Writes the records of one tuning; only the engine's thread uses it."""

    def __init__(self, plan: Plan, database: Records, observer: Observer) -> None:
        self._plan = plan
        self._database = database
        self._observer = observer
        self.kept = 0
        """Records of this session."""
        self.failures: Counter[str] = Counter()
        """Failed candidates of this session, by kind."""

    def keep(self, made: Sequence[Made], context: Context) -> None:
        """Write what came of candidates; then their tasks, the searches and the observer are told.

        Args:
            context: the tuning's.

        Raises:
            DiskError: it could not be written, and nobody was told.
        """
        if not made:
            return
        records = [self._record(*each, context) for each in made]
        self._database.add(records)
        self.kept += len(records)
        for (work, _, _), record in zip(made, records, strict=True):
            if record.failure is not None:
                self.failures[record.failure.kind] += 1
            _tell(work, record)
            if self._observer.record is not None:
                self._observer.record(record)

    def _record(
        self, work: Work, failure: Failure | None, outcome: Outcome | None, context: Context
    ) -> Record:
        timing = timing_again(self._plan.timing) if work.again else self._plan.timing
        options = {name: getattr(timing, name) for name in ("number", "repeat", "min_repeat_ms")}
        if outcome is not None:
            context = dataclasses.replace(context, device=outcome.device, driver=outcome.driver)
        return Record(
            workload=work.progress.workload,
            context=context,
            task=work.progress.task.name,
            trace=work.trace,
            seconds=() if outcome is None or failure is not None else outcome.seconds,
            failure=failure,
            on=None if outcome is None else outcome.on,
            run=self._plan.run,
            at=time.time(),
            options=options | ({CONFIRMED: True} if work.again else {}),
        )


def _tell(work: Work, record: Record) -> None:
    """Tell the candidate's task what became of it."""
    progress = work.progress
    progress.absorb(record)
    if work.again:
        if work.last:
            progress.confirming.discard(work.trace)
            progress.confirmed_leaders += bool(work.trace and record.failure is None)
    elif work.trace == BASELINE:
        progress.baseline_pending = False
    else:
        progress.result(work.trace, record.failure or Measured(record.seconds))
