"""Textures or buffers, for each convolution and matrix product that could have either.

Where kernels of both forms were measured on the device that is compiled for (``adt tune``
for ``adreno``, and for ``adreno-buffer`` with ``texture_choice`` ``never``, into one database),
the times decide, for all of a model at once: :mod:`adt.model.passes.gpu.chains`.

Of a GPU without textures the choice is between blocked and plain channels, both in buffers.

Where nothing was measured, textures (or blocks) are taken: their kernels read four channels at once
and use each texel that they read again and again. Three cases are left out in which that
does not hold: a vector times a matrix; too many lanes of the output's texels would be to
spare; packing the input would move about as much as the convolution reads.
"""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from adt.errors import ConfigError
from adt.model.passes.layout.blocks import LANES
from adt.model.passes.layout.signature import Signature, signature_of
from adt.model.passes.layout.walk import Choice, Moves
from adt.model.targets.gpu import ANY_ADRENO, Gpu
from adt.model.tuning.schedules import KernelSchedules, is_scheduled
from adt.model.tuning.tuning import TimedKernel, Tuning
from adt.options.resolve import did_you_mean

log = logging.getLogger("adt.compile")

CHOICES = ("auto", "always", "never")
"""What the setting ``compile.texture_choice`` may be."""

CLEARLY = 1.1
"""By how much buffers must be faster, packing and unpacking included, to be taken: two measurements
of the same kernel differ by some percent."""
SLOWEST = 1.5
"""A kernel with textures is never taken that takes longer than this times its twin in buffers."""
LANES_USED = 2 / 3
"""Share of the lanes of an output's texels that must hold a channel."""
WORTH_PACKING = 2
"""The convolution reads this times as many texels, at least, as packing its input moves."""
LEAST_WORK = 40
"""Multiply-adds for each texel of input and output, from which on a convolution of points is taken whose
input could as well be plain. On an NVIDIA H200 the one of eight networks that has fewer (16 channels to 16)
took 1.8 times as long as its twin, and those of 43 to 57 took 0.9 to 1.4 times as long."""


@dataclass(frozen=True)
class MeasuredTimes:
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

    def untuned_for(self, computed: Collection[Signature]) -> MeasuredTimes:
        """The same, if buffers' kernels of *computed* are to have the schedule without records."""
        tuned = {key: time for key, time in self.buffers.items() if key not in computed}
        untuned = {key: self.untuned[key] for key in computed if key in self.untuned}
        return dataclasses.replace(self, buffers=tuned | untuned)

    def moving(self, size: int) -> float:
        """Seconds, at least, of a kernel that reads *size* bytes and writes them in another order."""
        return max(self.call, 2 * size / self.bandwidth)


@dataclass(frozen=True)
class TextureChooser:
    """Chooses by the records of a device, and else by a model of what a kernel reads."""

    always: bool = False
    """Textures wherever they can be."""
    never: bool = False
    """The model is not walked at all: its tensors stay plain, in buffers."""
    times: MeasuredTimes | None = None
    """Times of the device that is compiled for."""
    gpu: Gpu = ANY_ADRENO
    forms: Mapping[Any, bool] = field(default_factory=dict)
    """Variable of the model, of what was measured in both forms, to whether it is blocked."""

    def choose(self, computes: Signature, channels: int, moves: Moves, variable: Any) -> Choice:
        """See :class:`~adt.model.passes.layout.walk.LayoutChooser`; blocked tensors are for textures."""
        if self.always:
            return Choice(True, "asked for (texture_choice)")
        if self.times is not None and (both := self.times_of(computes)) and variable in self.forms:
            return _by_times(*both, self.forms[variable], self.times.device)
        return self._by_model(computes, channels, moves)

    def times_of(self, computes: Signature) -> tuple[float, float] | None:
        """Seconds in textures and in buffers, if both were measured."""
        if self.times is None or computes not in self.times.textures or computes not in self.times.buffers:
            return None
        return self.times.textures[computes], self.times.buffers[computes]

    def without(self, computed: Collection[Signature]) -> TextureChooser:
        """The same, if no record applies to buffers' kernels of *computed*."""
        assert self.times is not None  # only then a record was counted on
        return dataclasses.replace(self, times=self.times.untuned_for(computed))

    def _by_model(self, computes: Signature, channels: int, moves: Moves) -> Choice:
        if channels < LANES_USED * computes.outputs:
            return Choice(False, f"{channels} output channels leave {computes.outputs - channels} lanes idle")
        if not computes.positions and not computes.grouped and not moves.unpack:
            return Choice(False, "each weight is used once, which blocks make no faster")
        reuse = multiply_adds_per_texel(computes, self.gpu)
        texel = LANES * (2 if computes.dtype == "float16" else 4)
        if computes.macs / reuse < WORTH_PACKING * 2 * moves.pack / texel:
            return Choice(False, "packing its input would move about as much as it reads")
        if not moves.unpack and (work := work_per_texel(computes)) < LEAST_WORK:
            return Choice(False, f"{work:.2g} multiply-adds for each texel that it moves")
        return Choice(True, f"up to {reuse:.2g} multiply-adds for each texel read")


