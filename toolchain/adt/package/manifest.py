"""``mod.json``, the description of a ModelPackage, and checks of arrays against the inputs in it.

It is read here and, on the device, by ``cpp_runner/``. Both pass over fields that they do
not know, so a new field has a default and raises nothing. A feature that a reader must know
of, to read a package that has it, is named in :attr:`PackageManifest.requires` of that package,
and refused by readers that do not know it. SCHEMA_VERSION is raised when a field that was there changes.
``schemas/mod.schema.json`` is generated from these classes (docs/generate.py).
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Any

from adt.bundle.libraries import LIBRARIES, NONE, Library, parse_libraries
from adt.bundle.platforms import PLATFORMS
from adt.errors import InputError, PackageError
from adt.host import manifest
from adt.host.artefact import PACKAGE, not_a
from adt.host.cache import file_sha256
from adt.limits import MOST_ELEMENTS
from adt.numerics import Array
from adt.package.files import LIBRARY, PARAMS, is_inside
from adt.package.reports import Accuracy, Convolution, OffloadReport, TextureReport, TuningReport

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    Given = Mapping[str, ArrayLike]

SCHEMA = "adt.model-package"
SCHEMA_VERSION = 5
OLDER_VERSIONS = (2, 3, 4)
"""Versions that are read, too: 2 has no weights in images, 3 says nothing of an input's values, and readers
of 4 refuse fields that they do not know."""

INDEX, USUAL, UNKNOWN = "index", "usual", "unknown"
"""Kinds of knowledge about an integer input: values outside the range would read other memory; it is
usually in the range; or it becomes an index by a calculation, so that no value can be made up."""


@dataclass(frozen=True)
class ValueRange:
    """Range of the integers that an input takes, as far as the model's graph or the input's name tells."""

    meaning: str
    """``index``: a runner refuses values outside. ``usual``: such ones are made up, others are taken.
    ``unknown``: none can be made up; where ``least`` and ``most`` differ, it is an ``index``, too."""
    least: int
    """An index below 0 counts from the end; made-up ones are not negative."""
    most: int

    @property
    def is_index(self) -> bool:
        """True if a runner refuses values outside."""
        return self.meaning == INDEX or (self.meaning == UNKNOWN and self.least < self.most)


@dataclass(frozen=True)
class TensorSpec:
    """One input or output."""

    name: str
    shape: tuple[int | str, ...]
    """Extents; a string is a symbolic dimension."""
    dtype: str
    """As TVM and numpy spell it: ``float32``, ``int64``, ``bool``, …"""
    values: ValueRange | None = None
    """Range of an integer input; None: any."""


@dataclass(frozen=True)
class Entry:
    """One function of the module that a caller may run."""

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    params: tuple[str, ...]
    """Keys of ``mod.params``, in the order in which they follow the inputs."""
    images: tuple[str, ...] = ()
    """Names of those of :attr:`params` that the entry takes as images: tensors of the memory scope
    ``global.texture``, ``(layers…, height, width, 4)``. Whoever loads the package fills them once."""
    unused: tuple[TensorSpec, ...] = ()
    """Inputs of the model that its outputs do not depend on; the entry does not take them."""


@dataclass(frozen=True)
class SourceModel:
    """The trained model that the package was made from."""

    file: str
    """Its file name, without directories."""
    format: str
    """``onnx``, …"""
    sha256: str

    def compile_command(self, *options: str) -> str:
        """Return the command that compiles it again, with *options*; any file name is one word of it."""
        file = f"./{self.file}" if self.file.startswith("-") else self.file
        return join(["adt", "compile", file, *options])


@dataclass(frozen=True)
class PackageTarget:
    """Target that the package runs on."""

    name: str
    """Name of the target in adt: ``cpu``, ``opencl``, …"""
    device: str
    """Device that the entry's tensors live on: ``cpu``, ``opencl`` or ``cuda``."""
    platform: str
    """``android-arm64-v8a``, ``linux-aarch64`` or ``host``."""
    triple: str
    machine: str
    """ELF machine of mod.so (``AARCH64``, ``X86_64``)."""
    spec: dict[str, Any]
    """TVM's target dictionary."""
    vdevices: tuple[str, ...]
    """Device of each virtual device of the VM, in order; the VM takes one device for each."""
    cpu_features: tuple[str, ...] = ()
    """Features that every CPU must offer on top of the platform, in the kernel's names (``asimddp``,
    ``avx2``)."""

    @property
    def for_this_machine(self) -> bool:
        """True if it is the machine that adt runs on."""
        return (self.platform, self.machine) == ("host", PLATFORMS["host"].machine)


@dataclass(frozen=True)
class PackageTvm:
    """TVM that compiled the package."""

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
    """Its schedule is that of a tuning record."""
    textures: int = 0
    """Number of its arguments that are images (OpenCL textures)."""


