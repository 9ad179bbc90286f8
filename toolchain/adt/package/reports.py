"""Reports of the passes in mod.json: textures, reduced precision, offload, tuning."""

from __future__ import annotations

from dataclasses import dataclass

from adt.host.document import in_document

LANES = 4
"""Channels in a texel of an image."""
SCOPE = "global.texture"
"""TVM's name for an image of ``(layers…, height, width, texel)``."""


@dataclass(frozen=True)
class Convolution:
    """Result for one convolution or matrix product of the model."""

    name: str
    """The variable that it defines in Relax."""
    weight: tuple[int, ...]
    """Its weight's shape, ``(O, I/groups, kernel…)``; of a matrix product ``(O, I)``."""
    groups: int
    macs: int
    """Multiplications with addition."""
    reason: str
    """Reason why its channels are not blocked, so that it stays plain, in buffers; empty: they are."""
    grounds: str = ""
    """Reason why they are, if they are: see :mod:`adt.compiler.passes.gpu.choice`."""
    kind: str = "convolution"
    """Or ``product``: a matrix product."""


@dataclass(frozen=True)
class KernelTextures:
    """The images of one kernel."""

    kernel: str
    reads: int
    """Number of its inputs that are images."""
    writes: int
    """Number of its outputs that are images."""
    operations: int
    """Arithmetic operations of one call, as TVM estimates them."""
    reason: str
    """Reason why its output is a buffer; empty where it is an image."""

    @property
    def textured(self) -> bool:
        """True if it reads or writes an image."""
        return self.reads > 0 or self.writes > 0


@dataclass(frozen=True)
class WeightTexture:
    """A parameter that four output channels of a kernel share as texels."""

    name: str
    """Its key in ``mod.params``."""
    shape: tuple[int, ...]
    """``(layers…, height, width, 4)``."""
    reason: str
    """Reason why it is a buffer; empty: it is an image."""


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
    @in_document()
    def share(self) -> float:
        """Share of the arithmetic operations that textured kernels do, 0 to 1."""
        textured = sum(kernel.operations for kernel in self.kernels if kernel.textured)
        return textured / max(1, sum(kernel.operations for kernel in self.kernels))

    @property
    def summary(self) -> str:
        """``27 of 29 kernels use them, 100% of the arithmetic; 21 of 21 weights are images``."""
        textured = sum(kernel.textured for kernel in self.kernels)
        return (
            f"{textured} of {len(self.kernels)} kernels use them, {self.share:.0%} of the arithmetic; "
            f"{len(self.images)} of {len(self.weights)} weights are images"
        )


@dataclass(frozen=True)
class OutputAccuracy:
    """One output in reduced precision against float32, over all samples. Figures have three digits."""

    name: str
    dtype: str
    finite: bool
    """False: NaN or infinity where float32 has a number; the errors then leave those elements out."""
    magnitude: float
    """Largest absolute value in float32."""
    max_abs: float
    """Largest absolute difference."""
    max_rel: float
    """Largest absolute difference over the magnitude; 0 when both are all zero."""
    mean_abs: float
    """Mean absolute difference."""
    cosine: float
    """Cosine of the angle between the two, the smallest of all samples."""
    top1: float | None
    """Share of the rows whose largest element stayed the same; None where rows are no probabilities."""
    compared: bool = True
    """False: no element is finite in both, so nothing is known; the figures then say nothing."""


@dataclass(frozen=True)
class Overflow:
    """A value of the float32 model that half precision cannot hold."""

    name: str
    """Relax variable of the imported module, or an input's name."""
    op: str
    """Operator that gives it, without ``relax.``; ``input`` for an input."""
    magnitude: float
    """Its largest absolute value."""


@dataclass(frozen=True)
class Accuracy:
    """Reduced precision against float32, both computed by TVM on the machine that compiled."""

    precision: str
    inputs: str
    """Inputs that were computed on: ``random, seed 0``, or the names of the files."""
    samples: int
    outputs: tuple[OutputAccuracy, ...]
    overflows: tuple[Overflow, ...] = ()
    """Values over 65504, in order of execution; looked for only when an output is far off."""
    keep: tuple[str, ...] = ()
    """Relax variables whose operators would have to stay float32 for none of those to become half."""

    @property
    def bad(self) -> bool:
        """True if an output is far off."""
        return any(far_off(output) for output in self.outputs)


WORST_REL = 0.1
WORST_COSINE = 0.99


def far_off(output: OutputAccuracy) -> bool:
    """Return True if *output* is beyond what rounding explains."""
    wrong = output.max_rel > WORST_REL and output.cosine < 1 - (1 - WORST_COSINE) / 10
    return not output.finite or not output.compared or wrong or output.cosine < WORST_COSINE


@dataclass(frozen=True)
class LibraryShare:
    """Share of the model that one library computes."""

    library: str
    """As ``--offload`` names it."""
    ops: int
    """Operators."""
    subgraphs: int
    """Number of parts of the model that they make."""


@dataclass(frozen=True)
class OffloadReport:
    """Request of ``--offload``, and its result."""

    wanted: str
    """The libraries, in order of precedence: ``cudnn,cublas``."""
    ops: int
    """Operators that were handed over …"""
    total: int
    """Number of operators in the model."""
    subgraphs: int
    """Number of parts of the model that they make."""
    left: tuple[str, ...]
    """Operators that were not handed over, one line for each kind, with the reasons that are known."""
    shares: tuple[LibraryShare, ...] = ()
    """Share of each library; empty in packages of an older adt."""

    @property
    def summary(self) -> str:
        """The shares, for people."""
        shares = self.shares or (LibraryShare(self.wanted, self.ops, self.subgraphs),)
        parts = (f"{s.ops} to {s.library} in {s.subgraphs} subgraphs" for s in shares)
        return f"of {self.total} operators {', '.join(parts)}"


@dataclass(frozen=True)
class TuningReport:
    """Origin of the tuned kernels' schedules, and why others have none."""

    digest: str
    """Digest (sha256) of the records; the same records give the same."""
    device: str
    """On which they were taken."""
    driver: str
    """Version of its GPU's driver; empty for a CPU."""
    emulated: bool = False
    """They were taken under emulation: the times that chose them are no device's."""
    kept: tuple[str, ...] = ()
    """Kernels whose untuned schedule was faster than any candidate; they have that one."""
    refused: tuple[str, ...] = ()
    """Kernels to which their record does not apply; they have the untuned schedule."""

    @property
    def origin(self) -> str:
        """Description of the records' origin."""
        driver = f", driver {self.driver}" if self.driver else ""
        return f"records of {self.device}{driver}" + ", taken under emulation" * self.emulated
