"""Calls of Relax's operators, and what the rules of a vendor's library say of them."""

from typing import Any

import numpy as np


def variable(*shape: Any, dtype: str = "float32") -> Any:
    from tvm import relax

    return relax.Var("x", relax.TensorStructInfo(shape, dtype))


def constant(*shape: int, value: float = 1.0, dtype: str = "float32") -> Any:
    from tvm import relax

    return relax.const(np.full(shape, value, dtype), dtype)


def reason(rules: Any, name: str, *calls: Any) -> str:
    """Return the reason why a match of the pattern *name* with *calls* stays; empty: it is offloaded."""
    from tvm import relax

    builder = relax.BlockBuilder()
    return str(rules.objection(name, [builder.normalize(call) for call in calls]))
