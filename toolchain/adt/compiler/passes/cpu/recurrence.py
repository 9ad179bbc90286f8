"""All steps of a recurrent layer as one kernel: a call for each step and gate would take longer than they do.

    for step:
        for panel of gates:  sums = row of the step;  for k:  sums += h[k] * w[panel][k]
        c, h = gates(sums, c, h)

What the steps share, the product of the inputs with their weights, is a product of its own before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from adt.compiler.passes.gates import gru_gates, lstm_gates, rnn_gate
from adt.compiler.passes.layout.blocks import ceil_blocks
from adt.compiler.passes.recurrence import STEPS, Recurrence

MOST_SUMS = 96
"""Sums that are kept in registers: six of AVX-512, 24 of NEON."""
MOST_COLUMNS, MOST_ROWS = 64, 6
"""Columns of a panel of weights, and sequences of a batch that are multiplied with it at once."""
LANES = 16
"""States whose gates are computed at once, and what a layer's states are filled up to with zeros."""
WORTH_THREADS = 1 << 19
"""Multiply-adds of a step from which on all threads compute it: they are waited for twice a step."""


class CpuSteps:
    """Steps of recurrent layers on a CPU."""

    def width(self, layer: Recurrence) -> int:
        """Return the number of units that makes panels of weights whole vectors."""
        least = ceil_blocks(layer.hidden, LANES) * LANES
        candidates = range(least, least + MOST_COLUMNS, LANES)
        return min(candidates, key=lambda width: width / _panel(layer, width))

    def state_width(self, layer: Recurrence) -> int:
        """Return as many as :meth:`width`: states are read by vectors, too."""
        return self.width(layer)

    def packed(self, layer: Recurrence, weights: NDArray[np.generic]) -> NDArray[np.generic]:
        """Pack the weights into panels ``[directions, gates·width/panel, H, panel]``."""
        width = self.width(layer)
        panels = layer.filled(weights, width)
        panels = panels.reshape(layer.directions, -1, _panel(layer, width), layer.hidden)
        return np.ascontiguousarray(panels.swapaxes(2, 3))

    def attributes(self, layer: Recurrence) -> Mapping[str, Any]:
        """Return none: rules see by its block what it is."""
        return {}

    def compute(
        self, layer: Recurrence, rows: te.Tensor, weights: te.Tensor, bias: te.Tensor, *states: te.Tensor
    ) -> list[te.Tensor]:
        """Compute the layer with room for the sums of a step."""
        width = self.width(layer)
        every = (layer.steps, layer.directions, layer.batch, width)
        shapes = [every, *(state.shape for state in states), (layer.batch, layer.gates * width)]
        return te.extern(  # type: ignore[no-any-return]
            shapes,
            [rows, weights, bias, *states],
            lambda inputs, outputs: _steps(layer, width, inputs, outputs),
            name=STEPS,
            dtype=["float32"] * len(shapes),
        )


def _rows(layer: Recurrence) -> int:
    return ceil_blocks(layer.batch, ceil_blocks(layer.batch, MOST_ROWS))


