"""Read and write the JSON files that travel with artefacts, strictly and atomically.

A manifest is a frozen dataclass. Reading refuses wrong types, a newer schema and, unless told otherwise,
unknown keys, and names the field; writing goes through a temporary file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, TypeVar

from adt.errors import AdtError, PackageError
from adt.host.cache import write_text
from adt.host.contained import UnsafeFile, read_contained
from adt.limits import parse_json, read_json

T = TypeVar("T")
_PLAIN: dict[Any, tuple[type, ...]] = {kind: (kind,) for kind in (bool, int, str, bytes)}
_PLAIN |= {float: (float, int), int | str: (int, str)}
"""Kinds of JSON's values that a field of each type takes: a text is no number, as in ``rtvm``."""


def dumps(manifest: object) -> str:
    """Write the manifest as JSON text: its schema first, then the fields in order, newline at the end."""
    return json.dumps(fields_of(manifest), indent=2, ensure_ascii=False) + "\n"


def fields_of(manifest: object) -> dict[str, Any]:
    """Return the manifest as plain dictionaries and lists, its schema first, then the fields in order."""
    import cattrs

    fields: dict[str, Any] = cattrs.unstructure(manifest)
    head = {key: fields.pop(key) for key in ("schema", "schema_version")}
    return head | fields


def write(manifest: object, path: Path) -> None:
    """Write *manifest* to *path*; the file appears complete or not at all."""
    write_text(path, dumps(manifest))


def load(
    kind: type[T],
    path: Path,
    *,
    schema: str,
    version: int,
    remedy: str,
    older: Collection[int] = (),
    pass_over: bool = False,
    users: bool = False,
) -> T:
    """Read *path* as a manifest of class *kind*; *pass_over* ignores unknown fields, of a newer writer.

    *older* are versions whose fields *kind* has, with defaults for its others; of *users*, the user named the
    file, which may be a link or a pipe.
    """
    try:
        raw: Any = read_json(path) if users else parse_json(read_contained(path.parent, path.name))
    except UnsafeFile:
        raise
    except FileNotFoundError as error:
        raise PackageError(f"{path} does not exist", remedy=remedy) from error
    except (ValueError, OSError) as error:
        raise PackageError(f"{path} cannot be read: {error}", remedy=remedy) from error
    if not isinstance(raw, dict) or raw.get("schema") != schema:
        raise PackageError(f"{path} is not a {schema} file", remedy=remedy)
    if raw.get("schema_version") not in (version, *older):
        reads = " or ".join(map(str, (*older, version)))
        raise PackageError(
            f"{path} has schema version {raw.get('schema_version')}; this adt reads {reads}",
            remedy="Make it again with this adt, or use the adt that wrote it.",
        )
    return structure(raw, kind, path, error=PackageError, remedy=remedy, pass_over=pass_over)


def structure(
    raw: Any, kind: type[T], path: Path, *, error: type[AdtError], remedy: str, pass_over: bool = False
) -> T:
    """Convert the JSON *raw* of the file *path* to *kind*, or raise *error* with each wrong field named."""
    import cattrs

    try:
        value: T = strict_converter(pass_over=pass_over).structure(raw, kind)
    except Exception as failure:  # cattrs raises an exception group; its text names each field
        reasons = "\n".join(cattrs.transform_error(failure, path=path.name))
        raise error(f"{path} does not fit its schema", remedy=remedy, details=reasons) from failure
    return value


def strict_converter(*, pass_over: bool = False) -> Any:
    """Make a converter that takes no text for a number, and unknown fields only with *pass_over*."""
    import cattrs

    converter = cattrs.Converter(forbid_extra_keys=not pass_over)
    for plain, kinds in _PLAIN.items():
        converter.register_structure_hook(plain, _exactly(*kinds))
    return converter


def _exactly(*kinds: type) -> Callable[[Any, Any], Any]:
    def structured(value: Any, _kind: Any) -> Any:
        if type(value) not in kinds:
            raise TypeError(f"{value!r:.80} is no {' or '.join(kind.__name__ for kind in kinds)}")
        return float(value) if kinds[0] is float else value

    return structured
