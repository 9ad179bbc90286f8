"""The table of docs/models.md: real models × targets × precisions, computed on this machine.

    PYTHONPATH=tests python -m support.models.table [--model NAME]…     writes tests/golden/model_table.json

Then ``python docs/generate.py`` puts it into the page. ``rtvm`` runs every package, as on a
device; float32 on the OpenCL driver that is registered (PoCL, as test.sh installs it), half
precision on one that has it (see :mod:`intel_opencl`). Every package is compared with the runtime of its source format.
The nightly tests compute the rows again and compare.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import adt
from adt.compiler.kernel_check import compare
from adt.errors import AdtError
from adt.measure.reference import run_reference
from adt.package.inputs.random import random_inputs
from adt.package.manifest import TensorSpec
from support.devices import intel_opencl
from support.models import published as real_models
from support.models.published import RealModel

GOLDEN = Path(__file__).parents[2] / "golden" / "model_table.json"
TARGETS = ("cpu", "adreno-buffer", "adreno")
PRECISIONS = ("float32", "float16_acc32")
LIMITS = {"float32": 1e-3, "float16_acc32": 5e-2}
"""Largest right difference as a share of the output's magnitude. In float32 a deep network's sums in
another order alone make some 1e-4."""


def inputs_of(model: RealModel, specs: tuple[TensorSpec, ...]) -> dict[str, np.ndarray]:
    """Return random inputs, and the values that the model must be given."""
    arrays = dict(random_inputs(specs, 1))
    for name, value in model.fills.items():
        if name in arrays:
            arrays[name] = np.full_like(arrays[name], value)
    return arrays


def row(model: RealModel, target: str, precision: str) -> dict[str, Any]:
    """Compile, run and compare one model; what came of it."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        try:
            package = adt.compile(
                model.path(),
                out=Path(scratch) / "package",
                platform="host",
                target=target,
                precision=precision,
                shapes=[f"{name}:{','.join(map(str, shape))}" for name, shape in model.shapes.items()],
                accuracy=False,
                check=False,
                use_cache=False,
            )
        except AdtError as error:
            return {"status": "not compiled", "reason": error.what}
        seconds = round(time.monotonic() - began, 1)
        facts = package.manifest
        inputs = inputs_of(model, facts.entry().inputs)
        figures: dict[str, Any] = {"seconds": seconds, "kernels": facts.total}
        if facts.made.textures:
            figures["textured"] = sum(kernel.textured for kernel in facts.made.textures.kernels)
            figures["kernels"] = len(facts.made.textures.kernels)
            figures["share"] = round(facts.made.textures.share, 3)
            blocked = [row for row in facts.made.textures.convolutions if row.kind == "convolution"]
            figures["convolutions"] = [sum(not entry.reason for entry in blocked), len(blocked)]
        try:
            adt.build_target(platform="host")
            outputs = adt.run(package.path, inputs=inputs, timeout=1200).outputs
        except AdtError as error:
            return {**figures, "status": "not run", "reason": error.what}
        expected = run_reference(model.path(), inputs)
    return {**figures, **judged(outputs, expected, LIMITS[precision])}


def judged(outputs: Mapping[str, Any], expected: Mapping[str, Any], limit: float) -> dict[str, Any]:
    """Return the worst output: its largest absolute difference, magnitude, and whether it is right."""
    worst, worst_abs, magnitude = -1.0, 0.0, 0.0
    for name, reference in expected.items():
        compared = compare(name, outputs[name], reference, limit)
        if compared.difference > worst:
            gap = np.abs(outputs[name].astype(np.float64) - reference.astype(np.float64))
            worst = compared.difference
            worst_abs, magnitude = float(gap.max(initial=0.0)), float(np.abs(reference).max(initial=0.0))
    return {
        "status": "right" if worst <= limit else "wrong",
        "max_abs": float(f"{worst_abs:.2g}"),
        "magnitude": float(f"{magnitude:.3g}"),
    }


def table(names: list[str], precision: str) -> dict[str, dict[str, Any]]:
    """Return rows of the models *names* (all, if empty) in *precision*, by model and target."""
    rows: dict[str, dict[str, Any]] = {}
    for model in real_models.REAL_MODELS:
        if names and model.name not in names:
            continue
        rows[model.name] = {}
        for target in TARGETS:
            rows[model.name][target] = row(model, target, precision)
            sys.stderr.write(f"{model.name} {target} {precision}: {rows[model.name][target]}\n")
            if rows[model.name][target]["status"] == "not compiled" and target == "cpu":
                break  # it is not imported: the other targets would say the same
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", action="append", default=[])
    parser.add_argument("--precision", choices=PRECISIONS, help="only this one, as JSON on stdout")
    options = parser.parse_args()
    if options.precision:
        sys.stdout.write(json.dumps(table(options.model, options.precision)))
        return
    stored = json.loads(GOLDEN.read_text()) if GOLDEN.is_file() else {}
    for precision in PRECISIONS:
        environment = dict(os.environ)
        if precision != "float32":
            environment["OCL_ICD_VENDORS"] = str(intel_opencl.vendors())
        argv = [sys.executable, "-m", "support.models.table", "--precision", precision]
        argv += [word for name in options.model for word in ("--model", name)]
        done = subprocess.run(argv, env=environment, stdout=subprocess.PIPE, check=True)
        for name, rows in json.loads(done.stdout).items():
            stored.setdefault(name, {})[precision] = rows
    ordered = {model.name: stored[model.name] for model in real_models.REAL_MODELS if model.name in stored}
    lines = [f"{json.dumps(name)}: {json.dumps(rows)}" for name, rows in ordered.items()]
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
