"""Cases of tests/integration/test_tensors.py on the C interface, one function for each test."""

import ctypes
import os
import time
from concurrent.futures import ThreadPoolExecutor
from ctypes import byref, c_int32, c_int64, c_size_t, c_void_p, py_object
from pathlib import Path
from typing import Any

import numpy as np

from support.codegen.c_runner import (
    DTYPES,
    INPUT,
    USAGE,
    Library,
    Release,
    Runner,
    Tensor,
    aligned,
    main,
)

ENCODE, DECODE = 0, 1
FOUR = (4,)


def ones(factor: float) -> np.ndarray[Any, Any]:
    return np.full(4, factor, "float32")


def encoded(runner: Runner, factor: float) -> Tensor:
    runner.set(0, ones(factor), ENCODE)
    runner.run(ENCODE)
    return runner.take(0, ENCODE)


def outlive(library: Library, recurrent: Path) -> None:
    """Keep an output of a run: each run has memory of its own meanwhile."""
    runner = Runner(library, recurrent)
    taken = [encoded(runner, factor) for factor in range(8)]
    assert len({tensor.data() for tensor in taken}) == 8
    assert runner.get(0, ENCODE).tolist() == [14.0] * 4  # what was taken is still the last run's
    addresses = set()
    for factor in range(20):  # freed before the next run: always the same two at most
        tensor = encoded(runner, factor)
        addresses.add(tensor.data())
        tensor.free()
    assert len(addresses) <= 2
    runner.free()

    def read() -> None:
        for tensor in taken:
            other = library.raw.adt_tensor_retain(tensor.handle)
            assert other == tensor.handle.value
            assert tensor.get().tolist() == tensor.view().tolist()
            library.raw.adt_tensor_free(tensor.handle)

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(read) for _ in range(4)]:
            done.result()
    assert [tensor.get()[0] for tensor in taken] == [2.0 * factor for factor in range(8)]
    info = taken[0].info()
    assert (info.name, info.dtype, info.type, info.rank, info.size) == (b"", b"float32", 2, 1, 16)
    assert library.raw.adt_tensor_device(taken[0].handle) == b"cpu"
    for tensor in taken:
        tensor.free()
    library.raw.adt_tensor_free(None)
    assert library.raw.adt_tensor_retain(None) is None


def state_crosses(library: Library, recurrent: Path) -> None:
    """Carry state, (s, h) → (s + h, s + 1), to the next of two sessions and to another package."""
    first = Runner(library, recurrent)
    runners = [first, first.session(), Runner(library, recurrent)]
    context = encoded(first, 3)
    for runner in runners:
        runner.set_tensor(1, context, DECODE)
    context.free()
    first.set(0, ones(0), DECODE)
    for step in range(9):
        runner, following = runners[step % 3], runners[(step + 1) % 3]
        runner.run(DECODE)
        assert runner.get(0, DECODE).tolist() == [6.0 + step] * 4
        state = runner.take(1, DECODE)
        assert runner.take(1, DECODE).data() == state.data()  # the array itself, no copy
        following.set_tensor(0, state, DECODE)
        assert state.get().tolist() == [step + 1.0] * 4
        state.free()
    first.free()
    runners[1].run(DECODE)  # what it was given is still there
    for runner in runners[1:]:
        runner.free()


def memory(library: Library, mixed: Path) -> None:
    released: list[int] = []
    release = Release(lambda data: released.append(data or 0))
    runner = Runner(library, mixed)
    runner.set(1, np.arange(4))
    x = aligned((2, 3), "float32")
    tensor = Tensor.of(library, x, release)
    runner.set_tensor(0, tensor)
    tensor.free()
    for factor in range(3):  # it is read where it lies
        x[:] = factor
        runner.run()
        np.testing.assert_allclose(runner.get(0)[0, 4], factor * 6 / 7, rtol=1e-6)
    assert not released
    runner.set(0, x)
    assert len(released) == 1
    Tensor.of(library, x, release).free()
    assert len(released) == 2
    tensor = Tensor.of(library, x, release)
    runner.set_tensor(0, tensor)
    tensor.free()
    runner.free()
    assert len(released) == 3
    library.refused(
        INPUT, "input x is int32[2, 3]", "same element type",
        call=lambda: Runner(library, mixed).bind(0, aligned((2, 3), "int32")),
    )  # fmt: skip
    for dtype in DTYPES:
        array = np.ones((2, 1), dtype)
        info = Tensor.of(library, array).info()
        assert (info.dtype.decode(), info.element_size, info.size) == (dtype, array.itemsize, array.nbytes)
    scalar = Tensor.of(library, np.ones((), "int64"))
    assert scalar.info().rank == 0 and scalar.get() == 1
    for kind in (0, 13, -1):
        shape = (c_int64 * 1)(1)
        library.refused(
            USAGE, f"no element type {kind}",
            call=lambda kind=kind, shape=shape: Tensor(
                library, "adt_tensor_from_memory", c_void_p(x.ctypes.data), c_int64(4), kind, shape, 1, None, None
            ),
        )  # fmt: skip


