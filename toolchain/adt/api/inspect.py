"""Look without changing: the doctor and the ELF audit."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from adt.config.load import load_settings
from adt.errors import ConfigError

if TYPE_CHECKING:
    from adt.checkup.check import Area, Check
    from adt.checkup.diagnose import Diagnosis
    from adt.checkup.mend import Repair
    from adt.target.audit.report import ElfReport


def doctor(
    *areas: Area | str,
    fix: bool = False,
    serial: str | None = None,
    ndk: str | None = None,
    package: Path | None = None,
    bundle: Path | None = None,
    on_check: Callable[[Check], None] = lambda _: None,
    on_repair: Callable[[Repair], None] = lambda _: None,
) -> Diagnosis:
    """Look at this machine, the NDK, the devices and a package: what was found, and what mends it.

    Args:
        areas: ``host``, ``ndk``, ``device``, ``rpc``, ``package``; everything when none is named.
        fix: mend what can be mended safely, then look again.
        on_check: called with each check as it comes.
        on_repair: called after each repair.

    Raises:
        ConfigError: an area that is none. A failed check does not raise: look at ``result.passed``.
    """
    from adt.checkup.check import Area
    from adt.checkup.diagnose import diagnose
    from adt.checkup.scope import make_scope

    for area in areas:
        if area not in list(Area):
            raise ConfigError(f"the doctor has no area {area!r}", remedy=f"Choose of: {', '.join(Area)}.")
    scope = make_scope(
        {"build.ndk": ndk, "device.serial": serial},
        os.environ,
        areas=tuple(map(Area, areas)),
        package=package,
        bundle=bundle,
    )
    return diagnose(scope, fix=fix, on_check=on_check, on_repair=on_repair)


def elf(
    *paths: Path,
    platform: str | None = None,
    api_level: int | None = None,
    ndk: str | None = None,
    bundle: Path | None = None,
) -> ElfReport:
    """Audit ELF files, and those in directories, bundles, packages and archives: would they load?

    Args:
        platform: what to judge them for; by default what the bundle or package among *paths*,
            or *bundle*, was made for, else what each file says of itself.
        api_level: Android API level to judge at; by default the bundle's, else each file's own.
        ndk: checks the system's symbols; by default the one that Android tools would find, if any.
        bundle: what will be on the device too.

    Raises:
        PackageError: there is nothing to audit. A file that would not load does not raise:
            look at ``report.verdict``.
    """
    from adt.target.audit.request import audit_paths

    resolved = load_settings({"build.ndk": ndk}).settings
    return audit_paths(paths, platform=platform, api_level=api_level, settings=resolved.build, bundle=bundle)
