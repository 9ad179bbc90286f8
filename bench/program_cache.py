"""How much sooner a model is ready when its OpenCL kernels are kept compiled, on the OpenCL that is there,
and when they are built at loading on several threads.

    python bench/program_cache.py [--loads N] [--driver-cache kept|off] [MODEL.onnx…]
    python bench/program_cache.py pack DIR [MODEL.onnx…]     # for a machine that has nothing of adt:
    python3 DIR/program_cache.py run DIR [--loads N] [--driver-cache kept|off]
                                                             # there: Python 3 alone, an OpenCL driver

Each load is a process of its own. A round has two loads without adt's program cache, two whose
kernels are built at their first call, one by one, and two with the cache; the second of each pair
comes after the first as it would on a device. What counts is load and first run together: kernels
that are not kept are compiled there. The driver's own
cache is empty when a pair begins and kept between its two loads, as users have it; with
``--driver-cache off`` it is empty for every load (PoCL) or switched off (NVIDIA), so that
adt's alone counts. Prints what ran it and the medians; exits with 1 where, with the driver's
cache as users have it, the first load takes less than 5 times the second. The model must have
30 kernels or more; without one, MobileNet-v2 with random weights.

OCL_ICD_VENDORS names the driver where none is registered:
``OCL_ICD_VENDORS=/path/to/libnvidia-opencl.so.1``.
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

LIMIT = 5.0
KERNELS = 30
HERE = Path(__file__).resolve().parent
PAIRS = {"without": ("off", "off"), "one by one, without": ("off", "off"), "with": ("written", "hit")}
"""adt's program cache, and what rtvm must say of it at the first load and the second."""


def pack(place: Path, models: list[Path]) -> None:
    """Put the bundle and the packages into *place*."""
    sys.path.insert(0, str(HERE.parent / "tests"))
    import adt
    from adt.compiler.networks.known import write_network

    place.mkdir(parents=True, exist_ok=True)
    bundle = adt.build_target(platform="host").bundle
    shutil.copytree(bundle.path, place / "bundle")
    shutil.copy(__file__, place / "program_cache.py")
    for model in models or [write_network("mobilenet-v2", place / "mobilenet_v2.onnx", 96)]:
        package = adt.compile(
            model,
            out=place / "packages" / model.stem,
            platform="host",
            target="opencl",
            bundle=bundle.path,
            check=False,
        )
        shutil.rmtree(package.path / "inspect", ignore_errors=True)


def load(place: Path, package: Path, words: list[str], driver: dict[str, str]) -> dict[str, Any]:
    """rtvm's report of one load and one run, in a process of its own, with more *words*."""
    libraries = f"{place / 'bundle/lib'}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    done = subprocess.run(
        [place / "bundle/bin/rtvm", "--model", package, "--json", *words],
        env={**os.environ, "LD_LIBRARY_PATH": libraries, **driver},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def two_loads(place: Path, package: Path, pair: str, keep: bool) -> list[dict[str, Any]]:
    """The reports of a first and a second load; *keep*: the driver's own cache lasts between them."""
    reports = []
    with tempfile.TemporaryDirectory() as scratch:
        for number, state in enumerate(PAIRS[pair]):
            own = Path(scratch) / ("driver" if keep else f"driver-{number}")
            own.mkdir(exist_ok=True)
            driver = {"POCL_CACHE_DIR": str(own), "CUDA_CACHE_PATH": str(own)}
            if not keep:
                driver["CUDA_CACHE_DISABLE"] = "1"
            words = ["--program-cache", f"{scratch}/programs" if pair == "with" else "off"]
            if pair.startswith("one by one"):
                words += ["--build-threads", "off"]
            report = load(place, package, words, driver)
            if (found := report["program_cache"])["state"] != state:
                raise SystemExit(f"{package.name}: load {number + 1} {pair} adt's cache says {found}")
            reports.append(report)
    return reports


def run(place: Path, loads: int, keep: bool) -> int:
    """Measure and print; 1 when a ratio that counts is below the limit."""
    failed = 0
    for package in sorted(path.parent for path in place.glob("packages/*/mod.json")):
        kernels = len(json.loads((package / "mod.json").read_text())["kernels"])
        if kernels < KERNELS:
            raise SystemExit(f"{package.name} has {kernels} kernels; give a model with {KERNELS} or more")
        rounds = [{pair: two_loads(place, package, pair, keep) for pair in PAIRS} for _ in range(loads)]
        device = rounds[0]["with"][0]["device"]
        print(  # noqa: T201
            f"{package.name}: {kernels} kernels on {device['name']} ({device.get('type')}, driver "
            f"{device.get('driver')}), its own cache {'kept' if keep else 'off'}; load + first run, "
            f"medians of {loads}"
        )
        for pair in PAIRS:
            for number, name in enumerate(("first", "second")):
                parts = [(r[pair][number]["load_ms"], r[pair][number]["first_run_ms"]) for r in rounds]
                loaded, ran = (statistics.median(part[i] for part in parts) for i in (0, 1))
                total = statistics.median(sum(part) for part in parts)
                text = f"{total:10.1f} ms   (load {loaded:.1f}, first run {ran:.1f})"
                print(f"  {pair} adt's cache, {name} load {text}")  # noqa: T201
        ratio = statistics.median(seconds(r["with"][0]) / seconds(r["with"][1]) for r in rounds)
        own = statistics.median(seconds(r["without"][0]) / seconds(r["without"][1]) for r in rounds)
        start = statistics.median(
            seconds(r["without"][0]) / seconds(r["one by one, without"][0]) for r in rounds
        )
        build = rounds[0]["without"][0]["program_build"]
        print(  # noqa: T201
            f"  first load, built at loading / one by one: {start:.2f} ({build['built']} programs in "
            f"{build['ms']:.0f} ms on {os.cpu_count()} processors)"
        )
        failed |= keep and ratio < LIMIT
        wanted = f" (wanted: {LIMIT:g})" if keep else ""
        print(f"  first / second: {ratio:.1f} with adt's cache{wanted}, {own:.1f} without")  # noqa: T201
    return int(failed)


def seconds(report: dict[str, Any]) -> float:
    """From opening the package to its first result."""
    return float(report["load_ms"] + report["first_run_ms"]) / 1000


def main() -> int:
    """Pack, run, or both in a scratch directory."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="*", type=Path, help="pack DIR [MODEL…] | run DIR | [MODEL…]")
    parser.add_argument("--loads", type=int, default=3, help="rounds")
    parser.add_argument("--driver-cache", choices=("kept", "off"), default="kept")
    given = parser.parse_args()
    verb = str(given.words[0]) if given.words else ""
    if verb in ("pack", "run") and len(given.words) < 2:
        parser.error(f"{verb} needs a directory")
    if verb == "pack":
        pack(given.words[1], given.words[2:])
        return 0
    if verb == "run":
        return run(given.words[1].resolve(), given.loads, given.driver_cache == "kept")
    with tempfile.TemporaryDirectory(prefix="adt-bench-") as scratch:
        pack(Path(scratch), given.words)
        return run(Path(scratch), given.loads, given.driver_cache == "kept")


if __name__ == "__main__":
    sys.exit(main())
