"""Look into a package: its ``inspect/``, its parameters, and what differs from another package."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import math
import os
import re
import textwrap
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from adt.errors import PackageError
from adt.host import manifest
from adt.host.contained import contained_file, contained_name, file_name
from adt.host.disk import scratch_directory
from adt.host.manifest import fields_of
from adt.limits import parse_json, read_text
from adt.numerics import Array
from adt.package.files import INSPECT, PARAMS, inspection_names, read_tensors
from adt.package.inspection.graph import CPU_SCHEDULE, GRAPH, KERNEL, SCHEMA, SCHEMA_VERSION, Graph, Tensor
from adt.package.manifest import kind
from adt.package.package import ModelPackage, load_package

LANGUAGES = {"opencl": "OpenCL", "cuda": "CUDA"}  # languages of a GPU's kernels, by device

MOST_TEXT = 1 << 30  # bytes that a compressed text may unpack to
_FUNCTION = re.compile(
    r"^    @T\.prim_func(?:(?!^    @T\.prim_func).)*?^    def (\w+)\(.*?(?=^    @T\.prim_func|\Z)",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class CpuKernel:
    """A function that a CPU computes."""

    name: str
    calls: int
    flops: int | None
    """Operations of all calls, a multiply-add being two; None: unknown."""
    schedule: str
    """Words of the rules that scheduled it; else ``tuned``, or ``plain loops``."""


@dataclass(frozen=True)
class Inspection:
    """A package, opened to be looked into; each method reads only what it needs."""

    package: ModelPackage

    @property
    def recorded(self) -> bool:
        """True if the package still has its ``inspect/``."""
        return os.path.lexists(self._directory / GRAPH)

    @cached_property
    def graph(self) -> Graph:
        """Calls, tensors, storages and device kernels."""
        self._file(GRAPH)
        graph = manifest.load(
            Graph, self._directory / GRAPH, schema=SCHEMA, version=SCHEMA_VERSION, remedy=self._remedy
        )
        for kernel in graph.kernels:
            contained_name(kernel.file)
        for subgraph in graph.handed:
            file_name(f"{subgraph.name}.json")
        entry = self.package.manifest.entry()  # the importer has cleaned the model's own names
        tensors = _renamed(graph.tensors, "input", [spec.name for spec in entry.inputs])
        return replace(graph, tensors=_renamed(tensors, "param", entry.params))

    @property
    def textured(self) -> int:
        """Number of the package's functions with kernels that read or write textures."""
        return sum(kernel.textures > 0 for kernel in self.package.manifest.kernels)

    def sources(self, device: str = "") -> dict[str, str]:
        """Return the source of each of the GPU's kernels, by name; each compiles on its own.

        PackageError if there is none, or they are not for *device* (``opencl`` or ``cuda``; empty: any).
        """
        kernels = self.graph.kernels
        if device and not any(kernel.device == device for kernel in kernels):
            manifest_ = self.package.manifest
            raise PackageError(
                f"{manifest_.name} has no {LANGUAGES[device]} kernels: it is compiled for "
                f"{manifest_.target.name}",
                remedy=manifest_.compile_command("--target", device),
            )
        return {kernel.name: self.text(kernel.file) for kernel in kernels}

    def subgraphs(self) -> dict[str, dict[str, Any]]:
        """Return the subgraphs that libraries compute, by the library and their function's name."""
        names = {subgraph.sha256: subgraph.name for subgraph in self.graph.handed} if self.recorded else {}
        libraries: dict[str, dict[str, Any]] = {}
        for library in self.package.manifest.libraries:
            graphs = libraries[library.name] = {}
            for path in sorted((self._directory / library.name).glob("*.json")):
                text = self.text(f"{library.name}/{path.name}")
                digest = hashlib.sha256(text.removesuffix("\n").encode()).hexdigest()
                with self._undamaged(path, ValueError):
                    graphs[names.get(digest, path.stem)] = parse_json(text)
        return libraries

    def library_calls(self) -> dict[str, dict[str, int]]:
        """Count each subgraph's calls of its library's functions, by the subgraph's name."""
        graphs = {name: graph for part in self.subgraphs().values() for name, graph in part.items()}
        with self._undamaged(f"a subgraph of {self.package.place}", KeyError, TypeError):
            return {
                name: dict(Counter(str(node["name"]) for node in graph["nodes"] if node["op"] == "kernel"))
                for name, graph in graphs.items()
            }

    def text(self, name: str) -> str:
        """Read the regular file *name* below ``inspect/``, UTF-8."""
        path = self._file(name)
        with self._undamaged(path, ValueError):
            return read_text(path, MOST_TEXT)

    def relax(self) -> str:
        """Read ``main`` after the last Relax pass, as TVMScript."""
        return self.text("relax.py")

    def tir(self) -> str:
        """Read the scheduled kernels, as TVMScript."""
        return self.text("tir.py")

    def tir_functions(self) -> dict[str, str]:
        """Read the text of each scheduled kernel, by its function's name."""
        matches = _FUNCTION.finditer(self.tir())
        return {match[1]: textwrap.dedent(match[0]).rstrip() + "\n" for match in matches}

    def cpu(self) -> tuple[CpuKernel, ...]:
        """Return the kernels of a CPU and their schedules, the one with the most operations first."""
        facts = self.package.manifest
        if facts.target.device != "cpu":
            raise PackageError(
                f"{facts.name} computes on {facts.target.device}: it is compiled for {facts.target.name}",
                remedy=facts.compile_command("--target", "cpu"),
            )
        tuned = {kernel.name for kernel in facts.kernels if kernel.tuned}
        kernels = []
        for name, text in self.tir_functions().items():
            own = [call.flops for call in self.graph.calls if (call.kind, call.name) == (KERNEL, name)]
            if not own:  # a view
                continue
            words = re.search(rf'"{CPU_SCHEDULE}": "([^"]*)"', text)
            schedule = words[1] if words else "tuned" if name in tuned else "plain loops"
            flops = None if None in own else sum(filter(None, own))
            kernels.append(CpuKernel(name, len(own), flops, schedule))
        return tuple(sorted(kernels, key=lambda kernel: -(kernel.flops or 0)))

    def float_maps(self) -> tuple[tuple[str, int], ...]:
        """Return the floats that kernels write for others: kernel's name and elements, the largest first."""
        graph = self.graph
        maps = [
            (call.name, math.prod(extent for extent in tensor.shape if isinstance(extent, int)))
            for call in graph.calls
            if call.kind == KERNEL
            for index in call.outputs
            if (tensor := graph.tensors[index]).dtype.startswith("float") and index not in graph.outputs
        ]
        return tuple(sorted(maps, key=lambda row: -row[1]))

    def llvm(self) -> str:
        """Read the LLVM IR of the host's code."""
        path = self._file("host.ll.gz")
        with self._undamaged(path, OSError, EOFError, zlib.error), gzip.open(path) as file:
            text = file.read(MOST_TEXT + 1)
        if len(text) > MOST_TEXT:
            raise PackageError(f"{path} unpacks to more than {MOST_TEXT >> 20} MiB", remedy=self._remedy)
        return text.decode(errors="replace")

    def assembly(self) -> str:
        """Generate the host's code for the package's processor from :meth:`llvm`, as compiling did."""
        import tvm

        text = self.llvm()
        with scratch_directory("asm") as directory:
            file = directory / "host.ll"
            file.write_text(text)
            try:
                return str(tvm.runtime.load_module(str(file)).inspect_source("asm"))
            except Exception as error:  # TVM's loader and LLVM raise InternalError, ValueError, …
                raise PackageError(
                    f"TVM {tvm.__version__} cannot generate code from {INSPECT}/host.ll.gz: {error}",
                    remedy=f"The package was made by TVM {self.package.manifest.tvm.version}; "
                    "`adt inspect --llvm` shows what it is generated from.",
                ) from error

    def params(self) -> tuple[Param, ...]:
        """Return name, shape, size and range of each parameter, in the order of ``main``."""
        images = {name for entry in self.package.manifest.entries for name in entry.images}
        return tuple(_row(name, array, image=name in images) for name, array in load_arrays(self.package))

    def sizes(self) -> dict[str, int]:
        """Return the bytes of each file of the package; of ``inspect/`` the sum."""
        sizes = {path.name: path.stat().st_size for path in self.package.files}
        inside = [(self.package.path / name).stat().st_size for name in inspection_names(self.package.path)]
        return sizes | ({INSPECT: sum(inside)} if inside else {})

    def by_function(self) -> Mapping[str, tuple[str, ...]]:
        """Group the device kernels by the function that launches them."""
        kernels = defaultdict[str, tuple[str, ...]](tuple)
        for kernel in self.graph.kernels:
            kernels[kernel.function] += (kernel.name,)
        return dict(kernels)

    @property
    def _directory(self) -> Path:
        return self.package.path / INSPECT

    @property
    def _remedy(self) -> str:
        return f"Compile it again: {self.package.manifest.compile_command()}"

    @contextlib.contextmanager
    def _undamaged(self, what: object, *errors: type[Exception]) -> Iterator[None]:
        """Turn *errors* while *what* is read into a PackageError."""
        try:
            yield
        except errors as error:
            raise PackageError(f"{what} is damaged: {error}", remedy=self._remedy) from error

    def _file(self, name: str) -> Path:
        try:
            return contained_file(self.package.path, f"{INSPECT}/{contained_name(name)}", MOST_TEXT)
        except FileNotFoundError as error:
            raise PackageError(
                f"the package {self.package.place} has no {INSPECT}/{name}: it was left out or could not be"
                " recorded",
                remedy=self._remedy,
            ) from error


