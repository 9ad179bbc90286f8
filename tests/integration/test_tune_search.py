"""Searching schedules with TVM: what is proposed, what is learned, and that it computes the right numbers."""

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, topi

from adt.bundle.plugins import load_plugin, opencl_runtime
from adt.compiler.passes.lowering import tir_pipeline
from adt.compiler.passes.records.traces import scheduled
from adt.compiler.passes.records.workload import same, workload
from adt.tuning.candidates import Candidate, Measurement, NoSpace
from adt.tuning.records import BASELINE, Context, Failure, Record
from adt.tuning.search.strategies import SearchOptions
from adt.tuning.search.task_search import Searches, TaskSearch
from adt.tuning.tasks import count_outputs

CPU = {"kind": "llvm", "mtriple": "x86_64-linux-gnu", "num-cores": 2}
ARM = {"kind": "llvm", "mtriple": "aarch64-linux-android28", "mattr": ["+neon", "+dotprod"], "num-cores": 4}
OPENCL = {"kind": "opencl", "host": {"kind": "llvm"}}
MALI = {"kind": "opencl", "keys": ["mali", "opencl", "gpu"], "host": {"kind": "llvm"}}
HERE, THERE = (Context("target", "0.25.0", name, "") for name in ("here", "there"))


def convolution(channels: int = 8, side: int = 6, filters: int = 8) -> Any:
    """Build a padded convolution, and what networks put after it: x * sigmoid(x)."""
    x = te.placeholder((1, channels, side, side), "float32", name="x")
    weights = te.placeholder((filters, channels, 3, 3), "float32", name="w")
    y = topi.nn.conv2d(x, weights, strides=1, padding=1, dilation=1)
    z = te.compute(y.shape, lambda *at: y(*at) * (1.0 / (1.0 + te.exp(-y(*at)))), name="silu")
    return te.create_prim_func([x, weights, z])


def elementwise() -> Any:
    x = te.placeholder((4096,), "float32", name="x")
    return te.create_prim_func([x, te.compute(x.shape, lambda i: x[i] + 1.0, name="y")])


def quantized() -> Any:
    """Build a product of int8 matrices, for which Arm's processors and TVM have instructions of their own."""
    a = te.placeholder((16, 16), "int8", name="a")
    b = te.placeholder((16, 16), "int8", name="b")
    k = te.reduce_axis((0, 16), name="k")
    product = te.compute(
        (16, 16), lambda i, j: te.sum(a[i, k].astype("int32") * b[j, k].astype("int32"), axis=k), name="c"
    )
    return te.create_prim_func([a, b, product])


def task(function: Any, name: str = "conv") -> Any:
    return SimpleNamespace(name=name, module=workload(function))


def search(
    function: Any,
    target: dict[str, Any],
    *,
    strategy: str = "evolutionary",
    known: Sequence[Record] = (),
    elsewhere: Sequence[Record] = (),
    **options: Any,
) -> TaskSearch:
    search_options = SearchOptions(strategy=strategy, **{"cost_model": "none", **options})
    return Searches(target, search_options).search(task(function), known=known, elsewhere=elsewhere)


def record(trace: str, context: Context, *seconds: float, failure: Failure | None = None) -> Record:
    return Record("w", context, "conv", trace, seconds, failure, None, "", 0.0)


def traces(batch: tuple[Candidate, ...] | None) -> list[str]:
    assert batch
    return [candidate.trace for candidate in batch]


@pytest.fixture(scope="module")
def drawn() -> tuple[Candidate, ...]:
    """Draw candidates of a convolution in OpenCL, which several tests look at."""
    return search(convolution(), OPENCL, strategy="random").next_batch(12) or ()


@pytest.mark.parametrize("strategy", ["evolutionary", "random"])
def test_the_seed_decides_what_is_proposed(strategy: str) -> None:
    first, same, other = (search(convolution(), CPU, strategy=strategy, seed=seed) for seed in (1, 1, 2))

    for _ in range(2):
        proposed = first.next_batch(3)
        assert traces(proposed) == traces(same.next_batch(3)) != traces(other.next_batch(3))
        for each in (first, same, other):
            each.report([Measurement((1.0,)), Failure("build", "no"), None])


