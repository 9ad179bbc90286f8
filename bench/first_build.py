"""What adt's first build costs beside CMake and Ninja run by hand, and how much it leaves out.

    python bench/first_build.py [--for PLATFORM] [--runs N]

Times, in turn and in one run, from nothing but a TVM source tree: `adt build-target`
with an empty cache, and `cmake --preset P && ninja` on the same preset. Prints medians
and their ratio, and how many translation units each compiles beside upstream's own
build, whose CMake only configures here (`ninja` with no target would build them all).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

from adt.host.directories import resource
from adt.verbs.build import source

BIN = Path(sys.executable).parent
NO_CACHE = {"CCACHE_DISABLE": "1", "SCCACHE_RECACHE": "1"}
"""A compiler cache would hide what is measured."""


def run(command: list[str | Path], cwd: Path | None = None, **environ: str) -> str:
    """stdout of *command*, which must succeed."""
    env = os.environ | NO_CACHE | environ
    return subprocess.run(command, cwd=cwd, env=env, check=True, capture_output=True, text=True).stdout


@dataclass(frozen=True)
class Took:
    """What one build took."""

    wall: float
    """Seconds on the clock."""
    cpu: float
    """Seconds of all its processes together: hardly changed by what else the machine does."""


@contextlib.contextmanager
def timed(into: list[Took]) -> Iterator[None]:
    """Add what the block took, with every process it started and waited for, to *into*."""
    before, began = children_cpu(), time.perf_counter()
    yield
    into.append(Took(time.perf_counter() - began, children_cpu() - before))


def children_cpu() -> float:
    """CPU seconds of the processes that were started and waited for so far."""
    used = getrusage(RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def by_hand(preset: str, tree: Path, build: Path) -> int:
    """What a user of the presets types; returns how many translation units were compiled."""
    configure = [BIN / "cmake", "--preset", preset, "-B", build, f"-DADT_TVM_SOURCE={tree}"]
    run(configure, cwd=resource("cmake_presets"))
    return len(re.findall(r"\] Building C(?:XX)? object", run([BIN / "ninja", "-C", build])))


def units(build: Path) -> int:
    """Translation units that `ninja` with no target would compile in *build*."""
    rules = (build / "build.ninja").read_text()
    return len(re.findall(r"^build \S+\.o: C(?:XX)?_COMPILER", rules, re.MULTILINE))


def upstream_units(tree: Path, build: Path) -> int:
    """Translation units of TVM's own build with the runtime options that adt switches on, and no compiler."""
    options = ["-DUSE_LLVM=OFF", "-DUSE_OPENCL=ON", "-DUSE_CPP_RPC=ON", "-DUSE_RPC=ON", "-DBUILD_TESTING=OFF"]
    run([BIN / "cmake", "-G", "Ninja", "-S", tree, "-B", build, *options])
    return units(build)


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--for", dest="platform", default="linux-aarch64")
    parser.add_argument("--runs", type=int, default=1)
    arguments = parser.parse_args()
    tree = source().path
    times: dict[str, list[Took]] = {"adt build-target": [], "cmake && ninja": []}
    counts: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for turn in range(arguments.runs):
            here = Path(scratch, str(turn))
            command = [
                BIN / "adt",
                "build-target",
                "--for",
                arguments.platform,
                "--tvm-source",
                tree,
                "--json",
            ]
            with timed(times["adt build-target"]):
                described = json.loads(run(command, ADT_CACHE_DIR=str(here / "cache")))
            counts["adt build-target"] = described["compiled"]
            with timed(times["cmake && ninja"]):
                counts["cmake && ninja"] = by_hand(described["bundle"]["preset"], tree, here / "by-hand")
        counts["TVM's own build"] = upstream_units(tree, Path(scratch, "upstream"))
    for name, count in counts.items():
        took = times.get(name, [])
        spent = f"{_wall(took):8.1f} s {_cpu(took):8.1f} s of CPU" if took else "not built"
        sys.stdout.write(f"{name:<18} {spent:>30} {count:>5} translation units\n")
    ours, theirs = times.values()
    sys.stdout.write(
        f"adt build-target / cmake && ninja in {arguments.runs} runs: "
        f"{_wall(ours) / _wall(theirs):.3f} of time, {_cpu(ours) / _cpu(theirs):.3f} of CPU\n"
    )


def _wall(took: list[Took]) -> float:
    return statistics.median(one.wall for one in took)


def _cpu(took: list[Took]) -> float:
    return statistics.median(one.cpu for one in took)


if __name__ == "__main__":
    main()
