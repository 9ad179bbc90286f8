"""Operators that sample images: at other sizes, on grids, in regions, under deformed kernels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax, te, tirx

from adt.compiler.importers.onnx.converters.node import Converter, Node, literal

Floats = NDArray[np.float64]

TVM_COORDINATES = ("half_pixel", "align_corners", "asymmetric")
"""Coordinate transformations that TVM's resize has, and computes as ONNX does."""
FLOATS = ("float16", "float32")  # types that it takes


def _resize(node: Node) -> Any:
    """Convert Resize axis by axis: each result is a weighted sum of a few inputs, all of them known now.

    Coordinates are float32, as onnxruntime and PyTorch have them: a nearest pixel depends on their rounding.
    """
    shape = node.shape()
    axes = [axis % len(shape) for axis in node.attribute("axes") or range(len(shape))]
    size, scales = _resized(node, shape, axes)
    if _as_tvm(node, shape, size, scales):
        return node.by_tvm((node.inputs[0], None, None, literal(np.array(size, np.int64))))
    mode, dtype, coordinates = node.attribute("mode", "nearest"), node.dtype(), _coordinates(node)
    if mode not in ("nearest", "linear", "cubic"):
        raise node.refusal(f"its mode is {mode!r}")
    roi = _regions(node, axes, len(shape)) if coordinates == "tf_crop_and_resize" else None
    x, outside = node.inputs[0], []
    rounds = mode != "nearest" and dtype not in ("float32", "float64")
    if rounds:  # once, after the last axis
        x = node.builder.normalize(relax.op.astype(x, "float32"))
    for axis, (have, extent, scale) in enumerate(zip(shape, size, scales, strict=True)):
        region = roi[axis] if roi else None
        if extent == have and scale == 1 and region in (None, (0.0, 1.0)):
            continue
        at = _sources(coordinates, have, extent, scale, region)
        indices, weights = _taps(node, mode, at, have, scale)
        x = _weighted(node, x, axis, indices, weights)
        if region:
            outside.append((axis, (at < 0) | (at > have - 1)))
    if any(places.any() for _, places in outside):
        x = _filled(node, x, outside)
    return relax.op.astype(x, dtype) if rounds else x


def _is_old(node: Node) -> bool:
    """True if *node* is an Upsample, or a Resize of before opset 11: asymmetric, and without a choice."""
    return node.opset < 11 or node.proto.op_type == "Upsample"


def _coordinates(node: Node) -> str:
    default = "asymmetric" if _is_old(node) else "half_pixel"
    return str(node.attribute("coordinate_transformation_mode", default))


