"""A model with a library's calls and without, for real: XNNPACK on this machine's CPU.

That there are times is tested, never which are shorter.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import adt
from adt.device.place import HostPlace
from adt.verbs import offload
from adt.verbs.offload import _failure, _lines
from support.devices.programs import adt_json
from support.models.offload import mobile_net, residual_net

HOW = {"platform": "host", "offload": "xnnpack", "protocol": "quick"}


@pytest.fixture(scope="module", autouse=True)
def own_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Build the bundle with XNNPACK, and keep this module's benchmarks to themselves."""
    adt.build_target(platform="host", xnnpack=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ADT_DATA_DIR", str(tmp_path_factory.mktemp("data")))
        yield


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return residual_net(tmp_path_factory.mktemp("model") / "net.onnx")


@pytest.fixture(scope="module")
def document(model: Path) -> dict[str, Any]:
    return adt_json("compare-offload", model, "--for", "host", "--offload", "xnnpack", "--protocol", "quick")


def test_both_are_right_and_timed(document: dict[str, Any]) -> None:
    assert document["passed"] and not document["emulated"]
    names = list(document["outputs"])
    assert names[0] == "library with fused" and all("onnxruntime" in name for name in names[1:])
    for row in document["outputs"].values():
        assert row["passed"] and row["max_rel_allowed"] == 1e-5
        assert all(0 <= output["max_rel"] <= 1e-5 for output in row["outputs"])
    ratio = document["library_times_as_fast"]
    assert 0 < ratio["low"] <= ratio["value"] <= ratio["high"]
    assert len(document["round_ms"]) == 6


def test_calls_of_both_are_listed_and_memory_is(document: dict[str, Any]) -> None:
    fused, library = document["fused"], document["library"]
    assert fused["offload"] is None and library["offload"]["shares"] == [
        {"library": "xnnpack", "ops": 31, "subgraphs": 1}
    ]
    devices = {
        name: [call["device"] for call in document[name]["profile"]["calls"]] for name in ("fused", "library")
    }
    assert "library" not in devices["fused"] and devices["library"].count("library") == 1
    assert devices["fused"].count("cpu") > devices["library"].count("cpu") == 1
    layers = [call["name"] for call in document["layers"]["calls"] if call["device"] == "library"]
    assert sum(name.endswith("_conv2d") for name in layers) == 8 and len(layers) == 15
    assert fused["planned_bytes"] > library["planned_bytes"] > 0 and library["grown_kb"] > 0
    assert {side["bench"]["subject"]["offload"] for side in (fused, library)} == {"none", "xnnpack"}
    assert all(side["bench"]["record"] for side in (fused, library))


def test_auto_takes_what_was_faster(document: dict[str, Any], model: Path, tmp_path: Path) -> None:
    times = {
        side["bench"]["subject"]["offload"]: side["bench"]["speed"]["times"]["p50_ms"]
        for side in (document["fused"], document["library"])
    }
    package = adt.compile(model, platform="host", offload="auto", out=tmp_path / "package")
    assert package.manifest.offload == min(times, key=lambda offload: times[offload])
    other = adt.compile(
        mobile_net(tmp_path / "mobile.onnx"), platform="host", offload="auto", out=tmp_path / "p"
    )
    assert other.manifest.offload == "none", "nothing was measured of it"


def test_outputs_that_differ_are_told(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offload, "CLOSE", 0.0)
    result = adt.compare_offload(model, **HOW, record=False)
    assert not result.passed and not result.between.passed
    error = _failure(result)
    assert error is not None and "library with fused" in error.what


def test_an_emulated_place_has_no_times(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HostPlace, "emulated", True)
    result = adt.compare_offload(model, **HOW, record=False)
    assert result.passed and result.ratio is None
    assert result.fused.profile is result.library.profile is result.layers is None
    text = "\n".join(_lines(result, everything=False))
    assert "right: library with fused" in text and "no times: the device is emulated" in text
    assert "p50" not in text and "call by call" not in text
