"""Text in columns."""

from __future__ import annotations

import pytest

from adt.host.columns import aligned


def test_cells_stand_below_each_other_and_nothing_trails() -> None:
    assert aligned([("a", "name", "x"), ("long", "b", ""), ("", "", "é…")]) == [
        "a     name  x",
        "long  b",
        "            é…",
    ]
    assert aligned([]) == []


def test_rows_of_other_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        aligned([("a", "b"), ("c",)])