def _resized(node: Node, shape: Sequence[int], axes: Sequence[int]) -> tuple[list[int], list[Any]]:
    """Return the extent and the scale (``numpy.float32``) of every axis."""
    size, scales, extents = list(shape), [np.float32(1)] * len(shape), np.asarray(shape, np.float32)
    position = 1 if _is_old(node) else 2
    given = node.constant(position, "scales") if node.has(position) else node.attribute("scales", ())
    given = np.asarray(given)
    if given.size:
        for axis, scale in zip(axes, given.astype(np.float32), strict=True):
            size[axis], scales[axis] = int(extents[axis] * scale), scale
        return size, scales
    for axis, extent in zip(axes, node.constant(3, "sizes").astype(np.float32), strict=True):
        size[axis], scales[axis] = int(extent), extent / extents[axis]
    policy = node.attribute("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch":
        scale = (min if policy == "not_larger" else max)(scales[axis] for axis in axes)
        for axis in axes:
            size[axis], scales[axis] = math.floor(extents[axis] * scale + np.float32(0.5)), scale
    return size, scales


def _as_tvm(node: Node, shape: Sequence[int], size: Sequence[int], scales: Sequence[Any]) -> bool:
    """True if TVM's converter computes the same: its kernels are made for images, and fuse."""
    plain = not node.attribute("antialias", 0) and not node.attribute("exclude_outside", 0)
    mode, coordinates = node.attribute("mode", "nearest"), _coordinates(node)
    spatial = len(shape) == 4 and list(size[:2]) == list(shape[:2]) and not node.attribute("axes")
    policy = node.attribute("keep_aspect_ratio_policy", "stretch") == "stretch"
    whole = np.allclose(np.multiply(shape, scales), size, rtol=2e-7, atol=0)
    known = coordinates in TVM_COORDINATES and node.dtype() in FLOATS and not _is_old(node)
    defined = coordinates != "align_corners" or 1 not in size[2:]  # TVM divides by the extent less 1
    if not (plain and spatial and policy and whole and known and defined and mode in ("nearest", "linear")):
        return False
    return mode == "linear" or all(map(partial(_same_pixels, node), shape, size, scales))


def _same_pixels(node: Node, have: int, extent: int, scale: Any) -> bool:
    """True if TVM, which multiplies by the inverse of the scale, takes the same nearest pixels."""
    coordinates = _coordinates(node)
    at, step = np.arange(extent, dtype=np.float32), np.float32(have) / np.float32(extent)
    if coordinates == "align_corners":
        step = np.float32(have - 1) / np.float32(max(extent - 1, 1))
    theirs = (at + np.float32(0.5)) * step - np.float32(0.5) if coordinates == "half_pixel" else at * step
    mode = _nearest_mode(node, scale)
    theirs = theirs + np.float32({"floor": 1e-5, "ceil": -1e-5}.get(mode, 0))
    ours = _sources(coordinates, have, extent, scale, None)
    taken = [_nearest(mode, each).clip(0, have - 1) for each in (ours, theirs)]
    return bool((taken[0] == taken[1]).all())


def _regions(node: Node, axes: Sequence[int], rank: int) -> list[tuple[float, float]]:
    """Return the part of each axis that tf_crop_and_resize takes, as shares of its extent."""
    roi = node.constant(1, "roi").tolist()
    regions = [(0.0, 1.0)] * rank
    for position, axis in enumerate(axes):
        regions[axis] = (roi[position], roi[position + len(axes)])
    return regions


def _sources(coordinates: str, have: int, extent: int, scale: Any, region: tuple[float, float] | None) -> Any:
    """Locate each of *extent* results on an axis of *have* values."""
    at: Any = np.arange(extent, dtype=np.float32)
    length = np.float32(have) * scale
    match coordinates:
        case "asymmetric":
            return at / scale
        case "align_corners":
            return at * np.float32(have - 1) / (length - 1) if extent > 1 else at
        case "pytorch_half_pixel" if extent == 1:
            return at
        case "half_pixel_symmetric":
            offset = np.float32(have / 2) * (1 - np.float32(extent) / length)
            return offset + (at + 0.5) / scale - 0.5
        case "tf_crop_and_resize" if region:
            first, last = region
            if extent > 1:
                return first * (have - 1) + at * (last - first) * (have - 1) / (extent - 1)
            return at + np.float32(0.5 * (first + last) * (have - 1))
    return (at + np.float32(0.5)) / scale - np.float32(0.5)


def _taps(
    node: Node, mode: str, places: NDArray[np.float32], have: int, scale: float
) -> tuple[NDArray[np.int64], Floats]:
    """Return indices and weights [extent, taps] of the inputs that make each result."""
    at = places.astype(np.float64)
    if mode == "nearest":
        nearest = _nearest(_nearest_mode(node, scale), at)
        return nearest[:, None].clip(0, have - 1), np.ones((len(at), 1))
    shrink = min(1.0, float(scale)) if node.attribute("antialias", 0) else 1.0
    reach = (1 if mode == "linear" else 2) / shrink
    first = np.floor(at - reach).astype(np.int64) + 1
    indices = first[:, None] + np.arange(math.ceil(2 * reach))
    distance = np.abs(indices - at[:, None]) * shrink
    weights = np.maximum(0.0, 1 - distance)
    if mode == "cubic":
        weights = _cubic(distance, float(node.attribute("cubic_coeff_a", -0.75)))
    if node.attribute("exclude_outside", 0):
        weights = np.where((indices >= 0) & (indices < have), weights, 0.0)
    weights = weights / weights.sum(axis=1, keepdims=True)
    return indices.clip(0, have - 1), weights


def _nearest_mode(node: Node, scale: float) -> str:
    """Choose how coordinates of an axis of *scale* are rounded; old operators round up where they shrink."""
    if _is_old(node):
        return "floor" if scale >= 1 else "ceil"
    return str(node.attribute("nearest_mode", "round_prefer_floor"))


def _nearest(mode: str, at: NDArray[np.floating[Any]]) -> NDArray[np.int64]:
    shift, rounded = {
        "round_prefer_floor": (-0.5, np.ceil),
        "round_prefer_ceil": (0.5, np.floor),
        "floor": (0, np.floor),
        "ceil": (0, np.ceil),
    }[mode]  # KeyError: ONNX has no other
    # float64: rounding makes no tie
    result: NDArray[np.int64] = rounded(at.astype(np.float64) + shift).astype(np.int64)
    return result


def _cubic(distance: Floats, a: float) -> Floats:
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))


