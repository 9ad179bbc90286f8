"""The operators that :mod:`kernels` times: those of well-known networks, at their real shapes.

Each network is written down layer by layer; what it computes twice is one operator. Batch
normalisations are folded, as when a model is compiled, and what follows a convolution
(bias, activation, the sum of a residual block) is part of its operator, as it is of its kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

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
    ``hard_swish``, ``silu``, ``leaky_relu``. A convolution has a bias before that."""

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


class Layers:
    """The operators of a network, counted while its layers are called."""

    def __init__(self) -> None:
        self.calls: dict[Op, int] = {}
        """How often the network computes each."""

    def _add(self, op: Op) -> Shape:
        self.calls[op] = self.calls.get(op, 0) + 1
        return op.output

    def conv(
        self,
        x: Shape,
        out: int,
        kernel: int | tuple[int, int] = 3,
        stride: int = 1,
        *,
        groups: int = 1,
        padded: bool = True,
        then: str = "relu",
    ) -> Shape:
        """A convolution; *padded*: as far as its output is as large as its input, divided by the stride."""
        size = (kernel, kernel) if isinstance(kernel, int) else kernel
        padding = (size[0] // 2, size[1] // 2) if padded else (0, 0)
        return self._add(Op(CONV, x, out, size, stride, padding, groups, then))

    def depthwise(self, x: Shape, kernel: int = 3, stride: int = 1, *, then: str = "relu6") -> Shape:
        """A convolution of each channel by itself."""
        return self.conv(x, x[0], kernel, stride, groups=x[0], then=then)

    def pool(self, x: Shape, kernel: int, stride: int, *, kind: str = MAX_POOL, padded: bool = True) -> Shape:
        """A pool with a square window."""
        pad = kernel // 2 if padded else 0
        return self._add(Op(kind, x, x[0], (kernel, kernel), stride, (pad, pad)))

    def squeeze_excite(self, x: Shape, squeezed: int) -> Shape:
        """Each channel times a number that two small layers make of all channels' means."""
        return self._add(Op(SQUEEZE_EXCITE, x, squeezed))

    def upsample(self, x: Shape, factor: int = 2) -> Shape:
        """Each pixel *factor* × *factor* times."""
        return self._add(Op(UPSAMPLE, x, x[0], stride=factor))

    def classifier(self, x: Shape, classes: int = 1000, hidden: int = 0, then: str = "") -> Shape:
        """The means of the channels, and one or two dense layers."""
        x = self._add(Op(GLOBAL_POOL, x, x[0]))
        if hidden:
            x = self._add(Op(DENSE, x, hidden, then=then))
        return self._add(Op(DENSE, x, classes))


def resnet18(net: Layers) -> None:
    """He and others, 2015; 224 × 224."""
    x = net.pool(net.conv((3, 224, 224), 64, 7, 2), 3, 2)
    for out, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        for first in (stride, 1):
            if first > 1:
                net.conv(x, out, 1, first, then="")
            x = net.conv(net.conv(x, out, 3, first), out, then="add+relu")
    net.classifier(x)


def resnet50(net: Layers) -> None:
    """The same with bottlenecks, whose stride is in the 3 × 3 convolution."""
    x = net.pool(net.conv((3, 224, 224), 64, 7, 2), 3, 2)
    for out, repeat, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for step in range(repeat):
            first = stride if step == 0 else 1
            if step == 0:
                net.conv(x, 4 * out, 1, first, then="")
            x = net.conv(net.conv(net.conv(x, out, 1), out, 3, first), 4 * out, 1, then="add+relu")
    net.classifier(x)


def mobilenet_v1(net: Layers) -> None:
    """Howard and others, 2017; 224 × 224."""
    x = net.conv((3, 224, 224), 32, 3, 2, then="relu6")
    for out, stride in (
        (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1),
    ):  # fmt: skip
        x = net.conv(net.depthwise(x, 3, stride), out, 1, then="relu6")
    net.classifier(x)


def mobilenet_v2(net: Layers) -> None:
    """Sandler and others, 2018; 224 × 224."""
    x = net.conv((3, 224, 224), 32, 3, 2, then="relu6")
    for expand, out, repeat, stride in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):  # fmt: skip
        for step in range(repeat):
            same = step > 0
            y = net.conv(x, expand * x[0], 1, then="relu6") if expand > 1 else x
            y = net.depthwise(y, 3, 1 if same else stride)
            x = net.conv(y, out, 1, then="add" if same else "")
    net.classifier(net.conv(x, 1280, 1, then="relu6"))


