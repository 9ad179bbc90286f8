"""`adt bench` and `adt report` for real: a package for this machine, OpenCL on its CPU, and a virtual device.

That there are figures is tested, and that there are none where they would be no speed; never how large they are.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adt.measure import history
from support.codegen.browser import browser
from support.devices.fixtures import Rack
from support.devices.programs import adt, adt_json, invoke, program_output
from support.models.small import small_model

TIME = re.compile(r"\d\s?(?:ms|s|µs)\b|per second|latency|p50|throughput")
"""Words by which a text tells a speed."""


@pytest.fixture(scope="module", autouse=True)
def own_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    store = tmp_path_factory.mktemp("data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ADT_DATA_DIR", str(store))
        patch.setenv("POCL_CACHE_DIR", str(tmp_path_factory.mktemp("pocl")))
        yield store / "bench"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("model") / "small.onnx", op="Sigmoid", dims=(64, 4))


@pytest.fixture(scope="module")
def first(on_cpu: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Measure this machine's CPU once, with the times of the runs."""
    file = tmp_path_factory.mktemp("times") / "times.npz"
    words = ("--protocol", "quick", "--runs", 60, "--label", "one", "--times", file)
    return adt_json("bench", on_cpu, *words) | {"file": file}


def test_there_are_figures_and_they_agree(first: dict[str, Any]) -> None:
    times = first["speed"]["times"]
    assert times["count"] >= 60 and first["method"]["protocol"] == "quick (runs=60)"
    assert 0 < times["min_ms"] <= times["p50_ms"] <= times["p90_ms"] <= times["p99_ms"] <= times["max_ms"]
    assert first["speed"]["start"]["load_ms"] > 0 and first["speed"]["start"]["first_run_ms"] > 0
    assert first["speed"]["peak_kb"] > first["speed"]["before_load_kb"] > 0
    assert first["speed"]["cold_start"] is None, "nothing is compiled at run time"
    with np.load(first["file"]) as arrays:
        runs, starts = arrays["run_ms"], arrays["start_ms"]
    assert len(runs) == len(starts) == times["count"] and (np.diff(starts) > 0).all()
    assert times["p50_ms"] == pytest.approx(float(np.median(runs)))
    total = float(starts[-1] - starts[0]) / 1000
    assert total + float(runs[-1]) / 1000 >= 0.19, "at least the protocol's 0.2 s"


def test_what_ran_is_in_the_record(first: dict[str, Any], on_cpu: Path, own_store: Path) -> None:
    assert first["correct"] is True and first["verification"]["passed"] and not first["emulated"]
    machine = first["machine"]
    assert (machine["kind"], machine["name"], machine["computes"]) == ("host", "this machine", "cpu")
    assert machine["model"] and "says nothing about a phone" in first["flags"][0]["text"]
    energy = first["speed"]["energy"]
    assert (energy["joules_per_run"] is None) == bool(energy["reason"])
    path = Path(first["record"])
    assert path.parent == own_store
    record = next(record for record in history.load() if record.id == first["id"])
    assert record.subject.package == "small" and record.label == "one"
    assert record.speed is not None and record.speed.times.p50_ms == first["speed"]["times"]["p50_ms"]


def test_on_the_terminal(on_cpu: Path, own_store: Path) -> None:
    before = len(list(own_store.iterdir()))
    words = ("--protocol", "quick", "--runs", 40, "--end-to-end", "--threads", 1)
    done = adt("bench", on_cpu, *words, "--no-record", "--no-verify", "--cool-down", "0s")
    assert done.returncode == 0, done.stderr
    for text in ("this machine", "says nothing about a phone", "latency", "runs per second", "(--no-verify)"):
        assert text in done.stdout
    assert "quick (runs=40), end to end, 1 threads; copying in, running, copying out" in done.stdout
    assert len(list(own_store.iterdir())) == before and "kept" not in done.stdout


