"""The passes of a model with textures, in their order.

What upstream's pipeline for Adreno does differently, and why this one is our own
(TVM 0.25): its layout pass divides by zero at grouped convolutions, its legalisation
drops the accumulator type, its rules for pools and its fallback schedule race over the
lanes of a texel, and what lowers TIR is refused by ``tvm.compile``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from adt.model.inspection.flops import count_flops
from adt.model.inspection.plain import primitive
from adt.model.names import shorten_kernel_names
from adt.model.texture import params as weights
from adt.model.texture.channels import channels_first
from adt.model.texture.layout import block_channels
from adt.model.texture.report import TextureReport
from adt.model.texture.rewriter import is_flat
from adt.model.texture.scopes import ImageLimits, place
from adt.model.tuning.schedules import KernelSchedules


@dataclass(frozen=True)
class Textured:
    """A model whose tensors are placed: fused kernels, those that write images scheduled."""

    module: Any
    params: Mapping[str, Any]
    """Parameters that follow the inputs of ``main``: weights, packed where a kernel wants it."""
    report: TextureReport
    plain: Mapping[str, Any]
    """The kernels before they were made for images and scheduled, by name."""


def with_textures(
    module: Any, params: Mapping[str, Any], target: Any, limits: ImageLimits, schedules: KernelSchedules
) -> Textured:
    """Put the activations of an imported model into textures where that is right.

    Args:
        module: ``main(inputs…, params…)`` in Relax, static shapes, of which none is a variable.
        target: TVM's target; its host is what constants are folded for.
        schedules: what kernels that touch images are scheduled by, where that uses the images rightly.

    A model with control flow comes back fused, in buffers.
    """
    import tvm
    from tvm import relax
    from tvm.relax.backend.gpu_generic import pipeline as generic

    with target:
        bound = weights.bind(module, params)
        bound = tvm.transform.Sequential(
            [
                relax.transform.DecomposeOpsForInference(),
                relax.transform.FoldConstant(),
            ]
        )(bound)
        blocked, convolutions = block_channels(channels_first(bound))
        legal = tvm.transform.Sequential(
            [
                relax.transform.FoldConstant(),
                *generic.library_dispatch_passes(target),
                relax.transform.LegalizeOps(),
                relax.transform.FoldConstant(),
                relax.transform.DeadCodeElimination(["main"]),
            ]
        )(blocked)
        lifted, kept = weights.lift(legal, params) if is_flat(legal) else (legal, {})
        fused = tvm.transform.Sequential(
            [
                relax.transform.AnnotateTIROpPattern(),
                relax.transform.FuseOps(),
                relax.transform.FuseTIR(),
                relax.transform.DeadCodeElimination(["main"]),
                shorten_kernel_names(),
                count_flops(),
                # Before tensors are placed: it takes a kernel that reads an image for a view, too.
                relax.transform.RewriteDataflowReshape(),
            ]
        )(lifted)
        if not is_flat(fused):
            return Textured(fused, kept, TextureReport(convolutions, ()), primitive(fused))
        placed, kernels = place(fused, target, limits, schedules)
        placed = relax.transform.DeadCodeElimination(["main"])(placed)
        return Textured(placed, kept, TextureReport(convolutions, kernels), primitive(fused))
