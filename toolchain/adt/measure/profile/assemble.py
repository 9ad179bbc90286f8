"""A profile of a package, from what the runner measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from adt.measure.profile.join import join, read_report
from adt.measure.profile.totals import Limits, kernel_totals
from adt.model.inspection.inspection import Inspection
from adt.model.inspection.profile import Profile
from adt.model.package.files import LIBRARY
from adt.model.package.package import ModelPackage

MAIN = "main"
"""The entry that a package's graph describes."""


@dataclass(frozen=True)
class Where:
    """What a package was profiled on."""

    label: str
    """For people."""
    emulated: bool | None
    """Its processor is emulated; None: nobody knows."""
    via: str
    """``native`` or ``rpc``."""
    device_name: str = ""
    """What the runtime calls the device; empty: unknown."""
    device_type: str = ""
    """``cpu``, ``gpu`` or ``accelerator``; empty: unknown."""


def assemble(
    package: ModelPackage,
    entry: str,
    raw: Any,
    where: Where,
    *,
    plain_us: Sequence[float] = (),
    limits: Limits | None = None,
) -> Profile:
    """The profile of *package*.

    Args:
        raw: the ``profile`` object of the runner.
        plain_us: whole runs without a look at the calls, microseconds; empty: there were none.

    Raises:
        RunError: *raw* is no profile.
        PackageError: the package's graph is damaged.
    """
    report, target = read_report(raw), package.manifest.target
    inspection = Inspection(package)
    graph = inspection.graph if inspection.recorded and entry == MAIN else None
    joined = join(report, graph, target.device)
    name = f"{where.label}, {where.device_name}" if target.device == "opencl" else where.label
    limits = limits or Limits()
    return Profile(
        library_sha256=package.manifest.files[LIBRARY].sha256,
        device=name.rstrip(", "),
        emulated=where.emulated is True,
        runs=len(report.total_us),
        calls=joined.calls,
        package=package.manifest.name,
        entry=entry,
        via=where.via,
        target=f"{target.name} on {target.platform}",
        device_type=where.device_type,
        plain_us=sum(plain_us) / len(plain_us) if plain_us else None,
        profiled_us=sum(report.total_us) / len(report.total_us),
        peak_gflops=limits.gflops,
        peak_gbps=limits.gbps,
        kernels=kernel_totals(joined.calls, limits, emulated=where.emulated is True),
        notes=(*joined.notes, *_cautions(where, target.device)),
    )


def _cautions(where: Where, device: str) -> list[str]:
    if where.emulated:
        return ["emulated: not a device's speed"]
    said = []
    if where.emulated is None:
        said.append("whether its processor is emulated is not known: only a real one's times are a speed")
    if device == "opencl" and where.device_type == "cpu":
        said.append(f"OpenCL on a CPU ({where.device_name}): the times are not a GPU's")
    return said
