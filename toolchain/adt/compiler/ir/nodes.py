"""The nodes of Relax expressions and TIR statements, by kind."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from tvm import ir, relax, tirx

is_subclass: Callable[[Any, Any], bool] = functools.cache(issubclass)
"""True if a node's type is a kind, or one of several: TVM's types have a metaclass that is slow to ask."""


def relax_nodes(expression: relax.Expr, kind: Any) -> list[relax.Expr]:
    """Collect the nodes of type *kind* in a Relax function or expression, arguments before calls."""
    nodes: list[Any] = []
    relax.analysis.post_order_visit(
        expression, lambda node: nodes.append(node) if is_subclass(type(node), kind) else None
    )
    return nodes


def tir_nodes(statement: tirx.Stmt | tirx.PrimExpr, kind: Any) -> list[tirx.Stmt | tirx.PrimExpr]:
    """Collect the nodes of type *kind* in a TIR statement or expression, the innermost first."""
    nodes: list[Any] = []
    tirx.stmt_functor.post_order_visit(
        statement, lambda node: nodes.append(node) if is_subclass(type(node), kind) else None
    )
    return nodes


def is_call(node: tirx.PrimExpr, name: str) -> bool:
    """Return True if *node* is a call of TIR's operator *name* (``tirx.exp``)."""
    return isinstance(node, tirx.Call) and getattr(node.op, "name", "") == name


def block_with(block: tirx.SBlock, body: tirx.Stmt, reads: Any) -> Any:
    """Copy the TIR *block* with another body, which reads the regions *reads*."""
    return tirx.SBlock(
        block.iter_vars,
        reads,
        block.writes,
        block.name_hint,
        body,
        block.init,
        block.alloc_buffers,
        block.match_buffers,
        block.annotations,
    )


def extents(shape: Iterable[Any]) -> tuple[int | str, ...]:
    """Return the extents of *shape* as integers, symbolic ones as text."""
    return tuple(int(extent) if isinstance(extent, int | tirx.IntImm) else str(extent) for extent in shape)


def operator_name(expression: relax.Expr) -> str:
    """Return Relax's name of the operator that is called (``relax.nn.conv2d``); empty for anything else."""
    if isinstance(expression, relax.Call) and isinstance(expression.op, ir.Op):
        return str(expression.op.name)
    return ""


def is_kernel_call(value: relax.Expr) -> bool:
    """Return True if the Relax *value* is a call of a kernel that gives one tensor, of static shapes."""
    return (
        operator_name(value) == "relax.call_tir"
        and len(value.args) == 2  # a third one holds shapes that are known at run time
        and isinstance(value.sinfo_args[0], relax.TensorStructInfo)
    )
