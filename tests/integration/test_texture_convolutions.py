"""Convolutions on blocked tensors, scheduled: what they compute on an OpenCL device, and how."""

import re
from dataclasses import dataclass, replace
from typing import Any

import pytest
from tvm import te, tirx
from tvm.s_tir import Schedule

from adt.compiler.passes.gpu.convolution import convolution_of, schedule_convolution
from adt.compiler.passes.gpu.placement import with_images
from adt.compiler.passes.gpu.schedules import prove, schedule_of
from adt.compiler.passes.gpu.tiles import Tile, ranked_tiles
from adt.compiler.passes.layout import blocks
from adt.compiler.passes.layout.blocks import is_convolution
from adt.compiler.passes.scheduling import Decisions, NoSchedule
from adt.compiler.targets.gpu import ANY_ADRENO
from support.models.gpu_kernels import ADRENO, built, check_schedules
from support.sampling import matrix


@dataclass(frozen=True)
class Layer:
    """A convolution, a bias, a residual and a ReLU."""

    inputs: int
    outputs: int
    size: tuple[int, ...]
    """Spatial extents of the input."""
    kernel: int = 1
    stride: int = 1
    groups: int = 1
    dilation: int = 1
    images: int = 1
    plain: bool = False
    """Its input is not blocked."""
    epilogue: str = "relu"
    """``""``: nothing follows; ``erf``: what is computed lane by lane."""
    dtype: str = "float32"
    textures: bool = True

    def function(self) -> Any:
        rank, blocked_in = len(self.size), blocks.ceil_blocks(self.inputs)
        out = blocks.ceil_blocks(self.outputs)
        ones = (1,) * rank
        pad = (self.kernel // 2 * self.dilation,) * rank
        window = blocks.Window(
            (self.kernel,) * rank, (self.stride,) * rank, pad, pad, (self.dilation,) * rank
        )
        channels = (self.inputs, *self.size) if self.plain else (blocked_in, *self.size, 4)
        x = te.placeholder((self.images, *channels), self.dtype, name="x")
        taps = self.kernel**rank
        depthwise = 1 < self.groups == self.inputs
        shape = (1, out, taps, 4) if depthwise else (out, taps, self.inputs // self.groups, 4)
        weight = te.placeholder(shape, self.dtype, name="w")
        result = blocks.convolution(x, weight, window, self.groups, "float32")
        arguments, images = [x, weight], [not self.plain, True]
        if self.epilogue:
            sums = result
            bias = te.placeholder((1, out, *ones, 4), "float32", name="bias")
            residual = te.placeholder(sums.shape, "float32", name="residual")
            arguments += [bias, residual]
            images += [False, True]

            def value(*at: Any) -> Any:
                total = sums(*at) + bias(0, at[1], *(0,) * rank, at[-1]) + residual(*at)
                return tirx.erf(total * 0.1) if self.epilogue == "erf" else te.max(total, 0.0)

            result = te.compute(sums.shape, value, name="epilogue")
        scopes = [*images, True] if self.textures else [False] * (len(images) + 1)
        return with_images(te.create_prim_func([*arguments, result]), tuple(scopes))


def scheduled(function: Any, *, shared: bool | None = None, tile: Tile | None = None, by_lane: bool) -> Any:
    schedule = Schedule(function)
    conv = convolution_of(schedule, by_lane=by_lane)
    fitting = ranked_tiles(conv.sums, ANY_ADRENO)
    tile = tile or next(each for each in fitting if shared in (None, each.parts > 1))
    schedule_convolution(schedule, conv, tile, Decisions())
    kernel = schedule.mod["main"]
    prove(kernel, ADRENO)
    return kernel


def check(layer: Layer, *, shared: bool | None = None, tile: Tile | None = None) -> None:
    function = layer.function()
    check_schedules(
        function, [scheduled(function, shared=shared, tile=tile, by_lane=layer.epilogue == "erf")]
    )


LAYERS = {
    "direct": (Layer(16, 30, (9, 12), 3), False),
    "shared": (Layer(64, 32, (6, 6), 3, stride=2), True),
    "17 columns": (Layer(32, 16, (5, 17)), False),  # the row is rounded up to 20
    "depthwise": (Layer(12, 12, (9, 14), 3, groups=12), False),
    "grouped": (Layer(32, 32, (6, 6), 3, groups=2), True),
    "three channels": (Layer(3, 8, (15, 15), 3, stride=2, plain=True), False),
    "rows of a matrix": (Layer(64, 48, (1, 1), images=6), True),
    "three axes, shared": (Layer(64, 32, (4, 5, 6), 3, stride=2), True),
    "three axes": (Layer(16, 30, (3, 5, 17), 3), False),
    "three axes, depthwise": (Layer(12, 12, (4, 9, 7), 3, groups=12), False),
    "three axes, three channels": (Layer(3, 8, (5, 9, 9), 3, stride=2, plain=True), False),
    "three axes, dilated groups": (Layer(32, 24, (5, 6, 7), 3, groups=2, dilation=2, images=2), False),
}
"""Layer, and whether work-items share its sums."""


@pytest.mark.parametrize(("name", "memory"), matrix(LAYERS, ["textures", "buffers"]))
def test_a_scheduled_convolution_computes_what_it_should(name: str, memory: str) -> None:
    layer, shared = LAYERS[name]
    check(replace(layer, textures=memory == "textures"), shared=shared)


@pytest.mark.nightly
@pytest.mark.parametrize("textures", [True, False], ids=["textures", "buffers"])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(
    "layer",
    [
        Layer(64, 64, (12, 12), 3, epilogue=""),
        Layer(64, 30, (7, 7), 5),
        Layer(64, 64, (14, 14), 3, dilation=2),
        Layer(64, 32, (24,), 3),
        Layer(64, 64, (8, 8), 1, images=2),
        Layer(64, 64, (13, 13), 3, epilogue="erf"),
        Layer(256, 1000, (1, 1)),
        Layer(64, 64, (37, 37), 3, stride=2),
    ],
)
def test_more_convolutions_compute_what_they_should(layer: Layer, shared: bool, textures: bool) -> None:
    check(replace(layer, textures=textures), shared=shared)


@pytest.mark.nightly
@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize(("wide", "high", "deep"), [(1, 1, 1), (4, 1, 1), (2, 2, 1), (3, 1, 2), (6, 2, 1)])
def test_every_shape_of_tile_computes_what_it_should(wide: int, high: int, deep: int, parts: int) -> None:
    group = (12 // wide, 2, 1)
    check(Layer(32, 16, (12, 12), 3), tile=Tile(wide, high, deep, group, parts))


def test_channels_that_do_not_fill_a_texel_are_read_one_by_one() -> None:
    check(Layer(10, 16, (6, 8), 3))


def test_a_texel_is_read_once_for_its_four_channels_and_for_all_columns() -> None:
    """Read wide + 2 texels of the input for three columns of a row, and one texel of weights for each
    channel."""
    function = Layer(16, 16, (12, 12), 3, epilogue="").function()
    tile = Tile(4, 1, 1, (3, 4, 1), 1)
    kernel = built(scheduled(function, tile=tile, by_lane=False))
    source = kernel.mod.imports[0].inspect_source()

    assert len(re.findall(r"READ_IMAGEF\(x,", source)) == 4 + 2
    assert len(re.findall(r"READ_IMAGEF\(w,", source)) == 3 * 4
    assert source.count("write_imagef(") == 4


def test_in_buffers_a_texel_is_one_aligned_vector() -> None:
    """Read and write whole vectors, as many as there would be texels, and divide no index."""
    function = Layer(16, 16, (12, 12), 3, epilogue="", textures=False).function()
    tile = Tile(4, 1, 1, (3, 4, 1), 1)
    kernel = built(scheduled(function, tile=tile, by_lane=False))
    source = kernel.mod.imports[0].inspect_source()

    assert set(re.findall(r"__global (\w+)", source)) == {"float4"}
    assert len(re.findall(r"= x\[", source)) == 4 + 2
    assert len(re.findall(r"= w\[", source)) == 3 * 4
    assert len(re.findall(r"^ *conv_\[", source, re.M)) == 4
    assert "vload" not in source and "/ 4" not in source


def test_a_convolution_that_ends_in_a_buffer_is_scheduled_the_same_way() -> None:
    function = Layer(64, 64, (12, 12), 3, textures=False).function()

    assert is_convolution(function)
    source = str(schedule_of(function, ADRENO, ANY_ADRENO, Decisions())[1])

    assert "T.vectorized(4)" in source
    assert 'scope="shared"' in source


def test_what_is_no_convolution_is_refused() -> None:
    x = te.placeholder((1, 2, 4, 4, 4), "float32", name="x")
    function = te.create_prim_func([x, te.compute(x.shape, lambda *at: x(*at) + 1.0, name="y")])

    assert not is_convolution(function)
    with pytest.raises(NoSchedule, match="no convolution"):
        convolution_of(Schedule(function))


def test_sums_that_are_used_for_many_texels_are_refused() -> None:
    """Refuse a gate of one pixel on a whole map, which would be computed again for each texel."""
    x = te.placeholder((1, 4, 1, 1, 4), "float32", name="x")
    weight = te.placeholder((4, 1, 16, 4), "float32", name="w")
    gate = blocks.convolution(x, weight, blocks.Window((1, 1), (1, 1), (0, 0), (0, 0), (1, 1)), 1, "float32")
    whole = te.placeholder((1, 4, 8, 8, 4), "float32", name="whole")
    gated = te.compute(
        whole.shape, lambda n, c, y, x, lane: whole(n, c, y, x, lane) * gate(n, c, 0, 0, lane), name="gated"
    )

    with pytest.raises(NoSchedule, match="fewer than the texels"):
        convolution_of(Schedule(te.create_prim_func([x, weight, whole, gated])))
