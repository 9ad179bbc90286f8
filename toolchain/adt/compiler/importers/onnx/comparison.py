"""Comparison of two ONNX models on random inputs.

onnxruntime runs them; where it has no kernel (operators and element types that it leaves
out, opsets newer than it), ONNX's reference implementation in numpy does, for a limited time.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from adt.compiler.importers.onnx.blockwise import IN_FLOATS
from adt.errors import lines_of
from adt.numerics import Array, difference

if TYPE_CHECKING:
    import onnxruntime


SEED = 20
RANGES = tuple(itertools.product((-1.0, 0.0), (100, 2, 1)))
"""Lower end of random floats and upper end of random integers, tried in turn: a logarithm or root gives
nothing but NaN below zero, and integers may be indices, which must be in range."""
REFERENCE_SECONDS = 30.0
"""After this the reference implementation starts no further node: its loops are Python's."""


class Runner:
    """Runner of a model and its changed copies on the same random inputs.

    Attributes:
        reason: why nothing can run the model and no change to it can be confirmed; empty otherwise.
    """

    def __init__(self, model: onnx.ModelProto, inputs: dict[str, Array] | None = None) -> None:
        """Run *model*, whose input shapes are static, on *inputs*, or else on random ones."""
        self.model = model
        self.expected: dict[str, Array] = {}
        self.reason = ""
        reasons = []
        for self.run, name in ENGINES.items():
            reason = self._find_inputs(inputs)
            if self.expected:
                return
            reasons.append(f"{name}: {reason}")
        self.reason = "; ".join(reasons)

    def _find_inputs(self, given: dict[str, Array] | None) -> str:
        """Set inputs, *given* or random, with a finite number in the result; return the last refusal."""
        reason = ""
        for least, most in RANGES if given is None else RANGES[:1]:
            inputs = random_inputs(self.model, least, most) if given is None else given
            try:
                expected = self.run(self.model, inputs)
            except Exception as error:  # neither engine's exceptions have a public base
                reason = lines_of(error)[0]
                if isinstance(error, TimeoutError):
                    break
                continue
            if not self.expected or _any_finite(expected):
                self.inputs, self.expected = inputs, expected
            if _any_finite(expected):
                break
        return reason

    def difference(self, changed: onnx.ModelProto, observed: Sequence[str] = ()) -> str:
        """Return how *changed* differs, in tensors *observed* too; empty if it does not or nothing tells."""
        if self.reason:
            return ""
        try:
            expected = self.run(self.model, self.inputs, observed) if observed else self.expected
            outputs = self._run_any(changed, observed)
        except Exception as error:  # see above
            return lines_of(error)[0]
        for name, reference in expected.items():
            if name not in outputs:
                return f"{name} is missing"
            if reason := difference(outputs[name], reference):
                return f"{name}: {reason}"
        return "" if _any_finite(expected) else "nothing finite to compare: NaN or infinity everywhere"

    def _run_any(self, changed: onnx.ModelProto, observed: Sequence[str]) -> dict[str, Array]:
        """Run the first engine that can: a rewrite may add or remove what one has no kernel for.

        Where onnxruntime ran the model, it must take the changed one: what it calls invalid is (the
        reference mixes types, as numpy does).
        """
        reasons = []
        for engine, name in ENGINES.items():
            try:
                return engine(changed, self.inputs, observed)
            except Exception as error:  # see above
                reasons.append(f"{name} cannot run it: {lines_of(error)[0]}")
                if engine is run and self.run is run and "NOT_IMPLEMENTED" not in str(error):
                    break
        raise RuntimeError("; ".join(reasons))


def run(
    model: onnx.ModelProto, inputs: dict[str, Array], observed: Sequence[str] = (), optimize: bool = True
) -> dict[str, Array]:
    """Return outputs of *model*, and the inner tensors *observed*, by name, as onnxruntime computes them."""

    if observed:
        model = deepcopy(model)
        names = {value.name for value in model.graph.output}
        model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in observed if name not in names)
    session = session_of(model, optimize=optimize)
    outputs = [output.name for output in session.get_outputs()]
    taken = {value.name: inputs[value.name] for value in session.get_inputs()}  # a simplified model has fewer
    return dict(zip(outputs, session.run(outputs, taken), strict=True))


def session_of(model: onnx.ModelProto, *, optimize: bool, threads: int = 0) -> onnxruntime.InferenceSession:
    """Load *model* into onnxruntime; 0 *threads*: as many as there are cores."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, threads
    options.add_session_config_entry(*IN_FLOATS)
    if not optimize:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def run_reference(
    model: onnx.ModelProto, inputs: dict[str, Array], observed: Sequence[str] = ()
) -> dict[str, Array]:
    """Compute outputs and tensors *observed* by ONNX's reference.

    TimeoutError after :data:`REFERENCE_SECONDS`.
    """
    from onnx.reference import ReferenceEvaluator  # takes long to import

    end = time.monotonic() + REFERENCE_SECONDS

    class Limited(ReferenceEvaluator):  # type: ignore[misc]
        def _log(self, level: int, pattern: str, *args: Any) -> None:
            """Stop the reference when its time is over; it calls this for each node and result."""
            if time.monotonic() > end:
                raise TimeoutError(f"it takes longer than {REFERENCE_SECONDS:.0f} s")

    names = dict.fromkeys([*(output.name for output in model.graph.output), *observed])
    with np.errstate(all="ignore"):
        results = Limited(model).run(list(names), inputs)
    return {name: np.asarray(value) for name, value in zip(names, results, strict=True)}


ENGINES: dict[Callable[..., dict[str, Array]], str] = {
    run: "onnxruntime",
    run_reference: "ONNX's reference implementation",
}
"""Engines that can run a model, in the order in which they are asked, and their names."""


def random_inputs(model: onnx.ModelProto, least: float, most: int) -> dict[str, Array]:
    """Draw floats in [*least*, 1) and integers below *most* for every input that is no initializer."""
    generator = np.random.default_rng(SEED)
    initializers = {tensor.name for tensor in model.graph.initializer}
    inputs: dict[str, Array] = {}
    for value in (value for value in model.graph.input if value.name not in initializers):
        tensor = value.type.tensor_type
        shape = [dim.dim_value for dim in tensor.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        is_float = dtype.kind == "f"
        numbers = generator.uniform(least, 1, shape) if is_float else generator.integers(0, most, shape)
        inputs[value.name] = np.asarray(numbers).astype(dtype)
    return inputs


def _any_finite(arrays: Mapping[str, Array]) -> bool:
    """Return True if there is a number to compare, or nothing at all is to be compared."""
    floats = [array for array in arrays.values() if array.dtype.kind == "f" and array.size]
    return len(floats) < len(arrays) or any(bool(np.isfinite(array).any()) for array in floats) or not floats
