"""The walk over a model that gives its tensors the forms which blocked kernels want.

A tensor has up to three forms, and each is made once, when an operator wants it:

- the plain one of the model,
- blocked: ``(N, C, spatial…)`` as ``(N, ceil(C/L), spatial…, L)`` with L lanes,
- in rows: ``(…, C)`` as ``(rows, ceil(C/L), 1, 1, L)``, for matrix products and what follows them.

Where L divides C, a plain tensor and its rows are the same numbers in the same order,
and a blocked tensor of one pixel is what its rows are: a change of shape, no kernel.

L is 4 for images and NEON, 8 or 16 for wider vectors. Where blocked tensors are stored (buffers, images) is
of no account here: for textures :mod:`adt.compiler.passes.gpu.placement` decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax, te

from adt.compiler.ir.rewriter import Rewriter, static_shape
from adt.compiler.passes.layout import blocks
from adt.compiler.passes.layout.blocks import RANKS, TEXELS, Blocking
from adt.compiler.passes.layout.signature import Signature
from adt.compiler.passes.normalizations import Rows
from adt.package.reports import Convolution

Rule = Callable[["Walk", relax.Var, relax.Call], bool]
"""Writes the form that the variable of a call gets into the walk; False: it has none but the plain one."""

RESHAPES = ("relax.expand_dims", "relax.flatten", "relax.reshape", "relax.squeeze")
"""Operators that leave all numbers in their order."""


@dataclass(frozen=True)
class Moves:
    """Bytes of the tensors that the neighbours of a convolution would have moved."""

    pack: int = 0
    """Bytes of the input, if a blocked kernel wants it packed first."""
    unpack: int = 0
    """Bytes of the input, if a plain kernel wants it unpacked first."""
    output: int = 0
    """Bytes of the output, which is packed after a plain convolution."""


@dataclass(frozen=True)
class Choice:
    """Decision to block a convolution, and its reason."""

    blocked: bool
    reason: str


Chooser = Callable[[Signature, int, Moves], Choice]
"""Chooses if a convolution or product is blocked, by its output channels and what its neighbours move."""


@dataclass(frozen=True)
class Inlined:
    """A blocked tensor that a convolution can compute where it reads it."""

    tensors: tuple[relax.Expr, ...]
    """Blocked tensors of the new function."""
    expression: Callable[..., te.Tensor]
    """The tensor expression of them."""
    moves: bool
    """It only says where an element is; else it is worth computing only where each is read once."""


class Walk(Rewriter):
    """One walk; *rules* by the names of operators say which forms an operator can work on."""

    def __init__(
        self,
        module: tvm.IRModule,
        chooser: Chooser,
        rules: Mapping[str, Rule],
        blocking: Blocking = TEXELS,
        rows: Rows | None = None,
    ) -> None:
        super().__init__(module)
        self.chooser = chooser
        self.rules = rules
        self.blocking = blocking
        self.lanes = blocking.lanes
        self.row_kernels = rows
        self.blocked: dict[relax.Var, relax.Var] = {}
        """Variable of the model to its blocked form; ``values`` holds the plain ones."""
        self.rows: dict[relax.Var, relax.Var] = {}  # variable of the model to its form in rows
        self.of_scalars: dict[relax.Var, relax.Call] = {}
        """Variable of the model to the call that computes it, element by element, of constants and scalars:
        each form of it is computed of these."""
        self.extremes: dict[relax.Var, relax.Var] = {}
        """Variable of the model to what :func:`blocks.extremes` gives of its elements."""
        self.extreme_of: dict[relax.Var, tuple[relax.Var, int]] = {}
        """Variable of the model that is such a number, to both and its place: each reader takes it."""
        self.inlined: dict[relax.Var, Inlined] = {}
        """Variable of the model to how a convolution computes its blocked form where it reads it. There is
        the form itself, too, which is left out of the model if nothing else reads it."""
        self.unpadded: dict[relax.Var, tuple[relax.Var, tuple[int, ...], tuple[int, ...], int]] = {}
        """Variable that is another with a number around its spatial axes: that one, how often before, after,
        the number."""
        self.tuples: dict[relax.Var, list[relax.Var]] = {}
        """Variable of the model that is a tuple, to the blocked forms of its fields."""
        self.fields: dict[tuple[relax.Var, int], Inlined] = {}
        """Entry like :attr:`inlined`, for a field of such a variable."""
        self.report: list[Convolution] = []  # result for each convolution and matrix product so far
        self.made_by: dict[relax.Var, str] = {}
        """Variable of the model to the name of the operator whose result it is, in its plain form."""
        self._reshaped: dict[relax.Var, relax.Var] = {}
        """Variable of the new function that is another in another shape, to that one."""

    def value_of(self, variable: relax.Var) -> relax.Var:
        """Return the plain form, made once if there are only others."""
        if variable in self.extreme_of:
            both, place = self.extreme_of[variable]
            looks_up = {blocks.LOOKUP: 1}
            return self.emit(lambda x: blocks.extreme(x, place), both, name="extreme", attributes=looks_up)
        if variable not in self.values:
            if variable in self.rows:
                self.values[variable] = self._flat(variable)
            elif variable in self.blocked:
                self.values[variable] = self._unpacked(variable, self.blocked[variable])
            elif variable in self.tuples:
                fields = zip(variable.struct_info.fields, self.tuples[variable], strict=True)
                self.values[variable] = relax.Tuple([self._unpacked(*field) for field in fields])
        return super().value_of(variable)

    def bind(self, binding: relax.VarBinding) -> None:
        variable, value = binding.var, binding.value
        if isinstance(value, relax.TupleGetItem) and value.tuple_value in self.tuples:
            self.blocked[variable] = self.tuples[value.tuple_value][value.index]
            if (value.tuple_value, value.index) in self.fields:
                self.inlined[variable] = self.fields[value.tuple_value, value.index]
            return
        if isinstance(value, relax.Call) and not isinstance(binding, relax.MatchCast):
            name = getattr(value.op, "name", "")
            rule = self.rules.get(name)
            if rule and rule(self, variable, value):
                return
            self.made_by[variable] = name
        super().bind(binding)
        if self.made_by.get(variable) in RESHAPES:
            source = self.copy(value.args[0])
            self._reshaped[self.values[variable]] = self._reshaped.get(source, source)

    def blocks_of(self, value: relax.Var) -> relax.Var:
        """Return the blocked form of the tensor *value*, made if need be."""
        if value not in self.blocked:
            self.blocked[value] = self.emit(
                lambda x: blocks.pack(x, self.lanes), self.copy(value), name="pack_blocks"
            )
        return self.blocked[value]

    def rows_of(self, value: relax.Expr) -> relax.Var | None:
        """Return the form in rows of the tensor *value*, if it has one or a change of shape makes it."""
        shape = static_shape(value)
        if value in self.rows or shape is None:
            return self.rows.get(value)
        if not self.in_whole_rows(value):
            return None
        self.rows[value] = self.reshaped(self.copy(value), self.blocking.rows_shape(shape))
        return self.rows[value]

    def weight(self, array: NDArray[np.generic], sums: str) -> relax.Constant:
        """Return the packed *array* of a convolution with *sums*, which a CPU may make of 8 bits."""
        if array.dtype.kind == "i" and not self.blocking.words and -128 <= array.min() <= array.max() <= 127:
            return relax.const(array.astype("int8"))
        return relax.const(array.astype(sums) if self.blocking.widens else array)

    def emit(
        self,
        expression: Callable[..., te.Tensor],
        *tensors: relax.Expr,
        name: str,
        attributes: Mapping[str, int] | None = None,
    ) -> relax.Var:
        """Emit one kernel that computes the tensor expression of *tensors*."""
        return self.builder.emit_te(
            expression, *tensors, primfunc_name_hint=name, primfunc_attrs=dict(attributes or {})
        )

    def reshaped(self, value: relax.Expr, shape: tuple[int, ...]) -> relax.Var:
        """Reshape *value*, of the new function; a change of a changed shape is one."""
        source = self._reshaped.get(value, value)
        if static_shape(source) == shape:
            return source
        return self._reshape(source, shape)

    def apart(self, value: relax.Expr) -> relax.Var:
        """Keep *value* out of the kernels that read the result.

        What broadcasts a convolution's result would have it computed again for each element.
        """
        return self._reshape(value, static_shape(value) or ())

    def _reshape(self, source: relax.Expr, shape: tuple[int, ...]) -> relax.Var:
        result = self.builder.emit(relax.op.reshape(source, shape))
        self._reshaped[result] = source
        return result

    def _unpacked(self, plain: relax.Var, blocked: relax.Var) -> relax.Var:
        """Return the plain form of *blocked*; *plain* is a variable or a field's type that has its shape."""
        shape = tuple(int(extent) for extent in getattr(plain, "struct_info", plain).shape.values)
        if shape[1] % self.lanes == 0 and math.prod(shape[2:]) == 1:
            return self.reshaped(blocked, shape)
        return self.emit(lambda x: blocks.unpack(x, shape[1]), blocked, name="unpack_blocks")

    def _flat(self, variable: relax.Var) -> relax.Var:
        shape, result = static_shape(variable) or (), self.rows[variable]
        if shape[-1] % self.lanes:
            result = self.emit(lambda x: blocks.unpack(x, shape[-1]), result, name="unpack_blocks")
        return self.reshaped(result, shape)

    def can_block(self, value: relax.Var, *, whole: bool = False) -> bool:
        """Return True if a tensor has channels to block, and with *whole* no lanes to spare."""
        shape = static_shape(value)
        if shape is None or len(shape) not in RANKS or value.struct_info.dtype not in self.blocking.types:
            return False
        return shape[1] % self.lanes == 0 if whole else shape[1] >= self.blocking.least

    def in_whole_rows(self, value: relax.Expr) -> bool:
        """Return True if the last axis of a tensor is whole blocks."""
        shape = static_shape(value)
        if not shape or len(shape) < 2 or value.struct_info.dtype not in self.blocking.types:
            return False
        return shape[-1] % self.lanes == 0


def read(tensor: relax.Expr) -> Inlined:
    """Return the *tensor* of the new function as one that is read as it is."""
    return Inlined((tensor,), lambda x: x, moves=True)


def one_pixel(shape: tuple[int, ...]) -> bool:
    """Return True if the tensor ``(N, C, …)`` has a single place."""
    return len(shape) >= 2 and math.prod(shape[2:]) == 1


def size_of(tensor: relax.Var) -> int:
    """Return the bytes of a tensor of floats."""
    width = 2 if tensor.struct_info.dtype == "float16" else 4
    return math.prod(static_shape(tensor) or ()) * width
