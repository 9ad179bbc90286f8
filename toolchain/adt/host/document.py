"""Forms of results: documents that ``--json`` prints, text in columns, and self-contained HTML pages."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
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


def web_page(title: str, *, style: Path, script: Path, data: Any) -> str:
    """Render one HTML page that draws itself from data it carries; it asks for no address.

    *data* is in one JSON element, ``#data``, where nothing in a string can end it; the page's policy lets no
    other script, style or address in. web_page.css and web_page.js beside this file go before its own.
    """
    import html

    shared = Path(__file__).with_name("web_page")
    style_text, script_text = (
        shared.with_suffix(p.suffix).read_text() + p.read_text() for p in (style, script)
    )
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":  # nothing in a string may end the element
        text = text.replace(character, f"\\u{ord(character):04x}")
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    policy = (
        f"default-src 'none'; style-src '{_source(style_text)}'; script-src '{_source(script_text)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return (
        "<!DOCTYPE html>\n"
        '<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n"
        f"<style>{style_text}</style></head>\n"
        "<body><noscript>This page draws itself with JavaScript, from data that it carries.</noscript>\n"
        f'<script type="application/json" id="data">{text}</script>\n'
        f"<script>{script_text}</script></body></html>\n"
    )


def _source(text: str) -> str:
    import base64
    import hashlib

    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
