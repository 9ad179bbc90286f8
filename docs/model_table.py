"""Render the table of docs/models.md from tests/golden/model_table.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent.parent / "tests" / "golden" / "model_table.json"
COLUMNS = {"cpu": "CPU", "adreno-buffer": "buffers", "adreno": "textures"}
PRECISIONS = ("float32", "float16_acc32")
SMALL = 1e-2
"""Magnitude of an output below which its share says little: the absolute difference is shown, too."""


def model_table() -> str:
    """Write the table in Markdown, and below it why what is not right is not."""
    models: dict[str, Any] = json.loads(GOLDEN.read_text())
    head = ["model", *COLUMNS.values(), *(f"{name}, half" for name in COLUMNS.values())]
    head += ["textured kernels (of the arithmetic)", "convolutions in textures"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    reasons: list[str] = []
    for name, precisions in models.items():
        cells = [name]
        for precision in PRECISIONS:
            for target in COLUMNS:
                row = precisions.get(precision, {}).get(target)
                cells.append(_cell(row))
                if row and "reason" in row:
                    reasons.append(f"- {name}, {target}, {precision}: {row['status']}: {row['reason']}")
        textured = precisions["float32"].get("adreno", {})
        if "textured" in textured:
            done, total = textured["convolutions"]
            cells.append(f"{textured['textured']} of {textured['kernels']} ({textured['share']:.0%})")
            cells.append(f"{done} of {total}")
        else:
            cells += ["", ""]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", *dict.fromkeys(reasons)]) + "\n"


def _cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    if row["status"] in ("right", "wrong"):
        figure = f"{row['max_abs'] / row['magnitude']:.1e}" if row["max_abs"] else "0"
        if row["magnitude"] < SMALL:
            figure += f" ({row['max_abs']:.0e})"
        return figure if row["status"] == "right" else f"**wrong**: {figure}"
    return row["status"]
