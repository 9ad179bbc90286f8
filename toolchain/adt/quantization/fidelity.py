"""Comparison of quantized nodes with the float model: they may differ by rounding alone.

QuantizeLinear and DequantizeLinear are taken out of what a quantizer made, weights are the float model's
where they are within a quantization step of these, and each node that it changed gets the float model's
tensors.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from adt.compiler.importers.onnx.blockwise import OPERATOR, form_of
from adt.compiler.importers.onnx.comparison import random_inputs, run
from adt.compiler.importers.onnx.graph import Graph, attribute, operand, opset, type_number
from adt.compiler.passes.weight_bits import unpacked
from adt.errors import ModelError
from adt.numerics import Array, difference

log = logging.getLogger("adt.quantize")

MADE = " of the quantized model"
PAIR = ("QuantizeLinear", "DequantizeLinear")
STEP = 1.001  # a quantization step, with rounding: so far off is a number at the end of a block's range
MOST_ROUNDS = 3  # most rounds: where a node stays float, another may be changed


def check_prepared(
    model: onnx.ModelProto, prepared: onnx.ModelProto, samples: Sequence[Mapping[str, Array]]
) -> Mapping[str, Array]:
    """Check that *prepared* computes what *model* does; return inputs: the first of *samples*, or random."""
    inputs = samples[0] if samples else random_inputs(model, -1.0, 2)
    got = _run(prepared, inputs)
    for name, reference in _run(model, inputs).items():
        if reason := difference(got[name], reference):
            raise ModelError(
                f"converted to opset {opset(prepared)} the model computes something else: {name}: {reason}",
                remedy="Export it with that opset, or compile it as it is: adt compile MODEL.",
            )
    return inputs


def _run(
    model: onnx.ModelProto, inputs: Mapping[str, Array], observed: Sequence[str] = ()
) -> dict[str, Array]:
    """Run *model* node by node: onnxruntime's folding of constants fails at some prepared models."""
    try:
        return run(model, dict(inputs), observed, optimize=False)
    except Exception as error:  # onnxruntime's own exceptions have no public base
        raise ModelError(
            "onnxruntime cannot run the model as its quantizer takes it or makes it",
            remedy="Keep the node that it names float: --keep NAME. Or give samples: --calibrate FILE.npz",
            details=str(error),
        ) from error


def faithful(
    original: onnx.ModelProto,
    quantize: Callable[[frozenset[str]], onnx.ModelProto],
    keep: frozenset[str],
    inputs: Mapping[str, Array],
) -> frozenset[str]:
    """Return *keep* and the nodes that *quantize* would change or fails at; a warning names each."""
    nodes = frozenset(node.name for node in original.graph.node)
    for _ in range(MOST_ROUNDS):
        try:
            model = quantize(keep)
        except Exception as error:  # the quantizers' have no base in common
            changes = _failing(quantize, nodes, nodes - keep)
            if not changes:
                raise _refused(repr(error)) from error
        else:
            changes = changed(original, model, inputs)
        for name, reason in changes.items():
            log.warning("%s stays float; onnxruntime's quantizer does not do it right: %s", name, reason)
        if changes.keys() <= keep:
            break
        keep |= changes.keys()
    return keep


def check(original: onnx.ModelProto, model: onnx.ModelProto, inputs: Mapping[str, Array]) -> None:
    """Check that each node of a quantized *model* computes what it does in *original*."""
    for name, reason in changed(original, model, inputs).items():
        raise _refused(f"{name}: {reason}")


def _refused(reason: str) -> ModelError:
    return ModelError(
        f"onnxruntime's quantizer does not do the model right: {reason}",
        remedy="Nothing was written. Compile the float model as it is: adt compile MODEL.",
    )


def _failing(
    quantize: Callable[[frozenset[str]], onnx.ModelProto], nodes: frozenset[str], tried: frozenset[str]
) -> dict[str, str]:
    """Find those of *tried* at which *quantize* fails when nothing else is quantized, and its errors."""
    errors = {}
    for name in sorted(tried):
        try:
            quantize(nodes - {name})
        except Exception as error:  # see above
            errors[name] = repr(error)
    return errors


