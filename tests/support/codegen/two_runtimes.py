"""RUNNER PACKAGE KERNEL first|last: use libadt_runner and Python's TVM in one process.

TVM's libraries are loaded for all to see, first or last. Each runs what it has to; neither has the other's
functions, nor takes them for its own. KERNEL adds one to 1000 numbers. Prints "done".
"""

import ctypes
import sys
from pathlib import Path
from typing import Any

import numpy as np

from support.codegen.c_runner import Library, Runner


def load_theirs() -> Any:
    import tvm_ffi

    ctypes.CDLL(tvm_ffi.libinfo.find_libtvm_ffi(), mode=ctypes.RTLD_GLOBAL)
    import tvm

    ctypes.CDLL(str(Path(tvm.__file__).parent / "lib/libtvm_runtime.so"), mode=ctypes.RTLD_GLOBAL)

    def fail(*_: Any) -> None:
        raise AssertionError("the runner's model called a function of Python's TVM")

    for name in ("vm.builtin.alloc_tensor", "vm.builtin.alloc_storage", "vm.builtin.match_shape"):
        assert tvm.get_global_func(name)
        tvm.register_global_func(name, fail, override=True)
    return tvm


def main(runner: str, package: str, kernel: str, order: str) -> None:
    tvm = load_theirs() if order == "first" else None
    library = Library(Path(runner))
    x = np.arange(-3, 3, dtype="float32").reshape(2, 3)

    def run_ours() -> None:
        model = Runner(library, Path(package))
        model.set(0, x)
        model.run()
        np.testing.assert_array_equal(model.get(0), np.maximum(x, 0) + 1)
        model.free()

    run_ours()
    tvm = tvm or load_theirs()
    assert tvm.get_global_func("adt.runner_version", allow_missing=True) is None
    module, y = tvm.runtime.load_module(kernel), np.arange(1000, dtype="float32")
    a, b = tvm.runtime.tensor(y), tvm.runtime.tensor(y)
    module["add_one"](a, b)
    np.testing.assert_array_equal(b.numpy(), y + 1)
    try:
        module["add_one"](a, tvm.runtime.tensor(y.astype("int32")))
    except TypeError as error:
        assert "add_one" in str(error) and "float32" in str(error), error
    else:
        raise AssertionError("the kernel took integers")
    run_ours()
    print("done")  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
