"""RNN, GRU and LSTM as a product of all inputs and one kernel of all steps, for a CPU.

Elsewhere the steps are unrolled (:mod:`adt.model.importers.onnx.rewrites.recurrent`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from adt.model.importers.onnx.converters.node import Converter, Node, literal
from adt.model.passes.cpu.recurrence import GATES, Recurrence, recurrence

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def _recurrent(node: Node) -> Any:
    """Y, Y_h and, of an LSTM, Y_c."""
    from tvm import relax

    direction = node.attribute("direction", "forward")
    reversals = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]
    batch_first = bool(node.attribute("layout", 0))
    emit = node.builder.emit
    data = emit(relax.op.permute_dims(node.inputs[0], [1, 0, 2])) if batch_first else node.inputs[0]
    runs = [_direction(node, data, index, backwards) for index, backwards in enumerate(reversals)]
    results = []
    for place, parts in enumerate(zip(*runs, strict=True)):
        axis = 0 if place else 1
        parts_with_direction = [emit(relax.op.expand_dims(part, axis)) for part in parts]
        whole = emit(relax.op.concat(parts_with_direction, axis))
        if batch_first:
            whole = emit(relax.op.permute_dims(whole, [1, 0, 2] if place else [2, 0, 1, 3]))
        results.append(whole)
    return tuple(results)


def _direction(node: Node, data: Any, index: int, backwards: bool) -> list[Any]:
    """The states of all steps ``[steps, batch, H]``, and the last h and c ``[batch, H]``."""
    import numpy as np
    from tvm import relax

    kind, emit = node.proto.op_type, node.builder.emit
    steps, batch, size = (int(extent) for extent in node.builder.normalize(data).struct_info.shape)
    weights, recurrent = (node.constant(place, what)[index] for place, what in ((1, "W"), (2, "R")))
    hidden, count = recurrent.shape[-1], GATES[kind] * recurrent.shape[-1]
    bias = node.constant(3, "B")[index] if node.has(3) else np.zeros(2 * count, np.float32)
    layer = Recurrence(kind, steps, batch, hidden, backwards, bool(node.attribute("linear_before_reset", 0)))
    of_rows, of_new = (layer.filled(part) for part in _biases(layer, bias[:count], bias[count:]))
    inputs = emit(relax.op.reshape(data, (steps * batch, size)))
    rows = emit(relax.op.matmul(inputs, literal(layer.filled(weights).T)))
    rows = emit(relax.op.reshape(emit(relax.op.add(rows, literal(of_rows))), (steps, batch, len(of_rows))))
    states = [_initial(node, place, index, layer) for place in ((5, 6) if kind == "LSTM" else (5,))]
    result = node.te(
        lambda *tensors: recurrence(layer, *tensors),
        rows,
        literal(layer.packed(recurrent)),
        literal(of_new),
        *states,
    )
    parts = [emit(relax.TupleGetItem(result, place)) for place in range(1 + len(states))]
    if layer.width == hidden:
        return parts
    return [emit(relax.op.strided_slice(part, [-1], [0], [hidden])) for part in parts]


def _biases(
    layer: Recurrence, of_input: NDArray[np.generic], of_state: NDArray[np.generic]
) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
    """What is added to the rows, and what to the product of the state before a GRU resets it."""
    import numpy as np

    first = 2 * layer.hidden if layer.kind == "GRU" and layer.reset_after else len(of_state)
    resets = np.arange(len(of_state)) >= first
    return of_input + np.where(resets, 0, of_state), np.where(resets, of_state, 0)


def _initial(node: Node, place: int, index: int, layer: Recurrence) -> Any:
    """The state ``[batch, width]`` before the first step."""
    import numpy as np
    from tvm import relax

    emit, shape = node.builder.emit, (layer.batch, layer.hidden)
    if not node.has(place):
        return literal(np.zeros((layer.batch, layer.width), np.float32))
    axis = 1 if node.attribute("layout", 0) else 0
    chosen = emit(relax.op.strided_slice(node.inputs[place], [axis], [index], [index + 1]))
    state = emit(relax.op.reshape(chosen, shape))
    spare = layer.width - layer.hidden
    return emit(relax.op.nn.pad(state, [0, 0, 0, spare])) if spare else state


CONVERTERS: Mapping[str, Converter] = dict.fromkeys(GATES, _recurrent)