def _renamed(tensors: Sequence[Tensor], kind: str, names: Sequence[str]) -> tuple[Tensor, ...]:
    """Give *tensors* of *kind* the *names*, in order; unchanged when there are more or fewer."""
    if sum(tensor.kind == kind for tensor in tensors) != len(names):
        return tuple(tensors)
    left = iter(names)
    return tuple(replace(t, name=next(left)) if t.kind == kind else t for t in tensors)


def open_inspection(path: Path) -> Inspection:
    """Open the package *path* (a directory or .tar), to be looked into."""
    return Inspection(load_package(path))


@dataclass(frozen=True)
class Param:
    """One parameter. Its range is over finite elements; None where there are none."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    min: float | None
    max: float | None
    mean: float | None
    not_finite: int
    """Elements that are infinite or not a number."""
    image: bool = False
    """On the device it lies in an image."""


def load_arrays(package: ModelPackage) -> Iterator[tuple[str, Array]]:
    """Load name and contents of each parameter, in the order of ``main``, which may not take the last."""
    path = package.path / PARAMS
    try:
        arrays = read_tensors(path)
    except Exception as error:  # TVM's reader raises InternalError, ValueError, …
        raise PackageError(
            f"{path} is not a parameter file of TVM, or is damaged",
            remedy=f"Compile the model again: {package.manifest.compile_command()}",
            details=str(error)[-500:],
        ) from error
    order = {name: index for index, name in enumerate(package.manifest.entry().params)}
    for name in sorted(arrays, key=lambda name: (order.get(name, len(order)), name)):
        yield name, arrays[name].numpy()


def _row(name: str, array: Any, *, image: bool) -> Param:
    import numpy as np

    low = high = mean = None
    numbers = array.astype(np.float64) if array.dtype.kind not in "biu" else array
    finite = numbers[np.isfinite(numbers)]
    if finite.size:
        low, high, mean = float(finite.min()), float(finite.max()), float(finite.mean())
    missing = numbers.size - finite.size
    return Param(name, array.shape, str(array.dtype), array.nbytes, low, high, mean, missing, image)


APART = ("kernels", "files", "inspection")
"""Fields of mod.json that are compared as kernels, parameters and sizes."""


@dataclass(frozen=True)
class Difference:
    """A value that differs; None: it is not there."""

    name: str
    before: Any
    after: Any


@dataclass(frozen=True)
class Names:
    """Names that came, went, or are still there but differ."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)


