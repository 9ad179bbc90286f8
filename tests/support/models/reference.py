"""Outputs of ONNX Runtime, to compare those of packages with."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from adt.package.host_run.run import run_package
from adt.package.inputs.random import random_inputs
from adt.package.package import ModelPackage


def largest_error(
    outputs: Mapping[str, Any], model: Path, inputs: Mapping[str, Any], least: float = 0.0
) -> float:
    """Return the largest difference of *outputs* to ONNX Runtime, as a share of the output's magnitude.

    Args:
        least: magnitude of an output that is smaller, or nothing but zeros.
    """
    session = onnxruntime.InferenceSession(str(model))
    names = [output.name for output in session.get_outputs()]
    return max(
        float(np.abs(outputs[name] - expected).max() / max(np.abs(expected).max(), least))
        for name, expected in zip(names, session.run(names, dict(inputs)), strict=True)
    )


def off_reference(package: ModelPackage, model: Path, least: float = 0.0) -> float:
    """Run *package* here with random inputs; return its :func:`largest_error`."""
    inputs = random_inputs(package.manifest.entry().inputs, seed=3)
    return largest_error(run_package(package.path, inputs, timeout=300), model, inputs, least)
