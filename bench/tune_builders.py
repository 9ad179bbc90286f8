"""How building candidates scales: one process against more, on this machine and on a Dask cluster.

    python bench/tune_builders.py [--workers 1 2] [--candidates 16] [--rounds 7] [--json]

The candidates are schedules of a convolution that TVM's rules allow, drawn at random. All engines
are up from the start; each round builds all candidates with each engine and number of workers in
turn, so that whatever else the machine does meets all of them, and the median round counts.
Compiling is all that is done, so that the number of processors is the limit. The Dask cluster is one
of this machine, with processes of one thread, as `dask worker --nthreads 1` makes them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import SimpleNamespace

from adt.tuning.candidates import Argument, BuildJob, BuildOutcome, Toolchain
from adt.tuning.fleet.builders import Builders, LocalBuilders, make_builders
from adt.tuning.records import Failure
from adt.tuning.search.task_search import Searches, SearchOptions

TARGET = {"kind": "llvm", "mtriple": "x86_64-linux-gnu", "num-cores": 2}
TOOLCHAIN = Toolchain(TARGET, "cpu", 64, False, 3, "g++", ())


def candidates(count: int) -> list[str]:
    """TVM's JSON of *count* schedules of a 3 × 3 convolution."""
    import tvm
    from tvm import te, topi

    data = te.placeholder((1, 32, 28, 28), name="data")
    weight = te.placeholder((64, 32, 3, 3), name="weight")
    result = topi.nn.relu(topi.nn.conv2d(data, weight, 1, 1, 1))
    function = te.create_prim_func([data, weight, result]).with_attr("global_symbol", "main")
    shapes = [(1, 32, 28, 28), (64, 32, 3, 3), (1, 64, 28, 28)]
    task = SimpleNamespace(
        name="conv2d",
        module=tvm.IRModule({"main": function}),
        arguments=tuple(Argument(shape, "float32") for shape in shapes),
    )
    search = Searches(TARGET, SearchOptions("random", "none")).search(task)  # type: ignore[arg-type]
    found: list[str] = []
    while len(found) < count:
        batch = search.next_batch(count - len(found))
        if batch is None:
            sys.exit(f"TVM's rules give only {len(found)} candidates")
        found += [candidate.module for candidate in batch]
        search.report([None] * len(batch))
    return found


class Round:
    """Builds everything once."""

    def __init__(self, builders: Builders, modules: Sequence[str]) -> None:
        self.failed: list[Failure] = []
        self._left = len(modules)
        self._done = threading.Event()
        self._lock = threading.Lock()
        began = time.perf_counter()
        for number, module in enumerate(modules):
            builders.submit(BuildJob(number, module, TOOLCHAIN), self._built)
        self._done.wait()
        self.per_second = len(modules) / (time.perf_counter() - began)

    def _built(self, built: BuildOutcome) -> None:
        with self._lock:
            if built.failure is not None:
                self.failed.append(built.failure)
            self._left -= 1
            if not self._left:
                self._done.set()


@contextmanager
def local(workers: int) -> Iterator[Builders]:
    """Processes of adt's own."""
    builders = LocalBuilders(workers)
    try:
        yield builders
    finally:
        builders.close()


@contextmanager
def dask(workers: int) -> Iterator[Builders]:
    """A cluster with *workers* workers."""
    from distributed import LocalCluster

    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    with LocalCluster(
        n_workers=workers, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0"
    ) as cluster:
        builders = make_builders(cluster.scheduler_address, TOOLCHAIN)
        try:
            yield builders
        finally:
            builders.close()


ENGINES: dict[str, Callable[[int], AbstractContextManager[Builders]]] = {"local": local, "dask": dask}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--candidates", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    modules = candidates(asked.candidates)
    speeds: dict[tuple[str, int], list[float]] = {}
    with ExitStack() as stack:
        up = {
            (engine, workers): stack.enter_context(make(workers))
            for engine, make in ENGINES.items()
            for workers in asked.workers
        }
        for builders in up.values():
            Round(builders, modules)  # every process has imported TVM then
        for _ in range(asked.rounds):
            for (engine, workers), builders in up.items():
                done = Round(builders, modules)
                if done.failed:
                    sys.exit(
                        f"{len(done.failed)} of {len(modules)} candidates were not built: {done.failed[0]}"
                    )
                speeds.setdefault((engine, workers), []).append(done.per_second)
                sys.stderr.write(f"{engine} {workers}: {done.per_second:.2f} candidates/s\n")
    best = {key: statistics.median(values) for key, values in speeds.items()}
    first = asked.workers[0]
    rows = [
        {"engine": engine, "workers": workers, "per_second": speed, "times": speed / best[engine, first]}
        for (engine, workers), speed in best.items()
    ]
    if asked.json:
        print(json.dumps({"cpus": os.cpu_count(), "candidates": len(modules), "rows": rows}))  # noqa: T201
        return
    for row in rows:
        sys.stdout.write(
            f"{row['engine']:6} {row['workers']} workers  {row['per_second']:.2f} candidates/s  "
            f"{row['times']:.2f} × {first}\n"
        )


if __name__ == "__main__":
    main()
