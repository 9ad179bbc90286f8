"""Results of a tuning, for people and as a document, and the questions it is asked."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from adt.errors import ConfigError, NoDevice, TrackerError
from adt.tuning.engine import EngineResult
from adt.tuning.records import Context, Failure
from adt.tuning.results import (
    Comparison,
    DeviceStatus,
    Figures,
    QuarantinedCandidate,
    Status,
    TunedTask,
    TuneResult,
    TuningPlan,
    UntunableKernel,
)
from adt.verbs import tune_places
from adt.verbs.tune_places import Rack, is_tracked, platform_for
from adt.verbs.tune_request import TuneRequest
from adt.verbs.tune_result import check_ended, comparison_lines, document, lines, tune_result
from support.standins.tuning import record

PLAN = TuningPlan(
    model=Path("m.onnx"),
    platform="linux-aarch64",
    target="cpu",
    database=Path("db"),
    run="abc",
    where="on R5CT",
    tasks=(("conv", 3, 2_000_000),),
    untunable=(UntunableKernel("sort", "TVM brings its schedule"),),
    trials=64,
    per_task=False,
    logs=Path("db/logs/abc"),
    compile_command="adt compile m.onnx --db db",
)
RESULT = TuneResult(
    plan=PLAN,
    context=Context("{}", "0.25.0", "Adreno (TM) 740", "512"),
    tasks=(
        TunedTask("conv", ("conv", "conv1"), 3, 2_000_000, "done", "", 60, 2, 4.0, 2.0),
        TunedTask("pool", ("pool",), 1, None, "exhausted", "", 4, 0, 1.0, 1.5),
        TunedTask("copy", ("copy",), 1, None, "exhausted", "nothing to choose", 0, 0, 0.5, None),
    ),
    devices=(DeviceStatus("R5CT", "Pixel 7", "idle", 66, 1, 1, 39.0, 60.0, ""),),
    quarantined=(QuarantinedCandidate("conv", "crash", "signal 11", "R5CT", "Pixel 7"),),
    failures={"run": 1, "crash": 1},
    done=64,
    total=64,
    kept=68,
    seconds=90.0,
    interrupted=False,
    comparison=None,
)
EMULATED = dataclasses.replace(RESULT, devices=(dataclasses.replace(RESULT.devices[0], emulated=True),))
COMPARED = Comparison(
    "R5CT", 2, 4, Figures(20.0, 19.5, 1.0, 300), Figures(40.0, 39.0, 1.5, 200), (2.0, 1.9, 2.1), True, ""
)


def test_all_calls_count_each_as_fast_as_compiling_makes_it() -> None:
    assert RESULT.baseline_ms == 3 * 4.0 + 1.0 + 0.5
    assert RESULT.tuned_ms == 3 * 2.0 + 1.0 + 0.5


def test_people_see_each_task_what_failed_and_what_comes_next() -> None:
    out = "\n".join(lines(RESULT))
    rows = [line.split() for line in out.splitlines()]
    assert ["conv", "3", "4", "2", "2.00x", "60", "2"] in rows
    assert "keeps its schedule: none was faster" in next(
        line for line in out.splitlines() if line.startswith("pool")
    )
    assert "nothing to choose: copy" in out
    assert "13.5 ms untuned, 7.5 ms tuned" in out
    assert "failed    1 crash, 1 run" in out
    assert "never again: a candidate of conv (crash on R5CT: signal 11)" in out
    assert out.rstrip().endswith("adt compile m.onnx --db db")


def test_an_interrupted_tuning_says_that_it_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    out = "\n".join(lines(dataclasses.replace(RESULT, interrupted=True, done=10)))
    assert "trials    10 of 64; 68 records of this session are kept (1 min 30 s)" in out
    assert "same command goes on" in capsys.readouterr().err and "adt compile" not in out


def test_a_finished_tuning_says_so() -> None:
    assert any("64 of 64: finished before" in line for line in lines(dataclasses.replace(RESULT, kept=0)))


def test_no_time_of_an_emulated_device_is_shown() -> None:
    out = "\n".join(lines(EMULATED))
    assert "emulated: right or wrong counts here" in out
    assert "2.00x" not in out and " ms untuned," not in out and "none was faster" not in out
    fields = document(EMULATED)
    assert fields["emulated"] and fields["baseline_ms"] is None and fields["tuned_ms"] is None
    for task in fields["tasks"]:
        assert (task["baseline_ms"], task["best_ms"], task["times_as_fast"]) == (None, None, None)


def test_the_document_has_what_docs_json_says() -> None:
    import re

    row = re.search(
        r"^\| `adt\.tune` \| (.*) \|$", (Path(__file__).parents[2] / "docs/json.md").read_text(), re.M
    )
    assert row
    fields = document(dataclasses.replace(RESULT, comparison=COMPARED))
    for name in [*fields, *fields["tasks"][0], *fields["comparison"], *fields["devices"][0]]:
        assert f"`{name}`" in row[1], name
    assert fields["tasks"][0]["times_as_fast"] == 2.0 and fields["tuned_ms"] == 7.5


def test_the_comparison_is_autotvms_table() -> None:
    lines = comparison_lines(COMPARED)
    assert lines[0] == "compared  on R5CT; 2 of 4 kernels are tuned"
    assert [line.split() for line in lines[1:4]] == [
        ["mean", "ms", "median", "ms", "std", "ms", "runs"],
        ["optimised", "20", "19.5", "1", "300"],
        ["unoptimised", "40", "39", "1.5", "200"],
    ]
    assert "optimised is 1.9 to 2.1 × as fast as unoptimised (95 % confidence)" in lines[4]


def test_without_times_the_comparison_says_whether_both_are_right_and_why_there_are_none() -> None:
    untimed = dataclasses.replace(COMPARED, optimised=None, unoptimised=None, ratio=None, reason="emulated")
    assert comparison_lines(untimed) == [
        "compared  2 of 4 kernels are tuned; both are right; no times: emulated"
    ]
    wrong = dataclasses.replace(untimed, correct=False)
    assert (
        "both are not right" in comparison_lines(wrong)[0]
        or "not both are right" in comparison_lines(wrong)[0]
    )


class Phone:
    platform = "linux-aarch64"


def test_the_platform_is_the_first_devices_unless_somebody_said(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(tune_places, "_first", lambda serials: asked.append(serials) or Phone())
    assert platform_for(TuneRequest("m", serials=("a", "b"))) == "linux-aarch64"
    assert platform_for(TuneRequest("m", serials=("a",), platform="host")) is None, "it stays as it is named"
    assert platform_for(TuneRequest("m")) is None, "what every verb takes"
    assert asked == [("a", "b")]


def test_devices_come_from_a_tracker_or_by_name() -> None:
    assert not is_tracked(TuneRequest("m", serials=["a", "b"]))
    assert is_tracked(TuneRequest("m", tracker="h:1"))
    with pytest.raises(ConfigError):
        is_tracked(TuneRequest("m", serials=["a"], key="k"))


def test_of_several_devices_one_that_is_there_tells_and_without_any_the_first_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def select(serial: str) -> Phone:
        if serial != "there":
            raise NoDevice(f"no device has the serial {serial}", remedy="")
        return Phone()

    monkeypatch.setattr(tune_places.selection, "select", select)
    assert platform_for(TuneRequest("m", serials=("away", "there"))) == "linux-aarch64"
    with pytest.raises(NoDevice, match="away"):
        platform_for(TuneRequest("m", serials=("away", "gone")))


def test_a_compile_is_told_which_records_when_several_fit() -> None:
    mine = Context("{}", "0.25.0", "Adreno (TM) 740", "512")
    status = Status((), (), 0, 0, 0, {}, 0, 0, 0.0, None)
    ended = EngineResult("finished", mine, (), status, ())
    others = [mine, Context("other", "0.25.0", "Adreno (TM) 650", "1"), Context("{}", "0.26.0", "x", "")]
    assert tune_result(PLAN, ended, others).plan.compile_command == PLAN.compile_command
    several = tune_result(PLAN, ended, [*others, Context("{}", "0.25.0", "Adreno (TM) 650", "1")])
    assert several.plan.compile_command == f"{PLAN.compile_command} --tuned-on 'Adreno (TM) 740, 512'"


def test_a_quarantined_candidate_names_where_that_happened() -> None:
    status = Status((), (), 0, 0, 0, {}, 0, 0, 0.0, None)
    harmful = record("conv", "t", failure=Failure("hang", "no answer"))
    ended = EngineResult("finished", None, (), status, (harmful,))
    assert tune_result(PLAN, ended, []).quarantined == (
        QuarantinedCandidate("conv", "hang", "no answer", "a", "A"),
    )
    kinds = ("build", "run", "hang", "crash", "wrong")
    assert [kind for kind in kinds if Failure(kind, "").quarantined] == ["hang", "crash", "wrong"]


def test_a_tuning_without_devices_says_what_became_of_them() -> None:
    away = dataclasses.replace(RESULT.devices[0], state="away", note="the cable was pulled")
    status = Status((), (away,), 3, 64, 5, {}, 0, 0, 700.0, None)
    ended = EngineResult("no device", None, (), status, ())
    for tracked, error in ((True, TrackerError), (False, NoDevice)):
        rack = Rack(None, "on R5CT", 8, ("R5CT",), emulated=False, tracked=tracked)  # type: ignore[arg-type]
        with pytest.raises(error, match="600 s; 5 records") as caught:
            check_ended(ended, rack, 600.0)
        assert "R5CT: away: the cable was pulled" in caught.value.details
