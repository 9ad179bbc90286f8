"""Run a package's kernels on this machine's CPU, one by one: what they should compute, by plain loops.

They run in a process of their own, which may crash or hang without harm to this one:
``python -m adt.measure.host_kernels PLAIN.json.gz``, the other side of :class:`KernelProcess`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from adt.errors import RunError, last_line
from adt.host.child import Child, ChildFailed, serve
from adt.numerics import Array
from adt.package.graphs import read_kernels, reference_file
from adt.package.package import ModelPackage

TIMEOUT = 600.0
"""Seconds for one kernel: TVM compiles it first, and plain loops are slow."""
TEXTURED = re.compile(r"_texture(_\d+)?$")
"""Suffix of the names of kernels for images (:mod:`adt.compiler.passes.gpu.placement`)."""


class NotComputable(Exception):
    """A kernel cannot be run here; the message is the reason."""


@dataclass(frozen=True)
class PlainKernel:
    """A kernel that can be run here."""

    parameters: tuple[tuple[tuple[int, ...] | None, str], ...]
    """Shape and element type of each argument; the shape is None where it is known at run time only."""
    outputs: tuple[int, ...]
    """Indices of the arguments that it writes."""
    operators: tuple[str, ...]
    """Steps that it computes, as TVM calls them (``conv2d_nchw``, ``T_add``)."""


class HostKernels:
    """The kernels of a package, compiled for this machine when they are asked for."""

    def __init__(self, functions: Mapping[str, Any]) -> None:
        """Take *functions*, each kernel before it was scheduled (``read_kernels``)."""
        self._functions = functions
        self._plain: dict[str, PlainKernel] = {}
        self._compiled: dict[str, Any] = {}

    def plain(self, name: str, writes: int = 0) -> PlainKernel:
        """Describe the kernel *name*; its last *writes* arguments are outputs, if its code is silent."""
        known = self._known(name)
        if known not in self._plain:
            self._plain[known] = _read(self._functions[known], writes)
        return self._plain[known]

    def run(self, name: str, arguments: Sequence[Array], writes: int = 0) -> tuple[Array, ...]:
        """Compute the kernel *name* on all its *arguments*, outputs too, and return what it writes."""
        import tvm

        plain = self.plain(name, writes)
        _check(plain, arguments)
        function = self._function(self._known(name))
        tensors = [tvm.runtime.tensor(array) for array in arguments]
        try:
            function(*tensors)
        except Exception as error:  # TVM raises InternalError, TypeError, …
            raise NotComputable(f"it fails on this machine: {last_line(error):.160}") from error
        return tuple(tensors[position].numpy() for position in plain.outputs)

    def _known(self, name: str) -> str:
        for candidate in (name, TEXTURED.sub("", name)):
            if candidate in self._functions:
                return candidate
        raise NotComputable("it is none of the model's kernels: a library computes it, or TVM's runtime")

    def _function(self, name: str) -> Any:
        import tvm

        from adt.compiler.targets.llvm import host_target

        if name not in self._compiled:
            function = self._functions[name].with_attr("global_symbol", name)
            try:
                self._compiled[name] = tvm.compile(tvm.IRModule({name: function}), host_target())[name]
            except Exception as error:  # whatever TVM raises, for good: kernels that are for a GPU
                reason = f"TVM cannot compile it for this machine: {last_line(error):.160}"
                raise NotComputable(reason) from error
        return self._compiled[name]


def _check(plain: PlainKernel, arguments: Sequence[Array]) -> None:
    if len(arguments) != len(plain.parameters):
        raise NotComputable(f"it takes {len(plain.parameters)} tensors, and {len(arguments)} came back")
    for number, ((shape, dtype), array) in enumerate(zip(plain.parameters, arguments, strict=True)):
        if array.dtype.name != dtype or (shape is not None and array.shape != shape):
            received = f"{array.dtype.name}{list(array.shape)} came back"
            raise NotComputable(f"its argument {number} is {dtype}{list(shape or ())}, and {received}")


def _read(function: Any, writes: int) -> PlainKernel:
    """Find arguments and what is written in the TIR; *writes* of the last ones, where it does not tell."""
    from tvm import tirx

    from adt.compiler.ir.nodes import tir_nodes

    if any(parameter not in function.buffer_map for parameter in function.params):
        raise NotComputable("it takes numbers besides tensors: its shapes are known at run time only")
    buffers = [function.buffer_map[parameter] for parameter in function.params]
    threads = any(loop.thread_binding is not None for loop in tir_nodes(function.body, tirx.For))
    keys = [str(node.attr_key) for node in tir_nodes(function.body, tirx.AttrStmt)]
    if threads or "thread_extent" in keys:
        raise NotComputable("TVM has it for a GPU only")
    blocks = [block for block in tir_nodes(function.body, tirx.SBlock) if str(block.name_hint) != "root"]
    written = set[int]()
    for block in blocks:
        for position in _among(buffers, block.writes) - written:
            if block.init is None and position in _among(buffers, block.reads):
                raise NotComputable("it changes a tensor in place, whose contents before are not known")
            written.add(position)
    if not written:  # the code calls a function of TVM's runtime: sort, scan
        written = set(range(len(buffers) - writes, len(buffers)))
    if not written:
        raise NotComputable("its code does not show what it writes")
    operators = dict.fromkeys(str(block.name_hint) for block in blocks)
    parameters = tuple((_shape(buffer), str(buffer.dtype)) for buffer in buffers)
    return PlainKernel(parameters, tuple(sorted(written)), tuple(operators))


def _among(buffers: Sequence[Any], regions: Sequence[Any]) -> set[int]:
    """Return the indices of *buffers* that *regions* lie in."""
    return {i for i, buffer in enumerate(buffers) if any(buffer.same_as(each.buffer) for each in regions)}


def _shape(buffer: Any) -> tuple[int, ...] | None:
    try:
        return tuple(int(extent) for extent in buffer.shape)
    except TypeError:
        return None


class KernelProcess(AbstractContextManager["KernelProcess"]):
    """The kernels of one package, compiled for this machine when they are asked for. For one thread."""

    def __init__(self, package: ModelPackage, writes: Mapping[str, int] | None = None) -> None:
        """Tell by *writes* how many of its last arguments a kernel writes, where its code does not tell."""
        self._package = package
        self._child = Child("adt.measure.host_kernels", reference_file(package))
        self._writes = writes or {}
        self._plain: dict[str, PlainKernel] = {}

    def __exit__(self, *_: object) -> None:
        self._child.close()

    def plain(self, name: str) -> PlainKernel:
        import cattrs

        if name not in self._plain:
            self._plain[name] = cattrs.structure(self._ask(name, None), PlainKernel)
        return self._plain[name]

    def run(self, name: str, arguments: Sequence[Array]) -> tuple[Array, ...]:
        return tuple(self._ask(name, list(arguments)))

    def _ask(self, name: str, arguments: list[Array] | None) -> Any:
        """Return the kernel's results, or its description without *arguments*."""
        request = {"name": name, "writes": self._writes.get(name, 0), "arguments": arguments}
        try:
            answer = self._child.ask(request, TIMEOUT)
        except ChildFailed as reason:
            raise RunError(
                f"the process that computes the kernel {name} of {self._package.place} here failed: {reason}",
                remedy="Compile the package again from its source model, and compare that.",
            ) from reason
        if "not computable" in answer:
            raise NotComputable(str(answer["not computable"]))
        return answer["result"]


def main() -> None:
    """Answer until there is no further request."""
    kernels = HostKernels(read_kernels(Path(sys.argv[1]).read_bytes()))

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        name, writes, arguments = request["name"], request["writes"], request["arguments"]
        try:
            if arguments is None:
                return {"result": asdict(kernels.plain(name, writes))}
            return {"result": kernels.run(name, arguments, writes)}
        except NotComputable as reason:
            return {"not computable": str(reason)}

    serve(answer)


if __name__ == "__main__":
    main()
