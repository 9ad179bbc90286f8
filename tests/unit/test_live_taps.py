"""Convolutions whose windows read padding: which taps are left, and that these compute the same."""

import itertools
import random
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from adt.compiler.ir.nodes import relax_nodes
from adt.compiler.passes.layout.live_taps import without_dead_taps

RANDOM = np.random.default_rng(3)


def convolved(x: np.ndarray, weight: np.ndarray, attrs: Any) -> np.ndarray:
    """Convolve *x* by *weight*, both of one channel and two axes, as *attrs* of Relax say."""
    top, left, bottom, right = map(int, attrs.padding)
    padded = np.pad(x, ((top, bottom), (left, right)))
    (down, across), (rows, columns) = map(int, attrs.strides), map(int, attrs.dilation)
    extents = [
        size - (taps - 1) * step
        for size, taps, step in zip(padded.shape, weight.shape, (rows, columns), strict=True)
    ]
    return sum(
        weight[i, j] * padded[i * rows :, j * columns :][: extents[0], : extents[1]][::down, ::across]
        for i, j in itertools.product(*map(range, weight.shape))
    )


def without(module: tvm.IRModule) -> relax.Call:
    """Return the convolution of *module* without dead taps."""
    (call,) = (
        node
        for node in relax_nodes(without_dead_taps(module)["main"], relax.Call)
        if "conv2d" in str(node.op)
    )
    return call


def convolution(x: tuple[int, int], weight: Any, quantized: bool = False, **options: Any) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    data = relax.Var("x", relax.TensorStructInfo((1, 1, *x), "float32"))
    constant = relax.const(weight[None, None])
    with builder.function("main", [data]):
        with builder.dataflow():
            if quantized:
                scale, zero = relax.const(np.float32([0.5])), relax.const(np.int8([0]))
                constant = builder.emit(relax.op.dequantize(constant, scale, zero, axis=0))
            out = builder.emit_output(relax.op.nn.conv2d(data, constant, **options))
        builder.emit_func_output(out)
    return builder.get()


def test_what_is_left_computes_the_same() -> None:
    """Try windows of any size, stride, dilation and padding, on both sides of the edge of having dead taps."""
    fewer = 0
    for seed in range(300):
        pick = random.Random(seed)
        x = RANDOM.normal(size=(pick.randint(1, 9), pick.randint(1, 9)))
        weight = RANDOM.normal(size=(pick.randint(1, 4), pick.randint(1, 4)))
        dilation = [pick.randint(1, 7), pick.randint(1, 7)]
        padding = [pick.randint(0, 14) for _ in range(4)]
        if any(
            size + sum(padding[axis::2]) < (taps - 1) * step + 1
            for axis, (size, taps, step) in enumerate(zip(x.shape, weight.shape, dilation, strict=True))
        ):
            continue
        strides = [pick.randint(1, 3), pick.randint(1, 3)]
        module = convolution(
            x.shape, weight.astype("float32"), strides=strides, padding=padding, dilation=dilation
        )
        (before,) = relax_nodes(module["main"], relax.Call)
        after = without(module)
        left = after.args[1].data.numpy()[0, 0].astype(float)
        fewer += left.size < weight.size

        expected = convolved(x, weight.astype("float32").astype(float), before.attrs)
        np.testing.assert_allclose(convolved(x, left, after.attrs), expected, atol=1e-12)
        assert not left.size or 0 not in left.shape
    assert fewer > 50


@pytest.mark.parametrize("quantized", [False, True])
def test_a_window_wider_than_the_map_is_one_tap(quantized: bool) -> None:
    weight = np.arange(9, dtype="int8" if quantized else "float32").reshape(3, 3)
    call = without(convolution((20, 20), weight, quantized, padding=24, dilation=24))
    assert (list(call.attrs.padding), list(call.attrs.dilation)) == ([0] * 4, [1, 1])
    assert tuple(call.args[1].struct_info.shape) == (1, 1, 1, 1)
