"""Time the runner: its overhead, runs in pipelines, and its cache of OpenCL programs.

    python bench/runner.py overhead|pipelines|programs [MODEL.onnx[@INPUT:1,3,512,512]…]
    python bench/runner.py overhead|pipelines|programs pack DIR [MODEL…]   # for a machine that has no adt:
    python3 DIR/runner.py overhead|pipelines|programs run DIR              # there: Python 3 alone

``overhead``: the C interface beside a direct loop over TVM's virtual machine, on one thread of a CPU. Two
models, a tiny one and a real one (magika's, or MODEL), both ways in one process, in turns and in batches: the
run alone, and a whole inference with copies in and out. Medians over the rounds, and the median of the
differences between neighbours. Exits with 1 where the runner adds more than 2 µs and more than 1 %.

``pipelines``: milliseconds of one of 40 runs on an OpenCL device: of the kernels alone; of ``set_input`` and
``run`` each; of ``set_input`` and ``start`` each with one ``wait``, whose outputs must be the same bytes.

``programs``: load and first run with OpenCL, in a new process, twice each: without adt's program cache, with
kernels that are built at their first call, and with the cache. The driver's own cache is empty
before the first of two loads and kept for the second, as users have it; with ``--driver-cache off`` it is
empty for every load (PoCL) or switched off (NVIDIA). Exits with 1 where, with the driver's cache kept, the
first load takes less than 5 times the second. The model (without one: MobileNet-v2 with random weights) must
have 30 kernels or more.

OCL_ICD_VENDORS names the OpenCL driver where none is registered.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
LIMIT_US, LIMIT_SHARE = 2.0, 0.01
MODEL_SECONDS = 30.0
"""Longest time that the overhead of one model is measured."""
BATCH_US = 2000.0
"""Length of a batch: long beside the clock's own time, short beside a disturbance."""
RUNS, ROUNDS = 40, 10
LIMIT_RATIO, KERNELS = 5.0, 30
PAIRS = {"without": ("off", "off"), "one by one, without": ("off", "off"), "with": ("written", "hit")}
"""Reports of rtvm about adt's program cache at the first load and the second."""


def pack(kind: str, place: Path, models: list[str]) -> None:
    """Put the bundle, the packages and the program, if there is one, into *place*."""
    sys.path.insert(0, str(HERE.parent / "tests"))
    import adt
    from adt.compiler.networks.known import write_network
    from support.models.small import MAGIKA, small_model

    place.mkdir(parents=True, exist_ok=True)
    bundle = adt.build_target(platform="host").bundle
    shutil.copytree(bundle.path, place / "bundle")
    shutil.copy(__file__, place)
    target = "cpu" if kind == "overhead" else "opencl"
    files = {Path(text.partition("@")[0]).stem: text for text in models}
    if kind == "overhead":
        real = models[0] if models else str(MAGIKA)
        files = {"tiny": str(small_model(place / "tiny.onnx")), "real": real}
    elif not files:
        files["mobilenet_v2"] = str(write_network("mobilenet-v2", place / "mobilenet_v2.onnx", 96))
    for name, text in files.items():
        file, _, shape = text.partition("@")
        shapes = [shape] if shape else []
        out = place / "packages" / name
        adt.compile(
            Path(file),
            out=out,
            platform="host",
            target=target,
            bundle=bundle.path,
            shapes=shapes,
            check=False,
        )
        shutil.rmtree(out / "inspect", ignore_errors=True)
        shutil.copy(out / "mod.so", out / "direct.so")
    tree = adt.source().path
    ffi = tree / "3rdparty/tvm-ffi"
    includes = [HERE.parent / "cpp_runner/include", tree / "include", ffi / "include"]
    includes.append(ffi / "3rdparty/dlpack/include")
    libraries = [bundle.path / "lib" / f"lib{name}.so" for name in ("adt_runner", "tvm_runtime", "tvm_ffi")]
    compilers = {
        "overhead": ["c++", "-std=c++17", HERE / "runner_overhead.cc"],
        "pipelines": ["cc", HERE / "pipelines.c"],
    }
    if compiler := compilers.get(kind):
        words = [*compiler, "-O2", *(f"-I{include}" for include in includes), "-o", place / kind, *libraries]
        subprocess.run([*words, "-Wl,-rpath,$ORIGIN/bundle/lib"], check=True)


