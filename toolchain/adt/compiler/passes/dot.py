"""Instructions that sum several products of integers in each lane, and which a processor has.

TVM's own intrinsics for these do not fit its LLVM, and to import them takes long.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T
from tvm.tirx import TensorIntrin

SUMS = "int32"
_FEW = {("int8", 2): "int16", ("int8", 4): SUMS, ("uint8", 4): SUMS, ("int16", 2): SUMS}
"""The number that has the bits of so many of a type."""


@dataclass(frozen=True)
class Dot:
    """``sum[lane] += data[0] * weights[lane, 0] + data[1] * weights[lane, 1] + …``."""

    data: str
    """Type of what is read, the same for all lanes."""
    weights: str
    terms: int
    """Products in each lane."""
    instructions: tuple[tuple[int, str], ...]
    """LLVM's names of it, by how many lanes they take."""
    weights_first: bool = False
    """The order of the operands."""
    adds: bool = True
    """True if the instruction adds to what was summed before."""
    steps: int = 1
    """Number of instructions that are one step, each with the next terms and weights."""
    pairs: str = ""
    """LLVM's name of what sums neighbours, if the products themselves are what an instruction gives: of 16
    bits, which hold the sum of all steps."""
    least: int = -128
    """Least value of the weights."""
    rows: int = 1
    """Positions that one instruction takes; of lanes it takes fewer by as much."""

    @property
    def widens(self) -> bool:
        """True if the instruction takes weights of 16 bits, of which there are 8 in memory."""
        return (self.data, self.weights) == ("int16", "int8")

    @property
    def in_rows(self) -> tuple[int, ...]:
        """The axis of rows, where there are several."""
        return (self.rows,) if self.rows > 1 else ()

    @property
    def in_steps(self) -> tuple[int, ...]:
        """The axis of steps, where there are several."""
        return (self.steps,) if self.steps > 1 else ()


VNNI = Dot(
    "uint8", "int8", 4, tuple((lanes, f"llvm.x86.avx512.vpdpbusd.{32 * lanes}") for lanes in (16, 8, 4))
)
PAIRS = Dot(
    "int16",
    "int8",
    2,
    ((16, "llvm.x86.avx512.pmaddw.d.512"), (8, "llvm.x86.avx2.pmadd.wd"), (4, "llvm.x86.sse2.pmadd.wd")),
    adds=False,
)
COMPUTED_PAIRS = replace(PAIRS, weights="int16")  # product whose second operand is as wide as the first
SDOT = Dot("int8", "int8", 4, ((4, "llvm.aarch64.neon.sdot.v4i32.v16i8"),), weights_first=True)
SMULL = Dot(
    "int8",
    "int8",
    2,
    ((4, "llvm.aarch64.neon.smull.v8i16"),),
    adds=False,
    steps=2,
    pairs="llvm.aarch64.neon.saddlp.v4i32.v8i16",
    least=-127,  # -128 times itself twice is more than 16 bits hold
)
SMMLA = Dot("int8", "int8", 8, ((4, "llvm.aarch64.neon.smmla.v4i32.v16i8"),), rows=2)
DOTS = {"x86_64": (VNNI, PAIRS, COMPUTED_PAIRS), "aarch64": (SMMLA, SDOT, SMULL)}
"""Instructions by the first word of LLVM's triple."""
_FOR_PAIRS = {16: "avx512bw", 8: "avx2", 4: "sse2"}


def dots_of(arch: str, features: Collection[str], lanes: int) -> tuple[Dot, ...]:
    """Return instructions for at most *lanes* of a processor with LLVM's *features*, the best first."""
    if arch == "aarch64":
        mixed = (SMMLA,) if "i8mm" in features else ()
        return (*mixed, SDOT) if "dotprod" in features else (SMULL,)
    if arch != "x86_64":
        return ()
    if {"avx512vnni", "avx512vl"} <= set(features):
        return (VNNI,)
    return (PAIRS,) if _FOR_PAIRS[lanes] in features else ()


def dot_of_computed(dots: Collection[Dot]) -> Dot | None:
    """Return the one of *dots* for products of two computed tensors, both of 8 or both of 16 bits."""
    dot = next((dot for dot in dots if dot.rows == dot.steps == 1 and dot.least == -128), None)
    return COMPUTED_PAIRS if dot == PAIRS else dot


