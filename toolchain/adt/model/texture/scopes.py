"""Which tensors of a fused model become images, and their kernels made for that.

A tensor is an image where all of this holds; otherwise it stays a buffer, and the
reason is kept:

- its last axis is a texel of floating-point numbers, and the image fits the device,
- the kernel that makes it writes whole texels (:mod:`adt.model.texture.schedule`), and
  this and every kernel that reads it pass the check of :mod:`adt.model.texture.guard`,
- only kernels read it: the caller, views of another shape and library calls need buffers.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from adt.model.inspection.flops import SCHEDULED, flops_of
from adt.model.texture.blocks import LANES
from adt.model.texture.layout import FLOATS
from adt.model.texture.report import KernelTextures
from adt.model.texture.rewriter import Rewriter
from adt.model.texture.schedule import NotSchedulable, element_schedule, proven, texel_schedule
from adt.model.tuning.marks import REFUSED, marked
from adt.model.tuning.schedules import KernelSchedules, is_scheduled

log = logging.getLogger("adt.compile")

SCOPE = "global.texture"
"""TVM's name for an image of ``(layers…, height, width, texel)``."""
BUFFER = "global"


@dataclass(frozen=True)
class ImageLimits:
    """What the largest image of a device is."""

    side: int
    """Greatest width and height, in texels."""
    layers: int
    """Greatest length of an array of images."""


def place(
    module: Any, target: Any, limits: ImageLimits, schedules: KernelSchedules
) -> tuple[Any, tuple[KernelTextures, ...]]:
    """Put tensors of the fused, flat *module* into images and schedule the kernels that write them.

    Args:
        target: TVM's target, for the virtual devices that tell buffers and images apart.
        schedules: what kernels are scheduled by, where that uses their images rightly.

    Returns:
        The module, whose kernels that touch images are specialised and, where they write
        one, scheduled; and one row for each kernel.
    """
    from tvm import ir

    reasons = _reasons(module, limits)
    image = ir.VDevice(target, 0, SCOPE)
    module.update_global_info("vdevice", [ir.VDevice(target, 0, BUFFER), image])
    kernels = _Kernels(module, target, schedules)
    while not _settle(module, reasons, kernels):
        pass
    placement = _Placement(module, reasons, kernels, image)
    made = placement.run()
    for variable, function in placement.functions.items():
        made.update_func(variable, function)
    return made, tuple(placement.rows)


def _settle(module: Any, reasons: dict[Any, str], kernels: _Kernels) -> bool:
    """Make each call's kernel; take back images that one cannot use. Whether there were none."""
    settled = True
    for binding in _bindings(module):
        if not _is_kernel_call(binding.value):
            continue
        kernel, operands = binding.value.args
        textured = _textured(binding, reasons)
        try:
            kernels.specialized(kernel, textured)
        except NotSchedulable as why:
            settled = False
            if textured[-1]:
                reasons[binding.var] = str(why)
            else:
                for arg in operands.fields:
                    if not reasons.get(arg, "-"):
                        reasons[arg] = f"{kernel.name_hint}, which reads it, cannot: {why}"
    return settled


def _textured(binding: Any, reasons: Mapping[Any, str]) -> tuple[bool, ...]:
    """Which arguments of a kernel's call are images; the output comes last."""
    operands = binding.value.args[1].fields
    return tuple(reasons.get(variable, "-") == "" for variable in (*operands, binding.var))


def _bindings(module: Any) -> list[Any]:
    return [binding for block in module["main"].body.blocks for binding in block.bindings]


class _Kernels:
    """The kernels of a module, made for the images among their arguments."""

    def __init__(self, module: Any, target: Any, schedules: KernelSchedules) -> None:
        self.module = module
        self.target = target
        self.schedules = schedules
        self.made: dict[tuple[Any, tuple[bool, ...]], Any] = {}

    def specialized(self, kernel: Any, textured: tuple[bool, ...]) -> Any:
        """The scheduled function; unscheduled, as it was, where no argument is an image.

        Raises:
            NotSchedulable: it cannot be made.
        """
        if not any(textured):
            return self.module[kernel]
        key = (kernel, textured)
        if key not in self.made:
            self.made[key] = self._made(scoped(self.module[kernel], textured), writes=textured[-1])
        if isinstance(self.made[key], NotSchedulable):
            raise self.made[key]
        return self.made[key]

    def _made(self, function: Any, *, writes: bool) -> Any:
        """The first schedule of *function* that uses its images rightly, or why there is none."""
        taken = self.schedules.take(function)
        if not is_scheduled(taken):
            return self._usual(taken, writes=writes)
        try:
            proven(taken, self.target)
        except NotSchedulable as why:
            log.debug("a record does not apply: %s", why)
            return self._usual(marked(function, REFUSED), writes=writes)
        return taken

    def _usual(self, function: Any, *, writes: bool) -> Any:
        schedules: tuple[Callable[[Any], Any], ...]
        if writes:
            schedules = (texel_schedule, partial(texel_schedule, by_lane=True))
        else:
            schedules = (partial(element_schedule, target=self.target),)
        refused: NotSchedulable | None = None
        for schedule in schedules:
            try:
                scheduled = schedule(function)
                proven(scheduled, self.target)
            except NotSchedulable as why:
                refused = refused or why
            else:
                return scheduled.with_attr(SCHEDULED, True)
        return refused


