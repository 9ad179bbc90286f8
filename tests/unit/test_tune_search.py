"""Search without TVM: its first records, the data of the cost model, and its verdicts."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tvm

from adt.compiler.passes.records.arguments import Argument
from adt.tuning.pipeline import difference
from adt.tuning.records import BASELINE, Context, Failure, Record
from adt.tuning.search.strategies import (
    WARM_UP,
    CostModel,
    by_promise,
    evolutionary,
    select_for_learning,
)

HERE, THERE = (Context("opencl", "0.25.0", name, "1.0") for name in ("here", "there"))


def record(trace: str, *seconds: float, context: Context = HERE, failure: str = "") -> Record:
    error = Failure(failure, "") if failure else None
    return Record("w", context, "conv", trace, seconds, error, None, "", 0.0)


def test_the_best_of_each_device_come_before_the_second_best_of_any() -> None:
    """Rank by device: times of two devices say nothing about each other, and the slow one's best is as good a guess."""
    records = [
        record("a2", 2.0), record("a1", 1.0), record(BASELINE, 0.1), record("a3", 3.0),
        record("b1", 10.0, context=THERE), record("a1", 11.0, context=THERE),
    ]  # fmt: skip

    assert [each.trace for each in by_promise(records)] == ["a1", "b1", "a2", "a3"]


def test_what_failed_or_was_wrong_anywhere_is_not_borrowed() -> None:
    records = [
        record("fast", 1.0), record("fast", context=THERE, failure="wrong"), record("built", failure="build"),
        record("good", 2.0),
    ]  # fmt: skip

    assert [each.trace for each in by_promise(records)] == ["good"]


def test_a_search_learns_from_the_fastest_and_from_all_kinds_of_others() -> None:
    records = [record(f"t{n:03}", float(n)) for n in range(1, 101)] + [record("bad", failure="run")]

    learned = select_for_learning([record(BASELINE, 0.5), *records], 20)

    assert len(learned) == 20
    assert [each.trace for each in learned[:10]] == [f"t{n:03}" for n in range(1, 11)]
    assert max(each.time for each in learned[10:-1]) > 80
    assert select_for_learning([record("x", 1.0), record("x", failure="wrong")], 20)[0].failure is not None


class Memory:
    """A cost model of TVM's that remembers what it was shown."""

    def __init__(self) -> None:
        self.shown: list[tuple[list[Any], list[Any]]] = []

    def update(self, context: Any, candidates: list[Any], results: list[Any]) -> None:
        self.shown.append((candidates, results))

    def predict(self, context: Any, candidates: list[Any]) -> Any:
        return np.full(len(candidates), 7.0)


@pytest.fixture
def workload() -> SimpleNamespace:
    return SimpleNamespace(task_name="conv", mod=tvm.IRModule())


def ran(seconds: float) -> SimpleNamespace:
    return SimpleNamespace(run_secs=[seconds])


FAILED = SimpleNamespace(run_secs=None)


def test_failures_alone_teach_nothing_and_are_learned_with_the_first_that_ran(workload: Any) -> None:
    """Learn failures later: TVM rates the fastest of a workload with 1, and of failures alone, each is the fastest."""
    memory = Memory()
    model = CostModel(0, memory)

    model.update(workload, ["a", "b"], [FAILED, FAILED])
    assert memory.shown == []
    model.update(workload, ["c"], [ran(1.0)])
    model.update(workload, ["d"], [FAILED])

    assert [candidates for candidates, _ in memory.shown] == [["a", "b", "c"], ["d"]]


def test_the_trees_are_asked_once_they_have_seen_enough(workload: Any) -> None:
    model = CostModel(0, Memory())

    model.update(workload, ["x"] * (WARM_UP - 1), [ran(1.0)] * (WARM_UP - 1))
    assert all(model.predict(workload, ["y"] * 3) < 1.0)
    model.update(workload, ["x"], [ran(1.0)])

    assert list(model.predict(workload, ["y"] * 3)) == [7.0] * 3


def test_what_tvm_cannot_rate_is_rated_by_chance(workload: Any) -> None:
    class Broken(Memory):
        def predict(self, context: Any, candidates: list[Any]) -> Any:
            raise RuntimeError("no features of images")

    model = CostModel(0, Broken())
    model.update(workload, ["x"] * WARM_UP, [ran(1.0)] * WARM_UP)

    assert len(model.predict(workload, ["y"] * 3)) == 3


def test_chance_is_the_seeds() -> None:
    first, same, other = (CostModel(seed).predict(None, ["x"] * 8) for seed in (1, 1, 2))

    assert list(first) == list(same) != list(other)


@pytest.mark.parametrize("batch", [1, 2, 16, 64, 1000])
def test_the_effort_goes_with_the_batch(batch: int) -> None:
    effort = evolutionary(batch)

    assert effort.init_min_unmeasured <= effort.population_size <= 512
    assert 0.05 <= effort.eps_greedy < 1
    assert int(batch * effort.eps_greedy) >= (1 if batch >= 8 else 0)


def outputs(*arrays: Any) -> list[bytes]:
    return [np.asarray(array).tobytes() for array in arrays]


FLOATS = (Argument((4,), "float32"), Argument((4,), "float32"))
RIGHT = np.array([1, 2, 3, 1000], np.float32)


def test_sums_may_be_added_up_in_another_order() -> None:
    assert difference(FLOATS, outputs(RIGHT), outputs(RIGHT + np.float32(0.1))) is None


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (np.array([1, 2, 30, 1000], np.float32), "off by 0.027"),
        (np.array([1, 2, np.nan, 1000], np.float32), "1 of 4 are infinite or NaN"),
        (np.full(4, np.nan, np.float32), "4 of 4"),
        (RIGHT[:3], "12 bytes instead of 16"),
    ],
)
def test_wrong_numbers_are_named(result: Any, words: str) -> None:
    assert words in (difference(FLOATS, outputs(RIGHT), outputs(result)) or "")


def test_nans_are_right_where_the_untuned_schedule_has_them() -> None:
    nans = np.array([1, np.nan, np.inf, 2], np.float32)

    assert difference(FLOATS, outputs(nans), outputs(nans * np.float32(1.0001))) is None
    assert "other places" in (difference(FLOATS, outputs(nans), outputs(RIGHT)) or "")
    nothing = np.full(4, np.nan, np.float32)
    assert "nothing finite" in (difference(FLOATS, outputs(nothing), outputs(nothing)) or "")


def test_integers_are_equal_and_the_output_is_named() -> None:
    arguments = (Argument((4,), "float32"), Argument((2,), "int8"), Argument((2,), "int8"))
    right = outputs(np.array([1, 2], np.int8), np.array([3, 4], np.int8))

    assert difference(arguments, right, right) is None
    assert "output 2 of 2: they must be equal" in (difference(arguments, right, [right[0], right[0]]) or "")


def test_bfloat16_is_compared_as_what_it_stands_for() -> None:
    arguments = (Argument((1,), "bfloat16"),)
    one, nearly, two = (np.array([bits], np.uint16).tobytes() for bits in (0x3F80, 0x3F81, 0x4000))

    assert difference(arguments, [one], [nearly]) is None
    assert "off by 1 " in (difference(arguments, [one], [two]) or "")
