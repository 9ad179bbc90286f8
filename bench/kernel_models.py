"""A model of independent operators, as ONNX: each has its own inputs, weights and output."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from kernel_table import (
    AVERAGE_POOL,
    CONV,
    DENSE,
    GLOBAL_POOL,
    MAX_POOL,
    SQUEEZE_EXCITE,
    UPSAMPLE,
    Op,
    Shape,
)
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
SEED = 0


def write_model(ops: Sequence[Op], path: Path) -> Path:
    """Write one model whose output ``y<i>`` is what ``ops[i]`` computes; its inputs are ``x<i>…``."""
    model = _Model()
    for number, op in enumerate(ops):
        model.add(op, number)
    graph = helper.make_graph(model.nodes, "kernels", model.inputs, model.outputs, model.weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    onnx.checker.check_model(made)
    onnx.save(made, path)
    return path


def inputs_for(shapes: Sequence[tuple[str, Sequence[int]]]) -> dict[str, np.ndarray]:
    """Normally distributed numbers for inputs of these names and shapes, the same each time."""
    random = np.random.default_rng(SEED)
    return {name: random.standard_normal(tuple(shape), np.float32) for name, shape in shapes}


class _Model:
    """An ONNX graph under construction."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(SEED)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []

    def add(self, op: Op, number: int) -> None:
        """Put *op* into the graph."""
        x = self._input(f"x{number}", op.shape)
        if op.kind == CONV:
            y = self._conv(x, op.shape[0], op.out, op.kernel, op.groups, op.stride, op.padding)
        elif op.kind == DENSE:
            weight = self._weight((op.shape[0], op.out), (1 / op.shape[0]) ** 0.5)
            y = self._node("Gemm", self._node("Flatten", x), weight, self._weight((op.out,), 0.1))
        else:
            y = self._unlike(op, self._stem(x, op.shape[0]))
        for step in filter(None, op.then.split("+")):
            y = self._then(step, y, op.output, number)
        shape = [1, *op.output][: 2 if op.kind == DENSE else 4]
        self.nodes.append(helper.make_node("Identity", [y], [f"y{number}"]))
        self.outputs.append(helper.make_tensor_value_info(f"y{number}", TensorProto.FLOAT, shape))

    def _unlike(self, op: Op, x: str) -> str:
        """What is no convolution."""
        channels = op.shape[0]
        window = {
            "kernel_shape": list(op.kernel),
            "strides": [op.stride, op.stride],
            "pads": list(op.padding) * 2,
        }
        if op.kind == MAX_POOL:
            return self._node("MaxPool", x, **window)
        if op.kind == AVERAGE_POOL:
            return self._node("AveragePool", x, **window)
        if op.kind == GLOBAL_POOL:
            return self._node("GlobalAveragePool", x)
        if op.kind == UPSAMPLE:
            scales = self._constant(np.array([1, 1, op.stride, op.stride], np.float32))
            modes = {
                "mode": "nearest",
                "coordinate_transformation_mode": "asymmetric",
                "nearest_mode": "floor",
            }
            return self._node("Resize", x, "", scales, **modes)
        assert op.kind == SQUEEZE_EXCITE
        gate = self._node("GlobalAveragePool", x)
        gate = self._node("Relu", self._conv(gate, channels, op.out))
        gate = self._node("HardSigmoid", self._conv(gate, op.out, channels), alpha=1 / 6, beta=0.5)
        return self._node("Mul", x, gate)

    def _stem(self, x: str, channels: int) -> str:
        """A factor for each channel, by a convolution: what is none comes behind one in a network, too.

        Without one before them pools and the like would stay in buffers.
        """
        weight = self._weight((channels, 1, 1, 1), 1.0)
        return self._node("Conv", x, weight, kernel_shape=[1, 1], group=channels)

    def _then(self, step: str, x: str, shape: Shape, number: int) -> str:
        if step == "add":
            return self._node("Add", x, self._input(f"x{number}_added", shape))
        if step == "relu":
            return self._node("Relu", x)
        if step == "relu6":
            return self._node("Clip", x, *(self._constant(np.float32(limit)) for limit in (0, 6)))
        if step == "hard_swish":
            return self._node("HardSwish", x)
        assert step == "silu"
        return self._node("Mul", x, self._node("Sigmoid", x))

    def _conv(
        self,
        x: str,
        channels: int,
        out: int,
        kernel: tuple[int, int] = (1, 1),
        groups: int = 1,
        stride: int = 1,
        padding: tuple[int, int] = (0, 0),
    ) -> str:
        shape = (out, channels // groups, *kernel)
        weight = self._weight(shape, (1 / math.prod(shape[1:])) ** 0.5)
        window = {
            "kernel_shape": list(kernel),
            "strides": [stride, stride],
            "pads": list(padding) * 2,
            "group": groups,
        }
        return self._node("Conv", x, weight, self._weight((out,), 0.1), **window)

    def _input(self, name: str, shape: Shape) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, *shape]))
        return name

    def _weight(self, shape: tuple[int, ...], spread: float) -> str:
        return self._constant(self.random.standard_normal(shape, np.float32) * np.float32(spread))

    def _constant(self, value: np.ndarray | np.float32) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def _node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"n{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name
