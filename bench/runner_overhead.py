"""What libadt_runner's C interface costs beside a direct loop over TVM's virtual machine, on a CPU.

    python bench/runner_overhead.py [--rounds N] [--model MODEL.onnx]
    python bench/runner_overhead.py pack DIR          # for a machine that has nothing of adt:
    python3 DIR/runner_overhead.py run DIR            # there: Python 3 alone

Two models: a tiny one (microseconds) and a real one. Both ways run in one process, in
turn and in batches, with inputs and outputs in the same kind of memory: only the run,
and a whole inference with copies in and out, kernels on one thread. Other processes disturb the
clock: so medians over the rounds are printed, the median of the differences between neighbours, and
its share of the direct loop's time. The direct
loop is what a program for this one model would do; it must give the same bytes. Exits
with 1 where the runner adds more than 2 µs and more than 1 %.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

LIMIT_US, LIMIT_SHARE = 2.0, 0.01
MODEL_SECONDS = 30.0
"""About so long is one model measured, at the longest."""
HERE = Path(__file__).resolve().parent
BATCH_US = 2000.0
"""About so long is a batch: long beside the clock's own time, short beside a slow moment."""


def pack(place: Path, model: Path | None) -> None:
    """Put the program, the bundle and both packages into *place*."""
    sys.path.insert(0, str(HERE.parent / "tests"))
    import adt
    from support.models.small import MAGIKA, small_model

    place.mkdir(parents=True, exist_ok=True)
    built = adt.build_target(platform="host")
    bundle, tree = built.bundle, adt.source().path
    shutil.copytree(bundle.path, place / "bundle")
    shutil.copy(__file__, place / "runner_overhead.py")
    packages = {"tiny": small_model(place / "tiny.onnx"), "real": model or MAGIKA}
    for name, file in packages.items():
        adt.compile(file, out=place / name, platform="host", target="cpu", bundle=bundle.path, check=False)
        shutil.rmtree(place / name / "inspect", ignore_errors=True)
        shutil.copy(place / name / "mod.so", place / name / "direct.so")
    ffi = tree / "3rdparty/tvm-ffi"
    includes = [HERE.parent / "cpp_runner/include", tree / "include", ffi / "include"]
    includes.append(ffi / "3rdparty/dlpack/include")
    libraries = [bundle.path / "lib" / f"lib{name}.so" for name in ("adt_runner", "tvm_runtime", "tvm_ffi")]
    subprocess.run(
        [
            "c++", "-std=c++17", "-O2", *(f"-I{include}" for include in includes),
            HERE / "runner_overhead.cc", "-o", place / "runner_overhead", *libraries,
            "-Wl,-rpath,$ORIGIN/bundle/lib",
        ],
        check=True,
    )  # fmt: skip


def rounds_of(place: Path, name: str, batch: int, rounds: int) -> list[list[float]]:
    """Microseconds of [direct run, runner's run, direct inference, runner's inference], one row a round."""
    params = json.loads((place / name / "mod.json").read_text())["entries"][0]["params"]
    done = subprocess.run(
        [place / "runner_overhead", place / name, str(batch), str(rounds), *params],
        env={**os.environ, "LD_LIBRARY_PATH": str(place / "bundle/lib"), "TVM_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


def run(place: Path, rounds: int) -> int:
    """Measure and print; 1 when a limit is passed."""
    failed = 0
    print(f"{processor()}, {os.cpu_count()} cores, up to {rounds} rounds in turn; medians")  # noqa: T201
    for name in ("tiny", "real"):
        once = statistics.median(row[0] for row in rounds_of(place, name, 1, 5))
        batch = max(1, round(BATCH_US / once))
        fitting = int(MODEL_SECONDS * 1e6 / (4 * batch * once))
        rows = rounds_of(place, name, batch, max(10, min(rounds, fitting)))
        for what, at in (("run", 0), ("inference", 2)):
            direct = statistics.median(row[at] for row in rows)
            runner = statistics.median(row[at + 1] for row in rows)
            added = statistics.median(row[at + 1] - row[at] for row in rows)
            fits = added <= LIMIT_US or added <= LIMIT_SHARE * direct
            failed |= not fits
            print(  # noqa: T201
                f"{name:<5} {what:<10} direct {direct:10.2f} µs   runner {runner:10.2f} µs   "
                f"adds {added:+7.2f} µs = {added / direct:+8.2%}   {'within' if fits else 'ABOVE'} the limit"
            )
    return int(failed)


def processor() -> str:
    """What this machine's processor calls itself."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def main() -> int:
    """Pack, run, or both in a scratch directory."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("verb", nargs="?", choices=("pack", "run"))
    parser.add_argument("place", nargs="?", type=Path)
    parser.add_argument("--model", type=Path, help="the real one, instead of magika's")
    parser.add_argument("--rounds", type=int, default=400)
    given = parser.parse_args()
    if given.verb and not given.place:
        parser.error(f"{given.verb} needs a directory")
    if given.verb == "pack":
        pack(given.place, given.model)
        return 0
    if given.verb == "run":
        return run(given.place.resolve(), given.rounds)
    with tempfile.TemporaryDirectory(prefix="adt-bench-") as scratch:
        pack(Path(scratch), given.model)
        return run(Path(scratch), given.rounds)


if __name__ == "__main__":
    sys.exit(main())
