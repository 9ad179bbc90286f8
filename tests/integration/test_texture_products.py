"""Matrix products and changes of shape on texels compute what the plain ones do; run on the CPU."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import relax

import adt
from adt.compiler.networks.builder import Network
from adt.compiler.passes.gpu.choice import BY_MODEL
from adt.compiler.passes.layout.operators import block_channels
from support.models.blocked import blocked_like_plain, calls, conv, last, model, weight
from support.models.reference import off_reference
from support.sampling import of_each_run

Body = Callable[[relax.BlockBuilder, Any], Any]


def dense(b: relax.BlockBuilder, x: Any, inputs: int, outputs: int) -> Any:
    return b.emit(relax.op.add(b.emit(relax.op.matmul(x, weight(inputs, outputs))), weight(outputs)))


def classifier(b: relax.BlockBuilder, x: Any) -> Any:
    y = b.emit(relax.op.nn.relu(b.emit(conv(x, 16, 8))))
    y = b.emit(relax.op.mean(y, [2, 3], keepdims=True))
    return dense(b, b.emit(relax.op.reshape(y, (2, 16))), 16, 12)


PRODUCTS: dict[str, tuple[tuple[int, ...], Body]] = {
    "vectors": ((3, 8), lambda b, x: dense(b, x, 8, 12)),
    "tokens": ((2, 5, 8), lambda b, x: dense(b, x, 8, 12)),
    "tokens-that-nothing-divides": ((1, 17, 8), lambda b, x: dense(b, x, 8, 12)),
    "pixels": ((1, 3, 5, 8), lambda b, x: dense(b, x, 8, 12)),
    "spare-lanes": ((3, 10), lambda b, x: dense(b, x, 10, 6)),
    "two": ((3, 10), lambda b, x: dense(b, b.emit(relax.op.nn.relu(dense(b, x, 10, 6))), 6, 9)),
    "residual": ((2, 5, 8), lambda b, x: b.emit(relax.op.add(dense(b, x, 8, 8), x))),
    "one-for-a-row": (
        (2, 5, 8),
        lambda b, x: b.emit(
            relax.op.multiply(dense(b, x, 8, 8), b.emit(relax.op.mean(x, [2], keepdims=True)))
        ),
    ),
    "softmax": ((3, 8), lambda b, x: b.emit(relax.op.nn.softmax(dense(b, x, 8, 12), 1))),
    "concat": ((3, 8), lambda b, x: b.emit(relax.op.concat([dense(b, x, 8, 12), x], 1))),
    "heads": ((2, 5, 8), lambda b, x: b.emit(relax.op.reshape(dense(b, x, 8, 12), (2, 5, 3, 4)))),
    "classifier": ((2, 8, 6, 6), classifier),
    "mean-flat": (
        (2, 8, 6, 6),
        lambda b, x: dense(b, b.emit(relax.op.mean(b.emit(conv(x, 16, 8)), [2, 3])), 16, 10),
    ),
    "gate": (
        (1, 8, 6, 6),
        lambda b, x: gated(b, b.emit(conv(x, 8, 8))),
    ),
    "patches": (
        (1, 8, 6, 4),
        lambda b, x: dense(
            b,
            b.emit(relax.op.permute_dims(b.emit(relax.op.reshape(b.emit(conv(x, 12, 8)), (1, 12, 24))), [0, 2, 1])),
            12,
            8,
        ),
    ),
    "back": (
        (1, 24, 8),
        lambda b, x: b.emit(
            conv(
                b.emit(relax.op.reshape(b.emit(relax.op.permute_dims(dense(b, x, 8, 8), [0, 2, 1])), (1, 8, 6, 4))),
                8,
                8,
            )
        ),
    ),
}  # fmt: skip


def gated(b: relax.BlockBuilder, y: Any) -> Any:
    """Compute squeeze-and-excite as a matrix product."""
    pooled = b.emit(relax.op.mean(y, [2, 3]))
    gate = b.emit(relax.op.sigmoid(dense(b, pooled, 8, 8)))
    return b.emit(relax.op.multiply(y, b.emit(relax.op.reshape(gate, (1, 8, 1, 1)))))


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_by_constants(name: str) -> None:
    shape, body = PRODUCTS[name]

    blocked, reasons = blocked_like_plain(model(shape, body), shape)

    assert set(reasons) == {""}
    operators = calls(blocked)
    assert "relax.matmul" not in operators
    assert operators.count("pack_blocks") <= 1  # the input of a convolution


def test_a_classifier_unpacks_nothing() -> None:
    blocked, _ = block_channels(model((2, 8, 6, 6), classifier), BY_MODEL.choose)

    assert not {"unpack_blocks", "unpack_rows"} & set(calls(blocked))


@pytest.mark.parametrize(
    ("shape", "body", "words"),
    [
        ((2, 4, 4), lambda b, x: b.emit(relax.op.matmul(x, x)), "computed by the model"),
        ((2, 4, 4), lambda b, x: b.emit(relax.op.matmul(weight(8, 4), x)), "left operand"),
        ((3, 8), lambda b, x: b.emit(relax.op.matmul(x, weight(8, 3))), "do not fill a texel"),
        ((8,), lambda b, x: b.emit(relax.op.matmul(x, weight(8, 4))), "have the shapes"),
        ((3, 4, 8), lambda b, x: b.emit(relax.op.matmul(x, weight(3, 8, 4))), "have the shapes"),
    ],
)
def test_a_product_that_stays_in_buffers_says_why(shape: tuple[int, ...], body: Body, words: str) -> None:
    module = model(shape, body)

    blocked, (row,) = block_channels(module, BY_MODEL.choose)

    assert row.kind == "product"
    assert words in row.reason
    assert blocked is module


def halves(b: relax.BlockBuilder, y: Any) -> Any:
    parts = b.emit(relax.op.split(y, 2, 1))
    first, second = (b.emit(relax.TupleGetItem(parts, index)) for index in (0, 1))
    return b.emit(relax.op.concat([first, b.emit(conv(second, 8, 8))], 1))


def gated_map(b: relax.BlockBuilder, y: Any) -> Any:
    return b.emit(
        relax.op.multiply(b.emit(relax.op.sigmoid(b.emit(relax.op.mean(y, [2, 3], keepdims=True)))), y)
    )


def enlarged(b: relax.BlockBuilder, y: Any, mode: str, rounding: str) -> Any:
    return b.emit(
        relax.op.image.resize2d(
            y,
            relax.ShapeExpr([18, 12]),
            layout="NCHW",
            method="nearest_neighbor",
            coordinate_transformation_mode=mode,
            rounding_method=rounding,
        )
    )


def padded(b: relax.BlockBuilder, y: Any, value: float = 0) -> Any:
    return b.emit(relax.op.nn.pad(y, [0, 0, 0, 0, 0, 1, 2, 1], "constant", value))


READ_IN_PLACE: dict[str, tuple[Body, str, int]] = {
    "half": (halves, "relax.strided_slice", 1),  # the half that is concatenated
    "cut": (
        lambda b, y: b.emit(conv(b.emit(relax.op.strided_slice(y, [1], [4], [12])), 8, 8)),
        "relax.strided_slice",
        0,
    ),
    "gate": (lambda b, y: b.emit(conv(gated_map(b, y), 8, 16, 1)), "relax.multiply", 0),
    "gate-window": (lambda b, y: b.emit(conv(gated_map(b, y), 8, 16)), "relax.multiply", 1),
    "enlarged": (
        lambda b, y: b.emit(conv(enlarged(b, y, "asymmetric", "floor"), 8, 16)),
        "relax.image.resize2d",
        0,
    ),
    "enlarged-half-pixel": (
        lambda b, y: b.emit(conv(enlarged(b, y, "half_pixel", "round_prefer_floor"), 8, 16)),
        "relax.image.resize2d",
        0,
    ),
    "enlarged-up": (
        lambda b, y: b.emit(conv(enlarged(b, y, "asymmetric", "ceil"), 8, 16)),
        "relax.image.resize2d",
        1,
    ),
    "zeros": (lambda b, y: b.emit(conv(padded(b, y), 8, 16, padding=(0, 1), strides=2)), "relax.nn.pad", 0),
    "ones": (lambda b, y: b.emit(conv(padded(b, y, 1.0), 8, 16)), "relax.nn.pad", 1),
}


@pytest.mark.parametrize("name", READ_IN_PLACE)
def test_a_convolution_reads_what_moves_no_numbers_in_place(name: str) -> None:
    body, operator, count = READ_IN_PLACE[name]
    module = model((2, 8, 6, 6), lambda b, x: body(b, b.emit(conv(x, 16, 8))))

    blocked, _ = blocked_like_plain(module, (2, 8, 6, 6))

    assert calls(blocked).count(operator) == count


def test_a_reshape_of_a_reshape_is_one() -> None:
    """Make one, a view for TVM: two would be fused to a kernel, which copies."""
    module = model(
        (2, 3, 8),
        lambda b, x: dense(b, b.emit(relax.op.reshape(b.emit(relax.op.nn.softmax(x)), (6, 8))), 8, 12),
    )

    blocked, _ = blocked_like_plain(module, (2, 3, 8))

    assert calls(blocked)[:3] == ["relax.nn.softmax", "relax.reshape", "product_blocks"]


def test_zeros_around_the_models_input_are_read_in_place() -> None:
    module = model((1, 3, 6, 6), lambda b, x: b.emit(conv(padded(b, x), 8, 3)))

    blocked, _ = blocked_like_plain(module, (1, 3, 6, 6))

    assert "relax.nn.pad" not in calls(blocked)


def test_padding_of_vectors_is_left_alone() -> None:
    module = model((3, 8), lambda b, x: dense(b, b.emit(relax.op.nn.pad(x, [0, 0, 2, 2])), 12, 8))

    blocked_like_plain(module, (3, 8))


LAST: dict[str, Body] = {
    "mean": lambda b, y: dense(b, b.emit(relax.op.mean(y, [1, 2])), 8, 12),
    "reshape": lambda b, y: dense(
        b, b.emit(relax.op.reshape(b.emit(relax.op.mean(y, [1, 2], keepdims=True)), (2, 8))), 8, 12
    ),
    "pixels": lambda b, y: dense(b, y, 8, 12),
}


@pytest.mark.parametrize("name", LAST)
def test_products_after_channels_last(name: str) -> None:
    shape = (2, 6, 6, 3)
    module = model(shape, lambda b, x: LAST[name](b, b.emit(last(x, 8, 3))))

    blocked, reasons = blocked_like_plain(module, shape)

    assert reasons == ["", ""]
    assert not {"unpack_blocks", "unpack_rows"} & set(calls(blocked))


@pytest.mark.parametrize("target", of_each_run(1, "adreno", "opencl"))
def test_on_a_driver_what_joins_convolutions_is_right(target: str, tmp_path: Path) -> None:
    """Run a gate, an enlarged map, a pool of a large map that work-items share, and dense layers."""
    net = Network((1, 3, 24, 24))
    x = net.squeeze_excite(net.hard_swish(net.conv("x", 16)), 8)
    x = net.relu(net.conv(x, 12, 1))
    scales = net.weight(np.array([1, 1, 2, 2], np.float32))
    nearest = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    x = net.conv(net.op("Resize", [x, "", scales], 12, **nearest), 8)
    x = net.hard_swish(net.classifier(x, 20))
    weight = net.drawn((20, 10), 0.3)
    source = net.save(tmp_path / "model.onnx", net.op("Gemm", [x, weight], 10), (1, 10))

    options = {"use_cache": False, "check": False, "texture_choice": "always"}
    package = adt.compile(source, out=tmp_path / "package", platform="host", target=target, **options)

    assert off_reference(package, source) < 1e-5
    record = package.manifest.made
    operators = record.textures.convolutions if record.textures else record.blocked
    assert [row.reason for row in operators if row.kind == "product"] == ["", ""]
    names = " ".join(kernel.name for kernel in package.manifest.kernels)
    assert "global_avg_pool" in names
    assert "resize" not in names
    assert "strided_slice" not in names
