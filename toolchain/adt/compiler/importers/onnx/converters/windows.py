"""Operators on windows that move over axes: pooling, what undoes it and convolution, spectra of signals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax, te, tirx, topi

from adt.compiler.importers.onnx.converters.node import Converter, Node, literal


@dataclass(frozen=True)
class Windows:
    """Windows over the axes after batch and channel."""

    shape: tuple[int, ...]
    """Shape of the data, batch and channel included."""
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    """Padding in front of each axis, then behind each."""
    count: tuple[int, ...]
    """Windows along each axis."""

    @property
    def output(self) -> tuple[int, ...]:
        return (*self.shape[:2], *self.count)

    def place(self, out: Sequence[Any], tap: Sequence[Any]) -> tuple[list[Any], Any]:
        """Return where the *tap* of the window *out* lies, and whether that is inside the data."""
        places, inside = [], []
        for axis, extent in enumerate(self.shape[2:]):
            at = out[axis] * self.strides[axis] - self.pads[axis] + tap[axis] * self.dilations[axis]
            places.append(at)
            inside += [at >= 0, at < extent]
        return places, tirx.all(*inside)


def windows(node: Node) -> Windows:
    """Return the windows of a pooling node, padded and counted as ONNX says."""
    shape = node.shape()
    kernel = tuple(node.attribute("kernel_shape"))
    rank = len(kernel)
    strides, dilations = (tuple(node.attribute(name, [1] * rank)) for name in ("strides", "dilations"))
    pads, auto = list(node.attribute("pads", [0] * (2 * rank))), node.attribute("auto_pad", "NOTSET")
    count = []
    for axis, extent in enumerate(shape[2:]):
        reach = (kernel[axis] - 1) * dilations[axis] + 1
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            number = -(-extent // strides[axis])
            total = max(0, (number - 1) * strides[axis] + reach - extent)
            pads[axis], pads[axis + rank] = _halves(total, auto)
        else:
            if auto == "VALID":
                pads[axis] = pads[axis + rank] = 0
            padded = extent + pads[axis] + pads[axis + rank] - reach
            number = padded // strides[axis] + 1
            if node.attribute("ceil_mode", 0):
                number = math.ceil(padded / strides[axis]) + 1
                if (number - 1) * strides[axis] >= extent + pads[axis]:
                    number -= 1  # no window starts in the padding behind
        count.append(number)
    return Windows(shape, kernel, strides, dilations, tuple(pads), tuple(count))


def _halves(total: int, auto: str) -> tuple[int, int]:
    """Divide padding in front of an axis and behind it; the odd one is behind in SAME_UPPER."""
    before = total // 2 if auto == "SAME_UPPER" else total - total // 2
    return before, total - before


def _lp_pool(node: Node) -> Any:
    moving, p = windows(node), node.attribute("p", 2)
    if p < 1:
        raise node.refusal(f"its p is {p}")

    def compute(x: Any) -> Any:
        taps = [te.reduce_axis((0, extent), f"tap{axis}") for axis, extent in enumerate(moving.kernel)]
        wide = "float64" if x.dtype == "float64" else "float32"

        def element(n: Any, c: Any, *out: Any) -> Any:
            places, inside = moving.place(out, taps)
            value = tirx.if_then_else(inside, tirx.abs(x(n, c, *places)), tirx.const(0, x.dtype)).astype(wide)
            powered: Any = tirx.const(1, wide)
            for _ in range(p):
                powered = powered * value
            return te.sum(powered, axis=taps)

        total = te.compute(moving.output, element)

        def root(*at: Any) -> Any:
            value = total(*at)
            if p > 1:
                value = tirx.sqrt(value) if p == 2 else tirx.pow(value, tirx.const(1 / p, wide))
            return value.astype(x.dtype)

        return te.compute(moving.output, root)

    return node.te(compute, node.inputs[0])


def _padded_pool(node: Node) -> Any:
    """Pad a pool by SAME: TVM's own pads are those of another count of windows, or of no dilations."""
    if node.attribute("auto_pad", "NOTSET") not in ("SAME_UPPER", "SAME_LOWER"):
        return None
    return node.by_tvm(node.inputs, auto_pad=b"NOTSET", pads=list(windows(node).pads), ceil_mode=0)


