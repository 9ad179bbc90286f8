"""Record of what a compile made, taken while it is still there to be looked at."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tvm
from tvm import tirx

from adt.compiler.importers.functions import GPU_KINDS
from adt.compiler.ir.nodes import extents, tir_nodes
from adt.compiler.lowered import read_main
from adt.errors import last_line
from adt.host import manifest
from adt.package.files import INSPECT, inspection_names
from adt.package.graphs import PLAIN, compress, kernels_of
from adt.package.inspection.graph import GRAPH, DeviceKernel, Subgraph
from adt.package.manifest import PackageFile

log = logging.getLogger("adt.compile")

MOST_NAME = 120  # characters of a kernel's name in its file's; fused kernels can have very long ones
KERNELS = ("llvm", *GPU_KINDS)  # kinds of modules with generated code
EXTENSIONS = {"opencl": "cl", "cuda": "cu"}
"""Extensions of the source of a kernel, by the kind of its module."""
THREADS = ("x", "y", "z")


def record(package: Path, lowered: Any, executable: Any, plain: Mapping[str, Any]) -> dict[str, int]:
    """Write ``inspect/`` into *package*; return the number of image arguments of each function's kernels.

    A part that this TVM cannot show is left out with a warning; the package is none the worse. *lowered* is
    the module after the last Relax pass, *plain* has the kernels before they were scheduled, by name.
    """
    directory = package / INSPECT
    directory.mkdir(exist_ok=True)
    kernels: tuple[DeviceKernel, ...] = ()
    functions = kernels_of(lowered)
    with _part("the kernels' source"):
        kernels = tuple(_kernels(executable, functions, directory))
    with _part("the graph"):
        graph = replace(read_main(lowered), kernels=kernels, handed=tuple(_handed(executable)))
        manifest.write(graph, directory / GRAPH)
    with _part("Relax and TIR"):
        _write_scripts(lowered, functions, directory)
    with _part("the kernels before their schedules"):
        (directory / PLAIN).write_bytes(compress(plain))
    with _part("LLVM IR"):
        texts = [module.inspect_source("ll") for module in _modules(executable) if module.kind == "llvm"]
        # Its assembly is generated from it when somebody asks: that takes as long as the compile did.
        text = _without_addresses("\n".join(texts))
        (directory / "host.ll.gz").write_bytes(gzip.compress(text.encode(), 6, mtime=0))
    return Counter(kernel.function for kernel in kernels for _ in kernel.textures)


def recorded_files(package: Path) -> dict[str, PackageFile]:
    """Describe every file below ``inspect/`` of the directory *package*, for mod.json."""
    return {name: PackageFile.of(package / name) for name in inspection_names(package)}


@contextlib.contextmanager
def _part(what: str) -> Iterator[None]:
    try:
        yield
    except OSError:  # the disk: nothing else can be written, either
        raise
    except Exception as error:  # TVM raises InternalError, TypeError, …; the model itself is compiled
        log.warning("%s could not be recorded for `adt inspect`: %s", what, last_line(error))
        log.debug("why", exc_info=True)


def _without_addresses(text: str) -> str:
    """Number the alias sets of LLVM IR, which TVM names by addresses in the compiler's memory."""
    numbers: dict[str, str] = {}
    return re.sub(
        r'(?<=!")0x[0-9a-f]+', lambda match: numbers.setdefault(match[0], f"buffer{len(numbers)}"), text
    )


def _modules(executable: Any) -> Iterator[Any]:
    """Yield every runtime module of the executable, each once."""
    pending: list[Any] = [executable.mod]
    seen: list[Any] = []
    while pending:
        module = pending.pop(0)
        if module not in seen:
            seen.append(module)
            pending.extend(module.imports)
            yield module


def _handed(executable: Any) -> Iterator[Subgraph]:
    """Yield the subgraphs of libraries that the executable carries."""
    for module in _modules(executable):
        # asked for a function, a GPU's module wants a runtime
        own = module.kind not in KERNELS and module.implements_function("get_symbol", query_imports=False)
        if own and (text := str(module.inspect_source("json"))):
            yield Subgraph(str(module["get_symbol"]()), hashlib.sha256(text.encode()).hexdigest())


def _kernels(executable: Any, functions: Mapping[str, Any], directory: Path) -> Iterator[DeviceKernel]:
    sources = [
        (module.kind, kernel)
        for module in _modules(executable)
        if module.kind in GPU_KINDS
        for kernel in split_program(module.inspect_source())
    ]
    place: Counter[str] = Counter()
    for kind, source in sources:
        (directory / kind).mkdir(exist_ok=True)
        function, name = source.function, source.name
        nests = _nests(functions[function].body) if function in functions else []
        of_function = sum(other.function == function for _, other in sources)
        grid, block = _extents(nests[place[function]]) if len(nests) == of_function else ((), ())
        place[function] += 1
        if len(name) > MOST_NAME:
            name = f"{name[:MOST_NAME]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
        file, lines = f"{kind}/{name}.{EXTENSIONS[kind]}", source.text.count("\n")
        (directory / file).write_text(source.text)
        yield DeviceKernel(source.name, function, source.textures, source.buffers, grid, block, file, lines)


