"""Arithmetic of a kernel: how many operations one call of it takes.

Counted before a kernel is scheduled: a schedule pads tiles, computes at borders and
binds loops to threads, so that the same count afterwards would be too high. The number
travels with the function as TVM's own attribute, which TVM's estimator honours, too.
"""

from __future__ import annotations

import re
from typing import Any

from tvm import tirx
from tvm.s_tir.analysis import estimate_tir_flops

from adt.compiler.ir.nodes import tir_nodes
from adt.compiler.ir.passes import kernel_pass

ATTRIBUTE = "estimated_flops"
"""Attribute of a PrimFunc; TVM's estimator takes its value instead of counting."""
SCHEDULED = "tirx.is_scheduled"  # TVM's mark of a function that its schedule rules leave alone
UNCOUNTED = (tirx.While, tirx.AttrStmt)
"""Statements that hide how often something runs; AttrStmt binds threads in TVM's sort and scan for GPUs."""


@kernel_pass("adt.CountFlops")
def count_flops(function: Any) -> Any:
    """Note the operations of each fused and unscheduled kernel as an attribute.

    It belongs behind whatever looks kernels up by their structure, of which attributes are a part.
    """
    flops = flops_of(function)
    return function if flops is None else function.with_attr(ATTRIBUTE, flops)


def flops_of(function: Any) -> int | None:
    """Count the operations of one call of the PrimFunc *function*, with :data:`ATTRIBUTE` or not scheduled.

    None where they cannot be known. A multiply-add is two. Additions, subtractions, multiplications,
    divisions, minima and maxima count one each, of integers as of floats; exponentials and other functions
    count nothing, nor do comparisons and addresses. Padding is counted as if it were computed, as usual for
    convolutions.
    """
    attributes = function.attrs or {}
    if ATTRIBUTE in attributes:
        return int(attributes[ATTRIBUTE])
    if SCHEDULED in attributes or not _countable(function.body):
        return None
    try:
        return int(estimate_tir_flops(function.body))
    except Exception:  # TVM's estimator has no rule for a node: InternalError, AttributeError, …
        return None


def _countable(body: Any) -> bool:
    """Return True if every loop of *body* has a constant extent, and nothing outside of it is called."""
    for node in tir_nodes(body, (tirx.For, tirx.Call, *UNCOUNTED)):
        if isinstance(node, tirx.Call):
            if re.search("call_(packed|extern)", str(getattr(node.op, "name", ""))):
                return False
        elif not isinstance(node, tirx.For) or not isinstance(node.extent, tirx.IntImm):
            return False
    return True
