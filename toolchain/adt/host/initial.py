"""The adt.toml that ``adt init`` writes: every setting with its documentation, defaults commented out."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

from adt.config import settings
from adt.config.settings import SECTIONS, field_docs
from adt.errors import ConfigError
from adt.host.cache import fresh_file
from adt.host.resources import resource


def write_initial(directory: Path, platform: str) -> Path:
    """Write ``adt.toml`` into *directory* and return its path.

    Raises:
        ConfigError: there is one already; it is left alone.
        DiskError: there is no room or no access.
    """
    from jinja2 import Environment, StrictUndefined

    path = directory / "adt.toml"
    if path.exists():
        raise ConfigError(f"{path} exists; it was left alone", remedy="Edit it, or remove it first.")
    defaults = tomllib.loads(Path(settings.__file__).with_name("defaults.toml").read_text())
    sections = [
        {
            "name": name,
            "keys": [
                {"name": key, "doc": doc, "default": json.dumps(defaults[name][key])}
                for key, doc in field_docs(section).items()
            ],
        }
        for name, section in SECTIONS.items()
    ]
    template = (resource("templates") / "adt.toml.j2").read_text()
    environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False)
    text = environment.from_string(template).render(sections=sections, platform=json.dumps(platform))
    tomllib.loads(text)
    with fresh_file(path) as temporary:
        temporary.write_text(text)
    return path
