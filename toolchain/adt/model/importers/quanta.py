"""Outputs that are dequantized integers: by how much one step of the integers changes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

NOT_STEEPER = frozenset(
    f"relax.{name}"
    for name in (
        "clip", "expand_dims", "flatten", "nn.relu", "nn.softmax", "permute_dims", "reshape", "sigmoid",
        "split", "squeeze", "strided_slice", "tanh",
    )
)  # fmt: skip
"""Operators between dequantizing and the output that change by no more than their input does."""


def output_quanta(main: Any, names: Sequence[str]) -> dict[str, float]:
    """The outputs of *main* that are dequantized by a constant scale, with the greatest scale.

    Operators of :data:`NOT_STEEPER` may come after that.

    Args:
        names: of the outputs, in order.
    """
    from tvm import relax

    values = {binding.var: binding.value for block in main.body.blocks for binding in block.bindings}

    def resolved(expr: Any) -> Any:
        while isinstance(expr, relax.Var) and expr in values:
            expr = values[expr]
        return expr

    def quantum(expr: Any) -> float:
        expr = resolved(expr)
        if isinstance(expr, relax.TupleGetItem):
            return quantum(expr.tuple_value)
        operator = getattr(getattr(expr, "op", None), "name", "")
        if operator in NOT_STEEPER:
            return quantum(expr.args[0])
        scale = resolved(expr.args[1]) if operator == "relax.dequantize" else None
        return float(scale.data.numpy().max()) if isinstance(scale, relax.Constant) else 0.0

    body = resolved(main.body.body)
    fields = list(body.fields) if isinstance(body, relax.Tuple) else [body]
    quanta = {name: quantum(field) for name, field in zip(names, fields, strict=True)}
    return {name: value for name, value in quanta.items() if value}
