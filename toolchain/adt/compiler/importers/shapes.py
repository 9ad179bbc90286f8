"""The fixed shape of every input: from ``--shape``, from the model, or a batch of 1."""

from __future__ import annotations

import ast
import math
import operator
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence

from adt.errors import ModelError
from adt.limits import MOST_ELEMENTS
from adt.options.option import did_you_mean

Shape = tuple[int, ...]
DeclaredShape = tuple[int | str, ...]
"""A shape as a model declares it; a string is an open dimension: its symbol, or empty when it has none."""
_Extents = tuple[int | None, ...]  # a shape; None is an extent that is not known
RequestedShapes = Mapping[str, Shape | int]  # request of shapes: input to shape, and symbol to extent

_EXTENT = "[0-9]{1,18}"
_INPUT = re.compile(rf"(?P<name>.+):(?P<extents>{_EXTENT}(,{_EXTENT})*)", re.DOTALL)
_SYMBOL = r"[^=:,]+"
_SYMBOLS = re.compile(rf"{_SYMBOL}={_EXTENT}(,{_SYMBOL}={_EXTENT})*")
MOST_AXES = 64  # dimensions of a tensor, as numpy has them
MOST_SYMBOL = 200
"""Characters of an open dimension's name or expression: Python's parser and walks over its trees recur."""
_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}
SIDE, CHANNELS, STEPS = 224, 3, 16
"""Extents of the ready option: height and width of pictures, their channels, and anything else."""
CACHE = re.compile(r"past|cache|prev|history|memory|state", re.IGNORECASE)
"""Names of caches of earlier steps, and of their lengths."""
TOTAL = re.compile(r"total|all_?(seq|len|steps)|kv_?(seq|len)", re.IGNORECASE)
"""Names of the length of earlier and new steps together."""
OF_STEPS = re.compile(f"{CACHE.pattern}|{TOTAL.pattern}|seq|len|head|step|frame|time|token", re.IGNORECASE)
"""Names of inputs and dimensions that no picture has."""
MOST_SHOWN = 4  # inputs with open dimensions that an error shows; the others are counted


def parse_shapes(texts: Sequence[str]) -> dict[str, Shape | int]:
    """Parse ``name:1,3,224,224`` (an input) and ``batch=1,past=16`` (symbols) texts."""
    given: dict[str, Shape | int] = {}
    for name, value in (pair for text in texts for pair in _parse(text)):
        if given.setdefault(name, value) != value:
            raise ModelError(
                f"--shape says two things of {name!r}: {option(name, given[name])} and {option(name, value)}",
                remedy="Leave one of them out.",
            )
    return given


def _parse(text: str) -> Iterator[tuple[str, Shape | int]]:
    if match := _INPUT.fullmatch(text):
        yield match["name"], tuple(int(extent) for extent in match["extents"].split(","))
    elif _SYMBOLS.fullmatch(text):
        for part in text.split(","):
            name, _, extent = part.partition("=")
            yield name, int(extent)
    else:
        raise ModelError(
            f"--shape {text[:80]!r} is neither NAME:EXTENT,EXTENT,… nor SYMBOL=EXTENT,… of at most 18 digits",
            remedy="For example: --shape input:1,3,224,224 for an input, or --shape batch=1,past=16"
            " for open dimensions by their symbols.",
        )


def option(name: str, value: Shape | int) -> str:
    """Return the value of ``--shape`` for one input or symbol."""
    return f"{name}={value}" if isinstance(value, int) else f"{name}:{_text(value)}"


