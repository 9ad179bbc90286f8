"""A profile as a trace in Chrome's format, for chrome://tracing and Perfetto.

Each call is a complete event (``ph`` X) of its mean time, laid end to end in the order
of execution: the clocks tell how long a call takes, and not when the queue got to it.
"""

from __future__ import annotations

from typing import Any

from adt.errors import ConfigError
from adt.package.inspection.profile import Profile

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