def register(arch: str) -> None:
    """Make TVM know all for *arch*, as records name them."""
    for dot in DOTS.get(arch, ()):
        for lanes, _ in dot.instructions:
            intrinsic(dot, lanes)


@functools.cache
def intrinsic(dot: Dot, lanes: int) -> str:
    """Register *dot* for blocks of so many *lanes*; return the name by which a schedule finds it."""
    name = f"adt.{dict(dot.instructions)[lanes]}" + ".of_8_bits" * dot.widens
    described, computed = (_function(dot, lanes, body) for body in (_described, _computed))
    TensorIntrin.register(name, described, computed, override=True)
    return name


def _function(dot: Dot, lanes: int, body: Callable[[Dot, int, Any, Any, Any], None]) -> Any:
    """Build the function of data, weights and sums whose *body* is given."""
    few = lanes // dot.rows
    shapes = (*dot.in_rows, dot.steps * dot.terms), (*dot.in_steps, few, dot.terms), (*dot.in_rows, few)
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            T.func_name("dot")
            handles = [T.arg(name, T.handle()) for name in ("data", "weights", "sums")]
            buffers = [
                T.match_buffer(handle, shape, dtype=dtype, offset_factor=1)
                for handle, shape, dtype in zip(handles, shapes, (dot.data, dot.weights, SUMS), strict=True)
            ]
            data, weights, sums = (buffer[tuple(map(slice, buffer.shape))] for buffer in buffers)
            with T.sblock("root"):
                T.reads(sums, data, weights)
                T.writes(sums)
                body(dot, lanes, *buffers)
        return builder.get()


def _described(dot: Dot, lanes: int, data: Any, weights: Any, sums: Any) -> None:
    """Compute one product after another."""
    spatial, reduced = (*dot.in_rows, lanes // dot.rows), (*dot.in_steps, dot.terms)
    with T.grid(*spatial, *reduced) as loops, T.sblock("update"):
        at = T.axis.remap("S" * len(spatial) + "R" * len(reduced), loops)
        (*row, lane), (*step, term) = at[: len(spatial)], at[len(spatial) :]
        place = step[0] * dot.terms + term if step else term
        product = T.cast(data[(*row, place)], SUMS) * T.cast(weights[(*step, lane, term)], SUMS)
        T.buffer_store(sums, sums[(*row, lane)] + product, [*row, lane])


def _computed(dot: Dot, lanes: int, data: Any, weights: Any, sums: Any) -> None:
    """Compute all products by the instruction."""

    def call(name: str, *operands: Any, dtype: str) -> Any:
        return T.call_llvm_pure_intrin(T.llvm_lookup_intrinsic_id(name), *operands, dtype=dtype)

    each, vector = lanes * dot.terms // dot.rows, f"{SUMS}x{lanes}"
    first = [0] * len(dot.in_rows)
    before = sums.vload([*first, 0], dtype=vector)

    def few(*at: Any) -> Any:
        count = min(dot.terms, 4)
        return T.reinterpret(data.vload(list(at), dtype=f"{dot.data}x{count}"), dtype=_FEW[dot.data, count])

    results = []
    for step in range(dot.steps):
        if dot.rows > 1:
            rows = [_joined(few(row, 0), few(row, dot.terms // 2)) for row in range(dot.rows)]
            same = tirx.Shuffle(rows, list(range(lanes)))
        else:
            same = T.broadcast(few(step * dot.terms), lanes)
        same = T.reinterpret(same, dtype=f"{dot.data}x{each}")
        at = [*([step] if dot.in_steps else []), 0, 0]
        stored = weights.vload(at, dtype=f"{dot.weights}x{each}")
        operands = [same, T.cast(stored, f"{dot.data}x{each}") if dot.widens else stored]
        if dot.weights_first:
            operands.reverse()
        if dot.adds:
            operands.insert(0, before)
        name = dict(dot.instructions)[lanes]
        results.append(call(name, *operands, dtype=f"int16x{each}" if dot.pairs else vector))
    total = functools.reduce(operator.add, results)
    if dot.pairs:
        total = call(dot.pairs, total, dtype=vector)
    T.buffer_store(sums, total if dot.adds else before + total, [*first, T.ramp(0, 1, lanes)])


def _joined(left: Any, right: Any) -> Any:
    return tirx.Shuffle([tirx.Broadcast(left, 2), tirx.Broadcast(right, 2)], [0, 2])
