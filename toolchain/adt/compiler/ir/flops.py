"""Arithmetic of a kernel: how many operations one call of it takes.

Counted before a kernel is scheduled: a schedule pads tiles, computes at borders and
binds loops to threads, so that the same count afterwards would be too high. The number
travels with the function as TVM's own attribute, which TVM's estimator honours, too.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx
from tvm.s_tir.analysis import estimate_tir_flops
from tvm.tirx import IntImm, stmt_functor

from adt.compiler.ir.passes import module_pass

ATTRIBUTE = "estimated_flops"
"""Attribute of a PrimFunc; TVM's estimator takes its value instead of counting."""
SCHEDULED = "tirx.is_scheduled"  # TVM's mark of a function that its schedule rules leave alone
UNCOUNTED = ("While", "AttrStmt")
"""Statements that hide how often something runs; AttrStmt binds threads in TVM's sort and scan for GPUs."""


@module_pass("adt.CountFlops")
def count_flops(module: Any) -> Any:
    """Note the operations of each fused and unscheduled kernel as an attribute.

    It belongs behind whatever looks kernels up by their structure, of which attributes are a part.
    """
    counted = {
        variable: function.with_attr(ATTRIBUTE, flops)
        for variable, function in module.functions_items()
        if isinstance(function, tirx.PrimFunc) and (flops := flops_of(function)) is not None
    }
    if not counted:
        return module
    result = tvm.IRModule(dict(module.functions_items()), module.attrs, module.global_infos)
    for variable, function in counted.items():
        result.update_func(variable, function)
    return result


def flops_of(function: Any) -> int | None:
    """Count the operations of one call of the PrimFunc *function*, with :data:`ATTRIBUTE` or not scheduled.

    None where they cannot be known. A multiply-add is two. Additions, subtractions, multiplications,
    divisions, minima and maxima count one each, of integers as of floats; exponentials and other functions
    count nothing, nor do comparisons and addresses. Padding is counted as if it were computed, as usual for
    convolutions.
    """
    if function.attrs is not None and ATTRIBUTE in function.attrs:
        return int(function.attrs[ATTRIBUTE])
    if function.attrs is not None and SCHEDULED in function.attrs:
        return None
    if not _countable(function.body):
        return None

    try:
        return int(estimate_tir_flops(function.body))
    except Exception:  # TVM's estimator has no rule for a node: InternalError, AttributeError, …
        return None


def _countable(body: Any) -> bool:
    """Return True if every loop of *body* has a constant extent, and nothing outside of it is called."""
    countable = True

    def visit(node: Any) -> None:
        nonlocal countable
        kind = type(node).__name__
        if kind == "For":
            countable = countable and isinstance(node.extent, IntImm)
        elif kind in UNCOUNTED:
            countable = False
        elif kind == "Call":
            name = str(getattr(node.op, "name", ""))
            countable = countable and "call_packed" not in name and "call_extern" not in name

    stmt_functor.post_order_visit(body, visit)
    return countable
