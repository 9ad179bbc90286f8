"""The calls of a run on a device, and the tensors that they left: what rtvm profiles and dumps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from adt.errors import RunError
from adt.model.inspection.graph import size_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.generic]


@dataclass(frozen=True)
class Made:
    """A call that the device made, and its tensors afterwards."""

    index: int
    name: str
    scopes: tuple[str, ...]
    arguments: tuple[Array, ...]


@dataclass(frozen=True)
class Listed:
    """A call that the device makes."""

    index: int
    name: str
    scopes: tuple[str, ...]
    bytes: int
    """Of all its tensors."""


def list_calls(report: Mapping[str, Any]) -> list[Listed]:
    """The calls of kernels in a profile of rtvm.

    Raises:
        RunError: it has no profile.
    """
    profile = report.get("profile")
    if not profile:
        raise RunError(
            "rtvm did not say which calls it makes",
            remedy="Rebuild the bundle (adt build-target): its rtvm does not fit this adt.",
        )
    return [
        Listed(
            int(call["index"]),
            str(call["name"]),
            tuple(str(argument["scope"]) for argument in call["arguments"]),
            sum(size_of(argument["shape"], argument["dtype"]) or 0 for argument in call["arguments"]),
        )
        for call in profile["calls"]
        if not call["builtin"]
    ]


def chunks(calls: Sequence[Listed], most: int) -> Iterator[list[Listed]]:
    """*calls* in groups of at most *most* bytes; a larger call is a group of its own."""
    group: list[Listed] = []
    size = 0
    for call in calls:
        if group and size + call.bytes > most:
            yield group
            group, size = [], 0
        group.append(call)
        size += call.bytes
    if group:
        yield group


def tensors_of(dumped: Mapping[str, Array], listed: Sequence[Listed]) -> Iterator[Made]:
    """The calls in the arrays that rtvm left, ``<index>|<name>|<argument>``, in order."""
    found: dict[int, dict[int, Array]] = {}
    for key, array in dumped.items():
        index, _, rest = key.partition("|")
        found.setdefault(int(index), {})[int(rest.rpartition("|")[2])] = array
    for call in listed:
        arguments = found.get(call.index, {})
        yield Made(
            call.index, call.name, call.scopes, tuple(arguments[number] for number in sorted(arguments))
        )
