"""A workload: a kernel before it is scheduled, in the form by which its records are found."""

from __future__ import annotations

from typing import Any

from adt.model.inspection.flops import ATTRIBUTE
from adt.model.tuning.marks import MARK

OURS = (ATTRIBUTE, MARK)
"""Attributes of kernels that adt sets; they decide no code."""


def workload(function: Any) -> Any:
    """``IRModule {"main": function}`` as TVM's own extraction of tasks gives it.

    So records that other programs made with MetaSchedule for the same kernel are found, too.

    Args:
        function: a PrimFunc that is fused and not scheduled.
    """
    import tvm

    return tvm.IRModule({"main": named_main(function).with_attr("tirx.noalias", True)})


def named_main(function: Any) -> Any:
    """The PrimFunc *function* called ``main``, without adt's attributes."""
    for name in OURS:
        if function.attrs is not None and name in function.attrs:
            function = function.without_attr(name)
    return function.with_attr("global_symbol", "main")


def same(one: Any, other: Any) -> bool:
    """Whether two workloads are the same, whatever their variables are called."""
    import tvm_ffi

    return bool(tvm_ffi.structural_equal(one, other))


def structural_hash(module: Any) -> str:
    """TVM's structural hash of a workload, decimal; the same workload has the same in one version of TVM."""
    import tvm_ffi

    return str(tvm_ffi.structural_hash(module) % (1 << 64))
