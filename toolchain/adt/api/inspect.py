"""Look without changing: the doctor, the ELF audit, and what is in a package."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from adt.api.requests import DoctorRequest, ElfRequest
from adt.errors import ConfigError
from adt.host.cache import write_text
from adt.host.contained import file_name
from adt.options.option import options_of
from adt.options.request import takes
from adt.options.resolve import did_you_mean
from adt.package.package import load_package

if TYPE_CHECKING:
    from adt.bundle.audit.report import ElfReport
    from adt.checkup.diagnosis import Diagnosis
    from adt.options.option import AnyPath
    from adt.package.inspection.diff import PackageDiff
    from adt.package.inspection.inspection import Inspection


@takes(DoctorRequest)
def doctor(request: DoctorRequest) -> Diagnosis:
    """Look at this machine, the NDK, the devices and a package: what is wrong, and what mends it.

    Raises:
        ConfigError: an area that is none. A failed check does not raise: look at ``result.passed``.
    """
    from adt.checkup.check import Area, make_scope
    from adt.checkup.diagnosis import diagnose

    for area in request.areas:
        if area not in list(Area):
            raise ConfigError(f"the doctor has no area {area!r}", remedy=f"Choose of: {', '.join(Area)}.")
    flags = {
        about.key: getattr(request, name) or None
        for name, about in options_of(DoctorRequest).items()
        if about.key
    }
    areas = tuple(map(Area, request.areas))
    scope = make_scope(flags, os.environ, areas=areas, package=request.package, bundle=request.bundle)
    return diagnose(scope, fix=request.fix, on_check=request.on_check, on_repair=request.on_repair)


@takes(ElfRequest)
def elf(request: ElfRequest) -> ElfReport:
    """Audit ELF files, and those in directories, bundles, packages (.tar, too) and archives: would they load?

    Raises:
        PackageError: there is nothing to audit. A file that would not load does not raise:
            look at ``report.verdict``.
    """
    from adt.bundle.audit.auditing import audit_paths
    from adt.package.files import is_archive

    paths = tuple(load_package(p).path if is_archive(p) and p.is_file() else p for p in request.paths)
    return audit_paths(
        paths,
        platform=request.platform,
        api_level=request.api_level,
        settings=request.settings.build,
        bundle=request.bundle,
    )


def inspect(package: AnyPath) -> Inspection:
    """Open a package to look into it: graph, kernels, memory, code, parameters.

    Raises:
        PackageError: it is no package, or was changed.
    """
    from adt.package.inspection.inspection import open_inspection

    return open_inspection(Path(package))


def inspect_diff(before: AnyPath, after: AnyPath) -> PackageDiff:
    """Compare two packages: fields of mod.json, kernels, parameters, sizes, memory.

    Raises:
        PackageError: one of them is no package, or was changed.
    """
    from adt.package.inspection.diff import compare

    return compare(inspect(before), inspect(after))


def inspect_html(package: AnyPath, out: AnyPath, *, profile: AnyPath | None = None) -> None:
    """Write one self-contained page with the graph, the kernels and the memory plan of a package.

    Args:
        profile: times of the calls on a device (schema ``adt.profile``).

    Raises:
        PackageError: it is no package, has no ``inspect/``, or *profile* is no profile.
        MismatchError: *profile* is of another package.
    """
    from adt.package.inspection.page import render
    from adt.package.inspection.profile import load_profile

    inspection = inspect(package)
    times = load_profile(Path(profile), inspection.package.manifest) if profile else None
    write_text(Path(out), render(inspection, times))


def named_kernels(inspection: Inspection, device: str, name: str | None) -> dict[str, str]:
    """The source of the kernel *name*, or of those that the function *name* launches; None: of all.

    Args:
        device: ``opencl`` or ``cuda``.

    Raises:
        PackageError: there are no kernels for it.
        ConfigError: there is none of that name.
    """
    texts = inspection.sources(device)
    if name is None:
        return texts
    chosen = (name,) if name in texts else inspection.by_function().get(name, ())
    if not chosen:
        raise ConfigError(
            f"there is no kernel {name!r}.{did_you_mean(name, texts)}",
            remedy=f"Its kernels are: {', '.join(texts)}.",
        )
    return {kernel: texts[kernel] for kernel in chosen}


def write_texts(texts: Mapping[str, str], out: Path) -> None:
    """Write each text to its name in the directory *out*; other files there stay.

    Raises:
        DiskError: it cannot be written.
        PackageError: a name, which comes out of a package, is not one of a file; nothing was written.
    """
    files = [(out / file_name(name), text) for name, text in texts.items()]
    for path, text in files:
        write_text(path, text)
