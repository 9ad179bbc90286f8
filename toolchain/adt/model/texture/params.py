"""Bind a model's weights for a while, so that they can be packed; then make them parameters again."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping
from typing import Any

from adt.model.texture.rewriter import Rewriter


def bind(module: Any, params: Mapping[str, Any]) -> Any:
    """The Relax *module* with its parameters as constants of ``main``."""
    from tvm import relax

    return relax.transform.BindParams("main", dict(params))(module)


class ConstantLifter(Rewriter):
    """Turns the constants that kernels read into parameters of ``main``."""

    def __init__(self, module: Any, names: Mapping[str, str]) -> None:
        super().__init__(module)
        self.names = names
        """Digest of a tensor to its name in the imported model."""
        self.lifted: dict[str, tuple[Any, Any]] = {}
        """Digest to the new parameter and its value."""

    def constant(self, constant: Any) -> Any:
        from tvm import relax

        key = digest(constant.data)
        if key not in self.lifted:
            name = self.names.get(key) or self._new_name()
            self.lifted[key] = (relax.Var(name, constant.struct_info), constant.data)
        return self.lifted[key][0]

    def params(self) -> list[Any]:
        return [*super().params(), *(variable for variable, _ in self.lifted.values())]

    def _new_name(self) -> str:
        taken = {*self.names.values(), *(variable.name_hint for variable, _ in self.lifted.values())}
        return next(name for count in itertools.count() if (name := f"packed_{count}") not in taken)


def lift(module: Any, params: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Make parameters of the constants that kernels of the flat, legalized *module* read.

    Args:
        params: the imported model's, for their names: a weight that was not changed keeps its own.

    Returns:
        The module, whose ``main`` takes its inputs and then the parameters; and these by name.
    """
    lifter = ConstantLifter(module, {digest(tensor): name for name, tensor in params.items()})
    made = lifter.run()
    return made, {variable.name_hint: value for variable, value in lifter.lifted.values()}


def digest(tensor: Any) -> str:
    """A key for the shape, type and values of *tensor*."""
    array = tensor.numpy()
    return hashlib.sha256(f"{array.shape}{array.dtype}".encode() + array.tobytes()).hexdigest()
