"""The process of :class:`adt.tuning.building.Guarded`, that compiles candidates."""

from __future__ import annotations

from adt.host.child import serve
from adt.tuning.building import SPEECH, build
from adt.tuning.jobs import BuildJob, Built

NICENESS = 10
"""What measures on this machine, and the search, come first."""
IDLE = 600.0
"""Seconds without a candidate after which it ends; it is started again when there is one."""


def answer(job: BuildJob | None) -> Built | None:
    """Build a candidate; None: only get ready for one."""
    import tvm  # noqa: F401

    return build(job) if job is not None else None


if __name__ == "__main__":
    serve(answer, speech=SPEECH, niceness=NICENESS, idle=IDLE)