def test_nothing_is_proposed_twice_and_batches_may_overlap() -> None:
    """Build a candidate's module from its trace, as a record of it does."""
    small = convolution(2, 2, 1)
    searching = search(small, CPU, strategy="random")
    batches = [searching.next_batch(8) for _ in range(4)]

    proposed = [candidate for batch in batches for candidate in batch or ()]

    assert len({candidate.trace for candidate in proposed}) == len(proposed) >= 12
    assert len({candidate.module for candidate in proposed}) == len(proposed)
    for candidate in proposed[:2]:
        again = scheduled(task(small).module, candidate.trace).mod
        assert same(again, tvm.ir.load_json(candidate.module))
    for batch in batches:
        searching.report([Measurement((1.0,))] * len(batch or ()))
    with pytest.raises(IndexError):
        searching.report([])


def test_a_search_goes_on_from_what_is_known() -> None:
    """Exclude known candidates; the model, shared by all tasks, has learned from them."""
    first = traces(search(convolution(), CPU, strategy="random").next_batch(8))
    known = [
        record(trace, HERE, 1.0 + number) if number % 4 else record(trace, HERE, failure=Failure("run", "no"))
        for number, trace in enumerate(first)
    ]
    drawn = search(convolution(), CPU, strategy="random", known=known).next_batch(8)
    assert not set(first) & set(traces(drawn)), "the same seed would draw the same"
    shared = Searches(CPU, SearchOptions(cost_model="xgb"))
    going_on = shared.search(task(convolution()), known=[*known, record(BASELINE, HERE, 9.0)])

    proposed = going_on.next_batch(8)

    assert not {each.trace for each in known} & set(traces(proposed))
    model: Any = going_on._model
    assert model._learned == len(known)
    going_on.report([Measurement((2.0,))] * len(proposed or ()))
    assert model._learned == len(known) + len(proposed or ())


def test_the_best_of_other_devices_are_tried_first_and_with_replay_nothing_else(
    drawn: tuple[Candidate, ...],
) -> None:
    there = traces(drawn[:5])
    records = [record(trace, THERE, float(number)) for number, trace in enumerate(there, start=1)]
    records.append(record("[[],[]", THERE, 0.5))
    less = {**OPENCL, "max_threads_per_block": 256, "max_shared_memory_per_block": 16384}

    evolving = search(convolution(), less, seed=5, elsewhere=records)
    assert set(traces(evolving.next_batch(4))[:2]) == set(there[:2])

    replaying = search(
        convolution(), less, strategy="replay", known=[record(there[1], HERE, 3.0)], elsewhere=records
    )
    assert traces(replaying.next_batch(3)) == [there[0], there[2], there[3]]
    assert traces(replaying.next_batch(3)) == [there[4]]
    assert replaying.next_batch(3) is None


def test_what_does_not_fit_the_device_is_not_borrowed(drawn: tuple[Candidate, ...]) -> None:
    records = [record(trace, THERE, 1.0) for trace in traces(drawn)]
    small = {**OPENCL, "max_threads_per_block": 4, "max_shared_memory_per_block": 64}

    taken = search(convolution(), small, strategy="replay", elsewhere=records).next_batch(12) or ()

    assert len(taken) < len(drawn)


def test_a_space_of_few_schedules_is_tried_whole_and_then_ends() -> None:
    searching = search(elementwise(), OPENCL)

    proposed = [*(searching.next_batch(4) or ()), *(searching.next_batch(60) or ())]

    assert 5 <= len(proposed) <= 9, "work-groups of 4 to 256 that divide into the kernel"
    assert searching.next_batch(4) is None


def test_a_kernel_with_nothing_to_choose_says_so() -> None:
    with pytest.raises(NoSpace, match="nothing to choose"):
        search(elementwise(), CPU)


def test_each_strategy_and_target_proposes(capfd: pytest.CaptureFixture[str]) -> None:
    """Print nothing of TVM meanwhile: a pooling asks for a rule that it does not have."""
    x = te.placeholder((1, 8, 12, 12), "float32", name="x")
    pooled = topi.nn.pool2d(x, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), "max", layout="NCHW")
    pooling = te.create_prim_func([x, pooled])
    for function, target in ((convolution(), CPU), (pooling, OPENCL), (pooling, CPU), (quantized(), ARM)):
        assert search(function, target, strategy="random").next_batch(2), target

    assert "arning" not in capfd.readouterr().err


