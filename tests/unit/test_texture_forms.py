"""The forms of tensors in texels, and how pools are dealt out: arithmetic, without TVM."""

from types import SimpleNamespace

import numpy as np
import pytest

from adt.compiler.passes.gpu.texels import shares_of
from adt.compiler.passes.layout.blocks import TEXELS, Window, packed
from adt.compiler.passes.layout.movement import repeats
from adt.compiler.passes.layout.walk import one_pixel
from adt.compiler.passes.scheduling import NoSchedule
from adt.compiler.targets.gpu import ANY_ADRENO


def test_rows_are_images_of_one_pixel() -> None:
    assert TEXELS.rows_shape((2, 5, 8)) == (10, 2, 1, 1, 4)
    assert TEXELS.rows_shape((3, 10)) == (3, 3, 1, 1, 4)
    assert one_pixel((2, 8, 1, 1))
    assert one_pixel((2, 8))
    assert not one_pixel((2, 8, 1, 2))


def test_channels_of_an_array_become_blocks_with_zeros_to_spare() -> None:
    array = np.arange(12.0).reshape(1, 6, 2)

    blocks = packed(array, axis=1)

    assert blocks.shape == (1, 2, 2, 4)
    assert blocks[0, 1, 0].tolist() == [8, 10, 0, 0]


def test_a_wider_window_has_the_same_outputs() -> None:
    window = Window((3, 3), (2, 2), (0, 1), (0, 1), (1, 1))

    wider = window.widened((1, 0), (1, 2))

    assert (wider.before, wider.after) == ((1, 1), (1, 3))
    assert wider.extents((8, 8)) == window.extents((10, 10))


@pytest.mark.parametrize(
    ("window", "depth"), [(49, 128), (12544, 4), (196, 18), (169, 5), (64, 1), (49, 320)]
)
def test_the_work_items_of_a_pool_divide_its_windows_and_channels(window: int, depth: int) -> None:
    parts, texels = shares_of(window, depth, ANY_ADRENO)

    assert window % parts == 0
    assert depth % texels == 0
    assert 1 < parts * texels <= ANY_ADRENO.work_group
    assert window // parts >= 4
    more = [size for size in range(texels + 1, depth + 1) if depth % size == 0]
    filled = parts * texels >= ANY_ADRENO.wave
    assert filled or not more or parts * more[0] > ANY_ADRENO.work_group


def test_a_window_that_no_work_items_divide_is_not_dealt_out() -> None:
    with pytest.raises(NoSchedule, match="cannot be dealt out"):
        shares_of(1009, 8, ANY_ADRENO)


@pytest.mark.parametrize(
    ("mode", "rounding", "output", "expected"),
    [
        ("asymmetric", "floor", (8, 6), True),
        ("half_pixel", "round_prefer_floor", (8, 9), True),
        ("asymmetric", "ceil", (8, 6), False),
        ("asymmetric", "floor", (6, 6), False),
        ("align_corners", "round", (8, 6), False),
    ],
)
def test_which_resizes_repeat_pixels(
    mode: str, rounding: str, output: tuple[int, int], expected: bool
) -> None:
    how = SimpleNamespace(
        method="nearest_neighbor", coordinate_transformation_mode=mode, rounding_method=rounding
    )

    assert repeats(how, (4, 3), output) is expected
    assert not repeats(SimpleNamespace(**{**vars(how), "method": "linear"}), (4, 3), output)
