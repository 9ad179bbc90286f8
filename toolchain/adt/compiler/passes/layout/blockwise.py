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
from typing import TYPE_CHECKING, Any

from adt.compiler.ir.nodes import operator_name

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.generic]

BITS, BLOCK, TERMS = "adt.blockwise_bits", "adt.blockwise_block", "adt.blockwise_terms"
"""Attributes of such a function: bits of a weight, terms of a block, terms of a column."""
WORD, MANTISSA, ONE = 32, 23, 0x3F800000
"""Bits of a word, of a mantissa, and those of the float 1."""


@dataclass(frozen=True)
class Blockwise:
    """Form of weights of few bits."""

    bits: int
    block: int
    """Terms that share a scale."""
    terms: int
    """Number of terms of a column."""

    @property
    def blocks(self) -> int:
        """Return the number of blocks of a column."""
        return -(-self.terms // self.block)

    @property
    def each(self) -> int:
        """Weights in a word."""
        return WORD // self.bits

    @property
    def middle(self) -> int:
        """The zero point where none is said."""
        return 1 << (self.bits - 1)

    @property
    def attributes(self) -> dict[str, int]:
        """Return the attributes of the function that multiplies."""
        return {BITS: self.bits, BLOCK: self.block, TERMS: self.terms}


def product(form: Blockwise, data: Any, values: Any, scales: Any, *zeros: Any) -> Any:
    """Multiply *data* ``(…, K)``, as a tensor expression.

    Args:
        values: bytes ``(N, blocks, block * bits / 8)``, the first weight in the lowest bits.
        scales: ``(N, blocks)``.
        zeros: bytes ``(N, ceil(blocks * bits / 8))``; none: all are :attr:`Blockwise.middle`.
    """
    from tvm import te, tirx

    k = te.reduce_axis((0, form.terms), "k")
    part, place = k // form.block, k % form.block

    def number(byte: Any, index: Any) -> Any:
        """The number at *index* among those that begin with the *byte* in which it lies."""
        if form.bits == 8:
            return byte.astype("int32")
        shift, mask = (tirx.Cast("uint8", number) for number in (index * form.bits % 8, (1 << form.bits) - 1))
        return ((byte >> shift) & mask).astype("int32")

    def term(*at: Any) -> Any:
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
    """As :func:`product` has them."""
    scales: Array
    zeros: Array | None

    @property
    def columns(self) -> int:
        """N."""
        return len(self.values)

    def packed(self, lanes: int) -> list[Array]:
        """Words, scales and zero points in blocks of so many *lanes*, for :func:`floats`."""
        import numpy as np

        from adt.compiler.passes.layout import blocks

        form, shifts = self.form, np.arange(0, WORD, self.form.bits, dtype=np.uint32)
        values = unpacked(self.values, form.bits).reshape(self.columns, -1)[:, : form.terms]
        words = (values.reshape(self.columns, -1, form.each).astype(np.uint32) << shifts).sum(2, np.uint32)
        arrays = [words, self.scales.astype(np.float32) * np.float32(1 << form.bits)]
        if self.zeros is not None:
            arrays.append(unpacked(self.zeros, form.bits)[:, : form.blocks])
        return [blocks.packed(array, 0, lanes) for array in arrays]


def unpacked(values: Array, bits: int) -> Array:
    """Integers of *bits* bits out of bytes, along the last axis, the lowest bits first."""
    import numpy as np

    parts = np.asarray(values, np.uint8)[..., None] >> np.arange(0, 8, bits, dtype=np.uint8)
    whole: Array = parts & (2**bits - 1)
    return whole.reshape(*values.shape[:-1], -1)


def packed(values: Array, bits: int) -> Array:
    """Pack what :func:`unpacked` takes apart, with zeros in the last byte."""
    import numpy as np

    each = 8 // bits
    spare = [(0, 0)] * (values.ndim - 1) + [(0, -values.shape[-1] % each)]
    parts = np.pad(values, spare).astype(np.uint8).reshape(*values.shape[:-1], -1, each)
    whole: Array = (parts << np.arange(0, 8, bits, dtype=np.uint8)).sum(-1, np.uint8)
    return whole


def floats(form: Blockwise, words: Any, scales: Any, *zeros: Any) -> Any:
    """The weights ``(ceil(N/L), 1, K, L)`` that a product on blocked tensors reads, as a tensor expression of
    what :meth:`BlockwiseWeights.packed` gives."""
    from tvm import te, tirx

    from adt.compiler.passes.layout import blocks

    count, _, lanes = words.shape
    first = MANTISSA - form.bits
    mask, share = ((1 << form.bits) - 1) << first, 1 / (1 << form.bits)

    def unsigned(number: Any) -> Any:
        """Signed, TVM would take it for an index, and make all that it meets as wide."""
        return tirx.Cast("uint32", number)

    def weight(block: Any, _tap: Any, k: Any, lane: Any) -> Any:
        word, shift = words(block, k // form.each, lane), unsigned(k % form.each * form.bits)
        bits = ((word >> shift) << unsigned(first)) & unsigned(mask)
        number = tirx.reinterpret("float32", bits | unsigned(ONE))
        scale, least = scales(block, k // form.block, lane), tirx.const(-1 - form.middle * share, "float32")
        if zeros:
            zero = zeros[0](block, k // form.block, lane).astype("float32")
            least = zero * tirx.const(-share, "float32") - tirx.const(1, "float32")
        return scale * least + scale * number  # the first product is the same for all terms of a word

    return te.compute((count, 1, form.terms, lanes), weight, name=blocks.WEIGHTS)


def weights_of(module: Any, call: Any) -> BlockwiseWeights | None:
    """The constant weights that the *call* of Relax multiplies by; None: it is no such product, or no words
    hold its columns."""
    from tvm import relax

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
