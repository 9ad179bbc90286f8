"""``adt profile``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from adt.api.requests import ProfileRequest
from adt.cli.app import Json, Verbose, app, emit_json
from adt.cli.completions import one_of
from adt.cli.options import Given, command_of


@app.command(epilog="Example: adt profile model-pkg --html profile.html --trace trace.json")
@command_of(ProfileRequest)
def profile(
    given: Given,
    sort: Annotated[
        str,
        typer.Option(
            help="The first row: the most of this.", **one_of("time", "calls", "order", "gflops", "flops")
        ),
    ] = "",
    everything: Annotated[bool, typer.Option("--all", help="Every kernel, not only the first 20.")] = False,
    trace: Annotated[
        Path | None, typer.Option(help="Write a trace for chrome://tracing and Perfetto.", metavar="FILE")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page with plots.", metavar="FILE")] = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Show where the time of a package goes: kernel by kernel, with FLOPs, bytes and speeds."""
    import adt
    from adt.cli.arrays import load_inputs
    from adt.host.manifest import fields_of
    from adt.measure.profile.table import check_sort, table

    check_sort(sort)
    load_inputs(given)
    found = adt.profile(**given)
    lines = table(found, sort=sort, everything=everything)
    if trace:
        adt.profile_trace(found, trace)
    if html:
        adt.profile_html(found, html)
    if as_json:
        emit_json("profile", fields_of(found))
        return
    for line in lines:
        typer.echo(line)
    for name in filter(None, (trace, html)):
        typer.echo(f"wrote {name}")