def mobilenet_v3(net: Layers) -> None:
    """Howard and others, 2019, the large one; 224 × 224."""
    x = net.conv((3, 224, 224), 16, 3, 2, then="hard_swish")
    for kernel, wide, out, squeezed, then, stride in (
        (3, 16, 16, 0, "relu", 1), (3, 64, 24, 0, "relu", 2), (3, 72, 24, 0, "relu", 1),
        (5, 72, 40, 24, "relu", 2), (5, 120, 40, 32, "relu", 1), (5, 120, 40, 32, "relu", 1),
        (3, 240, 80, 0, "hard_swish", 2), (3, 200, 80, 0, "hard_swish", 1),
        (3, 184, 80, 0, "hard_swish", 1), (3, 184, 80, 0, "hard_swish", 1),
        (3, 480, 112, 120, "hard_swish", 1), (3, 672, 112, 168, "hard_swish", 1),
        (5, 672, 160, 168, "hard_swish", 2), (5, 960, 160, 240, "hard_swish", 1),
        (5, 960, 160, 240, "hard_swish", 1),
    ):  # fmt: skip
        same = stride == 1 and x[0] == out
        y = net.conv(x, wide, 1, then=then) if wide != x[0] else x
        y = net.depthwise(y, kernel, stride, then=then)
        y = net.squeeze_excite(y, squeezed) if squeezed else y
        x = net.conv(y, out, 1, then="add" if same else "")
    net.classifier(net.conv(x, 960, 1, then="hard_swish"), hidden=1280, then="hard_swish")


def squeezenet(net: Layers) -> None:
    """SqueezeNet 1.1: Iandola and others, 2016; 224 × 224."""
    x = net.pool(net.conv((3, 224, 224), 64, 3, 2, padded=False), 3, 2, padded=False)
    for squeezed, expanded, pooled in (
        (16, 64, False), (16, 64, True), (32, 128, False), (32, 128, True),
        (48, 192, False), (48, 192, False), (64, 256, False), (64, 256, False),
    ):  # fmt: skip
        y = net.conv(x, squeezed, 1)
        net.conv(y, expanded, 1)
        _, height, width = net.conv(y, expanded, 3)
        x = (2 * expanded, height, width)
        x = net.pool(x, 3, 2, padded=False) if pooled else x
    net.conv(x, 1000, 1)


