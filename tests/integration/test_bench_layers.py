"""Benchmark of single layers, on PoCL and on this machine's processor."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

import layers

import adt


@pytest.fixture(scope="module", autouse=True)
def host_bundle() -> None:
    adt.build_target(platform="host")


def test_layers_by_opencl_are_right_and_timed(capsys: pytest.CaptureFixture[str]) -> None:
    assert layers.main(["--opencl", "--layers", "points@7,row", "--rounds", "1"]) == 0

    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["µs", "texture", "buffer", "plain", "first/second"]
    assert [row.split()[0] for row in rows] == ["points@7", "row"]
    assert all(float(time) > 0 for row in rows for time in row.split()[1:])


def test_layers_on_the_processor_are_right_and_timed(capsys: pytest.CaptureFixture[str]) -> None:
    assert layers.main(["--layers", "points@7,row+int4", "--rounds", "1"]) == 0

    convolution, product, mean = capsys.readouterr().out.splitlines()
    assert convolution.startswith("points@7") and convolution.endswith("% of the peak  right")
    assert "GB/s" in product and mean.startswith("geometric mean")
