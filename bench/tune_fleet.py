"""Scaling of a tuning with the number of devices: adt's engine and fleet, and TVM's own RPCRunner.

    python bench/tune_fleet.py [--servers 1 2 4 8] [--sleep 0.5] [--window 20]

The servers are real (tvm_rpc of the bundle for this machine, registered with a tracker), and so are
the database and everything between. Only what is measured is made up: a candidate sleeps, so that
this machine's processors are no limit and N devices can at best do N times the work of one. Counted
is what ends in a window that begins when every server has measured; TVM's RPCRunner gets the same
libraries on the same servers, with its defaults and with as many workers as there are servers.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import logging
import math
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from own_place import free_port, own_place

import adt
from adt.bundle.bundle import TargetBundle
from adt.rpc import board, wire
from adt.tuning.candidates import (
    Argument,
    BuildJob,
    BuildOutcome,
    Candidate,
    Timing,
    Toolchain,
    TuningOptions,
)
from adt.tuning.database.store import open_database
from adt.tuning.engine import Engine
from adt.tuning.fleet.fleet import Fleet
from adt.tuning.fleet.sources import TrackerSource
from adt.tuning.records import Record
from adt.tuning.results import Observer

KEY = "bench"
TIMING = Timing(number=1, repeat=1, min_repeat_ms=0)
ARGUMENT = Argument((1024,), "float32")
SOURCE = """
#include <unistd.h>
int __tvm_ffi_main(void* self, const void* arguments, int count, void* result) {
  (void)self; (void)arguments; (void)count; (void)result;
  usleep(MICROSECONDS);
  return 0;
}
"""


def library(directory: Path, sleep: float) -> Path:
    """Compile a kernel that sleeps for half of *sleep* seconds, as TVM calls it to warm up and to time."""
    source, made = directory / "kernel.c", directory / "kernel.so"
    source.write_text(SOURCE)
    half = f"-DMICROSECONDS={round(sleep / 2 * 1e6)}"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", half, source, "-o", made], check=True)
    return made


@contextlib.contextmanager
def servers(bundle: TargetBundle, tracker: str, count: int) -> Iterator[None]:
    """Run *count* registered servers."""
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            words = board.arguments(key=KEY, port=free_port(), tracker=tracker)
            stack.enter_context(board.run_server(bundle, words, output=subprocess.DEVNULL))
        wait_for(lambda: wire.summary(tracker).queue(KEY).free == count)
        yield
    wait_for(lambda: wire.summary(tracker).queue(KEY).total == 0)


def wait_for(happened: Callable[[], bool]) -> None:
    """Wait until it has happened."""
    end = time.monotonic() + 60
    while not happened():
        if time.monotonic() > end:
            raise TimeoutError("a server did not come up or go")
        time.sleep(0.05)


class Meter:
    """Candidates per second in a window that begins when everybody is warm."""

    def __init__(self, window: float) -> None:
        self._window, self._begin, self._count = window, 0.0, 0
        self.over = threading.Event()

    def count(self, *, warm: bool) -> None:
        """Count a candidate that is done."""
        now = time.monotonic()
        if not self._begin:
            self._begin = now if warm else 0.0
        elif now - self._begin <= self._window:
            self._count += 1
        else:
            self.over.set()

    @property
    def rate(self) -> float:
        """Candidates per second."""
        return self._count / self._window


# adt ------------------------------------------------------------------------------------------------


class Endless:
    """Searches that always have another candidate."""

    def __init__(self) -> None:
        self._number = itertools.count()

    def search(self, task: Any, *, known: Sequence[Record] = (), elsewhere: Sequence[Record] = ()) -> Endless:
        """See :class:`adt.tuning.search.task_search.Searches`."""
        return self

    def next_batch(self, count: int) -> Sequence[Candidate]:
        """See :class:`adt.tuning.search.task_search.TaskSearch`."""
        return [Candidate(f"candidate {next(self._number)}", "{}") for _ in range(count)]

    def report(self, results: Sequence[Any]) -> None:
        """See :class:`adt.tuning.search.task_search.TaskSearch`."""


@dataclass
class Prebuilt:
    """Builders that have built everything already."""

    made: bytes
    workers: int = 2

    def submit(self, job: BuildJob, done: Callable[[BuildOutcome], None]) -> None:
        """See :class:`adt.tuning.fleet.builders.Builders`."""
        done(BuildOutcome(job.id, self.made, None, 0.0))

    def close(self) -> None:
        """See :class:`adt.tuning.fleet.builders.Builders`."""


def with_adt(tracker: str, made: Path, count: int, window: float, directory: Path) -> float:
    """Measure the candidates per second of adt's engine, database and fleet with *count* servers."""
    from tvm import IRModule, te

    meter, seen = Meter(window), set[str]()

    def recorded(record: Record) -> None:
        if record.failure is not None or record.on is None:
            raise RuntimeError(f"a candidate failed: {record.failure}")
        seen.add(record.on.name)
        meter.count(warm=len(seen) == count)

    given = te.placeholder(ARGUMENT.shape, ARGUMENT.dtype)
    kernel = te.create_prim_func([given, te.compute(ARGUMENT.shape, lambda i: given[i] + count)])
    task: Any = SimpleNamespace(
        name="sleeps",
        module=IRModule({"main": kernel}),
        weight=1,
        flops=1,
        baseline="{}",
        arguments=(ARGUMENT,),
        kernels=("sleeps",),
    )
    toolchain = Toolchain({"kind": "llvm"}, "cpu", 64, False, 3, "cc", (), cuda=None)
    with open_database(directory / f"records-{count}", write=True) as database:
        engine = Engine(
            TuningOptions(f"bench {count}", "{}", "0.25.0", toolchain, TIMING, trials=1_000_000),
            [task],
            searches=Endless(),
            builders=Prebuilt(made.read_bytes()),
            database=database,
            observer=Observer(record=recorded),
            stop=meter.over,
        )
        engine.run(Fleet(TrackerSource(tracker, KEY), "cpu").start)
    return meter.rate


