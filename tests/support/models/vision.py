"""Convolutional networks in their published shapes, with random weights: those that CPUs are measured with."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from support.models.networks import Network


def resnet50(path: Path, size: int = 224) -> Path:
    net = Network((1, 3, size, size))
    x = net.max_pool(net.relu(net.conv("x", 64, 7, 2)), 3, 2)
    for out, repeat, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for step in [stride] + [1] * (repeat - 1):
            shortcut = x if net.channels[x] == 4 * out else net.conv(x, 4 * out, 1, step)
            y = net.relu(net.conv(net.relu(net.conv(x, out, 1)), out, 3, step))
            x = net.relu(net.add(net.conv(y, 4 * out, 1), shortcut))
    return net.save(path, net.classifier(x, 1000), (1, 1000))


def mobilenet_v1(path: Path, size: int = 224) -> Path:
    net = Network((1, 3, size, size))
    x = net.relu(net.conv("x", 32, 3, 2))
    stages = (
        (64, 1),
        (128, 2),
        (128, 1),
        (256, 2),
        (256, 1),
        (512, 2),
        *((512, 1),) * 5,
        (1024, 2),
        (1024, 1),
    )
    for out, stride in stages:
        x = net.relu(net.conv(x, net.channels[x], 3, stride, groups=net.channels[x]))
        x = net.relu(net.conv(x, out, 1))
    return net.save(path, net.classifier(x, 1000), (1, 1000))


def mobilenet_v3(path: Path, size: int = 224) -> Path:
    """MobileNet-v3 large."""
    net = Network((1, 3, size, size))
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
    x = net.op("GlobalAveragePool", [net.hard_swish(net.conv(x, 960, 1))], 960)
    x = net.hard_swish(net.conv(x, 1280, 1))
    return net.save(path, net.classifier(x, 1000), (1, 1000))


def squeezenet(path: Path, size: int = 224) -> Path:
    """SqueezeNet 1.1."""
    net = Network((1, 3, size, size))
    x = net.relu(net.conv("x", 64, 3, 2, padded=False))
    for squeezed, expanded, pooled in (
        (16, 64, 1), (16, 64, 0), (32, 128, 1), (32, 128, 0),
        (48, 192, 1), (48, 192, 0), (64, 256, 0), (64, 256, 0),
    ):  # fmt: skip
        x = net.max_pool(x, 3, 2, padded=False) if pooled else x
        y = net.relu(net.conv(x, squeezed, 1))
        x = net.concat(net.relu(net.conv(y, expanded, 1)), net.relu(net.conv(y, expanded, 3)))
    x = net.op("GlobalAveragePool", [net.relu(net.conv(x, 1000, 1))], 1000)
    return net.save(path, net.op("Flatten", [x], 1000), (1, 1000))


def inception_v3(path: Path, size: int = 299) -> Path:
    net = Network((1, 3, size, size))

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
    return net.save(path, net.classifier(x, 1000), (1, 1000))


def efficientnet(path: Path, size: int = 224) -> Path:
    """EfficientNet-B0."""
    net = Network((1, 3, size, size))
    x = net.silu(net.conv("x", 32, 3, 2))
    for expand, out, repeat, stride, kernel in (
        (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3),
        (6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3),
    ):  # fmt: skip
        for step in [stride] + [1] * (repeat - 1):
            inputs = net.channels[x]
            y = net.silu(net.conv(x, inputs * expand, 1)) if expand > 1 else x
            y = net.silu(net.conv(y, inputs * expand, kernel, step, groups=inputs * expand))
            y = net.conv(net.squeeze_excite(y, inputs // 4, "Sigmoid"), out, 1)
            x = net.add(x, y) if step == 1 and inputs == out else y
    return net.save(path, net.classifier(net.silu(net.conv(x, 1280, 1)), 1000), (1, 1000))


def yolov8n(path: Path, size: int = 640) -> Path:
    """YOLOv8n up to the maps of its three heads, each flattened and joined."""
    net = Network((1, 3, size, size))

    def layer(x: str, out: int, kernel: int = 3, stride: int = 1) -> str:
        return net.silu(net.conv(x, out, kernel, stride))

    def c2f(x: str, out: int, repeat: int, *, residual: bool = True) -> str:
        parts = list(net.split(layer(x, out, 1)))
        for _ in range(repeat):
            y = layer(layer(parts[-1], out // 2), out // 2)
            parts.append(net.add(parts[-1], y) if residual else y)
        return layer(net.concat(*parts), out, 1)

    x = c2f(layer(layer("x", 16, 3, 2), 32, 3, 2), 32, 1)
    third = c2f(layer(x, 64, 3, 2), 64, 2)
    fourth = c2f(layer(third, 128, 3, 2), 128, 2)
    x = layer(c2f(layer(fourth, 256, 3, 2), 256, 1), 128, 1)
    pools = [x]
    for _ in range(3):
        pools.append(net.max_pool(pools[-1], 5, 1))
    fifth = layer(net.concat(*pools), 256, 1)
    fourth = c2f(net.concat(net.enlarged(fifth), fourth), 128, 1, residual=False)
    third = c2f(net.concat(net.enlarged(fourth), third), 64, 1, residual=False)
    fourth = c2f(net.concat(layer(third, 64, 3, 2), fourth), 128, 1, residual=False)
    fifth = c2f(net.concat(layer(fourth, 128, 3, 2), fifth), 256, 1, residual=False)
    heads = []
    for x in (third, fourth, fifth):
        boxes = net.conv(layer(layer(x, 64), 64), 64, 1)
        classes = net.op("Sigmoid", [net.conv(layer(layer(x, 80), 80), 80, 1)], 80)
        shape = net.weight(np.array([1, 144, -1]))
        heads.append(net.op("Reshape", [net.concat(boxes, classes), shape], 144))
    return net.save(path, net.op("Concat", heads, 144, axis=2), (1, 144, None))


def unet(path: Path, size: int = 256, base: int = 32) -> Path:
    """A U-Net with four levels and transposed convolutions."""
    net = Network((1, 3, size, size))

    def twice(x: str, out: int) -> str:
        return net.relu(net.conv(net.relu(net.conv(x, out)), out))

    x, levels = "x", []
    for level in range(4):
        levels.append(twice(x, base << level))
        x = net.max_pool(levels[-1], 2, 2, padded=False)
    x = twice(x, base << 4)
    for level in reversed(range(4)):
        x = twice(net.concat(levels[level], net.upconv(x, base << level)), base << level)
    return net.save(path, net.op("Sigmoid", [net.conv(x, 1, 1)], 1), (1, 1, size, size))


def super_resolution(path: Path, size: int = 224) -> Path:
    """Sub-pixel convolutions (ESPCN): one channel, three times as large."""
    net = Network((1, 1, size, size))
    x = net.relu(net.conv("x", 64, 5))
    x = net.relu(net.conv(net.relu(net.conv(x, 64)), 32))
    shuffled = net.op("DepthToSpace", [net.conv(x, 9)], 1, blocksize=3, mode="CRD")
    return net.save(path, shuffled, (1, 1, 3 * size, 3 * size))


def text_recognition(path: Path, width: int = 320, classes: int = 6625) -> Path:
    """Recognition of a line of text as PP-OCR's: depthwise and 1×1 convolutions that halve mostly the
    height, and a class for each column."""
    net = Network((1, 3, 48, width))
    x = net.hard_swish(net.conv("x", 16, 3, 2))
    # kernel, output channels, stride, squeeze-and-excite
    for kernel, out, stride, excite in (
        (3, 32, 1, 0), (3, 64, (2, 1), 0), (3, 64, 1, 0), (3, 120, (2, 1), 0), (3, 120, 1, 0),
        (3, 240, (1, 2), 0), *((5, 240, 1, 0),) * 4, (5, 480, (2, 1), 1), (5, 480, 1, 1),
    ):  # fmt: skip
        inputs = net.channels[x]
        x = net.hard_swish(net.conv(x, inputs, kernel, stride, groups=inputs))
        x = net.squeeze_excite(x, inputs // 4) if excite else x
        x = net.hard_swish(net.conv(x, out, 1))
    x = net.op("AveragePool", [x], 480, kernel_shape=[3, 2], strides=[3, 2])
    x = net.op("Squeeze", [x, net.weight(np.array([2]))], 480)
    x = net.op("Transpose", [x], 480, perm=[0, 2, 1])
    x = net.op("MatMul", [x, net.weight(net.random.normal(0, 1, (480, classes)).astype(np.float32))], classes)
    return net.save(path, net.op("Softmax", [x], classes, axis=-1), (1, None, classes))


def shufflenet(path: Path, size: int = 224) -> Path:
    """ShuffleNet-v2."""
    net = Network((1, 3, size, size))
    x, extent = net.max_pool(net.relu(net.conv("x", 24, 3, 2)), 3, 2), size // 4

    def branch(x: str, out: int, stride: int) -> str:
        y = net.conv(net.relu(net.conv(x, out, 1)), out, 3, stride, groups=out)
        return net.relu(net.conv(y, out, 1))

    for out, repeat in ((116, 4), (232, 8), (464, 4)):
        extent //= 2
        shortcut = net.conv(x, net.channels[x], 3, 2, groups=net.channels[x])
        x = net.concat(net.relu(net.conv(shortcut, out // 2, 1)), branch(x, out // 2, 2))
        for _ in range(repeat - 1):
            left, right = net.split(net.shuffle(x, 2, extent, extent))
            x = net.concat(left, branch(right, out // 2, 1))
        x = net.shuffle(x, 2, extent, extent)
    return net.save(path, net.classifier(net.relu(net.conv(x, 1024, 1)), 1000), (1, 1000))


def resnet3d(path: Path, size: int = 64, frames: int = 8) -> Path:
    """The first stages of a ResNet for videos: R3D-18."""
    net = Network((1, 3, frames, size, size))
    x = net.relu(net.conv("x", 32, (3, 7, 7), (1, 2, 2)))
    for out, stride in ((32, 1), (64, 2), (64, 1), (128, 2)):
        shortcut = net.conv(x, out, 1, stride) if stride > 1 else x
        x = net.relu(net.add(net.conv(net.relu(net.conv(x, out, 3, stride)), out), shortcut))
    return net.save(path, net.classifier(x, 101), (1, 101))


def image_translation(path: Path, size: int = 128) -> Path:
    """A small generator as pix2pix's: convolutions that halve, transposed ones of four pixels that double, and skips."""
    net = Network((1, 3, size, size))
    x, levels = net.relu(net.conv("x", 32, 3, 2)), []
    for out in (64, 128, 256):
        levels.append(x)
        x = net.relu(net.conv(x, out, 3, 2))
    for level, out in zip(reversed(levels), (128, 64, 32), strict=True):
        x = net.concat(net.relu(net.upconv(x, out, 4)), level)
    return net.save(path, net.op("Tanh", [net.upconv(x, 3, 4)], 3), (1, 3, None, None))
