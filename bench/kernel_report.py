"""What :mod:`kernels` found out, as JSON and as a table."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernel_runs import BatchRun, Found, Results
from kernel_table import Op

SCHEMA, SCHEMA_VERSION = "adt.kernels", 1
SLOW = 1.5
"""A textured kernel that takes more than this times its twin is named at the end."""


@dataclass(frozen=True)
class DeviceFacts:
    """What the kernels ran on."""

    label: str
    """For people."""
    serial: str
    """Empty: this machine."""
    opencl: str
    """What OpenCL calls the device."""
    driver: str
    version: str
    """``OpenCL 3.0 …``"""
    gpu: bool
    """False: OpenCL on a CPU; its times are no GPU's."""
    emulated: bool
    """Its times are no device's."""
    fp16: bool
    clml: tuple[str, ...]
    """Versions of CLML that its driver has."""


@dataclass(frozen=True)
class Chosen:
    """What adt takes where nothing was measured."""

    form: str
    """``texture`` or ``buffer``."""
    reason: str


@dataclass(frozen=True)
class Part:
    """All operators in one precision."""

    precision: str
    ways: tuple[str, ...]
    ops: Mapping[Op, Mapping[str, int]]
    """Which networks compute each, and how often."""
    results: Results
    runs: Sequence[BatchRun]
    seconds: float
    choices: Mapping[Op, Chosen]
    """Of convolutions and dense layers."""


def document(
    device: DeviceFacts,
    versions: Mapping[str, str],
    settings: Mapping[str, Any],
    parts: Sequence[Part],
    left_out: Sequence[str],
) -> dict[str, Any]:
    """Everything, for JSON."""
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "device": dataclasses.asdict(device),
        "versions": dict(versions),
        "settings": dict(settings),
        "left_out": list(left_out),
        "parts": [
            {
                "precision": part.precision,
                "seconds": round(part.seconds, 1),
                "ops": [_row(part, op) for op in part.ops],
                "networks": sums(part),
                "batch_runs": [dataclasses.asdict(run) for run in part.runs],
            }
            for part in parts
        ],
    }


def _row(part: Part, op: Op) -> dict[str, Any]:
    found = {way: part.results[op, way] for way in part.ways}
    return {
        "op": op.name,
        "kind": op.kind,
        "input": op.shape,
        "output": op.output,
        "macs": op.macs,
        "networks": dict(part.ops[op]),
        "ways": {way: _found(one) for way, one in found.items()},
        "ratio": ratio(part, op),
        "fastest": fastest(part, op),
        "choice": dataclasses.asdict(choice) if (choice := part.choices.get(op)) else None,
    }


def _found(found: Found) -> dict[str, Any]:
    if found.error:
        return {"error": found.error}
    return {
        "ms": found.ms,
        "clock": found.clock,
        "difference": found.difference if math.isfinite(found.difference) else None,
        "right": found.right,
        "in_images": found.in_images,
        "kernels": [dataclasses.asdict(kernel) for kernel in found.kernels],
        "packing": [dataclasses.asdict(kernel) for kernel in found.packing],
    }


def ratio(part: Part, op: Op) -> float | None:
    """Time in textures over that in buffers; None: one of them is not known, or wrong."""
    both = [part.results.get((op, way)) for way in ("texture", "buffer")]
    times = [one.ms if one and one.right else None for one in both]
    return times[0] / times[1] if times[0] is not None and times[1] else None


def fastest(part: Part, op: Op) -> str:
    """The right way that took least; empty: none was right."""
    times = {way: one.ms for way in part.ways if (one := part.results[op, way]).right and one.ms is not None}
    return min(times, key=lambda way: times[way]) if times else ""


def sums(part: Part) -> dict[str, dict[str, float | None]]:
    """For each network the milliseconds of its operators, each as often as it computes it.

    By each way, and ``fastest``: by the faster one each time. None: an operator has no time.
    """
    networks = dict.fromkeys(name for calls in part.ops.values() for name in calls)
    made: dict[str, dict[str, float | None]] = {}
    for network in networks:
        counts = {op: calls[network] for op, calls in part.ops.items() if network in calls}
        made[network] = {}
        for way in part.ways:
            made[network][way] = _sum((part.results[op, way].ms, count) for op, count in counts.items())
        best = {op: fastest(part, op) for op in counts}
        made[network]["fastest"] = _sum(
            (part.results[op, way].ms if (way := best[op]) else None, count) for op, count in counts.items()
        )
    return made


def _sum(times: Iterable[tuple[float | None, int]]) -> float | None:
    """Of milliseconds and how often they count."""
    total = 0.0
    for ms, count in times:
        if ms is None:
            return None
        total += ms * count
    return total


def faults(parts: Iterable[Part]) -> list[str]:
    """Each operator that was not computed, or computed wrongly, and why."""
    said = []
    for part in parts:
        for op in part.ops:
            for way in part.ways:
                found = part.results[op, way]
                if found.error:
                    said.append(f"{op.name}, {way}, {part.precision}: {found.error}")
                elif not found.right:
                    said.append(f"{op.name}, {way}, {part.precision}: off by {found.difference:.2g}")
    return said


def table(device: DeviceFacts, part: Part) -> list[str]:
    """Lines for people."""
    timed = not device.emulated
    lines = [f"{part.precision} on {device.label}: {device.opencl}, driver {device.driver}"]
    if not timed:
        lines.append("no times: a virtual or an emulated device has no speed")
    elif not device.gpu:
        lines.append("OpenCL on a CPU: these times are not a GPU's, and say nothing of one")
    head = ["operator", "MMAC", *(f"{way} ms" for way in part.ways), "tex/buf", "off by", "networks"]
    rows = [head]
    for op in part.ops:
        rows.append(
            [
                op.name,
                f"{op.macs / 1e6:.1f}",
                *(_cell(part.results[op, way], timed) for way in part.ways),
                f"{both:.2f}" if timed and (both := ratio(part, op)) is not None else "",
                _worst(part, op),
                " ".join(part.ops[op]),
            ]
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    last = len(head) - 1
    for row in rows:
        cells = [
            cell.ljust(width) if column in (0, last) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return [*lines, *(_ending(part) if timed else [])]


def _cell(found: Found, timed: bool) -> str:
    if found.error:
        return "failed"
    mark = "" if found.right else "!"
    if not timed or found.ms is None:
        return f"{mark or '-'}"
    return f"{mark}{found.ms:.4f}"


def _worst(part: Part, op: Op) -> str:
    gaps = [one.difference for way in part.ways if not (one := part.results[op, way]).error]
    return f"{max(gaps):.1g}" if gaps else "-"


def _ending(part: Part) -> list[str]:
    lines = ["", "sums of the operators above, each as often as the network computes it, ms:"]
    for network, times in sums(part).items():
        said = ", ".join(f"{way} {'-' if ms is None else f'{ms:.3f}'}" for way, ms in times.items())
        lines.append(f"  {network}: {said}")
    ratios = {op: found for op in part.ops if (found := ratio(part, op)) is not None}
    if ratios:
        slow = {op: found for op, found in ratios.items() if found > SLOW}
        faster = sum(found <= 1 for found in ratios.values())
        lines.append(
            f"textures are as fast or faster in {faster} of {len(ratios)}, and take over {SLOW} × the time "
            f"in {len(slow)} (what adt chooses where nothing was measured):"
        )
        for op, found in sorted(slow.items(), key=lambda one: -one[1]):
            choice = part.choices.get(op)
            lines.append(f"  {found:5.2f} {op.name}" + (f" ({choice.form})" if choice else ""))
    return lines
