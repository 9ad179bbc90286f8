"""Choice of calls for cuDNN and cuBLAS in small graphs, with the reason for the rest."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from adt.bundle.libraries import LIBRARIES
from adt.compiler.passes.offload.partition import check_combination, rules_of
from adt.errors import ConfigError
from support.models.calls import constant, reason, variable


def convolutions() -> dict[str, tuple[str, str, Callable[[], Sequence[Any]]]]:
    from tvm.relax.op import add, nn

    x, w = variable(1, 4, 8, 8), constant(6, 4, 3, 3)
    layer, half = variable(1, 6, 6, 6), variable(1, 4, 8, 8, dtype="float16")
    biased = [nn.conv2d(x, w), add(layer, constant(1, 6, 1, 1))]
    return {
        "plain": ("conv2d", "", lambda: [nn.conv2d(x, w)]),
        "grouped": ("conv2d", "", lambda: [nn.conv2d(x, constant(6, 2, 3, 3), groups=2, dilation=2)]),
        "half": ("conv2d", "", lambda: [nn.conv2d(half, constant(6, 4, 3, 3, dtype="float16"))]),
        "half, sums in float32": (
            "conv2d",
            "float16, float32",
            lambda: [nn.conv2d(half, constant(6, 4, 3, 3, dtype="float16"), out_dtype="float32")],
        ),
        "double": (
            "conv2d",
            "float64",
            lambda: [nn.conv2d(variable(1, 4, 8, 8, dtype="float64"), constant(6, 4, 3, 3, dtype="float64"))],
        ),
        "NHWC": ("conv2d", "NCHW", lambda: [nn.conv2d(variable(1, 8, 8, 4), w, data_layout="NHWC")]),
        "padded alike": ("conv2d", "", lambda: [nn.conv2d(x, w, padding=[2, 1, 2, 1])]),
        "padded at the end": ("conv2d", "alike", lambda: [nn.conv2d(x, w, padding=[0, 0, 1, 1])]),
        "bias, ReLU": ("conv2d_bias_relu", "", lambda: [*biased, nn.relu(layer)]),
        "a bias for each column": (
            "conv2d_bias",
            "one value for each channel",
            lambda: [nn.conv2d(x, w), add(layer, constant(1, 1, 1, 6))],
        ),
        "a bias for each value": (
            "conv2d_bias",
            "one value for each channel",
            lambda: [nn.conv2d(x, w), add(layer, constant(1, 6, 6, 6))],
        ),
        "sum": ("conv2d_bias_add", "", lambda: [*biased, add(variable(1, 6, 6, 6), layer)]),
        "sum that repeats": (
            "conv2d_bias_add",
            "result's shape",
            lambda: [*biased, add(layer, variable(1, 6, 1, 1))],
        ),
        "sum with itself": ("conv2d_bias_add", "another", lambda: [*biased, add(layer, layer)]),
    }


@pytest.mark.parametrize("name", convolutions())
def test_convolutions(name: str) -> None:
    pattern, words, make = convolutions()[name]
    refusal = reason(rules_of(LIBRARIES["cudnn"]), f"cudnn.{pattern}", *make())
    assert words in refusal and bool(words) == bool(refusal)


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ((4, 8), (8, 5), ""),
        ((2, 3, 4, 8), (8, 5), ""),
        ((2, 3, 4, 8), (2, 3, 8, 5), ""),
        ((4, 8), (3, 8, 5), ""),
        ((2, 1, 4, 8), (1, 3, 8, 5), "not for some"),
        ((8,), (8, 5), "matrices"),
    ],
)
def test_products(first: tuple[int, ...], second: tuple[int, ...], words: str) -> None:
    from tvm.relax.op import matmul

    call = matmul(variable(*first), variable(*second))
    refusal = reason(rules_of(LIBRARIES["cublas"]), "cublas.matmul", call)
    assert words in refusal and bool(words) == bool(refusal)


def test_they_go_with_cuda_and_tf32_with_them() -> None:
    check_combination("cudnn,cublas", "cuda", tf32=True)
    with pytest.raises(ConfigError) as caught:
        check_combination("cudnn", "opencl")
    assert "--target cuda:ARCH" in caught.value.remedy
    with pytest.raises(ConfigError, match="--tf32") as caught:
        check_combination("xnnpack", "cpu", tf32=True)
    assert "--offload cudnn,cublas" in caught.value.remedy
