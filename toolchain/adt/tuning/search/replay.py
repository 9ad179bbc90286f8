"""Schedules that are known already: records back in TVM's form, and traces of other devices for this one."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Sequence
from typing import Any

from adt.tuning.records import BASELINE, Record

log = logging.getLogger("adt.tune")


def scheduled(module: Any, trace: str) -> Any | None:
    """The Schedule that the text *trace* makes of the workload *module*; None: it does not apply."""
    from adt.model.tuning import traces

    try:
        return traces.scheduled(module, trace)
    except traces.TraceError as why:
        log.debug("a recorded trace does not apply: %s", why)
        return None


def replayed(module: Any, trace: Any, postprocs: Sequence[Any]) -> Any | None:
    """The Schedule that the decisions of TVM's *trace* make of the workload *module* for another device.

    Args:
        postprocs: TVM's, of the device's space: they finish the schedule.

    Returns:
        None: it does not apply, or a postprocessor refuses it (the device has less local memory, say).
    """
    from tvm import s_tir

    schedule = s_tir.Schedule(module, error_render_level="none")
    try:
        trace.apply_to_schedule(schedule, remove_postproc=True)
        schedule.enter_postproc()
        return schedule if all(postproc.apply(schedule) for postproc in postprocs) else None
    except Exception as why:  # as above
        log.debug("a trace does not apply: %s", why)
        return None


def candidate(schedule: Any) -> Any:
    """TVM's MeasureCandidate of *schedule*."""
    from tvm.s_tir import meta_schedule as ms

    arguments = ms.arg_info.ArgInfo.from_entry_func(schedule.mod, remove_preproc=True)
    return ms.MeasureCandidate(schedule, arguments)


def by_merit(records: Sequence[Record]) -> Iterator[Record]:
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


def worth_learning(records: Sequence[Record], most: int) -> list[Record]:
    """At most *most* of the records: the fastest half, and of the others evenly, failures among them.

    Of several records of one trace, the last counts.
    """
    tried = list({record.trace: record for record in records if record.trace != BASELINE}.values())
    tried.sort(key=lambda record: (record.time, record.trace))
    if len(tried) <= most:
        return tried
    best, rest = tried[: most // 2], tried[most // 2 :]
    wanted = most - len(best)
    return best + [rest[index * len(rest) // wanted] for index in range(wanted)]
