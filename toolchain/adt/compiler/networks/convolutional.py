"""Networks for pictures: each function adds its layers to a :class:`Network` and returns the output's name.

Batch normalisations are nodes of their own, as frameworks export them for training; the importer folds them.
"""

from __future__ import annotations

from collections.abc import Sequence

from adt.compiler.networks.builder import Network

RESIDUAL = 0.3  # factor of the sum, so that the numbers of half precision hold it after fifty blocks


def resnet(net: Network, blocks: Sequence[int], *, bottleneck: bool = False) -> str:
    """He and others, 2015; of a bottleneck the 3 × 3 convolution has the stride."""
    x = net.max_pool(net.relu(net.conv("x", 64, 7, 2)), 3, 2)
    for stage, repeat in enumerate(blocks):
        width = 64 << stage
        out = 4 * width if bottleneck else width
        for step in range(repeat):
            stride = 2 if stage and not step else 1
            shortcut = x if stride == 1 and net.channels[x] == out else net.conv(x, out, 1, stride)
            if bottleneck:
                y = net.relu(net.conv(net.relu(net.conv(x, width, 1)), width, 3, stride))
                y = net.conv(y, out, 1, gain=RESIDUAL)
            else:
                y = net.conv(net.relu(net.conv(x, width, 3, stride)), out, gain=RESIDUAL)
            x = net.relu(net.add(y, shortcut))
    return net.classifier(x)


def vgg(net: Network, blocks: Sequence[int]) -> str:
    """Simonyan and Zisserman, 2014, without batch normalisation; pictures of 224 × 224 only."""
    x = "x"
    for repeat, out in zip(blocks, (64, 128, 256, 512, 512), strict=True):
        for _ in range(repeat):
            x = net.relu(net.conv(x, out, norm=False))
        x = net.max_pool(x, 2, 2, padded=False)
    x = net.op("Flatten", [x], 512 * 7 * 7)
    for _ in range(2):
        x = net.relu(net.dense(x, 4096))
    return net.dense(x, 1000)


def mobilenet_v1(net: Network) -> str:
    """Howard and others, 2017."""
    x = net.relu(net.conv("x", 32, 3, 2))
    for out, stride in (
        (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1),
    ):  # fmt: skip
        x = net.relu(net.conv(x, net.channels[x], 3, stride, groups=net.channels[x]))
        x = net.relu(net.conv(x, out, 1))
    return net.classifier(x)


def mobilenet_v2(net: Network) -> str:
    """Sandler and others, 2018."""
    x = net.relu6(net.conv("x", 32, 3, 2))
    for expand, out, repeat, first in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):  # fmt: skip
        for stride in (first, *(1,) * (repeat - 1)):
            hidden = net.channels[x] * expand
            y = net.relu6(net.conv(x, hidden, 1)) if expand > 1 else x
            y = net.relu6(net.conv(y, hidden, 3, stride, groups=hidden))
            y = net.conv(y, out, 1)
            x = net.add(x, y) if stride == 1 and net.channels[x] == out else y
    return net.classifier(net.relu6(net.conv(x, 1280, 1)))


def mobilenet_v3(net: Network) -> str:
    """Howard and others, 2019: the large one."""
    x = net.hard_swish(net.conv("x", 16, 3, 2))
    # kernel, hidden channels, output channels, squeeze-and-excite, hard-swish, stride
    for kernel, hidden, out, excite, swish, stride in (
        (3, 16, 16, 0, 0, 1), (3, 64, 24, 0, 0, 2), (3, 72, 24, 0, 0, 1), (5, 72, 40, 24, 0, 2),
        (5, 120, 40, 32, 0, 1), (5, 120, 40, 32, 0, 1), (3, 240, 80, 0, 1, 2), (3, 200, 80, 0, 1, 1),
        (3, 184, 80, 0, 1, 1), (3, 184, 80, 0, 1, 1), (3, 480, 112, 120, 1, 1), (3, 672, 112, 168, 1, 1),
        (5, 672, 160, 168, 1, 2), (5, 960, 160, 240, 1, 1), (5, 960, 160, 240, 1, 1),
    ):  # fmt: skip
        activation = net.hard_swish if swish else net.relu
        y = activation(net.conv(x, hidden, 1)) if hidden != net.channels[x] else x
        y = activation(net.conv(y, hidden, kernel, stride, groups=hidden))
        y = net.conv(net.squeeze_excite(y, excite) if excite else y, out, 1)
        x = net.add(x, y) if stride == 1 and net.channels[x] == out else y
    means = net.means(net.hard_swish(net.conv(x, 960, 1)))
    return net.dense(net.hard_swish(net.dense(means, 1280)), 1000)


