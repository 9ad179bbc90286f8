"""What records say of convolutions in textures and in buffers, on one device."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from adt.model.texture.signature import Signature, of_kernel
from adt.model.tuning.schedules import KernelSchedules, is_scheduled
from adt.model.tuning.tuning import TimedKernel, Tuning

log = logging.getLogger("adt.compile")


@dataclass(frozen=True)
class Measured:
    """The fastest that was measured, in seconds for one call, by what is computed."""

    device: str
    """Where, for people."""
    textures: Mapping[Signature, float]
    """Blocked kernels, those for textures …"""
    buffers: Mapping[Signature, float]
    """… and all others …"""
    untuned: Mapping[Signature, float]
    """… which have these times without records."""
    call: float
    """The fastest call of any kernel: none takes less."""
    bandwidth: float
    """Bytes of its arguments in a second, of the kernel that moved most."""

    def untuned_for(self, computed: Collection[Signature]) -> Measured:
        """The same, if buffers' kernels of *computed* are to have the schedule without records."""
        left = {one: time for one, time in self.buffers.items() if one not in computed}
        known = {one: self.untuned[one] for one in computed if one in self.untuned}
        return dataclasses.replace(self, buffers=left | known)

    def moving(self, size: int) -> float:
        """Seconds, at least, of a kernel that reads *size* bytes and writes them in another order."""
        return max(self.call, 2 * size / self.bandwidth)


def measured(tuning: Tuning) -> Measured | None:
    """What the records *tuning* say of both forms of convolutions; None where they have but one."""
    if tuning.times is None:
        return None
    textures: dict[Signature, float] = {}
    buffers: dict[Signature, float] = {}
    untuned: dict[Signature, float] = {}
    call, bandwidth = math.inf, 0.0
    for timed, function in _functions((*tuning.times.textures, *tuning.times.buffers)):
        arguments = list(function.buffer_map.values())
        size = sum(_bytes(argument) for argument in arguments)
        call, bandwidth = min(call, timed.seconds), max(bandwidth, size / timed.seconds)
        found = of_kernel(function)
        if found is None:
            continue
        _keep(textures if found.blocked else buffers, found.computes, timed.seconds)
        if timed.untuned is not None and not found.blocked:
            _keep(untuned, found.computes, timed.untuned)
    if not textures.keys() & buffers.keys():
        return None
    return Measured(tuning.device, textures, buffers, untuned, call, bandwidth)


def _keep(fastest: dict[Signature, float], computes: Signature, seconds: float) -> None:
    fastest[computes] = min(seconds, fastest.get(computes, math.inf))


def missed(module: Any, times: Measured, schedules: KernelSchedules) -> set[Signature]:
    """What kernels in buffers of the fused *module* compute that were chosen for a time they will not have.

    The record of a convolution is applied where the same operators follow it in the kernel, and
    what follows one may have gone to another kernel when its neighbours went into textures.
    """
    from tvm import tirx

    found = set()
    for function in module.functions.values():
        kernel = of_kernel(function) if isinstance(function, tirx.PrimFunc) else None
        if kernel is None or kernel.blocked or kernel.computes not in times.textures:
            continue
        tuned = times.buffers.get(kernel.computes, math.inf) < times.untuned.get(kernel.computes, math.inf)
        if tuned and not is_scheduled(schedules.take(function)):
            found.add(kernel.computes)
    return found


def _functions(kernels: Iterable[TimedKernel]) -> Iterable[tuple[TimedKernel, Any]]:
    from adt.model.graphs.reader import read_graphs

    timed = tuple(kernels)
    for kernel, module in zip(timed, read_graphs([each.workload for each in timed]), strict=True):
        if isinstance(module, Exception):
            log.debug("a workload on record is not read: it has %s", module)
            continue
        function = module["main"]
        if all(_static(argument) for argument in function.buffer_map.values()):
            yield kernel, function


def _static(argument: Any) -> bool:
    from tvm import tirx

    return all(isinstance(extent, tirx.IntImm) for extent in argument.shape)


def _bytes(argument: Any) -> int:
    import tvm_ffi

    bits: int = tvm_ffi.dtype(str(argument.dtype)).bits
    return math.prod(int(extent) for extent in argument.shape) * -(-bits // 8)
