"""An ONNX node while it is converted: its inputs in Relax, its attributes, what is constant and static."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from tvm import relax, te

from adt.compiler.importers.onnx.graph import attribute
from adt.errors import UnsupportedOp

Array = NDArray[Any]

REMEDY = "Export the model without it, or cut it before this node (onnx.utils.extract_model)."


@dataclass(frozen=True)
class Node:
    """A node of ONNX's own domain."""

    proto: onnx.NodeProto
    inputs: tuple[Any, ...]
    """Relax expressions; None for an optional input that is left out."""
    opset: int
    builder: Any
    """``tvm.relax.BlockBuilder``"""
    params: Mapping[str, Any]
    """Initializers that become parameters: name to (variable, value)."""
    by_tvm: Callable[..., Any]
    """TVM's converter; called with inputs, and attributes by keyword that take the place of the node's."""

    def attribute(self, name: str, default: Any = None) -> Any:
        return attribute(self.proto, name, default)

    def has(self, index: int) -> bool:
        """Return True if the node has the input at *index*."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def shape(self, index: int = 0) -> tuple[int, ...]:
        """Return the static shape of an input."""
        extents = getattr(getattr(self.inputs[index].struct_info, "shape", None), "values", None)
        try:
            return tuple(int(extent) for extent in extents or ())
        except TypeError as error:
            raise self.refusal(f"the shape of input {index} is not static") from error

    def dtype(self, index: int = 0) -> str:
        """Return the element type of an input."""
        return str(self.inputs[index].struct_info.dtype)

    def value(self, index: int) -> Array | None:
        """Return the value of a constant input; None if it is left out or not constant."""
        given = self.inputs[index] if self.has(index) else None
        array: Array | None = None
        if isinstance(given, relax.Constant):
            array = given.data.numpy()
        elif isinstance(given, relax.ShapeExpr):
            array = np.asarray([int(extent) for extent in given.values], np.int64)
        elif isinstance(given, relax.Var) and given.name_hint in self.params:
            array = self.params[given.name_hint][1].numpy()
        return array

    def constant(self, index: int, what: str) -> Array:
        """Return the value of an input that must be constant; *what* is its name in ONNX's documents."""
        value = self.value(index)
        if value is None:
            raise self.refusal(f"its input {what} is not constant")
        return value

    def number(self, index: int, what: str) -> Any:
        """Return the one number of a constant input, of whatever rank."""
        return self.constant(index, what).reshape(-1)[0].item()

    def axis(self, rank: int, default: int = 0) -> int:
        """Return the attribute ``axis``, counted from the first."""
        return int(self.attribute("axis", default)) % max(rank, 1)

    def refusal(self, reason: str) -> UnsupportedOp:
        return refusal(self.proto, reason)

    def compute(self, shape: Sequence[Any], element: Callable[..., Any], *inputs: Any) -> Any:
        """Emit the tensor of *shape* whose element at indices is ``element(tensors…, indices)``."""
        return self.te(lambda *tensors: te.compute(shape, lambda *at: element(*tensors, at)), *inputs)

    def te(
        self, compute: Callable[..., Any], *inputs: Any, attributes: Mapping[str, Any] | None = None
    ) -> Any:
        """Emit the tensor expression that *compute* makes of the tensors *inputs* and of *attributes*."""
        name = self.proto.op_type.lower()
        attrs = dict(attributes or {}) or None
        return self.builder.emit_te(compute, *inputs, primfunc_name_hint=name, primfunc_attrs=attrs)


def literal(array: Any) -> Any:
    """Wrap *array* as a Relax constant of its own type, which ``relax.const`` narrows to 32 bits."""
    array = np.asarray(array)
    return relax.const(array, str(array.dtype))


def refusal(proto: onnx.NodeProto, reason: str) -> UnsupportedOp:
    """Return the error that says why the node *proto* cannot be imported."""
    return UnsupportedOp(
        f"{proto.op_type} at node {proto.name or '(unnamed)'} cannot be imported: {reason}", remedy=REMEDY
    )


Converter = Callable[[Node], Any]
"""The Relax expression of a node's output (a tuple of them for several); None where TVM's is right."""
