"""The forms of measured convolutions, chosen for a model as a whole."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from typing import Any

import pytest
import tvm
from tvm import relax

from adt.model.passes.gpu.chains import BLOCKED, PLAIN, Cut, in_chains
from adt.model.passes.gpu.choice import CLEARLY, SLOWEST, MeasuredTimes, TextureChooser
from adt.model.passes.layout.operators import block_channels
from adt.model.passes.layout.signature import Signature, convolution
from support.models.blocked import conv, model

MOVING = 0.6
"""Seconds of each kernel that packs or unpacks."""
WIDTHS = (8, 12, 16, 20, 24)


def computes(inputs: int, out: int) -> Signature:
    return convolution("float32", (out, inputs, 3, 3), (1, out, 8, 8), (1, 1), 1)


def chain(length: int) -> tvm.IRModule:
    """Convolutions of other widths, one after the other, with what they are fused with between."""

    def body(builder: relax.BlockBuilder, x: Any) -> Any:
        for inputs, out in itertools.pairwise(WIDTHS[: length + 1]):
            x = builder.emit(relax.op.nn.relu(builder.emit(conv(x, out, inputs))))
        return x

    return model((1, WIDTHS[0], 8, 8), body)


def blocked(
    module: tvm.IRModule, times: Sequence[tuple[float, float] | None], moving: float = MOVING
) -> list[bool]:
    """Which of the convolutions are, by *times* in textures and in buffers."""
    pairs = dict(zip((computes(*pair) for pair in itertools.pairwise(WIDTHS)), times, strict=False))
    textures, buffers = ({key: both[at] for key, both in pairs.items() if both} for at in (0, 1))
    chooser = TextureChooser(times=MeasuredTimes("a GPU", textures, buffers, {}, moving, math.inf))
    _, rows = block_channels(module, in_chains(module, chooser))
    return [not row.reason for row in rows]


def test_what_is_faster_only_as_a_whole_is_found() -> None:
    """Each of the last three, alone, gains 0.3 s, and costs two kernels of 0.6 s: its neighbours' forms."""
    slower = (1.3, 1.0)
    assert blocked(chain(4), [(0.5, 3.0), slower, slower, slower]) == [True, False, False, False]
    assert blocked(chain(2), [(0.5, 3.0), slower]) == [True, False], "it is unpacked before, or behind it"
    assert blocked(chain(3), [slower, slower, slower]) == [False] * 3


def test_a_slower_form_is_taken_where_its_neighbours_gain_more() -> None:
    assert blocked(chain(3), [(0.1, 1.0), (1.3, 1.0), (0.1, 1.0)]) == [True, True, True]
    assert blocked(chain(3), [(0.1, 1.0), (1.01 * SLOWEST, 1.0), (0.1, 1.0)])[1] is False
    assert blocked(chain(3), [(1.0, 1.1), (0.5, 1.0), (1.0, 1.1)]) == [False] * 3, "packing takes more"


@pytest.mark.parametrize(("share", "textures"), [(0.99, True), (1.01, False)])
def test_textures_where_both_take_about_as_long(share: float, textures: bool) -> None:
    assert blocked(chain(1), [(share * CLEARLY, 1.0)], moving=0.0) == [textures]


def test_what_was_not_measured_is_as_the_model_says() -> None:
    assert blocked(chain(2), [None, (5.0, 4.9)]) == [True, True], "unpacking would take more"
    assert blocked(chain(2), [None, (5.0, 3.0)]) == [True, False]
    assert blocked(chain(1), [None]) == [True]


def test_a_tensor_is_unpacked_once_for_all_that_read_it() -> None:
    def body(builder: relax.BlockBuilder, x: Any) -> Any:
        first = builder.emit(conv(x, 12, 8))
        one, other = (builder.emit(conv(first, 16, 12)) for _ in range(2))
        return builder.emit(relax.op.add(one, other))

    module = model((1, 8, 8, 8), body)
    assert blocked(module, [(0.5, 2.5), (1.4, 1.0)]) == [True, False, False]


@pytest.mark.parametrize("seed", range(20))
def test_the_cut_is_the_least(seed: int) -> None:
    chance = random.Random(seed)
    nodes = [BLOCKED, PLAIN, *range(6)]
    edges = {
        (tail, head): chance.choice(
            (0.0, chance.random(), math.inf if {tail, head}.isdisjoint(nodes[:2]) else 1.0)
        )
        for tail, head in itertools.permutations(nodes, 2)
        if chance.random() < 0.5
    }
    graph = Cut()
    for (tail, head), cost in edges.items():
        graph.add(tail, head, cost)

    def cost_of(side: set[Any]) -> float:
        return sum(cost for (tail, head), cost in edges.items() if tail in side and head not in side)

    sides = [
        {BLOCKED, *(node for node, inside in zip(range(6), choice, strict=True) if inside)}
        for choice in itertools.product((False, True), repeat=6)
    ]
    assert cost_of(graph.side_of_source()) == pytest.approx(min(map(cost_of, sides)))
