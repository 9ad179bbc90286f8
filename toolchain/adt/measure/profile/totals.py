"""One row for each kernel: its calls together, and how near they come to what the device can do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from adt.model.inspection.profile import EVENTS, HOST_CLOCK, CallTime, KernelTotal

MIXED = "mixed"


@dataclass(frozen=True)
class Limits:
    """What a device can do at best; None: not known, and nothing is compared with it."""

    gflops: float | None = None
    gbps: float | None = None

    def roof(self, intensity: float | None) -> float | None:
        """10⁹ operations a second that can be reached at so many for each byte; None: not known."""
        if intensity is None or self.gflops is None or self.gbps is None:
            return None
        return min(self.gflops, intensity * self.gbps)


def kernel_totals(calls: Sequence[CallTime], limits: Limits, *, emulated: bool) -> tuple[KernelTotal, ...]:
    """One row for each kernel, in the order of their first calls.

    Args:
        emulated: the times are an emulator's, and no speeds follow from them.
    """
    groups: dict[tuple[str, str], list[tuple[int, CallTime]]] = {}
    for at, call in enumerate(calls):
        groups.setdefault((call.name, call.device), []).append((at, call))
    clock = EVENTS if any(call.clock == EVENTS for call in calls) else HOST_CLOCK
    whole = sum(call.mean_us for call in calls if call.clock == clock)
    return tuple(
        replace(
            _total(rows[0][0], [call for _, call in rows], limits, emulated=emulated),
            share=_share([call.mean_us for _, call in rows if call.clock == clock], whole),
        )
        for rows in groups.values()
    )


def _share(times: Sequence[float], whole: float) -> float | None:
    """None: all times are by another clock."""
    return sum(times) / whole if times and whole > 0 else None


def _total(first: int, calls: Sequence[CallTime], limits: Limits, *, emulated: bool) -> KernelTotal:
    clocks = {call.clock for call in calls}
    mean = sum(call.mean_us for call in calls)
    flops, moved = _sum([call.flops for call in calls]), _sum([call.bytes for call in calls])
    intensity = flops / moved if flops is not None and moved else None
    return KernelTotal(
        name=calls[0].name,
        kind=calls[0].kind,
        device=calls[0].device,
        clock=clocks.pop() if len(clocks) == 1 else MIXED,
        calls=len(calls),
        first=first,
        mean_us=mean,
        min_us=sum(call.min_us for call in calls),
        max_us=sum(call.max_us for call in calls),
        share=None,
        flops=flops,
        bytes=moved,
        intensity=intensity,
        gflops=None if emulated else _per_us(flops, mean),
        gbps=None if emulated else _per_us(moved, mean),
        roof_gflops=limits.roof(intensity),
        shapes=tuple(dict.fromkeys(call.shapes for call in calls if call.arguments)),
    )


def _per_us(count: int | None, us: float) -> float | None:
    return count / us / 1e3 if count is not None and us > 0 else None


def _sum(values: Sequence[int | None]) -> int | None:
    return None if None in values else sum(value or 0 for value in values)


Key = Callable[[KernelTotal], tuple[bool, float] | float]
SORTS: dict[str, Key] = {
    "time": lambda row: (row.share is None, -row.mean_us),
    "calls": lambda row: -row.calls,
    "order": lambda row: row.first,
    "gflops": lambda row: -(row.gflops or 0.0),
    "flops": lambda row: -(row.flops or 0),
}
"""How a table may be sorted; each puts the first row first."""
UNTIMED = ("calls", "order", "flops")
"""Those that say nothing of times."""
