"""Fourier transforms, as products with the matrices of their sines and cosines."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax

from adt.compiler.importers.onnx.converters.node import Converter, Node, literal


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
    if inverse and onesided:
        matrix = _transform(rows, points, points, inverse=True)
        # The other half is the conjugate of this one: each bin counts twice, but the first and the middle.
        matrix[1 : (points + 1) // 2] *= 2
        result = _product(node, x, matrix, real_result=True)
    else:
        bins = points // 2 + 1 if onesided else points
        result = _product(node, x, _transform(rows, points, bins, inverse=inverse))
    return relax.op.permute_dims(result, [order.index(position) for position in range(len(shape))])


def _stft(node: Node) -> Any:
    """Convert STFT: transform each windowed frame of the signal."""
    step = node.number(1, "frame_step")
    window = node.value(2)
    if node.has(2) and window is None:
        raise node.refusal("its input window is not constant")
    if node.has(3):
        length = node.number(3, "frame_length")
    elif window is not None:
        length = len(window)
    else:
        raise node.refusal("it has neither a window nor a frame_length")
    x, (batch, samples, *rest) = node.inputs[0], node.shape()
    parts = rest[0] if rest else 1
    frames = 1 + (samples - length) // step
    bins = length // 2 + 1 if node.attribute("onesided", 1) else length
    places = np.arange(frames)[:, None] * step + np.arange(length)
    x = relax.op.take(relax.op.reshape(x, (batch, samples, parts)), literal(places.astype(np.int64)), axis=1)
    matrix = _transform(length, length, bins, inverse=False)
    if window is not None:
        matrix *= np.asarray(window, np.float64)[:, None]
    return _product(node, x, matrix)


CONVERTERS: dict[str, Converter] = {"DFT": _dft, "STFT": _stft}
