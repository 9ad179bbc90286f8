"""What `adt deploy` costs, against `adb push` of the same files, on a virtual device of its own.

    python bench/deploy.py [--runs N] [--files N] [--size BYTES] [--bandwidth BYTES]

In turn and in one run: `adb push` of a directory with all files, a deploy of the
same files after one of them changed, and a deploy that finds all of them there.
Then 200 small files, pushed and deployed. Prints medians and their ratios, and how
many services of the device each deploy opened. On a virtual device only ratios
mean anything. --bandwidth limits the link, as a cable does (USB 2: 40m).
"""

from __future__ import annotations

import argparse
import hashlib
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from own_place import own_device, own_place

from adt.device import selection
from adt.device.deploy.payload import Payload, PayloadFile, user_directory
from adt.device.deploy.store import apply, inspect, open_store, plan_deploy
from adt.device.device import Device
from adt.device.transport import adb
from adt.virtual import emulator
from adt.virtual.emulator import EmulatorInfo


def payload_of(directory: Path, name: str) -> Payload:
    """Every file of *directory* as a deployment; hashing them is not what is measured."""
    files = []
    for path in sorted(directory.iterdir()):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        files.append(PayloadFile(f"lib/{path.name}", path, digest, path.stat().st_size))
    return Payload(name, "linux-aarch64", tuple(files))


def deploy(device: Device, payload: Payload) -> int:
    """Deploy *payload*; returns how many files were sent."""
    base = user_directory("bench")
    with open_store(device, payload, base) as agent:
        plan = plan_deploy(payload, inspect(agent, payload, base))
        return len(apply(agent, plan, base).sent_files)


def seconds(call: Callable[[], Any]) -> float:
    """Wall time of one call."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def changed(payload: Payload, index: int, noise: random.Random) -> Payload:
    """Other contents of the same size in one file."""
    file = payload.files[index % len(payload.files)]
    data = noise.randbytes(file.size)
    file.source.write_bytes(data)
    new = replace(file, sha256=hashlib.sha256(data).hexdigest())
    return replace(payload, files=tuple(new if one is file else one for one in payload.files))


def report(name: str, times: list[float], of: list[float] | None = None) -> None:
    """Print one line."""
    median = statistics.median(times)
    ratio = f"{median / statistics.median(of):8.2f} of adb push" if of else ""
    sys.stdout.write(f"{name:<34} {median * 1000:9.1f} ms median of {len(times)} {ratio}\n")


def measure(device: Device, directory: Path, arguments: argparse.Namespace) -> None:
    """Measure and print everything."""
    services: list[str] = []
    open_device = adb.open_device

    def counting(serial: str, **options: Any) -> adb.Wire:
        services.append(serial)
        return open_device(serial, **options)

    adb.open_device = counting
    program, noise = adb.find_adb().path, random.Random(1)

    def push(source: Path, target: str) -> None:
        argv = [program, "-s", device.serial, "push", source, f"/data/local/tmp/{target}"]
        subprocess.run(argv, check=True, capture_output=True)

    def fresh() -> Device:
        device = selection.select(device_serial)
        _ = device.facts  # what a deploy asks first, and part of its services
        return device

    device_serial = device.serial
    large, small = directory / "large", directory / "small"
    for where, count, size in ((large, arguments.files, arguments.size), (small, 200, 2000)):
        where.mkdir()
        for number in range(count):
            (where / f"file{number}.so").write_bytes(noise.randbytes(size))
    many = payload_of(large, "large")
    deploy(device, many)
    times: dict[str, list[float]] = {"push": [], "one": [], "none": [], "push small": [], "small": []}
    counted: dict[str, int] = {}
    for run in range(arguments.runs):  # in turn, so that a slow moment hits all of them
        times["push"].append(seconds(lambda: push(large, "bench-push")))
        many = changed(many, run, noise)
        for name in ("one", "none"):
            services.clear()
            times[name].append(seconds(lambda many=many: deploy(fresh(), many)))
            counted[name] = len(services)
        times["push small"].append(seconds(lambda run=run: push(small, f"bench-small{run}")))
        for file in small.iterdir():
            file.write_bytes(noise.randbytes(2000))
        few = payload_of(small, "small")
        services.clear()
        times["small"].append(seconds(lambda few=few: deploy(fresh(), few)))
        counted["small"] = len(services)
    total = arguments.files * arguments.size
    sys.stdout.write(f"{arguments.files} files of {arguments.size:,} bytes ({total / 1e6:.0f} MB)\n")
    report("adb push of all", times["push"])
    report("deploy, one changed", times["one"], times["push"])
    report("deploy, nothing changed", times["none"], times["push"])
    sys.stdout.write("200 files of 2,000 bytes, none of them there\n")
    report("adb push of all", times["push small"])
    report("deploy", times["small"], times["push small"])
    for name, count in counted.items():
        sys.stdout.write(f"services of the device that a deploy opened ({name}): {count}\n")


def main() -> None:
    """Run it on a virtual device and an adb server that are ended again."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--files", type=int, default=20)
    parser.add_argument("--size", type=int, default=5_000_000, help="bytes of each file")
    parser.add_argument("--bandwidth", default="", help="bytes a second that the link carries, e.g. 40m")
    arguments = parser.parse_args()
    start: Callable[[str], EmulatorInfo] = emulator.start
    if arguments.bandwidth:
        sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
        from support.devices import faulty

        start = partial(faulty.start, faults=[f"bandwidth={arguments.bandwidth}"])
    with own_place() as scratch, own_device("bench-deploy", start) as device:
        measure(device, scratch, arguments)


if __name__ == "__main__":
    main()
