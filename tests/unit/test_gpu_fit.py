"""The row of a GPU is fitted to times, kept beside the records, and taken by a compile."""

import dataclasses
import json
import random
from pathlib import Path
from typing import Any

import pytest

from adt.compiler.passes.gpu.tiles import Sums, Tile, _tiles, cost
from adt.compiler.passes.records.tuning import Tuning
from adt.compiler.targets.gpu import ANY_ADRENO, Gpu, gpu_of
from adt.errors import ConfigError
from adt.tuning.database.tuned_schedules import GPUS, fitted_gpu, keep_gpu
from adt.tuning.fit import LEAST_TIMES, TimedTile, fit, tile_of
from adt.tuning.records import Context
from adt.verbs.compile import CompileRequest, job_of

LAYERS = {
    "deep": Sums(1, 128, 7, 7, 128, 4, 3, 3, (1, 1), texels=True, grouped=False),
    "wide": Sums(1, 24, 112, 112, 4, 4, 1, 1, (1, 1), texels=True, grouped=False),
    "middle": Sums(1, 32, 28, 28, 32, 4, 3, 3, (1, 1), texels=True, grouped=False),
}
PHONE = Context("a target", "0.25.0", "Mali-G78 r0p1", "1.0")


def times_of(gpu: Gpu, slower_shared: float = 1.0) -> list[TimedTile]:
    """Return the times of a device on which the model of costs is exact."""
    choice = random.Random(0)
    times = []
    for name, sums in LAYERS.items():
        tiles = list(_tiles(sums, dataclasses.replace(gpu, sums=16, local_bytes=1 << 16)))
        for tile in choice.sample(tiles, min(40, len(tiles))):
            seconds = cost(sums, tile, gpu) * 1e-9 * (slower_shared if tile.parts > 1 else 1.0)
            times.append(TimedTile(name, sums, tile, seconds))
    return times


@pytest.mark.parametrize("items", [512, 65536])
def test_the_model_orders_schedules_better_with_the_fitted_row(items: int) -> None:
    device = dataclasses.replace(ANY_ADRENO, items=items, wave=16)

    fitted = fit(times_of(device), ANY_ADRENO)

    assert fitted.ordered > max(0.97, fitted.ordered_before)
    assert items / 4 <= fitted.gpu.items <= items * 4
    assert fitted.gpu.work_group == ANY_ADRENO.work_group, "times do not tell"
    assert (fitted.kernels, fitted.before) == (3, ANY_ADRENO)


def test_a_row_that_fits_stays() -> None:
    assert fit(times_of(ANY_ADRENO), ANY_ADRENO).gpu == ANY_ADRENO


def test_local_memory_that_only_costs_is_not_used() -> None:
    assert fit(times_of(ANY_ADRENO, slower_shared=1e3), ANY_ADRENO).gpu.local_bytes == 0


def test_few_times_fit_no_row() -> None:
    times = times_of(ANY_ADRENO)
    with pytest.raises(
        ConfigError, match=f"at least, of different times; the records have {LEAST_TIMES - 1}"
    ):
        fit(times[: LEAST_TIMES - 1], ANY_ADRENO)
    with pytest.raises(ConfigError, match="different times"):
        fit([dataclasses.replace(each, seconds=1.0) for each in times], ANY_ADRENO)


@pytest.mark.parametrize("drawn", [False, True], ids=["as it is written", "as TVM drew it"])
def test_a_trace_tells_its_tile(drawn: bool) -> None:
    cuts: list[list[int]] = [[8, 4], [2, 4, 2], [7, 1, 1], [3, 2, 4], [4, 2]]

    def trace(first: int, *others: str) -> str:
        steps: list[Any] = [["Split", ["l0", None, 4], [], []], *([name, [], [], []] for name in others)]
        decisions = []
        for number, cut in enumerate(cuts[first:]):
            names = [f"v{number}_{place}" for place in range(len(cut))]
            if drawn:
                decisions.append([len(steps), cut])
                steps.append(["SamplePerfectTile", ["l1"], [], names])
            steps.append(["Split", ["l1", *(names if drawn else cut)], [], []])
        return json.dumps([steps, decisions])

    assert tile_of(trace(0, "RFactor")) == Tile(2, 1, 4, (4, 1, 2), 4)
    assert tile_of(trace(1)) == Tile(2, 1, 4, (4, 1, 2), 1)
    assert tile_of(trace(3)) is None


def test_what_was_fitted_is_found_again_for_its_device_alone(tmp_path: Path) -> None:
    gpu = dataclasses.replace(gpu_of("Mali-G78", {}), items=2048)
    keep_gpu(tmp_path, PHONE, ANY_ADRENO)
    keep_gpu(tmp_path, PHONE, gpu)
    keep_gpu(tmp_path, dataclasses.replace(PHONE, device="another"), ANY_ADRENO)

    assert fitted_gpu(tmp_path, PHONE) == gpu
    assert fitted_gpu(tmp_path, dataclasses.replace(PHONE, tvm="0.26.0")) == gpu
    assert fitted_gpu(tmp_path, dataclasses.replace(PHONE, driver="2.0")) is None


@pytest.mark.parametrize("text", ["", "{}", "[1]", '[{"gpu": {}}]', '[{"gpu": {"wave": 1}}]'])
def test_a_damaged_file_is_not_used(tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / GPUS).write_text(text)
    assert fitted_gpu(tmp_path, PHONE) is None
    assert "adt tune --fit" in caplog.text
    keep_gpu(tmp_path, PHONE, ANY_ADRENO)
    assert fitted_gpu(tmp_path, PHONE) == ANY_ADRENO


def test_a_row_without_work_items_is_not_used(tmp_path: Path) -> None:
    keep_gpu(tmp_path, PHONE, dataclasses.replace(ANY_ADRENO, items=0))
    assert fitted_gpu(tmp_path, PHONE) is None


def test_a_compile_takes_the_row_within_the_device_s_limits(tmp_path: Path) -> None:
    job = job_of(CompileRequest(tmp_path / "model.onnx", platform="host", target="opencl", check=False))
    usual = job.target().gpu
    assert usual is not None
    row = dataclasses.replace(usual, items=512, sums=4, local_bytes=1 << 20)
    fitted = dataclasses.replace(job, tuning=Tuning((), "", "a GPU", "", gpu=row)).target().gpu
    assert fitted == dataclasses.replace(usual, items=512, sums=4)
