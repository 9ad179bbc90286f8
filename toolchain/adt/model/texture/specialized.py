"""Kernels made for the images among their arguments, and scheduled."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from adt.model.inspection.flops import SCHEDULED
from adt.model.targets.gpu import Gpu
from adt.model.texture.kernel_blocks import NotSchedulable
from adt.model.texture.pooling import is_global_pool, pool_schedule
from adt.model.texture.schedule import (
    convolution_schedule,
    element_schedule,
    is_convolution,
    proven,
    texel_schedule,
    writes_texels,
)
from adt.model.tuning.schedules import KernelSchedules, is_scheduled
from adt.model.tuning.workload import REFUSED, marked

log = logging.getLogger("adt.compile")

SCOPE = "global.texture"
"""TVM's name for an image of ``(layers…, height, width, texel)``."""
BUFFER = "global"


class Kernels:
    """The kernels of a module, made for the images among their arguments."""

    def __init__(self, module: Any, target: Any, schedules: KernelSchedules, gpu: Gpu) -> None:
        self.module = module
        self.target = target
        self.schedules = schedules
        self.gpu = gpu
        self.made: dict[tuple[Any, tuple[bool, ...]], Any] = {}

    def specialized(self, kernel: Any, textured: tuple[bool, ...]) -> Any:
        """The scheduled function; unscheduled, as it was, where no argument is an image and TVM's rules
        schedule it as well.

        Raises:
            NotSchedulable: it cannot be made.
        """
        if not any(textured) and not _is_ours(self.module[kernel]):
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
        schedules: list[Callable[[Any], Any]] = []
        if is_convolution(function):
            schedules += [
                partial(convolution_schedule, gpu=self.gpu),
                partial(convolution_schedule, gpu=self.gpu, by_lane=True),
            ]
        if is_global_pool(function):
            schedules += [partial(pool_schedule, gpu=self.gpu)]
        if writes or writes_texels(function):
            schedules += [texel_schedule, partial(texel_schedule, by_lane=True)]
        if not writes:
            schedules += [partial(element_schedule, target=self.target)]
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


def _is_ours(function: Any) -> bool:
    """Whether the kernel is scheduled here even where it touches no image."""
    return is_convolution(function) or is_global_pool(function)


def scoped(function: Any, textured: tuple[bool, ...]) -> Any:
    """The TIR *function* with images for the arguments that *textured* marks."""
    from tvm import tirx

    buffers = [function.buffer_map[param] for param in function.params]
    images = {
        param: tirx.decl_buffer(buffer.shape, buffer.dtype, buffer.name, scope=SCOPE if image else BUFFER)
        for param, buffer, image in zip(function.params, buffers, textured, strict=True)
    }
    return function.specialize(images)
