"""Display of a running tuning, its lines for each task, and the name of a tuning."""

import dataclasses
import logging
import re
from pathlib import Path

import pytest

from adt.cli.terminal import span
from adt.options.resolve import load_settings
from adt.tuning.candidates import run_id
from adt.tuning.records import BASELINE, Context, Failure, MeasuredOn, Record
from adt.tuning.results import DeviceStatus, Status, TaskStatus, TunedTask
from adt.tuning.task_progress import TaskLogs
from adt.verbs.tuning_view import Clocks, Lines, screen, summary_line, task_line

CONV = TaskStatus("conv", 2, 2_000_000_000, "measuring", 64, 128, 1, current=0.5, best=0.1, baseline=0.2)
PHONE = DeviceStatus("R5CT", "Pixel 7", "measuring", 60, 1, 1, 38.4, 33.0, "")


def status(tasks: list[TaskStatus], devices: list[DeviceStatus], elapsed: float = 0.0) -> Status:
    done = sum(task.trials for task in tasks)
    return Status(tuple(tasks), tuple(devices), done, 256, done, {"run": 1}, 2, 3, elapsed, 90.0)


def test_a_tasks_line_is_that_of_autotvm() -> None:
    assert task_line(3, 23, CONV, 33.2).startswith(
        "[Task  3/23]  Current/Best:     4.00/   20.00 GFLOPS | Progress: (64/128), 1 failed | 33.20 s"
    )
    ended = task_line(3, 23, dataclasses.replace(CONV, state="done"), 33.2)
    assert "| 33.20 s Done. | conv" in ended


def test_a_task_without_known_operations_shows_times_and_none_where_there_is_none() -> None:
    unknown = dataclasses.replace(CONV, flops=None, current=None, planned=0)
    line = task_line(1, 1, unknown, 0)
    assert "-/100.0000 ms" in line and "(64)" in line and "GFLOPS" not in line


def test_the_speed_of_an_emulated_device_is_not_shown() -> None:
    emulated = dataclasses.replace(PHONE, emulated=True)
    shown = "\n".join(screen(status([CONV], [emulated]), Clocks(), 30))
    assert "GFLOPS" not in shown and "no device's speed" in shown
    assert "GFLOPS" not in "\n".join(Lines().update(status([CONV], [emulated], 11.0)))


def test_a_screen_is_no_higher_than_the_terminal_and_shows_what_is_at_work() -> None:
    tasks = [
        dataclasses.replace(CONV, name=f"t{n}", state="done" if n < 30 else "waiting") for n in range(40)
    ]
    tasks[35] = dataclasses.replace(CONV, name="busy", state="building")
    lines = screen(status(tasks, [PHONE]), Clocks(), 12)
    assert len(lines) <= 12
    assert any(line.endswith("busy") for line in lines)
    hidden = re.search(r"and (\d+) more tasks: (.*)", lines[-1])
    assert hidden and int(hidden[1]) + sum("[Task" in line for line in lines) == 40
    assert "30 done" in hidden[2]


def test_the_summary_names_failures_and_what_is_left() -> None:
    line = summary_line(status([CONV], [PHONE], 100.0))
    assert "trials 64 of 256" in line and "failed: 1 run" in line and "1 of 1 devices measure" in line
    assert "1 min 40 s, about 1 min 30 s left" in line
    assert span(59.4) == "59 s" and span(7500) == "2 h 05 min"


def test_clocks_run_from_the_first_work_to_the_end() -> None:
    clocks = Clocks()
    for state, now in (
        ("waiting", 5.0),
        ("searching", 10.0),
        ("measuring", 20.0),
        ("done", 30.0),
        ("done", 99.0),
    ):
        clocks.update(status([dataclasses.replace(CONV, state=state)], [], now))
    assert clocks.seconds("conv", 99.0) == 20.0
    assert clocks.seconds("other", 99.0) == 0.0


def test_without_a_terminal_what_happens_is_said_at_once_and_the_rest_every_ten_seconds() -> None:
    lines = Lines()
    assert lines.update(status([CONV], [PHONE], 0.1)) == ["device R5CT (Pixel 7) ready"]
    more = dataclasses.replace(CONV, trials=70)
    idle = dataclasses.replace(PHONE, state="idle")
    assert lines.update(status([more], [idle], 5.0)) == []
    away = dataclasses.replace(PHONE, state="away", note="the cable was pulled")
    assert lines.update(status([more], [away], 6.0)) == ["device R5CT (Pixel 7) away: the cable was pulled"]
    rows = lines.update(status([more], [idle], 11.0))
    assert (
        rows[0] == "device R5CT (Pixel 7) ready" and "(70/128)" in rows[1] and rows[2].startswith("trials 70")
    )
    assert (
        lines.update(status([dataclasses.replace(more, state="done")], [idle], 12.0))[0].count("Done.") == 1
    )
    assert lines.update(status([dataclasses.replace(more, state="done")], [idle], 13.0)) == []


