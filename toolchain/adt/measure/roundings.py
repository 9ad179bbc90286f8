"""Right answers of an ONNX model: where a rounding decides, onnxruntime's is one of several.

A value on the edge of two quantization steps may become either. In a deep network all that follows then
differs by far more than rounding, and of nearly equal scores either may be the largest.
"""

from __future__ import annotations

import contextlib
import math
import mmap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import ModelProto, helper

from adt.compiler.importers.onnx.blockwise import ACCURACY, IN_FLOATS, in_floats
from adt.compiler.importers.onnx.graph import attribute
from adt.compiler.importers.shapes import distinct_names
from adt.host.isolated import isolated
from adt.measure.verify import OutputComparison, Verification, compare, limits_of_output
from adt.numerics import QUANTIZED, Array, Metrics, gaps, metrics
from adt.options.sections import VerifySettings

if TYPE_CHECKING:
    import onnxruntime

MOST_SPREAD = 2.0
"""A difference that is as many times the largest of such runs passes: the package's roundings are others."""
SECONDS = 1800.0
"""Time limit of onnxruntime, whose kernels for some operators are plain loops."""
NOISE = {"float32": 1e-6, "float16_acc32": 1e-3, "float16": 1e-3}
"""Precision of a package → relative change of each value that is rounded: a few roundings of a sum."""
RUNS = 8
"""Runs with such changes; a value that lies on an edge becomes the other one in half of them."""
ROUNDING = (
    *("QuantizeLinear", "DynamicQuantizeLinear", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM"),
    *("Round", "Floor", "Ceil"),
)
"""Operators that round their first operand."""
DIRECTORY = "session.model_external_initializers_file_folder_path"
"""Entry of onnxruntime's configuration: where the data files of a model lie that comes as bytes."""
MOVING = ("Cast", "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze")
"""Operators that keep the elements of their first operand and the order of these."""
CHOOSING = {"TopK": 1, "ArgMax": 0, "ArgMin": 0}
"""Operators that choose among scores, and which of their outputs has the indices."""


def open_session(model: Path) -> onnxruntime.InferenceSession:
    """Load *model*, whose products by weights of few bits (MatMulNBits) are computed in float."""
    with model.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as contents:
        has_levels = contents.find(ACCURACY.encode()) >= 0
    return _session(model, in_floats(_load(model)) if has_levels else None)


@isolated("running {model.name} in onnxruntime", SECONDS)
def other_answers(model: Path, inputs: dict[str, Any], noise: float) -> list[dict[str, Any]]:
    """Run a *model* that rounds: node by node, with Q/DQ as the file has them, and :data:`RUNS` times with
    each value that is rounded changed by *noise*, relative. Of a model that does not round there are none."""
    graph = in_floats(_load(model))
    if not any(node.op_type in ROUNDING for node in graph.graph.node):
        return []
    answers = list[dict[str, Any]]()
    with contextlib.suppress(Exception):  # no base in common; what onnxruntime cannot run is no evidence
        for seed in (None, *range(RUNS)):  # one copy of the model at a time
            variant = graph if seed is None else _disturbed(graph, noise, seed)
            answers.append(answer(_session(model, variant, optimize=False), inputs))
    return answers


@isolated("running {model.name} in onnxruntime", SECONDS)
def scores(model: Path, inputs: dict[str, Any], names: Sequence[str]) -> dict[str, tuple[Any, int]]:
    """Find the scores among which a node chose what the outputs *names* are indices of, and their axis."""
    graph = in_floats(_load(model))
    makers = {name: (node, place) for node in graph.graph.node for place, name in enumerate(node.output)}
    sources: dict[str, tuple[str, int]] = {}
    for output in names:
        node, place = makers.get(output, (None, 0))
        while node is not None and node.op_type in MOVING:
            node, place = makers.get(node.input[0], (None, 0))
        if node is not None and CHOOSING.get(node.op_type) == place:
            sources[output] = node.input[0], attribute(node, "axis", -1 if node.op_type == "TopK" else 0)
    if not sources:
        return {}
    declared = {value.name for value in (*graph.graph.input, *graph.graph.output)}
    observed = {name for name, _ in sources.values()} - declared
    graph.graph.output.extend(type(graph.graph.output[0])(name=name) for name in sorted(observed))
    values = dict(inputs)
    with contextlib.suppress(Exception):  # see above
        values |= answer(_session(model, graph), inputs)
    return {output: (values[name], axis) for output, (name, axis) in sources.items() if name in values}


def _load(model: Path) -> onnx.ModelProto:
    """Parse *model*; its data files stay where they are."""
    return onnx.load(str(model), load_external_data=False)


def _session(
    model: Path, graph: onnx.ModelProto | None, *, optimize: bool = True
) -> onnxruntime.InferenceSession:
    """Load *graph*, which was made of *model*, or that itself."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.add_session_config_entry(*IN_FLOATS)
    if not optimize:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry(DIRECTORY, str(model.parent))
    source = str(model) if graph is None else graph.SerializeToString()
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def answer(session: onnxruntime.InferenceSession, inputs: Mapping[str, Array]) -> dict[str, Any]:
    """Run the model of *session* on what it takes of *inputs*; return its outputs by name."""
    names = distinct_names(output.name for output in session.get_outputs())
    taken = {value.name: inputs[value.name] for value in session.get_inputs() if value.name in inputs}
    return dict(zip(names, session.run(None, taken), strict=True))


def _disturbed(model: onnx.ModelProto, noise: float, seed: int) -> onnx.ModelProto:
    """Copy *model* with each value that a node rounds times a random number near 1."""
    changed = ModelProto()
    changed.CopyFrom(model)
    constants = {tensor.name for tensor in model.graph.initializer}
    changed.graph.ClearField("node")
    for number, node in enumerate(model.graph.node):
        rounds = node.op_type in ROUNDING and node.input[0] not in constants
        if rounds:
            value, factor = node.input[0], f"adt.factor.{number}"
            spread = {"low": 1 - noise, "high": 1 + noise, "seed": float(seed * 100_000 + number)}
            changed.graph.node.append(helper.make_node("RandomUniformLike", [value], [factor], **spread))
            changed.graph.node.append(helper.make_node("Mul", [value, factor], [f"adt.changed.{number}"]))
        changed.graph.node.append(node)
        if rounds:
            changed.graph.node[-1].input[0] = f"adt.changed.{number}"
    return changed


def explained(
    verification: Verification,
    got: Mapping[str, Array],
    right: Mapping[str, Array],
    model: Path,
    inputs: Mapping[str, Array],
    limits: VerifySettings,
    precision: str,
    quanta: Mapping[str, float],
) -> Verification:
    """Let outputs pass that differ from *right* by where a rounding went, or say how far roundings move them.

    Limits that the caller gave are kept: then nothing passes by more.
    """
    wrong = [row for row in verification.outputs if not row.passed and row.metrics.comparable]
    failed = {row.name for row in wrong if row.options != ("--allow-nonfinite",)}
    given = (limits.max_abs, limits.max_rel, limits.max_steps, limits.max_changed)
    if not failed or any(value >= 0 for value in given):
        return verification
    rows = {row.name: row for row in verification.outputs}
    for name, (values, axis) in scores(model, dict(inputs), sorted(failed)).items():
        if note := _equal_scores(got[name], right[name], values, axis, limits, precision):
            rows[name] = replace(rows[name], reason="", options=(), note=note)
    failed = {name for name in failed if not rows[name].passed}
    answers = other_answers(model, dict(inputs), NOISE[precision]) if failed else []
    for name in sorted(failed if answers else ()):
        if any(name not in answer or answer[name].shape != got[name].shape for answer in answers):
            continue
        (exact,) = compare({name: got[name]}, {name: answers[0][name]}, limits, precision, quanta).outputs
        if exact.passed:
            rows[name] = replace(rows[name], reason="", options=(), note=BY_NODE)
        else:
            others, step = [answer[name] for answer in answers], quanta.get(name, 0.0)
            rows[name] = _by_spread(rows[name], got[name], others, precision, step)
    return replace(verification, outputs=tuple(rows.values()))


BY_NODE = "equal to onnxruntime node by node, where the file has its roundings; fused kernels of it are off"


def _equal_scores(
    got: Array, right: Array, values: Array, axis: int, limits: VerifySettings, precision: str
) -> str:
    """Describe the difference of indices into *values* that all lead to equal values; empty: some do not."""
    shape = list(values.shape)
    shape[axis] = 1 if got.size * shape[axis] == values.size else -1
    chosen, best = got.reshape(shape).astype(np.int64), right.reshape(shape).astype(np.int64)
    ordered = np.sort(chosen, axis)
    if ordered.min() < 0 or ordered.max() >= values.shape[axis] or not np.diff(ordered, axis=axis).all():
        return ""
    pair = gaps(np.take_along_axis(values, chosen, axis), np.take_along_axis(values, best, axis))
    max_abs, max_rel = limits_of_output(values.dtype.name, precision, limits)
    worst = float(pair.gap.max(initial=0.0))
    if worst > max(max_abs, max_rel * pair.magnitude):
        return ""
    share = f"{np.mean(got != right):.2%} of the indices differ"
    return f"{share}; the values at them are equal within {worst:.1e}"


def _by_spread(
    row: OutputComparison, got: Array, answers: Sequence[Array], precision: str, step: float
) -> OutputComparison:
    """Let an output pass that is as far off as roundings move it in onnxruntime, or say how far they do."""
    spread = [metrics(answer, answers[0]) for answer in answers[1:]]
    if not spread or not all(each.comparable for each in spread):
        return row
    typical = max(spread, key=lambda each: each.rmse)
    share = typical.differing / max(typical.elements, 1)
    steps = f", {math.ceil(typical.max_abs / step - 0.5)} quantization steps" if step else ""
    moved = (
        f"onnxruntime itself moves by {typical.max_abs:.3g}{steps} (SNR {typical.snr_db:.1f} dB, {share:.0%}"
        f" of the elements) where the values that it rounds move by {NOISE[precision]:g}"
    )
    figures = ["differing"] if got.dtype.kind != "f" else []
    figures += ["rmse", "max_abs"] if got.dtype.kind == "f" or got.dtype.name in QUANTIZED else []

    def is_near(off: Metrics) -> bool:
        largest = {name: max(getattr(each, name) for each in spread) for name in figures}
        return all(getattr(off, name) <= MOST_SPREAD * largest[name] for name in figures)

    if is_near(row.metrics) or is_near(metrics(got, answers[0])):
        return replace(row, reason="", options=(), note=f"roundings decide: {moved}")
    return replace(row, reason=f"{row.reason}; {moved}")
