"""The store of benchmarks, and what a report makes of them."""

import inspect
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from adt.compiler.importers.model_store import model_sha256
from adt.errors import ConfigError, DiskError, InputError
from adt.host.directories import data_dir
from adt.measure import bench, history
from adt.measure.conditions import Energy, Sensors
from adt.measure.history import fastest_offload, page_data
from adt.measure.record import EMULATED, PROTOCOLS, BenchRecord, Machine, Method, Speed, Start, Subject
from adt.measure.statistics import Drift, quantiles, summarise
from adt.verbs import bench as api_bench
from adt.verbs.compile import CompileRequest, job_of, tuned_job
from support.models.small import small_model

START = datetime(2026, 1, 31, 12, tzinfo=UTC)
PHONE = Machine("device", "R58N", "Phone 5", "SM8550", "Adreno 740", "gpu", "v.790", False)
SUBJECT = Subject(
    "net",
    "d1",
    "s1",
    "adreno",
    "android-arm64-v8a",
    "float16",
    "none",
    "main",
    "0.25",
    "android",
    "b1",
    "0.25",
    "0.1",
)
METHOD = Method("default", 3, 500, 50, 3, "p50", False, None, "", 0)


def record(number: int, ms: float | None, *, spread: float = 0.01, **more: object) -> BenchRecord:
    """Return the benchmark of day *number*, with a median of *ms*."""
    speed = None
    if ms is not None:
        times = ms * (1 + spread * np.random.default_rng(0).standard_normal(200))
        speed = Speed(
            summarise(times),
            quantiles(times, [percent / 100 for percent in range(0, 101, 5)]),
            ((0.0, ms), (1.0, ms)),
            Drift(0.1, 0.2, False),
            Start(10, 20),
            Start(2000, 300),
            "hit",
            4000,
            90_000,
            Energy(None, None, "", 0, 0.0, "none"),
            Sensors({}, {}, 0),
        )
    base = BenchRecord(
        id=f"{number:016x}",
        when=(START + timedelta(days=number)).isoformat(timespec="seconds"),
        label="",
        machine=PHONE,
        subject=SUBJECT,
        method=METHOD,
        conditions=None,
        correct=True,
        speed=speed,
        no_speed="" if speed else EMULATED,
        flags=(),
    )
    return replace(base, **more)  # type: ignore[arg-type]


def verdicts(*records: BenchRecord, **how: object) -> list[str]:
    (series,) = history.report(records, **how).series  # type: ignore[arg-type]
    return [point.verdict for point in series.points]


def test_a_record_comes_back_as_it_was(tmp_path: Path) -> None:
    before = [record(1, 10.0), record(2, None)]
    for entry in before:
        history.save(entry, tmp_path)
    assert list(history.load(tmp_path)) == before
    assert [path.name for path in sorted(tmp_path.iterdir())] == [
        "20260201T120000Z-0000000000000001.json",
        "20260202T120000Z-0000000000000002.json",
    ]


def test_where_they_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ADT_DATA_DIR", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "xdg"))
    assert data_dir() == tmp_path / "xdg/adt"
    monkeypatch.setenv("ADT_DATA_DIR", str(tmp_path / "own"))
    assert history.save(record(1, 1.0)).parent == tmp_path / "own/bench" == history.directory()
    assert history.load() == (record(1, 1.0),)


def test_a_damaged_file_costs_no_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for number in (1, 2, 3):
        history.save(record(number, 10.0), tmp_path)
    torn = next(tmp_path.glob("*2.json"))
    torn.write_bytes(torn.read_bytes()[:700])
    (tmp_path / "20260131T000000Z-0a.json").write_text(
        json.dumps({"schema": "adt.bench-record", "schema_version": 99})
    )
    (tmp_path / ".20260131T000000Z-0b.json.77.tmp").write_text("half")
    (tmp_path / "notes.json").write_text("mine")
    assert [entry.id[-1] for entry in history.load(tmp_path)] == ["1", "3"]
    assert "passed over" in caplog.text and "version 99" in caplog.text


def test_what_a_killed_process_left_goes_when_it_is_old(tmp_path: Path) -> None:
    old, new = tmp_path / ".a.json.1.tmp", tmp_path / ".b.json.2.tmp"
    for path in (old, new):
        path.write_text("half")
    os.utime(old, (0, 0))
    history.save(record(1, 1.0), tmp_path)
    assert not old.exists() and new.exists(), "another process may be at work on the new one"