ALWAYS = TextureChooser(always=True)
BY_MODEL = TextureChooser()
"""Nothing was measured, and nothing is known of the GPU but that it is an Adreno."""


def texture_chooser(setting: str, gpu: Gpu, tuning: Tuning | None) -> TextureChooser:
    """The chooser of these settings, for this GPU, with these records.

    Raises:
        ConfigError: *setting* is none of CHOICES.
    """
    if setting not in CHOICES:
        raise ConfigError(
            f"texture_choice is {setting!r}, which is none of: {', '.join(CHOICES)}."
            + did_you_mean(setting, CHOICES),
            remedy="--texture-choice always blocks all that can be, never leaves all plain; auto chooses.",
        )
    times = measured_times(tuning) if tuning is not None and setting == "auto" else None
    return TextureChooser(setting == "always", setting == "never", times, gpu)


def _by_times(texture: float, buffer: float, blocked: bool, device: str) -> Choice:
    mine, other, twin = (texture, buffer, "buffers") if blocked else (buffer, texture, "textures")
    reason = f"{mine / other:.2g} of the time in {twin} ({mine * 1e3:.3g} and {other * 1e3:.3g} ms"
    if mine > other:
        reason += ", less than with what its neighbours would have to be packed or unpacked for"
    return Choice(blocked, f"{reason}, measured on {device})")


def work_per_texel(computes: Signature) -> float:
    """Multiply-adds of a convolution of points for each texel of its input and output; of others no bound."""
    if computes.taps or computes.grouped:
        return math.inf
    return LANES * computes.channels * computes.outputs / (computes.channels + computes.outputs)


def multiply_adds_per_texel(computes: Signature, gpu: Gpu) -> float:
    """Of a kernel that keeps as many sums in registers as *gpu* allows: arithmetic for each texel it reads.

    A work-item has the sums of ``p`` neighbouring positions and ``b`` blocks of four output
    channels. For each four input channels under a tap it reads ``p`` texels of the input and
    ``4 * b`` of the weight, and multiplies ``16 * p * b`` times. A depthwise convolution reads a row
    of the input and one of the weight, and multiplies each of their lanes by its own.
    """
    width = computes.positions[-1] if computes.positions else 1
    if computes.grouped and computes.channels == 1:
        positions = min(gpu.sums, width, 4)
        stride = computes.strides[-1] if computes.strides else 1
        taps = computes.taps[-1] if computes.taps else 1
        return LANES * positions * taps / ((positions - 1) * stride + taps + taps)
    best = 1.0
    for positions in (1, 2, 4, 8):
        blocks = min(gpu.sums // positions, computes.outputs // LANES, 4)
        if blocks and positions <= max(1, math.prod(computes.positions)):
            best = max(best, LANES * LANES * positions * blocks / (positions + LANES * blocks))
    return best


def measured_times(tuning: Tuning) -> MeasuredTimes | None:
    """What the records *tuning* say of both forms of convolutions; None where they have but one.

    Blocked ones that were tuned for buffers are neither.
    """
    if tuning.times is None:
        return None
    textures: dict[Signature, float] = {}
    buffers: dict[Signature, float] = {}
    untuned: dict[Signature, float] = {}
    call, bandwidth = math.inf, 0.0
    in_buffers = set(tuning.times.buffers)
    for timed, function in _static_functions((*tuning.times.textures, *tuning.times.buffers)):
        arguments = list(function.buffer_map.values())
        size = sum(_bytes(argument) for argument in arguments)
        call, bandwidth = min(call, timed.seconds), max(bandwidth, size / timed.seconds)
        kernel = signature_of(function)
        if kernel is None or (kernel.blocked and timed in in_buffers):
            continue
        _add(textures if kernel.blocked else buffers, kernel.computes, timed.seconds)
        if timed.untuned is not None and not kernel.blocked:
            _add(untuned, kernel.computes, timed.untuned)
    if not textures.keys() & buffers.keys():
        return None
    return MeasuredTimes(tuning.device, textures, buffers, untuned, call, bandwidth)


def _add(fastest: dict[Signature, float], computes: Signature, seconds: float) -> None:
    fastest[computes] = min(seconds, fastest.get(computes, math.inf))


def missed_records(module: Any, times: MeasuredTimes, schedules: KernelSchedules) -> set[Signature]:
    """What kernels in buffers of the fused *module* compute that were chosen for a time they will not have.

    The record of a convolution is applied where the same operators follow it in the kernel, and
    what follows one may have gone to another kernel when its neighbours went into textures.
    """
    from tvm import tirx

    missed = set()
    for function in module.functions.values():
        kernel = signature_of(function) if isinstance(function, tirx.PrimFunc) else None
        if kernel is None or kernel.blocked or kernel.computes not in times.textures:
            continue
        tuned = times.buffers.get(kernel.computes, math.inf) < times.untuned.get(kernel.computes, math.inf)
        if tuned and not is_scheduled(schedules.take(function)):
            missed.add(kernel.computes)
    return missed


def _static_functions(kernels: Iterable[TimedKernel]) -> Iterable[tuple[TimedKernel, Any]]:
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