Extents = tuple[int | str, ...]


def _nests(statement: Any) -> list[Any]:
    """Return the outermost statements of a scheduled function that are each a kernel."""
    if isinstance(statement, tirx.SeqStmt):
        return [nest for part in statement.seq for nest in _nests(part)]
    if isinstance(statement, tirx.SBlockRealize):
        return _nests(statement.block)
    return _nests(statement.body) if isinstance(statement, tirx.SBlock) else [statement]


def _extents(nest: Any) -> tuple[Extents, Extents]:
    loops = [loop for loop in tir_nodes(nest, tirx.For) if loop.thread_binding is not None]
    names = [str(loop.thread_binding.thread_tag) for loop in loops]
    sizes = dict(zip(names, extents(loop.extent for loop in loops), strict=True))
    if not sizes:
        return (), ()
    return (
        tuple(sizes.get(f"blockIdx.{axis}", 1) for axis in THREADS),
        tuple(sizes.get(f"threadIdx.{axis}", 1) for axis in THREADS),
    )


def _write_scripts(module: Any, functions: Mapping[str, Any], directory: Path) -> None:
    for file, are_kernels in (("relax.py", False), ("tir.py", True)):
        part = {v: f for v, f in module.functions_items() if (str(v.name_hint) in functions) == are_kernels}
        (directory / file).write_text(tvm.IRModule(part).script(show_meta=False) + "\n")


SECTION = re.compile(r"^// Function: (\S+)\n", re.MULTILINE)
PROTOTYPE = re.compile(r"^__kernel [^\n{]*?(\w+)\(([^\n{]*)\);\n", re.MULTILINE)
DEFINITION = re.compile(r"__kernel [^{;]*?(\w+)\(([^{;]*)\)\s*\{")
CUDA = re.compile(
    r'^extern "C" __global__ void (?:__launch_bounds__\(\d+\) )?(\w+)\(([^{;]*)\) \{\n.*?^}\n',
    re.MULTILINE | re.DOTALL,
)
CUDA_PROTOTYPE = re.compile(r'^extern "C" __global__ void [^{;\n]*;\n', re.MULTILINE)
IMAGE = re.compile(r"\bimage[123]d(?:_array)?_t\b")
ACCESS = re.compile(r"\b_*(read_only|write_only|read_write)\b")  # without one, an image is read
LAUNCHED = re.compile(r"_kernel(?:_\d+)?$")


@dataclass(frozen=True)
class KernelSource:
    """One kernel of the program."""

    name: str
    textures: tuple[str, ...]
    """Image arguments with their access: ``read_only x``."""
    buffers: tuple[str, ...]
    """Names of pointer arguments."""
    text: str
    """Compiles on its own; begins with a comment that names the images."""

    @property
    def function(self) -> str:
        """The module's function that launches it."""
        return LAUNCHED.sub("", self.name)


def split_program(program: str) -> tuple[KernelSource, ...]:
    """Split *program* into kernels; OpenCL's sections repeat all prototypes, CUDA's share a beginning."""
    definitions = list(CUDA.finditer(program))
    if not definitions:
        _, *parts = SECTION.split(program)
        return tuple(map(_kernel, parts[::2], parts[1::2]))
    common = CUDA_PROTOTYPE.sub("", program[: definitions[0].start()]).strip()
    return tuple(
        KernelSource(match[1], (), _arguments(match[2])[1], f"{common}\n{match[0]}") for match in definitions
    )


def _kernel(name: str, section: str) -> KernelSource:
    alone = PROTOTYPE.sub("", section).strip()
    definition = next((d for d in DEFINITION.finditer(alone) if d[1] == name), None)
    textures, buffers = _arguments(definition[2]) if definition else ((), ())
    note = f"// textures: {', '.join(textures)}\n" if textures else "// textures: none\n"
    return KernelSource(name, textures, buffers, f"{note}{alone}\n")


def _arguments(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the images among a kernel's arguments, with their access, and the names of pointers."""
    textures, buffers = [], []
    for argument in text.split(","):
        name = re.findall(r"\w+", argument)[-1:]
        if IMAGE.search(argument):
            access = ACCESS.search(argument)
            textures.append(f"{access[1] if access else 'read_only'} {name[0]}")
        elif "*" in argument:
            buffers += name
    return tuple(textures), tuple(buffers)
