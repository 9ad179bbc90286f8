"""All steps of a recurrent layer as one kernel: a call for each step and gate would take longer than they do.

    for step:
        for panel of gates:  sums = row of the step;  for k:  sums += h[k] * w[panel][k]
        c, h = gates(sums, c, h)

What the steps share, the product of the inputs with their weights, is a product of its own before it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from adt.model.passes.layout.blocks import ceil_blocks

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

STEPS = "recurrent_steps"
"""The block of such a kernel."""
MOST_SUMS = 96
"""Sums that are kept in registers: six of AVX-512, 24 of NEON."""
MOST_COLUMNS, MOST_ROWS = 64, 6
"""Columns of a panel of weights, and sequences of a batch that are multiplied with it at once."""
LANES = 16
"""States whose gates are computed at once, and what a layer's states are filled up to with zeros."""
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
WORTH_THREADS = 1 << 19
"""Multiply-adds of a step from which on all threads compute it: they are waited for twice a step."""


@dataclass(frozen=True)
class Recurrence:
    """The steps of one direction of a layer; symbols as in ONNX's documents, gates in its order."""

    kind: str
    """``RNN``, ``GRU`` or ``LSTM``."""
    steps: int
    batch: int
    hidden: int
    backwards: bool = False
    reset_after: bool = True
    """A GRU's reset gate applies to the product of the state, not to the state (linear_before_reset)."""

    @property
    def width(self) -> int:
        """The states with zeros behind them, so that panels of weights are whole vectors: those beyond
        *hidden* stay zeros."""
        least = ceil_blocks(self.hidden, LANES) * LANES
        candidates = range(least, least + MOST_COLUMNS, LANES)
        return min(candidates, key=lambda width: width / self._panel(width))

    @property
    def panel(self) -> int:
        """Columns of a panel of weights."""
        return self._panel(self.width)

    @property
    def rows(self) -> int:
        """Sequences that are multiplied with a panel at once."""
        return ceil_blocks(self.batch, ceil_blocks(self.batch, MOST_ROWS))

    def _panel(self, width: int) -> int:
        together = width if self.kind == "GRU" and not self.reset_after else GATES[self.kind] * width
        most = min(MOST_COLUMNS, MOST_SUMS // self.rows)
        return max(size for size in range(LANES, most + 1, LANES) if together % size == 0)

    def filled(self, gates: NDArray[np.generic]) -> NDArray[np.generic]:
        """*gates* ``[gates·H, …]`` with zeros behind each: ``[gates·width, …]``."""
        import numpy as np

        each = gates.reshape(-1, self.hidden, *gates.shape[1:])
        spare = [(0, self.width - self.hidden) if axis == 1 else (0, 0) for axis in range(each.ndim)]
        return np.pad(each, spare).reshape(-1, *gates.shape[1:])

    def packed(self, weights: NDArray[np.generic]) -> NDArray[np.generic]:
        """The weights R ``[gates·H, H]`` in panels ``[gates·width/panel, H, panel]``."""
        import numpy as np

        panels = self.filled(weights).reshape(-1, self.panel, self.hidden)
        return np.ascontiguousarray(panels.swapaxes(1, 2))


def recurrence(layer: Recurrence, rows: Any, weights: Any, bias: Any, *states: Any) -> list[Any]:
    """The kernel as a tensor expression.

    Args:
        rows: ``[steps, batch, gates·width]``, the product of the inputs and what is added to it.
        weights: see :meth:`Recurrence.packed`.
        bias: ``[gates·width]``, what is added to the product of the state before a GRU resets it; else of no
            account.
        states: h before the first step ``[batch, width]``, and c of an LSTM.

    Returns:
        The states of all steps ``[steps, batch, width]``, the last ones as *states*, and room that was used.
    """
    from tvm import te

    gates = (layer.batch, GATES[layer.kind] * layer.width)
    shapes = [(layer.steps, layer.batch, layer.width), *(state.shape for state in states), gates]
    return te.extern(  # type: ignore[no-any-return]
        shapes,
        [rows, weights, bias, *states],
        lambda inputs, outputs: _steps(layer, inputs, outputs),
        name=STEPS,
        dtype=["float32"] * len(shapes),
    )


def is_recurrence(function: Any) -> bool:
    """Whether a TIR function is such a kernel, whose loops are as they are to be."""
    return str(function.body.block.name_hint).startswith(STEPS)


def _steps(layer: Recurrence, inputs: list[Any], outputs: list[Any]) -> Any:
    from tvm import tirx
    from tvm.script.ir_builder import IRBuilder
    from tvm.script.ir_builder import tirx as T

    rows, weights, bias, *first = inputs
    result, *states, gates = outputs
    statements = []
    for state, before in zip(states, first, strict=True):
        with IRBuilder() as builder:
            _each(layer, partial(_copy, state, before))
            statements.append(builder.get())
    with IRBuilder() as builder:
        with T.serial(layer.steps) as step:
            at = layer.steps - 1 - step if layer.backwards else step
            if layer.kind == "LSTM":
                _lstm_step(layer, at, rows, weights, states, gates)
            elif layer.kind == "GRU":
                _gru_step(layer, at, rows, weights, bias, states[0], gates)
            else:
                _rnn_step(layer, at, rows, weights, states[0], gates)
            _each(layer, lambda b, j: _set(result, at, b, j, states[0][b, j]))
        statements.append(builder.get())
    return tirx.SeqStmt(statements)


def _rnn_step(layer: Recurrence, at: Any, rows: Any, weights: Any, h: Any, gates: Any) -> None:
    from tvm import tirx

    _products(layer, range(1), h, weights, gates, lambda b, n: rows[at, b, n])
    _each(layer, lambda b, j: _set(h, b, j, tirx.tanh(gates[b, j])))


def _lstm_step(layer: Recurrence, at: Any, rows: Any, weights: Any, states: list[Any], gates: Any) -> None:
    from tvm import tirx

    size, (h, c) = layer.width, states
    _products(layer, range(4), h, weights, gates, lambda b, n: rows[at, b, n])

    def gate(b: Any, j: Any) -> None:
        i, o, f, new = (gates[b, number * size + j] for number in range(4))
        _set(c, b, j, tirx.sigmoid(f) * c[b, j] + tirx.sigmoid(i) * tirx.tanh(new))
        _set(h, b, j, tirx.sigmoid(o) * tirx.tanh(c[b, j]))

    _each(layer, gate)


def _gru_step(layer: Recurrence, at: Any, rows: Any, weights: Any, bias: Any, h: Any, gates: Any) -> None:
    from tvm import tirx

    size = layer.width
    if layer.reset_after:
        _products(layer, range(3), h, weights, gates, lambda b, n: bias[n])
    else:  # the reset state takes the place of the reset gate
        _products(layer, range(2), h, weights, gates, lambda b, n: rows[at, b, n])
        _each(layer, lambda b, j: _set(gates, b, size + j, tirx.sigmoid(gates[b, size + j]) * h[b, j]))
        _products(layer, range(2, 3), gates, weights, gates, lambda b, n: rows[at, b, n], first=size)

    def gate(b: Any, j: Any) -> None:
        update, reset, product = (gates[b, number * size + j] for number in range(3))
        if layer.reset_after:
            of_update, of_reset, of_new = (rows[at, b, number * size + j] for number in range(3))
            update, product = of_update + update, of_new + tirx.sigmoid(of_reset + reset) * product
        new = tirx.tanh(product)
        _set(h, b, j, new + tirx.sigmoid(update) * (h[b, j] - new))  # (1 - z)·n + z·h

    _each(layer, gate)


def _products(
    layer: Recurrence,
    numbers: range,
    state: Any,
    weights: Any,
    gates: Any,
    begin: Callable[[Any, Any], Any],
    first: int = 0,
) -> None:
    """The sums of the gates with these *numbers*: *begin* of batch and column, and *state*, from its column
    *first* on, times the weights."""
    from tvm.script.ir_builder import tirx as T

    width, size, whole = layer.panel, layer.rows, layer.batch // layer.rows
    panels = [number * layer.width // width for number in (numbers.start, numbers.stop)]
    work = layer.batch * len(numbers) * layer.width * layer.hidden

    def tile(panel: Any, at: Any, count: int) -> None:
        """The sums of *count* sequences from *at* on."""
        sums = T.decl_buffer((count, width), "float32", scope="global", layout=None)
        with T.unroll(count) as b, T.vectorized(width) as lane:
            T.buffer_store(sums, begin(at + b, panel * width + lane), [b, lane])
        with T.serial(layer.hidden) as k, T.unroll(count) as b, T.vectorized(width) as lane:
            term = state[at + b, first + k] * weights[panel, k, lane]
            T.buffer_store(sums, sums[b, lane] + term, [b, lane])
        with T.unroll(count) as b, T.vectorized(width) as lane:
            T.buffer_store(gates, sums[b, lane], [at + b, panel * width + lane])

    with (T.parallel if work >= WORTH_THREADS else T.serial)(*panels) as panel:
        with T.serial(whole) as part:
            tile(panel, part * size, size)
        if rest := layer.batch % size:
            tile(panel, whole * size, rest)


def _each(layer: Recurrence, body: Callable[[Any, Any], None]) -> None:
    """*body* for each of the batch and each of its states, by vectors."""
    from tvm.script.ir_builder import tirx as T

    with T.serial(layer.batch) as b, T.serial(layer.width // LANES) as part, T.vectorized(LANES) as lane:
        body(b, part * LANES + lane)


def _copy(target: Any, source: Any, b: Any, j: Any) -> None:
    _set(target, b, j, source[b, j])


def _set(buffer: Any, *place: Any) -> None:
    """Store the last of *place* at the others."""
    from tvm.script.ir_builder import tirx as T

    *indices, value = place
    T.buffer_store(buffer, value, indices)