def test_arms_instructions_for_int8_are_used() -> None:
    proposed = search(quantized(), ARM, strategy="random").next_batch(24) or ()

    assert any("dot_4x4_i8i8s32_sdot" in candidate.trace for candidate in proposed)


def test_mali_keeps_no_tiles_in_local_memory(drawn: tuple[Candidate, ...]) -> None:
    """Copy no tiles to local memory, which is the same memory as any other there."""
    mali = search(convolution(), MALI, strategy="random").next_batch(12)

    assert 0 < sum('"shared"' in trace for trace in traces(drawn)) < len(drawn)
    assert not any('"shared"' in trace for trace in traces(mali))


def test_nothing_is_loaded_as_a_vector(drawn: tuple[Candidate, ...]) -> None:
    """Load nothing as a vector where TVM drops checks: see VECTORS in adt.tuning.search.design_space."""
    for candidate in drawn:
        assert "T.vectorized" not in tvm.ir.load_json(candidate.module).script()


def test_a_convolution_and_what_follows_it_are_one_kernel(drawn: tuple[Candidate, ...]) -> None:
    """Make one kernel, where TVM's CUDA rules make x * sigmoid(x) a second that reads the first's result."""
    for candidate in drawn:
        assert json.dumps(json.loads(candidate.trace)).count('"blockIdx.x"') == 1


def test_the_outputs_of_a_kernel_are_told_from_its_inputs() -> None:
    x = te.placeholder((4,), "float32", name="x")
    first, last = te.compute((2,), lambda i: x[i]), te.compute((2,), lambda i: x[i + 2])

    assert count_outputs(workload(convolution())) == 1
    assert count_outputs(workload(te.create_prim_func([x, first, last]))) == 2


def test_tvms_bounds_are_still_wrong() -> None:
    """Find a wrong bound of (4 * t + 2) % 6; if TVM is right, see VECTORS in adt.tuning.search.design_space."""
    t = tvm.tirx.Var("t", "int32")
    bound = tvm.arith.Analyzer().const_int_bound(tvm.tirx.floormod(t * 4 + 2, 6))

    assert (bound.min_value, bound.max_value) == (2, 0)


def compute(module: Any, target: dict[str, Any], device: Any, arrays: Sequence[Any]) -> Any:
    built = tvm.compile(module, target=tvm.target.Target(target), tir_pipeline=tir_pipeline(64))
    tensors = [tvm.runtime.tensor(array, device) for array in arrays]
    built["main"](*tensors)
    device.sync()
    return tensors[-1].numpy()


def check_numbers(function: Any, count: int, target: dict[str, Any], device: Any) -> None:
    module = workload(function)
    random = np.random.default_rng(0)
    buffers = [function.buffer_map[parameter] for parameter in function.params]
    arrays = [random.uniform(-1, 1, [int(n) for n in buffer.shape]).astype("float32") for buffer in buffers]
    right = compute(module, {"kind": "llvm"}, tvm.cpu(), arrays)
    proposed = search(function, target, strategy="random").next_batch(count) or ()
    assert len(proposed) >= min(count, 2)
    for candidate in proposed:
        result = compute(tvm.ir.load_json(candidate.module), target, device, arrays)
        np.testing.assert_allclose(result, right, atol=1e-4, err_msg=candidate.trace)


def test_candidates_compute_what_the_kernel_computes() -> None:
    """Compute 6 x 6 with padding: with vectorized loads into local memory TVM got one in ten wrong."""
    load_plugin(opencl_runtime())
    check_numbers(convolution(4, 6, 4), 4, OPENCL, tvm.opencl())
    check_numbers(convolution(4, 6, 4), 2, CPU, tvm.cpu())


@pytest.mark.nightly
def test_many_candidates_compute_what_the_kernel_computes() -> None:
    load_plugin(opencl_runtime())
    for sides in ((8, 16, 8), (3, 10, 16), (16, 7, 4)):
        check_numbers(convolution(*sides), 10, OPENCL, tvm.opencl())
        check_numbers(convolution(*sides), 10, MALI, tvm.opencl())
        check_numbers(convolution(*sides), 10, CPU, tvm.cpu())
