"""The nodes of Relax expressions and TIR statements, by kind."""

from __future__ import annotations

from typing import Any


def relax_nodes(expression: Any, kind: Any) -> list[Any]:
    """The nodes of type *kind* in a Relax function or expression, arguments before calls."""
    from tvm import relax

    nodes: list[Any] = []
    relax.analysis.post_order_visit(
        expression, lambda node: nodes.append(node) if isinstance(node, kind) else None
    )
    return nodes


def tir_nodes(statement: Any, kind: Any) -> list[Any]:
    """The nodes of type *kind* in a TIR statement or expression, the innermost first."""
    from tvm import tirx

    nodes: list[Any] = []
    tirx.stmt_functor.post_order_visit(
        statement, lambda node: nodes.append(node) if isinstance(node, kind) else None
    )
    return nodes


def is_call(node: Any, name: str) -> bool:
    """Return True if *node* is a call of TIR's operator *name* (``tirx.exp``)."""
    from tvm import tirx

    return isinstance(node, tirx.Call) and getattr(node.op, "name", "") == name


def block_with(block: Any, body: Any, reads: Any) -> Any:
    """The TIR *block* with another body, which reads the regions *reads*."""
    from tvm import tirx

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


def operator_name(expression: Any) -> str:
    """Relax's name of the operator that is called (``relax.nn.conv2d``); empty for anything else."""
    from tvm import ir, relax

    if isinstance(expression, relax.Call) and isinstance(expression.op, ir.Op):
        return str(expression.op.name)
    return ""


def is_kernel_call(value: Any) -> bool:
    """Return True if the Relax *value* is a call of a kernel that gives one tensor, of static shapes."""
    from tvm import relax

    return (
        operator_name(value) == "relax.call_tir"
        and len(value.args) == 2  # a third one holds shapes that are known at run time
        and isinstance(value.sinfo_args[0], relax.TensorStructInfo)
    )
