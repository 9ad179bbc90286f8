"""The model that decides between textures and buffers."""

import dataclasses

import pytest

from adt.compiler.passes.gpu.choice import ALWAYS, BY_MODEL, multiply_adds_per_texel
from adt.compiler.passes.layout.signature import Signature, convolution, product
from adt.compiler.passes.layout.walk import Moves
from adt.compiler.targets.gpu import ANY_ADRENO, gpu_of
from adt.errors import ConfigError
from adt.options.resolve import load_settings

CONV = convolution("float32", (64, 64, 3, 3), (1, 64, 56, 56), (1, 1), 1)
POINTWISE = convolution("float32", (8, 16, 1, 1), (1, 8, 100, 100), (1, 1), 1)
DEPTHWISE = convolution("float32", (32, 1, 3, 3), (1, 32, 28, 28), (1, 1), 32)
BYTES = 16 * 100 * 100 * 4


def test_what_a_convolution_computes() -> None:
    assert Signature("float32", 64, (56, 56), 64, (3, 3), (1, 1), False) == CONV
    assert CONV.macs == 64 * 56 * 56 * 64 * 9
    assert Signature("float32", 32, (28, 28), 1, (3, 3), (1, 1), True) == DEPTHWISE
    odd = convolution("float16", (10, 3, 5, 1), (2, 10, 7, 9), (2, 1), 1)
    assert odd == Signature("float16", 12, (2, 7, 9), 3, (5,), (1, 2, 1), False)


def test_a_window_that_stands_still_is_one_with_the_channels() -> None:
    whole = convolution("float32", (8, 4, 7, 7), (1, 8, 1, 1), (1, 1), 1)
    assert whole == convolution("float32", (8, 4 * 49, 1, 1), (1, 8, 1, 1), (3, 3), 1)


def test_a_product_is_a_convolution_of_points() -> None:
    assert product("float32", (1,), 512, 1000) == convolution(
        "float32", (1000, 512, 1, 1), (1, 1000, 1, 1), (1, 1), 1
    )
    assert product("float32", (1, 77), 64, 30).positions == (77,)
    assert product("float32", (2, 14), 64, 32) == convolution(
        "float32", (32, 64, 1, 1), (1, 32, 4, 7), (1, 1), 1
    )
    assert convolution("float32", (32, 64, 1, 1), (1, 32, 4, 7), (2, 2), 1).positions == (4, 7)


@pytest.mark.parametrize(("outputs", "textures"), [(4, True), (5, False), (6, True), (8, True), (9, True)])
def test_lanes_to_spare(outputs: int, textures: bool) -> None:
    computes = convolution("float32", (outputs, 16, 3, 3), (1, outputs, 8, 8), (1, 1), 1)
    chosen = BY_MODEL.choose(computes, outputs, Moves())
    assert chosen.blocked == textures
    assert textures or "5 output channels leave 3 lanes idle" in chosen.reason
    assert ALWAYS.choose(computes, outputs, Moves()).blocked


def test_a_vector_times_a_matrix_stays_in_buffers_where_it_is_in_one() -> None:
    row = product("float32", (1,), 512, 1000)
    alone = BY_MODEL.choose(row, 1000, Moves())
    assert not alone.blocked and "each weight is used once" in alone.reason
    assert BY_MODEL.choose(row, 1000, Moves(unpack=2048)).blocked, "a gate between blocked tensors"
    assert BY_MODEL.choose(product("float32", (7,), 512, 1000), 1000, Moves()).blocked
    assert ALWAYS.choose(row, 1000, Moves()).blocked


def test_a_convolution_of_points_must_do_something_with_what_it_moves() -> None:
    few, more = (
        convolution("float32", (16, channels, 1, 1), (1, 16, 112, 112), (1, 1), 1) for channels in (16, 32)
    )
    chosen = BY_MODEL.choose(few, 16, Moves())
    assert not chosen.blocked and chosen.reason == "32 multiply-adds for each texel that it moves"
    assert BY_MODEL.choose(few, 16, Moves(unpack=1)).blocked, "its input is blocked"
    assert BY_MODEL.choose(more, 16, Moves()).blocked


def test_packing_must_be_worth_it() -> None:
    assert BY_MODEL.choose(POINTWISE, 8, Moves(unpack=BYTES, output=BYTES)).blocked, (
        "its input is packed already"
    )
    alone = BY_MODEL.choose(POINTWISE, 8, Moves(pack=BYTES, output=BYTES))
    assert not alone.blocked and "packing its input" in alone.reason
    assert BY_MODEL.choose(CONV, 64, Moves(pack=64 * 56 * 56 * 4)).blocked
    half = dataclasses.replace(POINTWISE, dtype="float16")
    assert BY_MODEL.choose(half, 8, Moves(pack=BYTES // 2)).blocked == alone.blocked, "as many texels"


def test_reuse_is_bounded_by_registers_and_by_what_there_is() -> None:
    small = gpu_of("Adreno 610", {})
    assert small.sums < ANY_ADRENO.sums
    assert multiply_adds_per_texel(CONV, small) < multiply_adds_per_texel(CONV, ANY_ADRENO)
    row = product("float32", (1,), 512, 1000)
    assert multiply_adds_per_texel(row, ANY_ADRENO) < 4, "each weight is used once"
    assert multiply_adds_per_texel(DEPTHWISE, ANY_ADRENO) < multiply_adds_per_texel(CONV, ANY_ADRENO)
    strided = convolution("float32", (32, 1, 3, 3), (1, 32, 28, 28), (2, 2), 32)
    assert multiply_adds_per_texel(strided, ANY_ADRENO) < multiply_adds_per_texel(DEPTHWISE, ANY_ADRENO)


def test_the_setting() -> None:
    with pytest.raises(ConfigError, match=r"--texture-choice: 'alway'.*'always'"):
        load_settings({"compile.texture_choice": "alway"}, environ={})
