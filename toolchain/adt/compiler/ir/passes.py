"""Passes of TVM's that are made of functions."""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import tirx

MakePass = Callable[[], tvm.transform.Pass]


def module_pass(name: str) -> Callable[[Callable[[tvm.IRModule], tvm.IRModule]], MakePass]:
    """Make a function of a module one that gives the pass *name*, as a decorator."""
    return lambda rewrite: (
        lambda: tvm.transform.module_pass(lambda module, _context: rewrite(module), opt_level=0, name=name)
    )


def kernel_pass(name: str) -> Callable[[Callable[[tirx.PrimFunc], tirx.PrimFunc]], MakePass]:
    """Make a function of a kernel one that gives the pass *name* over TIR, as a decorator."""
    return lambda rewrite: (
        lambda: tirx.transform.prim_func_pass(
            lambda function, _module, _context: rewrite(function), opt_level=0, name=name
        )
    )