def input_memory(library: Library, mixed: Path, ranged: Path, symbolic: Path) -> None:
    """Bind memory to inputs; ranged is mixed, whose input n has indices from -3 to 9."""
    runner = Runner(library, mixed)
    runner.set(1, np.arange(4))
    tensor = runner.input_tensor(0)
    x = tensor.view()
    for factor in range(1, 4):
        x[:] = factor
        runner.run()
        np.testing.assert_allclose(runner.get(0)[0, 4], factor * 6 / 7, rtol=1e-6)
    runner.set(0, np.zeros((2, 3), "float32"))  # not where the tensor lies
    assert x.all()
    tensor.free()

    runner = Runner(library, ranged)
    runner.set(0, np.ones((2, 3), "float32"))
    n = runner.input_tensor(1).view()
    n[:] = 0
    runner.run()
    n[2] = 10
    library.refused(INPUT, "input n has the value 10", call=runner.run)

    runner = Runner(library, symbolic)
    library.refused(INPUT, "its shape varies", call=lambda: runner.input_tensor(0))
    library.refused(INPUT, "float32[2, 2]", call=lambda: runner.input_tensor(0, shape=(2, 2)))
    for length in (3, 0, 5):
        for index in range(2):
            runner.input_tensor(index, shape=(length,)).view()[:] = index + 1
        runner.run()
        assert runner.get(0).tolist() == [3.0] * length


class DlpackTensor:
    """Object that gives a capsule, which numpy takes."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, **_: Any) -> Any:
        managed = c_void_p()
        self.tensor.library.call("adt_tensor_to_dlpack", self.tensor.handle, byref(managed))
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = py_object, (c_void_p, ctypes.c_char_p, c_void_p)
        return new(managed, b"dltensor_versioned", None)


def from_numpy(library: Library, array: np.ndarray[Any, Any]) -> Tensor:
    capsule = array.__dlpack__(max_version=(1, 0))
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = c_void_p, (py_object, ctypes.c_char_p)
    rename = ctypes.pythonapi.PyCapsule_SetName
    rename.argtypes = (py_object, ctypes.c_char_p)
    tensor = Tensor(library, "adt_tensor_from_dlpack", c_void_p(pointer(capsule, b"dltensor_versioned")))
    rename(capsule, b"used_dltensor_versioned")
    return tensor


def dlpack(library: Library, recurrent: Path) -> None:
    """Exchange arrays with numpy without a copy."""
    import sys

    runner = Runner(library, recurrent)
    taken = encoded(runner, 5)
    array = np.from_dlpack(DlpackTensor(taken))
    assert array.ctypes.data == taken.data()
    taken.free()
    runner.free()
    assert array.tolist() == [10.0] * 4
    del array

    x = aligned(FOUR, "float32")
    x[:] = 7
    references = sys.getrefcount(x)
    runner = Runner(library, recurrent)
    tensor = from_numpy(library, x)
    assert tensor.data() == x.ctypes.data and sys.getrefcount(x) > references
    runner.set_tensor(0, tensor, ENCODE)
    tensor.free()
    runner.run(ENCODE)
    assert runner.get(0, ENCODE).tolist() == [14.0] * 4
    runner.free()
    assert sys.getrefcount(x) == references
    library.refused(
        INPUT, "with strides", "copy it", call=lambda: from_numpy(library, np.zeros((4, 4), "float32").T)
    )
    library.refused(
        INPUT, "elements that no array has", call=lambda: from_numpy(library, np.zeros(4, "complex64"))
    )
    library.refused(USAGE, "managed is NULL", call=lambda: Tensor(library, "adt_tensor_from_dlpack", None))


class Driver:
    """The functions of OpenCL that a program calls."""

    def __init__(self) -> None:
        self.raw = ctypes.CDLL("libOpenCL.so.1")
        self.raw.clCreateBuffer.restype = self.raw.clCreateContext.restype = c_void_p

    def context(self, memory: int) -> c_void_p:
        context = c_void_p()
        assert self.raw.clGetMemObjectInfo(c_void_p(memory), 0x1106, c_size_t(8), byref(context), None) == 0
        return context

    def buffer(self, context: c_void_p, array: np.ndarray[Any, Any]) -> c_void_p:
        code, read_write_copy = c_int32(), ctypes.c_uint64(1 | 32)
        buffer = self.raw.clCreateBuffer(
            context, read_write_copy, c_size_t(array.nbytes), c_void_p(array.ctypes.data), byref(code)
        )
        assert code.value == 0
        return c_void_p(buffer)

    def references(self, buffer: c_void_p) -> int:
        count = ctypes.c_uint32()
        assert self.raw.clGetMemObjectInfo(buffer, 0x1105, c_size_t(4), byref(count), None) == 0
        return count.value

    def expect_last(self, buffer: c_void_p) -> None:
        """Wait until only this program refers to *buffer*: PoCL's threads let ended commands go late."""
        end = time.monotonic() + 30
        while self.references(buffer) != 1:
            assert time.monotonic() < end
            time.sleep(0.01)


