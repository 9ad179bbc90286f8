"""Forms of results: documents that ``--json`` prints of their records, and text in columns for people."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeVar

Convert = Callable[[Any], Any]
Getter = TypeVar("Getter", bound=Callable[[Any], Any])
SCHEMA = ("schema", "schema_version")
"""Fields that a document has for itself; those of a record inside it (:data:`FLAT`) are left out."""


@dataclass(frozen=True)
class Form:
    """Form of a field in documents, where it is not the value under the field's name."""

    name: str = ""
    convert: Convert | None = None
    flat: bool = False
    """The value's fields stand beside those of the record; of equal names the record's count."""
    hidden: bool = False


def form(name: str = "", convert: Convert | None = None, *, flat: bool = False) -> Mapping[str, Form]:
    """Make the metadata of a field, see :class:`Form`."""
    return {"document": Form(name, convert, flat)}


FLAT = form(flat=True)
OR_NULL = form(convert=lambda value: value or None)
HIDDEN = {"document": Form(hidden=True)}
_PLAIN = Form()


def in_document(name: str = "", convert: Convert | None = None) -> Callable[[Getter], Getter]:
    """Put a property into documents: ``@property`` above ``@in_document()``."""

    def mark(getter: Getter) -> Getter:
        getter.__dict__["in_document"] = Form(name or getter.__name__, convert)
        return getter

    return mark


def document_of(value: Any) -> Any:
    """Return *value* as JSON has it: records as objects, and null in place of NaN and infinity."""
    if is_dataclass(value) and not isinstance(value, type):
        return _object(value)
    if isinstance(value, Mapping):
        return {name: document_of(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [document_of(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _object(record: Any) -> dict[str, Any]:
    inside: dict[str, Any] = {}
    own: dict[str, Any] = {}
    for field in fields(record):
        about: Form = field.metadata.get("document", _PLAIN)
        if about.hidden:
            continue
        shown = _shown(about, getattr(record, field.name))
        if not about.flat:
            own[about.name or field.name] = shown
        elif shown is not None:
            inside |= {name: item for name, item in shown.items() if name not in SCHEMA}
    for kind in type(record).__mro__:
        for each in vars(kind).values():
            getter = each.fget if isinstance(each, property) else None
            marked: Form | None = vars(getter).get("in_document") if getter else None
            if getter and marked:
                own[marked.name] = _shown(marked, getter(record))
    return inside | own


def _shown(about: Form, value: Any) -> Any:
    return document_of(about.convert(value) if about.convert else value)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Format each row, all of one length, as a line with its cells below those of the row before."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
