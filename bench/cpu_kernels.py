"""Time kernels one by one on this machine's processor, untuned, against onnxruntime.

    python bench/cpu_kernels.py [--layers 3x3,points,…] [--threads 1,2] [--cpu NAME] [--avx2] [--rounds 3]

Each is a model of one layer (cpu_layers.py): adt's kernel by the clocks of ``adt profile`` against
onnxruntime's node by its profiler, in turns, minima. Conversions of the layout at both ends are not
counted on either side. The share is of the multiply-adds that one core was measured to start
(core_peak.c); of weights of few bits, of the bytes that it was measured to read again and again from where
so many lie. Exits with 1 where a layer is wrong.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cpu import AVX2, HERE, compiled, geometric_mean, hide_avx512, onnxruntime_session
from cpu_layers import FEW_BITS, LAYERS, PRODUCTS, WEIGHTS, layer_file, multiply_adds

RUNS = 100
"""Of each side in a turn."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--layers", default=",".join([*LAYERS, *PRODUCTS, *FEW_BITS]))
    parser.add_argument("--threads", default="1")
    parser.add_argument("--cpu", default="native")
    parser.add_argument("--avx2", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args(argv)
    if given.avx2:
        hide_avx512()
        given.cpu = AVX2
    import adt

    wrong, ratios = 0, []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        program = core_peak(place, given.cpu)
        peak_flops = peak(program)
        for name in given.layers.split(","):
            model, package = layer_file(place, name), place / name
            adt.compile(model, out=package, platform="host", cpu=given.cpu)
            right = adt.verify(package).verification.passed
            wrong += not right
            size = (package / "mod.params").stat().st_size if name.endswith(WEIGHTS) else 0
            for threads in map(int, given.threads.split(",")):
                ours, theirs, read = math.inf, math.inf, 0.0
                for _ in range(given.rounds):
                    ours = min(ours, adt_us(package, threads))
                    theirs = min(theirs, onnxruntime_us(place, model, threads))
                    read = max(read, peak(program, size) if size else 0)
                ratios.append(ours / theirs)
                share = f"{2e-3 * multiply_adds(name) / ours / (peak_flops * threads):4.0%}"
                if size:
                    rate = size / ours / 1e3
                    share = f"{rate:5.1f} GB/s, {rate / read:4.0%}"
                sys.stdout.write(
                    f"{name:16} {threads} thread(s)  adt {ours:9.1f} µs  onnxruntime {theirs:7.0f} µs  ratio "
                    f"{ours / theirs:.2f}  {share} of the peak  {'right' if right else 'WRONG'}\n"
                )
                sys.stdout.flush()
    sys.stdout.write(f"geometric mean of the ratios: {geometric_mean(ratios):.2f}\n")
    return int(wrong > 0)


def core_peak(place: Path, cpu: str) -> Path:
    """The program that measures what one core can do with the vectors of *cpu*."""
    wide = cpu == "native" and "avx512f" in Path("/proc/cpuinfo").read_text()
    program = place / "core_peak"
    flags = ("-march=native" if cpu == "native" else f"-march={cpu}", f"-DBYTES={64 if wide else 32}")
    compiled(HERE / "core_peak.c", program, "-ffp-contract=fast", *flags)
    return program


def peak(program: Path, size: int = 0) -> float:
    """GFLOP/s of one core, or the GB/s at which it reads so many bytes."""
    command = [str(program), *([str(size)] if size else [])]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def adt_us(package: Path, threads: int) -> float:
    """Microseconds of the kernels that compute, by adt."""
    import adt

    profile = adt.profile(package, runs=RUNS, threads=threads)
    return sum(call.min_us for call in profile.calls if call.flops)


def onnxruntime_us(place: Path, model: Path, threads: int) -> int:
    """Microseconds of the nodes that compute, by onnxruntime."""
    session, feeds = onnxruntime_session(model, threads, profile=place / "onnxruntime")
    for _ in range(RUNS):
        session.run(None, feeds)
    nodes: dict[str, int] = {}
    for event in json.loads(Path(session.end_profiling()).read_text()):
        operator = event.get("args", {}).get("op_name", "")
        if event["cat"] == "Node" and not operator.startswith("Reorder"):
            nodes[event["name"]] = min(event["dur"], nodes.get(event["name"], event["dur"]))
    return sum(nodes.values())


if __name__ == "__main__":
    sys.exit(main())