def _weighted(node: Node, x: Any, axis: int, indices: NDArray[np.int64], weights: Floats) -> Any:
    """Replace each value along *axis* of *x* by a weighted sum of the taps."""
    count = indices.shape[1]
    if count == 1:
        return node.builder.normalize(relax.op.take(x, literal(indices[:, 0]), axis))

    def compute(a: Any, places: Any, factors: Any) -> Any:
        shape = [*a.shape]
        shape[axis] = indices.shape[0]
        tap = te.reduce_axis((0, count), "tap")

        def element(*at: Any) -> Any:
            value = a(*at[:axis], places(at[axis], tap), *at[axis + 1 :])
            return te.sum(value * factors(at[axis], tap), axis=tap)

        return te.compute(shape, element)

    factors = weights.astype(str(x.struct_info.dtype))
    return node.te(compute, x, literal(indices.astype(np.int32)), literal(factors))


def _filled(node: Node, x: Any, outside: Sequence[tuple[int, Any]]) -> Any:
    """Fill *x* with the extrapolation value where one of its axes lies outside the image."""
    value = relax.const(node.attribute("extrapolation_value", 0.0), str(x.struct_info.dtype))
    for axis, places in outside:
        shape = [-1 if other == axis else 1 for other in range(x.struct_info.ndim)]
        x = node.builder.normalize(relax.op.where(literal(places.reshape(shape)), value, x))
    return x


def _grid_sample(node: Node) -> Any:
    shape, grid_shape = node.shape(), node.shape(1)
    spatial = shape[2:]
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(name := node.attribute("mode", "linear"), name)
    padding, corners = node.attribute("padding_mode", "zeros"), bool(node.attribute("align_corners", 0))
    wide = "float64" if node.dtype() == "float64" else "float32"

    def element(x: Any, grid: Any, at: Any) -> Any:
        n, c, *out = at
        taps = []
        for position, extent in enumerate(spatial):
            place, half = grid(n, *out, len(spatial) - 1 - position).astype(wide), tirx.const(0.5, wide)
            place = (place + 1) * half * (extent - 1) if corners else ((place + 1) * extent - 1) * half
            taps.append(_grid_taps(place, extent, mode, padding, corners))
        total: Any = tirx.const(0, wide)
        for chosen in itertools.product(*taps):
            indices, weights, inside = zip(*chosen, strict=True)
            value = x(n, c, *indices).astype(wide)
            for weight in weights:
                value = value * weight
            if padding == "zeros":
                value = tirx.if_then_else(tirx.all(*inside), value, tirx.const(0, wide))
            total = total + value
        return total.astype(x.dtype)

    return node.compute((*shape[:2], *grid_shape[1:-1]), element, node.inputs[0], node.inputs[1])


