"""Speed of transfers to a device and back, beside `adb` itself and adbutils.

    python bench/transfer.py [--serial S] [--runs N] [--size MB] [--files N]

Copies one large file and many small ones, in turn and in one run, with adt,
with the `adb` that adbutils carries, and (one file) with adbutils; prints
medians and ratios. Without --serial a virtual device is started for it, behind
an adb server of its own, and stopped again. Rates of a
virtual device say how adt compares, nothing about a phone's cable.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from own_place import own_device, own_place

from adt.device import selection
from adt.device.device import Device
from adt.device.transport.adb import server_port
from adt.device.transport.sync import PushItem

THERE = "/data/local/tmp/adt-bench"


def bundled_adb() -> str:
    """Return the adb program inside adbutils."""
    import adbutils

    return str(Path(adbutils.__file__).parent / "binaries" / "adb")


@contextlib.contextmanager
def device(serial: str | None) -> Iterator[Device]:
    """Yield the device *serial*, or a virtual one that is gone afterwards."""
    if serial:
        yield selection.select(serial)
        return
    os.environ["ADBUTILS_ADB_PATH"] = bundled_adb()
    with own_place(), own_device("bench-transfer") as found:
        yield found


def inputs(here: Path, size: int, files: int) -> tuple[Path, Path]:
    """Write a file of *size* MB and a directory with *files* small files in ten directories."""
    dice = random.Random(0)
    large = here / "large"
    large.write_bytes(dice.randbytes(size * 1_000_000))
    small = here / "small"
    for n in range(files):
        path = small / f"d{n % 10}" / f"f{n}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(dice.randbytes(1000 + 37 * n))
    return large, small


def ways(
    found: Device, large: Path, small: Path, here: Path
) -> dict[str, dict[str, Callable[[int], object]]]:
    """Return the timed calls: for each task, each program's way; the argument is the number of the run."""
    from adbutils import AdbClient

    other = AdbClient(host="127.0.0.1", port=server_port()).device(found.serial)

    def adb(*arguments: str) -> Callable[[int], object]:
        def call(run: int) -> object:
            words = [word.format(run=run) for word in arguments]
            argv = [bundled_adb(), "-s", found.serial, *words]
            return subprocess.run(argv, check=True, capture_output=True)

        return call

    def push_small(run: int) -> object:
        items = [
            PushItem(path, f"{THERE}/t-adt{run}/{path.relative_to(small)}")
            for path in small.rglob("*")
            if path.is_file()
        ]
        with found.sync(timeout=None, doing="pushing many files") as session:
            return session.push_many(items)

    return {
        "push one file": {
            "adt": lambda run: found.push(large, f"{THERE}/adt"),
            "adb": adb("push", str(large), f"{THERE}/adb"),
            "adbutils": lambda run: other.sync.push(str(large), f"{THERE}/adbutils"),
        },
        "pull one file": {
            "adt": lambda run: found.pull(f"{THERE}/adt", here / "back-adt"),
            "adb": adb("pull", f"{THERE}/adt", str(here / "back-adb")),
        },
        "push many files": {
            "adt": push_small,
            "adb": adb("push", str(small), f"{THERE}/t-adb{{run}}"),
        },
    }


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--serial")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--size", type=int, default=100, help="of the one file, in MB")
    parser.add_argument("--files", type=int, default=200, help="in the directory")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="adt-bench-") as scratch:
        here = Path(scratch)
        large, small = inputs(here, arguments.size, arguments.files)
        with device(arguments.serial) as found:
            sys.stdout.write(f"{found.facts.label}\n")
            found.shell(["mkdir", "-p", THERE])
            try:
                measure(ways(found, large, small, here), arguments.runs, arguments.size)
            finally:
                found.shell(["rm", "-rf", THERE], timeout=None)


def measure(tasks: dict[str, dict[str, Callable[[int], object]]], runs: int, size: int) -> None:
    """Measure every way of every task *runs* times and print the medians."""
    for task, calls in tasks.items():
        times: dict[str, list[float]] = {name: [] for name in calls}
        for run in range(runs):  # in turn, so that a slow moment hits all of them
            for name, call in calls.items():
                began = time.perf_counter()
                call(run)
                times[name].append(time.perf_counter() - began)
        medians = {name: statistics.median(values) for name, values in times.items()}
        for name, median in medians.items():
            rate = f"{size / median:8.0f} MB/s" if "one file" in task else ""
            ratio = f"{median / medians['adt']:6.2f} × adt's time" if name != "adt" else ""
            sys.stdout.write(f"{task:<18} {name:<9} {median * 1000:8.1f} ms {rate:<14}{ratio}\n")


if __name__ == "__main__":
    main()