def _reasons(module: Any, limits: ImageLimits) -> dict[Any, str]:
    """Each variable that a kernel makes, to why it is no image; empty: it is one."""
    from tvm import relax

    main = module["main"]
    bindings = _bindings(module)
    reasons = {
        binding.var: _unfit(binding.var, limits) for binding in bindings if _is_kernel_call(binding.value)
    }
    for binding in bindings:
        if _is_kernel_call(binding.value):
            continue
        for variable in relax.analysis.free_vars(binding.value):
            if not reasons.get(variable, "-"):
                reasons[variable] = (
                    "it has a view of another shape, or is read by something that is no kernel"
                )
    for variable in relax.analysis.free_vars(main.body.body):
        source = _sources(bindings).get(variable, variable)
        if source in reasons:
            reasons[source] = "it is returned"
    return reasons


def _sources(bindings: Any) -> dict[Any, Any]:
    from tvm import relax

    return {binding.var: binding.value for binding in bindings if isinstance(binding.value, relax.Var)}


def _is_kernel_call(value: Any) -> bool:
    from tvm import relax

    return (
        isinstance(value, relax.Call)
        and getattr(value.op, "name", "") == "relax.call_tir"
        and len(value.args) == 2  # a third one holds shapes that are known at run time
        and isinstance(value.sinfo_args[0], relax.TensorStructInfo)
    )


def _unfit(variable: Any, limits: ImageLimits) -> str:
    info = variable.struct_info
    shape = tuple(int(extent) for extent in info.shape.values)
    if info.dtype not in FLOATS or len(shape) < 4 or shape[-1] != LANES:
        return "it is not blocked"
    *layers, height, width, _lanes = shape
    count = math.prod(layers)
    if count > limits.layers or max(height, width) > limits.side:
        return f"an image of {width} x {height} x {count} is over the device's limits"
    return ""


class _Placement(Rewriter):
    """Rewrites the calls: the variable's device, and the kernel that fits it."""

    def __init__(self, module: Any, reasons: Mapping[Any, str], kernels: _Kernels, image: Any) -> None:
        super().__init__(module)
        self.reasons = reasons
        self.kernels = kernels
        self.image = image
        self.functions: dict[Any, Any] = {}
        """New kernels by their global variable."""
        self.rows: list[KernelTextures] = []
        self.called: dict[tuple[Any, tuple[bool, ...]], Any] = {}
        self.names: defaultdict[str, int] = defaultdict(int)

    def bind(self, binding: Any) -> None:
        from tvm import relax

        if not _is_kernel_call(binding.value):
            super().bind(binding)
            return
        kernel, operands = binding.value.args
        textured = _textured(binding, self.reasons)
        info = binding.value.sinfo_args[0]
        if textured[-1]:
            info = relax.TensorStructInfo(info.shape, info.dtype, self.image)
        variable = self._variable(kernel, textured, self.reasons[binding.var])
        call = relax.call_tir(variable, self.copy(operands), info)
        self.values[binding.var] = self.builder.emit(call, name_hint=binding.var.name_hint)

    def _variable(self, kernel: Any, textured: tuple[bool, ...], reason: str) -> Any:
        """The global variable of the kernel for these images, one for each choice of them."""
        from tvm import ir, relax

        key = (kernel, textured)
        if key not in self.called:
            variable = kernel
            if any(textured):
                self.names[kernel.name_hint] += 1
                count = self.names[kernel.name_hint]
                variable = ir.GlobalVar(f"{kernel.name_hint}_texture" + (f"_{count}" if count > 1 else ""))
                relax.expr._update_struct_info(variable, relax.FuncStructInfo.opaque_func())
                self.functions[variable] = self.kernels.specialized(kernel, textured)
            operations = flops_of(self.module[kernel]) or 0
            self.called[key] = variable
            self.rows.append(
                KernelTextures(variable.name_hint, sum(textured[:-1]), int(textured[-1]), operations, reason)
            )
        return self.called[key]


def scoped(function: Any, textured: tuple[bool, ...]) -> Any:
    """The TIR *function* with images for the arguments that *textured* marks."""
    from tvm import tirx

    buffers = [function.buffer_map[param] for param in function.params]
    images = {
        param: tirx.decl_buffer(buffer.shape, buffer.dtype, buffer.name, scope=SCOPE if image else BUFFER)
        for param, buffer, image in zip(function.params, buffers, textured, strict=True)
    }
    return function.specialize(images)