@dataclass(frozen=True)
class PackageLike:
    """The device that the package was compiled for in particular (``adt compile --like``)."""

    device: str
    """Description of the device."""
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
    compute_units: int = 0
    """Compute units of the OpenCL device; 0: it does not say."""


@dataclass(frozen=True)
class CompilationRecord:
    """Record of how the package was made: what no runner needs to know."""

    settings: dict[str, Any] = field(default_factory=dict)
    """The [compile] settings it was compiled with."""
    textures: TextureReport | None = None
    """Report on textures, and why the rest is in buffers; None: the target has none."""
    blocked: tuple[Convolution, ...] = ()
    """For a GPU without textures what became of each convolution and matrix product: whether its channels are
    blocked, and why."""
    integers: tuple[Convolution, ...] = ()
    """Result for each convolution and product of a quantized model, where integers are summed: whether it
    does so, and why not."""
    accuracy: Accuracy | None = None
    """Reduced precision against float32; None: it is float32, or was not measured."""
    offload: OffloadReport | None = None
    """Report on what a vendor's library got; None: nothing was to go."""
    tuning: TuningReport | None = None
    """The tuning records that it was compiled with; None: without any."""
    functions: tuple[str, ...] = ()
    """Functions of the runtime that the code calls; empty in packages of an older adt, which did not say."""
    quanta: dict[str, float] = field(default_factory=dict)
    """Float outputs that are dequantised integers → one step of the integers."""
    half: bool = False
    """There are float16 tensors: the precision is reduced, or the model itself is in half precision."""

    @property
    def blocked_summary(self) -> str:
        """``20 of 21 convolutions and products are in blocks of four channels, 99% of the arithmetic``."""
        return _share(self.blocked, "in blocks of four channels")

    @property
    def integer_summary(self) -> str:
        """``20 of 21 convolutions and products are in integers, 99% of the arithmetic``."""
        return _share(self.integers, "in integers")


def _share(operators: Sequence[Convolution], words: str) -> str:
    """Say how many of *operators* became what *words* say, and their share of the multiplications."""
    done = [operator.macs for operator in operators if not operator.reason]
    share = sum(done) / max(1, sum(operator.macs for operator in operators))
    counts = f"{len(done)} of {len(operators)} convolutions and products"
    return f"{counts} are {words}, {share:.0%} of the arithmetic"


@dataclass(frozen=True)
class PackageFile:
    """One of the other files."""

    sha256: str
    size: int
    """Bytes."""
    needed: tuple[str, ...] = ()
    """DT_NEEDED of mod.so."""

    @classmethod
    def of(cls, path: Path, needed: tuple[str, ...] = ()) -> PackageFile:
        """Describe the file *path*."""
        return cls(file_sha256(path), path.stat().st_size, needed)


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
    """``none``, or names of libraries that compute a part: ``cudnn,cublas``."""
    kernels: tuple[Kernel, ...]
    tuned: int
    """Number of kernels that come from tuning records."""
    total: int
    """Number of kernels in all."""
    files: dict[str, PackageFile] = field(default_factory=dict)
    """``mod.so`` and ``mod.params``."""
    like: PackageLike | None = None
    """The device it was compiled for; None: any device of its platform."""
    made: CompilationRecord = field(default_factory=CompilationRecord)
    inspection: dict[str, PackageFile] = field(default_factory=dict)
    """Files below ``inspect/``, for `adt inspect`; a package without them works, and no device gets them."""
    requires: tuple[str, ...] = ()
    """Features that a reader must know of; none so far."""
    schema: str = SCHEMA
    schema_version: int = SCHEMA_VERSION

    @property
    def libraries(self) -> tuple[Library, ...]:
        """The libraries that compute a part of it."""
        return parse_libraries(self.offload)

    @property
    def needs_half(self) -> bool:
        """True if its kernels need an OpenCL device that computes in half precision."""
        return self.target.device == "opencl" and (self.made.half or self.precision != "float32")

    def compile_command(self, *options: str) -> str:
        """Return the command that compiles the package again for its platform, with *options*."""
        return self.source.compile_command("--for", self.target.platform, *options)

    def entry(self, name: str = "main") -> Entry:
        """Return the entry function *name*."""
        entries = {entry.name: entry for entry in self.entries}
        if name not in entries:
            raise PackageError(f"the package has no entry {name!r}", remedy=f"It has: {', '.join(entries)}.")
        return entries[name]


def read_manifest(path: Path, *, remedy: str) -> PackageManifest:
    """Read the file mod.json; PackageError if it is missing, of another schema, or a field is wrong."""
    if not os.path.lexists(path):
        raise not_a(PACKAGE, path.parent)
    facts = manifest.load(
        PackageManifest,
        path,
        schema=SCHEMA,
        version=SCHEMA_VERSION,
        older=OLDER_VERSIONS,
        remedy=remedy,
        pass_over=True,
    )
    if facts.requires:
        raise PackageError(
            f"{path} requires {facts.requires[0]!r}, which this adt does not know",
            remedy="Use the adt that compiled the package, or a newer one.",
        )
    if fault := _fault(facts):
        raise PackageError(f"{path}: {fault}", remedy=remedy)
    return facts


