"""The fixed shape of every input: from ``--shape``, from the model, or a batch of 1."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from adt.config.load import did_you_mean
from adt.errors import ModelError

Shape = tuple[int, ...]
Declared = tuple[int | str, ...]
"""A shape as a model declares it; a string is an open dimension: its symbol, or empty when it has none."""


def parse_shapes(texts: Sequence[str]) -> dict[str, Shape]:
    """Parse ``name:1,3,224,224`` texts.

    Raises:
        ModelError: a text has another form, or an extent is not positive.
    """
    shapes: dict[str, Shape] = {}
    for text in texts:
        name, colon, extents = text.rpartition(":")
        if not colon or not name or not re.fullmatch(r"\d+(,\d+)*", extents):
            raise ModelError(
                f"--shape {text!r} is not of the form NAME:EXTENT,EXTENT,…",
                remedy="For example: --shape input:1,3,224,224",
            )
        shape = tuple(int(extent) for extent in extents.split(","))
        if 0 in shape:
            raise ModelError(f"--shape {text!r} has an extent of 0", remedy="Every extent is at least 1.")
        shapes[name] = shape
    return shapes


def fixed_shapes(declared: Mapping[str, Declared], given: Mapping[str, Shape]) -> dict[str, Shape]:
    """The static shape of every input.

    An extent that *given* fixes for one input holds for every input with the same
    symbol. What then is open and comes first is taken for a batch of 1; any other
    open dimension must be given.

    Raises:
        ModelError: a name is unknown, the rank or a fixed extent differs, two inputs give one
            symbol two extents, or a dimension stays open.
    """
    for name in given:
        if name not in declared:
            raise ModelError(
                f"the model has no input {name!r}.{did_you_mean(name, declared)}",
                remedy=f"Its inputs are: {', '.join(declared)}.",
            )
    symbols: dict[str, int] = {}
    for name, shape in given.items():
        _check_fit(name, declared[name], shape)
        for want, have in zip(declared[name], shape, strict=False):
            if isinstance(want, str) and want and symbols.setdefault(want, have) != have:
                raise ModelError(
                    f"--shape {name}:{_text(shape)} makes {want} {have}, another input {symbols[want]}",
                    remedy=f"Inputs that share the dimension {want} need the same extent there.",
                )
    fixed: dict[str, Shape] = {}
    for name, dims in declared.items():
        if name in given:
            fixed[name] = given[name]
            continue
        known = [symbols.get(dim, 0) if isinstance(dim, str) else dim for dim in dims]
        if known and known[0] == 0:
            known[0] = 1
            if isinstance(dims[0], str) and dims[0]:
                symbols[dims[0]] = 1
        if 0 in known:
            raise ModelError(
                f"input {name!r} has open dimensions: {','.join(str(extent or '?') for extent in known)}",
                remedy=f"Fix them, for example: --shape {name}:"
                + ",".join(str(extent or 224) for extent in known),
            )
        fixed[name] = tuple(known)
    return fixed


def _check_fit(name: str, declared: Declared, given: Shape) -> None:
    """Raise a ModelError unless *given* has the rank and fixed extents of *declared* (empty: anything)."""
    fits = len(given) == len(declared) and all(
        isinstance(want, str) or want == have for want, have in zip(declared, given, strict=True)
    )
    if declared and not fits:
        shown = ",".join("?" if isinstance(extent, str) else str(extent) for extent in declared)
        raise ModelError(
            f"--shape {name}:{_text(given)} does not fit the model's {shown}",
            remedy="Keep the rank and the extents that the model fixes ('?' is free).",
        )


def _text(shape: Shape) -> str:
    return ",".join(map(str, shape))
