"""Render the table of ONNX's backend cases in docs/models.md from tests/golden/onnx_cases.json."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from pathlib import Path

GOLDEN = Path(__file__).parent.parent / "tests" / "golden" / "onnx_cases.json"
VARIANTS = ("constants", "inputs")


def onnx_table() -> str:
    """One line for each family of operators, and all of them."""
    counts: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
    reasons: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for id, row in json.loads(GOLDEN.read_text()).items():
        variant = id.rpartition("-")[2]
        status, _, reason = row["outcome"].partition(": ")
        for family in (row["family"], "**all**"):
            counts[family][variant, status] += 1
        if reason and status == "refused":
            reasons[row["family"]][_short(reason, row["operator"])].add(row["operator"])
    lines = ["| operators | right | refused | left out | with inputs: right | refused | refused are |"]
    lines.append("|---|---|---|---|---|---|---|")
    for family in sorted(counts, key=lambda family: (family.startswith("*"), family)):
        count = counts[family]
        cells = [family]
        cells += [str(count["constants", status]) for status in ("right", "refused", "left out")]
        cells += [str(count["inputs", status]) for status in ("right", "refused")]
        cells.append(
            "; ".join(f"{', '.join(sorted(ops))}: {why}" for why, ops in sorted(reasons[family].items()))
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _short(reason: str, operator: str) -> str:
    """The reason without names of this case: its nodes and tensors."""
    reason = re.sub(r"^.*cannot be imported: ", "", reason)
    if "no converter" in reason:
        return "not covered"
    reason = re.sub(rf"^{operator} at node (\(gives \S+\)|\S+) ", "", reason)
    reason = re.sub(r"^(--shape|input) '\S+' has an extent of 0", "empty tensors", reason)
    reason = re.sub(r"the shape of output '\S+' of the model depends", "the shape depends", reason)
    return re.sub(r"'\S+'", "…", reason).replace("|", "\\|")
