"""The table of docs/models.md says what is so: each row computed again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.models import published as real_models
from support.models import table as model_table

STORED: dict[str, Any] = json.loads(model_table.GOLDEN.read_text())
QUICK = (("mtcnn-onet", "cpu"), ("mtcnn-onet", "adreno"))
"""Models and targets that run every time; the rest is for the night."""
REFUSED = {("silero-vad", "adreno-buffer"), ("silero-vad", "adreno")}
"""It branches at run time."""
TOO_LONG = "voicefilter-embedder"
"""Its recurrent layers are compiled unrolled."""


def cases() -> list[Any]:
    return [
        pytest.param(
            model.name,
            target,
            id=f"{model.name}-{target}",
            marks=() if (model.name, target) in QUICK else pytest.mark.nightly,
        )
        for model in real_models.REAL_MODELS
        for target in model_table.TARGETS
        if model.name != TOO_LONG
    ]


@pytest.mark.parametrize(("name", "target"), cases())
def test_a_row(name: str, target: str) -> None:
    row = model_table.row(real_models.named(name), target, "float32")

    assert row["status"] == ("not compiled" if (name, target) in REFUSED else "right"), row
    stored = STORED[name]["float32"][target]
    assert stored["status"] == row["status"]
    assert row.get("textured") == stored.get("textured")
    assert row.get("convolutions") == stored.get("convolutions")