def test_wrong_is_no_result(on_cpu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADT_VERIFY_MAX_ABS", "0")
    monkeypatch.setenv("ADT_VERIFY_MAX_REL", "0")
    done = adt("bench", on_cpu, "--protocol", "quick", "--seed", 1)
    assert done.returncode == 20, done.stdout
    assert "WRONG: y" in done.stdout and "fast and wrong is no result" in done.stdout
    assert not re.search(r"latency|p50|per second", done.stdout)
    done = adt("bench", on_cpu, "--protocol", "quick", "--seed", 1, "--json")
    document = json.loads(done.stdout)
    assert done.returncode == 20 and document["speed"] is None and document["correct"] is False


def test_opencl_on_a_cpu_is_marked(on_pocl: Path) -> None:
    document = adt_json("bench", on_pocl, "--protocol", "quick", "--runs", 20)
    assert document["machine"]["computes_type"] == "cpu" and document["machine"]["driver"]
    assert document["machine"]["computes"] != "cpu"
    assert document["flags"][0]["name"] == "opencl-on-cpu"
    assert "says nothing about a GPU" in document["flags"][0]["text"]
    speed = document["speed"]
    assert speed["program_cache"] == "hit" and speed["cold_start"]["first_run_ms"] > 0
    done = adt("bench", on_pocl, "--protocol", "quick", "--no-cold-start", "--no-record", "--no-verify")
    lines = done.stdout.splitlines()
    marked = next(number for number, line in enumerate(lines) if "OpenCL on a CPU" in line)
    assert marked < next(number for number, line in enumerate(lines) if line.startswith("latency"))
    assert "cold start" not in done.stdout


def test_two_in_turns(on_cpu: Path, on_pocl: Path) -> None:
    words = ("--protocol", "quick", "--no-verify", "--fill-mode", "ones")
    document = adt_json("bench", "--ab", on_cpu, on_pocl, *words)
    assert len(document["round_ms"]) == 6 and all(a > 0 and b > 0 for a, b in document["round_ms"])
    ratio = document["b_times_as_fast"]
    assert 0 < ratio["low"] <= ratio["value"] <= ratio["high"]
    ratios = [a / b for a, b in document["round_ms"]]
    assert ratio["value"] == pytest.approx(float(np.median(ratios)))
    assert min(ratios) <= ratio["low"] and ratio["high"] <= max(ratios)
    for side, target in (("a", "cpu"), ("b", "opencl")):
        assert document[side]["subject"]["target"] == target and document[side]["method"]["interleaved"]
        assert document[side]["method"]["fill_mode"] == "ones"
        assert document[side]["speed"]["times"]["count"] >= 6 * 2 * 3
    assert re.search(r"× as fast as [AB]", document["sentence"])


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ((), 3, "one package is measured, or two are compared"),
        (("PKG", "--ab", "PKG", "PKG"), 3, "one package is measured, or two are compared"),
        (("PKG", "--rounds", "7"), 3, "--rounds can be given only with --ab"),
        (("PKG", "--protocol", "quik"), 3, "Did you mean 'quick'"),
        (("PKG", "--cool-down", "45F"), 3, "neither a temperature nor a time"),
    ],
)
def test_what_cannot_be_asked(on_cpu: Path, words: tuple[str, ...], code: int, message: str) -> None:
    done = invoke("bench", *(str(on_cpu) if word == "PKG" else word for word in words))
    assert done.returncode == code and message in done.stderr and "remedy:" in done.stderr


