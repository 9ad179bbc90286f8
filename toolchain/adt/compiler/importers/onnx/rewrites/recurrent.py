"""LSTM, GRU and RNN of a fixed length, unrolled step by step.

TVM has no loop operator that an OpenCL target could run well, and the sequences of models for devices are
short; where it can be (:func:`is_loop`), all steps are one function instead. What all steps share, the
product of the inputs with the input weights, is computed for the whole sequence at once; each step adds the
product of the state with the recurrent weights and applies the gates.

Symbols as in ONNX's documents: X[steps, batch, size], W[directions, gates·H, size],
R[directions, gates·H, H], B[directions, 2·gates·H], state h (and c)[directions, batch, H].
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from adt.compiler.importers.onnx.graph import NO_CONVERTER, Builder, Rewrite, Uncovered
from adt.compiler.passes.recurrence import GATES

MOST_STEPS = 512
"""Longer sequences are not unrolled: each step becomes a dozen operators that are compiled one by one."""
_DEFAULTS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
_ACTIVATIONS = ("Relu", "Sigmoid", "Softplus", "Softsign", "Tanh")
"""Activations without parameters, which are operators of the same name."""
_QUANTIZED = {"DynamicQuantizeLSTM": "LSTM"}


def _unrolled(build: Builder) -> list[str] | None:
    """Return the nodes for each step."""
    if reason := _uncovered(build):
        raise Uncovered(reason)
    return (_QuantizedUnrolled if build.node.op_type in _QUANTIZED else _Unrolled)(build).outputs()


def _uncovered(build: Builder) -> str:
    """Return what the node has that the unrolling does not compute; empty if there is nothing."""
    data, weights, recurrent, bias, lengths, _, _, peepholes = build.operands(8)
    constant, shape = build.graph.constant, build.graph.shape(data)
    if shape is None or len(shape) != 3:
        return f"the shape of {data} is not known"
    steps = shape[build.attribute("layout", 0)]
    full = constant(lengths)
    others = [name for name in _activations(build) if name not in _ACTIVATIONS]
    computed = [name for name in (weights, recurrent, bias, peepholes) if name and constant(name) is None]
    reasons = {
        f"it has {steps} steps, more than {MOST_STEPS}": steps > MOST_STEPS,
        f"its weights {', '.join(computed)} are not constant": computed,
        "its sequences may be shorter than the input (sequence_lens)": lengths
        and (full is None or (full != steps).any()),
        f"its activation is {', '.join(others)}, not {', '.join(_ACTIVATIONS)}": others,
        "clip is set": build.attribute("clip") is not None,
        "input_forget is set": build.attribute("input_forget", 0),
    }
    return next((reason for reason, applies in reasons.items() if applies), "")


def is_loop(build: Builder) -> bool:
    """Return True if the node can be one function of all steps."""
    if build.node.op_type not in GATES or build.dtype != "float32" or build.operand(7) or _uncovered(build):
        return False
    weights, directions = build.graph.constant(build.operand(2)), len(_activations(build))
    default = _DEFAULTS[_kind(build)]
    usual = _activations(build) == [*default] * (directions // len(default))
    return usual and weights is not None


def _activations(build: Builder) -> list[str]:
    """Return the activations of all directions, one direction behind the other."""
    given = [name.decode().capitalize() for name in build.attribute("activations", [])]
    directions = 2 if build.attribute("direction", "forward") == "bidirectional" else 1
    return given or [*_DEFAULTS[_kind(build)]] * directions


def _kind(build: Builder) -> str:
    """Return the layer's kind without its quantization."""
    kind: str = build.node.op_type
    return _QUANTIZED.get(kind, kind)


