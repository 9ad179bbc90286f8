"""``adt config`` and ``adt init``."""

from __future__ import annotations

from pathlib import Path

import typer

from adt.cli.app import emit_json
from adt.cli.command import command
from adt.options.option import PathTo, option
from adt.options.sections import PlatformName


@command("ADT_BUILD_JOBS=2 adt config")
def config(as_json: bool) -> None:
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


class InitFlags(PlatformName):
    """Where, and for what."""

    directory: PathTo = option("Where adt.toml goes.", default=Path(), kw_only=False)


@command("adt init --for linux-aarch64", flags=InitFlags, json=False)
def init(flags: InitFlags) -> None:
    """Write an adt.toml with every setting, its meaning and its default."""
    from adt.host.initial import write_initial

    typer.echo(f"wrote {write_initial(flags.directory, flags.platform)}")
