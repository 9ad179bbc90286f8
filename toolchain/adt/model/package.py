"""ModelPackage: ``mod.so``, ``mod.params`` and ``mod.json`` in one directory.

``mod.json`` is read here and, on the device, by ``cpp_runner/``; a change of
its schema changes both and raises SCHEMA_VERSION.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adt.errors import PackageError
from adt.host import manifest
from adt.host.cache import file_sha256

SCHEMA = "adt.model-package"
SCHEMA_VERSION = 1
MANIFEST = "mod.json"
LIBRARY = "mod.so"
PARAMS = "mod.params"


@dataclass(frozen=True)
class TensorSpec:
    """One input or output."""

    name: str
    shape: tuple[int | str, ...]
    """Extents; a string is a symbolic dimension."""
    dtype: str
    """As TVM and numpy spell it: ``float32``, ``int64``, ``bool``, …"""


@dataclass(frozen=True)
class Entry:
    """One function of the module that a caller may run."""

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    params: tuple[str, ...]
    """Keys of ``mod.params``, in the order in which they follow the inputs."""


@dataclass(frozen=True)
class SourceModel:
    """The trained model that the package was made from."""

    file: str
    """Its file name, without directories."""
    format: str
    """``onnx``, …"""
    sha256: str


@dataclass(frozen=True)
class PackageTarget:
    """What the package runs on."""

    name: str
    """adt's name of the target: ``cpu``, ``opencl``, …"""
    device: str
    """Device that the entry's tensors live on: ``cpu`` or ``opencl``."""
    platform: str
    """``android-arm64-v8a``, ``linux-aarch64`` or ``host``."""
    triple: str
    machine: str
    """ELF machine of mod.so (``AARCH64``, ``X86_64``)."""
    spec: dict[str, Any]
    """TVM's target dictionary."""
    vdevices: tuple[str, ...]
    """Device of each virtual device of the VM, in order; the VM takes one device for each."""


@dataclass(frozen=True)
class PackageTvm:
    """Which TVM compiled the package."""

    version: str
    ffi_version: str
    context_symbols: tuple[str, ...]
    """Context symbols that mod.so defines and a runner must fill (its module ABI)."""


@dataclass(frozen=True)
class Kernel:
    """One generated function."""

    name: str
    device: str
    tuned: bool


@dataclass(frozen=True)
class PackageLike:
    """The device that the package was compiled for in particular (``adt compile --like``)."""

    device: str
    """What it is, for people."""
    soc: str
    gpu: str
    """Empty where the device does not say."""
    opencl_driver: str
    """Driver version of the OpenCL device; empty without one."""
    fp16: bool | None
    """OpenCL kernels may compute in half precision; None without an OpenCL device."""
    opencl_extensions: tuple[str, ...]
    opencl_limits: dict[str, int]
    """The device's limits, as attributes of TVM's opencl target."""
    cpu_features: tuple[str, ...]
    """LLVM features that every CPU has; code that uses them ends with SIGILL on a CPU without."""


@dataclass(frozen=True)
class PackageFile:
    """One of the other two files."""

    sha256: str
    size: int
    """Bytes."""
    needed: tuple[str, ...] = ()
    """DT_NEEDED of mod.so."""


@dataclass(frozen=True)
class PackageManifest:
    """``mod.json``."""

    adt_version: str
    name: str
    """Short name of the model: letters, digits, ``_`` and ``-``."""
    source: SourceModel
    entries: tuple[Entry, ...]
    target: PackageTarget
    tvm: PackageTvm
    alignment: int
    """Bytes: mod.so assumes that every tensor's data is aligned to this; the runtime must give it."""
    precision: str
    """``float32``, ``float16_acc32`` or ``float16``."""
    offload: str
    """``none``, ``clml`` or ``nnapi``."""
    kernels: tuple[Kernel, ...]
    tuned: int
    """How many kernels come from tuning records …"""
    total: int
    """… of how many."""
    files: dict[str, PackageFile] = field(default_factory=dict)
    """``mod.so`` and ``mod.params``."""
    like: PackageLike | None = None
    """The device it was compiled for; None: any device of its platform."""
    schema: str = SCHEMA
    schema_version: int = SCHEMA_VERSION

    def entry(self, name: str = "main") -> Entry:
        """The entry function *name*.

        Raises:
            PackageError: there is none of that name.
        """
        for candidate in self.entries:
            if candidate.name == name:
                return candidate
        names = ", ".join(e.name for e in self.entries)
        raise PackageError(f"the package has no entry {name!r}", remedy=f"It has: {names}.")


@dataclass(frozen=True)
class ModelPackage:
    """A package on disk."""

    path: Path
    manifest: PackageManifest

    @property
    def files(self) -> tuple[Path, ...]:
        """The three files, mod.json last."""
        return (self.path / LIBRARY, self.path / PARAMS, self.path / MANIFEST)


def load_package(path: Path, *, check_hashes: bool = True) -> ModelPackage:
    """Open the package in the directory *path*.

    Raises:
        PackageError: it is no package, of another schema, or a file was changed.
    """
    remedy = f"Compile the model again: adt compile MODEL -o {path}"
    found = manifest.load(
        PackageManifest, path / MANIFEST, schema=SCHEMA, version=SCHEMA_VERSION, remedy=remedy
    )
    for name in (LIBRARY, PARAMS):
        file = path / name
        if name not in found.files:
            raise PackageError(f"{path / MANIFEST} does not describe {name}", remedy=remedy)
        if not file.is_file():
            raise PackageError(f"the package {path} lacks {name}", remedy=remedy)
        if check_hashes and file_sha256(file) != found.files[name].sha256:
            raise PackageError(f"{file} is not the file that mod.json describes", remedy=remedy)
    return ModelPackage(path, found)
