"""The vector registers of a CPU, and how many of their lanes a model's channels are blocked by."""

from __future__ import annotations

import math
from dataclasses import dataclass

import tvm
from tvm import relax
from tvm.target import codegen

from adt.compiler.ir.nodes import operator_name
from adt.compiler.ir.rewriter import bindings_of, static_shape
from adt.compiler.passes.dot import SUMS, Dot, dots_of
from adt.compiler.passes.layout.blocks import ceil_blocks, merged_groups
from adt.compiler.passes.layout.blockwise import weights_of
from adt.compiler.passes.precision.half import HALF, SINGLE

SIZES = {HALF: 2, SINGLE: 4, SUMS: 4}
"""Bytes of a number."""
WORTH_IDLE_LANES = 1.05
"""Factor of the time that a model may take with narrower blocks, which leave fewer lanes idle."""


@dataclass(frozen=True)
class Vectors:
    """The registers that a kernel's sums are kept in."""

    lanes: int
    """Numbers of :attr:`dtype` in one register."""
    registers: int
    by_element: bool = False
    """Vectors are multiplied by one lane of another, as NEON does: what is read can stay in vectors."""
    dtype: str = SINGLE
    """Element type in which convolutions and products multiply."""
    dots: tuple[Dot, ...] = ()
    """Instructions that sum products of integers; none: as floats."""

    @property
    def has_products(self) -> bool:
        """True if products of integers are in registers of their own, before they are summed."""
        return self.dtype == SUMS and bool(self.dots[0].pairs)

    @property
    def moves_data(self) -> bool:
        """True if what is multiplied has to be brought into lanes first."""
        return self.has_products or (self.dtype == SUMS and self.dots[0].rows > 1)

    def registers_for(self, lanes: int, dtype: str) -> int:
        """Return the number of registers that *lanes* lanes of *dtype* take."""
        return ceil_blocks(lanes * SIZES[dtype], self.lanes * SIZES[self.dtype])


def vectors_of(target: tvm.target.Target, *, half: bool = False) -> Vectors:
    """Describe the registers that code for TVM's llvm *target* may use, in *half* precision if it can."""
    arch = str(target.attrs["mtriple"]).partition("-")[0] if "mtriple" in target.attrs else "x86_64"
    features = {str(name) for name in codegen.llvm_get_cpu_features(target)}
    if arch.startswith(("aarch64", "arm64")):
        if half and "fullfp16" in features:
            return Vectors(8, 32, by_element=True, dtype=HALF)
        return Vectors(4, 32, by_element=True, dots=dots_of(arch, features, 4))
    if arch.startswith("arm"):
        return Vectors(4, 16, by_element=True)
    lanes = 16 if "avx512f" in features else 8 if "avx" in features else 4
    return Vectors(lanes, 32 if lanes == 16 else 16, dots=dots_of(arch, features, lanes))


def best_lanes(module: tvm.IRModule, vectors: Vectors) -> int:
    """Return the cheapest block size for ``main``: lanes of wide blocks idle where channels are few."""
    layers: list[tuple[int, int, int]] = []
    for binding in bindings_of(module):
        call, output = binding.value, static_shape(binding.var) or ()
        weight = static_shape(call.args[1]) if operator_name(call) in _LAYERS else None
        if weight and output:
            layers.append(_layer(call, weight, output))
        elif blockwise := weights_of(module, call):
            layers.append((math.prod(output) * blockwise.form.terms, blockwise.columns, 1))
    costs = {
        lanes: sum(_cost(*layer, lanes) for layer in layers) for lanes in (4, 8, 16) if lanes <= vectors.lanes
    }
    return next(lanes for lanes, cost in costs.items() if cost <= WORTH_IDLE_LANES * min(costs.values()))


_TRANSPOSED = ("relax.nn.conv1d_transpose", "relax.nn.conv2d_transpose", "relax.nn.conv3d_transpose")
_LAYERS = ("relax.nn.conv1d", "relax.nn.conv2d", "relax.nn.conv3d", "relax.matmul", *_TRANSPOSED)


def _layer(call: relax.Call, weight: tuple[int, ...], output: tuple[int, ...]) -> tuple[int, int, int]:
    """Return multiply-adds, output channels, and groups of a layer."""
    name = operator_name(call)
    if name == "relax.matmul":
        return math.prod(output) * weight[-2 if len(weight) > 1 else -1], weight[-1], 1
    groups = int(call.attrs.groups)
    if name in _TRANSPOSED:
        inputs = static_shape(call.args[0]) or ()
        return math.prod((*inputs, *weight[1:])), weight[1] * groups, groups
    depthwise = groups == weight[0]
    return math.prod((*output, *weight[1:])), weight[0], 1 if depthwise else groups


def _cost(macs: int, channels: int, groups: int, lanes: int) -> float:
    """Count multiply-adds of vectors, those of idle lanes too, and of zeros where groups share blocks."""
    if groups > 1 and channels // groups % lanes:
        macs *= merged_groups(groups, channels // groups, lanes)
    return macs * ceil_blocks(channels, lanes) / channels
