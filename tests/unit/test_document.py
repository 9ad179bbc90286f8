"""A document is made of a record's fields, their metadata and marked properties."""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from adt.cli.endings import document
from adt.host.document import FLAT, HIDDEN, OR_NULL, aligned, document_of, form, in_document


@dataclass(frozen=True)
class Inner:
    low: float
    label: str = "inner"
    schema: str = "adt.inner"


@dataclass(frozen=True)
class Base:
    inner: Inner | None = field(metadata=FLAT)

    @property
    @in_document()
    def sized(self) -> int:
        return 1


@dataclass(frozen=True)
class Outer(Base):
    label: str
    secret: object = field(metadata=HIDDEN)
    size: int = field(default=2, metadata=form("bytes"))
    path: Path = field(default=Path("a/b"), metadata=form(convert=lambda path: path.name))
    pid: int = field(default=0, metadata=OR_NULL)
    rows: tuple[Inner, ...] = (Inner(math.inf),)

    @property
    @in_document("total", lambda rows: len(rows))
    def all_rows(self) -> tuple[Inner, ...]:
        return self.rows

    @property
    def unmarked(self) -> None:
        raise AssertionError


def test_a_field_has_the_form_of_its_metadata() -> None:
    fields = document_of({"it": Outer(Inner(0.5), "outer", object())})
    assert fields["it"] == {
        "low": 0.5,
        "label": "outer",  # of the record, not of what is flat in it
        "bytes": 2,
        "path": "b",
        "pid": None,
        "rows": [{"low": None, "label": "inner", "schema": "adt.inner"}],
        "total": 1,
        "sized": 1,
    }
    assert "low" not in document_of(Outer(None, "outer", None))


def test_the_schema_of_a_document_is_its_verbs() -> None:
    text = document("verb", {"schema": "adt.inner", "schema_version": 7, "low": 1})
    assert json.loads(text) == {"schema": "adt.verb", "schema_version": 1, "low": 1}
    assert next(iter(json.loads(text))) == "schema"


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
