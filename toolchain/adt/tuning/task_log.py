"""A log for each task: one line for each candidate, in the order in which they were kept."""

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TextIO

from adt.tuning.records import BASELINE, Record

log = logging.getLogger("adt.tune")

LONGEST = 80
"""Characters of a task's name in a file name."""


class TaskLogs:
    """The logs of one tuning, ``<database>/logs/<run>/<number>-<task>.log``; a later session appends.

    They are for people: when they cannot be written that is said once, and the tuning goes on.
    """

    def __init__(self, database: Path, run: str, tasks: Sequence[tuple[str, int | None]]) -> None:
        """Open a log for each of *tasks*: name, and operations of one call (None: not known), in order."""
        self.directory = database / "logs" / run[:16]
        self._numbers = {name: number for number, (name, _) in enumerate(tasks, start=1)}
        self._flops = dict(tasks)
        self._files: dict[str, TextIO] = {}
        self._best: dict[str, float] = {}
        self._broken = False

    def __enter__(self) -> TaskLogs:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files.values():
            with contextlib.suppress(OSError):
                file.close()

    def add(self, record: Record) -> None:
        """Write the line of *record*."""
        if self._broken:
            return
        try:
            self._file(record.task).write(self._line(record) + "\n")
        except OSError as error:
            self._broken = True
            log.warning("the tasks' logs cannot be written (%s); the records are kept all the same", error)

    def path(self, task: str) -> Path:
        """Return the path of the log of *task*."""
        name = re.sub(r"[^A-Za-z0-9_.-]+", "_", task)[:LONGEST]
        return self.directory / f"{self._numbers.get(task, 0):03}-{name}.log"

    def _file(self, task: str) -> TextIO:
        if task not in self._files:
            path = self.path(task)
            path.parent.mkdir(parents=True, exist_ok=True)
            self._files[task] = path.open("a", encoding="utf-8", buffering=1)
        return self._files[task]

    def _line(self, record: Record) -> str:
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.at))
        what = "untuned" if record.trace == BASELINE else "candidate"
        where = record.on.name if record.on else "-"
        if record.on and record.on.celsius is not None:
            where += f" {record.on.celsius:.1f} °C"
        if record.failure is not None:
            message = " ".join(record.failure.message.split())
            return f"{when} {what} {where} {record.failure.kind}: {message}"
        if record.on and record.on.emulated:
            return f"{when} {what} {where} ran (emulated: no device's speed)"
        best = min(record.time, self._best.get(record.task, record.time))
        self._best[record.task] = best
        flops = self._flops.get(record.task)
        speed = f" {flops / record.time / 1e9:.2f} GFLOPS" if flops and record.time > 0 else ""
        return f"{when} {what} {where} {1e3 * record.time:.6g} ms{speed}, best {1e3 * best:.6g} ms"
