"""Whether two ONNX models compute the same, as onnxruntime runs them on random inputs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from adt.numerics import REORDERED, gaps, steps_allowed

if TYPE_CHECKING:
    import numpy as np
    import onnx
    from numpy.typing import NDArray

    Array = NDArray[np.generic]

SEED = 20
MOST_INTEGERS = (100, 2, 1)
"""Upper ends of random whole numbers, tried in turn: they may be indices, which must be in range."""
LEAST_FLOATS = (-1.0, 0.0)
"""Lower ends of random floats, tried in turn: a logarithm or a root gives nothing but NaN below zero."""


class Runner:
    """Runs a model and its changed copies on the same random inputs."""

    def __init__(self, model: onnx.ModelProto) -> None:
        """
        Args:
            model: with static input shapes.

        Raises:
            RuntimeError: onnxruntime cannot run it; the message says why.
        """
        self.model = model
        why: Exception | None = None
        self.expected: dict[str, Array] = {}
        for least, most in itertools.product(LEAST_FLOATS, MOST_INTEGERS):
            inputs = random_inputs(model, most, least)
            try:
                expected = run(model, inputs)
            except Exception as refused:  # onnxruntime's exceptions have no public base
                why = refused
                continue
            if not self.expected or _any_finite(expected):
                self.inputs, self.expected = inputs, expected
            if _any_finite(expected):
                return
        if not self.expected:
            raise RuntimeError(str(why)) from why

    def difference(self, changed: onnx.ModelProto, observed: Sequence[str] = ()) -> str:
        """What *changed* computes otherwise; empty when it computes the same.

        Args:
            observed: tensors that both models have and that are compared besides the outputs.
        """
        try:
            expected = run(self.model, self.inputs, observed) if observed else self.expected
            got = run(changed, self.inputs, observed)
        except Exception as why:  # see above
            return f"onnxruntime cannot run it: {str(why).strip().splitlines()[0]}"
        for name, wanted in expected.items():
            if name not in got:
                return f"{name} is missing"
            if reason := _difference(got[name], wanted):
                return f"{name}: {reason}"
        return "" if _any_finite(expected) else "nothing finite to compare: NaN or infinity everywhere"


def run(model: onnx.ModelProto, inputs: dict[str, Array], observed: Sequence[str] = ()) -> dict[str, Array]:
    """Outputs of *model*, and the inner tensors *observed*, by name."""
    import onnx
    import onnxruntime

    if observed:
        watched = onnx.ModelProto()
        watched.CopyFrom(model)
        have = {value.name for value in model.graph.output}
        watched.graph.output.extend(onnx.ValueInfoProto(name=name) for name in observed if name not in have)
        model = watched
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def random_inputs(model: onnx.ModelProto, most: int, least: float = -1.0) -> dict[str, Array]:
    """Floats in [*least*, 1), whole numbers below *most*, for every input that is no initializer."""
    import numpy as np
    import onnx

    generator = np.random.default_rng(SEED)
    initializers = {tensor.name for tensor in model.graph.initializer}
    inputs: dict[str, Array] = {}
    for value in model.graph.input:
        if value.name in initializers:
            continue
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        if dtype.kind == "f":
            inputs[value.name] = np.asarray(generator.uniform(least, 1, shape)).astype(dtype)
        else:
            inputs[value.name] = np.asarray(generator.integers(0, most, shape)).astype(dtype)
    return inputs


def _difference(got: Array, wanted: Array) -> str:
    import numpy as np

    got, wanted = np.asarray(got), np.asarray(wanted)
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        return f"{got.dtype}{list(got.shape)} instead of {wanted.dtype}{list(wanted.shape)}"
    if wanted.dtype.kind in "OSU":
        return "" if np.array_equal(got, wanted) else "other texts"
    pair = gaps(got, wanted)
    if not pair.comparable:
        return "NaN or infinity elsewhere"
    worst = float(pair.gap.max(initial=0.0))
    if wanted.dtype.kind == "f":
        allowed = REORDERED.get(wanted.dtype.name, 1e-2) * pair.magnitude
    else:
        allowed = steps_allowed(wanted.dtype.name)
    return "" if worst <= allowed else f"differs by {worst:.3g} where {allowed:.3g} is rounding"


def _any_finite(arrays: Mapping[str, Array]) -> bool:
    """Whether there is a number to compare, or nothing at all is to be compared."""
    import numpy as np

    floats = [array for array in arrays.values() if array.dtype.kind == "f" and array.size]
    return len(floats) < len(arrays) or any(bool(np.isfinite(array).any()) for array in floats) or not floats
