"""Operators that become one function each: recurrent layers, and products by weights of few bits.

Elsewhere the steps of a layer are unrolled (:mod:`adt.compiler.importers.onnx.rewrites.recurrent`), and such
weights become floats (:mod:`adt.compiler.importers.onnx.rewrites.quantized`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax

from adt.compiler.importers.onnx.blockwise import MATMUL_N_BITS, form_of
from adt.compiler.importers.onnx.converters.node import Converter, Node, literal
from adt.compiler.passes.layout.blockwise import product
from adt.compiler.passes.recurrence import GATES, Recurrence, RecurrentSteps


def whole_converters(kernels: RecurrentSteps | None) -> Mapping[str, Converter]:
    """Return the converters of products by few bits, and of layers whose steps *kernels* compute."""
    layers = dict.fromkeys(GATES, partial(_recurrent, kernels=kernels)) if kernels else {}
    return {**layers, MATMUL_N_BITS: _matmul_n_bits}


def _matmul_n_bits(node: Node) -> Any:
    """Convert MatMulNBits: a product that reads its weights as they are written, and the bias added."""
    emit, form, columns = node.builder.emit, form_of(node.proto), int(node.attribute("N"))
    weights = [
        emit(relax.op.reshape(node.inputs[place], shape))
        for place, shape in (
            (1, (columns, form.blocks, form.block * form.bits // 8)),
            (2, (columns, form.blocks)),
            (3, (columns, -(-form.blocks * form.bits // 8))),
        )
        if node.has(place)
    ]
    result = node.te(partial(product, form), node.inputs[0], *weights, attributes=form.attributes)
    return emit(relax.op.add(result, node.inputs[5])) if node.has(5) else result


def _recurrent(node: Node, kernels: RecurrentSteps) -> Any:
    """Convert RNN, GRU or LSTM to Y, Y_h and, of an LSTM, Y_c."""
    kind, emit = node.proto.op_type, node.builder.emit
    batch_first = bool(node.attribute("layout", 0))
    data = emit(relax.op.permute_dims(node.inputs[0], [1, 0, 2])) if batch_first else node.inputs[0]
    steps, batch, size = (int(extent) for extent in node.builder.normalize(data).struct_info.shape)
    weights, recurrent = (node.constant(place, what) for place, what in ((1, "W"), (2, "R")))
    hidden = recurrent.shape[-1]
    backwards = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
    direction = backwards[node.attribute("direction", "forward")]
    resets_after = bool(node.attribute("linear_before_reset", 0))
    layer = Recurrence(kind, steps, batch, hidden, direction, resets_after)
    none = np.zeros((layer.directions, 2 * layer.gates * hidden), np.float32)
    of_rows, of_new = _biases(layer, node.constant(3, "B") if node.has(3) else none)
    width, state_width = kernels.width(layer), kernels.state_width(layer)
    inputs = emit(relax.op.reshape(data, (steps * batch, size)))
    columns = layer.filled(weights, width).reshape(-1, size)
    rows = emit(relax.op.matmul(inputs, literal(columns.T)))
    rows = emit(relax.op.add(rows, literal(layer.filled(of_rows, width).reshape(-1))))
    result = node.te(
        lambda *tensors: kernels.compute(layer, *tensors),
        emit(relax.op.reshape(rows, (steps, batch, len(columns)))),
        literal(kernels.packed(layer, recurrent)),
        literal(layer.filled(of_new, width)),
        *(_initial(node, place, layer, state_width) for place in ((5, 6) if kind == "LSTM" else (5,))),
        attributes=kernels.attributes(layer),
    )
    parts = [emit(relax.TupleGetItem(result, place)) for place in range(3 if kind == "LSTM" else 2)]
    if state_width != hidden:
        parts = [emit(relax.op.strided_slice(part, [-1], [0], [hidden])) for part in parts]
    if batch_first:
        orders = ([2, 0, 1, 3], [1, 0, 2], [1, 0, 2])
        parts = [emit(relax.op.permute_dims(part, order)) for part, order in zip(parts, orders, strict=False)]
    return tuple(parts)


def _biases(
    layer: Recurrence, biases: NDArray[np.generic]
) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
    """Return what is added to the rows, and what to the product of the state before a GRU resets it; of B."""
    of_input, of_state = np.split(biases, 2, axis=1)
    first = 2 * layer.hidden if layer.kind == "GRU" and layer.reset_after else of_state.shape[1]
    resets = np.arange(of_state.shape[1]) >= first
    return of_input + np.where(resets, 0, of_state), np.where(resets, of_state, 0)


def _initial(node: Node, place: int, layer: Recurrence, width: int) -> Any:
    """Return the state ``[directions, batch, width]`` before the first step."""
    emit = node.builder.emit
    if not node.has(place):
        return literal(np.zeros((layer.directions, layer.batch, width), np.float32))
    state = node.inputs[place]
    if node.attribute("layout", 0):
        state = emit(relax.op.permute_dims(state, [1, 0, 2]))
    spare = width - layer.hidden
    return emit(relax.op.nn.pad(state, [0, 0, 0, 0, 0, spare])) if spare else state
