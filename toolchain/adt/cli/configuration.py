"""``adt config`` and ``adt init``."""

from __future__ import annotations

from pathlib import Path

import typer

from adt.cli.command import Rendering, command
from adt.options.option import PathTo, option
from adt.options.sections import PlatformName


@command("ADT_BUILD_JOBS=2 adt config")
def config() -> Rendering:
    """Show every setting, its value and where it came from."""
    import adt

    resolved = adt.settings()
    texts = {
        key: ";".join(value) if isinstance(value, tuple) else str(value)
        for key, value in resolved.values.items()
    }
    return Rendering(
        "config",
        lambda: {"settings": dict(resolved.values), "origins": dict(resolved.origins)},
        (f"{key:<20} {text:<24} {resolved.origins[key]}" for key, text in texts.items()),
    )


class InitFlags(PlatformName):
    """Where, and for what."""

    directory: PathTo = option("Where adt.toml goes.", default=Path(), kw_only=False)


@command("adt init --for linux-aarch64", flags=InitFlags, json=False)
def init(flags: InitFlags) -> None:
    """Write an adt.toml with every setting, its meaning and its default."""
    from adt.host.initial import write_initial

    typer.echo(f"wrote {write_initial(flags.directory, flags.platform)}")
