"""Placement of the tensors of a fused model in images, and the kernels made for that.

A tensor is an image where all of this holds; otherwise it stays a buffer, and the
reason is kept:

- its last axis is a texel of floating-point numbers, and the image fits the device,
- the kernel that makes it writes whole texels (see :mod:`adt.compiler.passes.gpu.texels`), and
  this and every kernel that reads it pass the check of :mod:`adt.compiler.passes.lowering`,
- only kernels read it: the caller, views of another shape and library calls need buffers.

That goes for the parameters, too: a weight whose rows are several texels becomes an image,
which whoever loads the package fills once.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import ir, relax, tirx

from adt.compiler.ir.flops import SCHEDULED, flops_of
from adt.compiler.ir.nodes import is_kernel_call
from adt.compiler.ir.rewriter import Rewriter, bindings_of, static_shape
from adt.compiler.passes.gpu.schedules import ELEMENTS, RULES, TEXELS, prove, schedule_of
from adt.compiler.passes.gpu.texels import moves_texels
from adt.compiler.passes.layout.blocks import FLOATS
from adt.compiler.passes.records.schedules import KernelSchedules, is_scheduled
from adt.compiler.passes.records.workload import REFUSED, marked
from adt.compiler.passes.scheduling import Decisions, NoSchedule
from adt.compiler.targets.gpu import ANY_ADRENO, Gpu
from adt.package.reports import LANES, SCOPE, KernelTextures, WeightTexture

log = logging.getLogger("adt.compile")

BUFFER = "global"


@dataclass(frozen=True)
class ImageLimits:
    """Extents of the largest image of a device."""

    side: int
    """Greatest width and height, in texels."""
    layers: int
    """Greatest length of an array of images."""


def image_limits(target: tvm.target.Target) -> ImageLimits:
    """Return the limits of TVM's *target*, which has images."""
    attributes = target.attrs
    return ImageLimits(int(attributes["texture_spatial_limit"]), int(attributes["texture_depth_limit"]))


def place(
    module: tvm.IRModule,
    target: tvm.target.Target,
    limits: ImageLimits | None,
    schedules: KernelSchedules,
    *,
    gpu: Gpu = ANY_ADRENO,
) -> tuple[tvm.IRModule, tuple[KernelTextures, ...], tuple[WeightTexture, ...]]:
    """Put tensors of the fused, flat *module* into images and schedule the kernels that write them.

    Returns it, and rows for its kernels and weights. Without *limits* the target has no images. *schedules*
    come before the usual ones for *gpu*, where they use a kernel's images rightly.
    """
    weights = _weights(module)
    reasons = _reasons(module, weights, limits)
    image = ir.VDevice(target, 0, SCOPE)
    if limits is not None:
        module.update_global_info("vdevice", [ir.VDevice(target, 0, BUFFER), image])
    kernels = GpuKernels(module, target, schedules, gpu, images=limits is not None)
    while not _settle(kernels, reasons, set(weights)):
        pass
    placement = _Placement(kernels, reasons, image)
    result = placement.run()
    for of_kernel, variable in placement.called.items():
        result.update_func(variable, kernels.specialize(*of_kernel))
    rows = tuple(WeightTexture(w.name_hint, static_shape(w) or (), reasons[w]) for w in weights)
    return result, tuple(placement.rows), rows


def _settle(kernels: GpuKernels, reasons: dict[relax.Var, str], weights: set[relax.Var]) -> bool:
    """Make each call's kernel; take back images that one cannot use. Whether there were none."""
    settled = True
    for binding in bindings_of(kernels.module):
        if not is_kernel_call(binding.value):
            continue
        kernel, operands = binding.value.args
        textured = _textured(binding, reasons)
        try:
            kernels.specialize(kernel, textured)
        except NoSchedule as error:
            settled = False
            read = [arg for arg in operands.fields if reasons.get(arg, "-") == ""]
            # Activations in images save more than weights there do: the weights go first.
            back = [arg for arg in read if arg in weights]
            if not back and textured[-1]:
                reasons[binding.var] = str(error)
                continue
            for arg in back or read:
                reasons[arg] = f"{kernel.name_hint}, which reads it, cannot: {error}"
    return settled


def _textured(binding: relax.VarBinding, reasons: Mapping[relax.Var, str]) -> tuple[bool, ...]:
    """Return which arguments of a kernel's call are images; the output comes last."""
    operands = binding.value.args[1].fields
    return tuple(reasons.get(variable, "-") == "" for variable in (*operands, binding.var))


def _weights(module: tvm.IRModule) -> list[relax.Var]:
    """Return the parameters of ``main`` that may become images: blocked, with rows of several texels."""
    main = module["main"]
    inputs = int((main.attrs or {}).get("num_input", len(main.params)))
    shapes = [(param, static_shape(param) or ()) for param in main.params[inputs:]]
    return [param for param, shape in shapes if len(shape) > 3 and shape[-1] == LANES and shape[-2] > 1]


def _reasons(
    module: tvm.IRModule, weights: Sequence[relax.Var], limits: ImageLimits | None
) -> dict[relax.Var, str]:
    """Map each variable that a kernel makes, and each weight, to why it is no image; empty: it is one."""
    main = module["main"]
    bindings = bindings_of(module)
    reasons = {
        binding.var: _unfit(binding.var, limits) for binding in bindings if is_kernel_call(binding.value)
    } | {weight: _unfit(weight, limits) for weight in weights}
    for binding in bindings:
        if is_kernel_call(binding.value):
            continue
        for variable in relax.analysis.free_vars(binding.value):
            if not reasons.get(variable, "-"):
                reasons[variable] = (
                    "it has a view of another shape, or is read by something that is no kernel"
                )
    sources = {binding.var: binding.value for binding in bindings if isinstance(binding.value, relax.Var)}
    for variable in relax.analysis.free_vars(main.body.body):
        source = sources.get(variable, variable)
        if source in reasons:
            reasons[source] = "it is returned"
    return reasons