def test_a_kill_in_the_midst_leaves_whole_records_only(tmp_path: Path) -> None:
    code = (
        "import sys, itertools; sys.path[:0] = sys.argv[2:]\n"
        "from dataclasses import replace; from pathlib import Path\n"
        "from test_bench_history import record; from adt.measure import history\n"
        "one = record(1, 10.0)\n"
        "for number in itertools.count():\n"
        "    history.save(replace(one, id=f'{number:016x}'), Path(sys.argv[1]))\n"
        "    print(number, flush=True)\n"
    )
    words = [sys.executable, "-c", code, tmp_path, Path(__file__).parent, *sys.path]
    with subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        written = [int(child.stdout.readline()) for _ in range(20)]
        child.send_signal(signal.SIGKILL)
    assert {f"{number:016x}" for number in written} <= {entry.id for entry in history.load(tmp_path)}
    assert len(list(tmp_path.glob("*.json"))) == len(history.load(tmp_path)), "none is torn"


def test_a_store_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "bench").write_text("a file")
    with pytest.raises(DiskError, match="bench"):
        history.save(record(1, 1.0), tmp_path / "bench")


def test_selecting() -> None:
    rows = [
        record(1, 1.0),
        record(2, 1.0, label="ci-7"),
        record(3, 1.0, subject=replace(SUBJECT, package="other")),
    ]
    assert len(history.select(rows)) == 3
    assert history.select(rows, device="adreno") == tuple(rows), "in any case, of the OpenCL device"
    assert history.select(rows, device="r58") == tuple(rows) and history.select(rows, device="pixel") == ()
    assert history.select(rows, package="n?t") == tuple(rows[:2])
    assert history.select(rows, label="ci-*") == (rows[1],)
    assert history.select(rows, since="2026-02-02T12:00") == tuple(rows[1:])
    assert history.select(rows, since="1h") == ()
    for wrong in ("yesterday", "7", "7 d"):
        with pytest.raises(ConfigError, match="neither a date nor an age"):
            history.select(rows, since=wrong)


