"""Loading of a model with 200 MB of parameters on this machine's processor, beside onnxruntime.

    python bench/load.py [--rounds N]

The model is 48 matrix products of 1024 × 1024, with random weights. Each load is a process of its own;
the file system has the files in memory. In turns: libadt_runner's C interface, which hashes the package
("hashed") and which did so before ("again"), and onnxruntime's Python interface, which loads and runs as
its C interface does. Prints the medians of the load, of load and first run, of what they and four sessions
(onnxruntime: one session, for four threads) add to the process's memory, and of the time per run when one
thread and when four call; and the ratios to onnxruntime's in the same round.

"mb" is resident memory; "own_mb" what of it no other process can share: without the pages of files.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

LAYERS, WIDTH = 48, 1024
SESSIONS = 4
RUNS = 20
TESTS = Path(__file__).resolve().parent.parent / "tests"


def write_model(path: Path) -> None:
    from onnx import TensorProto, helper, numpy_helper, save

    generator = np.random.default_rng(0)
    weights = [generator.normal(0, WIDTH**-0.5, (WIDTH, WIDTH)).astype("float32") for _ in range(LAYERS)]
    nodes = [helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"]) for i in range(LAYERS)]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, WIDTH)) for name in ("x0", f"x{LAYERS}")
    ]
    named = [numpy_helper.from_array(weight, f"w{i}") for i, weight in enumerate(weights)]
    graph = helper.make_graph(nodes, "large", ends[:1], ends[1:], named)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def memory() -> np.ndarray:
    """Return the memory of this process in MB: resident, and the part of it that is no file's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    kilobytes = {line.partition(":")[0]: line.split()[1] for line in lines if line.startswith("Rss")}
    files = int(kilobytes["RssFile"])
    own = int(kilobytes["RssAnon"]) + int(kilobytes["RssShmem"])
    return np.array([files + own, own]) * 1024 / 1e6


def time_per_run(callers: Sequence[Callable[[], object]]) -> float:
    """Measure the milliseconds from run to run when each of *callers* runs from a thread of its own."""

    def call(run: Callable[[], object]) -> None:
        for _ in range(RUNS):
            run()

    with ThreadPoolExecutor(len(callers)) as threads:
        began = time.perf_counter()
        list(threads.map(call, callers))
    return (time.perf_counter() - began) * 1e3 / (RUNS * len(callers))


def measure(engine: str, path: str) -> dict[str, float]:
    """Load and run in this process: milliseconds and MB."""
    x = np.ones((1, WIDTH), "float32")
    if engine == "onnxruntime":
        import onnxruntime

        before, began = memory(), time.perf_counter()
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        loaded, held = time.perf_counter(), memory()

        def run() -> object:
            return session.run(None, {"x0": x})

        run()
    else:
        sys.path.insert(0, str(TESTS))
        from support.codegen.c_runner import Library, Runner

        library = Library(Path(engine))
        before, began = memory(), time.perf_counter()
        runner = Runner(library, Path(path))
        loaded, held = time.perf_counter(), memory()
        runner.set(0, x)
        runner.run()
        run = runner.run
    ran = time.perf_counter()
    result = {"load_ms": (loaded - began) * 1e3, "first_ms": (ran - began) * 1e3}
    added = {"load": held, "first": memory()}
    result["run_ms"] = time_per_run([run])
    callers = [run] * SESSIONS
    if engine != "onnxruntime":
        sessions = [runner.session() for _ in range(SESSIONS - 1)]
        for other in sessions:
            other.set(0, x)
        callers = [run, *(other.run for other in sessions)]
    result["sessions_run_ms"] = time_per_run(callers)
    added["sessions"] = memory()
    for name, amount in added.items():
        result[f"{name}_mb"], result[f"{name}_own_mb"] = amount - before
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    import adt

    with tempfile.TemporaryDirectory() as place:
        model, package = Path(place, "large.onnx"), Path(place, "package")
        write_model(model)
        bundle = adt.build_target(platform="host").bundle
        adt.compile(model, out=package, platform="host", bundle=bundle.path, check=False)
        runner = str(bundle.path / "lib/libadt_runner.so")
        kept = f"{place}/kept"
        kinds = {
            "onnxruntime": ("onnxruntime", model, "off"),
            "adt, hashed": (runner, package, "off"),
            "adt, again": (runner, package, kept),
        }
        time.sleep(4)  # what has just changed is not recorded
        results: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
        for _ in range(rounds + 1):
            for kind, (engine, path, cache) in kinds.items():
                words = [sys.executable, __file__, "--measure", engine, str(path)]
                environment = {**os.environ, "ADT_PROGRAM_CACHE": cache}
                done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
                results[kind].append(json.loads(done.stdout))
        reference = results["onnxruntime"]
        print("load of this machine:", *os.getloadavg())  # noqa: T201
        for kind, taken in results.items():
            print(kind)  # noqa: T201
            for name in taken[0]:
                median = statistics.median(each[name] for each in taken[1:])
                ratio = statistics.median(
                    each[name] / other[name] for each, other in zip(taken[1:], reference[1:], strict=True)
                )
                print(f"  {name:16} {median:8.1f}  {ratio:.3f} of onnxruntime's")  # noqa: T201


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(*sys.argv[2:])))  # noqa: T201
    else:
        main()
