"""The operators that :mod:`kernels` times: those of well-known networks, at their real shapes.

They are read from adt's own graphs of them; what one computes twice is one operator. Batch
normalisations are folded, as when a model is compiled, and what follows a convolution
(bias, activation, the sum of a residual block) is part of its operator, as it is of its kernel.
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from adt.compiler.networks.known import built

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from support.models.vision import yolov8n

CONV, DENSE, MAX_POOL, AVERAGE_POOL = "conv", "dense", "max_pool", "average_pool"
GLOBAL_POOL, SQUEEZE_EXCITE, UPSAMPLE = "global_pool", "squeeze_excite", "upsample"

Shape = tuple[int, int, int]
"""Channels, height and width; there is one picture."""


@dataclass(frozen=True)
class Op:
    """One operator with what follows it in the same kernel."""

    kind: str
    """:data:`CONV` or one of its neighbours."""
    shape: Shape
    """Of its input."""
    out: int
    """Channels of its output; of :data:`SQUEEZE_EXCITE` those in between."""
    kernel: tuple[int, int] = (1, 1)
    stride: int = 1
    """Of both axes; of :data:`UPSAMPLE` the factor."""
    padding: tuple[int, int] = (0, 0)
    """On either side, rows and columns."""
    groups: int = 1
    then: str = ""
    """What follows, in its order, with ``+`` between: ``add`` (of a second input), ``relu``, ``relu6``,
    ``hard_swish``, ``silu``. A convolution has a bias before that."""

    @property
    def output(self) -> Shape:
        """The shape of its output."""
        if self.kind in (DENSE, GLOBAL_POOL):
            return self.out, 1, 1
        if self.kind == SQUEEZE_EXCITE:
            return self.shape
        if self.kind == UPSAMPLE:
            return self.out, self.shape[1] * self.stride, self.shape[2] * self.stride
        height, width = (
            (extent + 2 * pad - size) // self.stride + 1
            for extent, pad, size in zip(self.shape[1:], self.padding, self.kernel, strict=True)
        )
        return self.out, height, width

    @property
    def macs(self) -> int:
        """Multiplications with addition; 0 where it is other arithmetic."""
        if self.kind == SQUEEZE_EXCITE:
            return 2 * self.shape[0] * self.out
        if self.kind not in (CONV, DENSE):
            return 0
        return math.prod(self.output) * self.shape[0] // self.groups * math.prod(self.kernel)

    @property
    def depthwise(self) -> bool:
        """A convolution of each channel by itself."""
        return self.kind == CONV and self.groups == self.shape[0] == self.out > 1

    @property
    def name(self) -> str:
        """For people and ``--only``: ``conv 3x3/2 64→128 56x56 relu``."""
        kind = "depthwise" if self.depthwise else self.kind
        words = [kind]
        if self.kind in (CONV, MAX_POOL, AVERAGE_POOL):
            words.append("x".join(map(str, self.kernel)) + (f"/{self.stride}" if self.stride > 1 else ""))
        if self.groups > 1 and not self.depthwise:
            words.append(f"groups {self.groups}")
        channels, height, width = self.shape
        words.append(f"{channels}→{self.out}" if self.out != channels else str(channels))
        if height * width > 1:
            words.append(f"{height}x{width}")
        if self.kind in (CONV, MAX_POOL, AVERAGE_POOL) and self.padding != tuple(k // 2 for k in self.kernel):
            rows, columns = self.padding
            words.append(f"padded {rows}x{columns}" if rows or columns else "unpadded")
        return " ".join([*words, *([self.then] if self.then else [])])


NETWORKS = (
    "resnet-18", "resnet-50", "mobilenet", "mobilenet-v2", "mobilenet-v3-large", "squeezenet-v1.1",
    "inception-v3", "yolov8n",
)  # fmt: skip
"""All are adt's but the last."""

ACTIVATIONS = {"Relu": "relu", "Clip": "relu6", "HardSwish": "hard_swish"}
POOLS = {"MaxPool": MAX_POOL, "AveragePool": AVERAGE_POOL}


def operators(networks: Iterable[str]) -> dict[Op, dict[str, int]]:
    """Each operator of the *networks* once, and how often each of them computes it."""
    found: dict[Op, dict[str, int]] = {}
    for name in networks:
        for op, calls in Counter(_Reader(_graph(name)).ops()).items():
            found.setdefault(op, {})[name] = calls
    return found


def _graph(name: str) -> onnx.GraphProto:
    if name != "yolov8n":
        return built(name).with_shapes().graph
    with tempfile.TemporaryDirectory(prefix="adt-bench-") as scratch:
        model = onnx.load(yolov8n(Path(scratch) / "model.onnx"))
    return onnx.shape_inference.infer_shapes(model, strict_mode=True).graph


class _Reader:
    """The operators in a graph that has all shapes."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self.nodes = graph.node
        self.shapes = {
            value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
            for value in (*graph.input, *graph.value_info, *graph.output)
        }
        self.made = {name: at for at, node in enumerate(graph.node) for name in node.output}
        self.users: dict[str, list[onnx.NodeProto]] = {}
        for node in graph.node:
            for name in node.input:
                self.users.setdefault(name, []).append(node)

    def ops(self) -> Sequence[Op]:
        """In the order of the graph."""
        found, gates = [], set()
        for node in self.nodes:
            x, y = node.input[0], node.output[0]
            shape, out = self._shape(x), self._shape(y)[0]
            window = {
                one.name: onnx.helper.get_attribute_value(one)
                for one in node.attribute
                if one.name in ("kernel_shape", "strides", "pads", "group")
            }
            if node.op_type == "GlobalAveragePool":
                after = self.users[y][0]
                if after.op_type == "Conv":  # squeeze-and-excite: two convolutions and what is between
                    found.append(Op(SQUEEZE_EXCITE, shape, self._shape(after.output[0])[0]))
                    gates |= {
                        after.output[0],
                        self.users[self.users[after.output[0]][0].output[0]][0].output[0],
                    }
                else:
                    found.append(Op(GLOBAL_POOL, shape, out))
            elif node.op_type == "Gemm":
                found.append(Op(DENSE, shape, out, then=self._then(y)))
            elif node.op_type == "Resize":
                found.append(Op(UPSAMPLE, shape, out, stride=self._shape(y)[1] // shape[1]))
            elif window and y not in gates:
                kind = POOLS.get(node.op_type, CONV)
                kernel, pads = window["kernel_shape"], window["pads"]
                then = self._then(y) if kind == CONV else ""
                spatial = (kernel[0], kernel[1]), window["strides"][0], (pads[0], pads[1])
                found.append(Op(kind, shape, out, *spatial, window.get("group", 1), then))
        return found

    def _shape(self, name: str) -> Shape:
        """Without the batch; of a vector with height and width of 1."""
        channels, height, width = (*self.shapes[name][1:], 1, 1)[:3]
        return channels, height, width

    def _then(self, x: str) -> str:
        """What follows *x* in its kernel; a sum is in the kernel of what it adds last."""
        steps = []
        while users := self.users.get(x):
            kinds = [user.op_type for user in users]
            after = users[-1]
            if kinds == ["Sigmoid", "Mul"]:
                steps.append("silu")
            elif len(users) > 1:
                break
            elif kinds == ["Add"] and self.made[x] == max(self.made.get(one, -1) for one in after.input):
                steps.append("add")
            elif after.op_type in ACTIVATIONS:
                steps.append(ACTIVATIONS[after.op_type])
            elif after.op_type != "BatchNormalization":
                break
            x = after.output[0]
        return "+".join(steps)
