"""What several records say of one candidate, and which candidate is the fastest."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from adt.tuning.records import BASELINE, Record

Key = tuple[str, str]
"""A candidate of one context: its workload's id, and its trace."""


def candidates(records: Iterable[Record]) -> dict[Key, list[Record]]:
    """The records of one context by what they are of, the untuned schedule under an empty trace."""
    found: dict[Key, list[Record]] = {}
    for record in records:
        found.setdefault((record.workload, record.trace), []).append(record)
    return found


CONFIRMED = "confirmed"
"""Key of :attr:`Record.options`: a candidate that had been measured before was measured again, with care."""


def typical(records: Sequence[Record]) -> Record | None:
    """Of one candidate's measurements the one in the middle, of two the faster.

    Where it was measured again to confirm it, only these measurements count: the fastest of many
    first times is always one that luck helped.

    None when it never ran, when the last attempt to confirm it failed, and when it once killed or
    hung a server, or computed wrong numbers: it is not to run again.
    """
    if quarantined(records):
        return None
    if confirming := [record for record in records if record.options.get(CONFIRMED)]:
        records = confirming
        if records[-1].failure is not None:
            return None
    times = [record.time for record in records if record.seconds]
    if not times:
        return None
    middle = statistics.median_low(times)
    return next(record for record in reversed(records) if record.time == middle)


def best(records: Iterable[Record]) -> dict[str, Record]:
    """Of one context by workload the fastest candidate, the untuned schedule left out."""
    fastest: dict[str, Record] = {}
    for (workload, trace), measured in candidates(records).items():
        found = typical(measured) if trace != BASELINE else None
        if found and (workload not in fastest or found.time < fastest[workload].time):
            fastest[workload] = found
    return fastest


def baselines(records: Iterable[Record]) -> dict[str, Record]:
    """Of one context by workload the untuned schedule."""
    untuned = candidates(record for record in records if record.trace == BASELINE)
    return {workload: found for (workload, _), measured in untuned.items() if (found := typical(measured))}


def known(records: Iterable[Record]) -> dict[Key, Record]:
    """Of one context each candidate's record that says most.

    That it is not to run again says most, then its newest time, then its newest failure.
    """
    found: dict[Key, Record] = {}
    for record in records:
        key = record.workload, record.trace
        if key not in found or _weight(record) >= _weight(found[key]):
            found[key] = record
    return found


def fastest(records: Iterable[Record], keep: int) -> set[Key]:
    """Of one context the *keep* fastest candidates of each workload."""
    ran: dict[str, list[tuple[float, Key]]] = {}
    for key, measured in candidates(records).items():
        found = typical(measured) if key[1] != BASELINE else None
        if found:
            ran.setdefault(key[0], []).append((found.time, key))
    return {key for times in ran.values() for _, key in sorted(times)[:keep]}


def quarantined(records: Iterable[Record]) -> set[Key]:
    """Of one context the candidates that are not to run again."""
    return {(r.workload, r.trace) for r in records if r.failure is not None and r.failure.quarantined}


def _weight(record: Record) -> int:
    if record.failure is None:
        return 1
    return 2 if record.failure.quarantined else 0
