"""The adt.toml that ``adt init`` writes: every setting with its documentation, defaults commented out."""

from __future__ import annotations

import json
import textwrap
import tomllib
from pathlib import Path

from adt.errors import ConfigError
from adt.host.cache import write_text
from adt.host.resources import resource
from adt.options.option import options_of
from adt.options.sections import SECTIONS, BuildSettings

WIDTH = 108


def write_initial(directory: Path, platform: str | None) -> Path:
    """Write ``adt.toml`` into *directory* and return its path.

    Raises:
        ConfigError: there is one already; it is left alone.
        DiskError: there is no room or no access.
    """
    from jinja2 import Environment, StrictUndefined

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
