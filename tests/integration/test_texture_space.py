"""Kernels with images are tuned among schedules that use the images rightly, and compute what they should."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, tirx
from tvm.s_tir import Schedule, meta_schedule

from adt.bundle.plugins import load_plugin, opencl_runtime
from adt.compiler.passes.gpu.placement import with_images
from adt.compiler.passes.gpu.schedules import prove
from adt.compiler.passes.gpu.tiles import MOST_WIDE
from adt.compiler.passes.layout import blocks
from adt.compiler.passes.lowering import tir_pipeline
from adt.compiler.passes.records.schedules import load_intrinsics
from adt.compiler.passes.records.traces import apply_trace, trace_text
from adt.compiler.passes.scheduling import NoSchedule
from adt.tuning.search.strategies import STEPS
from adt.tuning.search.task_search import Searches, SearchOptions
from adt.tuning.space.texture_space import MAX_STATEMENTS, statements, texture_space, uses_texels

TARGET = tvm.target.Target(
    {
        "kind": "opencl",
        "device": "adreno",
        "keys": ["adreno", "opencl", "gpu", "texture"],
        "host": {"kind": "llvm"},
    }
)


def image(*shape: int) -> Any:
    return te.placeholder((*shape, 4), "float32", name=f"x{len(shape)}_{shape[1]}")


def convolution(blocks_in: int, rows: int, columns: int, blocks_out: int, *, stride: int = 1) -> Any:
    """3 x 3 with padding, a residual and a ReLU; data, residual and result are images."""
    x = image(1, blocks_in, rows, columns)
    weight = te.placeholder((blocks_out, 9, blocks_in * 4, 4), "float32", name="w")
    window = blocks.Window((3, 3), (stride, stride), (1, 1), (1, 1), (1, 1))
    sums = blocks.convolution(x, weight, window, 1, "float32")
    residual = te.placeholder(sums.shape, "float32", name="residual")
    made = te.compute(sums.shape, lambda *at: te.max(sums(*at) + residual(*at), 0.0), name="relu")
    return with_images(te.create_prim_func([x, weight, residual, made]), (True, False, True, True))


def depthwise() -> Any:
    x = image(1, 3, 9, 14)
    weight = te.placeholder((1, 3, 9, 4), "float32", name="w")
    window = blocks.Window((3, 3), (1, 1), (1, 1), (1, 1), (1, 1))
    made = blocks.convolution(x, weight, window, 12, "float32")
    return with_images(te.create_prim_func([x, weight, made]), (True, False, True))


def pooling(size: int = 13) -> Any:
    x = image(2, 3, size, size)
    made = blocks.pool(x, blocks.Window((3, 3), (2, 2), (1, 1), (1, 1), (1, 1)), "max", False)
    return with_images(te.create_prim_func([x, made]), (True, True))


def error_function() -> Any:
    """No vector can be computed of it: lane by lane, and a texel is stored."""
    x = image(1, 2, 6, 10)
    made = te.compute(x.shape, lambda *at: tirx.erf(x(*at)), name="y")
    return with_images(te.create_prim_func([x, made]), (True, True))


def unpacking() -> Any:
    """From an image to a buffer of another form."""
    x = image(1, 3, 5, 7)
    return with_images(te.create_prim_func([x, blocks.unpack(x, 10)]), (True, False))


def sampled(function: Any, count: int, seed: int = 3) -> list[list[Any]]:
    """For each of the design spaces of *function*, *count* schedules drawn from it."""
    load_intrinsics()
    module = tvm.IRModule({"main": function})
    drawn = []
    generator = texture_space(function, TARGET)
    for number in range(len(spaces_of(function, generator))):
        context = meta_schedule.TuneContext(
            module,
            target=TARGET,
            space_generator=generator,
            search_strategy="replay-trace",
            rand_state=seed,
            num_threads=1,
        )
        context.pre_tuning(100, count, [context.generate_design_space()[number]], None, None)
        drawn.append([candidate.sch for candidate in context.generate_measure_candidates() or ()])
        context.post_tuning()
    return drawn


def spaces_of(function: Any, generator: Any) -> list[Any]:
    load_intrinsics()
    context = meta_schedule.TuneContext(
        tvm.IRModule({"main": function}), target=TARGET, space_generator=generator, num_threads=1
    )
    return list(context.generate_design_space())


@pytest.mark.parametrize(
    ("make", "spaces"),
    [
        (lambda: convolution(4, 8, 14, 2), 2),  # each sum is one work-item's, or shared
        (lambda: convolution(1, 8, 8, 2), 1),  # four channels are too few to share
        (depthwise, 1),
        (pooling, 1),
        (lambda: pooling(25), 2),  # the other with 13 rows and columns rounded up
        (error_function, 1),
        (unpacking, 1),
    ],
    ids=["convolution", "few channels", "depthwise", "pooling", "13 rows", "by lane", "to a buffer"],
)
def test_every_schedule_of_a_space_uses_its_images_rightly(make: Callable[[], Any], spaces: int) -> None:
    function = make()
    assert uses_texels(function, TARGET)

    drawn = sampled(function, 8)

    assert len(drawn) == spaces
    for schedules in drawn:
        assert schedules
        for schedule in schedules:
            prove(schedule.mod["main"], TARGET)
            assert statements(schedule.mod["main"]) <= MAX_STATEMENTS


def test_a_search_begins_with_what_compiling_takes_and_with_what_is_near() -> None:
    function = convolution(4, 8, 14, 2)
    task = SimpleNamespace(name="conv", module=tvm.IRModule({"main": function}))
    target = {name: value for name, value in TARGET.export().items() if name != "tag"}
    searching = Searches(target, SearchOptions(cost_model="none")).search(task)
    spaces = spaces_of(function, texture_space(function, TARGET))

    first = searching.next_batch(8) or ()

    usual = [decisions(trace_text(space.trace)) for space in spaces]
    found = [decisions(candidate.trace) for candidate in first]
    assert len(first) == 8 and found[: len(usual)] == usual
    for near in found[len(usual) :]:
        steps = [
            sum(a != b for a, b in zip(near, one, strict=True)) for one in usual if len(one) == len(near)
        ]
        assert 1 <= min(steps) <= STEPS + 1  # what is left of the channels follows their parts


def decisions(trace: str) -> list[Any]:
    return [decision for _, decision in json.loads(trace)[1]]


def test_a_record_s_trace_gives_the_schedule_again() -> None:
    function = convolution(4, 11, 8, 2)

    for schedules in sampled(function, 2):
        for schedule in schedules:
            again = apply_trace(tvm.IRModule({"main": function}), trace_text(schedule.trace))
            tvm.ir.assert_structural_equal(again, schedule.mod)


def test_a_search_may_change_one_decision_of_a_schedule() -> None:
    function = convolution(4, 8, 14, 2)
    [space, *_] = spaces_of(function, texture_space(function, TARGET))
    mutator = meta_schedule.mutator.MutateTileSize()
    seen = set()
    trace = space.trace
    for _ in range(20):
        trace = mutator.apply(trace) or trace
        schedule = Schedule(tvm.IRModule({"main": function}))
        trace.apply_to_schedule(schedule, remove_postproc=False)
        prove(schedule.mod["main"], TARGET)
        seen.add(trace_text(trace))
        tiles = [list(map(int, tile)) for tile in trace.decisions.values() if not isinstance(tile, int)]
        assert all(tile[-1] <= MOST_WIDE for tile in tiles)
    assert len(seen) > 5


def test_what_cannot_write_texels_has_no_space() -> None:
    from tvm import topi

    x = image(2, 4, 4)
    function = with_images(te.create_prim_func([x, topi.nn.softmax(x, 3)]), (True, True))

    with pytest.raises(NoSchedule, match="reductions"):
        texture_space(function, TARGET)


def computed(module: Any, target: Any, device: Any, arrays: list[Any], scopes: list[str]) -> Any:
    textures = "global.texture" in scopes
    pipeline = tir_pipeline(64, textures=textures)
    main = module["main"].with_attr({"global_symbol": "main", "tirx.noalias": True})
    built = tvm.compile(tvm.IRModule({"main": main}), target=target, tir_pipeline=pipeline)
    tensors = []
    for array, scope in zip(arrays, scopes, strict=True):
        tensors.append(
            tvm.runtime.empty(array.shape, "float32", device, mem_scope=scope if textures else None).copyfrom(
                array
            )
        )
    built["main"](*tensors)
    device.sync()
    return tensors[-1].numpy()


def check_numbers(function: Any, count: int) -> None:
    load_plugin(opencl_runtime())
    random = np.random.default_rng(0)
    buffers = [function.buffer_map[parameter] for parameter in function.params]
    arrays = [random.uniform(-1, 1, [int(n) for n in buffer.shape]).astype("float32") for buffer in buffers]
    plain = with_images(function, (False,) * len(buffers))
    llvm = tvm.target.Target({"kind": "llvm"})
    right = computed(tvm.IRModule({"main": plain}), llvm, tvm.cpu(), arrays, ["global"] * len(buffers))
    arrays[-1] = np.full_like(arrays[-1], np.nan)
    scopes = [buffer.scope() for buffer in buffers]
    for schedules in sampled(function, count):
        for schedule in schedules:
            made = computed(schedule.mod, TARGET, tvm.opencl(), arrays, scopes)
            np.testing.assert_allclose(made, right, atol=1e-4, err_msg=str(schedule.trace))


def test_candidates_compute_what_the_kernel_computes() -> None:
    check_numbers(convolution(4, 11, 6, 2), 1)
    check_numbers(unpacking(), 1)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "make",
    [
        lambda: convolution(4, 11, 6, 2),
        lambda: convolution(8, 14, 14, 8, stride=2),
        lambda: convolution(1, 13, 26, 3),
        depthwise,
        pooling,
        error_function,
        unpacking,
    ],
)
def test_many_candidates_compute_what_the_kernel_computes(make: Callable[[], Any]) -> None:
    check_numbers(make(), 6)
