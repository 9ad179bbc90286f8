"""TVM reads graphs that others wrote: what :mod:`check` lets pass, after a process of its own survived it."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from adt.host.process import run
from adt.model.graphs.check import GraphError, check_graph

TIMEOUT = 120.0
"""Seconds for all graphs of one reading, TVM's import among them."""
MOST_CRASHES = 5
"""Graphs that may end the process before all others of the reading are refused, too."""


def read_graphs(texts: Sequence[str]) -> list[Any]:
    """What TVM reads from each of *texts*, its JSON; in the place of what is refused, a GraphError."""
    import tvm

    reasons = [_refusal(text) for text in texts]
    passed = [place for place, reason in enumerate(reasons) if not reason]
    for place, reason in zip(passed, _tried([texts[place] for place in passed]), strict=True):
        reasons[place] = reason
    return [
        GraphError(reason) if reason else tvm.ir.load_json(text)
        for text, reason in zip(texts, reasons, strict=True)
    ]


def _refusal(text: str) -> str:
    try:
        check_graph(text)
    except GraphError as error:
        return str(error)
    return ""


def _tried(texts: Sequence[str]) -> list[str]:
    """Why TVM cannot read each of *texts*; empty where it can."""
    reasons: list[str] = []
    crashes = 0
    with tempfile.TemporaryDirectory(prefix="adt-graphs-") as scratch:
        request = Path(scratch) / "request.json"
        while len(reasons) < len(texts) and crashes < MOST_CRASHES:
            request.write_text(json.dumps({"texts": texts, "first": len(reasons)}))
            argv: list[str | Path] = [sys.executable, "-P", "-m", "adt.model.graphs.child", request]
            done = run(argv, timeout=TIMEOUT, check=False)
            reasons += [json.loads(line)[1] for line in done.stdout.splitlines() if line.endswith("]")]
            if done.returncode != 0 and len(reasons) < len(texts):
                crashes += 1
                reasons.append(f"TVM ends with code {done.returncode} while it reads it")
    return reasons + ["others beside it end TVM"] * (len(texts) - len(reasons))
