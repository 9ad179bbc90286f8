"""Choice of operators for XNNPACK in small graphs, with the reason for the rest."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from adt.bundle.libraries import LIBRARIES
from adt.compiler.passes.offload.partition import rules_of
from adt.errors import SourceError
from adt.host.sources import TREES, find_xnnpack
from support.models.calls import constant, reason, variable


@pytest.fixture(scope="module")
def rules() -> Any:
    return rules_of(LIBRARIES["xnnpack"])


def operators() -> dict[str, tuple[str, Callable[[], Sequence[Any]]]]:
    from tvm.relax.op import add, matmul, mean, nn, reshape

    x, w = variable(1, 4, 8, 8), constant(6, 4, 3, 3)
    layer = variable(1, 6, 6, 6)
    return {
        "convolution": ("", lambda: [nn.conv2d(x, w)]),
        "grouped, with dilation": ("", lambda: [nn.conv2d(x, constant(6, 2, 3, 3), groups=2, dilation=2)]),
        "bias": ("", lambda: [nn.conv2d(x, w), add(layer, constant(1, 6, 1, 1))]),
        "no bias": ("one value for each", lambda: [nn.conv2d(x, w), add(layer, constant(1, 1, 1, 6))]),
        "NHWC": ("NCHW", lambda: [nn.conv2d(variable(1, 8, 8, 4), w, data_layout="NHWC")]),
        "half": (
            "float16",
            lambda: [nn.conv2d(variable(1, 4, 8, 8, dtype="float16"), constant(6, 4, 3, 3, dtype="float16"))],
        ),
        "sum": ("", lambda: [add(x, variable(1, 4, 8, 8))]),
        "sum of rows": ("one shape", lambda: [add(x, constant(8))]),
        "dense": ("", lambda: [matmul(variable(1, 4), constant(4, 5))]),
        "dense of a picture": ("two or three dimensions", lambda: [matmul(x, constant(8, 5))]),
        "max pool": ("", lambda: [nn.max_pool2d(x, (3, 3), (2, 2), 1)]),
        "pool that leaves out": ("leave elements out", lambda: [nn.max_pool2d(x, (2, 2), (3, 3))]),
        "ceiling": ("ceil_mode", lambda: [nn.max_pool2d(x, (3, 3), (2, 2), ceil_mode=True)]),
        "dilated, padded pool": ("dilated pool", lambda: [nn.max_pool2d(x, (3, 3), padding=1, dilation=2)]),
        "average with padding": (
            "padding",
            lambda: [nn.avg_pool2d(x, (3, 3), padding=1, count_include_pad=True)],
        ),
        "global average": ("", lambda: [mean(x, [2, 3], keepdims=True)]),
        "average of channels": ("height and width", lambda: [mean(x, [1], keepdims=True)]),
        "flattened average": ("", lambda: [reshape(variable(1, 4, 1, 1), (1, 4))]),
        "flattened picture": ("one element", lambda: [reshape(x, (1, 256))]),
    }


@pytest.mark.parametrize("name", operators())
def test_operators(name: str, rules: Any) -> None:
    words, make = operators()[name]
    calls = make()
    refusal = reason(rules, f"xnnpack.{str(calls[0].op.name).rpartition('.')[2]}", *calls)
    assert words in refusal and bool(words) == bool(refusal)


def test_half_precision_is_for_processors_that_compute_in_it() -> None:
    from tvm.relax.op import nn

    layer = variable(1, 4, 8, 8, dtype="float16"), constant(6, 4, 3, 3, dtype="float16")
    assert not reason(rules_of(LIBRARIES["xnnpack"], half=True), "xnnpack.conv2d", nn.conv2d(*layer))
    assert "float16" in reason(rules_of(LIBRARIES["xnnpack"]), "xnnpack.conv2d", nn.conv2d(*layer))
    wide = nn.conv2d(*layer, out_dtype="float32")
    assert "float16" in reason(rules_of(LIBRARIES["xnnpack"], half=True), "xnnpack.conv2d", wide)


def integers(
    scale: float = 0.1, filter_zero: int = 0, bias_scale: float = 0.05, out_type: str = "int8", axis: int = 0
) -> list[Any]:
    """Return the calls of a convolution between quantizations, with the scales 0.1 (input) and 0.5 (weights)."""
    from tvm.relax.op import add, dequantize, nn, quantize, reshape

    zero = constant(value=0, dtype="int8")
    x, w = variable(1, 4, 8, 8, dtype="int8"), constant(6, 4, 3, 3, dtype="int8")
    zeros = constant(6, value=filter_zero, dtype="int8")
    layer = variable(1, 6, 6, 6)
    return [
        dequantize(x, constant(value=0.1), zero, axis=1),
        dequantize(w, constant(6, value=0.5), zeros, axis=axis),
        nn.conv2d(variable(1, 4, 8, 8), variable(6, 4, 3, 3)),
        dequantize(
            constant(6, dtype="int32"),
            constant(6, value=bias_scale),
            constant(6, value=0, dtype="int32"),
            axis=0,
        ),
        reshape(variable(6), (1, 6, 1, 1)),
        add(layer, variable(1, 6, 1, 1)),
        quantize(layer, constant(value=scale), constant(value=0, dtype=out_type), axis=1, out_dtype=out_type),
    ]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ""),
        ({"out_type": "uint8"}, ""),
        ({"scale": 0.05 / 256}, "by 256"),
        ({"filter_zero": 3}, "around zero"),
        ({"bias_scale": 0.06}, "times that of the weights"),
    ],
)
def test_integers(changes: dict[str, Any], words: str, rules: Any) -> None:
    refusal = reason(rules, "xnnpack.conv2d", *integers(**changes))
    assert words in refusal and bool(words) == bool(refusal)


def test_a_directory_of_the_users_must_have_all_trees(tmp_path: Path) -> None:
    for tree in TREES[:-1]:
        (tmp_path / tree.name / tree.header).parent.mkdir(parents=True)
        (tmp_path / tree.name / tree.header).touch()
    with pytest.raises(SourceError, match=r"cpuinfo/include/cpuinfo\.h"):
        find_xnnpack(str(tmp_path))
    (tmp_path / "cpuinfo/include").mkdir(parents=True)
    (tmp_path / "cpuinfo/include/cpuinfo.h").touch()
    assert find_xnnpack(str(tmp_path)).path == tmp_path
