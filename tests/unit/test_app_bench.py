"""Measurements of an application as a benchmark with the figures that adt bench would give."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from adt.errors import InputError, RunError
from adt.measure import app_bench, history

DOCUMENT: dict[str, Any] = {
    "schema": "adt.app-bench",
    "schema_version": 1,
    "when": "2026-03-01T12:00:00+00:00",
    "app": "com.example.vision",
    "writer": "native-activity",
    "machine": {
        "model": "Phone 7",
        "soc": "QTI SM8550",
        "android_release": "14",
        "api_level": 34,
        "abi": "arm64-v8a",
    },
    "package": "detector",
    "package_digest": "ab" * 32,
    "entry": "main",
    "bundle_digest": "cd" * 32,
    "adt_version": "0.1.0",
    "runner_version": "0.1.0",
    "device": {"kind": "opencl", "name": "QUALCOMM Adreno(TM)", "driver": "OpenCL 3.0", "type": "gpu"},
    "threads": None,
    "affinity": "",
    "end_to_end": False,
    "seed": 0,
    "program_cache": "hit",
    "warmup_runs": 3,
    "warmup_ms": 500,
    "load_ms": 40.5,
    "first_run_ms": 12.25,
    "run_ms": [10.0, 11.0, 12.0, 10.0],
    "start_ms": [600.0, 611.0, 623.0, 636.0],
    "memory": {"before_load_kb": 90000, "peak_kb": None},
    "samples": [
        {"at_ms": 1.0, "temperatures": {"cpu": 31.5}, "frequencies_mhz": {}, "power": {}},
        {
            "at_ms": 700.0,
            "temperatures": {"cpu": 33.0},
            "frequencies_mhz": {},
            "power": {"voltage_uv": 4000000},
        },
    ],
}


def written(directory: Path, **changes: Any) -> Path:
    path = directory / "detector.json"
    path.write_text(json.dumps(DOCUMENT | changes))
    return path


def test_the_record_has_what_the_application_saw(tmp_path: Path) -> None:
    record = app_bench.read(written(tmp_path))
    assert record.speed is not None
    assert (record.speed.times.p50_ms, record.speed.times.count) == (10.5, 4)
    assert record.headline_ms == 10.5
    assert (record.speed.start.load_ms, record.speed.start.first_run_ms) == (40.5, 12.25)
    assert record.speed.sensors.temperatures["cpu"].highest == 33.0
    assert record.machine.key == "Phone 7 · QTI SM8550 · QUALCOMM Adreno(TM) · OpenCL 3.0"
    assert record.subject.package_digest == "ab" * 32
    assert record.subject.platform == "android-arm64-v8a"
    assert record.correct is None
    assert record.method.key == "in an app (native-activity)"


def test_it_is_taken_once_and_reported(tmp_path: Path) -> None:
    store = tmp_path / "store"
    assert history.imported(written(tmp_path), store) == 1
    assert history.imported(written(tmp_path), store) == 0
    assert history.imported(written(tmp_path, when="2026-03-02T12:00:00+00:00"), store) == 1
    (series,) = history.report(history.load(store)).series
    assert [point.verdict for point in series.points] == ["first", "same"]


def test_an_app_on_cpu_and_one_in_a_gradle_project_are_other_series(tmp_path: Path) -> None:
    cpu = {"kind": "cpu", "name": "aarch64, 8 processors", "driver": "", "type": "cpu"}
    keys = {
        history.key_of(app_bench.read(written(tmp_path, **changes)))
        for changes in ({}, {"device": cpu}, {"writer": "benchmark-activity"}, {"end_to_end": True})
    }
    assert len(keys) == 4


@pytest.mark.parametrize(
    "machine",
    [
        {"model": "sdk_gphone64_arm64", "soc": "AOSP ranchu"},
        {"model": "Android SDK built for x86_64", "soc": ""},
    ],
)
def test_an_emulator_has_no_speed(tmp_path: Path, machine: dict[str, str]) -> None:
    record = app_bench.read(written(tmp_path, machine=DOCUMENT["machine"] | machine))
    assert record.machine.emulated and record.speed is None
    assert "no" in record.no_speed and "emulated" in record.no_speed


def test_why_an_application_could_not_measure_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "detector.json").write_text(
        json.dumps(
            {
                "schema": "adt.app-bench-error",
                "schema_version": 1,
                "app": "com.example.vision",
                "model": "detector",
                "what": "no OpenCL device is there",
                "remedy": "Name the library in the manifest.",
            }
        )
    )
    with pytest.raises(RunError, match=r"com.example.vision: detector .*no OpenCL device") as caught:
        history.imported(tmp_path / "detector.json", tmp_path / "store")
    assert caught.value.remedy == "Name the library in the manifest."


@pytest.mark.parametrize(
    "changes",
    [
        {"schema_version": 2},
        {"schema": "adt.else"},
        {"surprise": 1},
        {"writer": "somebody"},
        {"when": "yesterday"},
        {"when": "2026-03-01T12:00:00"},
        {"run_ms": [], "start_ms": []},
        {"start_ms": [1.0]},
        {"run_ms": [1.0, 2.0, 3.0, -1.0]},
        {"run_ms": [0.0, 0.0, 0.0, 0.0]},
        {"load_ms": float("nan")},
        {"package_digest": ""},
        {"bundle_digest": "x"},
        {"device": {"kind": "npu", "name": "", "driver": "", "type": ""}},
        {"samples": [{"at_ms": 1.0}]},
        {"memory": None},
    ],
    ids=str,
)
def test_what_no_application_writes_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        app_bench.read(written(tmp_path, **changes))
    with pytest.raises(InputError):
        history.imported(written(tmp_path, **changes), tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_no_file_and_no_json(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("{")
    for name in ("absent", "text"):
        with pytest.raises(InputError) as caught:
            app_bench.read(tmp_path / name)
        assert caught.value.remedy


def test_the_activity_writes_every_field() -> None:
    root = Path(__file__).parents[2]
    key = re.compile(r'(?:Key|decimals|WriteNumber)\((?:json, )?"(\w+)"')
    sources = ("cpp_runner/src/activity/document.cc", "cpp_runner/src/rtvm/describe.cc")
    written = {name for source in sources for name in key.findall((root / source).read_text())}
    written |= {"schema", "schema_version"}
    parts = (
        app_bench.AppBench,
        app_bench.AppMachine,
        app_bench.AppDevice,
        app_bench.AppMemory,
        app_bench.AppSample,
    )
    assert {field.name for part in parts for field in dataclasses.fields(part)} <= written
