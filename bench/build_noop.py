"""Time that `adt build-target` adds when there is nothing to build.

    python bench/build_noop.py [--for PLATFORM] [--runs N]

Times, in turn and in one run: `adt build-target`, Ninja's own no-op in the same
build directory, `adt --help` and `python -c pass`; prints medians and the
differences. The build must be up to date; the first `adt build-target` sees to that.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

BIN = Path(sys.executable).parent


def seconds(command: list[str]) -> float:
    """Measure the wall time of one run of *command*, which must succeed."""
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - began


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--for", dest="platform", default="linux-aarch64")
    parser.add_argument("--runs", type=int, default=11)
    arguments = parser.parse_args()
    build = [str(BIN / "adt"), "build-target", "--for", arguments.platform]
    described = json.loads(subprocess.run([*build, "--json"], check=True, capture_output=True).stdout)
    commands = {
        "adt build-target": build,
        "ninja": [str(BIN / "ninja"), "-C", described["build_dir"]],
        "adt --help": [str(BIN / "adt"), "--help"],
        "python -c pass": [sys.executable, "-c", "pass"],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(arguments.runs):  # in turn, so that a slow moment hits all of them
        for name, command in commands.items():
            times[name].append(seconds(command))
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, median in medians.items():
        sys.stdout.write(f"{name:<18} {median * 1000:8.1f} ms median of {arguments.runs}\n")
    for a, b in (("adt build-target", "ninja"), ("adt --help", "python -c pass")):
        sys.stdout.write(f"{a} − {b}: {(medians[a] - medians[b]) * 1000:.0f} ms\n")


if __name__ == "__main__":
    main()
