"""A profile as text, as one self-contained HTML page, and as a trace in Chrome's format.

The page has the time per kernel, the cumulative curve, the roofline and a table. The trace is for
chrome://tracing and Perfetto: each call is a complete event (``ph`` X) of its mean time, laid end to end in
the order of execution, since clocks tell how long a call takes, and not when the queue got to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from adt.errors import ConfigError
from adt.host.document import aligned, web_page
from adt.measure.profile.assembly import SORTS, UNTIMED, Limits, kernel_totals
from adt.package.inspection.profile import EVENTS, HOST_CLOCK, CallTime, KernelTotal, Profile


def render(profile: Profile) -> str:
    """Render the page as HTML, UTF-8; of an emulated place it has no times at all."""
    style, script = (Path(__file__).with_name(f"page.{kind}") for kind in ("css", "js"))
    title = f"{profile.package} · adt profile"
    return web_page(title, style=style, script=script, data=page_data(profile))


def page_data(profile: Profile) -> dict[str, Any]:
    timed = not profile.emulated
    calls: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for order, call in enumerate(profile.calls):
        facts = {"order": order, "graph": call.index} | _fields(call, "shapes", "flops")
        if timed:
            facts["us"] = [call.mean_us, call.min_us, call.max_us]
        calls.setdefault((call.name, call.device), []).append(facts)
    kernels = []
    for row in profile.kernels:
        kernel = _fields(row, "name", "device", "first", "flops", "bytes", "intensity", "shapes")
        if timed:
            kernel |= _fields(row, "clock", "share", "gflops", "gbps")
            kernel |= {"us": row.mean_us, "roof": row.roof_gflops}
        kernels.append(kernel | {"calls": calls[row.name, row.device]})
    return {
        **_fields(profile, *RUN, "via", "notes", "peak_gflops", "peak_gbps"),
        "timed": timed,
        "clock": profile.clock if timed else None,
        "counted_us": profile.counted_us if timed else None,
        "on_device": profile.event_timed,
        "sums": sums(profile) if timed else [],
        "calls": len(profile.calls),
        "kernels": kernels,
    }


RUN = ("package", "entry", "target", "device", "runs")
"""Fields of a profile that say what ran."""


def _fields(record: Profile | KernelTotal | CallTime, *names: str) -> dict[str, Any]:
    return {name: getattr(record, name) for name in names}


PROCESS = 1
TRACKS = {
    "opencl": (1, "OpenCL kernels"),
    "cuda": (1, "CUDA kernels"),
    "library": (2, "library"),
    "cpu": (3, "CPU kernels"),
    "vm": (4, "TVM's virtual machine"),
}
"""Track of each place where a call runs, and its name."""
ELSEWHERE = (5, "calls")


def trace(profile: Profile) -> dict[str, Any]:
    """Write the trace as JSON values; refuse an emulator's times, as a trace has nothing else."""
    if profile.emulated:
        raise ConfigError(
            f"there is no trace of {profile.device}: its processor is emulated, and a trace is of times",
            remedy="Profile on a real device, or a package for this machine: adt compile --for host.",
        )
    tracks = dict.fromkeys(call.device for call in profile.calls)
    events = [_named("process_name", 0, f"{profile.package}: {profile.device}")]
    events += [_named("thread_name", *TRACKS.get(device, ELSEWHERE)) for device in tracks]
    at = 0.0
    for order, call in enumerate(profile.calls):
        arguments = _fields(call, "clock", "min_us", "max_us", "shapes", "flops", "bytes")
        arguments |= {"order": order, "graph_call": call.index if call.index >= 0 else None}
        events.append(
            {
                "name": call.name,
                "cat": call.kind or "call",
                "ph": "X",
                "ts": round(at, 3),
                "dur": round(call.mean_us, 3),
                "pid": PROCESS,
                "tid": TRACKS.get(call.device, ELSEWHERE)[0],
                "args": {name: value for name, value in arguments.items() if value is not None},
            }
        )
        at += call.mean_us
    times = {"times": profile.clock, "timeline": "calls end to end, mean of the runs"}
    facts = _fields(profile, *RUN) | times | {"notes": list(profile.notes)}
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": facts}


