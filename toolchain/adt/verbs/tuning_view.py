"""A tuning while it goes on: lines that change in place on a terminal, else a line for what happens."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import typer

from adt.cli.terminal import LINE_SECONDS, moves, span, terminal, visible
from adt.host.document import aligned
from adt.tuning.results import DeviceStatus, Status, TaskStatus


def tuning_view(*, quiet: bool) -> AbstractContextManager[Callable[[Status], None]]:
    """Make a function that takes how the tuning stands, from any thread; *quiet* shows nothing."""
    if quiet:
        return nullcontext(lambda _status: None)
    return _on_terminal() if moves() else nullcontext(Lines().show)


@contextmanager
def _on_terminal() -> Iterator[Callable[[Status], None]]:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(file=terminal())
    clocks = Clocks()
    with Live(console=console, refresh_per_second=4, transient=True) as live, _messages_above():

        def show(status: Status) -> None:
            clocks.update(status)
            text = "\n".join(screen(status, clocks, console.height - 1))
            live.update(Text(visible(text), no_wrap=True, overflow="ellipsis"))

        yield show


@contextmanager
def _messages_above() -> Iterator[None]:
    """Put log messages above the lines meanwhile: rich has put itself in the place of stderr."""
    handlers = [
        handler for handler in logging.getLogger("adt").handlers if isinstance(handler, logging.StreamHandler)
    ]
    before = [handler.setStream(sys.stderr) for handler in handlers]
    try:
        yield
    finally:
        for handler, stream in zip(handlers, before, strict=True):
            if stream is not None:
                handler.setStream(stream)


ACTIVE = ("searching", "building", "measuring")
ENDED = ("done", "stopped", "exhausted")
AT_WORK = ("idle", "measuring")
"""States between which a device changes all the time; every other change is shown at once."""


class Clocks:
    """Time for which each task has been worked on: from when it first was, until it ended."""

    def __init__(self) -> None:
        self._began: dict[str, float] = {}
        self._ended: dict[str, float] = {}

    def update(self, status: Status) -> None:
        """Take note of what is worked on at this moment."""
        for task in status.tasks:
            if task.state != "waiting":
                self._began.setdefault(task.name, status.elapsed)
            if task.state in ENDED:
                self._ended.setdefault(task.name, status.elapsed)
            else:
                self._ended.pop(task.name, None)

    def seconds(self, name: str, now: float) -> float:
        """Return the seconds that the task *name* has been worked on at *now*."""
        return self._ended.get(name, now) - self._began.get(name, now)


def task_line(number: int, total: int, task: TaskStatus, seconds: float, *, emulated: bool = False) -> str:
    """Format the line of AutoTVM's progress: the last candidate's speed and the best one's.

    *number* counts from 1 to *total*, *seconds* is the work on the task; an emulator's times are not shown.
    """
    width = len(str(total))
    planned = f"/{task.planned}" if task.planned else ""
    failed = f", {task.failed} failed" if task.failed else ""
    speeds = "emulated: no device's speed" if emulated else _speeds(task)
    end = f" {task.state.capitalize()}." if task.state in ENDED else ""
    return (
        f"[Task {number:>{width}}/{total}]  {speeds} | Progress: ({task.trials}{planned}){failed} | "
        f"{seconds:.2f} s{end} | {task.name}"
    )


def _speeds(task: TaskStatus) -> str:
    if task.flops:
        current, best = (task.gflops(seconds) or 0.0 for seconds in (task.current, task.best))
        return f"Current/Best: {current:8.2f}/{best:8.2f} GFLOPS"
    shown = (f"{1000 * seconds:8.4f}" if seconds else "       -" for seconds in (task.current, task.best))
    return f"Current/Best: {'/'.join(shown)} ms"


def summary_line(status: Status) -> str:
    """Summarize how the tuning stands in one line."""
    measuring = sum(device.state == "measuring" for device in status.devices)
    live = sum(device.state in AT_WORK for device in status.devices)
    parts = [f"trials {status.done} of {status.total}", f"{status.kept} kept"]
    if failed := failures_text(status.failures):
        parts.append(f"failed: {failed}")
    parts.append(f"{measuring} of {live} devices measure, {status.building} building, {status.ready} ready")
    left = f", about {span(status.left)} left" if status.left is not None else ""
    return " | ".join([*parts, f"{span(status.elapsed)}{left}"])


def failures_text(failures: Mapping[str, int]) -> str:
    """Count failed candidates by cause, the most frequent first; empty for none."""
    rows = sorted(failures.items(), key=lambda row: (-row[1], row[0]))
    return ", ".join(f"{count} {kind}" for kind, count in rows if count)


def device_cells(device: DeviceStatus) -> tuple[str, ...]:
    """Format name, label, state, counts and temperature of a device, and its note."""
    counts = f"{device.measured} measured"
    if device.failed or device.restarts:
        counts += f", {device.failed} failed, {device.restarts} restarts"
    heat = "" if device.celsius is None else f"{device.celsius:.0f} °C"
    note = "; ".join(filter(None, ["emulated: no device's speed" * device.emulated, device.note]))
    return device.name, device.label, device.state, counts, heat, note


def screen(status: Status, clocks: Clocks, height: int) -> list[str]:
    """Fill at most *height* lines: the summary, the devices, and the tasks, those at work first."""
    lines = [summary_line(status)]
    if status.devices:
        lines += aligned([device_cells(device) for device in status.devices])
    room = max(3, height - len(lines) - 1)
    rows = list(enumerate(status.tasks, start=1))
    if len(rows) > room:
        rows = sorted(sorted(rows, key=_rank)[: room - 1])
    total = len(status.tasks)
    for number, task in rows:
        lines.append(
            task_line(
                number, total, task, clocks.seconds(task.name, status.elapsed), emulated=_emulated(status)
            )
        )
    if hidden := total - len(rows):
        shown = {number for number, _ in rows}
        states = [task.state for number, task in enumerate(status.tasks, start=1) if number not in shown]
        counts = ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states)))
        lines.append(f"… and {hidden} more tasks: {counts}")
    return lines


def _rank(row: tuple[int, TaskStatus]) -> int:
    """Return the place of a task's row: those at work come first, then those that wait."""
    state = row[1].state
    return 0 if state in ACTIVE else 1 if state == "waiting" else 2