# TVM ------------------------------------------------------------------------------------------------


def with_tvm(tracker: str, made: Path, workers: int | None, window: float, sleep: float) -> float:
    """Measure the candidates per second of TVM's RPCRunner with *workers* processes; None: its default."""
    from tvm.s_tir import meta_schedule as ms

    host, port = wire.parse_address(tracker)
    options = {} if workers is None else {"max_workers": workers}
    runner = ms.runner.RPCRunner(
        ms.runner.RPCConfig(host, port, KEY),
        ms.runner.EvaluatorConfig(TIMING.number, TIMING.repeat, TIMING.min_repeat_ms),
        **options,
    )
    info = ms.arg_info.TensorInfo(ARGUMENT.dtype, ARGUMENT.shape)
    used = workers or 1
    inputs = [ms.runner.RunnerInput(str(made), "cpu", [info])] * (used + math.ceil(window / sleep * used))
    waiting = dict(enumerate(runner.run(inputs)))
    meter, done = Meter(window), 0
    while waiting and not meter.over.is_set():
        for number in [number for number, future in waiting.items() if future.done()]:
            result = waiting.pop(number).result()
            if result.error_msg is not None:
                raise RuntimeError(f"a candidate failed: {result.error_msg}")
            done += 1
            meter.count(warm=done >= used)
        time.sleep(0.02)
    for future in waiting.values():
        future.result()
    return meter.rate


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--servers", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--sleep", type=float, default=0.5, help="seconds of one candidate")
    parser.add_argument("--window", type=float, default=20.0, help="seconds that are counted")
    arguments = parser.parse_args()
    sleep, window = arguments.sleep, arguments.window
    logging.getLogger("adt").setLevel(logging.ERROR)
    rows = []
    with own_place() as home, tempfile.TemporaryDirectory(prefix="adt-bench-") as scratch:
        bundle = adt.build_target(platform="host").bundle
        made = library(Path(scratch), sleep)
        tracker = adt.tracker_start(port=free_port()).address
        try:
            for count in arguments.servers:
                sys.stderr.write(f"{count} servers …\n")
                with servers(bundle, tracker, count):
                    ours = with_adt(tracker, made, count, window, home)
                    default = with_tvm(tracker, made, None, window, sleep)
                    most = with_tvm(tracker, made, count, window, sleep)
                rows.append({"servers": count, "adt": ours, "tvm_default": default, "tvm_workers": most})
        finally:
            adt.tracker_stop()
    for row in rows:
        row["adt_scaling"] = row["adt"] / rows[0]["adt"] / (row["servers"] / rows[0]["servers"])
    sys.stdout.write(f"candidates per second; each takes {sleep:g} s\n")
    sys.stdout.write("servers    adt  of N × 1  RPCRunner  RPCRunner, N workers\n")
    for row in rows:
        sys.stdout.write(
            f"{row['servers']:>7}  {row['adt']:>5.2f}  {row['adt_scaling']:>8.3f}  "
            f"{row['tvm_default']:>9.2f}  {row['tvm_workers']:>20.2f}\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