def _named(kind: str, track: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": PROCESS, "tid": track, "args": {"name": name}}


TOP = 20
"""Rows of a table that is not asked for all."""
UNKNOWN = "-"
VM = "the virtual machine"
LEAST = 0.001
MOST_NAME, MOST_SHAPES = 60, 90
"""Characters of a cell."""
LEFT = ("kernel", "on", "clock", "shapes")
"""Columns that are aligned at their beginning."""

Cell = Callable[[KernelTotal], str]


def sorted_totals(profile: Profile, sort: str = "") -> list[KernelTotal]:
    """Return a row for each kernel, sorted by *sort*; empty: by time, or arithmetic without times."""
    if profile.emulated and sort and sort not in UNTIMED:
        raise ConfigError(
            f"the kernels cannot be sorted by {sort}: the times are an emulator's",
            remedy=f"Choose of: {', '.join(UNTIMED)}; or profile on a real device.",
        )
    return sorted(profile.kernels, key=SORTS[sort or ("flops" if profile.emulated else "time")])


def folded(profile: Profile) -> Profile:
    """Fold all that the virtual machine does itself into one row of *profile*."""
    calls = [replace(call, name=VM) if call.device == "vm" else call for call in profile.calls]
    limits = Limits(profile.peak_gflops, profile.peak_gbps)
    return replace(profile, kernels=kernel_totals(calls, limits, emulated=profile.emulated))


def table(profile: Profile, *, sort: str = "", everything: bool = False) -> list[str]:
    """Format the profile as lines for people, sorted as by :func:`sorted_totals`."""
    rows = sorted_totals(profile if everything else folded(profile), sort)
    shown = rows if everything else rows[:TOP]
    columns = [[title, *map(cell, shown)] for title, cell in _columns(profile)]
    for column in columns:
        if column[0] not in LEFT:  # numbers
            width = max(map(len, column))
            column[:] = [cell.rjust(width) for cell in column]
    lines = [*_head(profile), "", *aligned(list(zip(*columns, strict=True)))]
    if left := rows[len(shown) :]:
        share = "" if profile.emulated else f", {sum(row.share or 0 for row in left):.1%} of the time"
        lines.append(f"… {len(left)} more{share}: --all shows them")
    return ["".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line) for line in lines]


def _head(profile: Profile) -> list[str]:
    lines = [
        f"package   {profile.package}, entry {profile.entry}, for {profile.target}",
        f"ran on    {profile.device}" + (" over RPC" if profile.via == "rpc" else ""),
    ]
    if profile.emulated:
        lines.append("times     none: its processor is emulated, so that they would not be a device's speed")
    else:
        lines.append(f"times     by {profile.clock}; mean of {_count(profile.runs, 'run')}")
        first, *more = sums(profile)
        lines += [f"total     {first}", *(f"          {phrase}" for phrase in more)]
    lines += [f"note      {note}" for note in profile.notes]
    return lines


def sums(profile: Profile) -> list[str]:
    """Return in phrases what the calls take together, by which clock, and what a whole run takes."""
    clock, device = (EVENTS, " on the device") if profile.event_timed else (HOST_CLOCK, "")
    counted = sum(call.clock == clock for call in profile.calls)
    phrases = [f"{milliseconds(profile.counted_us)}{device} in {_count(counted, 'call')}"]
    if others := len(profile.calls) - counted:
        rest = f"{milliseconds(profile.total_us - profile.counted_us)} by the host's clock"
        phrases.append(f"{rest} in the {others} others, synchronised each: no part of the shares")
    if profile.plain_us:
        plain = f"a run without a look at its calls takes {milliseconds(profile.plain_us)}"
        ratio = profile.counted_us / profile.plain_us
        phrases.append(f"{plain}: the sum{device} is {ratio:.2f} times that")
    if profile.profiled_us:
        phrases.append(f"a run with the clocks takes {milliseconds(profile.profiled_us)}")
    return phrases


def milliseconds(us: float) -> str:
    return f"{us / 1e3:.3f} ms"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _columns(profile: Profile) -> list[tuple[str, Cell]]:
    timed: list[tuple[str, Cell]] = [
        ("time µs", lambda row: f"{row.mean_us:.1f}"),
        ("share", lambda row: UNKNOWN if row.share is None else f"{row.share:.1%}"),
        ("clock", lambda row: "device" if row.clock == EVENTS else row.clock),
    ]
    speeds: list[tuple[str, Cell]] = [
        ("GFLOP/s", lambda row: _number(row.gflops)),
        ("GB/s", lambda row: _number(row.gbps)),
    ]
    if profile.peak_gflops and profile.peak_gbps:
        speeds.append(("of roof", _of_roof))
    clocked = not profile.emulated
    return [
        ("kernel", lambda row: _short(row.name, MOST_NAME)),
        ("on", lambda row: row.device or UNKNOWN),
        ("calls", lambda row: str(row.calls)),
        *(timed if clocked else []),
        ("MFLOP", lambda row: _number(None if row.flops is None else row.flops / 1e6)),
        ("KiB", lambda row: _number(None if row.bytes is None else row.bytes / 1024)),
        *(speeds if clocked else []),
        ("shapes", _shapes),
    ]


def _number(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    if 0 < abs(value) < LEAST:
        return f"<{LEAST}"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _of_roof(row: KernelTotal) -> str:
    roof = row.roof_gflops
    return UNKNOWN if not roof or row.gflops is None else f"{row.gflops / roof:.0%}"


def _shapes(row: KernelTotal) -> str:
    if row.device == "vm" or not row.shapes:
        return ""
    more = f" and {len(row.shapes) - 1} more" if len(row.shapes) > 1 else ""
    return _brief(row.shapes[0]) + more


def _brief(shapes: str) -> str:
    """Shorten long *shapes* to the first tensor and what is written."""
    if len(shapes) <= MOST_SHAPES:
        return shapes
    read, arrow, written = shapes.partition(" → ")
    first = re.match(r"[^\]]*\][^,]*", read)
    return _short(f"{first[0] if first else read}, …{arrow}{written}", MOST_SHAPES)


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
