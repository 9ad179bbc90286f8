"""The mark on a kernel that says where its schedule comes from, or which workload it was."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

MARK = "adt.schedule"
"""Attribute of a PrimFunc; it travels with the function through scheduling and lowering."""
TUNED = "tuned"
"""The schedule is a record's."""
KEPT = "untuned: faster"
"""There are records, and the schedule that the kernel gets without them was faster on the device."""
REFUSED = "untuned: the record does not apply"
"""There is a record, and it does not fit the kernel: TVM's or adt's schedules are not what they were."""


def marked(function: Any, mark: str) -> Any:
    """*function* with *mark*."""
    return function.with_attr(MARK, mark)


def marks(module: Any) -> Iterator[tuple[str, Any, str]]:
    """Name, function and mark of each PrimFunc of *module* that has one, sorted by name."""
    import tvm

    functions = {str(variable.name_hint): function for variable, function in module.functions_items()}
    for name, function in sorted(functions.items()):
        if isinstance(function, tvm.tirx.PrimFunc) and function.attrs is not None and MARK in function.attrs:
            yield name, function, str(function.attrs[MARK])
