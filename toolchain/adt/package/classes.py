"""Answer of a classifier: scores, probabilities, the best classes and their labels."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adt.errors import InputError
from adt.limits import parse_json, read_text
from adt.numerics import Array

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from adt.package.manifest import TensorSpec


TOP = 5
SUM_TOLERANCE = 1e-2
"""Largest distance of probabilities' sum from 1: those of half precision and of long lists have one."""
MAX_LABELS_BYTES = 64 << 20
MAX_LABEL = 1000  # characters of a label


@dataclass(frozen=True)
class Class:
    """One of the best classes."""

    index: int
    label: str
    """Empty without labels."""
    score: float
    """As the model gave it."""
    probability: float | None
    """None where the scores are not to be made probabilities of (integers, or as it was asked)."""


@dataclass(frozen=True)
class Ranking:
    """The best classes of one output, for each row of its batch."""

    output: str
    softmax: bool
    reason: str
    """Reason for it or against it, for people."""
    rows: tuple[tuple[Class, ...], ...]
    """One for each of the batch, best first."""


def read_labels(path: Path) -> tuple[str, ...]:
    """Read the labels in *path*, by class; InputError if there are none, or one cannot be shown.

    One label on each line, kept whole (``n02123045 tabby, tabby cat``); or, in a .json file, a list of texts,
    a dictionary from index to text, or from index to ``[synset, text]``.
    """
    try:
        text = read_text(path, MAX_LABELS_BYTES).removeprefix("\ufeff")
    except (OSError, ValueError) as error:
        raise InputError(
            f"the labels {path} cannot be read: {error}",
            remedy="Give a UTF-8 text file with one label on each line, in the order of the classes.",
        ) from error
    if path.suffix.lower() == ".json":
        labels = _json_labels(path, text)
    else:
        labels = tuple(line.strip() for line in text.rstrip().split("\n"))
    if not any(labels):
        raise InputError(f"{path} has no labels", remedy="Write one label on each line.")
    for number, label in enumerate(labels):
        if len(label) > MAX_LABEL or not _is_shown(label):
            raise InputError(
                f"the label of class {number} in {path} has control characters, or more than {MAX_LABEL}",
                remedy="Check --labels: one label on each line, in the order of the classes.",
            )
    return labels


def _is_shown(label: str) -> bool:
    """True if no character of *label* but joiners (scripts and emoji need them) controls others."""
    text = label.translate({0x200C: None, 0x200D: None, ord("\t"): None})
    return not any(unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") for character in text)


def _json_labels(path: Path, text: str) -> tuple[str, ...]:
    refused = InputError(
        f"{path} is neither a JSON list of labels nor a dictionary from class numbers to labels",
        remedy='Give ["first class", …] or {"0": "first class", …}; or a text file, one label on each line.',
    )
    try:
        document = parse_json(text)
        if isinstance(document, dict):
            numbered = {int(key): value for key, value in document.items()}
            document = [numbered[number] for number in range(len(numbered))]
        labels = tuple(map(_label, document))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise refused from error
    if not labels:
        raise refused
    return labels


def _label(value: Any) -> str:
    if isinstance(value, list) and value and all(isinstance(part, str) for part in value):
        return " ".join(value)
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def rank(
    outputs: Mapping[str, Array], *, labels: Sequence[str] = (), top: int = TOP, softmax: bool | None = None
) -> Ranking:
    """Rank the classes of the output that has scores, *top* of them; by number where *labels* is empty.

    Softmax None applies it to floats that are no probabilities yet. InputError if not exactly one output has
    scores, or labels are not as many.
    """
    import numpy as np

    name, scores = _scores(outputs, labels)
    numbers = scores.astype(np.float64)
    applied, already, reason = _softmax_wanted(scores, numbers, softmax)
    probabilities = numbers
    if applied:
        powers = np.exp(numbers - numbers.max(axis=1, keepdims=True))
        probabilities = powers / powers.sum(axis=1, keepdims=True)
    rows = []
    for values, shares in zip(numbers, probabilities, strict=True):
        # stable, so that of equal scores the first class comes first; NaN last
        order = np.argsort(-np.nan_to_num(values, nan=-np.inf), kind="stable")[:top]
        best = []
        for index in map(int, order):
            share = float(shares[index]) if applied or already else None
            best.append(Class(index, labels[index] if labels else "", float(values[index]), share))
        rows.append(tuple(best))
    return Ranking(name, applied, reason, tuple(rows))


def check_scores(outputs: Sequence[TensorSpec], labels: Sequence[str]) -> None:
    """Raise, before a run, the InputError of :func:`rank` for *outputs*, where their extents are known."""
    import numpy as np

    if all(isinstance(extent, int) for spec in outputs for extent in spec.shape):
        zeros = {
            spec.name: np.broadcast_to(np.zeros((), spec.dtype), tuple(map(int, spec.shape)))
            for spec in outputs
        }
        _scores(zeros, labels)


def _scores(outputs: Mapping[str, Array], labels: Sequence[str]) -> tuple[str, Array]:
    """Find the output with scores, as [batch, classes]."""
    candidates = {name: rows for name, array in outputs.items() if (rows := _rows(array)) is not None}
    if labels and len(candidates) > 1:
        fitting = {name: rows for name, rows in candidates.items() if rows.shape[1] == len(labels)}
        candidates = fitting or candidates
    if len(candidates) != 1:
        has = ", ".join(f"{name}: {array.dtype}{list(array.shape)}" for name, array in outputs.items())
        raise InputError(
            f"{len(candidates)} outputs look like scores of classes, not one: {has}",
            remedy="Leave --labels, --top and --softmax away, and look at the outputs: --output FILE.npz",
        )
    ((name, rows),) = candidates.items()
    if labels and rows.shape[1] != len(labels):
        raise InputError(
            f"there are {len(labels)} labels and {rows.shape[1]} classes in the output {name}",
            remedy="Give the labels that the model was trained with, all of them, in order; some models have "
            "a class for the background before the others.",
        )
    return name, rows


def _rows(array: Array) -> Array | None:
    """Reshape *array* to [batch, classes]; None when it has another shape, or but one class."""
    import numpy as np

    if array.ndim == 0 or not np.issubdtype(array.dtype, np.number):
        return None
    rows, *extents = (1, *array.shape) if array.ndim == 1 else array.shape
    long_ones = [extent for extent in extents if extent != 1]
    return array.reshape(rows, *long_ones) if array.size and len(long_ones) == 1 else None


def _softmax_wanted(
    scores: Array, numbers: NDArray[np.float64], setting: bool | None
) -> tuple[bool, bool, str]:
    """Decide if to apply softmax, and if the scores are probabilities without it; return the reason, too."""
    import numpy as np

    floating, finite = np.issubdtype(scores.dtype, np.floating), bool(np.isfinite(numbers).all())
    sums_to_1 = (np.abs(numbers.sum(axis=1) - 1) <= SUM_TOLERANCE).all()
    already = bool(floating and finite and (numbers >= 0).all() and sums_to_1)
    if setting is not None:
        return setting, already, "as asked"
    if already:
        return False, True, "the scores are probabilities already: they sum to 1"
    if not floating:
        return False, False, f"the scores are {scores.dtype}"
    if not finite:
        return False, False, "some scores are not finite"
    return True, False, "the scores do not sum to 1"