def fixed_shapes(
    declared: Mapping[str, DeclaredShape], given: RequestedShapes, *, empty: bool = False
) -> dict[str, Shape]:
    """Return the static shape of every input, or raise a ModelError that names all dimensions that stay open.

    A dimension that is *declared* may be a sum or product of other inputs' symbols (``past + sequence``). If
    *empty*, *given* may ask for extents of 0; one that is declared may stand for an unknown extent.
    """
    symbols = fixed_symbols(declared, given)
    fixed: dict[str, _Extents] = {}
    for name, dims in declared.items():
        fixed[name] = computed = _extents(dims, symbols)
        if isinstance(shape := given.get(name), tuple):
            for dim, extent, asked in zip(dims, computed, shape, strict=False):
                if dim and extent and extent != asked:
                    raise ModelError(
                        f"--shape {option(name, shape)} makes {dim} {asked}, the other inputs {extent}",
                        remedy="Give each symbol one extent, or leave this input out: its shape follows.",
                    )
            fixed[name] = shape
    if any(None in shape for shape in fixed.values()):
        raise _still_open(declared, given, fixed)
    shapes = {name: tuple(extent or 0 for extent in shape) for name, shape in fixed.items()}
    for name, shape in shapes.items():
        if 0 in shape and not (empty and (name in given or 0 not in declared[name])):
            remedy = "Export the model without it, or with that dimension open or at least 1."
            if empty:
                remedy += f" If it is meant to be empty: --shape {shlex.quote(option(name, shape))}"
            raise ModelError(f"input {name!r} has no elements: its shape is {_text(shape)}", remedy=remedy)
    return small(shapes)


def small(shapes: dict[str, Shape], most: int = MOST_ELEMENTS) -> dict[str, Shape]:
    """Return *shapes*, none of which has more than *most* elements or :data:`MOST_AXES` axes."""
    for name, shape in shapes.items():
        if len(shape) > MOST_AXES:
            raise ModelError(
                f"the tensor {name[:80]!r} has {len(shape)} dimensions, more than the {MOST_AXES} of numpy",
                remedy="Export the model with tensors of fewer dimensions.",
            )
        if math.prod(shape) > most:
            raise ModelError(
                f"the tensor {name[:80]!r} has more than {most:,} elements: {' × '.join(map(str, shape))}",
                remedy="Check the model; give smaller extents with --shape where they are open.",
            )
    return shapes


def fixed_symbols(declared: Mapping[str, DeclaredShape], given: RequestedShapes) -> dict[str, int]:
    """Return the extent of every symbol that *given* fixes, by itself or by an input's shape.

    A symbol that is still open is a batch of 1 where it comes first in an input, unless that input has no
    other dimension and the symbol comes later in another one.
    """
    known = _symbols(declared)
    symbols: dict[str, int] = {}
    origins: dict[str, str] = {}

    def fix(symbol: str, extent: int, origin: str) -> None:
        if symbols.setdefault(symbol, extent) != extent:
            raise ModelError(
                f"--shape {origin} makes {symbol} {extent}, --shape {origins[symbol]} makes it"
                f" {symbols[symbol]}",
                remedy=f"Inputs that share the dimension {symbol} need the same extent there.",
            )
        origins.setdefault(symbol, origin)

    for name, value in given.items():
        if isinstance(value, int):
            if name not in known:
                raise _no_symbol(name, known, declared)
            fix(name, value, option(name, value))
            continue
        if name not in declared:
            remedy = f"Its inputs are: {', '.join(declared)}."
            if name in known:
                remedy = f"{name} is a dimension: --shape {name}={value[0]}"
            raise ModelError(f"the model has no input {name!r}.{did_you_mean(name, declared)}", remedy=remedy)
        _check_fit(name, declared[name], value)
        for dim, extent in zip(declared[name], value, strict=False):
            if dim in known:
                fix(str(dim), extent, option(name, value))
            elif isinstance(dim, str) and (solution := _solved(dim, extent)):
                fix(*solution, option(name, value))
    later = {dim for dims in declared.values() for dim in dims[1:]}
    for dims in declared.values():
        if dims and dims[0] in known and (len(dims) > 1 or dims[0] not in later):
            symbols.setdefault(str(dims[0]), 1)
    return symbols