@dataclass(frozen=True)
class ParamChange:
    """A parameter that both have and that differs."""

    name: str
    before: str
    """``float32[64, 3, 7, 7]``."""
    after: str
    max_abs: float | None
    """Largest difference of an element; None when shape or dtype differ."""


@dataclass(frozen=True)
class PackageDiff:
    """Everything that differs."""

    fields: tuple[Difference, ...]
    """Differences of mod.json, by dotted name."""
    kernels: Names
    """Functions; ``changed`` where the schedule or the device's source differs."""
    params: Names
    changed_params: tuple[ParamChange, ...]
    sizes: tuple[Difference, ...]
    """Files whose size in bytes differs."""
    memory: tuple[Difference, ...]
    """Planned memory in bytes, where both have recorded it."""
    identical: bool
    """The three files are the same, byte by byte."""

    @property
    def empty(self) -> bool:
        """True if nothing differs."""
        differs = self.fields or self.kernels or self.params or self.sizes or self.memory
        return self.identical and not differs


def compare(before: Inspection, after: Inspection) -> PackageDiff:
    """Compare two packages."""
    params, changed = _params(before, after)
    hashes = [[facts.sha256 for facts in i.package.manifest.files.values()] for i in (before, after)]
    recorded = before.recorded and after.recorded
    return PackageDiff(
        _changed(_fields(before), _fields(after)),
        _names(_sources(before), _sources(after)),
        params,
        changed,
        _changed(before.sizes(), after.sizes()),
        _changed(_memory(before), _memory(after)) if recorded else (),
        identical=hashes[0] == hashes[1],
    )


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Difference, ...]:
    rows = [Difference(name, before.get(name), after.get(name)) for name in dict.fromkeys([*before, *after])]
    return tuple(row for row in rows if row.before != row.after)


