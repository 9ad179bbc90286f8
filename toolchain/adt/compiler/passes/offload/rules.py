"""Rules of one vendor's library: their form, and questions that they ask of calls."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, tirx


@dataclass(frozen=True)
class Rules(ABC):
    """Rules of one library."""

    patterns: list[Any]
    """TVM's: ``(name, pattern, annotations, check)``."""
    codegen: str
    """Prefix of the patterns' names, before a dot: TVM's name of the code generator."""
    reads: frozenset[str]
    """Types of operators' attributes that the code generator reads from memory, not by reflection."""
    weights_inside: bool
    """Weights go into the subgraphs; else they stay parameters of the model."""
    apart: bool = False
    """Each match of a pattern is a subgraph of its own."""

    @abstractmethod
    def prepare(self, module: tvm.IRModule, params: Mapping[str, tvm.runtime.Tensor]) -> Any:
        """*module* as the patterns want it."""

    @abstractmethod
    def objection(self, name: str, calls: list[relax.Call]) -> str:
        """Return why the match of the pattern *name* with *calls* (in order) must not go; empty: it may."""


Check = Callable[[Any], str]  # check that returns why a call must not be handed over; empty: it may


def first_objection(calls: list[relax.Call], check_types: Check, checks: Mapping[str, Check]) -> str:
    """The first reason against one of *calls*: of its types, or by the check of its operator."""
    for call in calls:
        check = checks.get(str(call.op.name))
        if reason := check_types(call) or (check(call) if check else ""):
            return reason
    return ""


def repeated(call: relax.Call) -> bool:
    """Return True if both operands of *call* are the same tensor, which TVM's subgraphs then have once."""
    return len(call.args) == 2 and call.args[0].same_as(call.args[1])


def fixed(info: relax.TensorStructInfo) -> bool:
    """Return True if a tensor's type has a shape of numbers alone."""
    return isinstance(info.shape, relax.ShapeExpr) and all(
        isinstance(extent, tirx.IntImm) for extent in info.shape
    )
