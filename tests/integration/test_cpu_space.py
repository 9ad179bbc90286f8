"""Kernels for CPUs are tuned among tiles: the first is the untuned one, all compute what they should."""

import contextlib
import logging
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te

import adt
from adt.compiler.networks.builder import Network
from adt.compiler.passes.cpu.schedules import scheduled
from adt.compiler.passes.cpu.vectors import vectors_of
from adt.compiler.passes.layout import blocks
from adt.compiler.passes.records.schedules import load_intrinsics, schedule_by_record
from adt.compiler.passes.records.traces import check_trace
from adt.compiler.passes.records.trial import Trials, without_instructions
from adt.compiler.passes.records.workload import same, workload
from adt.package.inspection.graph import CPU_SCHEDULE
from adt.tuning.candidates import Candidate, CandidateResult, Measurement, NoSpace
from adt.tuning.records import Context, Failure, Record
from adt.tuning.search.design_space import RuleSpace, rule_space
from adt.tuning.search.strategies import SearchOptions
from adt.tuning.search.task_search import Effects, Searches, TileSearch
from support.models.blocked import PLAIN
from support.sampling import matrix, of_each_run

HERE, THERE = (Context("target", "0.25.0", name, "") for name in ("here", "there"))
TARGETS = {
    "x86": {"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "haswell"},
    "arm": {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mattr": ["+neon"]},
}


PAIRS = blocks.Terms(2, "int16", "int8")
ON_ARM = {
    "smull": ("+neon", blocks.Terms(2, "int8", "int8", steps=2)),
    "sdot": ("+dotprod", blocks.Terms(4, "int8", "int8")),
    "smmla": ("+i8mm", blocks.Terms(8, "int8", "int8", rows=2)),
}
"""Instruction to the feature with which it is there, and what it sums."""


def convolution(lanes: int = 8, *, depthwise: bool = False, stride: int = 1, taps: int = 3) -> Any:
    """Build a convolution with padding and a ReLU; 16 channels of 13 × 10 pixels, 32 (or 16) out."""
    x = te.placeholder((1, 16 // lanes, 13, 10, lanes), "float32", name="x")
    shape = (1, 16 // lanes, taps**2, lanes) if depthwise else (32 // lanes, taps**2, 16, lanes)
    weight = te.placeholder(shape, "float32", name="w")
    border = taps // 2
    window = blocks.Window((taps, taps), (stride, stride), (border, border), (border, border), (1, 1))
    blocking = blocks.Blocking(lanes, least=1, rounds=False)
    sums = blocks.convolution(x, weight, window, 16 if depthwise else 1, "float32", blocking)
    relu = te.compute(sums.shape, lambda *at: te.max(sums(*at), 0.0), name="relu")
    return te.create_prim_func([x, weight, relu])


FUNCTIONS = {
    "3x3": lambda lanes: convolution(lanes),
    "stride 2": lambda lanes: convolution(lanes, stride=2),
    "1x1": lambda lanes: convolution(lanes, taps=1),
    "depthwise": lambda lanes: convolution(lanes, depthwise=True),
    "depthwise 5x5, stride 2": lambda lanes: convolution(lanes, depthwise=True, taps=5, stride=2),
}


def space_of(function: Any, target: str) -> RuleSpace:
    space = rule_space(workload(function)["main"], tvm.target.Target(TARGETS[target]))
    assert space
    return space


@pytest.mark.parametrize(("name", "target"), matrix(FUNCTIONS, TARGETS))
def test_the_first_of_a_space_is_the_untuned_kernel_and_records_give_what_was_measured(
    name: str, target: str
) -> None:
    vectors = vectors_of(tvm.target.Target(TARGETS[target]))
    function = workload(FUNCTIONS[name](vectors.lanes))["main"]
    space = space_of(function, target)
    first = space.point({})
    assert first
    usual = tvm.IRModule({"main": scheduled(function, vectors)})
    assert same(tvm.ir.load_json(first.candidate.module), usual)
    for decision, ways in first.ways.items():
        other = space.point({decision: len(ways) - 1})
        if other and len(ways) > 1:
            check_trace(other.candidate.trace)
            again = schedule_by_record(workload(function), other.candidate.trace)
            assert same(again, tvm.ir.load_json(other.candidate.module))
            assert not same(again, usual)


def of_bytes(data: str = "uint8", lanes: int = 8, terms: blocks.Terms = PAIRS) -> Any:
    """Build a 3×3 convolution of bytes padded with the zero point 3: 16 channels in, 32 out."""
    x = te.placeholder((1, 16 // lanes, 12, 10, lanes), data, name="x")
    shape = (32 // lanes, 9, 16 // terms.count, lanes, terms.count)
    weight = te.placeholder(shape, terms.weights, name="w")
    window = blocks.Window((3, 3), (1, 1), (1, 1), (1, 1), (1, 1), border=3)
    sums = blocks.convolution_of_terms(x, weight, window, terms)
    return te.create_prim_func([x, weight, te.compute(sums.shape, lambda *at: sums(*at) + 1, name="more")])


def test_sums_of_whole_numbers_have_a_space_and_records() -> None:
    """Use AVX2 in a process that knows adt's instructions by their names."""
    load_intrinsics(TARGETS["x86"]["mtriple"])
    function = workload(of_bytes())
    space = space_of(of_bytes(), "x86")
    random = np.random.default_rng(0)
    x, weight = (
        tvm.runtime.tensor(random.integers(*limits, shape).astype(dtype))
        for limits, shape, dtype in (
            ((0, 256), (1, 2, 12, 10, 8), "uint8"), ((-128, 128), (4, 9, 8, 8, 2), "int8"),
        )
    )  # fmt: skip

    def computed(module: Any) -> np.ndarray:
        result = tvm.runtime.tensor(np.full((1, 4, 12, 10, 8), -1, np.int32))
        tvm.compile(module, target=tvm.target.Target(TARGETS["x86"]))["main"](x, weight, result)
        return result.numpy()

    expected = computed(function)
    first = space.point({})
    assert first and "llvm.x86.avx2.pmadd.wd" in first.candidate.trace
    points = [first, *(space.point({decision: len(ways) - 1}) for decision, ways in first.ways.items())]
    assert len(points) > 2
    for point in filter(None, points):
        check_trace(point.candidate.trace)
        again = schedule_by_record(function, point.candidate.trace)
        assert same(again, tvm.ir.load_json(point.candidate.module))
        np.testing.assert_array_equal(computed(again), expected)


@pytest.mark.parametrize("instruction", ON_ARM)
def test_what_is_decided_for_arm_can_be_recorded_and_is_seen_to_be_right(
    instruction: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Check Arm's schedules on this machine, whatever its processor is."""
    caplog.set_level(logging.DEBUG, "adt.compile")
    feature, terms = ON_ARM[instruction]
    description = {
        **TARGETS["arm"],
        "mattr": ["+neon", "+dotprod", feature] if terms.count > 2 else [feature],
    }
    load_intrinsics(description["mtriple"])
    function = workload(of_bytes("int8", 4, terms))

    space = rule_space(function["main"], tvm.target.Target(description))

    first = space.point({})
    assert first and f"llvm.aarch64.neon.{instruction}." in first.candidate.trace
    for decision, ways in first.ways.items():
        point = space.point({decision: len(ways) - 1})
        assert point
        check_trace(point.candidate.trace)
        again = schedule_by_record(function, point.candidate.trace)
        assert same(again, tvm.ir.load_json(point.candidate.module))
        portable = schedule_by_record(function, without_instructions(point.candidate.trace))
        assert not same(portable, again)
        with contextlib.closing(Trials(description)) as trials:
            assert trials.fault(function, again, portable) == ""
        assert "is not compared" not in caplog.text


@pytest.mark.parametrize(
    ("name", "other"), [*matrix(FUNCTIONS, (1, -1)), *of_each_run(0, *((name, 0) for name in FUNCTIONS))]
)
def test_all_that_may_be_decided_computes_the_same(name: str, other: int) -> None:
    """Compare values of one decision, and of all decisions at a time, with TVM's plain loops.

    *other* is the value of each decision, the first one behind the usual or the last; 0: all values.
    """
    function = FUNCTIONS[name](8)
    target = tvm.target.Target(TARGETS["x86"])
    space = space_of(function, "x86")
    random = np.random.default_rng(0)
    shapes = [tuple(map(int, function.buffer_map[each].shape)) for each in function.params]
    x, weight = (tvm.runtime.tensor(random.normal(size=shape).astype(np.float32)) for shape in shapes[:2])

    def computed(module: Any, target: Any = target) -> np.ndarray:
        result = tvm.runtime.tensor(np.full(shapes[2], np.nan, np.float32))
        tvm.compile(module, target=target)["main"](x, weight, result)
        return result.numpy()

    expected = computed(workload(function), tvm.target.Target(PLAIN))
    first = space.point({})
    assert first
    counts = {decision: len(ways) for decision, ways in first.ways.items()}
    places = [
        {decision: place}
        for decision, count in counts.items()
        for place in range(1, count)
        if (place == other % count if other else place < 10)
    ]
    places += [
        {decision: random.integers(count) for decision, count in counts.items()}
        for _ in range(4 if other else 15)
    ]
    points = [point for each in places if (point := space.point(each))]
    assert len(points) >= (5 if other else 8)
    for point in points:
        result = computed(tvm.ir.load_json(point.candidate.module))
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5, err_msg=point.candidate.trace)


def test_only_kernels_of_rules_that_leave_something_open_have_tiles() -> None:
    x = te.placeholder((64, 64), "float32", name="x")
    twice = te.create_prim_func([x, te.compute(x.shape, lambda i, j: x[i, j] * 2.0, name="y")])
    assert rule_space(twice, tvm.target.Target(TARGETS["x86"])) is None
    opencl = tvm.target.Target({"kind": "opencl", "host": {"kind": "llvm"}})
    assert rule_space(twice, opencl) is None
    with pytest.raises(NoSpace, match="texels"):  # its blocks are eight channels
        rule_space(workload(convolution())["main"], opencl)


def search(
    *,
    function: Any = None,
    strategy: str = "evolutionary",
    known: Sequence[Record] = (),
    elsewhere: Sequence[Record] = (),
) -> TileSearch:
    task: Any = SimpleNamespace(name="conv", module=workload(function or convolution()))
    options = SearchOptions(strategy=strategy, cost_model="none")
    searching = Searches({**TARGETS["x86"], "num-cores": 2}, options).search(
        task, known=known, elsewhere=elsewhere
    )
    assert isinstance(searching, TileSearch)
    return searching


def words(candidate: Candidate) -> str:
    return str(tvm.ir.load_json(candidate.module)["main"].attrs[CPU_SCHEDULE])


def record(trace: str, context: Context, seconds: float) -> Record:
    return Record("w", context, "conv", trace, (seconds,), None, None, "", 0.0)


def test_a_search_begins_with_the_untuned_tile_and_goes_on_from_the_fastest() -> None:
    searching = search()
    first = searching.next_batch(20)
    assert first and len({candidate.trace for candidate in first}) == 20
    tiles = [words(candidate).partition(",")[0] for candidate in first]
    fast = next(place for place, tile in enumerate(tiles) if tile != tiles[0])
    results: list[CandidateResult] = [Measurement((2.0, 1.0)), *[Measurement((1.5,))] * 17]
    results += [Failure("build", "no"), None]
    results[fast] = Measurement((0.1,))
    searching.report(results)
    second = searching.next_batch(20)
    assert second and not {each.trace for each in second} & {each.trace for each in first}
    assert sum(words(each).partition(",")[0] == tiles[fast] for each in second) >= 3
    function = workload(convolution())["main"]
    usual = scheduled(function, vectors_of(tvm.target.Target(TARGETS["x86"])))
    assert same(tvm.ir.load_json(first[0].module), tvm.IRModule({"main": usual}))


def test_records_are_not_measured_again_and_those_of_other_devices_come_first() -> None:
    traces = [candidate.trace for candidate in search().next_batch(8) or ()]
    known = [record(trace, HERE, 1.0 + place) for place, trace in enumerate(traces[:5])]
    elsewhere = [record(traces[6], THERE, 1.0), record("no trace", THERE, 0.5)]
    again = [candidate.trace for candidate in search(known=known, elsewhere=elsewhere).next_batch(8) or ()]
    assert again[0] == traces[6] and not set(again) & set(traces[:5]) and len(set(again)) == 8
    replaying = search(strategy="replay", elsewhere=elsewhere)
    assert [candidate.trace for candidate in replaying.next_batch(8) or ()] == [traces[6]]
    assert replaying.next_batch(8) is None


def test_chance_is_the_seeds_and_a_space_ends() -> None:
    drawn = [[each.trace for each in search(strategy="random").next_batch(6) or ()] for _ in range(2)]
    assert drawn[0] == drawn[1] and len(set(drawn[0])) == 6
    few = search(function=convolution(taps=1, depthwise=True))
    count = 0
    while batch := few.next_batch(16):
        count += len(batch)
        few.report([Measurement((1.0,))] * len(batch))
    assert 4 <= count <= 200


def test_what_a_change_brought_for_a_kernel_is_expected_of_the_next() -> None:
    effects = Effects()
    change = ("order", "rows first")
    before = effects.expect(change, 1)
    effects.add(change, 0.5)
    effects.add(change, 0.4)
    assert 0 < before < effects.expect(change, 1) < 0.5 and effects.expect(("order", "other"), 1) == before


def test_a_tuned_convolution_is_right_and_shown(tmp_path: Path) -> None:
    """Measure on this machine; rtvm runs the package with its records."""
    adt.build_target(platform="host")
    net = Network((1, 16, 12, 12))
    model = net.save(tmp_path / "one.onnx", net.relu(net.conv("x", 32)), (1, 32, 12, 12))
    result = adt.tune(model, platform="host", target="cpu", db=tmp_path / "db", trials=24, wait=60.0)
    (tuned,) = [task for task in result.tasks if "conv" in task.name]
    assert not result.interrupted and tuned.trials >= 12 and not result.failures
    package = adt.compile(model, out=tmp_path / "tuned", platform="host", target="cpu", db=tmp_path / "db")
    (kernel,) = [kernel for kernel in package.manifest.kernels if "conv" in kernel.name]
    report = package.manifest.made.tuning
    assert report and not report.refused and kernel.tuned != (kernel.name in report.kept)
    assert adt.verify(package.path).verification.passed
    (shown,) = [each for each in adt.inspect(package.path).cpu() if each.name == kernel.name]
    assert "positions of" in shown.schedule
