"""Benchmark of single layers, on PoCL and on this machine's processor."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

import layers

pytestmark = pytest.mark.usefixtures("host_bundle")


@pytest.fixture(autouse=True)
def small_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(layers.LAYERS, "tiny", ((1, 8, 7, 7), 8, 1, 1, 1))
    monkeypatch.setitem(layers.PRODUCTS, "short", (1, 64, 64))
    monkeypatch.setattr(layers, "RUNS", 3)
    monkeypatch.setenv("ADT_COMPILE_CHECK", "off")  # each package is verified


def test_layers_by_opencl_are_right_and_timed(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--opencl", "--layers", "tiny,short", "--ways", "texture,plain", "--rounds", "1"]
    assert layers.main(words) == 0

    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["µs", "texture", "plain", "first/second"]
    assert [row.split()[0] for row in rows] == ["tiny", "short"]
    assert all(float(time) > 0 for row in rows for time in row.split()[1:])


def test_layers_on_the_processor_are_right_and_timed(capsys: pytest.CaptureFixture[str]) -> None:
    assert layers.main(["--layers", "tiny,short+int4", "--rounds", "1"]) == 0

    convolution, product, mean = capsys.readouterr().out.splitlines()
    assert convolution.startswith("tiny") and convolution.endswith("% of the peak  right")
    assert "GB/s" in product and mean.startswith("geometric mean")