def output(place: Path, command: list[str | Path], **environment: str) -> str:
    """Return what *command* prints with the bundle's libraries; it must succeed."""
    libraries = f"{place / 'bundle/lib'}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    env = {**os.environ, "LD_LIBRARY_PATH": libraries, **environment}
    finished = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if finished.returncode:
        raise SystemExit(finished.stderr)
    return finished.stdout


def packages(place: Path) -> list[Path]:
    """Return the packages in *place*."""
    return sorted(path.parent for path in place.glob("packages/*/mod.json"))


def overhead(place: Path, options: argparse.Namespace) -> int:
    """Measure both models; return 1 when a limit is passed."""
    failed = 0
    sys.stdout.write(f"{os.cpu_count()} cores, up to {options.rounds} rounds in turn; medians\n")
    for package in packages(place)[::-1]:  # tiny first
        once = statistics.median(row[0] for row in overhead_rounds(place, package, 1, 5))
        batch = max(1, round(BATCH_US / once))
        fitting = int(MODEL_SECONDS * 1e6 / (4 * batch * once))
        rows = overhead_rounds(place, package, batch, max(10, min(options.rounds, fitting)))
        for what, at in (("run", 0), ("inference", 2)):
            direct = statistics.median(row[at] for row in rows)
            runner = statistics.median(row[at + 1] for row in rows)
            added = statistics.median(row[at + 1] - row[at] for row in rows)
            fits = added <= LIMIT_US or added <= LIMIT_SHARE * direct
            failed |= not fits
            sys.stdout.write(
                f"{package.name:<5} {what:<10} direct {direct:10.2f} µs  runner {runner:10.2f} µs  "
                f"adds {added:+7.2f} µs = {added / direct:+8.2%}  {'within' if fits else 'ABOVE'} the limit\n"
            )
    return int(failed)


def overhead_rounds(place: Path, package: Path, batch: int, rounds: int) -> list[list[float]]:
    """Return a row a round: microseconds of run and inference, each direct and by the runner."""
    params = json.loads((package / "mod.json").read_text())["entries"][0]["params"]
    command = [place / "overhead", package, str(batch), str(rounds), *params]
    return [json.loads(line) for line in output(place, command, TVM_NUM_THREADS="1").splitlines()]


def pipelines(place: Path, _options: argparse.Namespace) -> int:
    """Measure each package."""
    for package in packages(place):
        text = output(place, [place / "pipelines", package, str(RUNS), str(ROUNDS)])
        rows = [json.loads(line) for line in text.splitlines()]
        kernels, each, started = (statistics.median(row[i] for row in rows) for i in (0, 2, 3))
        sys.stdout.write(
            f"{package.name:<16} kernels {kernels:8.3f} ms   set_input and run {each:8.3f}   "
            f"set_input and start {started:8.3f} = {started / each:.0%} of it, "
            f"{started / kernels:.0%} of the kernels\n"
        )
    return 0


