"""A package's kernels on this machine, in a process that may crash or hang without harm to this one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from adt.errors import RunError
from adt.host.child import Child, ChildFailed
from adt.measure.host_kernels import NotComputable, Plain
from adt.model.inspection.reference_kernels import plain_file
from adt.model.package.package import ModelPackage

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.generic]

TIMEOUT = 600.0
"""Seconds for one kernel: TVM compiles it first, and plain loops are slow."""


class KernelProcess:
    """The kernels of one package, compiled for this machine when they are asked for. For one thread."""

    def __init__(self, package: ModelPackage, writes: Mapping[str, int] | None = None) -> None:
        """
        Args:
            writes: how many of its last arguments a kernel writes, where its own code does not tell.

        Raises:
            PackageError: see :func:`adt.model.inspection.reference_kernels.plain_file`.
        """
        self._package = package
        self._child = Child("adt.measure.kernel_child", str(plain_file(package)))
        self._writes = writes or {}
        self._plain: dict[str, Plain] = {}

    def __enter__(self) -> KernelProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.close()

    def plain(self, name: str) -> Plain:
        """What is known of the kernel *name*.

        Raises:
            NotComputable: it is not among the kernels, or not of a form that can be run alone.
            RunError: the process ended, or gave no answer in time.
        """
        if name not in self._plain:
            facts = self._ask(name, None)
            parameters = tuple(
                (None if shape is None else tuple(shape), dtype) for shape, dtype in facts["parameters"]
            )
            self._plain[name] = Plain(parameters, tuple(facts["outputs"]), tuple(facts["operators"]))
        return self._plain[name]

    def run(self, name: str, arguments: Sequence[Array]) -> tuple[Array, ...]:
        """Compute the kernel *name*, and return what it writes.

        Args:
            arguments: all of them, outputs too: of those, what the kernel does not write stays as it is.

        Raises:
            NotComputable: TVM cannot compile it for this machine, or the arguments do not fit it.
            RunError: the process ended, or gave no answer in time.
        """
        return tuple(self._ask(name, list(arguments)))

    def _ask(self, name: str, arguments: list[Array] | None) -> Any:
        """What the kernel writes; without *arguments*, what is known of it."""
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
