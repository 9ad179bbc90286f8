"""Outputs of ONNX Runtime, to compare those of packages with."""

from pathlib import Path

import numpy as np
import onnxruntime

from adt.package.host_run.run import run_package
from adt.package.inputs.random import random_inputs
from adt.package.package import ModelPackage


def off_reference(package: ModelPackage, model: Path, least: float = 0.0) -> float:
    """Return the largest difference to ONNX Runtime, as a share of the output's magnitude.

    Args:
        least: magnitude of an output that is smaller, or nothing but zeros.
    """
    inputs = random_inputs(package.manifest.entry().inputs, seed=3)
    found = run_package(package.path, inputs, timeout=300)
    session = onnxruntime.InferenceSession(str(model))
    names = [output.name for output in session.get_outputs()]
    return max(
        float(np.abs(found[name] - want).max() / max(np.abs(want).max(), least))
        for name, want in zip(names, session.run(names, dict(inputs)), strict=True)
    )