def _grid_taps(at: Any, extent: int, mode: str, padding: str, corners: bool) -> list[tuple[Any, Any, Any]]:
    """Return index, weight, and whether it lies inside, of each input on an axis."""
    number = partial(tirx.const, dtype=at.dtype)

    def bounded(place: Any) -> Any:
        if padding == "reflection":
            low, span = (0.0, extent - 1.0) if corners else (-0.5, float(extent))
            if span <= 0:
                return number(0)
            moved = tirx.abs(place - number(low))
            turns = tirx.floor(moved / number(span))
            rest = moved - turns * number(span)
            odd = turns - tirx.floor(turns * number(0.5)) * number(2)
            place = tirx.Select(odd > number(0.5), number(span) - rest, rest) + number(low)
        if padding == "zeros":
            return place
        return tirx.max(number(0), tirx.min(number(extent - 1), place))

    if mode != "cubic":
        at = bounded(at)
    a, base = number(-0.75), tirx.nearbyint(at) if mode == "nearest" else tirx.floor(at)
    rest = at - base

    def near(d: Any) -> Any:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: Any) -> Any:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    if mode == "nearest":
        weights = {0: number(1)}
    elif mode == "linear":
        weights = {0: number(1) - rest, 1: rest}
    else:
        weights = {-1: far(rest + 1), 0: near(rest), 1: near(number(1) - rest), 2: far(number(2) - rest)}
    taps = []
    for offset, weight in weights.items():
        place = base + number(offset)
        if mode == "cubic":
            place = bounded(place)
        inside = tirx.all(place >= number(0), place <= number(extent - 1))
        index = tirx.max(number(0), tirx.min(number(extent - 1), place)).astype("int32")
        taps.append((index, weight, inside))
    return taps


def _affine_grid(node: Node) -> Any:
    """Convert AffineGrid: points of the output's pixels in [-1, 1], transformed by each batch's matrix."""
    batch, _, *spatial = node.constant(1, "size").tolist()
    corners = node.attribute("align_corners", 0)
    lines = []
    for extent in spatial:
        ends = np.linspace(-1, 1, extent) if extent > 1 else np.zeros(1)
        lines.append(ends if corners else (2 * np.arange(extent) + 1) / extent - 1)
    points = np.stack([*reversed(np.meshgrid(*lines, indexing="ij")), np.ones(spatial)], axis=-1)
    flat = literal(points.reshape(1, -1, len(spatial) + 1).astype(node.dtype()))
    turned = relax.op.matmul(flat, relax.op.permute_dims(node.inputs[0], (0, 2, 1)))
    return relax.op.reshape(turned, (batch, *spatial, len(spatial)))


