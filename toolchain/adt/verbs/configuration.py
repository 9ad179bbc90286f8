"""``adt config`` and ``adt init``."""

from __future__ import annotations

import json
import textwrap
import tomllib
from pathlib import Path
from typing import Annotated

import typer

from adt.cli.command import Rendering, command
from adt.errors import ConfigError
from adt.host.directories import resource
from adt.options.option import option, options_of
from adt.options.resolve import load_settings
from adt.options.sections import SECTIONS, BuildSettings

WIDTH = 108
"""Columns of the comments in adt.toml."""


@command("ADT_BUILD_JOBS=2 adt config")
def config() -> Rendering:
    """Show every setting, its value and where it came from."""
    resolved = load_settings()
    texts = {
        key: ";".join(value) if isinstance(value, tuple) else str(value)
        for key, value in resolved.values.items()
    }
    return Rendering(
        "config",
        {"settings": resolved.values, "origins": resolved.origins},
        (f"{key:<20} {text:<24} {resolved.origins[key]}" for key, text in texts.items()),
    )


@command("adt init --for linux-aarch64", json=False)
def init(
    platform: Annotated[str | None, BuildSettings.platform],
    directory: Annotated[Path, option("Where adt.toml goes.", default=Path(), kw_only=False)],
) -> None:
    """Write an adt.toml with every setting, its meaning and its default."""
    typer.echo(f"wrote {write_initial(directory, platform)}")


def write_initial(directory: Path, platform: str | None) -> Path:
    """Write a new ``adt.toml`` into *directory* and return its path; an existing one is left alone."""
    from jinja2 import Environment, StrictUndefined

    from adt.host.cache import write_text

    path = directory / "adt.toml"
    if path.exists():
        raise ConfigError(f"{path} exists; it was left alone", remedy="Edit it, or remove it first.")
    sections = [
        {
            "name": name,
            "keys": [
                {
                    "name": about.key.partition(".")[2],
                    "doc": textwrap.fill(about.doc, WIDTH),
                    "default": json.dumps(about.default),
                }
                for about in options_of(section).values()
            ],
        }
        for name, section in SECTIONS.items()
    ]
    template = (resource("templates") / "adt.toml.j2").read_text()
    environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False)
    text = environment.from_string(template).render(
        sections=sections, platform=json.dumps(platform or BuildSettings().platform)
    )
    tomllib.loads(text)
    write_text(path, text)
    return path