def record(trace: str, seconds: tuple[float, ...], failure: Failure | None = None) -> Record:
    context = Context("{}", "0.25.0", "Adreno (TM) 740", "1.2")
    on = MeasuredOn("R5CT", "Pixel 7", 38.4)
    return Record("w", context, "conv", trace, seconds, failure, on, "run", 1.7e9)


def test_each_task_has_a_log_that_a_later_session_continues(tmp_path: Path) -> None:
    for records in (
        [record(BASELINE, (0.2,)), record("a", (0.1,))],
        [record("b", (), Failure("crash", "signal 11\nat 0")), record("c", (0.4, 0.3, 0.3))],
    ):
        with TaskLogs(tmp_path, "0123456789abcdef0123", [("conv", 2_000_000_000)]) as logs:
            for entry in records:
                logs.add(entry)
    lines = logs.path("conv").read_text().splitlines()
    assert logs.path("conv").parent == tmp_path / "logs/0123456789abcdef"
    assert "untuned R5CT 38.4 °C 200 ms 10.00 GFLOPS, best 200 ms" in lines[0]
    assert lines[1].endswith("100 ms 20.00 GFLOPS, best 100 ms")
    assert lines[2].endswith("crash: signal 11 at 0") and "300 ms" in lines[3]


def test_no_time_of_an_emulated_device_is_logged(tmp_path: Path) -> None:
    entry = record("a", (0.1,))
    assert entry.on is not None
    with TaskLogs(tmp_path, "r", [("conv", 2_000_000_000)]) as logs:
        logs.add(dataclasses.replace(entry, on=dataclasses.replace(entry.on, emulated=True)))
    assert "ms" not in logs.path("conv").read_text() and "no device's speed" in logs.path("conv").read_text()


def test_a_log_that_cannot_be_written_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "logs").write_text("in the way")
    with caplog.at_level(logging.WARNING, "adt.tune"), TaskLogs(tmp_path, "r", [("conv", None)]) as logs:
        logs.add(record("a", (0.1,)))
        logs.add(record("b", (0.1,)))
    assert len(caplog.records) == 1 and "records are kept" in caplog.text


def test_a_name_of_a_task_is_safe_in_a_file_name(tmp_path: Path) -> None:
    logs = TaskLogs(tmp_path, "r", [("../" * 50 + "x", None)])
    assert logs.path("../" * 50 + "x").resolve().parent == (tmp_path / "logs/r").resolve()


def test_more_trials_go_on_with_the_same_tuning_and_other_kernels_are_another_one() -> None:
    def run(**flags: object) -> str:
        settings = load_settings({key.replace("_", ".", 1): value for key, value in flags.items()}).settings
        return run_id("sha", settings, '{"kind":"llvm"}', "0.25.0")

    same = run()
    assert (
        same == run(tune_trials=5) == run(tune_builders="7") == run(tune_timeout=99.0) == run(tune_wait=1.0)
    )
    assert same == run(device_serial="R5CT", tune_early_stopping=3)
    others = [
        run(tune_tuner="random"),
        run(tune_seed=1),
        run(tune_per_task=True),
        run(compile_precision="float16"),
        run(compile_shapes=("x:1,3",)),
        run_id("other", load_settings().settings, '{"kind":"llvm"}', "0.25.0"),
        run_id("sha", load_settings().settings, '{"kind":"opencl"}', "0.25.0"),
    ]
    assert len({same, *others}) == len(others) + 1


def test_a_kernel_is_as_fast_as_the_faster_of_its_schedules() -> None:
    def task(baseline: float | None, best: float | None) -> TunedTask:
        return TunedTask("conv", ("conv",), 2, None, "done", "", 8, 0, baseline, best)

    assert task(4.0, 2.0).faster and task(4.0, 2.0).times_as_fast == 2.0 and task(4.0, 2.0).tuned_ms == 2.0
    assert not task(2.0, 4.0).faster and task(2.0, 4.0).tuned_ms == 2.0
    assert task(None, None).tuned_ms is None and not task(None, 3.0).faster
