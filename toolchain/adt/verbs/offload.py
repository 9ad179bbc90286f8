"""Libraries beside adt's own kernels: which is faster, and are both right?"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any

from adt.bundle.libraries import LIBRARIES, NONE, parse_libraries, titles
from adt.cli.command import Rendering, command
from adt.errors import ConfigError, ModelError, VerifyFailed
from adt.host.document import HIDDEN, form, in_document
from adt.options.option import Directory, Flag, MaybePath, Number, PathTo, Real, Shapes, Text, Texts, option
from adt.options.request import Request, takes
from adt.options.sections import BuildSettings, CompileSettings, DeviceSettings, VerifySettings
from adt.package.reports import OffloadReport
from adt.verbs import options as shared
from adt.verbs.bench import AbRequest, BenchResult, bench_ab, latency
from adt.verbs.compile import job_of, tuned_job
from adt.verbs.inspect import offload_lines
from adt.verbs.profile import ProfileRequest, profile

if TYPE_CHECKING:
    from adt.compiler.compilation import CompileJob
    from adt.measure.statistics import Interval
    from adt.measure.verify import Verification
    from adt.package.inspection.inspection import Inspection
    from adt.package.inspection.profile import Profile
    from adt.package.package import ModelPackage


class CompareOffloadRequest(Request):
    """Request of :func:`adt.compare_offload`."""

    model: PathTo = option(shared.MODEL, kw_only=False)
    params: Mapping[str, Any] | None = shared.PARAMS
    platform: Text = BuildSettings.platform
    ndk: Directory = BuildSettings.ndk
    api_level: Number = BuildSettings.api_level
    target: Text = CompileSettings.target
    cpu: Text = CompileSettings.cpu
    opt_level: Number = CompileSettings.opt_level
    shapes: Shapes = CompileSettings.shapes
    precision: Text = CompileSettings.precision
    keep_float32: Texts = CompileSettings.keep_float32
    half_only: Texts = CompileSettings.half_only
    offload: Text = CompileSettings.offload
    tf32: Flag = CompileSettings.tf32
    texture_choice: Text = CompileSettings.texture_choice
    bundle: MaybePath = shared.BUNDLE
    serial: Text = DeviceSettings.serial
    timeout: Real = DeviceSettings.timeout
    like: str | None = shared.LIKE
    db: Directory = CompileSettings.db
    tuned_on: Text = CompileSettings.tuned_on
    inputs: shared.Arrays | None = shared.INPUTS
    seed: Number = VerifySettings.seed
    threads: int | None = shared.THREADS
    affinity: str = shared.AFFINITY
    protocol: str = shared.PROTOCOL
    runs: int | None = shared.RUNS
    seconds: float | None = shared.SECONDS
    warmup_runs: int | None = shared.WARMUP_RUNS
    warmup_ms: float | None = shared.WARMUP_MS
    end_to_end: bool = shared.END_TO_END
    fill_mode: Text = VerifySettings.fill_mode
    cool_down: str | None = shared.COOL_DOWN
    record: bool = shared.RECORD
    label: str = shared.LABEL
    rounds: int | None = shared.ROUNDS
    trust: bool = shared.TRUST
    insecure_no_digest: bool = shared.INSECURE_NO_DIGEST


log = logging.getLogger("adt.bench")

FUSED, LIBRARY = "fused", "library"
CLOSE = 1e-5
"""In float32: how far outputs may be apart, as a share of the largest."""


@dataclass(frozen=True)
class Variant:
    """The model, compiled in one way."""

    package: ModelPackage = field(metadata=form(convert=lambda package: package.place))
    bench: BenchResult
    agreement: Verification = field(metadata=HIDDEN)
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
    @in_document()
    def offload(self) -> OffloadReport | None:
        """Report on the libraries' part; None where adt's kernels do it all."""
        return self.package.manifest.made.offload

    @property
    def inspection(self) -> Inspection:
        """Description of the package by itself."""
        from adt.package.inspection.inspection import Inspection

        return Inspection(self.package)


@dataclass(frozen=True)
class OffloadComparison:
    """A model with libraries and without."""

    fused: Variant
    """All of it by adt's kernels."""
    library: Variant
    between: Verification = field(metadata=HIDDEN)
    layers: Profile | None
    """The library's layers, each in a call of its own, with what it costs to go in and out; None where times
    do not count."""
    reference: str
    ratio: Interval | None = field(metadata=form("library_times_as_fast"))
    """Speed-up by the library, with 95 % confidence; None where times do not count."""
    round_ms: tuple[tuple[float, float], ...]
    """Medians of both in each round, milliseconds."""

    @property
    @in_document("outputs")
    def comparisons(self) -> dict[str, Verification]:
        """Each comparison of outputs, by what is compared with what."""
        return {
            f"{LIBRARY} with {FUSED}": self.between,
            f"{FUSED} with {self.reference}": self.fused.agreement,
            f"{LIBRARY} with {self.reference}": self.library.agreement,
        }

    @property
    @in_document()
    def passed(self) -> bool:
        """True if both give the reference's outputs, and each other's."""
        return all(comparison.passed for comparison in self.comparisons.values())

    @property
    @in_document()
    def emulated(self) -> bool:
        """True if no time counts as a device's speed."""
        return self.fused.bench.emulated


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
    """
    from adt.measure.verify import compare
    from adt.numerics import TOLERANCES
    from adt.verbs.bundles import choose_bundle

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
    bundle = choose_bundle(library, request.bundle).path  # of both, so that nothing else differs
    request = request.but(bundle=bundle)
    turns = bench_ab(fused.path, library.path, **request.keywords_of(AbRequest))
    checked = [side.verification for side in (turns.a, turns.b) if side.verification]  # no --no-verify
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
    from adt.package.inspection.inspection import Inspection

    speed = side.record.speed
    calls = None if speed is None else _profile(package, request)
    grown = speed.peak_kb - speed.before_load_kb if speed and speed.peak_kb and speed.before_load_kb else None
    planned = Inspection(package).graph.total
    workspace = speed.workspace_bytes if speed else None
    return Variant(package, side, agreement, calls, planned, grown, workspace)


@command(
    "adt compare-offload model.onnx --for host --offload xnnpack",
    "adt compare-offload model.onnx --target adreno --offload clml",
)
def compare_offload_command(
    request: CompareOffloadRequest,
    everything: Annotated[bool, option("Show every kernel, not only the first 20.", "--all", default=False)],
) -> Rendering:
    """Compare a model compiled with and without libraries: outputs and speed, layer by layer."""
    result = compare_offload(request)
    return Rendering("compare-offload", result, _lines(result, everything=everything), _failure(result))


def _lines(result: OffloadComparison, *, everything: bool = False) -> Iterator[str]:
    from adt.measure.bench import sentence
    from adt.measure.profile.output import table

    sides = {FUSED: result.fused, LIBRARY: result.library}
    report = result.library.package.manifest.made.offload
    assert report is not None
    yield from offload_lines(report, result.library.inspection)
    for name, comparison in result.comparisons.items():
        worst = max((output.max_rel for output in comparison.outputs), default=float("inf"))
        verdict = "right" if comparison.passed else "WRONG"
        yield (
            f"outputs  {verdict}: {name}, off by {worst:.2g} of the largest "
            f"({comparison.max_rel_allowed:.2g} allowed)"
        )
    for name, side in sides.items():
        speed = side.bench.record.speed
        grown = "" if side.grown_kb is None else f", the process grew by {side.grown_kb / 1024:.1f} MiB"
        room = "" if side.workspace_bytes is None else f", {side.workspace_bytes:,} bytes of workspace"
        yield f"{name:<8} {side.planned_bytes:,} bytes planned for values{room}{grown}"
        if speed is None:
            yield f"{'':<8} no times: {side.bench.record.no_speed}"
        else:
            yield f"{'':<8} {latency(speed.times)}, of {speed.times.count} runs"
    if result.ratio:
        verdict = sentence(result.ratio, (FUSED, LIBRARY))
        yield f"{verdict} (95 % confidence, {len(result.round_ms)} rounds in turns)"
    profiles = {f"{name}, call by call": side.profile for name, side in sides.items()}
    profiles[f"{LIBRARY}, a call for each layer"] = result.layers
    for name, calls in profiles.items():
        if calls:
            yield from ("", name, *table(calls, everything=everything))


def _failure(result: OffloadComparison) -> VerifyFailed | None:
    wrong = [name for name, comparison in result.comparisons.items() if not comparison.passed]
    if not wrong:
        return None
    return VerifyFailed(
        f"outputs differ: {'; '.join(wrong)}",
        remedy="adt verify of each package says where; compile without the library that is wrong.",
    )
