"""``adt profile``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from adt.api.requests import ProfileRequest
from adt.cli.command import Rendering, command
from adt.options.option import option


@command("adt profile model-pkg --html profile.html --trace trace.json")
def profile(
    request: ProfileRequest,
    sort: Annotated[
        str,
        option(
            "The first row: the most of this.",
            default="",
            choices=["time", "calls", "order", "gflops", "flops"],
        ),
    ],
    everything: Annotated[bool, option("Every kernel, not only the first 20.", "--all", default=False)],
    trace: Annotated[
        Path | None,
        option("Write a trace for chrome://tracing and Perfetto.", default=None, metavar="FILE"),
    ],
    html: Annotated[Path | None, option("Write a page with plots.", default=None, metavar="FILE")],
) -> Rendering:
    """Show where the time of a package goes: kernel by kernel, with FLOPs, bytes and speeds."""
    from adt.api.profile import profile, profile_html, profile_trace
    from adt.host.manifest import fields_of
    from adt.measure.profile.table import check_sort, table

    check_sort(sort)
    result = profile(request)
    lines = table(result, sort=sort, everything=everything)
    if trace:
        profile_trace(result, trace)
    if html:
        profile_html(result, html)
    lines += [f"wrote {name}" for name in (trace, html) if name]
    return Rendering("profile", lambda: fields_of(result), lines)