class _Unrolled:
    """One recurrent node and the nodes in its place."""

    def __init__(self, build: Builder) -> None:
        first, second, _ = build.shape(build.operand(0))
        self.build = build
        self.batch_first = bool(build.attribute("layout", 0))
        self.steps, self.batch = (second, first) if self.batch_first else (first, second)
        self.weights: dict[tuple[int, int], str] = {}
        self.direction = build.attribute("direction", "forward")
        self.kind = _kind(build)
        self.w, self.r = self._value(1), self._value(2)
        self.hidden = self.r.shape[-1]
        self.dtype = str(self.w.dtype)

    def _value(self, position: int) -> NDArray[np.generic]:
        return self.build.value(self.build.operand(position))

    def outputs(self) -> list[str]:
        """Return the outputs of all directions, joined as ONNX orders them: Y, Y_h, Y_c."""
        build = self.build
        data = build.operand(0)
        if self.batch_first:
            data = build.add("Transpose", data, perm=[1, 0, 2])
        reversals = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[self.direction]
        runs = [self._direction(index, data, backwards) for index, backwards in enumerate(reversals)]
        results = [""]
        if build.has_output(0):  # Y[steps, directions, batch, H]
            rows = [self._join([outputs[step] for outputs, _ in runs], 1) for step in range(self.steps)]
            results = [self._ordered(self._join(rows, 0), [2, 0, 1, 3])]
        for number, states in enumerate(zip(*(last for _, last in runs), strict=True), start=1):
            if build.has_output(number):  # [directions, batch, H]
                joined = build.reshaped(self._join(states, 0), len(runs), self.batch, self.hidden)
                results.append(self._ordered(joined, [1, 0, 2]))
            else:
                results.append("")
        return results

    def _ordered(self, name: str, batch_first: list[int]) -> str:
        """Transpose *name* so that the batch is where the node has it."""
        return self.build.add("Transpose", name, perm=batch_first) if self.batch_first else name

    def _join(self, names: Sequence[str], axis: int) -> str:
        return names[0] if len(names) == 1 else self.build.add("Concat", *names, axis=axis)

    def _direction(self, index: int, data: str, backwards: bool) -> tuple[list[str], tuple[str, ...]]:
        """Compute the outputs [1, 1, batch, H] of every step, in the input's order, and the last state's."""
        build, size = self.build, GATES[self.kind] * self.hidden
        bias = self._value(3)[index] if build.operand(3) else np.zeros(2 * size, self.dtype)
        of_input, of_state = bias[:size], bias[size:]
        if self.kind != "GRU":  # both are added to the same sum
            of_input, of_state = of_input + of_state, np.zeros_like(of_state)
        product = self._product(build.reshaped(data, self.steps * self.batch, -1), 1, index)
        summed = build.add("Add", product, build.constant(of_input, self.dtype))
        rows = self._split(build.reshaped(summed, self.steps, self.batch, size), 0, [1] * self.steps)
        flat_shape = build.integers([self.batch, size])
        out_shape = build.integers([1, 1, self.batch, self.hidden])
        state_bias = build.constant(of_state, self.dtype) if of_state.any() else ""
        state = [self._initial(position, index) for position in ((5, 6) if self.kind == "LSTM" else (5,))]
        outputs = [""] * self.steps
        for step in reversed(range(self.steps)) if backwards else range(self.steps):
            row = build.add("Reshape", rows[step], flat_shape)
            state = self._step(row, state, state_bias, index)
            outputs[step] = build.add("Reshape", state[0], out_shape)
        return outputs, tuple(build.add("Reshape", value, out_shape) for value in state)

    def _initial(self, position: int, index: int) -> str:
        """Return the state [batch, H] before the first step."""
        build, name = self.build, self.build.operand(position)
        if not name:
            return build.constant(np.zeros((self.batch, self.hidden)), self.dtype)
        if self.batch_first:
            name = build.add("Transpose", name, perm=[1, 0, 2])
        if self.direction == "bidirectional":
            name = self._split(name, 0, [1, 1])[index]
        return build.reshaped(name, self.batch, self.hidden)

    def _split(self, name: str, axis: int, sizes: list[int]) -> list[str]:
        """Cut *name* along *axis* by Slice: Split's form differs between opsets."""
        if len(sizes) == 1:
            return [name]
        build, along = self.build, self.build.integers([axis])
        limits = itertools.pairwise(itertools.accumulate(sizes, initial=0))
        ends = ((build.integers([start]), build.integers([end])) for start, end in limits)
        return [build.add("Slice", name, *pair, along) for pair in ends]

    def _product(self, left: str, position: int, index: int) -> str:
        """Multiply *left* by the weights of input *position* for direction *index*."""
        if (position, index) not in self.weights:
            weights = self.w if position == 1 else self.r
            self.weights[position, index] = self.build.constant(weights[index].T, self.dtype)
        return self.build.add("MatMul", left, self.weights[position, index])

    def _step(self, row: str, state: list[str], state_bias: str, index: int) -> list[str]:
        if self.kind == "GRU":
            return [self._gru_step(row, state[0], state_bias, index)]
        build = self.build
        total = build.add("Add", row, self._product(state[0], 2, index))
        gate, *others = self._activations_of(index)
        if self.kind == "RNN":
            return [build.add(gate, total)]
        of_cell, of_output = others
        i, o, f, c = self._split(total, 1, [self.hidden] * 4)
        i, f = self._peephole(i, 0, state[1], index), self._peephole(f, 2, state[1], index)
        old = build.add("Mul", build.add(gate, f), state[1])
        new = build.add("Mul", build.add(gate, i), build.add(of_cell, c))
        cell = build.add("Add", old, new)
        o = self._peephole(o, 1, cell, index)
        return [build.add("Mul", build.add(gate, o), build.add(of_output, cell)), cell]

    def _activations_of(self, index: int) -> list[str]:
        """Return the activations of direction *index*: of the gates, and of what they let through."""
        count = len(_DEFAULTS[self.kind])
        return _activations(self.build)[index * count : (index + 1) * count]

    def _peephole(self, total: str, gate: int, cell: str, index: int) -> str:
        """Add to *total* what *gate* (input, output, forget) sees of the cell, where there are peepholes."""
        if not self.build.operand(7):
            return total
        weights = self._value(7)[index, gate * self.hidden : (gate + 1) * self.hidden]
        seen = self.build.add("Mul", cell, self.build.constant(weights, self.dtype))
        return self.build.add("Add", total, seen)

    def _gru_step(self, row: str, h: str, state_bias: str, index: int) -> str:
        build, size = self.build, self.hidden
        gate, of_new = self._activations_of(index)
        z_x, r_x, n_x = self._split(row, 1, [size] * 3)
        if build.attribute("linear_before_reset", 0):
            of_state = build.plus(self._product(h, 2, index), state_bias)
            z_h, r_h, n_h = self._split(of_state, 1, [size] * 3)
            r = build.add(gate, build.add("Add", r_x, r_h))
            n = build.add(of_new, build.add("Add", n_x, build.add("Mul", r, n_h)))
        else:
            both = build.constant(self.r[index][: 2 * size].T, self.dtype)
            first, last = self._split(state_bias, 0, [2 * size, size]) if state_bias else ("", "")
            of_state = build.plus(build.add("MatMul", h, both), first)
            z_h, r_h = self._split(of_state, 1, [size] * 2)
            reset = build.add("Mul", build.add(gate, build.add("Add", r_x, r_h)), h)
            n_h = build.add("MatMul", reset, build.constant(self.r[index][2 * size :].T, self.dtype))
            n = build.add(of_new, build.add("Add", n_x, build.plus(n_h, last)))
        z = build.add(gate, build.add("Add", z_x, z_h))
        # (1 - z)·n + z·h
        return build.add("Add", n, build.add("Mul", z, build.add("Sub", h, n)))


