"""Check texture and buffer packages on a machine with a GPU that has nothing of adt installed.

    python bench/gpu.py pack DIR MODEL.onnx[@INPUT:1,3,320,320]… [--target adreno|opencl|stock …]
    python3 DIR/gpu.py run DIR                # there: Python 3 with numpy, an OpenCL driver

``pack`` compiles the models for this kind of machine (x86-64 or arm64 Linux), copies
the host bundle and this file beside them, and keeps inputs and what ONNX Runtime
computes from them. ``run`` runs each package with the bundle's rtvm on the OpenCL
device that is there and compares: it exits with 1 where an output is further than 1e-4
of its magnitude from the reference. ``stock`` is TVM's own pipeline for OpenCL, with nothing of adt's
but the package around it. The times are host-clock times of that machine's
GPU, of kernels made for Adreno; they say nothing of a phone.

OCL_ICD_VENDORS names the driver where none is registered:
``OCL_ICD_VENDORS=/path/to/libnvidia-opencl.so.1``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from adt.compiler.passes.pipeline import PreparedModule
    from adt.compiler.targets import ModelTarget

LIMIT = 1e-4
"""Largest difference that passes, as a share of the output's greatest magnitude."""
RUNS = 20


def pack(place: Path, models: list[str], targets: list[str]) -> None:
    """Put everything that ``run`` needs into *place*."""
    import onnxruntime

    import adt
    import adt.compiler.assemble
    from adt.package.inputs.random import random_inputs

    prepared = adt.compiler.assemble.prepare_module
    place.mkdir(parents=True)
    shutil.copy(__file__, place / "gpu.py")
    bundle = adt.build_target(platform="host").bundle
    shutil.copytree(bundle.path, place / "bundle")
    for text in models:
        file, _, shape = text.partition("@")
        model = Path(file)
        inputs: dict[str, np.ndarray] = {}
        for target in targets:
            stock = target == "stock"
            adt.compiler.assemble.prepare_module = stock_module if stock else prepared
            package = adt.compile(
                model,
                out=place / model.stem / target,
                platform="host",
                target="opencl" if stock else target,
                bundle=bundle.path,
                shapes=[shape] if shape else [],
                check=False,  # that is what this is for
                use_cache=not stock,
            )
            shutil.rmtree(package.path / "inspect", ignore_errors=True)
            inputs = dict(random_inputs(package.manifest.entry().inputs, 0))
        session = onnxruntime.InferenceSession(str(model))
        names = [output.name for output in session.get_outputs()]
        np.savez(place / model.stem / "inputs.npz", **inputs)
        expected = dict(zip(names, session.run(names, inputs), strict=True))
        np.savez(place / model.stem / "expected.npz", **expected)


def stock_module(
    module: Any, params: Mapping[str, Any], target: ModelTarget, alignment: int, *_rest: Any, **_more: Any
) -> PreparedModule:
    """Prepare a module as TVM does by itself, in the place of adt's :func:`prepare_module`."""
    import tvm
    from tvm.relax.backend.gpu_generic import get_default_pipeline

    from adt.compiler.passes.lowering import tir_pipeline
    from adt.compiler.passes.pipeline import PreparedModule

    pipeline = get_default_pipeline(tvm.target.Target(target.spec))
    return PreparedModule(module, params, pipeline, tir_pipeline(alignment), None, (), {})


def run(place: Path) -> int:
    """Run every package; print one line each; 1 if one is wrong."""
    wrong = 0
    for package in sorted(place.glob("*/*/mod.json")):
        model = package.parent.parent
        outputs = package.parent / "outputs.npz"
        done = subprocess.run(
            [
                place / "bundle/bin/rtvm", "--model", package.parent, "--input", model / "inputs.npz",
                "--output", outputs, "--dry-run", "3", "--run-count", str(RUNS), "--json",
            ],
            env={**os.environ, "LD_LIBRARY_PATH": str(place / "bundle/lib")},
            capture_output=True,
            text=True,
            check=False,
        )  # fmt: skip
        row = {"model": model.name, "target": package.parent.name}
        if done.returncode:
            row["error"] = done.stderr.strip()[-2000:]
            wrong += 1
        else:
            report = json.loads(done.stdout)
            worst = difference(np.load(outputs), np.load(model / "expected.npz"))
            row |= {"difference": f"{worst:.2g}", "right": worst <= LIMIT, "rtvm": report}
            wrong += worst > LIMIT
        print(json.dumps(row), flush=True)  # noqa: T201
    return 1 if wrong else 0


def difference(found: np.lib.npyio.NpzFile, expected: np.lib.npyio.NpzFile) -> float:
    """Return the greatest difference of an output, as a share of its greatest magnitude."""
    worst = 0.0
    for name in expected.files:
        have, want = found[name].astype(np.float64), expected[name].astype(np.float64)
        if not np.isfinite(have).all():
            return float("inf")
        worst = max(worst, float(np.abs(have - want).max() / max(np.abs(want).max(), 1e-30)))
    return worst


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("verb", choices=("pack", "run"))
    parser.add_argument("place", type=Path)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--target", action="append")
    given = parser.parse_args()
    if given.verb == "run":
        return run(given.place)
    pack(given.place, given.models, given.target or ["adreno", "adreno-buffer", "stock"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
