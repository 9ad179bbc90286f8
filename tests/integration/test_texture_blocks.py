"""Blocked operators and the walk that introduces them compute what the plain ones do; run on the CPU."""

from collections.abc import Callable
from typing import Any

import pytest
import tvm
from tvm import relax

from adt.compiler.passes.gpu.choice import BY_MODEL
from adt.compiler.passes.layout.blocks import Window, ceil_blocks
from adt.compiler.passes.layout.operators import block_channels
from adt.compiler.passes.workarounds import LONGEST, short_name
from support.models.blocked import blocked_like_plain, calls, conv, emitted, last, model, transposed, weight


@pytest.mark.parametrize(
    ("shape", "make"),
    [
        ((1, 8, 9, 7), lambda x: conv(x, 12, 8)),
        ((2, 8, 9, 7), lambda x: conv(x, 8, 8, strides=2)),
        ((1, 3, 10, 10), lambda x: conv(x, 8, 3, 5, padding=(2, 1, 0, 2))),
        ((1, 6, 9, 9), lambda x: conv(x, 10, 6, dilation=2)),
        ((1, 8, 9, 9), lambda x: conv(x, 8, 1, groups=8)),
        ((1, 10, 9, 9), lambda x: conv(x, 10, 1, groups=10, strides=(2, 1))),
        ((1, 3, 9, 9), lambda x: conv(conv(x, 8, 3), 16, 4, groups=2)),
        ((1, 12, 9, 9), lambda x: conv(x, 24, 4, groups=3)),
        ((1, 8, 9, 9), lambda x: conv(x, 6, 4, groups=2)),
        ((1, 8, 9, 9), lambda x: conv(x, 16, 1, groups=8)),
        ((1, 8, 9, 7), lambda x: transposed(x, 8, 12, 4, strides=2, padding=1)),
        ((2, 8, 9, 7), lambda x: transposed(x, 8, 3, strides=(3, 2), output_padding=1)),
        ((1, 8, 9, 7), lambda x: transposed(x, 8, 6, 5, groups=2, padding=2)),
    ],
    ids=["plain", "batch", "rgb", "spare-lanes", "depthwise", "depthwise-spare", "grouped", "groups-of-8",
         "shared-block", "shared-blocks", "transposed", "transposed-rgb", "transposed-groups"],
)  # fmt: skip
def test_convolutions(shape: tuple[int, ...], make: Callable[[Any], Any]) -> None:
    module = model(shape, lambda builder, x: emitted(builder, make(x)))

    _, reasons = blocked_like_plain(module, shape)

    assert set(reasons) == {""}


def test_a_convolution_over_one_axis_is_blocked() -> None:
    module = model(
        (1, 8, 33),
        lambda builder, x: builder.emit(relax.op.nn.conv1d(x, weight(12, 8, 5), strides=2, padding=2)),
    )

    _, reasons = blocked_like_plain(module, (1, 8, 33))

    assert reasons == [""]


def volumes(x: Any, out: int, inputs: int, **options: Any) -> Any:
    return relax.op.nn.conv3d(x, weight(out, inputs, 3, 3, 3), **{"padding": 1, **options})


VOLUMES: dict[str, Callable[[relax.BlockBuilder, Any], Any]] = {
    "strides": lambda b, x: b.emit(volumes(x, 12, 8, strides=(1, 2, 3))),
    "dilation": lambda b, x: b.emit(volumes(x, 10, 8, dilation=(1, 2, 2), padding=(1, 2, 2))),
    "groups": lambda b, x: b.emit(volumes(x, 16, 4, groups=2)),
    "depthwise": lambda b, x: b.emit(volumes(x, 8, 1, groups=8, strides=2)),
    "groups that share texels": lambda b, x: b.emit(volumes(x, 12, 2, groups=4)),
    "transposed": lambda b, x: b.emit(
        relax.op.nn.conv3d_transpose(x, weight(8, 12, 2, 3, 4), (1, 2, 2), (0, 1, 1, 0, 1, 1))
    ),
    "bias": lambda b, x: b.emit(relax.op.add(b.emit(volumes(x, 12, 8)), weight(1, 12, 1, 1, 1))),
    "max-pool": lambda b, x: b.emit(
        relax.op.nn.max_pool3d(b.emit(volumes(x, 8, 8)), (2, 3, 3), (2, 2, 2), (0, 1, 1), ceil_mode=True)
    ),
    "avg-pool": lambda b, x: b.emit(
        relax.op.nn.avg_pool3d(b.emit(volumes(x, 8, 8)), (3, 3, 3), (1, 2, 2), (1, 1, 1))
    ),
    "mean": lambda b, x: b.emit(relax.op.mean(b.emit(volumes(x, 8, 8)), [2, 3, 4])),
    "padding": lambda b, x: b.emit(
        volumes(b.emit(relax.op.nn.pad(x, [0, 0, 0, 0, 1, 0, 2, 1, 0, 3])), 8, 8, padding=0)
    ),
    "concat": lambda b, x: b.emit(relax.op.concat([b.emit(volumes(x, 8, 8)), b.emit(volumes(x, 8, 8))], 1)),
}


