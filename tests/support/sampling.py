"""Matrices of test cases: every run takes a fixed part in which each value occurs, the nightly run takes the whole."""

import itertools
from collections.abc import Iterable
from typing import Any

import pytest


def matrix(*axes: Iterable[Any]) -> list[Any]:
    """Return parameters for the product of *axes*, of which all but a diagonal are nightly.

    The diagonal pairs the longest axis with the others in turn, so each value of each axis occurs in it.
    """
    values = [list(axis) for axis in axes]
    every_run = {
        tuple(row % len(axis) for axis in values) for row in range(max(len(axis) for axis in values))
    }
    return [
        pytest.param(
            *(axis[at] for axis, at in zip(values, places, strict=True)),
            marks=[] if places in every_run else [pytest.mark.nightly],
        )
        for places in itertools.product(*(range(len(axis)) for axis in values))
    ]


def of_each_run(count: int, *cases: Any) -> list[Any]:
    """Return parameters for *cases*, of which all but the first *count* are nightly."""
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            marks=[pytest.mark.nightly] if place >= count else [],
        )
        for place, case in enumerate(cases)
    ]