def _roi_align(node: Node) -> Any:
    """Convert RoiAlign: the mean or largest of bilinear samples in each bin of a region."""
    images, channels, height, width = node.shape()
    x, regions, of_image = node.inputs[:3]
    inside = node.builder.normalize(relax.op.clip(of_image, 0, images - 1))  # no kernel checks them
    rows, columns = node.attribute("output_height", 1), node.attribute("output_width", 1)
    if not (samples := node.attribute("sampling_ratio", 0)):
        raise node.refusal("its number of samples depends on the regions (sampling_ratio is 0)")
    if node.attribute("mode", "avg") == "avg":
        return node.by_tvm((x, regions, inside))
    scale = node.attribute("spatial_scale", 1.0)
    half = node.opset >= 16 and node.attribute("coordinate_transformation_mode", "half_pixel") == "half_pixel"

    def compute(x: Any, rois: Any, batches: Any) -> Any:
        dtype = x.dtype
        shift = tirx.const(0.5 if half else 0.0, dtype)
        y_tap, x_tap = te.reduce_axis((0, samples), "y"), te.reduce_axis((0, samples), "x")

        def along(low: Any, high: Any, bin: Any, bins: int, tap: Any, extent: int) -> Any:
            start, end = low * scale - shift, high * scale - shift
            span = end - start if half else tirx.max(end - start, tirx.const(1, dtype))
            step = span / bins
            at = start + bin.astype(dtype) * step + (tap.astype(dtype) + 0.5) * step / samples
            inside = tirx.all(at >= tirx.const(-1, dtype), at <= tirx.const(extent, dtype))
            at = tirx.max(tirx.const(0, dtype), tirx.min(at, tirx.const(extent - 1, dtype)))
            base = tirx.floor(at)
            first = base.astype("int32")
            return first, tirx.min(first + 1, extent - 1), at - base, inside

        def element(n: Any, c: Any, row: Any, column: Any) -> Any:
            batch = batches(n).astype("int32")
            top, bottom, dy, in_y = along(rois(n, 1), rois(n, 3), row, rows, y_tap, height)
            left, right, dx, in_x = along(rois(n, 0), rois(n, 2), column, columns, x_tap, width)
            parts = [
                (1 - dy) * (1 - dx) * x(batch, c, top, left),
                (1 - dy) * dx * x(batch, c, top, right),
                dy * (1 - dx) * x(batch, c, bottom, left),
                dy * dx * x(batch, c, bottom, right),
            ]
            value = tirx.max(tirx.max(parts[0], parts[1]), tirx.max(parts[2], parts[3]))
            value = tirx.if_then_else(tirx.all(in_y, in_x), value, tirx.const(0, dtype))
            return te.max(value, axis=[y_tap, x_tap])

        return te.compute((rois.shape[0], channels, rows, columns), element)

    return node.te(compute, x, regions, inside)


def _deform_conv(node: Node) -> Any:
    """Convert DeformConv: sample each tap of the kernel where its offset says, then multiply matrices."""
    batch, channels, *spatial = node.shape()
    if len(spatial) != 2:
        raise node.refusal("only pictures (two axes) are covered")
    weights, (maps, per_group, *kernel) = node.inputs[1], node.shape(1)
    strides, dilations = node.attribute("strides", [1, 1]), node.attribute("dilations", [1, 1])
    pads, groups = node.attribute("pads", [0] * 4), node.attribute("group", 1)
    offset_groups = node.attribute("offset_group", 1)
    size = node.shape(2)[2:]
    taps, dtype = kernel[0] * kernel[1], node.dtype()

    def sampled(x: Any, offsets: Any, *others: Any) -> Any:
        *mask, (n, c, tap, row, column) = others
        group = c // (channels // offset_groups)
        along = (tap // kernel[1], tap % kernel[1])
        ends = []
        for axis, out in enumerate((row, column)):
            start = out * strides[axis] - pads[axis] + along[axis] * dilations[axis]
            moved = offsets(n, (group * taps + tap) * 2 + axis, row, column)
            ends.append(_grid_taps(start.astype(dtype) + moved, spatial[axis], "linear", "zeros", False))
        total: Any = tirx.const(0, dtype)
        for (i, wi, in_i), (j, wj, in_j) in itertools.product(*ends):
            value = x(n, c, i, j) * wi * wj
            total = total + tirx.if_then_else(tirx.all(in_i, in_j), value, tirx.const(0, dtype))
        return total * mask[0](n, group * taps + tap, row, column) if mask else total

    mask = [node.inputs[4]] if node.has(4) else []
    samples = node.compute((batch, channels, taps, *size), sampled, node.inputs[0], node.inputs[2], *mask)
    rows = relax.op.reshape(samples, (batch, groups, per_group * taps, size[0] * size[1]))
    filters = relax.op.reshape(weights, (1, groups, maps // groups, per_group * taps))
    result = relax.op.reshape(relax.op.matmul(filters, rows), (batch, maps, *size))
    if node.has(3):
        result = relax.op.add(result, relax.op.reshape(node.inputs[3], (1, maps, 1, 1)))
    return result


CONVERTERS: dict[str, Converter] = {
    "AffineGrid": _affine_grid,
    "DeformConv": _deform_conv,
    "GridSample": _grid_sample,
    "Resize": _resize,
    "RoiAlign": _roi_align,
    "Upsample": _resize,
}
