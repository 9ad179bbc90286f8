"""Records as a search takes them: what to try first, what to learn from."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Sequence
from typing import Any

from adt.compiler.passes.records import traces
from adt.tuning.records import BASELINE, Record

log = logging.getLogger("adt.tune")


def recorded_schedule(module: Any, trace: str) -> Any | None:
    """The Schedule that the text *trace* makes of the workload *module*; None: it does not apply."""
    try:
        return traces.scheduled(module, trace)
    except traces.TraceError as error:
        log.debug("a recorded trace does not apply: %s", error)
        return None


def by_promise(records: Sequence[Record]) -> Iterator[Record]:
    """The records of other devices, the most promising first: the fastest of each, then the second …

    Times of different devices are not compared. Failures and untuned schedules are left out, and so is
    what killed or hung a device, or computed wrong numbers on one; of several records of one trace, the
    first counts.
    """
    refused = {record.trace for record in records if record.failure and record.failure.quarantined}
    ran = [
        record for record in records if record.failure is None and record.trace not in {BASELINE, *refused}
    ]
    ran.sort(key=lambda record: (str(record.context), record.time, record.trace))
    devices = [list(of) for _, of in itertools.groupby(ran, key=lambda record: str(record.context))]
    seen: set[str] = set()
    for rank in itertools.zip_longest(*devices):
        for record in rank:
            if record is not None and record.trace not in seen:
                seen.add(record.trace)
                yield record


def select_for_learning(records: Sequence[Record], most: int) -> list[Record]:
    """At most *most* of the records: the fastest half, and of the others evenly, failures among them.

    Of several records of one trace, the last counts.
    """
    tried = list({record.trace: record for record in records if record.trace != BASELINE}.values())
    tried.sort(key=lambda record: (record.time, record.trace))
    if len(tried) <= most:
        return tried
    best, rest = tried[: most // 2], tried[most // 2 :]
    count = most - len(best)
    return best + [rest[index * len(rest) // count] for index in range(count)]
