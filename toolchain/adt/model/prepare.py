"""Choose the passes that a model goes through for its target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from adt.errors import UnsupportedOp
from adt.model.lowering import tir_pipeline
from adt.model.schedules import fused_pipeline, relax_pipeline
from adt.model.targets import ModelTarget
from adt.model.texture.choice import BY_MODEL, Chooser
from adt.model.texture.pipeline import with_textures
from adt.model.texture.report import TextureReport
from adt.model.texture.rewriter import StaticShapes, is_flat
from adt.model.texture.scopes import ImageLimits
from adt.model.tuning.schedules import KernelSchedules, Untuned


@dataclass(frozen=True)
class Prepared:
    """What ``tvm.compile`` is called with."""

    module: Any
    params: Mapping[str, Any]
    """Parameters that follow the inputs of ``main``, in order."""
    relax_pipeline: Any
    tir_pipeline: str
    textures: TextureReport | None
    """None: none were asked for."""
    plain: Mapping[str, Any]
    """The kernels before they are scheduled, by name; complete once the Relax pipeline has run."""


def prepare(
    module: Any,
    params: Mapping[str, Any],
    target: ModelTarget,
    alignment: int,
    schedules: KernelSchedules | None = None,
    choice: Chooser = BY_MODEL,
) -> Prepared:
    """Ready the imported Relax *module* for *target*.

    Args:
        params: its detached parameters by name, in order.
        alignment: bytes to which the device aligns tensors.
        schedules: what kernels are scheduled by, before the usual schedules take the rest.
        choice: says what of that which can be in textures is; of no account where the target has none.

    Raises:
        UnsupportedOp: the model branches at run time, and the target is a GPU.
    """
    schedules = schedules or Untuned()
    if target.device != "cpu":
        _refuse_branches(module, target)
        module = StaticShapes(module).run() if is_flat(module) else module
    if target.gpu is None:
        plain: dict[str, Any] = {}
        passes = relax_pipeline(target.device, plain, schedules)
        return Prepared(module, params, passes, tir_pipeline(alignment), None, plain)
    import tvm

    wanted = tvm.target.Target(target.spec)
    limits = ImageLimits(
        side=int(wanted.attrs["texture_spatial_limit"]), layers=int(wanted.attrs["texture_depth_limit"])
    )
    textured = with_textures(module, params, wanted, limits, schedules, gpu=target.gpu, chooser=choice)
    return Prepared(
        textured.module,
        textured.params,
        fused_pipeline(schedules),
        tir_pipeline(alignment, textures=True),
        textured.report,
        textured.plain,
    )


def _refuse_branches(module: Any, target: ModelTarget) -> None:
    """A branch is decided on the host, and would read its condition from the GPU's memory."""
    from tvm import relax

    branches = []
    relax.analysis.post_order_visit(
        module["main"], lambda node: branches.append(node) if isinstance(node, relax.If) else None
    )
    if branches:
        raise UnsupportedOp(
            f"the model branches at run time ({len(branches)} If), which no kernel for {target.name} can",
            remedy="Compile it with --target cpu, or export it with the branch decided.",
        )