def _panel(layer: Recurrence, width: int) -> int:
    together = width if layer.resets_first else layer.gates * width
    most = min(MOST_COLUMNS, MOST_SUMS // _rows(layer))
    return max(size for size in range(LANES, most + 1, LANES) if together % size == 0)


def is_recurrence(function: tirx.PrimFunc) -> bool:
    """Return True if a TIR function is such a kernel, whose loops are as they are to be."""
    return str(function.body.block.name_hint).startswith(STEPS)


def _steps(layer: Recurrence, width: int, inputs: list[tirx.Buffer], outputs: list[tirx.Buffer]) -> tirx.Stmt:
    rows, weights, bias, *first = inputs
    result, *states, gates = outputs
    directions = [
        _Direction(layer, width, d, rows, weights, bias, states, gates) for d in range(layer.directions)
    ]
    statements = []
    for state, before in zip(states, first, strict=True):
        for direction in directions:
            with IRBuilder() as builder:
                direction.copy(state, before)
                statements.append(builder.get())
    for direction, backwards in zip(directions, layer.backwards, strict=True):
        with IRBuilder() as builder:
            with T.serial(layer.steps) as step:
                at = layer.steps - 1 - step if backwards else step
                {"RNN": _rnn_step, "GRU": _gru_step, "LSTM": _lstm_step}[layer.kind](direction, at)
                direction.copy(result, states[0], at)
            statements.append(builder.get())
    return tirx.SeqStmt(statements)


@dataclass(frozen=True)
class _Direction:
    """One direction of a layer: its number, and the buffers of all of them."""

    layer: Recurrence
    width: int
    number: int
    rows: tirx.Buffer
    weights: tirx.Buffer
    bias: tirx.Buffer
    states: list[tirx.Buffer]
    gates: tirx.Buffer
    """Sums of a step ``[batch, gates·width]``."""

    def row(self, at: tirx.PrimExpr, b: tirx.PrimExpr, n: tirx.PrimExpr) -> tirx.PrimExpr:
        """Return column *n* of the inputs' product at the step *at*."""
        return self.rows[at, b, self.number * self.layer.gates * self.width + n]

    def sums(self, b: tirx.PrimExpr, j: tirx.PrimExpr) -> list[tirx.PrimExpr]:
        """Return the sums of the gates of unit *j*."""
        return [self.gates[b, gate * self.width + j] for gate in range(self.layer.gates)]

    def each(self, body: Callable[[tirx.PrimExpr, tirx.PrimExpr], None]) -> None:
        """Emit *body* for each of the batch and each of its states, by vectors."""
        with (
            T.serial(self.layer.batch) as b,
            T.serial(self.width // LANES) as part,
            T.vectorized(LANES) as lane,
        ):
            body(b, part * LANES + lane)

    def copy(self, target: tirx.Buffer, source: tirx.Buffer, *step: tirx.PrimExpr) -> None:
        """Copy a state to *target*, at a *step* of it where it has all."""
        d = self.number
        self.each(lambda b, j: T.buffer_store(target, source[d, b, j], [*step, d, b, j]))


def _rnn_step(direction: _Direction, at: tirx.PrimExpr) -> None:
    (h,), d = direction.states, direction.number
    _products(direction, range(1), lambda b, n: direction.row(at, b, n))
    direction.each(lambda b, j: T.buffer_store(h, rnn_gate(*direction.sums(b, j)), [d, b, j]))


def _lstm_step(direction: _Direction, at: tirx.PrimExpr) -> None:
    (h, c), d = direction.states, direction.number
    _products(direction, range(4), lambda b, n: direction.row(at, b, n))

    def gate(b: tirx.PrimExpr, j: tirx.PrimExpr) -> None:
        cell, output = lstm_gates(direction.sums(b, j), c[d, b, j])
        T.buffer_store(c, cell, [d, b, j])
        T.buffer_store(h, output * tirx.tanh(c[d, b, j]), [d, b, j])

    direction.each(gate)


def _gru_step(direction: _Direction, at: tirx.PrimExpr) -> None:
    (h,), d, gates, size = direction.states, direction.number, direction.gates, direction.width
    reset_after = direction.layer.reset_after
    if reset_after:
        _products(direction, range(3), lambda b, n: direction.bias[d, n])
    else:  # the reset state takes the place of the reset gate
        _products(direction, range(2), lambda b, n: direction.row(at, b, n))

        def reset_state(b: tirx.PrimExpr, j: tirx.PrimExpr) -> None:
            T.buffer_store(gates, tirx.sigmoid(gates[b, size + j]) * h[d, b, j], [b, size + j])

        direction.each(reset_state)
        _products(
            direction, range(2, 3), lambda b, n: direction.row(at, b, n), lambda b, k: gates[b, size + k]
        )

    def gate(b: tirx.PrimExpr, j: tirx.PrimExpr) -> None:
        update, reset, product = direction.sums(b, j)
        if reset_after:
            of_update, of_reset, of_new = (direction.row(at, b, number * size + j) for number in range(3))
            update, product = of_update + update, of_new + tirx.sigmoid(of_reset + reset) * product
        T.buffer_store(h, gru_gates(update, product, h[d, b, j]), [d, b, j])

    direction.each(gate)


def _products(
    direction: _Direction,
    numbers: range,
    begin: Callable[[tirx.PrimExpr, tirx.PrimExpr], tirx.PrimExpr],
    state: Callable[[tirx.PrimExpr, tirx.PrimExpr], tirx.PrimExpr] | None = None,
) -> None:
    """Sum the gates *numbers*: *begin* of batch and column, and *state* (h) of batch and unit by weights."""
    layer, d, gates = direction.layer, direction.number, direction.gates
    width, size = _panel(layer, direction.width), _rows(layer)
    whole = layer.batch // size
    state = state or (lambda b, k: direction.states[0][d, b, k])
    panels = [number * direction.width // width for number in (numbers.start, numbers.stop)]
    work = layer.batch * len(numbers) * direction.width * layer.hidden

    @contextmanager
    def sums_of(count: int) -> Iterator[tuple[tirx.PrimExpr, tirx.PrimExpr]]:
        lanes = width & -width  # LLVM keeps no vectors of 48 in registers
        with T.unroll(count) as b, T.unroll(width // lanes) as part, T.vectorized(lanes) as lane:
            yield b, part * lanes + lane

    def tile(panel: tirx.PrimExpr, at: tirx.PrimExpr, count: int) -> None:
        sums = T.decl_buffer((count, width), "float32", scope="global", layout=None)
        with sums_of(count) as (b, column):
            T.buffer_store(sums, begin(at + b, panel * width + column), [b, column])
        with T.serial(layer.hidden) as k, sums_of(count) as (b, column):
            term = state(at + b, k) * direction.weights[d, panel, k, column]
            T.buffer_store(sums, sums[b, column] + term, [b, column])
        with sums_of(count) as (b, column):
            T.buffer_store(gates, sums[b, column], [at + b, panel * width + column])

    with (T.parallel if work >= WORTH_THREADS else T.serial)(*panels) as panel:
        with T.serial(whole) as part:
            tile(panel, part * size, size)
        if rest := layer.batch % size:
            tile(panel, whole * size, rest)
