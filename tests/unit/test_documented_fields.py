"""Fields that docs/json.md names are those of the records that the verbs return."""

import importlib
import pkgutil
import re
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

import adt
from adt.host.document import Form

PAGE = Path(__file__).parents[2] / "docs" / "json.md"
COMPOSED = frozenset(
    {"path", "bundles", "devices", "sizes", "output", "written", "classes", "next_steps", "ndks", "networks"}
)
"""Fields that a command adds to its record, or in which it lists several."""
WITHOUT_RECORD = frozenset({"inspect", "rpc-stop", "ndk-env", "tracker-stop"})
"""Documents of no record: of options, or of names alone."""


def records() -> dict[str, type[Any]]:
    """Return every dataclass of adt, by module and name."""
    names = [each.name for each in pkgutil.walk_packages(adt.__path__, "adt.")]
    modules = [importlib.import_module(name) for name in names if not name.endswith("__main__")]
    return {
        f"{kind.__module__}.{name}": kind
        for module in modules
        for name, kind in vars(module).items()
        if isinstance(kind, type) and is_dataclass(kind)
    }


RECORDS = records()


def records_named(annotation: str) -> set[type[Any]]:
    """Return the records of a name in *annotation*; of one name there may be two."""
    names = set(re.findall(r"\w+", annotation))
    return {kind for key, kind in RECORDS.items() if key.rpartition(".")[2] in names}


def names_of(records: set[type[Any]]) -> set[str]:
    """Return the names of the fields of *records* in their documents."""
    names: set[str] = set()
    for record in records:
        for field in fields(record):
            about: Form = field.metadata.get("document", Form())
            if about.flat and not about.convert:
                names |= names_of(records_named(str(field.type)))
            elif not about.hidden:
                names.add(about.name or field.name)
        for kind in record.__mro__:
            getters = [each.fget for each in vars(kind).values() if isinstance(each, property)]
            names |= {vars(getter)["in_document"].name for getter in getters if "in_document" in vars(getter)}
    return names


def named_in(row: str) -> set[str]:
    """Return the names of fields that a row of the page has outside of brackets."""
    while row != (row := re.sub(r"\([^()]*\)", "", row)):
        pass
    return set(re.findall(r"`([a-z_0-9]+)`", re.split(r"\. |:", row)[0]))


ROWS = {
    schema: row
    for schema, row in re.findall(r"^\| `adt\.([a-z-]+)` \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    if schema not in WITHOUT_RECORD and hasattr(adt, schema.replace("-", "_"))
}


@pytest.mark.parametrize("schema", ROWS)
def test_a_documented_field_is_in_the_record(schema: str) -> None:
    verb = getattr(adt, schema.replace("-", "_"))
    records = records_named(str(verb.__annotations__["return"]))
    assert records, f"{verb} returns no record"
    assert named_in(ROWS[schema]) - COMPOSED <= names_of(records)
