"""``adt config`` and ``adt init``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from adt.cli.app import Json, Verbose, app, emit_json
from adt.cli.options import Platform


@app.command("config", epilog="Example: ADT_BUILD_JOBS=2 adt config")
def config(as_json: Json = False, verbose: Verbose = False) -> None:
    """Show every setting, its value and where it came from."""
    import adt

    resolved = adt.settings()
    rows = resolved.values
    if as_json:
        emit_json("config", {"settings": dict(rows), "origins": dict(resolved.origins)})
        return
    for key, value in rows.items():
        shown = ";".join(value) if isinstance(value, tuple) else str(value)
        typer.echo(f"{key:<20} {shown:<24} {resolved.origins[key]}")


@app.command("init", epilog="Example: adt init --for linux-aarch64")
def init(
    directory: Annotated[Path, typer.Argument(help="Where adt.toml goes.")] = Path(),
    platform: Platform = None,
    verbose: Verbose = False,
) -> None:
    """Write an adt.toml with every setting, its meaning and its default."""
    from adt.host.initial import write_initial

    typer.echo(f"wrote {write_initial(directory, platform)}")
