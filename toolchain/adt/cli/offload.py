"""``adt compare-offload``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from adt.api.requests import CompareOffloadRequest
from adt.cli.command import Rendering, command
from adt.options.option import option

if TYPE_CHECKING:
    from adt.api.offload import OffloadComparison, Variant
    from adt.errors import VerifyFailed
    from adt.measure.verify import Verification

FUSED, LIBRARY = "fused", "library"


@command("adt compare-offload model.onnx --for host --offload clml", name="compare-offload")
def compare_offload(
    request: CompareOffloadRequest,
    everything: Annotated[bool, option("Every kernel, not only the first 20.", "--all", default=False)],
) -> Rendering:
    """Compile a model with libraries and without: are both right, and which is faster, layer by layer?"""
    from adt.api.offload import compare_offload

    result = compare_offload(request)
    lines = _lines(result, everything=everything)
    return Rendering("compare-offload", lambda: _fields(result), lines, _failure(result))


def _comparisons(result: OffloadComparison) -> dict[str, Verification]:
    """Each comparison of outputs, by what is compared with what."""
    return {
        f"{LIBRARY} with {FUSED}": result.between,
        f"{FUSED} with {result.reference}": result.fused.agreement,
        f"{LIBRARY} with {result.reference}": result.library.agreement,
    }


def _fields(result: OffloadComparison) -> dict[str, Any]:
    from adt.cli.bench import bench_fields
    from adt.host.manifest import fields_of
    from adt.measure.verify import output_fields

    def variant(side: Variant) -> dict[str, Any]:
        facts = side.package.manifest
        return {
            "package": side.package.place,
            "offload": asdict(facts.made.offload) if facts.made.offload else None,
            "bench": bench_fields(side.bench),
            "profile": fields_of(side.profile) if side.profile else None,
            "planned_bytes": side.planned_bytes,
            "grown_kb": side.grown_kb,
            "workspace_bytes": side.workspace_bytes,
        }

    return {
        "fused": variant(result.fused),
        "library": variant(result.library),
        "outputs": [
            {"compared": name, "passed": comparison.passed, "allowed": comparison.max_rel_allowed}
            | {"outputs": [output_fields(output) for output in comparison.outputs]}
            for name, comparison in _comparisons(result).items()
        ],
        "layers": fields_of(result.layers) if result.layers else None,
        "emulated": result.fused.bench.record.machine.emulated,
        "library_times_as_fast": vars(result.ratio) if result.ratio else None,
        "round_ms": result.round_ms,
        "passed": result.passed,
    }


def _lines(result: OffloadComparison, *, everything: bool) -> Iterator[str]:
    from adt.cli.bench import latency
    from adt.cli.inspect import offload_lines
    from adt.measure.bench import sentence
    from adt.measure.profile.table import table

    sides = {FUSED: result.fused, LIBRARY: result.library}
    report = result.library.package.manifest.made.offload
    assert report is not None
    yield from offload_lines(report, result.library.inspection)
    for name, comparison in _comparisons(result).items():
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
    from adt.errors import VerifyFailed

    wrong = [name for name, comparison in _comparisons(result).items() if not comparison.passed]
    if not wrong:
        return None
    return VerifyFailed(
        f"outputs differ: {'; '.join(wrong)}",
        remedy="adt verify of each package says where; compile without the library that is wrong.",
    )
