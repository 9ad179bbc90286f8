"""Well-known convolutional networks as ONNX models, generated: random weights from a fixed seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Network:
    """An ONNX graph under construction: each method adds one layer and returns its output's name."""

    def __init__(self, shape: Sequence[int], seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)
        self.shape = tuple(shape)
        self.channels = {"x": shape[1]}
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def weight(self, array: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def op(self, kind: str, inputs: Sequence[str], channels: int, **attributes: object) -> str:
        name = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=f"n_{name}", **attributes))
        self.channels[name] = channels
        return name

    def conv(
        self,
        x: str,
        out: int,
        kernel: int | tuple[int, ...] = 3,
        stride: int | tuple[int, ...] = 1,
        groups: int = 1,
        *,
        padded: bool = True,
    ) -> str:
        """A convolution with "same" padding or none, followed by a batch normalisation."""
        sizes, strides = self._of_axes(kernel), self._of_axes(stride)
        inputs = self.channels[x] // groups
        fan_in = inputs * math.prod(sizes)
        weight = self.random.normal(0, (2 / fan_in) ** 0.5, (out, inputs, *sizes))
        y = self.op(
            "Conv",
            [x, self.weight(weight.astype(np.float32))],
            out,
            kernel_shape=sizes,
            strides=strides,
            pads=[size // 2 * padded for size in sizes] * 2,
            group=groups,
        )
        scale, shift = self.random.uniform(0.8, 1.2, out), self.random.normal(0, 0.1, out)
        mean, variance = self.random.normal(0, 0.1, out), self.random.uniform(0.8, 1.2, out)
        statistics = [self.weight(a.astype(np.float32)) for a in (scale, shift, mean, variance)]
        return self.op("BatchNormalization", [y, *statistics], out)

    def upconv(self, x: str, out: int, kernel: int = 2) -> str:
        """A transposed convolution that doubles all extents."""
        sizes, inputs = self._of_axes(kernel), self.channels[x]
        weight = self.random.normal(0, (1 / inputs) ** 0.5, (inputs, out, *sizes))
        bias = self.weight(self.random.normal(0, 0.1, out).astype(np.float32))
        weights = [self.weight(weight.astype(np.float32)), bias]
        window = {
            "kernel_shape": sizes,
            "strides": self._of_axes(2),
            "pads": self._of_axes(kernel // 2 - 1) * 2,
        }
        return self.op("ConvTranspose", [x, *weights], out, **window)

    def _of_axes(self, value: int | tuple[int, ...]) -> tuple[int, ...]:
        """A number for each spatial axis."""
        return (value,) * (len(self.shape) - 2) if isinstance(value, int) else value

    def relu(self, x: str) -> str:
        return self.op("Relu", [x], self.channels[x])

    def relu6(self, x: str) -> str:
        limits = [self.weight(np.float32(value)) for value in (0, 6)]
        return self.op("Clip", [x, *limits], self.channels[x])

    def silu(self, x: str) -> str:
        return self.op("Mul", [x, self.op("Sigmoid", [x], self.channels[x])], self.channels[x])

    def hard_swish(self, x: str) -> str:
        return self.op("HardSwish", [x], self.channels[x])

    def add(self, x: str, y: str) -> str:
        return self.op("Add", [x, y], self.channels[x])

    def max_pool(self, x: str, kernel: int, stride: int, *, padded: bool = True) -> str:
        return self._pool("MaxPool", x, kernel, stride, padded)

    def average_pool(self, x: str, kernel: int, stride: int, *, padded: bool = True) -> str:
        return self._pool("AveragePool", x, kernel, stride, padded)

    def _pool(self, kind: str, x: str, kernel: int, stride: int, padded: bool) -> str:
        window = {"kernel_shape": [kernel, kernel], "strides": [stride, stride]}
        return self.op(kind, [x], self.channels[x], pads=[kernel // 2 * padded] * 4, **window)

    def enlarged(self, x: str) -> str:
        """Each pixel twice along both axes."""
        scales = self.weight(np.array([1, 1, 2, 2], np.float32))
        modes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        return self.op("Resize", [x, "", scales], self.channels[x], mode="nearest", **modes)

    def split(self, x: str) -> tuple[str, str]:
        """Two halves of the channels."""
        first, second = (f"half{len(self.nodes)}_{part}" for part in (0, 1))
        self.nodes.append(helper.make_node("Split", [x], [first, second], f"n_{first}", axis=1))
        self.channels |= dict.fromkeys((first, second), self.channels[x] // 2)
        return first, second

    def concat(self, *xs: str) -> str:
        return self.op("Concat", xs, sum(self.channels[x] for x in xs), axis=1)

    def shuffle(self, x: str, groups: int, *extents: int) -> str:
        """The channels of groups in turns."""
        channels = self.channels[x]
        parts = self.weight(np.array([1, groups, channels // groups, *extents]))
        y = self.op("Transpose", [self.op("Reshape", [x, parts], channels)], channels, perm=[0, 2, 1, 3, 4])
        return self.op("Reshape", [y, self.weight(np.array([1, channels, *extents]))], channels)

    def squeeze_excite(self, x: str, squeezed: int, gate: str = "HardSigmoid") -> str:
        y = self.op("GlobalAveragePool", [x], self.channels[x])
        y = self.relu(self.conv(y, squeezed, 1))
        y = self.op(gate, [self.conv(y, self.channels[x], 1)], self.channels[x])
        return self.op("Mul", [x, y], self.channels[x])

    def classifier(self, x: str, classes: int) -> str:
        x = self.op("GlobalAveragePool", [x], self.channels[x])
        features = self.op("Flatten", [x], self.channels[x])
        weight = self.random.normal(0, 0.05, (self.channels[features], classes)).astype(np.float32)
        bias = self.random.normal(0, 0.1, classes).astype(np.float32)
        return self.op("Gemm", [features, self.weight(weight), self.weight(bias)], classes)

    def save(self, path: Path, output: str, shape: Sequence[int | None]) -> Path:
        graph = helper.make_graph(
            self.nodes,
            "generated",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)],
            self.weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.checker.check_model(model)
        onnx.save(model, path)
        return path


def resnet18(path: Path, size: int = 96, classes: int = 1000) -> Path:
    """ResNet-18 for float32[1, 3, size, size]."""
    net = Network((1, 3, size, size))
    x = net.max_pool(net.relu(net.conv("x", 64, 7, 2)), 3, 2)
    for out, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        for first in (stride, 1):
            shortcut = x if first == 1 and net.channels[x] == out else net.conv(x, out, 1, first)
            y = net.relu(net.conv(x, out, 3, first))
            x = net.relu(net.add(net.conv(y, out), shortcut))
    return net.save(path, net.classifier(x, classes), (1, classes))


def mobilenet_v2(path: Path, size: int = 96, classes: int = 1000) -> Path:
    """MobileNet-v2 for float32[1, 3, size, size]."""
    net = Network((1, 3, size, size))
    x = net.relu6(net.conv("x", 32, 3, 2))
    stages = (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )
    for expand, out, repeat, stride in stages:
        for step in [stride] + [1] * (repeat - 1):
            hidden = net.channels[x] * expand
            y = net.relu6(net.conv(x, hidden, 1)) if expand > 1 else x
            y = net.relu6(net.conv(y, hidden, 3, step, groups=hidden))
            y = net.conv(y, out, 1)
            x = net.add(x, y) if step == 1 and net.channels[x] == out else y
    return net.save(path, net.classifier(net.relu6(net.conv(x, 1280, 1)), classes), (1, classes))


def mixed_blocks(path: Path, size: int = 32) -> Path:
    """The blocks of newer networks in small: squeeze-and-excite, hard-swish, SiLU, group
    convolution, split, concatenation, upsampling, transposed convolution, and channels that no
    texel divides."""
    net = Network((1, 3, size, size))
    x = net.hard_swish(net.conv("x", 16, 3, 2))
    x = net.squeeze_excite(net.silu(net.conv(x, 16, 5, 1, groups=16)), 8)
    x = net.add(x, net.silu(net.conv(x, 16, 3, 1, groups=2)))
    halves = net.split(x)
    y = net.silu(net.conv(halves[0], 8))
    x = net.concat(halves[1], y, net.max_pool(y, 5, 1))
    odd = net.relu(net.conv(x, 10, 3, 2))
    x = net.concat(x, net.enlarged(odd))
    x = net.average_pool(net.conv(x, 12, 1), 3, 2)
    x = net.conv(net.relu(net.upconv(x, 12, 4)), 12, 3, 2, groups=2)
    return net.save(path, net.op("Sigmoid", [x], 12), (1, 12, None, None))
