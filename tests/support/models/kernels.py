"""A kernel to be sent over RPC, and a client's use of it."""

from pathlib import Path
from typing import Any

import numpy as np

import adt

LENGTH = 1024


def compile_add_one(out: Path, **options: Any) -> Path:
    """Compile a kernel that adds one; *options* are those of ``adt.compile_kernel``."""
    from tvm import te

    a = te.placeholder((LENGTH,), "float32", name="A")
    b = te.compute((LENGTH,), lambda i: a[i] + 1.0, name="B")
    return adt.compile_kernel([a, b], name="add_one", out=out, **options).path


def add_one(remote: Any, library: Path) -> None:
    import tvm

    remote.upload(str(library))
    numbers = np.arange(LENGTH, dtype="float32")
    argument = tvm.runtime.tensor(numbers, remote.cpu(0))
    computed = tvm.runtime.tensor(np.zeros_like(numbers), remote.cpu(0))
    module = remote.load_module(library.name)
    module["add_one"](argument, computed)
    np.testing.assert_array_equal(computed.numpy(), numbers + 1)
    timed = module.time_evaluator("add_one", remote.cpu(0), number=3, repeat=2)
    assert timed(argument, computed).mean > 0