def programs(place: Path, options: argparse.Namespace) -> int:
    """Measure loads with and without the program cache; return 1 if a ratio that counts is too low."""
    failed, keep = 0, options.driver_cache == "kept"
    for package in packages(place):
        kernels = len(json.loads((package / "mod.json").read_text())["kernels"])
        if kernels < KERNELS:
            raise SystemExit(f"{package.name} has {kernels} kernels; give a model with {KERNELS} or more")
        rounds = [
            {pair: two_loads(place, package, pair, keep) for pair in PAIRS} for _ in range(options.loads)
        ]
        device = rounds[0]["with"][0]["device"]
        sys.stdout.write(
            f"{package.name}: {kernels} kernels on {device['name']} ({device.get('type')}, driver "
            f"{device.get('driver')}), its own cache {options.driver_cache}; load + first run, "
            f"medians of {options.loads}\n"
        )
        for pair in PAIRS:
            for number, name in enumerate(("first", "second")):
                parts = [(r[pair][number]["load_ms"], r[pair][number]["first_run_ms"]) for r in rounds]
                loaded, ran = (statistics.median(part[i] for part in parts) for i in (0, 1))
                total = statistics.median(sum(part) for part in parts)
                text = f"{total:10.1f} ms   (load {loaded:.1f}, first run {ran:.1f})"
                sys.stdout.write(f"  {pair} adt's cache, {name} load {text}\n")

        def ratio(first: tuple[str, int], second: tuple[str, int], rounds: list[Any] = rounds) -> float:
            return statistics.median(
                ready_ms(row[first[0]][first[1]]) / ready_ms(row[second[0]][second[1]]) for row in rounds
            )

        kept = ratio(("with", 0), ("with", 1))
        failed |= keep and kept < LIMIT_RATIO
        build = rounds[0]["without"][0]["program_build"]
        at_load = ratio(("without", 0), ("one by one, without", 0))
        sys.stdout.write(
            f"  first load, built at loading / one by one: {at_load:.2f} "
            f"({build['built']} programs in {build['ms']:.0f} ms on {os.cpu_count()} processors)\n"
            f"  first / second: {kept:.1f} with adt's cache{f' (limit: {LIMIT_RATIO:g})' if keep else ''}, "
            f"{ratio(('without', 0), ('without', 1)):.1f} without\n"
        )
    return int(failed)


def two_loads(place: Path, package: Path, pair: str, keep: bool) -> list[dict[str, Any]]:
    """Return rtvm's reports of a first and a second load; *keep*: the driver keeps its own cache."""
    reports = []
    with tempfile.TemporaryDirectory() as scratch:
        for number, state in enumerate(PAIRS[pair]):
            own = Path(scratch) / ("driver" if keep else f"driver-{number}")
            own.mkdir(exist_ok=True)
            driver = {"POCL_CACHE_DIR": str(own), "CUDA_CACHE_PATH": str(own)}
            if not keep:
                driver["CUDA_CACHE_DISABLE"] = "1"
            command = [place / "bundle/bin/rtvm", "--model", package, "--json"]
            command += ["--program-cache", f"{scratch}/programs" if pair == "with" else "off"]
            if pair.startswith("one by one"):
                command += ["--build-threads", "off"]
            report: dict[str, Any] = json.loads(output(place, command, **driver))
            if report["program_cache"]["state"] != state:
                raise SystemExit(f"{package.name}, load {number + 1} {pair}: {report['program_cache']}")
            reports.append(report)
    return reports


def ready_ms(report: dict[str, Any]) -> float:
    """Return the milliseconds from opening the package to its first result."""
    return float(report["load_ms"] + report["first_run_ms"])


KINDS = {"overhead": overhead, "pipelines": pipelines, "programs": programs}


def main() -> int:
    """Pack, run, or both in a scratch directory."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("words", nargs="*", help="pack DIR [MODEL…] | run DIR | [MODEL…]")
    parser.add_argument("--rounds", type=int, default=400, help="of overhead, at most")
    parser.add_argument("--loads", type=int, default=3, help="rounds of programs")
    parser.add_argument("--driver-cache", choices=("kept", "off"), default="kept")
    options = parser.parse_args()
    verb, words = (options.words[0] if options.words else ""), options.words[1:]
    if verb in ("pack", "run"):
        if not words:
            parser.error(f"{verb} needs a directory")
        if verb == "run":
            return KINDS[options.kind](Path(words[0]).resolve(), options)
        pack(options.kind, Path(words[0]), words[1:])
        return 0
    with tempfile.TemporaryDirectory(prefix="adt-bench-") as scratch:
        pack(options.kind, Path(scratch), options.words)
        return KINDS[options.kind](Path(scratch), options)


if __name__ == "__main__":
    sys.exit(main())
