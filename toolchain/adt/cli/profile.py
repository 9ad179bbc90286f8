"""``adt profile``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from adt.cli.app import Json, Serial, Timeout, Verbose, app, emit_json
from adt.cli.completions import one_of


@app.command(epilog="Example: adt profile model-pkg --html profile.html --trace trace.json")
def profile(
    package: Annotated[Path, typer.Argument(help="A package that `adt compile` made.")],
    serial: Serial = None,
    bundle: Annotated[
        Path | None, typer.Option(help="The bundle; else the newest fitting one built here.", metavar="DIR")
    ] = None,
    inputs: Annotated[Path | None, typer.Option("--input", "-i", help="Inputs by name, as .npz.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of made-up inputs.")] = None,
    entry: Annotated[str, typer.Option(help="Entry function.")] = "main",
    runs: Annotated[int, typer.Option("--runs", "-n", min=1, help="Runs with clocks, and without.")] = 20,
    warmup_runs: Annotated[int, typer.Option(min=0, help="Runs before them.")] = 3,
    via: Annotated[str, typer.Option(help="By rtvm, or over RPC.", **one_of("native", "rpc"))] = "native",
    key: Annotated[
        str, typer.Option("--key", "-k", help="With --via rpc: what to ask the tracker for.")
    ] = "",
    tracker: Annotated[
        str, typer.Option(help="With --via rpc: the tracker; else adt's own.", metavar="HOST:PORT")
    ] = "",
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads.")] = None,
    affinity: Annotated[str, typer.Option(help="big, little, all, or CPU numbers.", metavar="CPUS")] = "",
    peak_gflops: Annotated[
        float | None, typer.Option(help="What the device computes at best, GFLOP/s: draws the roofline.")
    ] = None,
    peak_gbps: Annotated[
        float | None, typer.Option(help="What its memory delivers at best, GB/s: draws the roofline.")
    ] = None,
    sort: Annotated[
        str,
        typer.Option(
            help="The first row: the most of this.", **one_of("time", "calls", "order", "gflops", "flops")
        ),
    ] = "",
    everything: Annotated[bool, typer.Option("--all", help="Every kernel, not only the first 20.")] = False,
    trace: Annotated[
        Path | None, typer.Option(help="Write a trace for chrome://tracing and Perfetto.", metavar="FILE")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page with plots.", metavar="FILE")] = None,
    timeout: Timeout = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Show where the time of a package goes: kernel by kernel, with FLOPs, bytes and speeds."""
    import adt
    from adt.cli.arrays import load_npz
    from adt.host.manifest import fields_of
    from adt.measure.profile.table import check_sort, table

    check_sort(sort)
    found = adt.profile(
        package,
        serial=serial,
        bundle=bundle,
        inputs=load_npz(inputs) if inputs else None,
        seed=seed,
        entry=entry,
        runs=runs,
        warmup_runs=warmup_runs,
        via=via,
        key=key,
        tracker=tracker,
        threads=threads,
        affinity=affinity,
        peak_gflops=peak_gflops,
        peak_gbps=peak_gbps,
        timeout=timeout,
    )
    lines = table(found, sort=sort, everything=everything)
    if trace:
        adt.profile_trace(found, trace)
    if html:
        adt.profile_html(found, html)
    if as_json:
        emit_json("profile", fields_of(found))
        return
    for line in lines:
        typer.echo(line)
    for name in filter(None, (trace, html)):
        typer.echo(f"wrote {name}")
