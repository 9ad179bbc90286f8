"""The settings and the platform of a compile, with what the target's own words say of the platform."""

from __future__ import annotations

import logging
from dataclasses import replace

from adt.bundle.platforms import Platform, platform_named
from adt.model.targets.cpu import warn_of_sve
from adt.model.targets.reading import read_target
from adt.options.resolve import Resolved
from adt.options.sections import Settings

log = logging.getLogger("adt.compile")


def place(found: Resolved) -> tuple[Settings, Platform]:
    """The settings and the platform; says what a target in TVM's words is read as.

    A target that names its platform (``host``, or a triple) chooses it where nobody else did.

    Raises:
        ConfigError: the target or the platform is unknown.
    """
    settings = found.settings
    asked = read_target(settings.compile.target)
    if asked.platform and found.origins["build.platform"] == "default":
        settings = replace(settings, build=settings.build.but(platform=asked.platform))
    platform = platform_named(settings.build.platform)
    if not asked.plain:
        words = asked.words
        if asked.platform:
            words = words.replace(f"--for {asked.platform}", f"--for {platform.name}")
        left_out = f" (without meaning here: {', '.join(asked.left_out)})" if asked.left_out else ""
        log.info("target %s is read as: %s%s", settings.compile.target, words, left_out)
    if cpu := settings.compile.cpu or asked.cpu:
        warn_of_sve(cpu, platform, settings.build.api_level)
    return settings, platform