def inception_v3(net: Layers) -> None:
    """Szegedy and others, 2015, without its second head; 299 × 299."""
    x = net.conv(net.conv((3, 299, 299), 32, 3, 2, padded=False), 32, padded=False)
    x = net.pool(net.conv(x, 64), 3, 2, padded=False)
    x = net.pool(net.conv(net.conv(x, 80, 1), 192, padded=False), 3, 2, padded=False)
    average = {"kernel": 3, "stride": 1, "kind": AVERAGE_POOL}
    for pooled in (32, 64, 64):
        net.conv(x, 64, 1)
        net.conv(net.conv(x, 48, 1), 64, 5)
        net.conv(net.conv(net.conv(x, 64, 1), 96), 96)
        net.conv(net.pool(x, **average), pooled, 1)  # type: ignore[arg-type]
        x = (224 + pooled, *x[1:])
    net.conv(x, 384, 3, 2, padded=False)
    net.conv(net.conv(net.conv(x, 64, 1), 96), 96, 3, 2, padded=False)
    x = (768, *net.pool(x, 3, 2, padded=False)[1:])
    for narrow in (128, 160, 160, 192):
        net.conv(x, 192, 1)
        net.conv(net.conv(net.conv(x, narrow, 1), narrow, (1, 7)), 192, (7, 1))
        y = net.conv(net.conv(net.conv(x, narrow, 1), narrow, (7, 1)), narrow, (1, 7))
        net.conv(net.conv(y, narrow, (7, 1)), 192, (1, 7))
        net.conv(net.pool(x, **average), 192, 1)  # type: ignore[arg-type]
    net.conv(net.conv(x, 192, 1), 320, 3, 2, padded=False)
    y = net.conv(net.conv(net.conv(x, 192, 1), 192, (1, 7)), 192, (7, 1))
    net.conv(y, 192, 3, 2, padded=False)
    x = (1280, *net.pool(x, 3, 2, padded=False)[1:])
    for _ in range(2):
        net.conv(x, 320, 1)
        for y in (net.conv(x, 384, 1), net.conv(net.conv(x, 448, 1), 384)):
            net.conv(y, 384, (1, 3))
            net.conv(y, 384, (3, 1))
        net.conv(net.pool(x, **average), 192, 1)  # type: ignore[arg-type]
        x = (2048, *x[1:])
    net.classifier(x)


def yolo_head(net: Layers) -> None:
    """Neck and heads in the manner of YOLOv8n for 640 × 640, and of YOLOv3-tiny for 416 × 416."""
    maps: tuple[Shape, ...] = ((64, 80, 80), (128, 40, 40), (256, 20, 20))
    x = net.conv(maps[2], 128, 1, then="silu")
    net.pool(x, 5, 1)  # three in a row, whose results are concatenated
    net.conv((512, 20, 20), 256, 1, then="silu")
    for below, above in ((maps[2], maps[1]), (maps[1], maps[0])):
        wide = (below[0] + above[0], *net.upsample(below)[1:])
        y = net.conv(wide, above[0], 1, then="silu")
        half = (above[0] // 2, *y[1:])
        net.conv(net.conv(half, half[0], then="silu"), half[0], then="silu")
        net.conv((3 * half[0], *y[1:]), above[0], 1, then="silu")
    for finer in maps[:2]:
        net.conv(finer, finer[0], 3, 2, then="silu")
    for level in maps:
        for hidden, out in ((64, 64), (80, 80)):
            y = net.conv(net.conv(level, hidden, then="silu"), hidden, then="silu")
            net.conv(y, out, 1, then="")
    x = net.conv((1024, 13, 13), 256, 1, then="leaky_relu")
    net.conv(net.conv(x, 512, then="leaky_relu"), 255, 1, then="")
    _, height, width = net.upsample(net.conv(x, 128, 1, then="leaky_relu"))
    net.conv(net.conv((384, height, width), 256, then="leaky_relu"), 255, 1, then="")


NETWORKS: Mapping[str, Callable[[Layers], None]] = {
    "resnet18": resnet18,
    "resnet50": resnet50,
    "mobilenet-v1": mobilenet_v1,
    "mobilenet-v2": mobilenet_v2,
    "mobilenet-v3": mobilenet_v3,
    "squeezenet": squeezenet,
    "inception-v3": inception_v3,
    "yolo-head": yolo_head,
}


def operators(networks: Iterator[str] | tuple[str, ...] | list[str]) -> dict[Op, dict[str, int]]:
    """Each operator of the *networks* once, and how often each of them computes it."""
    found: dict[Op, dict[str, int]] = {}
    for name in networks:
        layers = Layers()
        NETWORKS[name](layers)
        for op, calls in layers.calls.items():
            found.setdefault(op, {})[name] = calls
    return found
