"""Libraries beside adt's own kernels: which is faster, and are both right?"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from adt.api.bench import BenchResult, bench_ab
from adt.api.bundles import package_bundle
from adt.api.model import job_of, tuned_job
from adt.api.profile import profile
from adt.api.requests import AbRequest, CompareOffloadRequest, ProfileRequest
from adt.bundle.libraries import LIBRARIES, NONE, parse_libraries, titles
from adt.errors import ConfigError, ModelError
from adt.measure.statistics import Interval
from adt.measure.verify import Verification, compare
from adt.numerics import TOLERANCES
from adt.options.request import takes
from adt.package.inspection.inspection import Inspection
from adt.package.inspection.profile import Profile
from adt.package.package import ModelPackage

if TYPE_CHECKING:
    from adt.compiler.compilation import CompileJob

log = logging.getLogger("adt.bench")

CLOSE = 1e-5
"""In float32: how far outputs may be apart, as a share of the largest."""


@dataclass(frozen=True)
class Variant:
    """The model, compiled in one way."""

    package: ModelPackage
    bench: BenchResult
    agreement: Verification
    """Its outputs against the reference's."""
    profile: Profile | None
    """Its calls; None where times do not count."""
    planned_bytes: int
    """Bytes that TVM plans for values between its calls; …"""
    grown_kb: int | None
    """Growth of the process in KiB, with weights and a CPU library's workspace (None: not known)."""
    workspace_bytes: int | None
    """Bytes in which a GPU's libraries compute; None: no such library, or no times."""

    @property
    def inspection(self) -> Inspection:
        """Return what the package tells of itself."""
        return Inspection(self.package)


@dataclass(frozen=True)
class OffloadComparison:
    """A model with libraries and without."""

    fused: Variant
    """All of it by adt's kernels."""
    library: Variant
    between: Verification
    """The library's outputs against the fused ones'."""
    layers: Profile | None
    """The library's layers, each in a call of its own, with what it costs to go in and out; None where times
    do not count."""
    reference: str
    """Description of what computed the reference."""
    ratio: Interval | None
    """Speed-up by the library, with 95 % confidence; None where times do not count."""
    round_ms: tuple[tuple[float, float], ...]
    """Medians of both in each round, milliseconds."""

    @property
    def passed(self) -> bool:
        """Return True if both give the reference's outputs, and each other's."""
        return all(
            comparison.passed for comparison in (self.between, self.fused.agreement, self.library.agreement)
        )


@takes(CompareOffloadRequest)
def compare_offload(request: CompareOffloadRequest) -> OffloadComparison:
    """Compile a model with libraries and without, compare their outputs and the reference's, and time both.

    The two take turns as in :func:`bench_ab`, and each is profiled. In float32 outputs may differ by 1e-5
    of the largest, which numpy's ``allclose`` takes with ``rtol=1e-5, atol=1e-5 * largest``; in half
    precision by what the same kernels on two devices may. A difference beyond that does not raise: look at
    ``result.passed``.

    Raises:
        ConfigError: *offload* names no library.
        ModelError: nothing of the model goes to them.
        MismatchError: no bundle has them.
        RunError, CompileError, …: see :mod:`adt.errors`.
    """
    if not parse_libraries(request.offload):
        raise ConfigError(
            "no library is named, with which adt's kernels would be compared",
            remedy=f"Add --offload with one of: {', '.join(LIBRARIES)}.",
        )
    job = tuned_job(job_of(request))
    fused, library = (_compiled(job, offload) for offload in (NONE, request.offload))
    if not library.manifest.libraries:
        report = library.manifest.made.offload
        raise ModelError(
            f"nothing of the model goes to {request.offload}",
            remedy="Choose another library; what each operator lacks is below.",
            details="\n".join(report.left if report else ()),
        )
    if request.named("serial") is None and request.like is not None:
        request = request.but(serial=request.like)
    bundle = package_bundle(library, request.bundle).path  # of both, so that nothing else differs
    request = request.but(bundle=bundle)
    turns = bench_ab(fused.path, library.path, **request.keywords_of(AbRequest))
    checked = [
        side.verification for side in (turns.a, turns.b) if side.verification
    ]  # always: no --no-verify
    precision, quanta = fused.manifest.precision, fused.manifest.made.quanta
    close = CLOSE if precision == "float32" else TOLERANCES[precision].kernel
    limits = request.settings.verify.but(max_abs=0.0, max_rel=close)
    variants = [
        _variant(package, side, compare(result.outputs, result.right, limits, precision, quanta), request)
        for package, side, result in zip((fused, library), (turns.a, turns.b), checked, strict=True)
    ]
    layers = None
    if variants[1].profile is not None:
        layers = _profile(_compiled(job, request.offload, apart=True), request)
    return OffloadComparison(
        variants[0],
        variants[1],
        compare(checked[1].outputs, checked[0].outputs, limits, precision, quanta),
        layers,
        checked[0].reference_what,
        turns.ratio,
        turns.round_ms,
    )


def _compiled(job: CompileJob, offload: str, *, apart: bool = False) -> ModelPackage:
    from adt.compiler.compile import cached_package

    settings = replace(job.settings, compile=job.settings.compile.but(offload=offload))
    return cached_package(replace(job, settings=settings, apart=apart))


def _profile(package: ModelPackage, request: CompareOffloadRequest) -> Profile:
    log.info("profiling %s", titles(package.manifest.libraries) or "adt's kernels")
    return profile(package.path, **request.keywords_of(ProfileRequest, "runs", "warmup_runs"))


def _variant(
    package: ModelPackage, side: BenchResult, agreement: Verification, request: CompareOffloadRequest
) -> Variant:
    speed = side.record.speed
    calls = None if speed is None else _profile(package, request)
    grown = speed.peak_kb - speed.before_load_kb if speed and speed.peak_kb and speed.before_load_kb else None
    planned = Inspection(package).graph.total
    workspace = speed.workspace_bytes if speed else None
    return Variant(package, side, agreement, calls, planned, grown, workspace)
