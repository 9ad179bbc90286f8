"""Convolutional networks that have no name in adt, with random weights: what CPUs are measured with besides."""

from pathlib import Path

import numpy as np
from onnx import helper

from adt.compiler.networks.builder import Network
from adt.compiler.networks.known import write_network

Stages = tuple[tuple[int, int], ...]


class VisionNetwork(Network):
    """With the layers that no network of adt's has."""

    def enlarged(self, x: str) -> str:
        """Repeat each pixel twice along both axes."""
        scales = self.weight(np.array([1, 1, 2, 2], np.float32))
        modes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        return self.op("Resize", [x, "", scales], self.channels[x], mode="nearest", **modes)

    def split(self, x: str) -> tuple[str, str]:
        """Split the channels in two halves."""
        first, second = (f"half{len(self.nodes)}_{part}" for part in (0, 1))
        self.nodes.append(helper.make_node("Split", [x], [first, second], f"n_{first}", axis=1))
        self.channels |= dict.fromkeys((first, second), self.channels[x] // 2)
        return first, second

    def shuffle(self, x: str, groups: int, *extents: int) -> str:
        """Interleave the channels of groups."""
        channels = self.channels[x]
        parts = self.weight(np.array([1, groups, channels // groups, *extents]))
        y = self.op("Transpose", [self.op("Reshape", [x, parts], channels)], channels, perm=[0, 2, 1, 3, 4])
        return self.op("Reshape", [y, self.weight(np.array([1, channels, *extents]))], channels)


def resnet18(path: Path, size: int = 96) -> Path:
    return write_network("resnet-18", path, size)


def mobilenet_v2(path: Path, size: int = 96) -> Path:
    return write_network("mobilenet-v2", path, size)


def mixed_blocks(path: Path, size: int = 32) -> Path:
    """Build the blocks of newer networks in small: squeeze-and-excite, hard-swish, SiLU, group
    convolution, split, concatenation, upsampling, transposed convolution, and channels that no
    texel divides."""
    net = VisionNetwork((1, 3, size, size))
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


def residual_blocks(path: Path, size: int = 40) -> Path:
    """Build small blocks of ResNets and MobileNets, also with stride two; channels not divided by 16."""
    net = VisionNetwork((1, 3, size, size))
    x = net.max_pool(net.relu(net.conv("x", 24, 7, 2)), 3, 2)
    x = net.relu(net.add(x, net.conv(x, 24)))
    x = net.relu(net.add(net.conv(x, 40, 1, 2), net.conv(x, 40, 3, 2)))
    for out, stride in ((40, 1), (56, 2)):
        y = net.relu6(net.conv(net.relu6(net.conv(x, 96, 1)), 96, 3, stride, groups=96))
        y = net.conv(y, out, 1)
        x = net.add(x, y) if stride == 1 else y
    return net.save(path, net.classifier(x, 10), (1, 10))


def yolov8n(path: Path, size: int = 640) -> Path:
    """Build YOLOv8n up to the maps of its three heads, each flattened and joined."""
    net = VisionNetwork((1, 3, size, size))

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


def super_resolution(path: Path, size: int = 224) -> Path:
    """Build sub-pixel convolutions (ESPCN): one channel, three times as large."""
    net = VisionNetwork((1, 1, size, size))
    x = net.relu(net.conv("x", 64, 5))
    x = net.relu(net.conv(net.relu(net.conv(x, 64)), 32))
    shuffled = net.op("DepthToSpace", [net.conv(x, 9)], 1, blocksize=3, mode="CRD")
    return net.save(path, shuffled, (1, 1, 3 * size, 3 * size))


def text_recognition(path: Path, width: int = 320, classes: int = 6625) -> Path:
    """Build a recognizer of a line of text as PP-OCR's: depthwise and 1×1 convolutions that halve mostly the
    height, and a class for each column."""
    net = VisionNetwork((1, 3, 48, width))
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
    x = net.op("MatMul", [x, net.drawn((480, classes), 1)], classes)
    return net.save(path, net.op("Softmax", [x], classes, axis=-1), (1, None, classes))


def shufflenet(path: Path, size: int = 224, stages: Stages = ((116, 4), (232, 8), (464, 4))) -> Path:
    """Build ShuffleNet-v2; channels and blocks of its stages."""
    net = VisionNetwork((1, 3, size, size))
    x, extent = net.max_pool(net.relu(net.conv("x", 24, 3, 2)), 3, 2), size // 4

    def branch(x: str, out: int, stride: int) -> str:
        y = net.conv(net.relu(net.conv(x, out, 1)), out, 3, stride, groups=out)
        return net.relu(net.conv(y, out, 1))

    for out, repeat in stages:
        extent //= 2
        shortcut = net.conv(x, net.channels[x], 3, 2, groups=net.channels[x])
        x = net.concat(net.relu(net.conv(shortcut, out // 2, 1)), branch(x, out // 2, 2))
        for _ in range(repeat - 1):
            left, right = net.split(net.shuffle(x, 2, extent, extent))
            x = net.concat(left, branch(right, out // 2, 1))
        x = net.shuffle(x, 2, extent, extent)
    return net.save(path, net.classifier(net.relu(net.conv(x, 1024, 1))), (1, 1000))


def resnet3d(
    path: Path, size: int = 64, frames: int = 8, stages: Stages = ((32, 1), (64, 2), (64, 1), (128, 2))
) -> Path:
    """Build the first stages of a ResNet for videos, R3D-18; channels and stride of its blocks."""
    net = VisionNetwork((1, 3, frames, size, size))
    x = net.relu(net.conv("x", 32, (3, 7, 7), (1, 2, 2)))
    for out, stride in stages:
        shortcut = net.conv(x, out, 1, stride) if stride > 1 else x
        x = net.relu(net.add(net.conv(net.relu(net.conv(x, out, 3, stride)), out), shortcut))
    return net.save(path, net.classifier(x, 101), (1, 101))


def image_translation(path: Path, size: int = 128) -> Path:
    """Build a small generator as pix2pix's: halving convolutions, doubling transposed ones, and skips."""
    net = VisionNetwork((1, 3, size, size))
    x, levels = net.relu(net.conv("x", 32, 3, 2)), []
    for out in (64, 128, 256):
        levels.append(x)
        x = net.relu(net.conv(x, out, 3, 2))
    for level, out in zip(reversed(levels), (128, 64, 32), strict=True):
        x = net.concat(net.relu(net.upconv(x, out, 4)), level)
    return net.save(path, net.op("Tanh", [net.upconv(x, 3, 4)], 3), (1, 3, None, None))
