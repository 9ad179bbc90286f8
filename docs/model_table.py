"""Render the table of docs/models.md from tests/golden/model_table.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent.parent / "tests" / "golden" / "model_table.json"
COLUMNS = {"cpu": "CPU", "adreno-buffer": "buffers", "adreno": "textures"}
PRECISIONS = ("float32", "float16_acc32")


def model_table() -> str:
    """The table in Markdown, and below it why what is not right is not."""
    models: dict[str, Any] = json.loads(GOLDEN.read_text())
    head = [
        "model",
        *(f"{name}, {short}" for name in COLUMNS.values() for short in ("float32", "float16_acc32")),
    ]
    head += ["textured kernels", "convolutions in textures", "seconds"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    reasons: list[str] = []
    for name, precisions in models.items():
        cells = [name]
        for target in COLUMNS:
            for precision in PRECISIONS:
                row = precisions.get(precision, {}).get(target)
                cells.append(_cell(row))
                if row and "reason" in row:
                    reasons.append(f"- {name}, {target}, {precision}: {row['status']}: {row['reason']}")
        textured = precisions["float32"].get("adreno", {})
        if "textured" in textured:
            done, total = textured["convolutions"]
            cells += [
                f"{textured['textured']} of {textured['kernels']} ({textured['share']:.0%} of the arithmetic)",
                f"{done} of {total}",
                " / ".join(str(precisions["float32"][target].get("seconds", "")) for target in COLUMNS),
            ]
        else:
            cells += ["", "", ""]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", *dict.fromkeys(reasons)]) + "\n"


def _cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    if row["status"] in ("right", "wrong"):
        figures = f"{row['max_abs']:g} of {row['magnitude']:g}"
        return figures if row["status"] == "right" else f"**wrong**: {figures}"
    return row["status"]
