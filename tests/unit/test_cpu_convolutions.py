"""Schedules of convolutions for CPUs: what they copy, and of how many axes their positions are."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
from tvm import te

from adt.compiler.passes.cpu.schedules import scheduled
from adt.compiler.passes.cpu.vectors import Vectors
from adt.compiler.passes.layout.blocks import Blocking, Window, convolution
from adt.package.inspection.graph import CPU_SCHEDULE

AVX512, AVX2, SSE = Vectors(16, 32), Vectors(8, 16), Vectors(4, 16)
NEON = Vectors(4, 32, by_element=True)
SIDE = 7


def temporaries(
    vectors: Vectors, blocks: int, size: int, fused: Callable[..., Any], *, depthwise: bool = False
) -> set[tuple[int, ...]]:
    """Return the shapes of what a convolution with a window of *size*, and *fused* behind it, stores on the way."""
    lanes, border = vectors.lanes, size // 2
    channels, shape = blocks * lanes, (1, blocks, SIDE, SIDE, lanes)
    weights = (1, blocks, size * size, lanes) if depthwise else (blocks, size * size, channels, lanes)
    x, other, weight = map(te.placeholder, (shape, shape, weights))
    window = Window((size, size), (1, 1), (border, border), (border, border), (1, 1))
    blocking = Blocking(lanes, least=lanes, rounds=False)
    y = convolution(x, weight, window, channels if depthwise else 1, "float32", blocking)
    out = te.compute(y.shape, functools.partial(fused, y, other), name="out")
    kernel = scheduled(te.create_prim_func([x, weight, other, out]), vectors)
    assert "at once" in kernel.attrs[CPU_SCHEDULE]  # by the rule for convolutions
    return {tuple(map(int, buffer.shape)) for buffer in kernel.body.block.alloc_buffers}


def added(y: Any, other: Any, *at: Any) -> Any:
    return y(*at) + other(*at)


def added_elsewhere(y: Any, other: Any, n: Any, c: Any, h: Any, w: Any, lane: Any) -> Any:
    return y(n, c, h, w, lane) + other(n, c, h // 2, w // 2, lane)


@pytest.mark.parametrize("vectors", [AVX512, AVX2, SSE])
def test_positions_without_a_window_are_one_row(vectors: Vectors) -> None:
    rows = (1, 32, SIDE, SIDE, vectors.lanes)
    assert temporaries(vectors, 32, 1, added) == {(1, 32, SIDE * SIDE, vectors.lanes)}
    assert temporaries(vectors, 32, 1, added_elsewhere) == {rows}
    assert rows in temporaries(vectors, 32, 3, added)


def test_one_row_leaves_work_for_several_threads() -> None:
    """Choose tiles for 49 positions, which 3 positions and 4 blocks do not divide: 8 blocks would be two tasks."""
    assert temporaries(AVX2, 8, 1, added) == {(1, 8, SIDE, SIDE, 8)}


@pytest.mark.parametrize("vectors", [AVX512, AVX2, SSE])
def test_depthwise_convolutions_copy_no_border(vectors: Vectors) -> None:
    sums = (1, 8, SIDE, SIDE, vectors.lanes)
    assert temporaries(vectors, 8, 3, added, depthwise=True) == {sums}


def test_depthwise_convolutions_copy_the_border_on_arm() -> None:
    """Copy the border, without which LLVM spills registers."""
    bordered = (1, 8, SIDE + 2, SIDE + 2, 4)
    assert bordered in temporaries(NEON, 8, 3, added, depthwise=True)
