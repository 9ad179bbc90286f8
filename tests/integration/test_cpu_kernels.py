"""Kernels for CPUs compute what TVM's plain loops do, with vectors of each width that this machine has."""

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial, reduce
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
from numpy.typing import NDArray
from tvm import relax, s_tir, te, tirx, topi
from tvm.s_tir.schedule import _type_checker

from adt.bundle.platforms import platform_named
from adt.compiler.importers.importer import import_model
from adt.compiler.ir.flops import SCHEDULED
from adt.compiler.ir.nodes import is_call, relax_nodes, tir_nodes
from adt.compiler.passes.cpu.recurrence import CpuSteps, is_recurrence
from adt.compiler.passes.cpu.schedules import scheduled
from adt.compiler.passes.cpu.vectors import Vectors, vectors_of
from adt.compiler.passes.fusion import folded_by_numpy
from adt.compiler.passes.gpu.choice import BY_MODEL
from adt.compiler.passes.pipeline import PreparedModule, prepare_module
from adt.compiler.passes.records.schedules import Untuned
from adt.compiler.targets.target import model_target
from adt.package.inspection.graph import CPU_SCHEDULE
from support.models import sequences, transformers, vision
from support.models.blocked import RANDOM, computed, conv, emitted, model, weight
from support.models.onnx_graphs import graph_of, joined, node, recurrent, write
from support.processors import PROCESSORS, runnable
from support.sampling import matrix, of_each_run


def _target(cpu: str) -> Any:
    return tvm.target.Target(model_target("cpu", platform_named("host"), 28, cpu=cpu).spec)


def test_each_processor_has_its_own_vectors() -> None:
    assert [vectors_of(_target(cpu)).lanes for cpu in PROCESSORS] == [4, 8, 16]


def _prepared(module: tvm.IRModule, params: Any, cpu: str) -> PreparedModule:
    target = model_target("cpu", platform_named("host"), 28, cpu=cpu)
    with _target(cpu):
        return prepare_module(module, params, target, 64, Untuned(), BY_MODEL)


def like_plain_loops(module: tvm.IRModule, shape: tuple[int, ...], cpu: str) -> list[str]:
    """Check the outputs of the scheduled *module*; return the names of its kernels that have no schedule."""
    prepared = _prepared(module, {}, cpu)
    with _target(cpu):
        kernels = prepared.relax_pipeline(prepared.module)
    tir = {name: kernel for name, kernel in kernels.functions.items() if isinstance(kernel, tirx.PrimFunc)}
    assert not any(map(nested_values, tir.values()))
    x = RANDOM.normal(size=shape).astype(np.float32)
    have = computed(kernels, x, *prepared.params.values(), target=_target(cpu), lowered=True)
    for mine, plain in zip(have, computed(module, x), strict=True):
        assert mine.shape == plain.shape and np.abs(plain).max() > 0
        np.testing.assert_allclose(mine, plain, rtol=1e-4, atol=2e-6 * np.abs(plain).max())
    return [name.name_hint for name, kernel in tir.items() if SCHEDULED not in (kernel.attrs or {})]


Body = Callable[[relax.BlockBuilder, Any], Any]


def _chain(*calls: Callable[[Any], Any]) -> Body:
    def body(builder: relax.BlockBuilder, x: Any) -> Any:
        for call in calls:
            x = emitted(builder, call(x))
        return x

    return body


def _bias(channels: int) -> Callable[[Any], Any]:
    return lambda x: relax.op.nn.relu(relax.op.add(x, weight(1, channels, 1, 1)))


def _transposed(x: Any, inputs: int, outputs: int, kernel: int, **options: Any) -> Any:
    return relax.op.nn.conv2d_transpose(x, weight(inputs, outputs, kernel, kernel), **options)


def _volumes(x: Any, outputs: int, inputs: int, **options: Any) -> Any:
    return relax.op.nn.conv3d(x, weight(outputs, inputs, 3, 3, 3), **{"padding": 1, **options})


