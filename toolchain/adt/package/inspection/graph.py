"""``inspect/graph.json``: what a package computes, call by call, and where its tensors lie."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from adt.host.document import form

GRAPH = "graph.json"
SCHEMA = "adt.inspection-graph"
SCHEMA_VERSION = 1

KERNEL, BUILTIN, EXTERN, FUNCTION = "kernel", "builtin", "extern", "function"
"""Kinds of a call: a generated kernel, one of the VM's own, something a library computes (CLML),
or another Relax function of the module."""

CPU_SCHEDULE = "adt.cpu_schedule"
"""Attribute of a PrimFunc that was scheduled for a CPU by rules: how, in a few words."""
CPU_FINISH = "adt.cpu_finish"  # annotation of a scheduled kernel for a CPU: what is still done with it
GLOBAL = "global"
"""The memory scope of plain buffers; textures have one that starts with ``global.texture``."""


@dataclass(frozen=True)
class Tensor:
    """One value that calls read and write."""

    name: str
    """As in the Relax text; for inputs and parameters the name they have in ``main``."""
    kind: str
    """``input``, ``param``, ``constant``, ``value``, or ``view`` (a reshape of a value, in its memory)."""
    shape: tuple[int | str, ...]
    """Extents; a string is symbolic."""
    dtype: str
    bytes: int | None
    """Bytes of its elements; None when an extent is symbolic."""
    storage: int | None = None
    """Index of the storage that it lies in; None for what the caller or a builtin provides."""
    scope: str = GLOBAL
    """Memory scope: ``global``, ``global.texture-nhwc``, …"""

    @property
    def texture(self) -> bool:
        """True if it lies in an image."""
        return "texture" in self.scope


@dataclass(frozen=True)
class Call:
    """One step of ``main``, in the order of execution."""

    name: str
    """The kernel's function, the builtin, or the library function."""
    kind: str
    """See :data:`KERNEL` and its neighbours."""
    inputs: tuple[int, ...]
    """Indices of tensors."""
    outputs: tuple[int, ...]
    """Indices of tensors."""
    flops: int | None = None
    """Operations of one call, a multiply-add being two; None: unknown, or it is no kernel."""


@dataclass(frozen=True)
class Storage:
    """Memory that ``main`` allocates, shared by tensors that do not live at the same time."""

    bytes: int | None
    """None when it depends on a symbolic extent."""
    scope: str
    vdevice: int
    """Index of the virtual device that it is on."""
    first: int
    """Index of the first call that can use it …"""
    last: int
    """Index of the last."""


@dataclass(frozen=True)
class DeviceKernel:
    """One kernel of the device's program; a function may launch several."""

    name: str
    """As in the source."""
    function: str
    """The function of the module that launches it."""
    textures: tuple[str, ...]
    """Arguments that are images, with their access: ``read_only x``."""
    buffers: tuple[str, ...]
    """Arguments that are pointers."""
    grid: tuple[int | str, ...] = field(metadata=form("work_groups"))
    """Work-groups along x, y, z; empty when unknown. A string is symbolic."""
    block: tuple[int | str, ...] = field(metadata=form("work_items"))
    """Work-items of a group along x, y, z."""
    file: str
    """Its source, below ``inspect/``."""
    lines: int

    @property
    def device(self) -> str:
        """Language that it is written for: ``opencl`` or ``cuda``."""
        return self.file.partition("/")[0]


@dataclass(frozen=True)
class Subgraph:
    """A subgraph that a vendor's library computes."""

    name: str
    """The library function's, as in the call."""
    sha256: str
    """Digest (sha256) of its description in ``inspect/``, without the newline at the end."""


@dataclass(frozen=True)
class Graph:
    """All of it."""

    tensors: tuple[Tensor, ...]
    calls: tuple[Call, ...]
    storages: tuple[Storage, ...]
    outputs: tuple[int, ...]
    """Tensors that ``main`` returns."""
    kernels: tuple[DeviceKernel, ...] = ()
    """Kernels of the GPU's program; none for the CPU."""
    handed: tuple[Subgraph, ...] = ()
    """Subgraphs that libraries compute."""
    schema: str = SCHEMA
    schema_version: int = SCHEMA_VERSION

    @property
    def total(self) -> int:
        """Bytes of all storages together."""
        return sum(storage.bytes or 0 for storage in self.storages)

    @property
    def peak(self) -> int:
        """Bytes of the storages that live at the same time, at the worst call."""
        return max(
            sum(s.bytes or 0 for s in self.storages if s.first <= at <= s.last)
            for at in range(max(1, len(self.calls)))
        )

    @property
    def unplanned(self) -> int:
        """Bytes that the values would take if each had memory of its own."""
        return sum(t.bytes or 0 for t in self.tensors if t.kind == "value" and t.storage is not None)

    def by_scope(self) -> dict[str, int]:
        """Sum the bytes of the storages in each memory scope."""
        sizes: Counter[str] = Counter()
        for storage in self.storages:
            sizes[storage.scope] += storage.bytes or 0
        return dict(sizes)

    def device_of(self, call: Call) -> str:
        """Tell where *call* runs: ``opencl``, ``cuda``, ``cpu``, ``library`` (a vendor's), ``vm``."""
        if call.kind in (BUILTIN, EXTERN):
            return "vm" if call.kind == BUILTIN else "library"
        return next((kernel.device for kernel in self.kernels if kernel.function == call.name), "cpu")

    def textures_of(self, function: str) -> int:
        """Count the image arguments of the kernels of *function*."""
        return sum(len(kernel.textures) for kernel in self.kernels if kernel.function == function)


def size_of(shape: Sequence[int | str], dtype: str) -> int | None:
    """Compute the bytes of a dense tensor; None when an extent is symbolic or the type has no fixed size."""
    kind = re.match(r"(?:bool|[a-z]+(\d+))(?:_\w+?)?(?:x(\d+))?$", dtype)
    extents = [extent for extent in shape if isinstance(extent, int)]
    if kind is None or len(extents) < len(shape):
        return None
    return (math.prod(extents) * int(kind[1] or 8) * int(kind[2] or 1) + 7) // 8
