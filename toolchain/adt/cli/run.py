"""``adt run``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from adt.api.requests import AFFINITY, THREADS, RunRequest
from adt.cli.command import Rendering, command
from adt.cli.pictures import PictureFlags, picture_options
from adt.options.option import option

if TYPE_CHECKING:
    from adt.api.run import RunResult
    from adt.package.classes import Ranking

EXAMPLE = (
    "adt run model-pkg --image cat.jpg --mean 0.485,0.456,0.406 --std 0.229,0.224,0.225 --labels synset.txt"
)


@command(EXAMPLE)
def run(
    request: RunRequest,
    pictures: PictureFlags,
    threads: Annotated[int | None, THREADS],
    affinity: Annotated[str, AFFINITY],
    warmup_ms: Annotated[float, option("… and for at least so many milliseconds.", default=0.0, least=0)],
    zero_copy: Annotated[bool, option("Use the CPU's inputs where they lie.", default=False)],
    pre_compiled: Annotated[
        str, option("Compiled OpenCL programs, a file on the device.", default="", metavar="FILE")
    ],
    program_cache: Annotated[bool, option("Keep compiled OpenCL programs on the device.", default=True)],
    outputs: Annotated[
        tuple[str, ...] | None,
        option(
            "All as .npz; the only one, or that of a name, also as .npy or .raw.",
            "--output",
            "-o",
            default=(),
            metavar="[NAME=]FILE",
        ),
    ],
    labels: Annotated[
        Path | None,
        option("Labels of classes, one on each line, or .json: show the best.", default=None, metavar="FILE"),
    ],
    top: Annotated[
        int | None,
        option("How many classes; default with --labels: 5.", default=None, metavar="K", least=1),
    ],
    softmax: Annotated[
        bool | None,
        option(
            "Make scores probabilities; default: when they do not sum to 1.",
            "--softmax/--no-softmax",
            default=None,
        ),
    ],
) -> Rendering:
    """Run a package on a device and show or save its outputs; inputs are arrays, bytes or pictures."""
    from adt.api.run import run
    from adt.cli.arrays import check_outputs, save_outputs
    from adt.device.rtvm import RtvmOptions
    from adt.package.classes import TOP, rank, read_labels

    names = read_labels(labels) if labels else ()
    check_outputs(outputs or ())
    options = RtvmOptions(
        threads=threads,
        affinity=affinity,
        warmup_ms=warmup_ms,
        zero_copy=zero_copy,
        pre_compiled=pre_compiled,
        program_cache=program_cache,
    )
    result = run(request.but(picture=picture_options(pictures), options=options))
    written = save_outputs(outputs or (), result.outputs)

    def ranking() -> Ranking | None:
        if not (names or top or softmax is not None):
            return None
        return rank(result.outputs, labels=names, top=top or TOP, softmax=softmax)

    return Rendering("run", lambda: _fields(result, written, ranking()), _lines(result, written, ranking))


def _fields(result: RunResult, written: tuple[Path, ...], ranking: Ranking | None) -> dict[str, Any]:
    from adt.cli.arrays import describe, described

    return {
        "via": result.via,
        "place": result.place,
        "label": result.label,
        "inputs": [describe({each.name: each.array})[0] | {"source": each.source} for each in result.inputs],
        "outputs": described(result.outputs),
        "output": written[0] if written else None,
        "written": written,
        "classes": _ranking_fields(ranking),
        "virtual_device": result.emulated,
        "report": result.report,
    }


def _ranking_fields(ranking: Ranking | None) -> dict[str, Any] | None:
    if ranking is None:
        return None
    return {
        "output": ranking.output,
        "softmax": ranking.softmax,
        "why": ranking.reason,
        "rows": [[vars(rank) for rank in row] for row in ranking.rows],
    }


def _lines(
    result: RunResult, written: tuple[Path, ...], ranking: Callable[[], Ranking | None]
) -> Iterator[str]:
    from adt.cli.arrays import table
    from adt.package.inputs.validation import array_kind

    how = " over RPC" if result.via == "rpc" else ""
    where = result.label if result.label.startswith(result.place) else f"{result.place}, {result.label}"
    yield f"ran on {where}{how}"
    if result.emulated:
        yield "emulated: right or wrong counts here, time does not"
    for each in result.inputs:
        source = f"  {each.source}" if each.source else ""
        yield f"input   {each.name}: {array_kind(each.array)}{source}"
    if not result.inputs:
        yield "input   made up from the seed"
    yield from table(result.outputs)
    if time := _time(result):
        yield time
    yield from (f"wrote {path}" for path in written)
    if (classes := ranking()) is not None:  # last, for an output may have no classes
        yield from _class_lines(classes)


def _class_lines(ranking: Ranking) -> Iterator[str]:
    from adt.host.columns import aligned

    applied = "applied" if ranking.softmax else "not applied"
    yield f"classes of {ranking.output}, softmax {applied}: {ranking.reason}"
    for number, row in enumerate(ranking.rows):
        if len(ranking.rows) > 1:
            yield f"row {number} of the batch"
        yield from aligned(
            [
                (
                    f"{place:>3}.",
                    f"{rank.probability:.6f}" if rank.probability is not None else f"{rank.score:g}",
                    f"{rank.index:>4}",
                    rank.label,
                )
                for place, rank in enumerate(row, start=1)
            ]
        )


def _time(result: RunResult) -> str:
    """Return the duration of the runs where it means something; else nothing."""
    from statistics import median

    report = result.report or {}
    times = report.get("run_ms") or []
    device = report.get("device") or {}
    on_cpu = isinstance(device, dict) and device.get("kind") == "opencl" and device.get("type") == "cpu"
    if result.emulated is not False or on_cpu or len(times) < 2:
        return ""
    return f"time    {median(times):.3f} ms, the median of {len(times)} runs (adt bench measures more)"
