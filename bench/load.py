"""What loading a model with 200 MB of parameters takes on this machine's processor, beside onnxruntime.

    python bench/load.py [--rounds N]

The model is 48 matrix products of 1024 × 1024, with random weights. Each load is a process of its own;
the file system has the files in memory. In turns: libadt_runner's C interface, which hashes the package
("hashed") and which did so before ("again"), and onnxruntime's Python interface. Prints the medians of
the load, of load and first run, and of what they add to the process's resident memory.
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
from pathlib import Path

import numpy as np

LAYERS, WIDTH = 48, 1024
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


def resident() -> float:
    """MB, of a file's pages and others."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 1e6


def measure(engine: str, path: str) -> dict[str, float]:
    """Load and run in this process: milliseconds and MB."""
    x = np.ones((1, WIDTH), "float32")
    if engine == "onnxruntime":
        import onnxruntime

        before, began = resident(), time.perf_counter()
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        loaded, held = time.perf_counter(), resident()
        session.run(None, {"x0": x})
    else:
        sys.path.insert(0, str(TESTS))
        from support.codegen.c_runner import Library, Runner

        library = Library(Path(engine))
        before, began = resident(), time.perf_counter()
        runner = Runner(library, Path(path))
        loaded, held = time.perf_counter(), resident()
        runner.set(0, x)
        runner.run()
    ran = time.perf_counter()
    times = {"load_ms": (loaded - began) * 1e3, "first_ms": (ran - began) * 1e3}
    return times | {"load_mb": held - before, "first_mb": resident() - before}


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
        for kind, taken in results.items():
            medians = {name: round(statistics.median(t[name] for t in taken[1:]), 1) for name in taken[0]}
            print(kind, medians)  # noqa: T201


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(*sys.argv[2:])))  # noqa: T201
    else:
        main()