def on_a_gpu(library: Library, on_opencl: Path, state_on_opencl: Path, recurrent: Path) -> None:
    """Run y = relu(x @ w), and (s, h) -> (s + h, s + 1), on PoCL, and x + x on a CPU."""
    weight = np.arange(12, dtype="float32").reshape(4, 3) / 10 - 0.5
    driver = Driver()
    runner, on_cpu = Runner(library, on_opencl, program_cache="off"), Runner(library, recurrent)
    inner = runner.input_tensor(0)  # the runner's own memory tells its context
    assert library.raw.adt_tensor_device(inner.handle) == b"opencl"
    context = driver.context(inner.data())
    released: list[int] = []
    release = Release(lambda data: released.append(data or 0))

    def wrap(extents: tuple[int, ...], used: Runner = runner) -> Tensor:
        shape = (c_int64 * len(extents))(*extents)
        return Tensor(
            library, "adt_tensor_from_opencl", used.handle, buffer, 2, shape, len(extents), release, None
        )

    def expect(x: np.ndarray[Any, Any]) -> None:
        np.testing.assert_allclose(runner.get(0), np.maximum(x @ weight, 0), rtol=1e-5, atol=1e-5)

    x = np.array([[1, 2, 3, 4]], "float32")
    buffer = driver.buffer(context, x)
    tensor = wrap((1, 4))
    assert tensor.data() == buffer.value
    assert tensor.get().tolist() == x.tolist()
    runner.set_tensor(0, tensor)
    tensor.free()
    runner.call("start", 0)
    expect(x)
    assert not released
    runner.set(0, x * 2)
    assert len(released) == 1
    runner.run()
    expect(x * 2)
    library.refused(INPUT, "cannot lie in that OpenCL memory", "context", call=lambda: wrap((1, 5)))
    library.refused(USAGE, "not on OpenCL", "device opencl", call=lambda: wrap((4,), on_cpu))
    assert len(released) == 1
    four, managed = wrap(FOUR), c_void_p(1)
    library.refused(
        USAGE, "memory of opencl", "adt_tensor_copy",
        call=lambda: library.call("adt_tensor_to_dlpack", four.handle, byref(managed)),
    )  # fmt: skip
    assert not managed
    library.refused(
        INPUT, "another device (opencl:0)", "adt_tensor_copy", call=lambda: on_cpu.set_tensor(0, four)
    )
    four.free()
    assert len(released) == 2
    driver.expect_last(buffer)
    driver.raw.clReleaseMemObject(buffer)

    taken = runner.take(0)
    runner.free()
    first = Runner(library, state_on_opencl, program_cache="off")
    runners = [first, first.session(), Runner(library, state_on_opencl, program_cache="off")]
    for used in runners:
        used.set(1, np.full((1, 4), 6, "float32"))
    first.set(0, np.zeros((1, 4), "float32"))
    for step in range(6):  # nobody waits, and nothing is copied
        runners[step % 3].call("start", 0)
        s = runners[step % 3].take(1)
        runners[(step + 1) % 3].set_tensor(0, s)
        s.free()
    assert runners[2].get(0).tolist() == [[11.0] * 4]
    for used in runners:
        used.free()
    np.testing.assert_allclose(taken.get(), np.maximum(x * 2 @ weight, 0), rtol=1e-5, atol=1e-5)
    taken.free()


