"""The passes of a model for a CPU, in their order."""

from __future__ import annotations

from collections.abc import Mapping

import tvm
from tvm import relax

from adt.compiler.ir.rewriter import bind_params, is_flat, static_shape
from adt.compiler.passes.cpu.products import CpuProducts
from adt.compiler.passes.cpu.reduction import VectorRow
from adt.compiler.passes.cpu.vectors import Vectors, best_lanes
from adt.compiler.passes.dot import SUMS, dot_of_computed
from adt.compiler.passes.fusion import bound_operators, cpu_dispatch, fuse
from adt.compiler.passes.integers.rules import in_integers
from adt.compiler.passes.layout.blocks import BYTES, FLOATS, Blocking, Terms
from adt.compiler.passes.layout.channels import channels_first
from adt.compiler.passes.layout.live_taps import without_dead_taps
from adt.compiler.passes.layout.operators import block_channels
from adt.compiler.passes.layout.signature import Signature
from adt.compiler.passes.layout.walk import Choice, Chooser, Moves
from adt.compiler.passes.normalizations import Normalizations, Rows
from adt.compiler.passes.precision.half import SINGLE
from adt.package.reports import Convolution


def _chooser(vectors: Vectors) -> Chooser:
    """Return the chooser of all that is float32, integers, or half precision where *vectors* compute it."""

    def choose(computes: Signature, _channels: int, _moves: Moves) -> Choice:
        blocked = computes.dtype in (SINGLE, vectors.dtype, *BYTES)
        return Choice(
            blocked, "a lane for each output channel" if blocked else f"it computes in {computes.dtype}"
        )

    return choose


def can_block(module: tvm.IRModule) -> bool:
    """Return True if the layout walk takes the model: one straight line of tensors of known extents."""
    return is_flat(module) and all(static_shape(param) is not None for param in module["main"].params)


def with_blocks(
    module: tvm.IRModule,
    params: Mapping[str, tvm.runtime.Tensor],
    target: tvm.target.Target,
    vectors: Vectors,
) -> tuple[tvm.IRModule, dict[str, tvm.runtime.Tensor], tuple[Convolution, ...]]:
    """Fuse the imported *module* (see :func:`can_block`) into kernels on blocked tensors.

    Returns it, its parameters, and of a quantized one the outcome of its convolutions and products.
    """
    bound = without_dead_taps(bind_params(module, params))
    report: tuple[Convolution, ...] = ()
    terms = tuple(Terms(dot.terms, dot.data, dot.weights, dot.steps, dot.rows) for dot in vectors.dots)
    if terms:
        first, *_ = vectors.dots
        bound, report = in_integers(bound, first.data, first.least, dot_of_computed(vectors.dots))
    with target:
        first = channels_first(bound_operators(bound))
        lanes = best_lanes(first, vectors)
        rows = Rows(lambda x: VectorRow(x, vectors.lanes))
        first = Normalizations(CpuProducts(first, vectors).run(), rows).run()
        types = (*FLOATS, *BYTES, SUMS) if terms else FLOATS
        blocking = Blocking(
            lanes, least=max(1, lanes // 4), rounds=False, widens=True, types=types, terms=terms
        )
        blocked, _ = block_channels(first, _chooser(vectors), blocking)
        fused, weights = fuse(blocked, params, cpu_dispatch())
        return relax.transform.DeadCodeElimination(["main"])(fused), weights, report
