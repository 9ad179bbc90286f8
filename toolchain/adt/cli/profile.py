"""``adt profile``."""

from __future__ import annotations

from adt.api.requests import ProfileRequest
from adt.cli.command import Keywords, Rendering, command
from adt.options.option import MaybePath, Options, option


class ProfileFlags(Options):
    """Choice of what is shown and written."""

    sort: str = option(
        "The first row: the most of this.", default="", choices=["time", "calls", "order", "gflops", "flops"]
    )
    everything: bool = option("Every kernel, not only the first 20.", "--all", default=False)
    trace: MaybePath = option(
        "Write a trace for chrome://tracing and Perfetto.", default=None, metavar="FILE"
    )
    html: MaybePath = option("Write a page with plots.", default=None, metavar="FILE")


@command("adt profile model-pkg --html profile.html --trace trace.json", ProfileRequest, ProfileFlags)
def profile(keywords: Keywords, flags: ProfileFlags) -> Rendering:
    """Show where the time of a package goes: kernel by kernel, with FLOPs, bytes and speeds."""
    import adt
    from adt.cli.arrays import load_inputs
    from adt.host.manifest import fields_of
    from adt.measure.profile.table import check_sort, table

    check_sort(flags.sort)
    load_inputs(keywords)
    result = adt.profile(**keywords)
    lines = table(result, sort=flags.sort, everything=flags.everything)
    if flags.trace:
        adt.profile_trace(result, flags.trace)
    if flags.html:
        adt.profile_html(result, flags.html)
    lines += [f"wrote {name}" for name in (flags.trace, flags.html) if name]
    return Rendering("profile", lambda: fields_of(result), lines)
