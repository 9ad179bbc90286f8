"""What mod.json says about operators that a vendor's library computes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OffloadReport:
    """What was asked for with ``--offload``, and what came of it."""

    wanted: str
    """``clml`` or ``nnapi``."""
    ops: int
    """Operators that were handed over …"""
    total: int
    """… of so many in the model."""
    subgraphs: int
    """How many parts of the model they make."""
    left: tuple[str, ...]
    """What was not handed over, one line for each kind of operator, with the reason where it is known."""