def _symbols(declared: Mapping[str, DeclaredShape]) -> list[str]:
    """Return the symbols of all inputs in their order: names, and texts that are no expression of names."""
    texts = list(dict.fromkeys(dim for dims in declared.values() for dim in dims if isinstance(dim, str)))
    plain = {text for text in texts if text.isidentifier()}
    symbols: list[str] = []
    for text in filter(None, texts):
        names = _names(text)
        # `height-2` may be a name: without spaces it is an expression only of symbols that there are
        symbols += names if names and (set(names) <= plain or " " in text or "*" in text) else [text]
    return list(dict.fromkeys(symbols))


def _expression(text: str) -> ast.expr | None:
    """Parse *text*; return None if it is no expression, or a long one."""
    try:
        return ast.parse(text, mode="eval").body if len(text) <= MOST_SYMBOL else None
    except (SyntaxError, ValueError, MemoryError):  # a MemoryError of parentheses within each other
        return None


def _names(text: str) -> list[str]:
    """Return the names in *text* when it is an integer expression of them; else none."""
    tree = _expression(text)
    known = (ast.BinOp, ast.Name, ast.Constant, ast.Load, *_OPERATORS)
    nodes = list(ast.walk(tree)) if tree else []
    fits = all(isinstance(n, known) and isinstance(getattr(n, "value", 0), int) for n in nodes)
    return [node.id for node in nodes if isinstance(node, ast.Name)] if fits else []


def _extents(dims: DeclaredShape, symbols: Mapping[str, int]) -> _Extents:
    """Return *dims* by *symbols*, None for what is still open; a first dimension without a symbol is 1."""
    extents: list[int | None] = []
    for index, dim in enumerate(dims):
        if isinstance(dim, int):
            extents.append(dim)
        elif not dim:
            extents.append(None if index else 1)
        elif dim in symbols:
            extents.append(symbols[dim])
        else:
            names = _names(dim)
            tree = _expression(dim) if names and set(names) <= symbols.keys() else None
            extents.append((max(0, _evaluate(tree, symbols)) or None) if tree else None)
    return tuple(extents)


def _evaluate(node: ast.AST, symbols: Mapping[str, int]) -> int:
    if isinstance(node, ast.BinOp):
        left, right = _evaluate(node.left, symbols), _evaluate(node.right, symbols)
        if isinstance(node.op, ast.FloorDiv) and not right:
            return 0
        return int(_OPERATORS[type(node.op)](left, right))
    return symbols[node.id] if isinstance(node, ast.Name) else int(getattr(node, "value", 0))


def _solved(text: str, extent: int) -> tuple[str, int] | None:
    """Solve *text*, linear in one symbol: its name, and its value that gives *extent*; else None."""
    names, tree = set(_names(text)), _expression(text)
    if len(names) != 1 or tree is None:
        return None
    (name,) = names
    first, second = (_evaluate(tree, {name: value}) for value in (0, 1))
    value = (extent - first) // (second - first) if second != first else 0
    return (name, value) if value > 0 and _evaluate(tree, {name: value}) == extent else None


def _no_symbol(name: str, known: Sequence[str], declared: Mapping[str, DeclaredShape]) -> ModelError:
    inputs = [f"{other}:{_shown(dims)}" for other, dims in declared.items()]
    remedy = f"Name an input and its whole shape. The model has: {'; '.join(inputs[:MOST_SHOWN])}"
    return ModelError(
        f"no input of the model has an open dimension {name!r}.{did_you_mean(name, known)}",
        remedy=f"There are: {', '.join(known)}." if known else remedy,
    )


def _examples(declared: Mapping[str, DeclaredShape], given: RequestedShapes) -> dict[str, Shape | int]:
    """Guess an extent for each symbol, and for each dimension without one, that *given* leaves open."""
    known, symbols = _symbols(declared), fixed_symbols(declared, given)
    examples: dict[str, Shape | int] = {}
    left = [name for name in declared if not isinstance(given.get(name), tuple)]
    for name, dims in declared.items():
        for index, dim in enumerate(dims if name in left else ()):
            for symbol in [dim] if dim in known else _names(str(dim)):
                if re.fullmatch(_SYMBOL, str(symbol)) and symbol not in symbols:
                    symbols[str(symbol)] = examples[str(symbol)] = _example(index, dims, name)
    _add_up(declared, symbols, examples)
    for name, dims in declared.items():
        shape = _extents(dims, symbols)
        if name in left and None in shape:
            examples[name] = tuple(
                _example(index, dims, name) if extent is None else extent
                for index, extent in enumerate(shape)
            )
    return examples