def _max_pool(node: Node) -> Any:
    """Convert MaxPool; its indices are the flat places of the largest values in the whole tensor."""
    if len(node.proto.output) < 2 or not node.proto.output[1]:
        return _padded_pool(node)
    moving = windows(node)
    spatial = moving.shape[2:]
    taps = list(itertools.product(*map(range, moving.kernel)))

    def stacked(x: Any) -> Any:
        least = tirx.min_value(x.dtype)

        def element(n: Any, c: Any, *rest: Any) -> Any:
            *out, tap = rest
            along = []
            for extent in reversed(moving.kernel):
                along.append(tap % extent)
                tap = tap // extent
            places, inside = moving.place(out, along[::-1])
            return tirx.if_then_else(inside, x(n, c, *places), least)

        return te.compute((*moving.output, len(taps)), element)

    values = node.te(stacked, node.inputs[0])
    chosen = node.builder.normalize(relax.op.argmax(values, axis=-1))
    column_major = bool(node.attribute("storage_order", 0))

    def flat(tap: Any) -> Any:
        def element(n: Any, c: Any, *out: Any) -> Any:
            rest, along = tap(n, c, *out).astype("int64"), []
            for extent in reversed(moving.kernel):
                along.append(tirx.floormod(rest, extent))
                rest = tirx.floordiv(rest, extent)
            places, _ = moving.place([i.astype("int64") for i in out], along[::-1])
            index: Any = tirx.const(0, "int64")
            order = -1 if column_major else 1
            for place, extent in zip(places[::order], spatial[::order], strict=True):
                index = index * extent + place
            first = (n.astype("int64") * moving.shape[1] + c.astype("int64")) * int(np.prod(spatial))
            return first + index

        return te.compute(moving.output, element, name="indices")

    return relax.op.max(values, axis=-1), node.te(flat, chosen)


def _max_unpool(node: Node) -> Any:
    """Convert MaxUnpool: each value goes to its flat index in the tensor before pooling; 0 elsewhere."""
    shape = node.shape()
    kernel = node.attribute("kernel_shape")
    rank = len(kernel)
    strides, pads = node.attribute("strides", [1] * rank), node.attribute("pads", [0] * (2 * rank))
    pooled = [
        (extent - 1) * strides[axis] + kernel[axis] - pads[axis] - pads[axis + rank]
        for axis, extent in enumerate(shape[2:])
    ]
    plain = (*shape[:2], *pooled)
    out = tuple(node.constant(2, "output_shape").tolist()) if node.has(2) else plain
    blank = literal(np.zeros(math.prod(plain), node.dtype()))
    flat = (relax.op.reshape(value, (-1,)) for value in (node.inputs[1], node.inputs[0]))
    filled = relax.op.reshape(relax.op.scatter_elements(blank, *flat, axis=0), plain)
    if out == plain:
        return filled
    behind = [extent - smaller for extent, smaller in zip(out, plain, strict=True)]
    return relax.op.nn.pad(filled, [width for extra in behind for width in (0, extra)])


