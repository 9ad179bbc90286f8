"""A package's kernels on this machine, in a process that may crash or hang without harm to this one."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

from adt.errors import RunError
from adt.host.process import kill_group, start
from adt.measure.host_kernels import NotComputable, Plain
from adt.model.inspection.plain import plain_file
from adt.model.package import ModelPackage

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.generic]

TIMEOUT = 600.0
"""Seconds for one kernel: TVM compiles it first, and plain loops are slow."""


def send(to: IO[bytes], facts: Mapping[str, Any], arrays: Sequence[Array] = ()) -> None:
    """Write *facts* and *arrays*."""
    import numpy as np

    packed = []
    for array in arrays:
        file = io.BytesIO()
        np.save(file, array, allow_pickle=False)
        packed.append(file.getvalue())
    to.write(json.dumps({**facts, "sizes": [len(data) for data in packed]}).encode() + b"\n")
    to.writelines(packed)
    to.flush()


def receive(source: IO[bytes]) -> tuple[dict[str, Any], list[Array]] | None:
    """What :func:`send` wrote; None at the end.

    Raises:
        ValueError: the end is within it, or it is something else.
    """
    import numpy as np

    line = source.readline()
    if not line:
        return None
    facts = json.loads(line)
    arrays = [np.load(io.BytesIO(source.read(size)), allow_pickle=False) for size in facts.pop("sizes")]
    return facts, arrays


class KernelProcess:
    """The kernels of one package, compiled for this machine when they are asked for. For one thread."""

    def __init__(self, package: ModelPackage, writes: Mapping[str, int] | None = None) -> None:
        """
        Args:
            writes: how many of its last arguments a kernel writes, where its own code does not tell.

        Raises:
            PackageError: see :func:`adt.model.inspection.plain.plain_file`.
        """
        self._package = package
        self._argv = [sys.executable, "-P", "-m", "adt.measure.kernel_child", str(plain_file(package))]
        self._writes = writes or {}
        self._plain: dict[str, Plain] = {}
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> KernelProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            kill_group(self._process)
            self._process = None

    def plain(self, name: str) -> Plain:
        """What is known of the kernel *name*.

        Raises:
            NotComputable: it is not among the kernels, or not of a form that can be run alone.
            RunError: the process ended, or gave no answer in time.
        """
        if name not in self._plain:
            facts, _ = self._ask(name, run=False)
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
        return tuple(self._ask(name, arguments, run=True)[1])

    def _ask(
        self, name: str, arguments: Sequence[Array] = (), *, run: bool
    ) -> tuple[dict[str, Any], list[Array]]:
        process = self._process = self._process or start(
            self._argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert process.stdin is not None and process.stdout is not None
        with _time_limit(process):
            try:
                facts = {"name": name, "run": run, "writes": self._writes.get(name, 0)}
                send(process.stdin, facts, arguments)
                answer = receive(process.stdout)
            except (OSError, ValueError, EOFError):
                answer = None
        if answer is None:
            kill_group(process)
            self._process = None
            raise RunError(
                f"the process that computes the kernel {name} of {self._package.place} here ended "
                f"(code {process.returncode}) or gave no answer within {TIMEOUT:g} s",
                remedy="Compile the package again from its source model, and compare that.",
            )
        if "not computable" in answer[0]:
            raise NotComputable(str(answer[0]["not computable"]))
        return answer


@contextlib.contextmanager
def _time_limit(process: subprocess.Popen[bytes]) -> Iterator[None]:
    timer = threading.Timer(TIMEOUT, process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
