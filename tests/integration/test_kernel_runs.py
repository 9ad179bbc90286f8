"""The kernel bench for real, on PoCL: right kernels pass and are timed one by one, a wrong one does not."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

import kernel_runs
import kernels
from kernel_runs import TEXTURE, Batch, Settings
from kernel_table import CONV, Op

import adt
from adt.api.requests import RemoteRequest
from adt.device.place import Opened
from adt.package.package import ModelPackage, load_package
from support.models.broken_kernels import with_library

THREE = r"^(conv 1x1 160→960 7x7 relu6|max_pool 5x5 128 20x20|dense 512→1000)$"
"""A convolution, what is none, and a matrix product; small ones."""


@pytest.fixture(scope="module", autouse=True)
def host_bundle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The runner; PoCL's own cache is empty at first."""
    adt.build_target(platform="host")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POCL_CACHE_DIR", str(tmp_path_factory.mktemp("pocl")))
        yield


def measured(out: Path, *words: str) -> list[dict[str, Any]]:
    """The rows of the bench's JSON; it ended with 0."""
    assert kernels.main([*words, "-o", str(out)]) == 0
    document = json.loads(out.read_text())
    assert document["schema"] == "adt.kernels" and not document["device"]["gpu"]
    assert [one["precision"] for one in document["parts"]] == ["float32"]
    assert document["left_out"] == [
        "clml: the device's driver has none",
        "float16_acc32: the driver has no cl_khr_fp16",
    ]
    rows: list[dict[str, Any]] = document["parts"][0]["ops"]
    return rows


def test_operators_are_right_and_timed_by_the_device(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = measured(tmp_path / "kernels.json", "--only", THREE)

    assert [row["op"] for row in rows] == [
        "dense 512→1000",
        "conv 1x1 160→960 7x7 relu6",
        "max_pool 5x5 128 20x20",
    ]
    for row in rows:
        for way in ("texture", "buffer", "plain"):
            ran = row["ways"][way]
            assert ran["right"] and ran["difference"] < 1e-5, row
            assert ran["clock"] == "event" and ran["ms"] > 0
            assert ran["ms"] == pytest.approx(sum(kernel["ms"] for kernel in ran["kernels"]))
        assert not row["ways"]["buffer"]["in_images"]
        assert row["ratio"] > 0
    convolution, pool = rows[1]["ways"]["texture"], rows[2]["ways"]["texture"]
    assert convolution["in_images"] and pool["in_images"]
    for way in ("texture", "buffer"):
        packing = rows[1]["ways"][way]["packing"]
        assert [kernel["name"].startswith("pack_blocks") for kernel in packing] == [True, False]
    assert not rows[1]["ways"]["plain"]["packing"]
    assert "conv" in convolution["kernels"][0]["name"] and len(convolution["kernels"]) == 1
    assert all("pool" in kernel["name"] for kernel in pool["kernels"]), "the convolution before it counts"
    assert rows[1]["choice"]["form"] == "texture"
    said = capsys.readouterr().out
    assert "conv 1x1 160→960 7x7 relu6" in said and "not a GPU's" in said


def test_a_wrong_kernel_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = kernel_runs.open_place

    def broken(package: ModelPackage, request: RemoteRequest) -> Opened:
        """The package, whose sums begin with 1."""
        library = (package.path / "mod.so").read_bytes()
        assert b"0.000000e+00f" in library
        with_library(package.path, library.replace(b"0.000000e+00f", b"1.000000e+00f"))
        return usual(load_package(package.path), request)

    monkeypatch.setattr(kernel_runs, "open_place", broken)
    op = Op(CONV, (8, 6, 6), 8, (1, 1), then="relu")
    job = kernels.job(TEXTURE, "float32", platform="host")
    said: list[str] = []
    settings = Settings({"texture": job}, 1e-4, 1, True, 1, 0, None, None, said.append)

    ((results, run),) = kernel_runs.measure([Batch((op,), (TEXTURE,))], settings, tmp_path)

    found = results[op, "texture"]
    assert run and len(run.runs_ms) == 1
    assert not found.error and not found.right and found.difference > 0.1
    assert replace(found, right=True).ms, "it is timed all the same"


@pytest.mark.nightly
@pytest.mark.timeout(2400)
def test_every_operator_of_the_table_is_right(tmp_path: Path) -> None:
    rows = measured(tmp_path / "kernels.json", "--jobs", str(os.cpu_count()))

    assert len(rows) > 200
    convolutions = [row["ways"]["texture"] for row in rows if row["kind"] == CONV]
    assert sum(one["in_images"] for one in convolutions) >= 0.9 * len(convolutions)