def _shuffled(x: Any) -> Any:
    batch, channels, height, width = (int(extent) for extent in (1, 32, 9, 20))
    parts = relax.op.reshape(x, (batch, channels // 4, 2, 2, height, width))
    moved = relax.op.permute_dims(parts, [0, 1, 4, 2, 5, 3])
    return relax.op.reshape(moved, (batch, channels // 4, 2 * height, 2 * width))


def _joined(builder: relax.BlockBuilder, x: Any) -> Any:
    first = builder.emit(conv(x, 32, 16))
    second = builder.emit(conv(x, 12, 16, strides=2))
    larger = builder.emit(relax.op.image.resize2d(second, (9, 7), method="linear"))
    joined = builder.emit(relax.op.concat([first, larger, x], 1))
    return builder.emit(relax.op.nn.pad(joined, [0, 0, 0, 0, 1, 2, 3, 0]))


def _attended(builder: relax.BlockBuilder, x: Any) -> Any:
    """Multiply a map by another of a single channel."""
    maps = builder.emit(conv(x, 32, 16))
    places = builder.emit(relax.op.sigmoid(builder.emit(conv(maps, 1, 32))))
    return builder.emit(relax.op.multiply(maps, places))


def _less_scaled(builder: relax.BlockBuilder, x: Any) -> Any:
    """Subtract a scaled constant, one for each row, from a product."""
    product = builder.emit(relax.op.matmul(x, weight(12, 16)))
    scaled = builder.emit(relax.op.multiply(builder.emit(relax.op.max(x)), weight(20, 16)))
    return builder.emit(relax.op.subtract(product, scaled))


def _rolled(builder: relax.BlockBuilder, x: Any) -> Any:
    """Join windows of 7 × 7 to one map, rolled along both axes."""
    whole = builder.emit(relax.op.reshape(x, (1, 196, 32)))
    windows = builder.emit(relax.op.reshape(x, (1, 2, 2, 7, 7, 32)))
    moved = builder.emit(relax.op.permute_dims(windows, [0, 1, 3, 2, 4, 5]))
    rolled = builder.emit(relax.op.reshape(moved, (1, 14, 14, 32)))
    for axis in (1, 2):
        ends = [
            builder.emit(relax.op.strided_slice(rolled, [axis], [at], [to])) for at, to in ((11, 14), (0, 11))
        ]
        rolled = builder.emit(relax.op.concat(ends, axis))
    return builder.emit(relax.op.add(builder.emit(relax.op.reshape(rolled, (1, 196, 32))), whole))


def _heads(builder: relax.BlockBuilder, x: Any) -> Any:
    """Compute attention of three heads of 20 over 37 tokens, whose transpositions the products read."""
    parts = builder.emit(relax.op.reshape(x, (2, 37, 3, 20)))
    rows, columns = (
        builder.emit(relax.op.permute_dims(parts, axes)) for axes in ([0, 2, 1, 3], [0, 2, 3, 1])
    )
    shares = builder.emit(relax.op.nn.softmax(builder.emit(relax.op.matmul(rows, columns))))
    sums = builder.emit(relax.op.matmul(shares, rows))
    return builder.emit(relax.op.permute_dims(sums, [0, 2, 1, 3]))


def _standardized(
    axes: list[int], scale: tuple[int, ...], *, inverse: bool = False, centred: bool = True, own: bool = False
) -> Body:
    """Normalize by parts; *own*: by the operator for variances, *inverse*: by a product."""

    def body(builder: relax.BlockBuilder, x: Any) -> Any:
        emit = builder.emit
        difference = emit(relax.op.subtract(x, emit(relax.op.mean(x, axes, True)))) if centred else x
        square = emit(relax.op.power(difference, relax.const(2.0)))
        variance = emit(relax.op.variance(x, axes, True) if own else relax.op.mean(square, axes, True))
        deviation = emit(relax.op.sqrt(emit(relax.op.add(relax.const(1e-3), variance))))
        if inverse:
            whole = emit(relax.op.multiply(emit(relax.op.divide(relax.const(1.0), deviation)), difference))
        else:
            whole = emit(relax.op.divide(difference, deviation))
        return emit(relax.op.add(emit(relax.op.multiply(weight(*scale), whole)), weight(*scale)))

    return body


def _residual(builder: relax.BlockBuilder, x: Any) -> Any:
    first = builder.emit(conv(x, 32, 16))
    second = builder.emit(conv(first, 32, 32))
    return builder.emit(relax.op.nn.relu(builder.emit(relax.op.add(first, second))))


MODELS: dict[str, tuple[tuple[int, ...], Body]] = {
    "no tile divides": ((1, 16, 17, 13), _chain(lambda x: conv(x, 40, 16))),
    "stride": ((2, 16, 15, 15), _chain(lambda x: conv(x, 32, 16, strides=2))),
    "dilation": ((1, 16, 15, 15), _chain(lambda x: conv(x, 32, 16, dilation=2, padding=2))),
    "first layer": ((1, 3, 32, 32), _chain(lambda x: conv(x, 24, 3, 7, strides=2))),
    "points": ((1, 40, 14, 14), _chain(lambda x: conv(x, 24, 40, 1))),
    "points, stride": ((1, 32, 14, 14), _chain(lambda x: conv(x, 64, 32, 1, strides=2))),
    "groups": ((1, 64, 9, 9), _chain(lambda x: conv(x, 64, 32, groups=2))),
    "groups that share blocks": ((1, 16, 9, 9), _chain(lambda x: conv(x, 24, 8, groups=2))),
    "groups of three": ((2, 18, 9, 9), _chain(lambda x: conv(x, 18, 3, groups=6, strides=2))),
    "depthwise, two outputs each": ((1, 24, 9, 9), _chain(lambda x: conv(x, 48, 1, groups=24))),
    "transposed": ((1, 16, 9, 9), _chain(lambda x: _transposed(x, 16, 24, 2, strides=2))),
    "transposed, overlapping": (
        (2, 12, 7, 9),
        _chain(lambda x: _transposed(x, 12, 20, 3, strides=2, padding=1, output_padding=1)),
    ),
    "transposed, cut": ((1, 8, 9, 9), _chain(lambda x: _transposed(x, 8, 16, 4, strides=3, padding=4))),
    "transposed, one axis": (
        (1, 16, 20),
        _chain(lambda x: relax.op.nn.conv1d_transpose(x, weight(16, 24, 4), 2, 1)),
    ),
    "transposed, groups": ((1, 32, 9, 7), _chain(lambda x: _transposed(x, 32, 8, 3, strides=2, groups=4))),
    "transposed, depthwise": (
        (2, 20, 7, 7),
        _chain(lambda x: _transposed(x, 20, 1, 4, strides=2, padding=1, groups=20)),
    ),
    "transposed, wide groups": (
        (1, 32, 6, 6),
        _chain(lambda x: _transposed(x, 32, 32, 2, strides=2, groups=2)),
    ),
    "transposed, few channels": (
        (1, 32, 9, 9),
        _chain(lambda x: _transposed(x, 32, 3, 4, strides=2, padding=1)),
    ),
    "three axes": (
        (1, 3, 6, 9, 11),
        _chain(
            lambda x: _volumes(x, 24, 3, strides=(1, 2, 2)),
            lambda x: relax.op.nn.max_pool3d(x, (2, 2, 2), (2, 2, 2), ceil_mode=True),
            lambda x: _volumes(x, 24, 1, groups=24),
            lambda x: relax.op.nn.conv3d_transpose(x, weight(24, 16, 2, 2, 2), strides=2),
            lambda x: relax.op.nn.avg_pool3d(x, (3, 3, 3), (2, 2, 2), (1, 1, 1)),
            lambda x: relax.op.nn.pad(relax.op.nn.relu(x), [0, 0, 0, 0, 1, 0, 2, 1, 0, 0]),
            lambda x: _volumes(x, 32, 16, padding=0),
        ),
    ),
    "mish": (
        (1, 16, 9, 14),
        _chain(lambda x: relax.op.multiply(x, relax.op.tanh(relax.op.nn.softplus(x)))),
    ),
    "normalization of groups": (
        (1, 32, 128),
        _chain(lambda x: relax.op.subtract(x, relax.op.mean(x, [2], keepdims=True))),
    ),
    "wide prime": ((1, 32, 5, 71), _chain(lambda x: conv(x, 48, 32, 3), _bias(48))),
    "concatenation, upsampling, padding": ((1, 16, 9, 7), _joined),
    "rolled windows": ((4, 49, 32), _rolled),
    "repeated edges": (
        (2, 3, 4, 4),
        _chain(lambda x: relax.op.nn.pad(x, [0, 0, 0, 0, 3, 4, 1, 2], pad_mode="replicate")),
    ),
    "unpacked": ((1, 16, 9, 20), _chain(lambda x: conv(x, 32, 16, 1), _shuffled)),
    "depthwise": ((1, 40, 14, 14), _chain(lambda x: conv(x, 40, 1, groups=40))),
    "depthwise, stride": ((1, 32, 15, 15), _chain(lambda x: conv(x, 32, 1, 5, groups=32, strides=2))),
    "few channels": ((1, 2, 16, 16), _chain(lambda x: conv(x, 5, 2), lambda x: conv(x, 2, 5))),
    "one axis": (
        (1, 16, 50),
        _chain(lambda x: relax.op.nn.conv1d(x, weight(32, 16, 5), padding=2, strides=2)),
    ),
    "residual": ((1, 16, 14, 14), _residual),
    "one map for all channels": ((1, 16, 14, 14), _attended),
    "constants times a scalar": ((2, 20, 12), _less_scaled),
    "pools": (
        (1, 16, 16, 16),
        _chain(
            lambda x: conv(x, 32, 16),
            lambda x: relax.op.nn.max_pool2d(x, (3, 3), (2, 2), (1, 1)),
            lambda x: relax.op.nn.avg_pool2d(x, (2, 2), (2, 2)),
            lambda x: relax.op.mean(x, [2, 3]),
        ),
    ),
    "product": ((50, 64), _chain(lambda x: relax.op.matmul(x, weight(64, 96)))),
    "product of a vector": ((1, 512), _chain(lambda x: relax.op.matmul(x, weight(512, 1000)))),
    "attention": (
        (4, 20, 32),
        _chain(
            lambda x: relax.op.matmul(
                relax.op.nn.softmax(relax.op.matmul(x, relax.op.permute_dims(x, [0, 2, 1]))), x
            )
        ),
    ),
    "heads, 37 tokens": ((2, 37, 60), _heads),
    "product of tokens": ((1, 49, 25), _chain(lambda x: relax.op.matmul(weight(1, 30, 49), x))),
    "row by transposed rows": (
        (2, 3, 50, 64),
        _chain(
            lambda x: relax.op.matmul(
                relax.op.strided_slice(x, [2], [0], [1]), relax.op.permute_dims(x, [0, 1, 3, 2])
            )
        ),
    ),
    "softmax of channels": ((2, 11, 6, 20), _chain(lambda x: relax.op.nn.softmax(x, 1))),
    "softmax of columns": ((30, 7), _chain(lambda x: relax.op.nn.softmax(x, 0))),
    "largest number": ((3, 40, 192), _chain(lambda x: relax.op.max(x))),
    "sum to a number": ((2, 5, 192), _chain(lambda x: relax.op.sum(x))),
    "softmax of 197": ((3, 5, 197), _chain(lambda x: relax.op.nn.softmax(x, -1))),
    "softmax of 10": ((64, 10), _chain(lambda x: relax.op.nn.softmax(x, -1))),
    "layer norm of 77": (
        (3, 5, 77),
        _chain(lambda x: relax.op.nn.layer_norm(x, weight(77), weight(77), [-1])),
    ),
    "layer norm by parts": ((7, 96), _standardized([-1], (96,))),
    "root mean square": ((7, 100), _standardized([1], (100,), inverse=True, centred=False)),
    "instance norm": ((2, 3, 9, 13), _standardized([2, 3], (3, 1, 1), own=True)),
    "softmax": ((6, 40), _chain(lambda x: relax.op.nn.softmax(x, -1))),
    "long softmax": ((3, 1024), _chain(lambda x: relax.op.nn.softmax(x, -1))),
    "softmax on all threads": ((64, 1024), _chain(lambda x: relax.op.nn.softmax(x, -1))),
    "layer norm": ((5, 12, 64), _chain(lambda x: relax.op.nn.layer_norm(x, weight(64), weight(64), [-1]))),
    "softmax of heads": ((1, 4, 48, 48), _chain(lambda x: relax.op.nn.softmax(x, -1))),
    "long layer norm": (
        (40, 1024),
        _chain(lambda x: relax.op.nn.layer_norm(x, weight(1024), weight(1024), [-1])),
    ),
    "gelu": ((7, 96), _chain(lambda x: relax.op.nn.gelu(x))),
    "sum of all": ((8, 4096), _chain(lambda x: relax.op.sum(x, [1]))),
    "sum of an odd number": ((8, 33), _chain(lambda x: relax.op.sum(x, [1]))),
    "sums of rows": ((48, 100), _chain(lambda x: relax.op.sum(x, [1]))),
    "sums of odd rows": ((48, 199), _chain(lambda x: relax.op.sum(x, [-1], keepdims=True))),
    "sums of 9 and of 19": (
        (5, 9, 19),
        _chain(lambda x: relax.op.sum(x, [2]), lambda x: relax.op.sum(x, [1])),
    ),
    "sums over axes apart": ((9, 20, 37), _chain(lambda x: relax.op.sum(x, [0, -1]))),
    "means of maps": ((2, 20, 7, 11), _chain(lambda x: relax.op.mean(x, [2, 3]))),
    "maxima of maps": ((2, 20, 13, 11), _chain(lambda x: relax.op.max(x, [2, 3]))),
    "maximum of an odd number": ((3, 41, 189), _chain(lambda x: relax.op.max(x))),
    "variance of rows": (
        (20, 77),
        _chain(lambda x: relax.op.mean(relax.op.multiply(x, relax.op.exp(x)), [1])),
    ),
    "sums of 48 columns": ((33, 48), _chain(lambda x: relax.op.sum(x, [0]))),
    "sums of 200 columns": ((3, 20, 200), _chain(lambda x: relax.op.sum(x, [1]))),
    "maximum across": ((64, 48), _chain(lambda x: relax.op.max(x, [0]))),
    "transposition": ((3, 20, 24), _chain(lambda x: relax.op.permute_dims(x, [2, 0, 1]))),
    "scalar": ((4,), _chain(lambda x: relax.op.sum(x))),
}


@pytest.mark.parametrize(("name", "cpu"), matrix(MODELS, PROCESSORS))
def test_kernels_compute_what_plain_loops_do(name: str, cpu: str) -> None:
    shape, body = MODELS[name]

    loops = like_plain_loops(model(shape, body), shape, runnable(cpu))

    loops = [kernel for kernel in loops if not kernel.startswith("reshape")]  # views
    assert not loops or name == "scalar", f"{loops} have no schedule"


def _side_by_side(*write_layers: Callable[[Path], Path]) -> Callable[[Path], Path]:
    """Write one model of several: a compile for all of them."""

    def save(path: Path) -> Path:
        return write(joined([onnx.load(write_layer(path)) for write_layer in write_layers]), path)

    return save


def _recurrent(kind: str, layers: int = 1, **options: Any) -> Callable[[Path], Path]:
    return lambda path: sequences.recurrent(path, kind, layers, **options)


def _with_states(kind: str, gates: int, **options: Any) -> Callable[[Path], Path]:
    return lambda path: write(recurrent(kind, gates, **options), path)


NETWORKS: dict[str, Callable[[Path], Path]] = {
    "shuffled channels": lambda path: vision.shufflenet(path, 64, ((116, 2),)),
    "bert, decomposed": lambda path: sequences.bert(path, 1, decomposed=True),
    "step of gpt2": lambda path: transformers.gpt2_step(path, 1, 48, 3, 10, 100),
    "convnext": lambda path: transformers.convnext(path, (1,), 16, 48),
}
LARGER: dict[str, Callable[[Path], Path]] = {
    "generator": lambda path: vision.image_translation(path, 32),
    "vit": lambda path: transformers.vit(path, 1, 48, 3, 96),
}
"""Networks that bench/cpu.py times, of kernels that are among :data:`MODELS`."""
RECURRENT: dict[str, tuple[int, Callable[[Path], Path]]] = {
    "lstm": (
        6,
        _side_by_side(
            _recurrent("LSTM", 2, hidden=61),
            _recurrent("LSTM", hidden=400, steps=3),  # on all threads
            _recurrent("LSTM", batch=7),
            _recurrent("LSTM", hidden=100, directions=2),
            _recurrent("LSTM", hidden=80, batch=3),
            _with_states("LSTM", 4, direction="bidirectional"),
        ),
    ),
    "reset first": (
        4,
        _side_by_side(
            _recurrent("RNN", 2, hidden=40),
            _recurrent("GRU", hidden=48, linear=False),
            _recurrent("GRU", 2, directions=2, linear=False),
            _with_states("GRU", 3, direction="reverse"),
        ),
    ),
    "gru": (1, _with_states("GRU", 3, hidden=200, linear_before_reset=1)),
}
"""Recurrent layers, and the number of their kernels."""


def like_onnxruntime(path: Path, cpu: str) -> int:
    """Check the outputs of the model at *path* for random inputs; return the number of its recurrent kernels."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    feeds = {
        spec.name: RANDOM.integers(0, 2, spec.shape)
        if "int" in spec.type
        else RANDOM.normal(size=spec.shape).astype(np.float32)
        for spec in session.get_inputs()
    }
    imported = import_model(path, {}, CpuSteps())
    prepared = _prepared(imported.module, imported.params, cpu)
    built = tvm.compile(prepared.module, _target(cpu), relax_pipeline=prepared.relax_pipeline)
    tensors = map(tvm.runtime.tensor, feeds.values())
    result = relax.VirtualMachine(built, tvm.cpu())["main"](*tensors, *prepared.params.values())
    results = [result] if hasattr(result, "numpy") else list(result)
    for have, expected in zip(results, session.run(None, feeds), strict=True):
        np.testing.assert_allclose(have.numpy(), expected, rtol=1e-4, atol=5e-6 * np.abs(expected).max())
    recurrences = [kernel for kernel in prepared.plain.values() if is_recurrence(kernel)]
    assert not any(nested_values(scheduled(kernel, Vectors(4, 16))) for kernel in recurrences)
    return len(recurrences)


@pytest.mark.parametrize(
    ("name", "cpu"),
    [*matrix(NETWORKS, PROCESSORS), *of_each_run(0, *itertools.product(LARGER, PROCESSORS))],
)
def test_networks_compute_what_onnxruntime_does(name: str, cpu: str, tmp_path: Path) -> None:
    assert like_onnxruntime((NETWORKS | LARGER)[name](tmp_path / "m.onnx"), runnable(cpu)) == 0


@pytest.mark.parametrize(("name", "cpu"), matrix(RECURRENT, PROCESSORS))
def test_recurrent_layers_are_a_kernel_each(name: str, cpu: str, tmp_path: Path) -> None:
    kernels, save = RECURRENT[name]

    assert like_onnxruntime(save(tmp_path / "m.onnx"), runnable(cpu)) == kernels


@pytest.mark.parametrize(
    ("shape", "axes", "words", "lanes"),
    [
        ((48, 199), [1], "the terms of a sum in lanes", {16, 4}),
        ((2, 32, 7, 7), [2, 3], "the terms of a sum in lanes", {16, 4}),
        ((64, 1000), [1], "the terms of a sum in lanes", {64, 16, 4}),
        ((33, 48), [0], "48 sums in lanes", {16}),
        ((3, 20, 200), [1], "40 sums in lanes", {8}),
    ],
)
def test_sums_go_by_vectors_that_registers_hold(
    shape: tuple[int, ...], axes: list[int], words: str, lanes: set[int]
) -> None:
    """Gather no adjacent terms, and avoid vectors of 48, which LLVM keeps on the stack."""
    x = te.placeholder(shape, "float32")

    kernel = scheduled(te.create_prim_func([x, topi.sum(x, axes)]), Vectors(16, 32))

    loops = [loop for loop in tir_nodes(kernel.body, tirx.For) if loop.kind == tirx.ForKind.VECTORIZED]
    assert kernel.attrs[CPU_SCHEDULE] == words
    assert {int(loop.extent) for loop in loops} >= lanes
    assert all(int(loop.extent).bit_count() == 1 for loop in loops)


EXTREMA: dict[str, tuple[tuple[int, ...], list[int] | None]] = {
    "rows": ((6, 256), [1]),
    "odd rows": ((5, 199), [-1]),
    "columns": ((40, 6), [0]),
    "axis between": ((2, 20, 37), [1]),
    "48 columns": ((9, 48), [0]),
    "maps": ((3, 5, 7, 11), [2, 3]),
    "axes apart": ((3, 5, 7, 11), [0, -1]),
    "all": ((41, 33), None),
    "one element": ((5, 1), [1]),
    "few": ((7,), [0]),
}


@pytest.mark.parametrize(("name", "keepdims", "cpu"), matrix(EXTREMA, (0, 1), PROCESSORS))
def test_extrema_keep_nan_in_one_pass(name: str, keepdims: int, cpu: str, tmp_path: Path) -> None:
    """Compare with numpy, wherever NaN stands; onnxruntime keeps it in the first element only."""
    cpu = runnable(cpu)
    shape, axes = EXTREMA[name]
    more = {} if axes is None else {"axes": axes}
    nodes = [node(f"Reduce{op}", ["x"], [op], keepdims=keepdims, **more) for op in ("Max", "Min")]
    imported = import_model(
        write(graph_of(nodes, {"x": shape}, ["Max", "Min"], opset=13), tmp_path / "m.onnx"), {}
    )
    prepared = _prepared(imported.module, imported.params, cpu)
    pipelines = {"relax_pipeline": prepared.relax_pipeline, "tir_pipeline": prepared.tir_pipeline}
    main = relax.VirtualMachine(tvm.compile(prepared.module, _target(cpu), **pipelines), tvm.cpu())["main"]

    assert not [kernel for kernel in prepared.plain if "isnan" in kernel or "sum" in kernel]
    for special in (np.nan, -np.nan, np.inf, -np.inf):
        for spread in (1, 9, 1 << 20):
            x = RANDOM.normal(size=shape).astype(np.float32)
            x.flat[RANDOM.integers(0, x.size, -(-x.size // spread))] = special
            have = [part.numpy() for part in main(tvm.runtime.tensor(x), *prepared.params.values())]
            along = None if axes is None else tuple(axes)
            expected = [reduce(x, along, keepdims=bool(keepdims)) for reduce in (np.max, np.min)]
            for mine, right in zip(have, expected, strict=True):
                np.testing.assert_array_equal(mine, right)


@pytest.mark.parametrize(
    ("name", "exact", "units"),
    [
        ("exp", np.exp, 2),
        ("log", np.log, 2),
        ("sigmoid", lambda x: 1 / (1 + np.exp(-x)), 3),
        ("tanh", np.tanh, 7),
        ("erf", None, 8),
    ],
)
def test_polynomials_are_off_by_some_units_in_the_last_place(name: str, exact: Any, units: int) -> None:
    exact = exact or np.vectorize(math.erf)
    random = np.random.default_rng(0)
    small = 10.0 ** random.uniform(-8, 1, 1 << 14)
    values = [random.uniform(-86, 88.7, 1 << 14), random.normal(size=1 << 14) * 3, small, -small]
    if name == "log":
        values.append(10.0 ** random.uniform(-44, 38.5, 1 << 14))
    x = np.concatenate(values).astype(np.float32)
    x[:4] = [np.nan, np.inf, -np.inf, 0]
    data = te.placeholder(x.shape, "float32", name="x")
    function = te.create_prim_func(
        [data, te.compute(x.shape, lambda i: getattr(tirx, name)(data(i)), name="y")]
    )
    kernel = scheduled(function, Vectors(4, 16)).with_attr("global_symbol", "main")
    y = tvm.runtime.empty(x.shape, "float32")

    tvm.compile(tvm.IRModule({"main": kernel}), _target("nehalem"))["main"](tvm.runtime.tensor(x), y)

    have = y.numpy()
    with np.errstate(all="ignore"):
        expected = exact(x.astype(np.float64))
    known = slice(1 if name == "tanh" else 0, 4)  # tanh of NaN is a number
    np.testing.assert_allclose(have[known], expected[known])
    finite = np.isfinite(expected)
    off = np.abs(have - expected)[finite] / np.spacing(np.abs(expected[finite]).astype(np.float32))
    assert off.max() <= units, f"{off.max()} at {x[finite][off.argmax()]}"


FUNCTIONS: dict[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
    "exp": np.exp,
    "log": lambda x: np.log(np.maximum(x, 0.1)),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "erf": np.vectorize(math.erf),
    "mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
}


def _function(name: str, x: tirx.PrimExpr) -> tirx.PrimExpr:
    if name == "log":
        return tirx.log(tirx.max(x, tirx.const(0.1, "float32")))
    if name == "mish":
        one, limit = tirx.const(1, "float32"), tirx.const(20, "float32")
        return x * tirx.tanh(tirx.Select(x > limit, x, tirx.log(one + tirx.exp(x))))
    return getattr(tirx, name)(x)


def _chained(names: Sequence[str], data: te.Tensor, i: tirx.Var) -> tirx.PrimExpr:
    return reduce(lambda x, name: _function(name, x), names, data[i])


def _elements(extent: int, value: Callable[[te.Tensor, tirx.Var], tirx.PrimExpr]) -> tirx.PrimFunc:
    data = te.placeholder((extent,), "float32", name="x")
    return te.create_prim_func([data, te.compute((extent,), lambda i: value(data, i), name="y")])


def nested_values(function: tirx.PrimFunc) -> list[Any]:
    """List the variables whose values define others: TVM puts each value in wherever it is read."""
    lets = tir_nodes(function.body, tirx.Let)
    return [let.var for let in lets if tir_nodes(let.value, tirx.Let)]


@pytest.mark.parametrize("extent", [96, 3], ids=["vectors", "numbers"])
def test_functions_of_functions_are_computed_one_by_one(extent: int) -> None:
    x = RANDOM.normal(size=extent).astype(np.float32)
    module = {}
    for names in [*itertools.product(FUNCTIONS, repeat=2), ("tanh", "sigmoid", "mish", "erf")]:
        kernel = scheduled(_elements(extent, partial(_chained, names)), Vectors(4, 16))
        calls = [str(call.op.name) for call in tir_nodes(kernel.body, tirx.Call)]
        assert not nested_values(kernel)
        assert not set(calls) & {f"tirx.{name}" for name in FUNCTIONS}
        module["_of_".join(names)] = kernel.with_attr("global_symbol", "_of_".join(names))

    built = tvm.compile(tvm.IRModule(module), _target("nehalem"))

    for name in module:
        y = tvm.runtime.empty(x.shape, "float32")
        built[name](tvm.runtime.tensor(x), y)
        expected = reduce(lambda x, name: FUNCTIONS[name](x), name.split("_of_"), x.astype(np.float64))
        np.testing.assert_allclose(y.numpy(), expected, rtol=2e-5, atol=1e-6, err_msg=name)


def test_functions_of_functions_read_nothing_that_a_condition_keeps_from_them() -> None:
    def padded(data: te.Tensor, i: tirx.Var) -> tirx.PrimExpr:
        return tirx.if_then_else(i >= 4, tirx.tanh(tirx.sigmoid(data[i - 4])), tirx.const(0, "float32"))

    kernel = scheduled(_elements(96, padded), Vectors(4, 16))

    stores = tir_nodes(kernel.body, tirx.BufferStore)
    assert len(stores) == 2 and not nested_values(kernel)
    assert all(is_call(store.value, "tirx.if_then_else") for store in stores)


def test_batch_norms_that_follow_no_convolution_stay_in_blocks() -> None:
    """Import makes a tuple of a norm's result and its statistics, which nothing needs."""

    def normalized(x: relax.Var) -> relax.Expr:
        norm = relax.op.nn.batch_norm(
            x, *(relax.const(RANDOM.uniform(1, 2, 32).astype("f4")) for _ in range(4)), 1
        )
        return relax.op.nn.relu(relax.TupleGetItem(norm, 0))

    chain = _chain(lambda x: conv(x, 32, 16), relax.op.nn.max_pool2d, normalized, lambda x: conv(x, 32, 32))
    prepared = _prepared(model((1, 16, 9, 9), chain), {}, "nehalem")
    with _target("nehalem"):
        names = [name.name_hint for name in prepared.relax_pipeline(prepared.module).functions]
    assert sum("pack_blocks" in name for name in names) == 2, names  # the input's, and the output's


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int64"])
def test_moved_constants_are_folded_without_a_compiler(dtype: str) -> None:
    """Fold to the bit as TVM does by a kernel for each operator and shape."""
    builder = relax.BlockBuilder()
    with builder.function("main", []):
        with builder.dataflow():
            x = relax.const(np.arange(24).reshape(2, 3, 4).astype(dtype))
            y = builder.emit(relax.op.permute_dims(builder.emit(relax.op.permute_dims(x, [1, 2, 0]))))
            y = builder.emit(relax.op.expand_dims(builder.emit(relax.op.reshape(y, (8, -1))), [0, -1]))
            output = builder.emit_output(y)
        builder.emit_func_output(output)
    moves = builder.get()

    folded = folded_by_numpy()(moves)

    assert not relax_nodes(folded["main"], relax.Call)
    with _target("nehalem"):
        fold = tvm.transform.Sequential(
            [relax.transform.FoldConstant(), relax.transform.DeadCodeElimination()]
        )
        tvm.ir.assert_structural_equal(fold(folded), fold(moves))


def test_annotations_of_schedules_are_taken_apart_once() -> None:
    function = te.create_prim_func([x := te.placeholder((8,)), te.compute((8,), lambda i: x[i] + 1, "y")])
    schedule = s_tir.Schedule(function)
    schedule.split(schedule.get_loops("y")[0], [2, None])
    before = _type_checker._dispatcher.cache_info().misses

    schedule.split(schedule.get_loops("y")[0], [1, None])

    assert _type_checker._dispatcher.cache_info().misses == before
    with pytest.raises(TypeError, match=r'"loop" has wrong type\. Expected "LoopRV", but gets: "str"'):
        schedule.split("y", [2, None])


def test_constants_of_batch_norms_are_folded_without_a_compiler() -> None:
    """Fold to the bit as TVM does by a kernel for each operator and shape."""
    x = relax.Var("x", relax.TensorStructInfo((1, 12, 5, 5), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            gamma, beta, mean = (weight(12) for _ in range(3))
            norm = relax.op.nn.batch_norm(x, gamma, beta, mean, relax.const(np.float32([0.5, 0, 2] * 4)), 1)
            y = builder.emit(relax.op.nn.relu(builder.emit(relax.TupleGetItem(builder.emit(norm), 0))))
            output = builder.emit_output(y)
        builder.emit_func_output(output)
    decomposed = relax.transform.DecomposeOpsForInference()(builder.get())
    fold = relax.transform.FoldConstant()

    folded = folded_by_numpy()(decomposed)

    bound = {binding.var: binding.value for block in folded["main"].body.blocks for binding in block.bindings}
    calls = [call for call in bound.values() if isinstance(call, relax.Call)]
    assert len(calls) < len(relax_nodes(decomposed["main"], relax.Call))
    for call in calls:
        args = [bound.get(arg, arg) for arg in call.args]
        assert not all(isinstance(arg, relax.Constant) for arg in args), f"{call.op} is left to compile"
    with _target("nehalem"):
        tvm.ir.assert_structural_equal(fold(folded), fold(decomposed))
