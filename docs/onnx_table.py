"""Render the table of ONNX's backend cases from tests/golden/onnx_cases.json."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from pathlib import Path

GOLDEN = Path(__file__).parent.parent / "tests" / "golden" / "onnx_cases.json"
VARIANTS = ("constants", "inputs")


def onnx_table() -> str:
    """Write one line for each family of operators and one for all; below, why the refused ones are."""
    counts: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
    reasons: dict[str, set[str]] = defaultdict(set)
    for row in json.loads(GOLDEN.read_text()):
        status, _, reason = row["outcome"].partition(": ")
        for family in (row["family"], "**all**"):
            for variant in VARIANTS:
                counts[family][variant, status] += len(row.get(variant, "").split())
        if reason and status == "refused":
            kind, operator = _kind(reason, row["operator"])
            reasons[kind].add(operator)
    lines = ["| operators | right | refused | left out | with inputs: right | refused |"]
    lines.append("|---|---|---|---|---|---|")
    for family in sorted(counts, key=lambda family: (family.startswith("*"), family)):
        count = counts[family]
        cells = [family]
        cells += [str(count["constants", status]) for status in ("right", "refused", "left out")]
        cells += [str(count["inputs", status]) for status in ("right", "refused")]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "Refused are:", ""]
    lines += [f"- {kind}: {', '.join(_names(reasons[kind]))}" for kind in sorted(reasons)]
    return "\n".join(lines) + "\n"


KINDS = {
    "weights": "weights that are not constant",
    "(random": "random numbers",
    "opset before": "of an opset before 9",
    "something else": "what it is rewritten to computes something else",
}
"""Words of a reason → its kind."""


def _names(operators: set[str]) -> list[str]:
    """Return the operators, reductions as one."""
    return sorted({re.sub(r"^Reduce.+", "Reduce…", operator) for operator in operators})


def _kind(reason: str, operator: str) -> tuple[str, str]:
    """Return the reason without this case's names, and the operator with the input it is about."""
    if "no converter" in reason:
        return "not covered", operator
    if "of 0" in reason or "has no elements" in reason:
        return "empty tensors", operator
    if match := re.search(r"its input (\S+) is not constant", reason):
        return "an input that is not constant", f"{operator} ({match[1]})"
    if "depends on" in reason:
        return "the size of the output depends on the input's values", operator
    for words, kind in KINDS.items():
        if words in reason:
            return kind, operator
    return "used in a way that cannot be imported", operator