def _add_up(
    declared: Mapping[str, DeclaredShape], symbols: dict[str, int], examples: dict[str, Shape | int]
) -> None:
    """Make the length of all steps, where it is an example, that of the cache and of the new steps.

    The new steps are the last axis of the first input that has two and is as long as neither; or one.
    """
    cached = next((symbol for symbol in symbols if CACHE.search(symbol) and not TOTAL.search(symbol)), None)
    totals = [symbol for symbol in symbols if TOTAL.search(symbol)]
    if cached is None or not totals:
        return
    matrices = (dims for dims in declared.values() if len(dims) == 2)
    new = (_extents(dims, symbols)[1] for dims in matrices if dims[1] not in (cached, *totals))
    steps = next((extent for extent in new if extent), 1)
    for total in totals:
        if total in examples:
            symbols[total] = examples[total] = symbols[cached] + steps
        elif cached in examples and symbols[total] > steps:
            symbols[cached] = examples[cached] = symbols[total] - steps


def _example(index: int, dims: DeclaredShape, name: str) -> int:
    """Guess the extent of the dimension *index* of the input *name*: of a picture, or of a sequence."""
    if len(dims) != 4 or OF_STEPS.search(" ".join((name, *map(str, dims)))):
        return STEPS
    is_open = [isinstance(dim, str) for dim in dims]
    if is_open[2] and is_open[3]:
        return CHANNELS if index == 1 else SIDE
    return SIDE if CHANNELS in dims or 1 in (dims[1], dims[3]) else STEPS


def _still_open(
    declared: Mapping[str, DeclaredShape], given: RequestedShapes, fixed: Mapping[str, _Extents]
) -> ModelError:
    symbols = fixed_symbols(declared, given)
    shown = [f"{name}:{_shown(dims, symbols)}" for name, dims in declared.items() if None in fixed[name]]
    more = f" and {len(shown) - MOST_SHOWN} more inputs" if len(shown) > MOST_SHOWN else ""
    examples = _examples(declared, given)
    together = ",".join(option(name, value) for name, value in examples.items() if isinstance(value, int))
    each = [option(name, value) for name, value in examples.items() if not isinstance(value, int)]
    options = tuple(word for text in (together, *each) if text for word in ("--shape", text))
    return ModelError(
        f"open dimensions: {'; '.join(shown[:MOST_SHOWN])}{more}",
        remedy=f"Fix them, with your numbers: {shlex.join(options)}",
        options=options,
    )


def _check_fit(name: str, declared: DeclaredShape, given: Shape) -> None:
    """Raise a ModelError unless *given* has the rank and fixed extents of *declared* (empty: anything)."""
    pairs = zip(declared, given, strict=False)
    fits = len(given) == len(declared) and all(isinstance(want, str) or want == have for want, have in pairs)
    if declared and not fits:
        raise ModelError(
            f"--shape {name}:{_text(given)} does not fit the model's {_shown(declared)}",
            remedy="Keep the rank and the extents that the model fixes (names and '?' are free).",
        )


def _shown(dims: DeclaredShape, symbols: Mapping[str, int] | None = None) -> str:
    extents = _extents(dims, symbols) if symbols is not None else (None,) * len(dims)
    shown = (dim if extent is None else extent for extent, dim in zip(extents, dims, strict=True))
    return ",".join("?" if extent == "" else str(extent) for extent in shown)


def _text(shape: Shape) -> str:
    return ",".join(map(str, shape))


def distinct_names(names: Iterable[str]) -> list[str]:
    """Number the *names* that come again; a name that comes once stays."""
    given, result = list(names), list[str]()
    for name in given:
        text, number = name, 1
        while text in result or (number > 1 and text in given):
            number += 1
            text = f"{name}_{number}"
        result.append(text)
    return result
