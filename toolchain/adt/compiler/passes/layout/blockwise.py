"""Products by weights of 4 or 8 bits, where each block of neighbouring terms has a scale, and maybe a zero.

A weight is ``(q - zero) * scale``. Importers write such a product as one function, in the format of ONNX's
MatMulNBits, which any CPU computes by plain loops. The layout walk packs the weights for vectors: a word of
32 bits holds 8 or 4 neighbouring terms of one column, and the columns of a block lie together::

    words (ceil(N/L), K/8, L)    scales (ceil(N/L), blocks, L)    zero points, the same

They become floats where they are read: a weight's bits as the first of a mantissa are ``1 + q / 2**bits``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx

from adt.compiler.ir.nodes import operator_name
from adt.compiler.passes.layout import blocks
from adt.compiler.passes.weight_bits import BITS, BLOCK, TERMS, WORD, Blockwise, unpacked
from adt.numerics import Array

MANTISSA, ONE = 23, 0x3F800000  # bits of a mantissa, and those of the float 1


def product(form: Blockwise, data: te.Tensor, values: te.Tensor, scales: te.Tensor, *zeros: te.Tensor) -> Any:
    """Multiply *data* ``(…, K)``, as a tensor expression.

    Args:
        values: bytes ``(N, blocks, block * bits / 8)``, the first weight in the lowest bits.
        scales: ``(N, blocks)``.
        zeros: bytes ``(N, ceil(blocks * bits / 8))``; none: all are :attr:`Blockwise.middle`.
    """
    k = te.reduce_axis((0, form.terms), "k")
    part, place = k // form.block, k % form.block

    def number(byte: Any, index: tirx.PrimExpr) -> Any:
        """Read the number at *index* among those that begin with the *byte* in which it lies."""
        if form.bits == 8:
            return byte.astype("int32")
        shift, mask = (tirx.Cast("uint8", number) for number in (index * form.bits % 8, (1 << form.bits) - 1))
        return ((byte >> shift) & mask).astype("int32")

    def term(*at: tirx.PrimExpr) -> Any:
        *row, column = at
        value = number(values(column, part, place * form.bits // 8), place)
        zero = number(zeros[0](column, part * form.bits // 8), part) if zeros else form.middle
        weight = (value - zero).astype("float32") * scales(column, part)
        return te.sum(data(*row, k) * weight, axis=k)

    return te.compute((*data.shape[:-1], values.shape[0]), term, name="blockwise_sums")


@dataclass(frozen=True)
class BlockwiseWeights:
    """Constant weights of N columns."""

    form: Blockwise
    values: Array
    """Integers as :func:`product` has them."""
    scales: Array
    zeros: Array | None

    @property
    def columns(self) -> int:
        """N."""
        return len(self.values)

    def packed(self, lanes: int) -> list[Array]:
        """Pack words, scales and zero points in blocks of so many *lanes*, for :func:`floats`."""
        form, shifts = self.form, np.arange(0, WORD, self.form.bits, dtype=np.uint32)
        values = unpacked(self.values, form.bits).reshape(self.columns, -1)[:, : form.terms]
        words = (values.reshape(self.columns, -1, form.each).astype(np.uint32) << shifts).sum(2, np.uint32)
        arrays = [words, self.scales.astype(np.float32) * np.float32(1 << form.bits)]
        if self.zeros is not None:
            arrays.append(unpacked(self.zeros, form.bits)[:, : form.blocks])
        return [blocks.packed(array, 0, lanes) for array in arrays]


def floats(form: Blockwise, words: Any, scales: te.Tensor, *zeros: te.Tensor) -> Any:
    """Compute the weights ``(ceil(N/L), 1, K, L)`` from what :meth:`BlockwiseWeights.packed` gives."""
    count, _, lanes = words.shape
    first = MANTISSA - form.bits
    mask, share = ((1 << form.bits) - 1) << first, 1 / (1 << form.bits)

    def unsigned(number: Any) -> Any:
        """Cast to uint32: TVM takes signed numbers for indices, and makes all that they meet as wide."""
        return tirx.Cast("uint32", number)

    def weight(block: Any, _tap: tirx.PrimExpr, k: tirx.PrimExpr, lane: tirx.PrimExpr) -> Any:
        word, shift = words(block, k // form.each, lane), unsigned(k % form.each * form.bits)
        bits = ((word >> shift) << unsigned(first)) & unsigned(mask)
        number = tirx.reinterpret("float32", bits | unsigned(ONE))
        scale, least = scales(block, k // form.block, lane), tirx.const(-1 - form.middle * share, "float32")
        if zeros:
            zero = zeros[0](block, k // form.block, lane).astype("float32")
            least = zero * tirx.const(-share, "float32") - tirx.const(1, "float32")
        return scale * least + scale * number  # the first product is the same for all terms of a word

    return te.compute((count, 1, form.terms, lanes), weight, name=blocks.WEIGHTS)


def weights_of(module: tvm.IRModule, call: relax.Expr) -> BlockwiseWeights | None:
    """Return the constant weights that *call* multiplies by; None: there are none that words hold."""
    if operator_name(call) != "relax.call_tir":
        return None
    attributes = module[call.args[0]].attrs
    if attributes is None or BITS not in attributes:
        return None
    form = Blockwise(*(int(attributes[name]) for name in (BITS, BLOCK, TERMS)))
    constants: Sequence[Any] = call.args[1].fields[1:]
    if form.terms % form.each or not all(isinstance(constant, relax.Constant) for constant in constants):
        return None
    values, scales, *zeros = (constant.data.numpy() for constant in constants)
    return BlockwiseWeights(form, values, scales, zeros[0] if zeros else None)
