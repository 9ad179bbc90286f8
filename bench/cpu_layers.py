"""Models of one layer, by name: convolutions with a bias and ReLU, and products by a constant matrix, whose
weights may have few bits (``row_4096+int4``)."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

LAYERS = {
    "3x3": ((1, 64, 56, 56), 64, 3, 1, 1),
    "3x3@28": ((1, 128, 28, 28), 128, 3, 1, 1),
    "3x3@14": ((1, 256, 14, 14), 256, 3, 1, 1),
    "3x3@7": ((1, 512, 7, 7), 512, 3, 1, 1),
    "3x3s2": ((1, 64, 56, 56), 128, 3, 2, 1),
    "first": ((1, 3, 224, 224), 64, 7, 2, 1),
    "first3x3": ((1, 3, 224, 224), 32, 3, 2, 1),
    "points": ((1, 96, 56, 56), 24, 1, 1, 1),
    "points@28": ((1, 144, 28, 28), 32, 1, 1, 1),
    "points@14": ((1, 576, 14, 14), 96, 1, 1, 1),
    "points@7": ((1, 960, 7, 7), 320, 1, 1, 1),
    "depthwise": ((1, 144, 56, 56), 144, 3, 1, 144),
    "depthwise@14": ((1, 576, 14, 14), 576, 3, 1, 576),
    "depthwise@7": ((1, 960, 7, 7), 960, 3, 1, 960),
    "depthwise_s2": ((1, 144, 56, 56), 144, 3, 2, 144),
    "depthwise_s2@14": ((1, 576, 14, 14), 576, 3, 2, 576),
    "depthwise5": ((1, 240, 28, 28), 240, 5, 1, 240),
}
"""Name to input shape, output channels, size of the window, stride and groups of a convolution."""
PRODUCTS = {
    "product": (128, 768, 768),
    "product_wide": (128, 768, 3072),
    "row": (1, 512, 1000),
    "row_wide": (1, 768, 3072),
    "row_4096": (1, 4096, 4096),
    "row_8192": (1, 2048, 8192),
    "decode": (1, 4096, 4096),
    "rows2": (2, 768, 3072),
    "rows4": (4, 768, 768),
    "rows8": (8, 768, 3072),
}
"""Name to the rows, columns and output columns of a product by a constant matrix."""
CHAINS = {"decode": 6}
"""How many products are one behind the other: no cache holds their weights, as in a language model's step."""
WEIGHTS = ("+int4", "+int8")
"""What follows the name of a product by weights of few bits."""
FEW_BITS = [row + weights for row in ("row_4096", "row_8192", "decode") for weights in WEIGHTS]


def layer_file(place: Path, name: str, *, followed: bool = False) -> Path:
    """A layer or product as a model; a network as ``bench/cpu.py`` takes it.

    Args:
        name: may end with another activation than ReLU, ``depthwise+relu6``, or with the type of a product's
            weights.
        followed: a convolution to 8 channels reads it, since what the last one gives is not rounded to half.
    """
    from cpu import model_file

    from adt.compiler.networks.builder import Network

    file = place / f"{name}.onnx"
    layer, _, more = name.partition("+")
    if layer in PRODUCTS and more:
        import adt

        return adt.quantize(layer_file(place, layer), out=file, weights_only=more).path
    if name in PRODUCTS:
        rows, columns, outputs = PRODUCTS[name]
        net, y = Network((rows, columns)), "x"
        for _ in range(CHAINS.get(name, 1)):
            y = net.op("MatMul", [y, net.drawn((columns, outputs), 1)], outputs)
        if followed:
            last = net.drawn((outputs, 8), 1)
            y, outputs = net.op("MatMul", [y, last], 8), 8
        return net.save(file, y, (rows, outputs))
    if layer in LAYERS:
        shape, channels, window, stride, groups = LAYERS[layer]
        net = Network(shape)
        y = getattr(net, more or "relu")(net.conv("x", channels, window, stride, groups))
        if followed:
            y, channels = net.conv(y, 8, 1), 8
        return net.save(file, y, (1, channels, *(-(-extent // stride) for extent in shape[2:])))
    return model_file(place, name)


def multiply_adds(name: str) -> int:
    """Of the layer or product *name*."""
    if (product := name.partition("+")[0]) in PRODUCTS:
        rows, columns, outputs = PRODUCTS[product]
        return rows * columns * outputs * CHAINS.get(product, 1)
    (_, inputs, height, width), channels, window, stride, groups = LAYERS[name]
    positions = -(-height // stride) * -(-width // stride)
    return positions * channels * inputs // groups * window * window
