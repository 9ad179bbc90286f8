"""Decisions that a schedule leaves open, made by the rules themselves or by a search.

A rule asks for each thing that it could do in several ways, and names the ways, its own first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

Way = TypeVar("Way")


class Decisions(Protocol):
    """Decides what a schedule leaves open."""

    def choose(self, what: str, ways: Sequence[Way]) -> Way:
        """One of *ways* to do *what*; the first is what is done without a search."""


class Untuned:
    """Takes the first of all ways."""

    def choose(self, _what: str, ways: Sequence[Way]) -> Way:
        """The first."""
        return ways[0]


class Chosen:
    """Takes the ways of certain places, the first where none is said, and keeps which there were."""

    def __init__(self, places: Mapping[str, int]) -> None:
        self._places = places
        self.ways: dict[str, Sequence[object]] = {}
        """The ways there are to do each thing."""

    def choose(self, what: str, ways: Sequence[Way]) -> Way:
        """Return the way at the recorded place; ValueError if there are fewer ways."""
        self.ways[what] = ways
        place = self._places.get(what, 0)
        if place >= len(ways):
            raise ValueError(f"there are {len(ways)} ways of {what}")
        return ways[place]