@pytest.mark.parametrize("name", VOLUMES)
def test_what_convolves_three_axes_is_blocked(name: str) -> None:
    blocked, reasons = blocked_like_plain(model((1, 8, 5, 7, 9), VOLUMES[name]), (1, 8, 5, 7, 9))

    assert set(reasons) == {""}
    operators = [call for call in calls(blocked) if "conv" in call or "pool" in call]
    assert operators and all("blocks" in call for call in operators)


def test_what_cannot_be_blocked_says_why() -> None:
    module = model((1, 8, 8, 8), lambda builder, x: builder.emit(conv(x, 2, 8)))

    blocked, convolutions = block_channels(module, BY_MODEL.choose)

    assert "do not fill a texel" in convolutions[0].reason
    assert blocked is module


def _after_conv(follow: Callable[[relax.BlockBuilder, Any], Any]) -> tvm.IRModule:
    return model((1, 8, 12, 10), lambda builder, x: follow(builder, builder.emit(conv(x, 8, 8))))


FOLLOWERS: dict[str, Callable[[relax.BlockBuilder, Any], Any]] = {
    "relu": lambda b, y: b.emit(relax.op.nn.relu(y)),
    "clip": lambda b, y: b.emit(relax.op.clip(y, 0, 6)),
    "bias": lambda b, y: b.emit(relax.op.add(y, weight(1, 8, 1, 1))),
    "bias-3d": lambda b, y: b.emit(relax.op.add(y, weight(8, 1, 1))),
    "scalar": lambda b, y: b.emit(relax.op.multiply(relax.const(2.0), y)),
    "row": lambda b, y: b.emit(relax.op.add(y, weight(10))),
    "silu": lambda b, y: b.emit(relax.op.multiply(y, b.emit(relax.op.sigmoid(y)))),
    "prelu": lambda b, y: b.emit(relax.op.nn.prelu(y, weight(8), 1)),
    "max-pool": lambda b, y: b.emit(relax.op.nn.max_pool2d(y, (3, 3), (2, 2), (1, 1, 1, 1))),
    "max-pool-ceil": lambda b, y: b.emit(relax.op.nn.max_pool2d(y, (3, 3), (2, 2), ceil_mode=True)),
    "avg-pool": lambda b, y: b.emit(relax.op.nn.avg_pool2d(y, (3, 3), (2, 2), (1, 1, 1, 1))),
    "avg-pool-counting": lambda b, y: b.emit(
        relax.op.nn.avg_pool2d(y, (3, 3), (2, 2), (1, 1, 1, 1), count_include_pad=True)
    ),
    "mean": lambda b, y: b.emit(relax.op.mean(y, [2, 3], keepdims=True)),
    "max": lambda b, y: b.emit(relax.op.max(y, [2, 3], keepdims=True)),
    "adaptive-tiles": lambda b, y: b.emit(relax.op.nn.adaptive_avg_pool2d(y, (3, 2))),
    "slice": lambda b, y: b.emit(relax.op.strided_slice(y, [2, 3], [1, -9], [12, 10], [2, 1])),
    "flatten": lambda b, y: b.emit(relax.op.reshape(y, (1, 8, 120))),
    "adaptive": lambda b, y: b.emit(relax.op.nn.adaptive_avg_pool2d(y, (1, 1))),
    "gate": lambda b, y: b.emit(
        relax.op.multiply(y, b.emit(relax.op.sigmoid(b.emit(relax.op.mean(y, [2, 3], keepdims=True)))))
    ),
    "concat": lambda b, y: b.emit(relax.op.concat([y, b.emit(relax.op.nn.relu(y))], 1)),
    "concat-rows": lambda b, y: b.emit(relax.op.concat([y, y], 2)),
    "upsample": lambda b, y: b.emit(
        relax.op.image.resize2d(y, relax.ShapeExpr([24, 20]), layout="NCHW", method="nearest_neighbor",
                                coordinate_transformation_mode="asymmetric", rounding_method="floor")
    ),
    "linear": lambda b, y: b.emit(relax.op.image.resize2d(y, relax.ShapeExpr([24, 20]), layout="NCHW")),
}  # fmt: skip