def changed(original: onnx.ModelProto, model: onnx.ModelProto, inputs: Mapping[str, Array]) -> dict[str, str]:
    """Find the nodes of *original* that compute something else in a quantized *model*, and what differs."""
    makers = {name: node.name for node in original.graph.node for name in node.output if name}
    sequences = {each.name for each in original.graph.value_info if not each.type.HasField("tensor_type")}
    values = {**inputs, **_run(original, inputs, [*makers.keys() - sequences])}
    separate, ranges = _separate(original, model, values)
    outputs = _run(separate, values) if separate.graph.node else {}
    reasons: dict[str, str] = {}
    for name, output in outputs.items():
        pair = output, values[name.removesuffix(MADE)]
        if ends := ranges.get(name.removesuffix(MADE)):  # an activation may have become part of them
            pair = np.clip(pair[0], ends[0], ends[1]), np.clip(pair[1], ends[0], ends[1])
        if reason := difference(*pair):
            reasons.setdefault(makers[name.removesuffix(MADE)], reason)
    return reasons


def _separate(
    original: onnx.ModelProto, model: onnx.ModelProto, values: dict[str, Array]
) -> tuple[onnx.ModelProto, dict[str, tuple[float, ...]]]:
    """Return those nodes of a quantized *model* that *original* does not have like this, each by itself on
    *values*; and the least and the greatest number that quanta of a tensor stand for."""
    floats, quantized = Graph(original, original.graph), Graph(model, model.graph)
    before = {node.name: node for node in original.graph.node}
    names: dict[str, str] = {}
    weights: dict[str, onnx.NodeProto] = {}
    ranges: dict[str, tuple[float, ...]] = {}
    for node in (node for node in model.graph.node if node.op_type in PAIR):
        root = names.get(node.input[0], node.input[0])
        if quantized.constant(root) is not None:
            weights[node.output[0]] = node
        elif node.output[0] in values:  # an output keeps its name, and has another before
            names[root] = node.output[0]
        else:
            names[node.output[0]] = root
        if node.op_type == PAIR[0]:
            scale, zero = (np.asarray(quantized.constant(name)) for name in node.input[1:3])
            limits = np.iinfo(zero.dtype.name)
            ranges[root] = tuple((end - int(zero)) * float(scale) for end in (limits.min, limits.max))
    result, outputs = deepcopy(model), list[str]()
    for field in ("node", "input", "output", "value_info"):
        result.graph.ClearField(field)
    unchanged = {node.SerializeToString(deterministic=True) for node in original.graph.node}
    for node in model.graph.node:
        if node.op_type in PAIR or node.SerializeToString(deterministic=True) in unchanged:
            continue
        result.graph.node.append(node)
        copy = result.graph.node[-1]
        if node.op_type == OPERATOR:
            weights[node.input[1]] = node
            copy.CopyFrom(helper.make_node("MatMul", node.input[:2], node.output))
        for place, name in enumerate(copy.input):
            copy.input[place] = names.get(names.get(name, name), names.get(name, name))
            if name in weights:
                exact = floats.constant(operand(before[node.name], place)) if node.name in before else None
                copy.input[place] = f"{len(result.graph.initializer)}{MADE}"
                weight = numpy_helper.from_array(_weight(quantized, weights[name], exact), copy.input[place])
                result.graph.initializer.append(weight)
        for place, name in enumerate(node.output):
            if (tensor := names.get(name, name)) in values:
                copy.output[place] = tensor + MADE
                outputs.append(tensor + MADE)
    result.graph.output.extend(map(helper.make_empty_tensor_value_info, outputs))
    result.graph.input.extend(
        helper.make_tensor_value_info(name, type_number(str(value.dtype)), value.shape)
        for name, value in values.items()
    )
    return result, {names.get(root, root): ends for root, ends in ranges.items()}


def _weight(graph: Graph, node: onnx.NodeProto, exact: Array | None) -> NDArray[np.float32]:
    """Compute the weight that *node* dequantizes; take *exact* where that is a step off at most."""
    constants = [graph.constant(name) for name in node.input]
    quanta, scale, *zeros = (np.asarray(each, np.float64) for each in constants if each is not None)
    if node.op_type == OPERATOR:
        form = form_of(node)
        unsigned = unpacked(quanta, form.bits).astype(np.float64)
        quanta = unsigned.reshape(-1, form.blocks, form.block) - form.middle
        value = (quanta * scale.reshape(-1, form.blocks, 1)).reshape(len(quanta), -1)[:, : form.terms].T
    else:
        axis = attribute(node, "axis", 1) % max(quanta.ndim, 1)
        spread = (-1, *[1] * (quanta.ndim - axis - 1)) if scale.size > 1 else ()
        value = (quanta - zeros[0].reshape(spread)) * scale.reshape(spread)
    if exact is not None and exact.shape == value.shape:
        value = np.where(np.abs(value - exact.astype(np.float64)) <= np.abs(scale).max() * STEP, exact, value)
    return np.asarray(value, np.float32)