def _unfit(variable: relax.Var, limits: ImageLimits | None) -> str:
    if limits is None:
        return "the target has no images"
    info = variable.struct_info
    shape = tuple(int(extent) for extent in info.shape.values)
    if info.dtype not in FLOATS or len(shape) < 4 or shape[-1] != LANES:
        return "it is not blocked"
    *layers, height, width, _lanes = shape
    count = math.prod(layers)
    if count > limits.layers or max(height, width) > limits.side:
        return f"an image of {width} x {height} x {count} is over the device's limits"
    if height * width == 1:
        return "each layer of its image would hold one texel"
    return ""


class _Placement(Rewriter):
    """Rewriter of the calls: the variable's device, and the kernel that fits it."""

    def __init__(self, kernels: GpuKernels, reasons: Mapping[relax.Var, str], image: ir.VDevice) -> None:
        super().__init__(kernels.module)
        self.reasons = reasons
        self.image = image
        self.rows: list[KernelTextures] = []
        self.called: dict[tuple[tvm.ir.GlobalVar, tuple[bool, ...]], Any] = {}
        """Kernel and its images to the global variable of the function that is called."""
        self.names: Counter[str] = Counter()
        for param in super().params():
            if reasons.get(param, "-") == "":
                self.values[param] = relax.Var(param.name_hint, self._in_image(param.struct_info))

    def params(self) -> list[relax.Var]:
        return [self.value_of(param) for param in super().params()]

    def _in_image(self, info: relax.TensorStructInfo) -> relax.TensorStructInfo:
        return relax.TensorStructInfo(info.shape, info.dtype, self.image)

    def bind(self, binding: relax.VarBinding) -> None:
        if not is_kernel_call(binding.value):
            super().bind(binding)
            return
        kernel, operands = binding.value.args
        textured = _textured(binding, self.reasons)
        info = binding.value.sinfo_args[0]
        variable = self._variable(kernel, textured, self.reasons[binding.var])
        call = relax.call_tir(variable, self.copy(operands), self._in_image(info) if textured[-1] else info)
        self.values[binding.var] = self.builder.emit(call, name_hint=binding.var.name_hint)

    def _variable(self, kernel: tvm.ir.GlobalVar, textured: tuple[bool, ...], reason: str) -> Any:
        """Return the global variable of the kernel for these images, one for each choice of them."""
        key = (kernel, textured)
        if key not in self.called:
            variable = kernel
            if any(textured):
                self.names[kernel.name_hint] += 1
                count = self.names[kernel.name_hint]
                variable = ir.GlobalVar(f"{kernel.name_hint}_texture" + (f"_{count}" if count > 1 else ""))
                relax.expr._update_struct_info(variable, relax.FuncStructInfo.opaque_func())
            operations = flops_of(self.module[kernel]) or 0
            self.called[key] = variable
            self.rows.append(
                KernelTextures(variable.name_hint, sum(textured[:-1]), int(textured[-1]), operations, reason)
            )
        return self.called[key]


@dataclass
class GpuKernels:
    """The kernels of a module, made for the images among their arguments."""

    module: tvm.IRModule
    target: tvm.target.Target
    schedules: KernelSchedules
    gpu: Gpu
    images: bool = True
    """False: all blocked tensors are in buffers, and kernels that write one are scheduled here, not only
    those that sum."""
    cache: dict[tuple[tvm.ir.GlobalVar, tuple[bool, ...]], Any] = field(default_factory=dict)

    def specialize(self, kernel: tvm.ir.GlobalVar, textured: tuple[bool, ...]) -> tirx.PrimFunc:
        """Return the scheduled function; the kernel itself where it has no images and TVM's rules do."""
        if not any(textured) and not self._needs_schedule(self.module[kernel]):
            return self.module[kernel]
        key = (kernel, textured)
        if key not in self.cache:
            function = with_images(self.module[kernel], textured)
            try:
                self.cache[key] = self._schedule(function, writes=textured[-1])
            except NoSchedule as reason:
                self.cache[key] = reason
        if not isinstance(self.cache[key], NoSchedule):
            return self.cache[key]
        if any(textured):
            raise self.cache[key]
        return self.module[kernel]

    def _needs_schedule(self, function: tirx.PrimFunc) -> bool:
        sums = any(rule.takes(function) for rule in RULES if rule is not TEXELS)
        return sums or (not self.images and moves_texels(function))

    def _schedule(self, function: tirx.PrimFunc, *, writes: bool) -> tirx.PrimFunc:
        """Give *function* the first schedule that uses its images rightly: a record's, or a rule's."""
        recorded = self.schedules.take(function)
        if is_scheduled(recorded):
            try:
                prove(recorded, self.target)
                return recorded
            except NoSchedule as error:
                log.debug("a record does not apply: %s", error)
                recorded = marked(function, REFUSED)
        rules = (*RULES, ELEMENTS) if self.images and not writes else RULES
        _, kernel = schedule_of(recorded, self.target, self.gpu, Decisions(), rules)
        return kernel.with_attr(SCHEDULED, True)


def with_images(function: tirx.PrimFunc, textured: tuple[bool, ...]) -> tirx.PrimFunc:
    """Give the TIR *function* images for the arguments that *textured* marks."""
    buffers = [function.buffer_map[param] for param in function.params]
    images = {
        param: tirx.decl_buffer(buffer.shape, buffer.dtype, buffer.name, scope=SCOPE if image else BUFFER)
        for param, buffer, image in zip(function.params, buffers, textured, strict=True)
    }
    return function.specialize(images)
