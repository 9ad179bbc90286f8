"""Distribution of rows over a GPU's work-items."""

from collections.abc import Sequence

import pytest

from adt.compiler.passes.gpu.rows import Deal, deal_of
from adt.compiler.targets.gpu import ANY_ADRENO, Gpu, gpu_of


@pytest.mark.parametrize(
    "gpu",
    [ANY_ADRENO, gpu_of("Mali", {}), gpu_of("Adreno 630", {"max_threads_per_block": 24})],
    ids=lambda gpu: gpu.name,
)
@pytest.mark.parametrize("outer", [(1,), (197,), (4, 128), (50000, 1)], ids=str)
@pytest.mark.parametrize("lanes", [1, 4])
def test_all_of_a_row_is_dealt_out_and_no_item_is_idle(lanes: int, outer: Sequence[int], gpu: Gpu) -> None:
    for vectors in range(1, 3000, 7):
        dealt = deal_of(vectors, lanes, outer, gpu)
        assert dealt.items * dealt.steps >= vectors > dealt.items * dealt.steps - dealt.items
        assert 1 <= dealt.items <= gpu.work_group
        assert dealt.kept == (dealt.steps * lanes <= (16 if dealt.items == 1 else 2 * gpu.sums))


@pytest.mark.parametrize(
    ("vectors", "lanes", "outer", "dealt"),
    [
        (3, 1, (1000,), Deal(1, 3, True)),
        (32, 4, (4, 128), Deal(8, 4, True)),
        (32, 4, (2,), Deal(32, 1, True)),
        (197, 1, (6, 197), Deal(50, 4, True)),
        (50257, 1, (1,), Deal(128, 393, False)),
    ],
    ids=["tiny", "many rows", "few rows", "rows that no work-group takes several of", "not kept"],
)
def test_as_few_items_share_a_row_as_keep_the_gpu_busy(
    vectors: int, lanes: int, outer: Sequence[int], dealt: Deal
) -> None:
    assert deal_of(vectors, lanes, outer, ANY_ADRENO) == dealt
