"""Scope of the doctor's checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from adt.bundle.platforms import PRESETS, Platform
from adt.checkup.check import Area
from adt.errors import AdtError
from adt.options.resolve import load_settings, show_programs
from adt.options.sections import Settings


@dataclass(frozen=True)
class Scope:
    """Areas to look at, and the settings."""

    settings: Settings
    environ: Mapping[str, str]
    areas: tuple[Area, ...] = ()
    """The areas that were named; empty: all of them."""
    platform_chosen: bool = False
    """``build.platform`` was chosen by somebody; else its default says nothing of what is needed."""
    package: Path | None = None
    bundle: Path | None = None
    settings_error: AdtError | None = None
    """Reason why the settings are the defaults and not the user's."""

    @property
    def serial(self) -> str:
        """The device that was named; empty when none was."""
        return self.settings.device.serial or self.environ.get("ANDROID_SERIAL", "")

    def named(self, area: Area) -> bool:
        """Return True if *area* was asked for by name: what it needs must then be there."""
        return area in self.areas

    @property
    def platform(self) -> Platform | None:
        """Return the platform that the settings build for; None when they name none."""
        platform, _ = PRESETS.get(self.settings.build.platform, (None, ""))
        return platform

    def builds_for(self, platform: Platform) -> bool:
        """Return True if *platform* is the one that was chosen to build for."""
        return self.platform_chosen and self.platform is platform


def make_scope(
    flags: Mapping[str, object],
    environ: Mapping[str, str],
    *,
    areas: tuple[Area, ...] = (),
    package: Path | None = None,
    bundle: Path | None = None,
) -> Scope:
    """Resolve the settings; when they cannot be, go on with the defaults and say why.

    *flags* maps ``section.key`` to value, as :func:`adt.options.resolve.load_settings` takes them.
    """
    error: AdtError | None = None
    try:
        resolved = load_settings(flags, environ=environ)
    except AdtError as cause:
        error, resolved = cause, load_settings(flags, environ={}, start=Path("/"))
    show_programs(resolved)  # a compiler is asked for its version
    return Scope(
        resolved.settings,
        environ,
        areas,
        resolved.origins["build.platform"] != "default",
        package,
        bundle,
        error,
    )