@pytest.mark.parametrize("name", FOLLOWERS)
def test_what_follows_a_convolution_is_blocked_too(name: str) -> None:
    blocked, _ = blocked_like_plain(_after_conv(FOLLOWERS[name]), (1, 8, 12, 10))

    operators = calls(blocked)
    # Of a single pixel the blocked tensor and the plain one are the same.
    assert operators[-1] == ("relax.reshape" if name in ("mean", "max", "adaptive") else "unpack_blocks")
    assert operators.count("unpack_blocks") == (operators[-1] == "unpack_blocks")


@pytest.mark.parametrize("sections", [2, [4], [3]], ids=["halves", "at-4", "at-3"])
def test_split_channels(sections: Any) -> None:
    def follow(builder: relax.BlockBuilder, y: Any) -> Any:
        parts = builder.emit(relax.op.split(y, sections, 1))
        first, second = (builder.emit(relax.TupleGetItem(parts, index)) for index in (0, 1))
        return builder.emit(
            relax.Tuple([builder.emit(relax.op.nn.relu(first)), builder.emit(relax.op.exp(second))])
        )

    blocked_like_plain(_after_conv(follow), (1, 8, 12, 10))


def test_an_operator_without_a_rule_gets_plain_tensors() -> None:
    def follow(builder: relax.BlockBuilder, y: Any) -> Any:
        softmax = builder.emit(relax.op.nn.softmax(y, 1))
        return builder.emit(conv(softmax, 8, 8))

    blocked_like_plain(_after_conv(follow), (1, 8, 12, 10))


def test_the_extents_of_a_window() -> None:
    window = Window((3, 3), (2, 1), (1, 0), (1, 0), (1, 2))

    assert window.extents((8, 9)) == (4, 5)
    assert (ceil_blocks(8), ceil_blocks(9)) == (2, 3)


def test_long_kernel_names_stay_apart() -> None:
    long = "fused_" + "conv_add_relu_" * 20

    assert short_name("conv") == "conv"
    assert len(short_name(long)) <= LONGEST
    assert short_name(long) != short_name(long + "x")


CHANNELS_LAST: dict[str, Callable[[relax.BlockBuilder, Any], Any]] = {
    "plain": lambda b, y: y,
    "depthwise": lambda b, y: b.emit(last(y, 8, 1, order="HWOI", groups=8)),
    "bias": lambda b, y: b.emit(relax.op.add(y, weight(8))),
    "bias-4d": lambda b, y: b.emit(relax.op.add(weight(1, 1, 1, 8), y)),
    "residual": lambda b, y: b.emit(relax.op.nn.relu(b.emit(relax.op.add(y, b.emit(last(y, 8, 8)))))),
    "prelu": lambda b, y: b.emit(relax.op.nn.prelu(y, weight(8), 3)),
    "max-pool": lambda b, y: b.emit(relax.op.nn.max_pool2d(y, (2, 2), (2, 2), layout="NHWC")),
    "avg-pool": lambda b, y: b.emit(relax.op.nn.avg_pool2d(y, (3, 3), (2, 2), (1, 1, 1, 1), layout="NHWC")),
    "pad": lambda b, y: b.emit(relax.op.nn.pad(y, [0, 0, 1, 2, 0, 1, 0, 0])),
    "pad-channels": lambda b, y: b.emit(relax.op.nn.pad(y, [0, 0, 0, 0, 0, 0, 0, 4])),
    "pad-channels-odd": lambda b, y: b.emit(relax.op.nn.pad(y, [0, 0, 0, 0, 0, 0, 0, 3])),
    "mean": lambda b, y: b.emit(relax.op.mean(y, [1, 2], keepdims=True)),
    "concat": lambda b, y: b.emit(relax.op.concat([y, y], 3)),
    "upsample": lambda b, y: b.emit(relax.op.image.resize2d(y, relax.ShapeExpr([24, 20]), layout="NHWC")),
    "softmax": lambda b, y: b.emit(relax.op.nn.softmax(y, 3)),
}


@pytest.mark.parametrize("follow", CHANNELS_LAST.values(), ids=CHANNELS_LAST)
def test_channels_last_are_moved_and_blocked(follow: Callable[..., Any]) -> None:
    shape = (1, 12, 10, 3)
    module = model(shape, lambda builder, x: follow(builder, builder.emit(last(x, 8, 3))))

    _, reasons = blocked_like_plain(module, shape, BY_MODEL)

    assert set(reasons) == {""}