def handed_through(library: Library, model: Path) -> None:
    """Return (x, a slow y) on PoCL: nothing is copied to an x that was taken, beside a run that reads it."""
    runner = Runner(library, model, program_cache="off")
    other, busy = runner.session(), runner.session()
    own = runner.input_tensor(0)
    shape = tuple(own.info().shape[: own.info().rank])
    runner.run()
    x = runner.take(0)
    assert x.data() == own.data()
    own.free()
    x.free()

    def array(value: int) -> np.ndarray[Any, Any]:
        return np.full(shape, value, "float32")

    busy.set(0, array(0))
    for value in (1, 2):  # the second lies elsewhere: its copy does not wait for the run
        runner.set(0, array(value))
        runner.call("start", 0)
    x = runner.take(0)
    runner.set(0, array(3))
    for _ in range(10):
        busy.call("start", 0)
    other.set_tensor(0, x)
    other.call("start", 0)  # behind those
    y = other.take(1)
    other.set(0, array(4))
    other.call("start", 0)
    x.free()
    runner.call("start", 0)
    runner.set(0, array(5))  # only the queue has x
    expected = np.float32(2)
    for _ in range(8):
        expected = np.sin(expected)
    np.testing.assert_allclose(y.get(), expected, rtol=1e-5)


def copies(library: Library, state_on_opencl: Path) -> None:
    """Count the copies of a run and the objects left; OpenCL is tests/support/standins/opencl_driver.c."""
    driver = ctypes.CDLL("libOpenCL.so")
    array = np.zeros((1, 4), "float32")
    library.raw.adt_trim()
    before = driver.standin_alive(), driver.standin_bytes()
    runner = Runner(library, state_on_opencl, program_cache="off")
    session = runner.session()
    for used in (runner, session):
        used.set(0, array)
        used.set(1, array)
    writes = driver.standin_writes()
    for _ in range(50):
        for used, following in ((runner, session), (session, runner)):
            used.call("start", 0)
            s = used.take(1)
            following.set_tensor(0, s)
            s.free()
    assert driver.standin_writes() == writes
    runner.set(0, array)
    assert driver.standin_writes() == writes + 1
    taken = [runner.take(index) for index in range(2) if runner.run() is None]
    runner.free()
    session.free()
    assert driver.standin_alive() > before[0]
    for tensor in taken:
        tensor.get()
        tensor.free()
    assert (driver.standin_alive(), driver.standin_bytes()) == before


def leaks(library: Library, recurrent: Path) -> None:
    """Look for leaks of arrays that are taken, carried, wrapped and exported."""

    x = aligned(FOUR, "float32")

    def use(runner: Runner, release: Any) -> None:
        wrapped = Tensor.of(library, x, release)
        runner.set_tensor(0, wrapped, ENCODE)
        wrapped.free()
        runner.run(ENCODE)
        taken = runner.take(0, ENCODE)
        assert np.from_dlpack(DlpackTensor(taken)).sum() == 0
        runner.input_tensor(0, ENCODE).free()
        taken.free()

    def live() -> int:
        released: list[int] = []
        release = Release(lambda data: released.append(data or 0))
        for _ in range(20):
            runner = Runner(library, recurrent)
            for _ in range(100):
                use(runner, release)
            runner.free()
        assert len(released) == 2000
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

    live()
    first = live()
    assert live() - first < 2_000_000


if __name__ == "__main__":
    main({name: value for name, value in list(globals().items()) if callable(value)})
