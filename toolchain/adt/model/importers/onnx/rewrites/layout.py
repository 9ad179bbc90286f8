"""Nodes that move the channels of a tensor to another axis."""

from __future__ import annotations

from adt.model.importers.onnx.graph import Builder


def channels_first(build: Builder, name: str, rank: int) -> str:
    """*name* ``[batch, …, channels]`` as ``[batch, channels, …]``."""
    return build.add("Transpose", name, perm=[0, rank - 1, *range(1, rank - 1)])


def channels_last(build: Builder, name: str, rank: int, out: str | None = None) -> str:
    """*name* ``[batch, channels, …]`` as ``[batch, …, channels]``."""
    return build.add("Transpose", name, out=out, perm=[0, *range(2, rank), 1])
