"""What starting several runs before one wait gains on an OpenCL device.

    python bench/pipelines.py pack DIR MODEL.onnx[@INPUT:1,3,512,512]…
    python3 DIR/pipelines.py run DIR          # on a machine with the device: Python 3 alone

Milliseconds of one of 40 runs, medians: of the kernels alone; of ``set_input`` and ``run`` each; of
``set_input`` and ``start`` each with one ``wait``. The outputs of the last two must be the same bytes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
RUNS, ROUNDS = 40, 10


def pack(place: Path, models: list[str]) -> None:
    """Put the program, the bundle and the packages into *place*."""
    import adt

    place.mkdir(parents=True)
    bundle = adt.build_target(platform="host").bundle
    shutil.copytree(bundle.path, place / "bundle")
    shutil.copy(__file__, place)
    for text in models:
        file, _, shape = text.partition("@")
        adt.compile(
            Path(file),
            out=place / Path(file).stem,
            platform="host",
            target="opencl",
            bundle=bundle.path,
            shapes=[shape] if shape else [],
            check=False,
        )
    libraries = [bundle.path / "lib" / f"lib{name}.so" for name in ("adt_runner", "tvm_runtime", "tvm_ffi")]
    include = f"-I{HERE.parent / 'cpp_runner/include'}"
    words = ["cc", "-O2", include, HERE / "pipelines.c", "-o", place / "pipelines", *libraries]
    subprocess.run([*words, "-Wl,-rpath,$ORIGIN/bundle/lib"], check=True)


def run(place: Path) -> None:
    """Measure each package, and print."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(place / "bundle/lib")}
    for package in sorted(path.parent for path in place.glob("*/mod.json")):
        words = [place / "pipelines", package, str(RUNS), str(ROUNDS)]
        done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        kernels, each, started = (statistics.median(row[i] for row in rows) for i in (0, 2, 3))
        print(  # noqa: T201
            f"{package.name:<16} kernels {kernels:8.3f} ms   set_input and run {each:8.3f}   "
            f"set_input and start {started:8.3f} = {started / each:.0%} of it, "
            f"{started / kernels:.0%} of the kernels"
        )


def main() -> int:
    """Pack or run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("verb", choices=("pack", "run"))
    parser.add_argument("place", type=Path)
    parser.add_argument("models", nargs="*")
    given = parser.parse_args()
    if given.verb == "pack":
        pack(given.place, given.models)
    else:
        run(given.place.resolve())
    return 0


if __name__ == "__main__":
    sys.exit(main())
