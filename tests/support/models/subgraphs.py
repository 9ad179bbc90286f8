"""Compute TVM's JSON subgraphs with numpy, as TVM's CLML runtime reads them.

It stands in for the vendor's library: where the runtime ignores an attribute or swaps
two, so does this, so that a subgraph that needs them gives wrong numbers here as well.
What it cannot show: that the library itself computes what its documentation says.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Array = NDArray[Any]

BINARY = {
    "add": np.add,
    "subtract": np.subtract,
    "sub": np.subtract,
    "multiply": np.multiply,
    "mul": np.multiply,
    "divide": np.divide,
    "div": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
}


def compute(graph: Mapping[str, Any], constants: Mapping[str, Array], inputs: Sequence[Array]) -> list[Array]:
    waiting = list(inputs)
    values: list[Array] = []
    for node in graph["nodes"]:
        (shape,) = node["attrs"]["shape"]  # a kernel gives one value
        if node["op"] == "input":
            value = waiting.pop(0)
        elif node["op"] == "const":
            value = constants[node["name"]]
        else:
            arguments = [values[number] for number, _, _ in node["inputs"]]
            library, _, name = node["name"].partition(".")
            assert library == "openclml"
            value = clml(name, node["attrs"], arguments)
        assert list(value.shape) == shape, (node["name"], value.shape, shape)
        values.append(value)
    assert not waiting
    return [values[number] for number, _, _ in graph["heads"]]


def clml(name: str, attributes: Mapping[str, Any], arguments: list[Array]) -> Array:
    """Compute one CLML kernel; parts of *name* that the runtime does not look at do nothing."""
    if name.endswith("nn.conv2d"):
        assert attributes["groups"] == 1 and len(arguments) in (2, 3)
        top, left, bottom, right = attributes["padding"]
        out = convolution(
            *arguments[:2], (top, left, bottom, right), attributes["strides"], attributes["dilation"]
        )
        out = out + arguments[2].reshape(1, -1, 1, 1) if len(arguments) == 3 else out
        return np.maximum(out, 0) if attributes.get("activation_type") == "relu" else out
    if name in ("nn.max_pool2d", "nn.avg_pool2d"):
        return pool(name, arguments[0], attributes)
    if name == "nn.global_avg_pool2d":
        return arguments[0].mean(axis=(2, 3), keepdims=True)
    if name == "relax.nn.softmax":
        return softmax(arguments[0], axis=1)
    if name == "relax.nn.relu":
        return np.maximum(arguments[0], 0)
    if name == "reshape":
        return arguments[0].reshape(attributes["shape"][0])
    assert arguments[0].shape == arguments[1].shape
    return np.asarray(BINARY[name.removeprefix("relax.")](*arguments))


def convolution(
    data: Array, weight: Array, padding: Sequence[int], strides: Sequence[int], dilation: Sequence[int]
) -> Array:
    """Compute an NCHW convolution with OIHW weights; *padding* is top, left, bottom, right."""
    top, left, bottom, right = padding
    padded = np.pad(data, ((0, 0), (0, 0), (top, bottom), (left, right)))
    height, width = ((size - 1) * step + 1 for size, step in zip(weight.shape[2:], dilation, strict=True))
    windows = sliding_window_view(padded, (height, width), axis=(2, 3))
    windows = windows[:, :, :: strides[0], :: strides[1], :: dilation[0], :: dilation[1]]
    return np.einsum("nchwij,ocij->nohw", windows, weight, optimize=True)


def pool(name: str, data: Array, attributes: Mapping[str, Any]) -> Array:
    """Compute a pool without dilation whose averages leave padding out."""
    top, left, bottom, right = attributes["padding"]
    largest = name == "nn.max_pool2d"
    widths = ((0, 0), (0, 0), (top, bottom), (left, right))
    padded = np.pad(data, widths, constant_values=-np.inf if largest else np.nan)
    down, across = attributes["strides"]
    windows = sliding_window_view(padded, tuple(attributes["pool_size"]), axis=(2, 3))[:, :, ::down, ::across]
    out = windows.max(axis=(4, 5)) if largest else np.nanmean(windows, axis=(4, 5))
    return np.asarray(out, data.dtype)


def softmax(data: Array, axis: int) -> Array:
    powers = np.exp(data - data.max(axis=axis, keepdims=True))
    return np.asarray(powers / powers.sum(axis=axis, keepdims=True))