class Lines:
    """View for a file or a pipe: an event is a line at once, what goes on one every 10 seconds."""

    def __init__(self) -> None:
        self._clocks = Clocks()
        self._tasks: dict[str, TaskStatus] = {}
        self._devices: dict[str, DeviceStatus] = {}
        self._last = 0.0

    def show(self, status: Status) -> None:
        """Print the lines that are due now that things stand so."""
        for line in self.update(status):
            typer.echo(line, err=True)

    def update(self, status: Status) -> list[str]:
        """Return the lines to print now that things stand so."""
        self._clocks.update(status)
        due = status.elapsed - self._last >= LINE_SECONDS
        lines = [*self._device_lines(status.devices), *self._task_lines(status, due)]
        if due:
            self._last = status.elapsed
            lines.append(summary_line(status))
        return lines

    def _device_lines(self, devices: Sequence[DeviceStatus]) -> Iterator[str]:
        for device in devices:
            before = self._devices.get(device.name)
            self._devices[device.name] = device
            if before is None or _coarse_state(before) != _coarse_state(device):
                label = f" ({device.label})" if device.label not in ("", device.name) else ""
                note = f": {device.note}" if device.note else ""
                yield f"device {device.name}{label} {_coarse_state(device)}{note}"

    def _task_lines(self, status: Status, due: bool) -> Iterator[str]:
        for number, task in enumerate(status.tasks, start=1):
            before = self._tasks.get(task.name)
            ended = task.state in ENDED and (before is None or before.state not in ENDED)
            changed = task.trials != (before.trials if before else 0)
            if ended or (due and changed):
                self._tasks[task.name] = task
                seconds = self._clocks.seconds(task.name, status.elapsed)
                yield task_line(number, len(status.tasks), task, seconds, emulated=_emulated(status))


def _coarse_state(device: DeviceStatus) -> str:
    return "ready" if device.state in AT_WORK else device.state


def _emulated(status: Status) -> bool:
    return any(device.emulated for device in status.devices)
