"""Distribution of a recurrent layer's units over a GPU's work-items."""

import numpy as np
import pytest

from adt.compiler.passes.gpu.recurrence import GpuSteps
from adt.compiler.passes.gpu.recurrent_tile import step_tile
from adt.compiler.passes.recurrence import Recurrence
from adt.compiler.targets.gpu import ANY_ADRENO, Gpu, gpu_of

GPUS = {"adreno": ANY_ADRENO, "mali": gpu_of("Mali", {}), "small": gpu_of("", {"max_threads_per_block": 20})}


@pytest.mark.parametrize("gpu", GPUS.values(), ids=GPUS)
@pytest.mark.parametrize("hidden", [1, 7, 61, 97, 128, 300, 512, 1100])
@pytest.mark.parametrize("batch", [1, 7])
@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_all_units_are_there_and_groups_are_within_the_device(
    kind: str, batch: int, hidden: int, gpu: Gpu
) -> None:
    tile = step_tile(Recurrence(kind, 4, batch, hidden, reset_after=False), gpu)
    assert tile.width >= hidden
    assert tile.terms * tile.shares * 4 == tile.width
    assert tile.items <= (gpu.largest_group if tile.alone else gpu.work_group)


def test_small_layers_are_one_kernel_and_large_ones_a_kernel_for_each_step() -> None:
    assert step_tile(Recurrence("LSTM", 50, 1, 128, (False, True)), ANY_ADRENO).alone
    assert not step_tile(Recurrence("LSTM", 50, 1, 512), ANY_ADRENO).alone
    assert not step_tile(Recurrence("LSTM", 50, 64, 128), ANY_ADRENO).alone, "each would read all weights"


def test_work_items_read_neighbouring_vectors_of_their_units_weights() -> None:
    layer, steps = Recurrence("GRU", 4, 1, 61), GpuSteps(ANY_ADRENO)
    weights = np.random.default_rng(0).normal(size=(1, 3 * 61, 61)).astype(np.float32)
    tile = step_tile(layer, ANY_ADRENO)
    assert tile.shares == 2

    packed = steps.packed(layer, weights).reshape(1, tile.groups, tile.terms, 3, tile.shares, tile.units, 4)

    for gate, unit, term, share in ((0, 0, 0, 0), (1, 60, 3, 1), (2, 17, 2, 0)):
        column = (term * tile.shares + share) * 4
        np.testing.assert_array_equal(
            packed[0, 0, term, gate, share, unit], weights[0, gate * 61 + unit, column : column + 4]
        )
    assert not packed[:, :, :, :, :, 61:].any()
