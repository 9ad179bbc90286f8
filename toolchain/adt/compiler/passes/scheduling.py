"""Parts that schedules for CPUs and for GPUs share."""

from __future__ import annotations


class NoSchedule(Exception):
    """A rule does not take a kernel; the message is the reason, for the report."""


def divisors(extent: int, most: int) -> list[int]:
    """Return the divisors of *extent*, from 1 up to *most*, in order."""
    return [size for size in range(1, max(1, min(extent, most)) + 1) if extent % size == 0]
