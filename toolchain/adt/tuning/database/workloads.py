"""A workload's module as text, and back."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from typing import Any

from adt.tuning.records import Workload

log = logging.getLogger("adt.tune")


def identity(module: str) -> str:
    """:attr:`Workload.id` of the one with this text."""
    return hashlib.sha256(module.encode()).hexdigest()[:32]


def described(module: Any) -> Workload:
    """*module*, an IRModule with one function ``main``, as a workload."""
    from tvm import ir

    from adt.model.tuning.key import tvm_key
    from adt.model.tuning.workload import structural_hash

    text = ir.save_json(module)
    return Workload(identity(text), structural_hash(module), tvm_key(), text)


def modules_of(workloads: Sequence[Workload]) -> list[Any | None]:
    """The IRModule of each of *workloads*; None, with a warning, for what may not or cannot be read."""
    from adt.model.graphs.reader import read_graphs
    from adt.model.graphs.rules import GraphError

    modules: list[Any | None] = []
    for workload, module in zip(workloads, read_graphs([each.module for each in workloads]), strict=True):
        reason = str(module) if isinstance(module, GraphError) else _fault(module)
        if reason:
            log.warning(
                "workload %s, written by TVM %s, is not read: it has %s", workload.id, workload.tvm, reason
            )
        modules.append(None if reason else module)
    return modules


def _fault(module: Any) -> str:
    """What of *module*, which TVM could read, is not as in a workload; empty for nothing."""
    import tvm

    if not isinstance(module, tvm.IRModule):
        return f"a {type(module).__name__}, which is no module"
    if [(v.name_hint, type(f)) for v, f in module.functions.items()] != [("main", tvm.tirx.PrimFunc)]:
        return "other functions than one PrimFunc main"
    return ""
