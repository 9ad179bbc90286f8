"""The table of docs/models.md says what is so: each row computed again."""

from __future__ import annotations

import json
from typing import Any

import pytest

import model_table
import real_models

STORED: dict[str, Any] = json.loads(model_table.GOLDEN.read_text())
QUICK = (("mtcnn-onet", "cpu"), ("mtcnn-onet", "adreno"))
"""Models and targets that run every time; the rest is for the night."""


def cases() -> list[Any]:
    return [
        pytest.param(
            name, target, id=f"{name}-{target}", marks=() if (name, target) in QUICK else pytest.mark.nightly
        )
        for name, precisions in STORED.items()
        for target in precisions["float32"]
    ]


@pytest.mark.timeout(1500)
@pytest.mark.parametrize(("name", "target"), cases())
def test_a_row(name: str, target: str) -> None:
    stored = STORED[name]["float32"][target]

    found = model_table.row(real_models.named(name), target, "float32")

    assert found["status"] == stored["status"], found
    assert found.get("textured") == stored.get("textured")
    assert found.get("convolutions") == stored.get("convolutions")


def test_the_table_holds_what_is_promised() -> None:
    rows = {name: precisions["float32"] for name, precisions in STORED.items()}
    imported = [name for name, targets in rows.items() if targets["cpu"]["status"] != "not compiled"]

    assert set(STORED) == {model.name for model in real_models.REAL_MODELS}
    assert len(imported) >= 12
    assert all(rows[name]["cpu"]["status"] == "right" for name in imported)
    for target in ("adreno-buffer", "adreno"):
        statuses = [rows[name][target]["status"] for name in imported]
        assert "wrong" not in statuses
        assert statuses.count("right") >= 12
    textured = [
        name
        for name in imported
        if rows[name]["adreno"]["status"] == "right" and rows[name]["adreno"]["convolutions"][0]
    ]
    assert len(textured) >= 10
