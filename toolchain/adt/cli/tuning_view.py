"""A tuning while it goes on: lines that change in place on a terminal, else a line for what happens."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from adt.cli.wrapping import terminal, visible

if TYPE_CHECKING:
    from adt.tuning.status import Status


@contextmanager
def tuning_view(*, quiet: bool) -> Iterator[Callable[[Status], None]]:
    """Yield a function that takes how the tuning stands, from any thread; *quiet* shows nothing."""
    if quiet:
        yield lambda _status: None
    elif sys.stderr.isatty():
        with _on_terminal() as show:
            yield show
    else:
        from adt.tuning.live import Lines

        lines = Lines()

        def tell(status: Status) -> None:
            for line in lines.see(status):
                typer.echo(line, err=True)

        yield tell


@contextmanager
def _on_terminal() -> Iterator[Callable[[Status], None]]:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from adt.tuning.live import Clocks, screen

    console = Console(file=terminal())
    clocks = Clocks()
    with Live(console=console, refresh_per_second=4, transient=True) as live, _messages_above():

        def show(status: Status) -> None:
            clocks.see(status)
            text = "\n".join(screen(status, clocks, console.height - 1))
            live.update(Text(visible(text), no_wrap=True, overflow="ellipsis"))

        yield show


@contextmanager
def _messages_above() -> Iterator[None]:
    """What is logged meanwhile goes above the lines: rich has put itself in the place of stderr."""
    handlers = [one for one in logging.getLogger("adt").handlers if isinstance(one, logging.StreamHandler)]
    before = [handler.setStream(sys.stderr) for handler in handlers]
    try:
        yield
    finally:
        for handler, stream in zip(handlers, before, strict=True):
            if stream is not None:
                handler.setStream(stream)