def _fields(inspection: Inspection) -> dict[str, Any]:
    whole = fields_of(inspection.package.manifest)
    return dict(_flat({name: value for name, value in whole.items() if name not in APART}))


def _flat(value: Any, prefix: str = "") -> list[tuple[str, Any]]:
    if isinstance(value, list | tuple) and any(isinstance(part, dict) for part in value):
        value = dict(enumerate(value))
    if isinstance(value, dict) and value:
        return [row for name, part in value.items() for row in _flat(part, f"{prefix}{name}.")]
    return [(prefix.removesuffix("."), list(value) if isinstance(value, tuple) else value)]


def _names(before: Mapping[str, Any], after: Mapping[str, Any]) -> Names:
    return Names(
        tuple(name for name in after if name not in before),
        tuple(name for name in before if name not in after),
        tuple(name for name in before if name in after and before[name] != after[name]),
    )


def _sources(inspection: Inspection) -> dict[str, Any]:
    """Collect all that is known of each kernel, to be compared."""
    facts: dict[str, Any] = {
        kernel.name: [kernel.device, kernel.textures, kernel.tuned, ""]
        for kernel in inspection.package.manifest.kernels
    }
    if inspection.recorded:
        scheduled, sources = inspection.tir_functions(), inspection.sources()
        launched = inspection.by_function()
        for name, known in facts.items():
            known[3] = scheduled.get(name, "") + "".join(sources[kernel] for kernel in launched.get(name, ()))
    return facts


def _memory(inspection: Inspection) -> dict[str, int]:
    graph = inspection.graph
    return {"storages": len(graph.storages), "total": graph.total, "peak": graph.peak} | graph.by_scope()


def _params(before: Inspection, after: Inspection) -> tuple[Names, tuple[ParamChange, ...]]:
    import numpy as np

    arrays = [dict(load_arrays(inspection.package)) for inspection in (before, after)]
    contents = [
        {name: (kind(array), hashlib.sha256(array.tobytes()).digest()) for name, array in each.items()}
        for each in arrays
    ]
    names, changes = _names(*contents), []
    for name in names.changed:
        old, new = (each[name] for each in arrays)
        largest = None
        if kind(old) == kind(new) and old.size:
            largest = float(np.abs(old.astype("float64") - new.astype("float64")).max())
        changes.append(ParamChange(name, kind(old), kind(new), largest))
    return names, tuple(changes)