def test_export_and_import(tmp_path: Path) -> None:
    rows = [record(1, 10.0), record(2, None)]
    file, store = tmp_path / "all.json", tmp_path / "store"
    file.write_text(history.export_text(rows))
    history.save(rows[0], store)
    assert history.imported(file, store) == 1, "one was there"
    assert history.imported(file, store) == 0
    assert list(history.load(store)) == rows


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"schema": "adt.bench-record"}',
        '{"schema": "adt.bench-records", "schema_version": 1, "records": [{"id": 1}]}',
        '{"schema": "adt.bench-records", "schema_version": 1}',
    ],
)
def test_what_is_no_export_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "file").write_text(text)
    with pytest.raises(InputError, match="file"):
        history.imported(tmp_path / "file", tmp_path / "store")
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("change", [{"id": "../../evil"}, {"when": "never"}, {"when": "2026-01-31T12:00:00"}])
def test_no_file_can_be_written_elsewhere(tmp_path: Path, change: dict[str, str]) -> None:
    (tmp_path / "file").write_text(history.export_text([record(1, 1.0), record(2, 1.0, **change)]))
    with pytest.raises(InputError, match="has a record with the id"):
        history.imported(tmp_path / "file", tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_a_regression_is_marked() -> None:
    rows = [record(1, 10.0), record(2, 10.2), record(3, 11.5), record(4, 9.0)]
    assert verdicts(*rows) == ["first", "same", "regression", "improvement"]
    assert verdicts(*rows, threshold=30) == ["first", "same", "same", "same"]
    (series,) = history.report(rows[:3]).series
    assert series.regressed and series.points[-1].change_percent == pytest.approx(15, abs=0.1)
    assert not history.report(rows).regressed, "the newest result counts"


def test_what_gets_slower_little_by_little_is_seen_against_the_best() -> None:
    rows = [record(day, 10.0 * 1.03**day) for day in range(5)]
    assert verdicts(*rows)[-1] == "regression"
    assert verdicts(*rows, against="previous") == ["first"] + ["same"] * 4


def test_a_change_within_the_noise_is_none() -> None:
    rows = [record(1, 10.0, spread=0.15), record(2, 11.0, spread=0.15)]
    assert verdicts(*rows) == ["first", "within-noise"]
    (series,) = history.report(rows).series
    assert not series.regressed and series.points[1].noise_percent == pytest.approx(21, abs=3)


def test_only_what_is_alike_is_compared() -> None:
    other = [
        record(2, 20.0, machine=replace(PHONE, driver="v.800")),
        record(3, 20.0, machine=replace(PHONE, model="Phone 6")),
        record(4, 20.0, method=replace(METHOD, protocol="quick")),
        record(5, 20.0, method=replace(METHOD, end_to_end=True)),
        record(6, 20.0, method=replace(METHOD, threads=1)),
        record(7, 20.0, method=replace(METHOD, fill_mode="zeros")),
        record(8, 20.0, subject=replace(SUBJECT, target="cpu")),
        record(9, 20.0, subject=replace(SUBJECT, package="other")),
    ]
    report = history.report([record(1, 10.0), *other])
    assert len(report.series) == 9 and not report.regressed
    assert report.series[0].key.package == "other", "the newest first"
    same = record(
        9, 20.0, machine=replace(PHONE, name="another serial"), subject=replace(SUBJECT, package_digest="d2")
    )
    (series,) = history.report([record(1, 10.0), same]).series
    assert series.regressed and series.points[1].changed == ("package", "device")


def test_wrong_outputs_and_emulated_devices_have_no_speed_to_compare() -> None:
    wrong = record(2, None, correct=False)
    assert verdicts(record(1, 10.0), wrong, record(3, 10.0)) == ["first", "wrong", "same"]
    assert history.report([record(1, 10.0), wrong]).regressed, "wrong is worse than slow"
    virtual = replace(PHONE, emulated=True, computes="", driver="")
    emulated = [record(day, None, machine=virtual) for day in (1, 2)]
    assert verdicts(*emulated) == ["no-speed", "no-speed"]
    shown = page_data(history.report(emulated))["series"][0]
    assert shown["emulated"] and all(point["ms"] is None and "p50" not in point for point in shown["points"])


def test_the_page_about_it_names_what_there_is() -> None:
    text = (Path(__file__).parents[2] / "docs/benchmarking.md").read_text()
    for protocol in PROTOCOLS.values():
        warm = (
            f"{protocol.warmup_runs} run{'s' if protocol.warmup_runs > 1 else ''} and {protocol.warmup_ms} ms"
        )
        row = f"| `{protocol.name}` | {warm} | {protocol.runs} runs and {protocol.seconds} s | {protocol.headline} |"
        assert row in text
    verdicts = (
        history.REGRESSION,
        history.IMPROVEMENT,
        history.SAME,
        history.UNCLEAR,
        history.FIRST,
        history.WRONG,
    )
    flags = re.findall(r"Flag\(\s*\"([a-z-]+)\"", inspect.getsource(bench) + inspect.getsource(api_bench))
    assert len(set(flags)) >= 9
    for name in (*verdicts, history.EMULATED, *flags):
        assert f"`{name}`" in text, name


def of(offload: str, number: int, ms: float | None, **changes: object) -> BenchRecord:
    """Return a benchmark of a package that hands a part to *offload*."""
    return record(number, ms, subject=replace(SUBJECT, offload=offload), **changes)


def choice(records: list[BenchRecord], soc: str = "", *, tuned: bool = False) -> str | None:
    fastest = fastest_offload(records, "s1", "adreno", "android-arm64-v8a", "float16", soc, tuned=tuned)
    return fastest and fastest.subject.offload


def test_the_fastest_of_the_newest_benchmarks_chooses_libraries() -> None:
    ours, clml = of("none", 1, 5.0), of("clml", 2, 4.0)
    assert choice([ours, clml]) == "clml"
    assert choice([ours, clml, of("none", 3, 3.0)]) == "none", "a newer one of ours is faster"
    assert choice([ours, clml, of("clml", 3, 6.0)]) == "none", "a newer one of the library is slower"
    assert choice([clml]) is None and choice([ours]) is None, "there is nothing to compare with"
    assert (
        choice([ours, of("clml", 2, None)]) is None and choice([ours, replace(clml, correct=False)]) is None
    )


def test_benchmarks_of_tuned_kernels_count_for_a_tuned_compile() -> None:
    ours, clml = of("none", 1, 5.0), of("clml", 2, 4.0)
    tuned = record(3, 3.0, subject=replace(SUBJECT, offload="none", tuned=7))
    assert choice([ours, clml, tuned]) == "clml"
    assert choice([ours, clml, tuned], tuned=True) == "none"
    assert choice([tuned, ours, clml], tuned=True) == "none", "a newer one that is not tuned hides it not"
    assert choice([ours, tuned], tuned=True) is None


def test_benchmarks_of_another_device_model_or_method_choose_nothing() -> None:
    ours, clml = of("none", 1, 5.0), of("clml", 2, 4.0)
    assert choice([ours, clml], soc="SM8550") == "clml" and choice([ours, clml], soc="SM8650") is None
    assert choice([ours, replace(clml, machine=replace(PHONE, soc="SM8650"))]) is None
    assert choice([ours, replace(clml, method=replace(METHOD, threads=4))]) is None
    assert choice([ours, replace(clml, subject=replace(clml.subject, source_sha256="s2"))]) is None


@pytest.mark.parametrize(("milliseconds", "offload"), [(4.0, "clml"), (6.0, "none"), (None, "none")])
def test_offload_auto_is_what_was_measured(
    milliseconds: float | None, offload: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ADT_DATA_DIR", str(tmp_path))
    model = small_model(tmp_path / "small.onnx", op="Relu")
    job = job_of(CompileRequest(model, platform="linux-aarch64", target="adreno", offload="auto"))
    subject = replace(
        SUBJECT, source_sha256=model_sha256(model), platform="linux-aarch64", precision="float32"
    )
    history.save(record(1, 5.0, subject=subject))
    history.save(record(2, milliseconds, subject=replace(subject, offload="clml")))
    assert tuned_job(job).settings.compile.offload == offload
