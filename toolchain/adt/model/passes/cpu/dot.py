"""Instructions that sum several products of whole numbers in each lane.

TVM's own intrinsics for these do not fit its LLVM, and to import them takes long.
"""

from __future__ import annotations

import functools
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

SUMS = "int32"


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
    """To what was summed before."""


VNNI = Dot(
    "uint8",
    "int8",
    4,
    tuple((lanes, f"llvm.x86.avx512.vpdpbusd.{32 * lanes}") for lanes in (16, 8, 4)),
)
PAIRS = Dot(
    "int16",
    "int16",
    2,
    ((16, "llvm.x86.avx512.pmaddw.d.512"), (8, "llvm.x86.avx2.pmadd.wd"), (4, "llvm.x86.sse2.pmadd.wd")),
    adds=False,
)
SDOT = Dot("int8", "int8", 4, ((4, "llvm.aarch64.neon.sdot.v4i32.v16i8"),), weights_first=True)
DOTS = {"x86_64": (VNNI, PAIRS), "aarch64": (SDOT,)}
"""By the first word of LLVM's triple."""
_FOR_PAIRS = {16: "avx512bw", 8: "avx2", 4: "sse2"}


def dot_of(arch: str, features: Collection[str], lanes: int) -> Dot | None:
    """The instructions for vectors of at most so many *lanes* of a processor with the *features* that LLVM
    names; None: it has none that adt uses."""
    if arch == "aarch64":
        return SDOT if "dotprod" in features else None
    if arch != "x86_64":
        return None
    if {"avx512vnni", "avx512vl"} <= set(features):
        return VNNI
    return PAIRS if _FOR_PAIRS[lanes] in features else None


def register(arch: str) -> None:
    """Make TVM know all for *arch*, as records name them."""
    for dot in DOTS.get(arch, ()):
        for lanes, _ in dot.instructions:
            intrinsic(dot, lanes)


@functools.cache
def intrinsic(dot: Dot, lanes: int) -> str:
    """The name by which a schedule finds *dot* for a block of so many *lanes*."""
    from tvm.script import tirx as T
    from tvm.tirx import TensorIntrin

    number = T.llvm_lookup_intrinsic_id(dict(dot.instructions)[lanes])
    sums, every = f"{SUMS}x{lanes}", dot.terms * lanes

    def summed(a: Any, b: Any, c: Any) -> Any:
        """The sums *c* with the products added."""
        few = T.reinterpret(a.vload([0], f"{dot.data}x{dot.terms}"), dtype=SUMS)
        same = T.reinterpret(T.broadcast(few, lanes), dtype=f"{dot.data}x{every}")
        weights = b.vload([0, 0], dtype=f"{dot.weights}x{every}")
        operands = (weights, same) if dot.weights_first else (same, weights)
        before = c.vload([0], dtype=sums)
        if dot.adds:
            return T.call_llvm_pure_intrin(number, before, *operands, dtype=sums)
        return before + T.call_llvm_pure_intrin(number, *operands, dtype=sums)

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def described(a: T.handle, b: T.handle, c: T.handle) -> None:
        A = T.match_buffer(a, (dot.terms,), dtype=dot.data, offset_factor=1)
        B = T.match_buffer(b, (lanes, dot.terms), dtype=dot.weights, offset_factor=1)
        C = T.match_buffer(c, (lanes,), dtype=SUMS, offset_factor=1)
        with T.sblock("root"):
            T.reads(C[0:lanes], A[0 : dot.terms], B[0:lanes, 0 : dot.terms])
            T.writes(C[0:lanes])
            for i in T.serial(0, lanes):
                for k in T.serial(0, dot.terms):
                    with T.sblock("update"):
                        vi, vk = T.axis.remap("SR", [i, k])
                        C[vi] = C[vi] + T.cast(A[vk], SUMS) * T.cast(B[vi, vk], SUMS)

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def computed(a: T.handle, b: T.handle, c: T.handle) -> None:
        A = T.match_buffer(a, (dot.terms,), dtype=dot.data, offset_factor=1)
        B = T.match_buffer(b, (lanes, dot.terms), dtype=dot.weights, offset_factor=1)
        C = T.match_buffer(c, (lanes,), dtype=SUMS, offset_factor=1)
        with T.sblock("root"):
            T.reads(C[0:lanes], A[0 : dot.terms], B[0:lanes, 0 : dot.terms])
            T.writes(C[0:lanes])
            C[T.ramp(0, 1, lanes)] = summed(A, B, C)

    name = f"adt.{dict(dot.instructions)[lanes]}"
    TensorIntrin.register(name, described, computed, override=True)
    return name