def test_the_report_over_time(first: dict[str, Any], on_cpu: Path, tmp_path: Path) -> None:
    """Compare with an edited copy of the first benchmark: three times as slow, a day later."""
    word = ("--package", "small", "--label", "one*")
    assert adt("report", *word, "--fail-on-regression").returncode == 0
    record = json.loads(Path(first["record"]).read_text())
    times = record["speed"]["times"]
    times["spread_percent"], record["speed"]["drift"] = 1.0, None  # however busy this machine was
    Path(first["record"]).write_text(json.dumps(record))
    for name in ("p50_ms", "p90_ms", "p99_ms"):
        times[name] *= 3
    record |= {
        "id": "feed",
        "when": record["when"].replace("20", "30", 1),
        "label": "one </script> day later",
    }
    exported = {"schema": "adt.bench-records", "schema_version": 1, "records": [record]}
    (tmp_path / "slow.json").write_text(json.dumps(exported))

    document = adt_json("report", *word, "--import", tmp_path / "slow.json", "--threshold", 150)
    assert document["imported"] == 1 and document["regressions"] == 1
    (series,) = document["series"]
    assert series["regressed"] and [point["verdict"] for point in series["points"]] == ["first", "regression"]
    assert series["points"][1]["change_percent"] == pytest.approx(200)

    page = tmp_path / "page.html"
    done = adt(
        "report",
        *word,
        "--html",
        page,
        "--export",
        tmp_path / "all.json",
        "--fail-on-regression",
        "--threshold",
        150,
    )
    assert done.returncode == 30 and "small (cpu)" in done.stderr
    assert "+200.0 % regression" in done.stdout
    assert len(json.loads((tmp_path / "all.json").read_text())["records"]) == 2
    assert adt("report", *word, "--threshold", 250, "--fail-on-regression").returncode == 0
    assert adt("report", "--device", "no such").stdout.startswith("nothing was measured yet")

    with browser() as shown:
        shown.open(page)
        assert shown.run("document.querySelector('article h2').textContent") == "small regression"
        assert shown.run("document.querySelectorAll('circle.dot').length") == 2
        assert shown.run("document.querySelectorAll('circle.dot.regression').length") == 1
        shown.click("circle.dot.regression")
        assert "one </script> day later" in shown.run("document.querySelector('tr.picked').textContent")
        heights = shown.run(
            "[...document.querySelectorAll('circle.dot')].map((dot) => Number(dot.getAttribute('cy')))"
        )
        assert heights[1] < heights[0], "slower is higher"
        assert not shown.complaints and all(url.startswith("file:") for url in shown.requests)


@pytest.fixture(scope="module")
def virtual(native_rack: Rack, on_cpu: Path) -> Iterator[tuple[str, Path]]:
    """Yield a virtual device with this machine's processor, and a package that runs there."""
    yield native_rack.start("bench").serial, on_cpu
    native_rack.stop_all()


def test_nothing_emulated_has_a_speed(virtual: tuple[str, Path], tmp_path: Path) -> None:
    serial, package = virtual
    done = adt("bench", package, "--serial", serial)
    assert done.returncode == 0, done.stderr
    assert "right: 1 of 1" in done.stdout and "says nothing about the speed of any device" in done.stdout
    shown = "\n".join(line for line in done.stdout.splitlines() if not line.startswith(("kept", "speed")))
    assert not TIME.search(shown), shown
    document = adt_json("bench", package, "--serial", serial, "--times", tmp_path / "times.npz")
    assert document["emulated"] and document["speed"] is None and document["correct"] is True
    assert "emulated" in document["no_speed"] and not document["samples"]
    assert not (tmp_path / "times.npz").exists()
    record = json.loads(Path(document["record"]).read_text())
    assert record["speed"] is None and record["machine"]["emulated"]
    (series,) = adt_json("report", "--device", serial)["series"]
    assert series["emulated"] and {point["verdict"] for point in series["points"]} == {"no-speed"}
    refused = adt("bench", package, "--serial", serial, "--no-verify")
    assert refused.returncode == 3 and "is emulated" in refused.stderr


def test_nothing_emulated_is_compared(virtual: tuple[str, Path]) -> None:
    serial, package = virtual
    document = adt_json("bench", "--ab", package, package, "--serial", serial)
    assert document["emulated"] and document["b_times_as_fast"] is None and document["sentence"] is None
    assert document["a"]["speed"] is None and document["b"]["speed"] is None and not document["round_ms"]


def test_the_screenshots_of_the_documentation(on_cpu: Path, model: Path, tmp_path: Path) -> None:
    from PIL import Image

    docs = Path(__file__).parents[2] / "docs"
    printed = program_output(
        sys.executable,
        *(docs / "screenshots.py", on_cpu, model, tmp_path),
        ADT_DATA_DIR=str(tmp_path / "data"),
    )
    pictures = [f"{name}.png" for name in ("profile", "inspect", "report", "up", "tune")]
    assert [Path(line).name for line in printed.split()] == pictures
    for line in printed.split():
        committed = docs / "figures" / Path(line).name
        assert committed.stat().st_size <= 80_000
        for file in (Path(line), committed):
            with Image.open(file) as picture:
                assert picture.size == (1100, 640)
                assert len(picture.convert("RGB").getcolors(1 << 20) or []) > 8, "more than an empty page"