class _QuantizedUnrolled(_Unrolled):
    """Layer with weights of integers, [directions, size, gates·H]; operands are quantized at run time."""

    def _value(self, position: int) -> NDArray[np.generic]:
        value = super()._value(position)
        return value.swapaxes(1, 2) if position in (1, 2) else value

    def __init__(self, build: Builder) -> None:
        super().__init__(build)
        self.dtype = "float32"

    def _product(self, left: str, position: int, index: int) -> str:
        build = self.build
        scale, zero = (self._value(8 + 2 * (position - 1) + i)[index] for i in (0, 1))
        weights = (self.w if position == 1 else self.r)[index].T
        names = [build.constant(value, str(value.dtype)) for value in (weights, scale, zero)]
        return build.add("DynamicQuantizeMatMul", left, *names, domain="com.microsoft")


REWRITES = tuple(
    Rewrite(op, f"{into}, … for each step", NO_CONVERTER, _unrolled)
    for op, into in (
        ("com.microsoft::DynamicQuantizeLSTM", "DynamicQuantizeLinear, MatMulInteger, Sigmoid, Tanh"),
        ("LSTM", "MatMul, Sigmoid, Tanh"),
        ("GRU", "MatMul, Sigmoid, Tanh"),
        ("RNN", "MatMul, Tanh"),
    )
)