def _fault(facts: PackageManifest) -> str:
    """Find a fault of well-typed *facts* that ``rtvm`` refuses, too; empty if there is none."""
    if unknown := set(facts.offload.split(",")) - {NONE, *LIBRARIES}:
        return f"it needs the library {min(unknown)!r}, which this adt does not know"
    if foreign := facts.files.keys() - {LIBRARY, PARAMS}:
        return f"files lists {min(foreign)!r}"
    if outside := [name for name in facts.inspection if not is_inside(name)]:
        return f"inspection lists {outside[0]!r}"
    for entry in facts.entries:
        for spec in (*entry.inputs, *entry.outputs):
            extents = [extent for extent in spec.shape if isinstance(extent, int)]
            if any(extent < 0 for extent in extents):
                return f"{spec.name!r} has a negative extent"
            if math.prod(extents) > MOST_ELEMENTS:
                return f"{spec.name!r} has more than {MOST_ELEMENTS:,} elements"
            if spec.values and spec.values.meaning not in (INDEX, USUAL, UNKNOWN):
                return f"the values of {spec.name!r} mean {spec.values.meaning!r}"
        if unknown := set(entry.images) - set(entry.params):
            return f"images lists {min(unknown)!r}, which is none of params"
        if entry.images and facts.target.device != "opencl":
            return f"entries have images, and the target is {facts.target.device!r}"
    return ""


def taken_inputs(entry: Entry, inputs: Given) -> dict[str, Array]:
    """Return *inputs* as arrays, without those of the model that *entry* does not take."""
    unused, specs = {spec.name for spec in entry.unused}, {spec.name: spec for spec in entry.inputs}
    return {name: _array(name, each, specs.get(name)) for name, each in inputs.items() if name not in unused}


def _array(name: str, value: Any, spec: TensorSpec | None) -> Array:
    """Return *value* as an array; lists and numbers, which have no type of their own, take that of *spec*."""
    import numpy as np

    try:
        array: Array = np.asarray(value)
        typed = array.astype(spec.dtype) if spec and not hasattr(value, "dtype") else array
    except (TypeError, ValueError) as error:
        remedy = "Give an array, or lists of numbers, of equal length at each depth."
        raise InputError(f"input {name} is no array: {error}", remedy=remedy) from error
    return typed if typed.dtype.kind == "f" or np.array_equal(typed, array) else array


def check_inputs(model: str, entry: Entry, inputs: Mapping[str, Array]) -> None:
    """Check that *inputs* are those of *entry*, by name, of its shapes and dtypes."""
    check_arrays("input", f"{model} takes", entry.inputs, "given:", inputs)
    for spec in entry.inputs:
        _check_values(spec, inputs[spec.name])


def check_arrays(
    role: str, model: str, specs: Sequence[TensorSpec], source: str, arrays: Mapping[str, Array]
) -> None:
    """Check *arrays*, of a *source* such as "FILE has", against what a model such as "NAME takes"."""
    if {spec.name for spec in specs} != set(arrays):
        names = ", ".join(spec.name for spec in specs) or f"no {role}s"
        raise InputError(
            f"{model} {names}; {source} {', '.join(arrays) or 'none'}",
            remedy=f"Name each {role} as the model does.",
        )
    for spec in specs:
        if not fits(spec, arrays[spec.name]):
            raise InputError(
                f"{role} {spec.name}: {model} {kind(spec)}; {source} {kind(arrays[spec.name])}",
                remedy="Convert the array to that shape and dtype.",
            )


def _check_values(spec: TensorSpec, array: Array) -> None:
    """Check that indices are in their range."""
    values = spec.values
    if values is None or not values.is_index:
        return
    numbers: NDArray[np.int64] = array.astype("int64")
    wrong = numbers[(numbers < values.least) | (numbers > values.most)]
    if wrong.size:
        raise InputError(
            f"input {spec.name} has the value {wrong.flat[0]}; the model takes {values.least} to "
            f"{values.most}: it picks elements of a tensor by them",
            remedy="Give values in that range, made for this very model (its own tokenizer, its own table).",
        )


def fits(spec: TensorSpec, array: Array) -> bool:
    """Return True if *array* has the dtype of *spec*, and its shape where that is fixed."""
    if str(array.dtype) != spec.dtype or array.ndim != len(spec.shape):
        return False
    pairs = zip(spec.shape, array.shape, strict=True)
    return all(isinstance(want, str) or want == have for want, have in pairs)


def kind(tensor: TensorSpec | Array) -> str:
    """Format type and shape: ``float32[1, 3, 224, 224]``."""
    return f"{tensor.dtype}[{', '.join(map(str, tensor.shape))}]"
