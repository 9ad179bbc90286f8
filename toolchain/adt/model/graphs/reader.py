"""TVM reads kernels that others wrote: what :mod:`rules` lets pass, after a process of its own survived it.

That process is this module, too: ``python -m adt.model.graphs.reader``.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from adt.errors import last_line
from adt.host.child import Child, ChildFailed, Speech, serve
from adt.model.graphs.rules import GraphError, check_graph

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
    end = time.monotonic() + TIMEOUT
    with Child("adt.model.graphs.reader", speech=Speech(str, str)) as child:
        for text in texts:
            if crashes == MOST_CRASHES:
                reasons.append("others beside it end TVM")
                continue
            try:
                reasons.append(child.ask(text, max(end - time.monotonic(), 0)))
            except ChildFailed as failure:
                crashes += 1
                reasons.append(f"TVM {failure} while it reads it")
    return reasons


MOST_MEMORY = 8 << 30
"""Bytes of address space that a reading may add to what Python and TVM take before it."""


def refusal(text: str) -> str:
    """Why TVM does not read *text*, the JSON of a graph; empty where it does."""
    import tvm
    import tvm.tirx.analysis
    import tvm_ffi

    try:
        graph = tvm.ir.load_json(text)
        tvm_ffi.structural_hash(graph)
        tvm.tirx.analysis.verify_well_formed(graph)
    except Exception as error:  # whatever TVM's reader raises
        return last_line(error)
    return ""


def limit_memory() -> None:
    """Limit what this process may add to its address space.

    TVM is there before: where the library of its compiler cannot be mapped, TVM goes on without it and
    knows no graph; with PyTorch beside it and a driver of a GPU it maps many GiB.
    """
    import tvm.tirx.analysis  # noqa: F401

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MOST_MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    limit_memory()
    serve(refusal)
