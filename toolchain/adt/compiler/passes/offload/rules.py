"""Rules of one vendor's library: their form, and conditions on calls that several libraries share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, tirx

from adt.compiler.ir.nodes import operator_name
from adt.compiler.passes.offload.weights import fold_weights

CONV2D = "relax.nn.conv2d"
TYPES = ("float32", "float16")


@dataclass(frozen=True)
class Rules:
    """Rules of one library."""

    patterns: list[Any]
    """TVM's: ``(name, pattern, annotations, check)``."""
    codegen: str
    """Prefix of the patterns' names, before a dot: TVM's name of the code generator."""
    objection: Callable[[str, list[relax.Call]], str]
    """Returns why the match of a pattern, by name, with calls (in order) must not go; empty: it may."""
    prepare: Callable[[tvm.IRModule, Mapping[str, tvm.runtime.Tensor]], tvm.IRModule] = fold_weights
    """Binds the weights of a module and folds batch norms, as the patterns want it."""
    weights_inside: bool = False
    """Weights go into the subgraphs; else they stay parameters of the model."""
    apart: bool = False
    """Each match of a pattern is a subgraph of its own."""
    misread: frozenset[str] = frozenset()
    """Types of operators' attributes that the code generator would misread."""


Constraints = Mapping[str, Callable[[relax.Call], bool]]
"""Reasons why a call must not be handed over, each with the condition without which it holds."""


def unmet(call: relax.Call, constraints: Constraints) -> str:
    """Return the first reason of *constraints* whose condition *call* does not meet; empty: it meets all."""
    return next((reason for reason, is_met in constraints.items() if not is_met(call)), "")


def tensors_of(call: relax.Call) -> list[relax.TensorStructInfo]:
    """Return the types of the tensors that *call* takes and gives."""
    infos = [argument.struct_info for argument in call.args if not isinstance(argument, relax.ShapeExpr)]
    return [info for info in (*infos, call.struct_info) if isinstance(info, relax.TensorStructInfo)]


def mixed_types(library: str, call: relax.Call) -> str:
    """Return why *library* does not compute with the element types of *call*; empty: it does."""
    types = {str(info.dtype) for info in tensors_of(call)}
    if len(types) != 1 or not types <= set(TYPES):
        return f"{library} computes in one of {' and '.join(TYPES)}, not in {', '.join(sorted(types))}"
    return ""


def shape_of(expression: relax.Expr) -> list[int]:
    """Return the extents of a tensor of fixed shape."""
    return [int(extent) for extent in expression.struct_info.shape]


def in_nchw(call: relax.Call) -> bool:
    """Return True if a convolution or pool takes and gives NCHW, a convolution by weights in OIHW."""
    attrs = call.attrs
    if operator_name(call) != CONV2D:
        return str(attrs.layout) == "NCHW"
    data, weights, out = map(str, (attrs.data_layout, attrs.kernel_layout, attrs.out_layout))
    return (data, weights) == ("NCHW", "OIHW") and out in ("NCHW", "")


def undilated(pool: relax.Call) -> bool:
    """Return True if the windows of *pool* are without gaps."""
    return [int(step) for step in pool.attrs.dilation] == [1, 1]


def has_whole_windows(pool: relax.Call) -> bool:
    """Return True if *pool* ends with the last window that is whole."""
    return not pool.attrs.ceil_mode


def averages_no_padding(pool: relax.Call) -> bool:
    """Return True if no padding counts in the averages of *pool*."""
    return not (pool.attrs.count_include_pad and any(map(int, pool.attrs.padding)))


def repeated(call: relax.Call) -> bool:
    """Return True if both operands of *call* are the same tensor, which TVM's subgraphs then have once."""
    return len(call.args) == 2 and call.args[0].same_as(call.args[1])


def fixed(info: relax.TensorStructInfo) -> bool:
    """Return True if a tensor's type has a shape of numbers alone."""
    return isinstance(info.shape, relax.ShapeExpr) and all(
        isinstance(extent, tirx.IntImm) for extent in info.shape
    )
