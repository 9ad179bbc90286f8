"""Several devices at once: what is shown while it goes on, and at the end."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import typer

from adt.cli.command import Rendering
from adt.cli.terminal import silence_line, silent_text, terminal, visible
from adt.options.option import Options, option

if TYPE_CHECKING:
    from rich.table import Table

    from adt.device.parallel import Event, Outcomes
    from adt.errors import AdtError

T = TypeVar("T")
RULED = {True: ("failed", "red"), False: ("done", "green")}


class DeviceFlags(Options):
    """Choice of devices."""

    serial: str | None = option(
        "The device, or several: a,b. Else ANDROID_SERIAL, else the only one.",
        "--serial",
        "-s",
        default=None,
        offers="serials",
    )
    everyone: bool = option("Every device that adb sees.", "--all", default=False)


def several(flags: DeviceFlags) -> tuple[str, ...]:
    """Return the serials where several devices are meant; none: the one that is meant without a list."""
    from adt.device.parallel import named_serials

    serials = named_serials(flags.serial, everyone=flags.everyone)
    return serials if len(serials) > 1 or flags.everyone else ()


@contextmanager
def live_table(serials: Sequence[str], *, quiet: bool) -> Iterator[Callable[[Event], None]]:
    """Yield a function that takes what happens: a table that changes in place on a terminal, else lines.

    Piped, only the end of each device is a line, without the error, which :func:`rendering` says; *quiet*
    shows nothing.
    """
    if quiet:
        yield lambda _event: None
        return
    if not sys.stderr.isatty():
        silent: dict[str, Callable[[str, float], None]] = defaultdict(silence_line)

        def tell(event: Event) -> None:
            silent[event.serial](event.text, event.silent)
            if event.done:
                typer.echo(f"{event.serial}: {'failed' if event.failed else event.text}", err=True)

        yield tell
        return
    from rich.console import Console
    from rich.live import Live

    rows: dict[str, tuple[str, str, str]] = dict.fromkeys(serials, ("waiting", "dim", ""))
    with Live(_table(rows), console=Console(file=terminal()), refresh_per_second=8, transient=True) as live:

        def show(event: Event) -> None:
            state, style = RULED[event.failed] if event.done else ("working", "cyan")
            rows[event.serial] = (state, style, silent_text(event.text, event.silent))
            live.update(_table(rows))

        yield show


def _table(rows: dict[str, tuple[str, str, str]]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for heading in ("device", "state", "what"):
        table.add_column(heading, no_wrap=heading != "what", overflow="ellipsis")
    for serial, (state, style, text) in rows.items():
        table.add_row(Text(visible(serial)), Text(state, style=style), Text(visible(text)))
    return table


def rendering(verb: str, outcomes: Outcomes[T], summary: Callable[[T], str]) -> Rendering:
    """Return the output about each device; the exit code is that of the first one that failed, if any."""
    return Rendering(verb, {"devices": outcomes.all}, _lines(outcomes, summary), exit_code=outcomes.exit_code)


def _lines(outcomes: Outcomes[T], summary: Callable[[T], str]) -> Iterator[str]:
    width = max(len(outcome.serial) for outcome in outcomes.all)
    for outcome in outcomes.all:
        error, value = outcome.error, outcome.value
        text = summary(value) if value is not None else f"error: {error and error.what}"
        yield f"{outcome.serial:<{width}}  {text}"
    _remedies({outcome.serial: outcome.error for outcome in outcomes.failed if outcome.error})
    if outcomes.failed:
        typer.echo(f"{len(outcomes.failed)} of {len(outcomes.all)} devices failed", err=True)


def _remedies(errors: Mapping[str, AdtError]) -> None:
    """Print details and remedy of each device's error, those of several devices once."""
    serials: dict[tuple[str, str], list[str]] = {}
    for serial, error in errors.items():
        serials.setdefault((error.details.rstrip(), error.remedy), []).append(serial)
    for details in dict.fromkeys(details for details, _ in serials if details):
        typer.echo(details, err=True)
    for (_, remedy), names in serials.items():
        typer.echo(f"{', '.join(names)}: remedy: {remedy}", err=True)
