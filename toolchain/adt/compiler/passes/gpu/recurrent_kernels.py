"""The steps of a recurrent layer on a GPU.

    work-item (share, unit):   for k of the share:  sums[gate] += w[gate][unit][4k…] * h[4k…]
    barrier;  unit of the first share:  c, h = gates(sums of all shares, c, h)

A work-group that is alone holds h in its memory and loops over the steps, with a barrier behind each: one for
each sequence of the batch and direction. It reads all weights through one core, whereas a kernel for each
step reads them through all, and is launched as often as there are steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from adt.compiler.passes.gates import gru_gates, lstm_gates, rnn_gate
from adt.compiler.passes.gpu.recurrent_tile import StepTile
from adt.compiler.passes.layout.blocks import ceil_blocks
from adt.compiler.passes.recurrence import Recurrence
from adt.package.reports import LANES

MOST_READS = 8
"""Vectors of weights that are asked for at once."""
_Values = list[tirx.PrimExpr]


class LayerKernel(ABC):
    """Kernel of a layer: the work of its work-items."""

    def __init__(
        self, layer: Recurrence, tile: StepTile, inputs: list[tirx.Buffer], outputs: list[tirx.Buffer]
    ) -> None:
        self.layer = layer
        self.tile = tile
        self.rows, self.weights, self.bias, *self.first = inputs
        self.result, *rest = outputs
        self.last = rest[: len(self.first)]
        self.room = rest[len(self.first) :]
        """Buffers of h before and after a step, and behind them of what is reset and the sum of the
        update."""
        self.guarded = tile.width > layer.hidden

    @abstractmethod
    def statements(self) -> tirx.Stmt:
        """Build the function's body."""

    def position(self, step: tirx.PrimExpr, d: tirx.PrimExpr) -> tirx.PrimExpr:
        """Return the index of the input that is the *step*-th of direction *d*."""
        first, *second = self.layer.backwards
        forth, back = step, self.layer.steps - 1 - step
        if not second:
            return back if first else forth
        return tirx.Select(d == int(first), forth, back)

    def parts(self, gates: int) -> tirx.Buffer:
        """Allocate room for the sums of *gates* of a work-group, where work-items share them."""
        if self.tile.shares == 1:
            return None
        return T.alloc_buffer((gates * self.tile.rows, self.tile.items), "float32", scope="shared")

    def each_sum(
        self,
        gates: range,
        place: _Place,
        parts: tirx.Buffer,
        state: Callable[[int, tirx.PrimExpr], tirx.PrimExpr],
        given: Callable[[int], _Values],
        finish: Callable[[int, _Values, _Values], None],
    ) -> None:
        """Call *finish* with a sequence, the sums of its *gates* and what is given, by one work-item for each
        unit of it.

        Args:
            parts: see :meth:`parts`.
            state: of a sequence the vector that is multiplied, from a unit on.
            given: of a sequence what *finish* wants beside the sums. It is read before them: some of it comes
                from far, and what the others write must not be read behind the barrier.
        """
        tile, count = self.tile, len(gates) * self.tile.rows
        sums = T.alloc_buffer((count * LANES,), "float32", scope="local")
        inputs = [[T.bind(value) for value in given(row)] for row in range(tile.rows)]

        def total(number: int) -> tirx.PrimExpr:
            lanes = [tirx.Shuffle([sums[_vector(number * LANES)]], [lane]) for lane in range(LANES)]
            return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3])

        for number in range(count):
            zero = tirx.Broadcast(tirx.const(0, "float32"), LANES)
            T.buffer_store(sums, zero, [_vector(number * LANES)])
        fitting = [size for size in (2, 4) if tile.terms % size == 0 and size * len(gates) <= MOST_READS]
        size = max(fitting, default=1)
        with T.serial(tile.terms // size) as part:
            for term in (part * size + offset for offset in range(size)):
                column = (term * tile.shares + place.share) * LANES
                states = [T.bind(state(row, column)) for row in range(tile.rows)]
                for number, gate in enumerate(gates):
                    at = _vector(place.item * LANES)
                    weights = T.bind(self.weights[place.direction, place.group, term, gate, at])
                    for row, values in enumerate(states):
                        at = _vector((number * tile.rows + row) * LANES)
                        T.buffer_store(sums, sums[at] + weights * values, [at])

        numbers = [[gate * tile.rows + row for gate in range(len(gates))] for row in range(tile.rows)]
        if parts is None:
            for row, those in enumerate(numbers):
                finish(row, [T.bind(total(number)) for number in those], inputs[row])
            return
        for number in range(count):
            T.buffer_store(parts, total(number), [number, place.item])
        _barrier()
        with T.If(place.share == 0), T.Then():
            for row, those in enumerate(numbers):
                shares = [[parts[n, s * tile.units + place.item] for s in range(tile.shares)] for n in those]
                finish(row, [T.bind(sum(values[1:], values[0])) for values in shares], inputs[row])

    def new_state(
        self, totals: _Values, given: _Values, place: _Place, kept: tirx.BufferLoad
    ) -> tirx.PrimExpr:
        """Compute the new h of a unit, for the sums of its gates and what is :meth:`given`.

        *kept* is an LSTM's c, whose place the new one takes, or the update's sum of a GRU that resets first.
        """
        if self.layer.kind == "RNN":
            return T.bind(rnn_gate(given[0] + totals[0]))
        if self.layer.kind == "LSTM":
            sums = [before + total for before, total in zip(given, totals, strict=True)]
            new, output = lstm_gates(sums, kept)
            value = T.bind(new)
            T.buffer_store(kept.buffer, value, kept.indices)
            return T.bind(output * tirx.tanh(value))
        if self.layer.resets_first:
            return T.bind(gru_gates(kept, given[0] + totals[0], given[-1]))
        update, reset, product = totals
        bias = self.bias[place.direction, 2 * self.tile.width + place.unit]
        fresh = given[2] + tirx.sigmoid(given[1] + reset) * (product + bias)
        return T.bind(gru_gates(given[0] + update, fresh, given[-1]))

    def reset(self, totals: _Values, given: _Values) -> tuple[tirx.PrimExpr, tirx.PrimExpr]:
        """Compute the update's sum and the reset h of a unit of a GRU that resets first."""
        return given[0] + totals[0], tirx.sigmoid(given[1] + totals[1]) * given[-1]

    def given(
        self, gates: range, place: _Place, at: tirx.PrimExpr, b: tirx.PrimExpr, h: tirx.PrimExpr
    ) -> _Values:
        """Return the inputs' product for *gates* at *at*, and behind it a GRU's *h*."""
        columns = [(place.direction * self.layer.gates + gate) * self.tile.width for gate in gates]
        values = [self.rows[at, b, column + place.unit] for column in columns]
        return [*values, h] if self.layer.kind == "GRU" else values

    def within(self, unit: tirx.PrimExpr) -> list[tirx.PrimExpr]:
        """Return the condition that *unit* is one of the layer's, and none of the zeros behind them."""
        return [unit < self.layer.hidden] if self.guarded else []


@dataclass(frozen=True)
class _Place:
    """A work-item's."""

    direction: tirx.PrimExpr
    group: tirx.PrimExpr
    item: tirx.PrimExpr
    tile: StepTile

    @property
    def share(self) -> tirx.PrimExpr:
        """Index of the work-item's part of the sums."""
        return self.item // self.tile.units if self.tile.shares > 1 else 0

    @property
    def unit(self) -> tirx.PrimExpr:
        """Index of the layer's unit."""
        own = self.item % self.tile.units if self.tile.shares > 1 else self.item
        return self.group * self.tile.units + own


class PlainLoops(LayerKernel):
    """One unit behind the other."""

    def statements(self) -> tirx.Stmt:
        layer = self.layer
        with IRBuilder() as builder:
            with T.serial(layer.directions) as d, T.serial(layer.batch) as b:
                with T.serial(layer.hidden) as unit:
                    for last, before in zip(self.last, self.first, strict=True):
                        T.buffer_store(last, before[d, b, unit], [d, b, unit])
                with T.serial(layer.steps) as step:
                    self._step(self.position(step, d), d, b)
            return builder.get()

    def _step(self, at: tirx.PrimExpr, d: tirx.PrimExpr, b: tirx.PrimExpr) -> None:
        layer, h = self.layer, self.last[0]
        own = T.decl_buffer((2, self.tile.width), "float32", scope="global", layout=None)
        if layer.resets_first:
            with T.serial(layer.hidden) as unit:
                totals = self._totals(range(2), d, unit, lambda k: h[d, b, k])
                given = self.given(range(2), self._place(d, unit), at, b, h[d, b, unit])
                for number, value in enumerate(self.reset(totals, given)):
                    T.buffer_store(own, value, [number, unit])
        gates = range(2, 3) if layer.resets_first else range(layer.gates)
        with T.serial(layer.hidden) as unit:
            place = self._place(d, unit)
            totals = self._totals(gates, d, unit, lambda k: own[1, k] if layer.resets_first else h[d, b, k])
            given = self.given(gates, place, at, b, h[d, b, unit])
            kept = own[0, unit] if layer.resets_first else self.last[-1][d, b, unit]
            T.buffer_store(self.result, self.new_state(totals, given, place, kept), [at, d, b, unit])
        with T.serial(layer.hidden) as unit:
            T.buffer_store(h, self.result[at, d, b, unit], [d, b, unit])

    def _place(self, d: tirx.PrimExpr, unit: tirx.PrimExpr) -> _Place:
        units = self.tile.units
        return _Place(d, unit // units, unit % units, self.tile)

    def _totals(
        self,
        gates: range,
        d: tirx.PrimExpr,
        unit: tirx.PrimExpr,
        state: Callable[[tirx.PrimExpr], tirx.PrimExpr],
    ) -> _Values:
        """Compute the sums of *gates* for *unit*, of the *state* of each unit."""
        tile = self.tile
        sums = T.decl_buffer((len(gates),), "float32", scope="global", layout=None)
        for number in range(len(gates)):
            T.buffer_store(sums, T.float32(0), [number])
        with T.serial(self.layer.hidden) as k:
            term, share = k // LANES // tile.shares, k // LANES % tile.shares
            item = share * tile.units + unit % tile.units
            for number, gate in enumerate(gates):
                weight = self.weights[d, unit // tile.units, term, gate, item * LANES + k % LANES]
                T.buffer_store(sums, sums[number] + state(k) * weight, [number])
        return [T.bind(sums[number]) for number in range(len(gates))]


class WholeLayer(LayerKernel):
    """One kernel: a work-group for each sequence and direction."""

    def statements(self) -> tirx.Stmt:
        layer, tile = self.layer, self.tile
        with IRBuilder() as builder:
            with (
                T.thread_binding(layer.batch, thread="blockIdx.x") as self.sequence,
                T.thread_binding(layer.directions, thread="blockIdx.y") as self.direction,
                T.thread_binding(tile.items, thread="threadIdx.x") as self.item,
            ):
                self.h, *self.others = (
                    T.alloc_buffer((count * tile.width,), "float32", scope="shared")
                    for count in (2, *(1 for _ in self.first[1:]), *([1, 1] if layer.resets_first else []))
                )
                parts = self.parts(2 if layer.resets_first else layer.gates)
                self._begin()
                _barrier()
                with T.serial(layer.steps) as step:
                    self._step(step, parts)
                self._end()
            return builder.get()

    def _each_unit(self, body: Callable[[tirx.PrimExpr], None], extent: int) -> None:
        with T.serial(ceil_blocks(extent, self.tile.items)) as part:
            unit = part * self.tile.items + self.item
            with _only_where([unit < extent] if extent % self.tile.items else []):
                body(unit)

    def _begin(self) -> None:
        hidden, width = self.layer.hidden, self.tile.width

        def begin(unit: tirx.PrimExpr) -> None:
            for buffer, before in zip((self.h, *self.others), self.first, strict=False):
                value = before[self.direction, self.sequence, unit]
                if self.guarded:
                    value = tirx.if_then_else(unit < hidden, value, T.float32(0))
                T.buffer_store(buffer, value, [unit])
            if self.guarded:
                zeros = [(self.h, width), *((other, 0) for other in self.others[len(self.first) - 1 :])]
                for buffer, offset in zeros:
                    T.buffer_store(buffer, T.float32(0), [offset + unit])

        self._each_unit(begin, width)

    def _end(self) -> None:
        start = self.layer.steps % 2 * self.tile.width

        def end(unit: tirx.PrimExpr) -> None:
            at = [self.direction, self.sequence, unit]
            T.buffer_store(self.last[0], self.h[start + unit], at)
            for buffer, last in zip(self.others, self.last[1:], strict=False):
                T.buffer_store(last, buffer[unit], at)

        self._each_unit(end, self.layer.hidden)

    def _step(self, step: tirx.PrimExpr, parts: tirx.Buffer) -> None:
        layer, tile, h = self.layer, self.tile, self.h
        d, b = self.direction, self.sequence
        at = self.position(step, d)
        now, later = step % 2 * tile.width, (step + 1) % 2 * tile.width

        def each_group(
            gates: range, state: Callable[[int, tirx.PrimExpr], tirx.PrimExpr], finish: _Finish
        ) -> None:
            with T.serial(tile.groups) as group:
                place = _Place(d, group, self.item, tile)

                def given(_row: int) -> _Values:
                    return self.given(gates, place, at, b, h[now + place.unit])

                self.each_sum(gates, place, parts, state, given, partial(finish, place))
                if parts is not None and tile.groups > 1:
                    _barrier()
            _barrier()

        def old(_row: int, column: tirx.PrimExpr) -> tirx.PrimExpr:
            return h[_vector(now + column)]

        def finish(place: _Place, _row: int, totals: _Values, given: _Values) -> None:
            new = self.new_state(totals, given, place, self.others[-1][place.unit] if self.others else None)
            T.buffer_store(h, new, [later + place.unit])
            with _only_where(self.within(place.unit)):
                T.buffer_store(self.result, new, [at, d, b, place.unit])

        if not layer.resets_first:
            each_group(range(layer.gates), old, finish)
            return
        reset, update = self.others

        def finish_reset(place: _Place, _row: int, totals: _Values, given: _Values) -> None:
            for buffer, value in zip((update, reset), self.reset(totals, given), strict=True):
                T.buffer_store(buffer, value, [place.unit])

        each_group(range(2), old, finish_reset)
        each_group(range(2, 3), lambda _row, column: reset[_vector(column)], finish)


class SingleSteps(LayerKernel):
    """A kernel for each step, two of a GRU that resets first."""

    def statements(self) -> tirx.Stmt:
        statements = []
        with IRBuilder() as builder:
            self._begin()
            statements.append(builder.get())
        with IRBuilder() as builder:
            with T.serial(self.layer.steps) as step:
                if self.layer.resets_first:
                    self._launch(range(2), 2, step)
                    self._launch(range(2, 3), 2, step)
                else:
                    self._launch(range(self.layer.gates), 0, step)
            statements.append(builder.get())
        return tirx.SeqStmt(statements)

    def _begin(self) -> None:
        layer, tile, (room,) = self.layer, self.tile, self.room
        with (
            T.thread_binding(ceil_blocks(tile.width, tile.items), thread="blockIdx.x") as part,
            T.thread_binding(layer.batch, thread="blockIdx.y") as b,
            T.thread_binding(layer.directions, thread="blockIdx.z") as d,
            T.thread_binding(tile.items, thread="threadIdx.x") as item,
        ):
            unit = part * tile.items + item
            with T.If(unit < tile.width), T.Then():
                h = tirx.if_then_else(unit < layer.hidden, self.first[0][d, b, unit], T.float32(0))
                for half in range(int(room.shape[0])):
                    T.buffer_store(room, h, [half, d, b, unit])
            if len(self.first) > 1:
                with T.If(unit < layer.hidden), T.Then():
                    T.buffer_store(self.last[1], self.first[1][d, b, unit], [d, b, unit])

    def _launch(self, gates: range, source: int, step: tirx.PrimExpr) -> None:
        """Launch the kernel of a step for *gates*, which multiplies part *source* of the room, or h."""
        layer, tile, (room,) = self.layer, self.tile, self.room
        now, later = step % 2, (step + 1) % 2
        first = layer.resets_first and gates.start == 0
        multiplied = source if gates.start else now
        with (
            T.thread_binding(tile.groups, thread="blockIdx.x") as group,
            T.thread_binding(ceil_blocks(layer.batch, tile.rows), thread="blockIdx.y") as part,
            T.thread_binding(layer.directions, thread="blockIdx.z") as d,
            T.thread_binding(tile.items, thread="threadIdx.x") as item,
        ):
            place = _Place(d, group, item, tile)
            unit, at = place.unit, self.position(step, d)
            ragged = layer.batch % tile.rows != 0

            def sequence(row: int) -> tirx.PrimExpr:
                b = part * tile.rows + row
                return tirx.min(b, layer.batch - 1) if ragged else b

            def state(row: int, column: tirx.PrimExpr) -> tirx.PrimExpr:
                return room[multiplied, d, sequence(row), _vector(column)]

            def given(row: int) -> _Values:
                return self.given(gates, place, at, sequence(row), room[now, d, sequence(row), unit])

            def finish(row: int, totals: _Values, given: _Values) -> None:
                b = part * tile.rows + row
                with _only_where([*self.within(unit), *([b < layer.batch] if ragged else [])]):
                    if first:
                        update, reset = self.reset(totals, given)
                        T.buffer_store(room, update, [source + 1, d, b, unit])
                        T.buffer_store(room, reset, [source, d, b, unit])
                        return
                    kept = room[source + 1, d, b, unit] if layer.resets_first else self.last[-1][d, b, unit]
                    new = self.new_state(totals, given, place, kept)
                    T.buffer_store(room, new, [later, d, b, unit])
                    T.buffer_store(self.result, new, [at, d, b, unit])
                    T.buffer_store(self.last[0], new, [d, b, unit])

            self.each_sum(gates, place, self.parts(len(gates)), state, given, finish)


_Finish = Callable[[_Place, int, _Values, _Values], None]
"""Uses the sums of the gates of a place and sequence, and what is given."""


@contextmanager
def _only_where(conditions: list[tirx.PrimExpr]) -> Iterator[None]:
    """Restrict the code that is built inside to where all *conditions* hold."""
    with ExitStack() as stack:
        for condition in conditions:
            stack.enter_context(T.If(condition))
            stack.enter_context(T.Then())
        yield


def _vector(at: tirx.PrimExpr) -> Any:
    return tirx.Ramp(at, 1, LANES)


def _barrier() -> None:
    """Wait for the work-group."""
    T.evaluate(T.tvm_storage_sync("shared"))
