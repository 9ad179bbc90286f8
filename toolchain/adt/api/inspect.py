"""Look without changing: the doctor, the ELF audit, and what is in a package."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from adt.errors import ConfigError
from adt.host.disk import disk_errors
from adt.options.resolve import did_you_mean, load_settings

if TYPE_CHECKING:
    from adt.bundle.audit.report import ElfReport
    from adt.checkup.check import Area, Check
    from adt.checkup.diagnose import Diagnosis
    from adt.checkup.repair import Repair
    from adt.model.inspection.diff import PackageDiff
    from adt.model.inspection.inspection import Inspection


def doctor(
    *areas: Area | str,
    fix: bool = False,
    serial: str | None = None,
    ndk: str | None = None,
    package: Path | None = None,
    bundle: Path | None = None,
    timeout: float | None = None,
    on_check: Callable[[Check], None] = lambda _: None,
    on_repair: Callable[[Repair], None] = lambda _: None,
) -> Diagnosis:
    """Look at this machine, the NDK, the devices and a package: what was found, and what mends it.

    Args:
        areas: ``host``, ``ndk``, ``device``, ``rpc``, ``package``; everything when none is named.
        fix: mend what can be mended safely, then look again.
        timeout: seconds that each question to a device may take; None: device.timeout of the settings.
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
        {"build.ndk": ndk, "device.serial": serial, "device.timeout": timeout},
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
    """Audit ELF files, and those in directories, bundles, packages (.tar, too) and archives: would they load?

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
    from adt.bundle.audit.request import audit_paths
    from adt.model.package.files import is_archive
    from adt.model.package.package import load_package

    paths = tuple(load_package(p).path if is_archive(p) and p.is_file() else p for p in paths)
    resolved = load_settings({"build.ndk": ndk}).settings
    return audit_paths(paths, platform=platform, api_level=api_level, settings=resolved.build, bundle=bundle)


def inspect(package: Path) -> Inspection:
    """Open a package, a directory or .tar, to look into it: graph, kernels, memory, code, parameters.

    Raises:
        PackageError: it is no package, or was changed.
    """
    from adt.model.inspection.inspection import open_inspection

    return open_inspection(package)


def inspect_diff(before: Path, after: Path) -> PackageDiff:
    """What differs between two packages: fields of mod.json, kernels, parameters, sizes, memory.

    Raises:
        PackageError: one of them is no package, or was changed.
    """
    from adt.model.inspection.diff import compare

    return compare(inspect(before), inspect(after))


def inspect_html(package: Path, out: Path, *, profile: Path | None = None) -> None:
    """Write one self-contained page with the graph, the kernels and the memory plan of a package.

    Args:
        profile: times of the calls on a device (schema ``adt.profile``).

    Raises:
        PackageError: it is no package, has no ``inspect/``, or *profile* is no profile.
        MismatchError: *profile* is of another package.
    """
    from adt.host.cache import fresh_file
    from adt.model.inspection.page import render
    from adt.model.inspection.profile import load_profile

    found = inspect(package)
    times = load_profile(profile, found.package.manifest) if profile else None
    text = render(found, times)
    with fresh_file(out) as temporary:
        temporary.write_text(text, encoding="utf-8")


def named_kernels(found: Inspection, name: str | None) -> dict[str, str]:
    """The OpenCL source of the kernel *name*, or of those that the function *name* launches; None: of all.

    Raises:
        PackageError: there are no OpenCL kernels.
        ConfigError: there is none of that name.
    """
    texts = found.opencl()
    if name is None:
        return texts
    chosen = (name,) if name in texts else found.by_function().get(name, ())
    if not chosen:
        raise ConfigError(
            f"there is no kernel {name!r}.{did_you_mean(name, texts)}",
            remedy=f"Its kernels are: {', '.join(texts)}.",
        )
    return {kernel: texts[kernel] for kernel in chosen}


def write_texts(texts: Mapping[str, str], out: Path) -> None:
    """Write each text to its name below the directory *out*; other files there stay.

    Raises:
        DiskError: it cannot be written.
    """
    with disk_errors(f"writing {out}", out):
        out.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (out / name).write_text(text)
