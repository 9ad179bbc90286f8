"""ONNX's own backend cases, run by rtvm: right, or refused before anything is compiled, and as the table says."""

from pathlib import Path
from typing import Any

import pytest

from adt.bundle.bundle import TargetBundle
from support.models import onnx_cases

STORED = onnx_cases.stored()
LEAST_RIGHT = 1250
EVERY = 40
"""One case with constants of so many runs every time, the rest by night."""


def cases() -> list[Any]:
    often = sorted(id for id in STORED if id.endswith("-constants"))[::EVERY]
    return [
        pytest.param(id, id=id, marks=() if id in often else pytest.mark.nightly) for id in sorted(STORED)
    ]


@pytest.fixture(scope="module")
def rtvm(host_bundle: TargetBundle) -> Path:
    onnx_cases.preload()
    return host_bundle.file("bin/rtvm")


@pytest.mark.timeout(onnx_cases.SECONDS + 60)
@pytest.mark.parametrize("id", cases())
def test_a_case(id: str, rtvm: Path) -> None:
    outcome = onnx_cases.outcome(onnx_cases.all_cases()[id], rtvm)

    assert outcome.status in onnx_cases.ACCEPTED, outcome
    assert outcome.status == STORED[id].status, (
        f"{outcome}; if this is meant: PYTHONPATH=tests python -m support.models.onnx_cases {id} --write, and python docs/generate.py"
    )


def test_the_table_holds_what_is_promised() -> None:
    """Write the table anew for another version of onnx, which has other cases."""
    constants = [row.status for id, row in STORED.items() if id.endswith("-constants")]

    assert set(STORED) <= set(onnx_cases.all_cases())
    assert all(row.status in onnx_cases.ACCEPTED for row in STORED.values())
    assert constants.count("right") >= LEAST_RIGHT
