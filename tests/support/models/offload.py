"""Small ONNX models for tests of offload, with random weights of a fixed seed."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from support.models.onnx_graphs import graph_of, write


class Net:
    """An ONNX graph under construction; each method adds nodes and returns the new tensor's name."""

    def __init__(self, seed: int = 0) -> None:
        self._random = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._weights: dict[str, np.ndarray] = {}

    def weight(self, *shape: int, scale: float = 0.1) -> str:
        name = f"w{len(self._weights)}"
        self._weights[name] = (self._random.standard_normal(shape) * scale).astype(np.float32)
        return name

    def constant(self, value: float | Sequence[int]) -> str:
        name = f"c{len(self._weights)}"
        self._weights[name] = np.array(value, np.float32 if isinstance(value, float) else np.int64)
        return name

    def node(self, op: str, *inputs: str, **attributes: object) -> str:
        name = f"{op.lower()}{len(self._nodes)}"
        self._nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def conv(
        self,
        x: str,
        cin: int,
        cout: int,
        size: Sequence[int] = (3, 3),
        *,
        bias: bool = True,
        **attributes: object,
    ) -> str:
        group = attributes.get("group", 1)
        assert isinstance(group, int)
        scale = (2 / (cin // group * size[0] * size[1])) ** 0.5
        weights = [self.weight(cout, cin // group, *size, scale=scale)]
        weights += [self.weight(cout)] if bias else []
        attributes.setdefault("pads", [size[0] // 2, size[1] // 2] * 2)
        return self.node("Conv", x, *weights, kernel_shape=list(size), **attributes)

    def save(self, path: Path, shape: Sequence[int], outputs: Sequence[str]) -> Path:
        """Write the model, whose input ``x`` has *shape*."""
        return write(graph_of(self._nodes, {"x": shape}, outputs, self._weights), path)


def residual_net(path: Path, *, channels: Sequence[int] = (8, 8, 16), side: int = 32) -> Path:
    """Write the operators of ResNet: convolutions with ReLU, a max pool, sums, a global average, a
    classifier.

    Two of its blocks differ in nothing but their weights.
    """
    net = Net()
    x = net.node("Relu", net.conv("x", 3, channels[0], (7, 7), strides=[2, 2]))
    x = net.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    last = channels[0]
    for width in channels:
        stride = [1, 1] if width == last else [2, 2]
        y = net.node("Relu", net.conv(x, last, width, strides=stride))
        y = net.conv(y, width, width)
        short = x if width == last else net.conv(x, last, width, (1, 1), strides=stride)
        x, last = net.node("Relu", net.node("Add", short, y)), width
    x = net.node("Flatten", net.node("GlobalAveragePool", x))
    x = net.node("Gemm", x, net.weight(100, last), net.weight(100), transB=1)
    return net.save(path, (1, 3, side, side), [net.node("Softmax", x)])


def mobile_net(path: Path, *, size: Sequence[int] = (24, 16)) -> Path:
    """Write operators that TVM hands to CLML and its runtime gets wrong or refuses, among right ones."""
    net = Net(1)
    low, high = net.constant(0.0), net.constant(6.0)
    x = net.node("Clip", net.conv("x", 3, 16, strides=[2, 2]), low, high)
    x = net.node("Clip", net.conv(x, 16, 16, group=16), low, high)
    x = net.conv(x, 16, 24, (1, 1), bias=False)
    x = net.node("Relu", net.conv(x, 24, 24, dilations=[2, 2], pads=[2, 2, 2, 2]))
    x = net.conv(x, 24, 24, (3, 1), strides=[2, 1], pads=[1, 0, 0, 0])
    x = net.node("MaxPool", x, kernel_shape=[2, 2], dilations=[2, 2])
    x = net.node("AveragePool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1)
    x = net.node("AveragePool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    x = net.node("ConvTranspose", x, net.weight(24, 8, 2, 2), kernel_shape=[2, 2], strides=[2, 2])
    x = net.node(
        "Pad",
        x,
        net.constant([0, 0, 1, 1, 0, 0, 1, 1]),
        net.constant(2.0),
    )
    y = net.conv(x, 8, 8, pads=[0, 0, 0, 0])
    y = net.node("Add", net.node("Relu", y), y)  # what is inside one pattern is read by another
    y = net.node("Mul", y, y)
    x = net.node("Sub", net.weight(1, 8, 8, 12), y)
    return net.save(path, (1, 3, *size), [net.node("GlobalAveragePool", x)])


def wide_net(path: Path) -> Path:
    """Build layers with megabytes of weights, for products computed column by column."""
    net = Net(2)
    x = net.node("Relu", net.conv("x", 192, 260))
    x = net.conv(x, 260, 1030, (1, 1))
    return net.save(path, (1, 192, 9, 7), [net.node("GlobalAveragePool", x), x])
