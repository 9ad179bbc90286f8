"""Kernels that others wrote, read by TVM: what :mod:`rules` lets pass, after another process survived it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import tvm
import tvm.tirx.analysis
import tvm_ffi

from adt.errors import AdtError, last_line
from adt.host.isolated import isolated
from adt.package.graphs.rules import GraphError, check_graph

TIMEOUT = 120.0  # seconds for all graphs of one reading, TVM's import among them
MOST_CRASHES = 5  # graphs that may end the process before all others of the reading are refused, too


def read_graphs(texts: Sequence[str]) -> list[Any]:
    """Return what TVM reads from each of *texts*, its JSON; in the place of what is refused, a GraphError."""
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
    """Return why TVM cannot read each of *texts*; empty where it can."""
    reasons: list[str] = []
    crashes = 0
    end = time.monotonic() + TIMEOUT
    for text in texts:
        if crashes == MOST_CRASHES or time.monotonic() > end:
            reasons.append("others beside it end TVM")
            continue
        try:
            reasons.append(refusal(text))
        except AdtError as error:
            crashes += 1
            reasons.append(error.what)
    return reasons


@isolated("TVM's reading of it", TIMEOUT, process="graphs")
def refusal(text: str) -> str:
    """Return why TVM does not read *text*, the JSON of a graph; empty where it does."""
    try:
        graph = tvm.ir.load_json(text)
        tvm_ffi.structural_hash(graph)
        tvm.tirx.analysis.verify_well_formed(graph)
    except Exception as error:  # whatever TVM's reader raises
        return last_line(error)
    return ""
