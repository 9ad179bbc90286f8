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
from adt.model.inspection.reference_kernels import primitive
from adt.model.names import shorten_kernel_names
from adt.model.scans import scans_as_reductions
from adt.model.targets.gpu import ANY_ADRENO, Gpu
from adt.model.texture import params as weights
from adt.model.texture.channels import channels_first
from adt.model.texture.choice import BY_MODEL, Chooser
from adt.model.texture.layout import block_channels
from adt.model.texture.measured import missed
from adt.model.texture.report import TextureReport
from adt.model.texture.rewriter import is_flat, returned_views
from adt.model.texture.scopes import ImageLimits, place
from adt.model.tuning.schedules import KernelSchedules


@dataclass(frozen=True)
class Textured:
    """A model whose tensors are placed: fused kernels, those that write images scheduled."""

    module: Any
    params: Mapping[str, Any]
    """Parameters that follow the inputs of ``main``: weights, packed where a kernel wants it. Those that
    the report calls images are to be given as such."""
    report: TextureReport
    plain: Mapping[str, Any]
    """The kernels before they were made for images and scheduled, by name."""


def with_textures(
    module: Any,
    params: Mapping[str, Any],
    target: Any,
    limits: ImageLimits,
    schedules: KernelSchedules,
    *,
    gpu: Gpu = ANY_ADRENO,
    chooser: Chooser = BY_MODEL,
) -> Textured:
    """Put the activations of an imported model into textures where that is right.

    Args:
        module: ``main(inputs…, params…)`` in Relax, static shapes, of which none is a variable.
        target: TVM's target; its host is what constants are folded for.
        schedules: what kernels that touch images are scheduled by, where that uses the images rightly.
        gpu: what the usual schedules are made for.
        chooser: says what of that which can be in textures is.

    A model with control flow comes back fused, in buffers.
    """
    import tvm
    from tvm import relax

    with target:
        bound = tvm.transform.Sequential(
            [
                relax.transform.DecomposeOpsForInference(),
                relax.transform.FoldConstant(),
            ]
        )(weights.bind(module, params))
        moved = channels_first(bound)
        blocked, convolutions = block_channels(moved, chooser)
        fused, kept = _fused(blocked, params, target)
        if chooser.measured and (computed := missed(fused, chooser.measured, schedules)):
            blocked, convolutions = block_channels(moved, chooser.without(computed))
            fused, kept = _fused(blocked, params, target)
        if not is_flat(fused):
            return Textured(fused, kept, TextureReport(convolutions, ()), primitive(fused))
        placed = place(fused, target, limits, schedules, gpu=gpu)
        made = relax.transform.DeadCodeElimination(["main"])(placed.module)
        report = TextureReport(convolutions, placed.kernels, placed.weights)
        return Textured(made, kept, report, primitive(fused))


def _fused(blocked: Any, params: Mapping[str, Any], target: Any) -> tuple[Any, dict[str, Any]]:
    """The kernels of a model of operators, and their parameters, with those that were packed."""
    import tvm
    from tvm import relax
    from tvm.relax.backend.gpu_generic import pipeline as generic

    legal = tvm.transform.Sequential(
        [
            relax.transform.FoldConstant(),
            scans_as_reductions(),
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
        ]
    )(lifted)
    # Before tensors are placed: it takes a kernel that reads an image for a view, too.
    return relax.transform.RewriteDataflowReshape()(returned_views(fused)), kept
