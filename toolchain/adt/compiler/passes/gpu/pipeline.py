"""The passes of a model for a GPU, with textures or with blocked tensors in buffers, in their order.

Why it is not upstream's for Adreno (TVM 0.25): that layout pass divides by zero at grouped convolutions, the
legalisation drops the accumulator type, the rules for pools and the fallback schedule race over the lanes of
a texel, and what lowers TIR is refused by ``tvm.compile``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import tvm
from tvm import relax

from adt.compiler.ir.rewriter import bind_params, is_flat
from adt.compiler.passes import words
from adt.compiler.passes.fusion import bound_operators, fuse, gpu_dispatch
from adt.compiler.passes.gpu.choice import BY_MODEL, TextureChooser
from adt.compiler.passes.gpu.constants import ScalarsWhereRead, joined_constants
from adt.compiler.passes.gpu.placement import ImageLimits, place
from adt.compiler.passes.gpu.rows import BEFORE_ELEMENTWISE, DealtRow
from adt.compiler.passes.integers.rules import in_integers
from adt.compiler.passes.layout.blocks import BYTES, FLOATS, TEXELS, Terms
from adt.compiler.passes.layout.channels import channels_first
from adt.compiler.passes.layout.live_taps import without_dead_taps
from adt.compiler.passes.layout.operators import block_channels
from adt.compiler.passes.normalizations import Normalizations, Rows
from adt.compiler.passes.products import Products
from adt.compiler.passes.records.schedules import KernelSchedules, Recording
from adt.compiler.targets.gpu import ANY_ADRENO, Gpu
from adt.package.graphs import kernels_of
from adt.package.reports import Convolution, TextureReport

WORDS = replace(
    TEXELS,
    widens=True,
    types=(*FLOATS, *BYTES, words.SUMS),
    terms=(Terms(words.NUMBERS, words.DATA, words.WEIGHTS),),
    words=True,
)
"""Blocking of a model that has sums of integers."""


@dataclass(frozen=True)
class GpuModule:
    """A model whose tensors are placed: fused kernels, those that write blocked tensors scheduled."""

    module: tvm.IRModule
    params: Mapping[str, tvm.runtime.Tensor]
    """Parameters that follow the inputs of ``main``: weights, packed where a kernel wants it. Those that
    the report calls images are to be given as such."""
    report: TextureReport
    plain: Mapping[str, Any]
    """The kernels before they were made for images and scheduled, by name."""
    integers: tuple[Convolution, ...] = ()
    """Result for each convolution and product of a quantized model, where integers are summed."""


def for_gpu(
    module: tvm.IRModule,
    params: Mapping[str, tvm.runtime.Tensor],
    target: tvm.target.Target,
    limits: ImageLimits | None,
    schedules: KernelSchedules,
    *,
    gpu: Gpu = ANY_ADRENO,
    chooser: TextureChooser = BY_MODEL,
) -> GpuModule:
    """Block the channels of an imported model where that pays, and put its tensors into textures where that
    is right. A model with control flow comes back fused, in buffers.

    Without *limits* there are no images, and blocked tensors lie in buffers. Kernels on these are scheduled
    by *schedules* where that uses images rightly, else by the usual ones for *gpu*.
    """
    rows = Rows(partial(DealtRow, gpu=gpu), partial(DealtRow, gpu=gpu, apart=True), BEFORE_ELEMENTWISE)
    bound, blocking = without_dead_taps(bind_params(module, params)), TEXELS
    integers: tuple[Convolution, ...] = ()
    if target.kind.name == "opencl" and is_flat(bound):
        whole, integers = in_integers(bound, words.DATA, inlined=True)
        if any(not row.reason for row in integers):
            bound, blocking = ScalarsWhereRead(whole).run(), WORDS
    with target:
        first = channels_first(bound_operators(bound))
        first = Products(first).run() if is_flat(first) else first
        first = _normalized(first, replace(rows, channels=True))
        result, convolutions = block_channels(first, chooser.choose, blocking, rows)
        fused, weights = fuse(_normalized(result, rows), params, gpu_dispatch(target))
        if not is_flat(fused):
            report = TextureReport(convolutions, ())
            return GpuModule(fused, weights, report, kernels_of(fused), integers)
        placed, kernels, images = place(fused, target, limits, schedules, gpu=gpu)
        result = relax.transform.DeadCodeElimination(["main"])(placed)
        report = TextureReport(convolutions, kernels, images)
        plain = kernels_of(fused)
        if blocking is WORDS:
            plain = {name: words.without_words(kernel) for name, kernel in plain.items()}
        # The tuner runs a kernel by itself, as it is in records.
        if blocking is WORDS and limits is None and not isinstance(schedules, Recording):
            result, weights, plain = joined_constants(result, weights, plain)
        return GpuModule(result, weights, report, plain, integers)


def _normalized(module: tvm.IRModule, rows: Rows) -> Any:
    """Replace the softmaxes and normalizations of *module* by kernels, and drop what they were written as."""
    if not is_flat(module):
        return module
    return relax.transform.DeadCodeElimination(["main"])(Normalizations(module, rows).run())
