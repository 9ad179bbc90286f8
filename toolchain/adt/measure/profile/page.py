"""A profile as one self-contained HTML page: time per kernel, the cumulative curve, the roofline, a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