def _col2im(node: Node) -> Any:
    """Convert Col2Im: each pixel sums what the columns of all windows over it hold."""
    image = node.constant(1, "image_shape").tolist()
    block = node.constant(2, "block_shape").tolist()
    rank = len(image)
    strides, dilations = node.attribute("strides", [1] * rank), node.attribute("dilations", [1] * rank)
    pads = node.attribute("pads", [0] * (2 * rank))
    batch, rows, _ = node.shape()
    channels = rows // math.prod(block)
    padded = [image[axis] + pads[axis] + pads[axis + rank] for axis in range(rank)]
    reach = [(extent - 1) * step + 1 for extent, step in zip(block, dilations, strict=True)]
    count = [(padded[axis] - reach[axis]) // strides[axis] + 1 for axis in range(rank)]
    taps = [te.reduce_axis((0, extent), f"tap{axis}") for axis, extent in enumerate(block)]
    if node.dtype() == "bool":
        raise node.refusal("its elements are bool, which have no sum")

    def element(x: Any, at: Any) -> Any:
        n, c, *pixel = at
        row, column, inside = c, 0, []
        for axis in range(rank):
            moved = pixel[axis] + pads[axis] - taps[axis] * dilations[axis]
            window = tirx.floordiv(moved, strides[axis])
            inside += [moved >= 0, tirx.floormod(moved, strides[axis]) == 0, window < count[axis]]
            row = row * block[axis] + taps[axis]
            column = column * count[axis] + window
        value = tirx.if_then_else(tirx.all(*inside), x(n, row, column), tirx.const(0, x.dtype))
        return te.sum(value, axis=taps)

    return node.compute((batch, channels, *image), element, node.inputs[0])


def _conv_transpose(node: Node) -> Any:
    """Convert ConvTranspose: TVM ignores ``output_shape`` and dilations, which become pads and zeros."""
    shape, kernel = node.shape(), node.shape(1)[2:]
    rank = len(kernel)
    strides, dilations = node.attribute("strides", [1] * rank), node.attribute("dilations", [1] * rank)
    extra, out = list(node.attribute("output_padding", [0] * rank)), node.attribute("output_shape")
    changes: dict[str, Any] = {}
    if out is not None:
        out, pads = list(out)[-rank:], [0] * (2 * rank)
        for axis, extent in enumerate(shape[2:]):
            reach = (kernel[axis] - 1) * dilations[axis] + 1
            total = strides[axis] * (extent - 1) + extra[axis] + reach - out[axis]
            if total < 0:
                extra[axis], total = extra[axis] - total, 0
            pads[axis], pads[axis + rank] = _halves(total, node.attribute("auto_pad", "NOTSET"))
        changes |= {"pads": pads, "output_padding": extra, "auto_pad": b"NOTSET"}
    weights = node.inputs[1]
    if any(step != 1 for step in dilations):
        weights = node.te(lambda w: topi.nn.dilate(w, [1, 1, *dilations]), weights)
        reached = [(extent - 1) * step + 1 for extent, step in zip(kernel, dilations, strict=True)]
        changes |= {"dilations": [1] * rank, "kernel_shape": reached}
    if not changes:
        return None
    return node.by_tvm((node.inputs[0], weights, *node.inputs[2:]), **changes)


# Fourier transforms, as products with the matrices of their sines and cosines


def _transform(rows: int, points: int, bins: int, *, inverse: bool) -> NDArray[np.complex128]:
    """Return the matrix [rows, bins] that turns *rows* values, padded to *points* with zeros, into *bins*."""
    angles = np.outer(np.arange(rows), np.arange(bins)) % points * (2 * np.pi / points)
    matrix: NDArray[np.complex128] = np.exp((1j if inverse else -1j) * angles) / (points if inverse else 1)
    return matrix


def _product(node: Node, x: Any, matrix: NDArray[np.complex128], *, real_result: bool = False) -> Any:
    """Multiply *x*[…, rows, 1 or 2] by *matrix*[rows, bins]: […, bins, 2], or […, bins, 1] of real parts.

    Real and imaginary part lie side by side, so that one real product does it.
    """
    x = node.builder.normalize(x)
    *batch, rows, parts = (int(extent) for extent in x.struct_info.shape)
    bins = matrix.shape[1]
    of_real = np.stack([matrix.real, matrix.imag], axis=-1)  # what the real part adds to both parts
    of_imaginary = np.stack([-matrix.imag, matrix.real], axis=-1)
    blocks = np.stack([of_real, of_imaginary], axis=1)[:, :parts]  # [rows, parts, bins, 2]
    if real_result:
        blocks = blocks[..., :1]
    weights = blocks.reshape(rows * parts, -1).astype(x.struct_info.dtype)
    flat = relax.op.reshape(x, (*batch, rows * parts))
    return relax.op.reshape(relax.op.matmul(flat, literal(weights)), (*batch, bins, blocks.shape[-1]))


def _dft(node: Node) -> Any:
    shape = node.shape()
    default = node.attribute("axis", -2 if node.opset >= 20 else 1)
    axis = (node.number(2, "axis") if node.has(2) else default) % len(shape)
    inverse, onesided = bool(node.attribute("inverse", 0)), bool(node.attribute("onesided", 0))
    given = node.number(1, "dft_length") if node.has(1) else 0
    points = given or (2 * (shape[axis] - 1) if inverse and onesided else shape[axis])
    order = [other for other in range(len(shape) - 1) if other != axis]
    order = [*order, axis, len(shape) - 1]
    x = relax.op.permute_dims(node.inputs[0], order)
    rows = min(shape[axis], points // 2 + 1 if inverse and onesided else points)
    if rows < shape[axis]:
        x = relax.op.strided_slice(x, [len(shape) - 2], [0], [rows])
    is_real = inverse and onesided
    matrix = _transform(
        rows, points, points // 2 + 1 if onesided and not inverse else points, inverse=inverse
    )
    if is_real:
        # The other half is the conjugate of this one: each bin counts twice, but the first and the middle.
        matrix[1 : (points + 1) // 2] *= 2
    result = _product(node, x, matrix, real_result=is_real)
    return relax.op.permute_dims(result, [order.index(position) for position in range(len(shape))])


def _stft(node: Node) -> Any:
    """Convert STFT: transform each windowed frame of the signal."""
    step = node.number(1, "frame_step")
    window = node.constant(2, "window") if node.has(2) else None
    if window is None and not node.has(3):
        raise node.refusal("it has neither a window nor a frame_length")
    length = node.number(3, "frame_length") if window is None or node.has(3) else len(window)
    x, (batch, samples, *parts) = node.inputs[0], node.shape()
    frames = 1 + (samples - length) // step
    bins = length // 2 + 1 if node.attribute("onesided", 1) else length
    places = np.arange(frames)[:, None] * step + np.arange(length)
    x = relax.op.take(
        relax.op.reshape(x, (batch, samples, *(parts or [1]))), literal(places.astype(np.int64)), axis=1
    )
    matrix = _transform(length, length, bins, inverse=False)
    if window is not None:
        matrix *= np.asarray(window, np.float64)[:, None]
    return _product(node, x, matrix)


CONVERTERS: dict[str, Converter] = {
    "AveragePool": _padded_pool,
    "Col2Im": _col2im,
    "ConvTranspose": _conv_transpose,
    "DFT": _dft,
    "LpPool": _lp_pool,
    "MaxPool": _max_pool,
    "MaxUnpool": _max_unpool,
    "STFT": _stft,
}
