"""Tune ResNet-18's kernels on this machine's GPU, in buffers and in textures, against the untuned ones.

    python bench/tune_gpu.py [--trials 1000] [--seconds S] [--size 224] [--target adreno]…
                             [--db DIR] [--bundle DIR] [-o FILE.json] [MODEL.onnx]

Prints for each target what `adt tune --compare` finds: each kernel untuned and tuned, and the
whole model with its records and without, in turns; the outputs are compared with ONNX
Runtime's. With ``-o``, the same as JSON. Exits with 1 where a package is wrong, or slower than
untuned. Without a model, ResNet-18 with random weights. The directory of records may be used
again: with more ``--trials`` the tuning goes on. After ``--seconds`` for a target it ends with
what it has, which is then compared.

The kernels are made for Adreno; the times are those of the GPU that is here, and say nothing
of a phone. OCL_ICD_VENDORS names the driver where none is registered:
``OCL_ICD_VENDORS=/path/to/libnvidia-opencl.so.1``.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import adt
from adt.api.model import job_of
from adt.api.requests import CompileRequest
from adt.api.tune_result import compare_packages
from adt.tuning.results import Status, TuneResult

HERE = Path(__file__).resolve().parent
EVERY = 20.0
"""Seconds between two lines on how it stands."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path)
    parser.add_argument("--target", action="append")
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--db", type=Path)
    parser.add_argument("--bundle", type=Path)
    parser.add_argument("--tuner", default="evolutionary")
    parser.add_argument("-o", dest="out", type=Path)
    given = parser.parse_args()
    # No code of its own decides here whether the packages are right: the comparison does.
    os.environ.setdefault("ADT_COMPILE_CHECK", "off")
    with tempfile.TemporaryDirectory(prefix="adt-bench-") as scratch:
        model = given.model or _resnet18(Path(scratch) / "resnet18.onnx", given.size)
        rows = []
        for target in given.target or ["adreno", "adreno-buffer"]:
            found = _tuned(model, target, given, given.db or Path(scratch) / "records")
            rows.append(_row(target, found))
            _print(rows[-1])
            if given.out:
                given.out.write_text(json.dumps(rows, indent=1))
    return int(any(not row["right"] or not row["ratio"] or row["ratio"][2] < 1 for row in rows))


def _resnet18(path: Path, size: int) -> Path:
    from adt.compiler.networks.known import write_network

    return write_network("resnet-18", path, size)


def _tuned(model: Path, target: str, given: argparse.Namespace, db: Path) -> TuneResult:
    """Tune, for as long as *given* says; then compare."""
    stop = threading.Event()
    timer = threading.Timer(given.seconds or threading.TIMEOUT_MAX, stop.set)
    timer.daemon = True
    timer.start()
    found = adt.tune(
        model,
        platform="host",
        target=target,
        db=db,
        bundle=given.bundle,
        trials=given.trials,
        tuner=given.tuner,
        min_repeat_ms=20,
        timeout=5.0,
        repeat=3,
        compare=True,
        on_status=_lines(target),
        stop=stop,
    )
    timer.cancel()
    if found.comparison is None:  # it was stopped
        job = job_of(CompileRequest(model, platform="host", target=target, bundle=given.bundle))
        found = dataclasses.replace(found, comparison=compare_packages(job, db, found, ()))
    return found


def _lines(target: str) -> Callable[[Status], None]:
    said = -EVERY

    def line(status: Status) -> None:
        nonlocal said
        if status.elapsed - said >= EVERY:
            said = status.elapsed
            print(  # noqa: T201
                f"{target}: {status.elapsed:.0f} s, {status.done} of {status.total} trials, "
                f"{sum(status.failures.values())} failed",
                file=sys.stderr,
                flush=True,
            )

    return line


def _row(target: str, found: TuneResult) -> dict[str, Any]:
    comparison = found.comparison
    assert comparison is not None
    return {
        "target": target,
        "context": dataclasses.asdict(found.context) if found.context else None,
        "tasks": [dataclasses.asdict(task) | {"times_as_fast": task.times_as_fast} for task in found.tasks],
        "untunable": [dataclasses.asdict(one) for one in found.plan.untunable],
        "trials": found.done,
        "failures": dict(found.failures),
        "seconds": found.seconds,
        "tuned_kernels": comparison.tuned_kernels,
        "total_kernels": comparison.total_kernels,
        "untuned": comparison.unoptimised and dataclasses.asdict(comparison.unoptimised),
        "tuned": comparison.optimised and dataclasses.asdict(comparison.optimised),
        "ratio": comparison.ratio,
        "right": comparison.correct,
    }


def _print(row: dict[str, Any]) -> None:
    say = print
    context = row["context"] or {"device": "no device", "driver": ""}
    say(f"\n{row['target']} on {context['device']}, driver {context['driver']}:")
    say(f"  {row['trials']} trials in {row['seconds']:.0f} s, failures: {row['failures']}")
    for task in row["tasks"]:
        name, calls, why = task["name"], task["calls"], task["reason"]
        before, after, times = (
            float("nan") if task[key] is None else task[key]
            for key in ("baseline_ms", "best_ms", "times_as_fast")
        )
        trials = f"{task['trials']} trials, {task['failed']} failed"
        say(f"  {name:60} {calls:2} × {before:8.4f} ms → {after:8.4f} ms {times:6.2f}  {trials} {why}")
    for one in row["untunable"]:
        say(f"  {one['name']:60} keeps its schedule: {one['reason']}")
    if row["ratio"]:
        value, low, high = row["ratio"]
        say(
            f"  whole model, {row['tuned_kernels']} of {row['total_kernels']} kernels tuned: "
            f"{row['untuned']['median_ms']:.3f} ms → {row['tuned']['median_ms']:.3f} ms, "
            f"{value:.2f} × as fast ({low:.2f} … {high:.2f})"
        )
    say(f"  outputs right: {row['right']}")


if __name__ == "__main__":
    sys.exit(main())
