"""An ONNX graph under construction, whose weights are drawn when it is written.

They are numbers of a seed, the same bytes with every numpy: the raw bits of PCG64, which numpy promises to
keep, and arithmetic that IEEE 754 fixes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from adt.compiler.importers.onnx.file import USUAL


@dataclass(frozen=True)
class Drawn:
    """Weight of numbers evenly distributed about *mean*."""

    name: str
    shape: tuple[int, ...]
    deviation: float
    mean: float
    trained: bool
    """Counts as a parameter; what a batch normalisation has seen does not."""

    def array(self, bits: np.random.PCG64) -> NDArray[np.float32]:
        """Draw its values from the next *bits*."""
        size = math.prod(self.shape)
        words = np.asarray(bits.random_raw(-(-size // 2)), "<u8").view("<u4")[:size]
        values = (words >> 8).astype(np.float32)
        values *= np.float32(2**-23)
        values -= np.float32(1)  # exact, in [-1, 1)
        values *= np.float32(math.sqrt(3) * self.deviation)
        values += np.float32(self.mean)
        return values.reshape(self.shape)


class Network:
    """Each method adds one layer to what computes on ``x`` and returns its output's name.

    Args:
        shape: of ``x``, batch and channels first; a name stands for an open extent.
        usual: what those are where nobody says.
    """

    def __init__(self, shape: Sequence[int | str], usual: Mapping[str, int] | None = None) -> None:
        self.shape = tuple(shape)
        self.usual = usual or {}
        self.channels = {"x": int(shape[1])}
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto | Drawn] = []

    def weight(self, array: NDArray[Any] | np.generic) -> str:
        """Add a constant."""
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.array(array, order="C"), name))
        return name

    def drawn(
        self, shape: Sequence[int], deviation: float, mean: float = 0.0, *, trained: bool = True
    ) -> str:
        """Add a weight, float32."""
        name = f"w{len(self.weights)}"
        self.weights.append(Drawn(name, tuple(shape), deviation, mean, trained))
        return name

    def op(self, kind: str, inputs: Sequence[str], channels: int, **attributes: Any) -> str:
        """Add any operator of ONNX."""
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
        norm: bool = True,
        gain: float = 1.0,
    ) -> str:
        """Add a convolution with "same" padding or none; a batch normalisation follows, or it has a bias."""
        sizes, strides = self._of_axes(kernel), self._of_axes(stride)
        inputs = self.channels[x] // groups
        weights = [self.drawn((out, inputs, *sizes), gain * math.sqrt(2 / (inputs * math.prod(sizes))))]
        if not norm:
            weights.append(self.drawn((out,), 0.1))
        window = {
            "kernel_shape": sizes,
            "strides": strides,
            "pads": [size // 2 * padded for size in sizes] * 2,
        }
        y = self.op("Conv", [x, *weights], out, **window, group=groups)
        if not norm:
            return y
        learnt = self.drawn((out,), 0.1, 1.0), self.drawn((out,), 0.1)
        seen = self.drawn((out,), 0.1, trained=False), self.drawn((out,), 0.1, 1.0, trained=False)
        return self.op("BatchNormalization", [y, *learnt, *seen], out)

    def upconv(self, x: str, out: int, kernel: int = 2) -> str:
        """Add a transposed convolution that doubles all extents."""
        sizes, inputs = self._of_axes(kernel), self.channels[x]
        weights = [self.drawn((inputs, out, *sizes), math.sqrt(1 / inputs)), self.drawn((out,), 0.1)]
        strides, pads = self._of_axes(2), self._of_axes(kernel // 2 - 1) * 2
        return self.op("ConvTranspose", [x, *weights], out, kernel_shape=sizes, strides=strides, pads=pads)

    def _of_axes(self, value: int | tuple[int, ...]) -> tuple[int, ...]:
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

    def concat(self, *xs: str) -> str:
        return self.op("Concat", xs, sum(self.channels[x] for x in xs), axis=1)

    def squeeze_excite(
        self, x: str, squeezed: int, activation: str = "Relu", gate: str = "HardSigmoid"
    ) -> str:
        """Scale each channel by a number that two small layers make of all channels' means."""
        y = self.conv(self.op("GlobalAveragePool", [x], self.channels[x]), squeezed, 1, norm=False)
        y = self.silu(y) if activation == "Silu" else self.op(activation, [y], squeezed)
        attributes = {"alpha": 1 / 6} if gate == "HardSigmoid" else {}
        y = self.op(gate, [self.conv(y, self.channels[x], 1, norm=False)], self.channels[x], **attributes)
        return self.op("Mul", [x, y], self.channels[x])

    def means(self, x: str) -> str:
        """Add the mean of each channel."""
        channels = self.channels[x]
        return self.op("Flatten", [self.op("GlobalAveragePool", [x], channels)], channels)

    def dense(self, x: str, out: int) -> str:
        """Add a matrix product with bias."""
        inputs = self.channels[x]
        weights = self.drawn((inputs, out), math.sqrt(1 / inputs)), self.drawn((out,), 0.1)
        return self.op("Gemm", [x, *weights], out)

    def classifier(self, x: str, classes: int = 1000) -> str:
        """Add the means of the channels, and a dense layer."""
        return self.dense(self.means(x), classes)

    @property
    def parameters(self) -> int:
        """Number of parameters that a training would find."""
        return sum(math.prod(w.shape) for w in self.weights if isinstance(w, Drawn) and w.trained)

    def macs(self) -> int:
        """Count the multiply-adds of convolutions and products; open extents are the usual ones."""
        graph = self.with_shapes().graph
        values = (*graph.input, *graph.value_info, *graph.output)
        shapes = {v.name: [dim.dim_value for dim in v.type.tensor_type.shape.dim] for v in values}
        total = 0
        for node in self.nodes:
            if node.op_type in ("Conv", "ConvTranspose", "Gemm"):
                x, weight, y = shapes[node.input[0]], shapes[node.input[1]], shapes[node.output[0]]
                spread = node.op_type == "ConvTranspose"  # each input goes to many outputs
                depth = weight[0] if node.op_type == "Gemm" else math.prod(weight[1:])
                total += math.prod(x if spread else y) * depth
        return total

    def with_shapes(self) -> onnx.ModelProto:
        """Return the graph with every shape, where open extents are the usual ones; weights are inputs."""
        sizes = [1 if dim == "batch" else self.usual.get(str(dim), dim) for dim in self.shape]
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes)]
        for weight in self.weights:
            if isinstance(weight, Drawn):
                inputs.append(helper.make_tensor_value_info(weight.name, TensorProto.FLOAT, weight.shape))
        constants = [weight for weight in self.weights if not isinstance(weight, Drawn)]
        outputs = [helper.make_tensor_value_info(self.nodes[-1].output[0], TensorProto.FLOAT, None)]
        graph = helper.make_graph(self.nodes, "untrained", inputs, outputs, constants)
        return onnx.shape_inference.infer_shapes(_model(graph), strict_mode=True)

    def save(self, path: Path, output: str, shape: Sequence[int | str | None], seed: int = 0) -> Path:
        """Write the model; its weights are numbers of *seed*."""
        bits = np.random.PCG64(seed)
        weights: list[onnx.TensorProto] = []
        for weight in self.weights:
            if isinstance(weight, Drawn):
                weight = numpy_helper.from_array(weight.array(bits), weight.name)
            weights.append(weight)
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)]
        outputs = [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)]
        model = _model(helper.make_graph(self.nodes, "untrained", inputs, outputs, weights))
        helper.set_model_props(model, {USUAL + symbol: str(extent) for symbol, extent in self.usual.items()})
        onnx.save(model, path)
        return path


def _model(graph: onnx.GraphProto) -> onnx.ModelProto:
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
