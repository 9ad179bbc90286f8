"""What a target's text asks for, whichever way it is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

NAMES = {
    "cpu": "the platform's processor",
    "opencl": "any GPU with OpenCL, tensors in buffers",
    "adreno": "Adreno GPUs, tensors in textures where that is right",
    "adreno-buffer": "Adreno GPUs, tensors in buffers",
    "mali": "Mali GPUs",
    "host": "this machine's own processor, with all that it offers",
}
"""adt's targets, and what each is for."""


@dataclass(frozen=True)
class Asked:
    """A target as it was asked for."""

    name: str
    """One of NAMES."""
    triple: str = ""
    """The machine's triple, when the text has one."""
    platform: str = ""
    """The platform that the triple, or ``host``, stands for; empty: the text says nothing of it."""
    cpu: str = ""
    """The processor, as ``--cpu`` takes it."""
    gpu: Mapping[str, Any] = field(default_factory=dict)
    """Attributes of TVM's opencl target."""
    llvm: Mapping[str, Any] = field(default_factory=dict)
    """Further attributes of TVM's llvm target."""
    left_out: tuple[str, ...] = ()
    """What has no meaning any more."""

    plain: bool = False
    """It is adt's own name, without more."""

    @property
    def words(self) -> str:
        """The same as options of ``adt compile``."""
        words = [f"--target {self.name}"]
        if self.cpu:
            words.append(f"--cpu {self.cpu}")
        if self.platform and self.name != "host":
            words.insert(0, f"--for {self.platform}")
        more = [f"{key}={value}" for key, value in {**self.gpu, **self.llvm}.items()]
        return " ".join(words) + (f" with {', '.join(more)}" if more else "")
