"""A workload's module as text, and back."""

from __future__ import annotations

import hashlib
import logging
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


def module_of(workload: Workload) -> Any | None:
    """The IRModule; None, with a warning, when this TVM cannot read it: another version wrote it."""
    from tvm import ir

    try:
        return ir.load_json(workload.module)
    except Exception as why:  # whatever TVM's reader raises
        log.warning("workload %s, written by TVM %s, cannot be read: %s", workload.id, workload.tvm, why)
        return None
