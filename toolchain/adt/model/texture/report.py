"""What became of a model's convolutions and kernels where textures were asked for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Convolution:
    """What became of one convolution or matrix product of the model."""

    name: str
    """The variable that it defines in Relax."""
    weight: tuple[int, ...]
    """Its weight's shape, ``(O, I/groups, kernel…)``; of a matrix product ``(O, I)``."""
    groups: int
    macs: int
    """Multiplications with addition."""
    reason: str
    """Why its channels are not blocked, so that it stays in buffers; empty: they are."""
    grounds: str = ""
    """Why they are, if they are: see :mod:`adt.model.texture.choice`."""
    kind: str = "convolution"
    """Or ``product``: a matrix product."""


@dataclass(frozen=True)
class KernelTextures:
    """The images of one kernel."""

    kernel: str
    reads: int
    """How many of its inputs are images."""
    writes: int
    """How many of its outputs are."""
    operations: int
    """Arithmetic operations of one call, as TVM estimates them."""
    reason: str
    """Why its output is a buffer; empty where it is an image."""

    @property
    def textured(self) -> bool:
        """It reads or writes an image."""
        return self.reads > 0 or self.writes > 0


@dataclass(frozen=True)
class WeightTexture:
    """A parameter that four output channels of a kernel share as texels."""

    name: str
    """Its key in ``mod.params``."""
    shape: tuple[int, ...]
    """``(layers…, height, width, 4)``."""
    reason: str
    """Why it is a buffer; empty: it is an image."""


@dataclass(frozen=True)
class TextureReport:
    """A model's textures."""

    convolutions: tuple[Convolution, ...]
    kernels: tuple[KernelTextures, ...]
    weights: tuple[WeightTexture, ...] = ()
    """The weights that may lie in images; a bias is none of them, with one texel to a row."""

    @property
    def images(self) -> tuple[str, ...]:
        """The weights that lie in images."""
        return tuple(weight.name for weight in self.weights if not weight.reason)

    @property
    def share(self) -> float:
        """Share of the arithmetic operations that textured kernels do, 0 to 1."""
        total = sum(kernel.operations for kernel in self.kernels)
        return sum(kernel.operations for kernel in self.kernels if kernel.textured) / total if total else 0.0
