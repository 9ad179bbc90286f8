"""Report of what was measured on this machine over time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from adt.cli.command import Rendering, command
from adt.errors import RegressionFound
from adt.host.cache import write_text
from adt.host.document import document_of
from adt.options.option import AnyPath, option
from adt.options.request import Request, takes
from adt.verbs.bench import ms
from adt.verbs.options import output

if TYPE_CHECKING:
    from adt.measure.history import Point, Series, TrendReport


class ReportRequest(Request):
    """Request of :func:`adt.report`."""

    device: str = option("Part of the device's serial, model, chip or OpenCL name.", default="")
    package: str = option("Name of the package, or a pattern with * and ?.", default="")
    since: str = option("Oldest date or age of results: 2026-01-31, 7d, 12h.", default="")
    label: str = option("Label of the results, or a pattern with * and ?.", default="")
    threshold: float = option(
        "Percent that a result must be worse by, and by more than the noise of the runs.",
        default=5.0,
        least=0.001,
    )
    against: str = option(
        "Result to compare with: the fastest earlier one, or the one before.",
        default="best",
        choices=["best", "previous"],
    )


MARKS = {
    "regression": "✗",
    "wrong": "✗",
    "improvement": "✓",
    "same": "=",
    "within-noise": "~",
    "first": "·",
    "no-speed": "·",
}


@takes(ReportRequest)
def report(request: ReportRequest) -> TrendReport:
    """Return what was measured on this machine over time, and where something got slower.

    Raises:
        ConfigError: a date, threshold or *against* that cannot be.
    """
    from adt.measure import history

    records = history.select(
        history.load(),
        device=request.device,
        package=request.package,
        since=request.since,
        label=request.label,
    )
    return history.report(records, threshold=request.threshold, against=request.against)


def report_html(report: TrendReport, out: AnyPath) -> None:
    """Write one self-contained page with a time line of each series."""
    from adt.measure.history import render

    write_text(Path(out), render(report))


def report_export(report: TrendReport, out: AnyPath) -> int:
    """Write the records of *report* to one file, for :func:`report_import`; returns how many."""
    from adt.measure import history

    records = [point.record for series in report.series for point in series.points]
    write_text(Path(out), history.export_text(records))
    return len(records)


def report_import(path: AnyPath) -> int:
    """Take a file that :func:`report_export` or an application of adt's wrote into this machine's store.

    Returns:
        How many records were not there yet.

    Raises:
        InputError: it is no such file.
        RunError: the application could not measure.
    """
    from adt.measure import history

    return history.imported(Path(path))


@command("adt report --since 30d --fail-on-regression", name="report")
def report_command(
    request: ReportRequest,
    html: Annotated[Path | None, output("Write a page with time lines.")],
    export: Annotated[Path | None, output("Write these records to one file, for --import.")],
    imported: Annotated[
        Path | None,
        option("First take the records that --export or an app of adt's wrote.", "--import", default=None),
    ],
    fail_on_regression: Annotated[bool, option("End with exit code 30 if a result is worse.", default=False)],
) -> Rendering:
    """Show what was measured over time, and mark what got slower."""
    taken = report_import(imported) if imported else None
    trend = report(request)
    if html:
        report_html(trend, html)
    exported = report_export(trend, export) if export else None
    files = {"html": html, "export": export, "exported": exported, "imported": taken}
    lines = [f"took {taken} records from {imported}"] if taken is not None else []
    lines += _lines(trend)
    lines += [f"wrote {html}"] if html else []
    lines += [f"wrote {exported} records to {export}"] if export else []
    error = _failure(trend) if fail_on_regression and trend.regressed else None
    return Rendering("report", lambda: document_of(trend) | files, lines, error)


def _lines(trend: TrendReport) -> Iterator[str]:
    if not trend.series:
        yield "nothing was measured yet, or nothing that fits: adt bench PACKAGE"
        return
    for series in trend.series:
        yield _title(series)
        yield from (f"  {_row(point)}" for point in series.points)
    which = "the fastest earlier one" if trend.against == "best" else "the one before"
    count = len(trend.regressed)
    newest = f"{count} of {len(trend.series)} newest results {'is' if count == 1 else 'are'} worse"
    yield f"each compared with {which}, threshold {trend.threshold_percent:g} %: {newest}"


def _title(series: Series) -> str:
    key = series.key
    title = f"{key.package} · {key.target} on {key.platform} · {key.machine} · {key.method}"
    return f"{title}\n  ({key.note})" if key.note else title


def _row(point: Point) -> str:
    record = point.record
    text = f"{MARKS[point.verdict]} {record.when[:16].replace('T', ' ')} "
    if record.headline_ms is None:
        text += "outputs wrong" if record.correct is False else "outputs right, no speed"
    else:
        assert record.speed is not None
        text += f"{record.method.headline} {ms(record.headline_ms)} (p99 {ms(record.speed.times.p99_ms)})"
    if point.change_percent is not None:
        text += f" {point.change_percent:+.1f} %"
    if point.verdict not in ("first", "same", "no-speed"):
        text += f" {point.verdict}"
    if point.verdict == "within-noise":
        text += f" ({point.noise_percent:.0f} %)"
    if point.changed:
        text += f"; changed: {', '.join(point.changed)}"
    flags = [flag.name for flag in record.flags if flag.name in ("throttled", "drift", "noisy", "warm")]
    if flags:
        text += f"; {', '.join(flags)}"
    return text + (f"  [{record.label}]" if record.label else "")


def _failure(trend: TrendReport) -> RegressionFound:
    names = ", ".join(f"{series.key.package} ({series.key.target})" for series in trend.regressed)
    return RegressionFound(
        f"{len(trend.regressed)} of {len(trend.series)} newest results are worse than before: {names}",
        remedy="Measure again on a cool device; if it stays so, `changed:` names what is new since then.",
    )
