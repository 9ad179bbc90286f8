"""Gates of recurrent layers, as TIR expressions."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import tirx


def rnn_gate(total: tirx.PrimExpr) -> tirx.PrimExpr:
    """Return the new state of a unit."""
    return tirx.tanh(total)


def lstm_gates(sums: Sequence[tirx.PrimExpr], c: tirx.PrimExpr) -> tuple[tirx.PrimExpr, tirx.PrimExpr]:
    """Return the new cell of a unit, and the output that takes its tanh, for the *sums* of its gates."""
    i, o, f, new = sums
    return tirx.sigmoid(f) * c + tirx.sigmoid(i) * tirx.tanh(new), tirx.sigmoid(o)


def gru_gates(update: tirx.PrimExpr, new: tirx.PrimExpr, h: tirx.PrimExpr) -> tirx.PrimExpr:
    """Return the new state of a unit: (1 - z)·n + z·h."""
    fresh = tirx.tanh(new)
    return fresh + tirx.sigmoid(update) * (h - fresh)
