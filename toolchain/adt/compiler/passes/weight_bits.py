"""Weights of 4 or 8 bits in blocks with a scale: their form, and how bytes hold them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from adt.numerics import Array

BITS, BLOCK, TERMS = "adt.blockwise_bits", "adt.blockwise_block", "adt.blockwise_terms"
"""Attributes of a function with such weights: bits of a weight, terms of a block, terms of a column."""
WORD = 32  # bits of a word


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
        """Number of blocks of a column."""
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
        """Attributes of the function that multiplies."""
        return {BITS: self.bits, BLOCK: self.block, TERMS: self.terms}


def unpacked(values: Array, bits: int) -> Array:
    """Unpack integers of *bits* bits from bytes along the last axis, the lowest bits first."""
    parts = np.asarray(values, np.uint8)[..., None] >> np.arange(0, 8, bits, dtype=np.uint8)
    whole: Array = parts & (2**bits - 1)
    return whole.reshape(*values.shape[:-1], -1)


def packed(values: Array, bits: int) -> Array:
    """Pack what :func:`unpacked` takes apart, with zeros in the last byte."""
    each = 8 // bits
    spare = [(0, 0)] * (values.ndim - 1) + [(0, -values.shape[-1] % each)]
    parts = np.pad(values, spare).astype(np.uint8).reshape(*values.shape[:-1], -1, each)
    whole: Array = (parts << np.arange(0, 8, bits, dtype=np.uint8)).sum(-1, np.uint8)
    return whole
