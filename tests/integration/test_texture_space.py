"""Kernels with images are tuned among schedules that use the images rightly, and compute what they should."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import tvm
import tvm_ffi
from tvm import te, tirx, topi

from adt.compiler.passes.gpu.placement import with_images
from adt.compiler.passes.gpu.schedules import prove, schedule_of
from adt.compiler.passes.layout import blocks
from adt.compiler.passes.records.schedules import load_intrinsics, schedule_by_record
from adt.compiler.passes.scheduling import Decisions
from adt.compiler.targets.gpu import gpu_of
from adt.tuning.candidates import NoSpace
from adt.tuning.search.design_space import Point, rule_space, uses_texels
from adt.tuning.search.strategies import SearchOptions
from adt.tuning.search.task_search import Searches
from support.models.gpu_kernels import ADRENO, check_schedules
from support.sampling import of_each_run


def image(*shape: int) -> Any:
    return te.placeholder((*shape, 4), "float32", name=f"x{len(shape)}_{shape[1]}")


def convolution(blocks_in: int, rows: int, columns: int, blocks_out: int, *, stride: int = 1) -> Any:
    """Build 3 x 3 with padding, a residual and a ReLU; data, residual and result are images."""
    x = image(1, blocks_in, rows, columns)
    weight = te.placeholder((blocks_out, 9, blocks_in * 4, 4), "float32", name="w")
    window = blocks.Window((3, 3), (stride, stride), (1, 1), (1, 1), (1, 1))
    sums = blocks.convolution(x, weight, window, 1, "float32")
    residual = te.placeholder(sums.shape, "float32", name="residual")
    result = te.compute(sums.shape, lambda *at: te.max(sums(*at) + residual(*at), 0.0), name="relu")
    return with_images(te.create_prim_func([x, weight, residual, result]), (True, False, True, True))


def depthwise() -> Any:
    x = image(1, 3, 9, 14)
    weight = te.placeholder((1, 3, 9, 4), "float32", name="w")
    window = blocks.Window((3, 3), (1, 1), (1, 1), (1, 1), (1, 1))
    result = blocks.convolution(x, weight, window, 12, "float32")
    return with_images(te.create_prim_func([x, weight, result]), (True, False, True))


def pooling(size: int = 13) -> Any:
    x = image(2, 3, size, size)
    result = blocks.pool(x, blocks.Window((3, 3), (2, 2), (1, 1), (1, 1), (1, 1)), "max", False)
    return with_images(te.create_prim_func([x, result]), (True, True))


def error_function() -> Any:
    """Build erf, which cannot be a vector: lane by lane, and a texel is stored."""
    x = image(1, 2, 6, 10)
    result = te.compute(x.shape, lambda *at: tirx.erf(x(*at)), name="y")
    return with_images(te.create_prim_func([x, result]), (True, True))


def unpacking() -> Any:
    x = image(1, 3, 5, 7)
    return with_images(te.create_prim_func([x, blocks.unpack(x, 10)]), (True, False))


def points_of(function: Any, count: int = 1) -> list[Point]:
    """Return the compiler's own schedule, and up to *count* other values of each decision."""
    space = rule_space(function, ADRENO)
    assert space
    first = space.point({})
    assert first
    places = [
        {decision: place}
        for decision, ways in first.ways.items()
        for place in range(len(ways) - 1, max(0, len(ways) - 1 - count), -1)
    ]
    return [first, *filter(None, map(space.point, places))]


@pytest.mark.parametrize(
    ("make", "decisions"),
    [
        (lambda: convolution(4, 8, 14, 2), {"tile", "group", "fours", "unroll"}),
        (lambda: convolution(1, 8, 8, 2), {"tile", "group", "fours", "unroll"}),
        (depthwise, {"tile", "group", "fours", "unroll"}),
        (pooling, {"wide", "group", "unroll"}),
        (error_function, {"wide", "group"}),
        (unpacking, {"items"}),
    ],
    ids=["convolution", "few channels", "depthwise", "pooling", "by lane", "to a buffer"],
)
def test_every_schedule_of_a_space_uses_its_images_rightly_and_can_be_recorded(
    make: Callable[[], Any], decisions: set[str]
) -> None:
    function = make()
    assert uses_texels(function, ADRENO)
    load_intrinsics()

    first, *others = points_of(function)

    assert set(first.ways) == decisions
    assert len(others) >= sum(len(ways) > 1 for ways in first.ways.values()) - 1 > -1
    for point in (first, *others):
        module = tvm.ir.load_json(point.candidate.module)
        prove(module["main"], ADRENO)
        again = schedule_by_record(tvm.IRModule({"main": function}), point.candidate.trace)
        tvm.ir.assert_structural_equal(again, module)
    modules = {tvm_ffi.structural_hash(tvm.ir.load_json(p.candidate.module)) for p in (first, *others)}
    assert len(modules) == 1 + len(others)


@pytest.mark.parametrize("make", [lambda: convolution(4, 8, 14, 2), depthwise, pooling, error_function])
def test_a_search_begins_with_what_compiling_takes(make: Callable[[], Any]) -> None:
    function = make()
    task: Any = SimpleNamespace(name="kernel", module=tvm.IRModule({"main": function}))
    target = {name: value for name, value in ADRENO.export().items() if name != "tag"}
    gpu = gpu_of("adreno", {"max_num_threads": int(ADRENO.attrs["max_num_threads"])})

    first, *_ = Searches(target, SearchOptions(cost_model="none")).search(task).next_batch(4) or ()

    _, usual = schedule_of(function, ADRENO, gpu, Decisions())
    tvm.ir.assert_structural_equal(tvm.ir.load_json(first.module)["main"], usual)


def test_what_cannot_write_texels_has_no_space() -> None:
    x = image(2, 4, 4)
    function = with_images(te.create_prim_func([x, topi.nn.softmax(x, 3)]), (True, True))

    with pytest.raises(NoSpace, match="reductions"):
        rule_space(function, ADRENO)


@pytest.mark.parametrize(
    ("make", "count"),
    [
        (lambda: convolution(4, 11, 6, 2), 1),
        (unpacking, 1),
        *of_each_run(
            0,
            (lambda: convolution(4, 11, 6, 2), 6),
            (lambda: convolution(8, 14, 14, 8, stride=2), 6),
            (lambda: convolution(1, 13, 26, 3), 6),
            *((make, 6) for make in (depthwise, pooling, error_function, unpacking)),
        ),
    ],
)
def test_candidates_compute_what_the_kernel_computes(make: Callable[[], Any], count: int) -> None:
    function = make()
    modules = [tvm.ir.load_json(point.candidate.module) for point in points_of(function, count)]
    check_schedules(function, [module["main"] for module in modules])
