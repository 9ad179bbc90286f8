"""The right answer: the source model run by onnxruntime on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from adt.errors import InputError, ModelError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.generic]


def run_reference(model: Path, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Run the ONNX file *model* on *inputs* (name to array) on the CPU; return its outputs by name.

    Raises:
        ModelError: onnxruntime cannot load the model.
        InputError: onnxruntime refuses the inputs.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors only: warnings about unused initializers say nothing here
    try:
        session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    except Exception as why:  # onnxruntime's own exception classes have no public base
        raise ModelError(
            f"onnxruntime cannot load {model.name}", remedy="Verify against another model.", details=str(why)
        ) from why
    names = [output.name for output in session.get_outputs()]
    try:
        results = session.run(names, dict(inputs))
    except Exception as why:
        raise InputError(
            "onnxruntime refuses the inputs", remedy="Check names, shapes and dtypes.", details=str(why)
        ) from why
    return dict(zip(names, results, strict=True))