def efficientnet(net: Network) -> str:
    """Tan and Le, 2019: B0."""
    x = net.silu(net.conv("x", 32, 3, 2))
    for expand, out, repeat, first, kernel in (
        (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3),
        (6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3),
    ):  # fmt: skip
        for stride in (first, *(1,) * (repeat - 1)):
            inputs = net.channels[x]
            y = net.silu(net.conv(x, inputs * expand, 1)) if expand > 1 else x
            y = net.silu(net.conv(y, inputs * expand, kernel, stride, groups=inputs * expand))
            y = net.conv(net.squeeze_excite(y, inputs // 4, "Silu", "Sigmoid"), out, 1)
            x = net.add(x, y) if stride == 1 and inputs == out else y
    return net.classifier(net.silu(net.conv(x, 1280, 1)))


def squeezenet(net: Network) -> str:
    """Iandola and others, 2016: SqueezeNet 1.1."""
    x = net.relu(net.conv("x", 64, 3, 2, padded=False, norm=False))
    for squeezed, expanded, pooled in (
        (16, 64, 1), (16, 64, 0), (32, 128, 1), (32, 128, 0),
        (48, 192, 1), (48, 192, 0), (64, 256, 0), (64, 256, 0),
    ):  # fmt: skip
        x = net.max_pool(x, 3, 2, padded=False) if pooled else x
        y = net.relu(net.conv(x, squeezed, 1, norm=False))
        x = net.concat(*(net.relu(net.conv(y, expanded, kernel, norm=False)) for kernel in (1, 3)))
    return net.means(net.relu(net.conv(x, 1000, 1, norm=False)))


def inception_v3(net: Network) -> str:
    """Szegedy and others, 2015, without its second head."""

    def layer(
        x: str, out: int, kernel: int | tuple[int, int] = 1, stride: int = 1, padded: bool = True
    ) -> str:
        return net.relu(net.conv(x, out, kernel, stride, padded=padded))

    def chain(x: str, *layers: tuple[int, int | tuple[int, int]]) -> str:
        for out, kernel in layers:
            x = layer(x, out, kernel)
        return x

    x = layer(layer(layer("x", 32, 3, 2, False), 32, 3, 1, False), 64, 3)
    x = layer(layer(net.max_pool(x, 3, 2, padded=False), 80), 192, 3, 1, False)
    x = net.max_pool(x, 3, 2, padded=False)
    for pooled in (32, 64, 64):
        branches = (chain(x, (48, 1), (64, 5)), chain(x, (64, 1), (96, 3), (96, 3)))
        x = net.concat(layer(x, 64), *branches, layer(net.average_pool(x, 3, 1), pooled))
    branches = (layer(x, 384, 3, 2, False), layer(chain(x, (64, 1), (96, 3)), 96, 3, 2, False))
    x = net.concat(*branches, net.max_pool(x, 3, 2, padded=False))
    for inner in (128, 160, 160, 192):
        seven = chain(x, (inner, 1), (inner, (1, 7)), (192, (7, 1)))
        twice = (inner, (7, 1)), (inner, (1, 7)), (inner, (7, 1)), (192, (1, 7))
        x = net.concat(
            layer(x, 192), seven, chain(x, (inner, 1), *twice), layer(net.average_pool(x, 3, 1), 192)
        )
    first, second = layer(x, 192), chain(x, (192, 1), (192, (1, 7)), (192, (7, 1)))
    branches = (layer(first, 320, 3, 2, False), layer(second, 192, 3, 2, False))
    x = net.concat(*branches, net.max_pool(x, 3, 2, padded=False))
    for _ in range(2):
        first, second = layer(x, 384), chain(x, (448, 1), (384, 3))
        wide = [layer(part, 384, kernel) for part in (first, second) for kernel in ((1, 3), (3, 1))]
        x = net.concat(layer(x, 320), *wide, layer(net.average_pool(x, 3, 1), 192))
    return net.classifier(x)


def unet(net: Network, base: int = 64) -> str:
    """Ronneberger and others, 2015, padded, with batch normalisations and one class."""

    def twice(x: str, out: int) -> str:
        return net.relu(net.conv(net.relu(net.conv(x, out)), out))

    x, levels = "x", []
    for level in range(4):
        levels.append(twice(x, base << level))
        x = net.max_pool(levels[-1], 2, 2, padded=False)
    x = twice(x, base << 4)
    for level in reversed(range(4)):
        x = twice(net.concat(levels[level], net.upconv(x, base << level)), base << level)
    return net.op("Sigmoid", [net.conv(x, 1, 1, norm=False)], 1)
