"""Choice of the task that gets the next batch."""

import math
from typing import Any

import pytest

from adt.tuning.records import BASELINE
from adt.tuning.task_progress import MIN_BATCH, TaskProgress, choose, expected_gain, is_scarce
from support.standins.tuning import options, record, task


def standing(
    *, baseline: float | None = 1.0, weight: int = 1, flops: int | None = 100, history: tuple[float, ...] = (),
    trials: int = 0, outstanding: int = 0, batches: int = 0, limit: int | None = None, ended: bool = False,
) -> TaskProgress:  # fmt: skip
    settings = options(trials=limit or 8, per_task=limit is not None)
    progress = TaskProgress(task("conv", weight=weight, flops=flops), "conv", settings)
    if baseline is not None:
        progress.add_record(record("conv", BASELINE, baseline))
    progress.history = list(history)
    progress.trials, progress.requested, progress.searching = trials, outstanding, batches
    progress.end_state = "done" if ended else ""
    return progress


def tuned(best: float, batches: int, *, weight: int = 1, history: tuple[float, ...] = ()) -> TaskProgress:
    return standing(weight=weight, history=history or (best,) * batches, trials=16 * batches)


def test_every_task_gets_one_batch_first_the_costliest_first() -> None:
    tasks = [standing(baseline=0.1), standing(baseline=2.0, weight=3), tuned(9.0, 1), standing(baseline=5.0)]
    assert choose(tasks, 16, 100) == (1, 16)
    assert choose([tasks[0], standing(outstanding=16, batches=1), tasks[2]], 16, 100) == (0, 16)


def test_a_task_that_hardly_counts_waits_for_what_promises_more() -> None:
    assert choose([standing(baseline=1e-4), tuned(9.0, 1)], 16, 100) == (1, 16)


def test_without_times_the_operations_order() -> None:
    assert choose([standing(baseline=None), standing(baseline=None, flops=500)], 16, 64) == (1, 16)
    assert choose([standing(baseline=None, flops=None)], 16, 64) == (0, 16)


def test_where_trials_are_scarce_only_what_promises_much_gets_some() -> None:
    small, large = standing(baseline=1e-7), standing(baseline=1e-3)
    tasks = [small, large]
    trials = [0, 0]
    left = 24
    while (chosen := choose(tasks, 16, left)) is not None:
        index, count = chosen
        trials[index] += count
        left -= count
        tasks[index].trials, tasks[index].history = trials[index], [5e-4]
    assert trials == [0, 24]


def test_a_scarce_batch_is_smaller_but_worth_a_search() -> None:
    tasks = [standing()] * 10
    assert is_scarce(tasks, 16, 64) and not is_scarce(tasks, 16, 160)
    assert choose(tasks, 16, 64) == (0, 6)
    assert choose(tasks, 16, 20) == (0, MIN_BATCH)
    assert choose(tasks, 16, 2) == (0, 2)


def test_the_longer_a_task_was_tuned_the_less_it_promises() -> None:
    assert expected_gain(tuned(1.0, 2), 16) > expected_gain(tuned(1.0, 8), 16)
    assert choose([tuned(1.0, 8), tuned(1.0, 2)], 16, 100) == (1, 16)


def test_what_falls_promises_more_than_what_does_not() -> None:
    falling = tuned(1.0, 5, history=(9.0, 7.0, 5.0, 3.0, 1.0))
    assert expected_gain(falling, 16) > expected_gain(tuned(1.0, 5), 16)


def test_calls_of_the_model_count() -> None:
    assert choose([tuned(1.0, 4), tuned(0.5, 4, weight=8)], 16, 100) == (1, 16)


def test_what_is_out_counts_as_done() -> None:
    out = standing(history=(1.0,), trials=16, outstanding=16, batches=1)
    assert choose([out, tuned(0.9, 1)], 16, 100) == (1, 16)


@pytest.mark.parametrize(
    "facts", [{"ended": True}, {"batches": 2, "outstanding": 32}, {"limit": 8, "trials": 5, "outstanding": 3}]
)
def test_nothing_for_a_task_that_may_have_no_more(facts: dict[str, Any]) -> None:
    assert choose([standing(**facts)], 16, 100) is None


def test_no_more_than_is_left() -> None:
    assert choose([standing(limit=20, trials=15)], 16, 100) == (0, 5)
    assert choose([standing()], 16, 7) == (0, 7)
    assert choose([standing()], 16, 0) is None


def test_a_task_none_of_whose_candidates_ran_comes_last() -> None:
    failed = standing(baseline=None, history=(math.inf,), trials=16)
    assert failed.seconds is None
    assert choose([failed, tuned(1e-9, 50)], 16, 100) == (1, 16)
