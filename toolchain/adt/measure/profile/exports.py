"""A profile as one self-contained HTML page, and as a trace in Chrome's format.

The page has the time per kernel, the cumulative curve, the roofline and a table. The trace is for
chrome://tracing and Perfetto: each call is a complete event (``ph`` X) of its mean time, laid end to end in
the order of execution, since clocks tell how long a call takes, and not when the queue got to it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from adt.errors import ConfigError
from adt.host.web_page import web_page
from adt.measure.profile.table import sums
from adt.package.inspection.profile import KernelTotal, Profile


def render(profile: Profile) -> str:
    """The page as HTML, UTF-8; of an emulated place it has no times at all."""
    here = Path(__file__).parent
    return web_page(
        f"{profile.package} · adt profile",
        style=here / "page.css",
        script=here / "page.js",
        data=page_data(profile),
    )


def page_data(profile: Profile) -> dict[str, Any]:
    timed = not profile.emulated
    calls: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for order, call in enumerate(profile.calls):
        facts = {"order": order, "graph": call.index, "shapes": call.shapes, "flops": call.flops}
        calls.setdefault((call.name, call.device), []).append(
            facts | ({"us": [call.mean_us, call.min_us, call.max_us]} if timed else {})
        )
    return {
        "package": profile.package,
        "entry": profile.entry,
        "target": profile.target,
        "device": profile.device,
        "via": profile.via,
        "timed": timed,
        "runs": profile.runs,
        "clock": profile.clock if timed else None,
        "counted_us": profile.counted_us if timed else None,
        "on_device": profile.event_timed,
        "sums": sums(profile) if timed else [],
        "notes": profile.notes,
        "peak_gflops": profile.peak_gflops,
        "peak_gbps": profile.peak_gbps,
        "calls": len(profile.calls),
        "kernels": [_kernel(row, calls[row.name, row.device], timed=timed) for row in profile.kernels],
    }


def _kernel(row: KernelTotal, calls: list[dict[str, Any]], *, timed: bool) -> dict[str, Any]:
    facts = {
        "name": row.name,
        "device": row.device,
        "calls": calls,
        "first": row.first,
        "flops": row.flops,
        "bytes": row.bytes,
        "intensity": row.intensity,
        "shapes": row.shapes,
    }
    if timed:
        facts |= {
            "clock": row.clock,
            "us": row.mean_us,
            "share": row.share,
            "gflops": row.gflops,
            "gbps": row.gbps,
            "roof": row.roof_gflops,
        }
    return facts


PROCESS = 1
TRACKS = {"opencl": 1, "cuda": 1, "library": 2, "cpu": 3, "vm": 4}
"""Track of each place where a call runs."""
ELSEWHERE = 5
NAMES = {
    "opencl": "OpenCL kernels",
    "cuda": "CUDA kernels",
    "library": "library",
    "cpu": "CPU kernels",
    "vm": "TVM's virtual machine",
}


def trace(profile: Profile) -> dict[str, Any]:
    """Return the trace as JSON values; refuse an emulator's times, as a trace has nothing else."""
    if profile.emulated:
        raise ConfigError(
            f"there is no trace of {profile.device}: its processor is emulated, and a trace is of times",
            remedy="Profile on a real device, or a package for this machine: adt compile --for host.",
        )
    tracks = dict.fromkeys(call.device for call in profile.calls)
    events = [_named("process_name", 0, f"{profile.package}: {profile.device}")]
    events += [_named("thread_name", _track(device), NAMES.get(device, "calls")) for device in tracks]
    at = 0.0
    for order, call in enumerate(profile.calls):
        arguments: dict[str, Any] = {
            "order": order,
            "graph_call": call.index if call.index >= 0 else None,
            "clock": call.clock,
            "min_us": call.min_us,
            "max_us": call.max_us,
            "shapes": call.shapes,
            "flops": call.flops,
            "bytes": call.bytes,
        }
        events.append(
            {
                "name": call.name,
                "cat": call.kind or "call",
                "ph": "X",
                "ts": round(at, 3),
                "dur": round(call.mean_us, 3),
                "pid": PROCESS,
                "tid": _track(call.device),
                "args": {name: value for name, value in arguments.items() if value is not None},
            }
        )
        at += call.mean_us
    facts = {
        "package": profile.package,
        "entry": profile.entry,
        "target": profile.target,
        "device": profile.device,
        "runs": profile.runs,
        "times": profile.clock,
        "timeline": "calls end to end, mean of the runs",
        "notes": list(profile.notes),
    }
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": facts}


def _track(device: str) -> int:
    return TRACKS.get(device, ELSEWHERE)


def _named(kind: str, track: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": PROCESS, "tid": track, "args": {"name": name}}
