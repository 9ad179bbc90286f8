"""The C interface of libadt_runner from Python, by ctypes alone: what a test's child process does with it.

The library is loaded in a process of its own: where Python's tvm is loaded, its runtime would be taken for the
bundle's.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable
from ctypes import POINTER, byref, c_char_p, c_int32, c_int64, c_uint32, c_void_p
from pathlib import Path
from typing import Any

import numpy as np

USAGE, PACKAGE, INPUT, RUN, MISMATCH, NO_DEVICE, DEVICE_LOST, OUT_OF_MEMORY = range(2, 10)


BuildProgress = ctypes.CFUNCTYPE(None, c_void_p, c_int32, c_int32)


class Options(ctypes.Structure):
    """As every struct here, that of ABI 1's first version."""

    _fields_ = (
        ("struct_size", c_uint32),
        ("device", c_char_p),
        ("program_cache", c_char_p),
        ("scratch", c_char_p),
        ("build_threads", c_int32),
        ("build_progress", BuildProgress),
        ("build_progress_data", c_void_p),
    )


class OwnExecutor(Options):
    """With what came after the first version: the others are those of programs of that one."""

    _fields_ = (("own_executor", c_int32),)


class Blob(ctypes.Structure):
    _fields_ = (("data", c_void_p), ("size", c_int64), ("offset", c_int64), ("fd", c_int32))


class Source(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_uint32),
        ("manifest", Blob),
        ("params", Blob),
        ("library", Blob),
        ("library_name", c_char_p),
    )


class Info(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_uint32),
        ("rank", c_int32),
        ("name", c_char_p),
        ("dtype", c_char_p),
        ("shape", POINTER(c_int64)),
        ("symbols", POINTER(c_char_p)),
        ("element_size", c_int64),
        ("size", c_int64),
    )


class TypedInfo(Info):
    """With what came after the first version."""

    _fields_ = (("type", c_int32),)


DTYPES = ("float16", "float32", "float64", "int8", "int16", "int32", "int64",
          "uint8", "uint16", "uint32", "uint64", "bool")  # fmt: skip
"""In the order of adt_dtype_t, from 1."""

Release = ctypes.CFUNCTYPE(None, c_void_p)

RESULTS = {
    "abi_version": c_uint32, "version": c_char_p, "package_name": c_char_p, "manifest": c_char_p,
    "device": c_char_p, "device_name": c_char_p, "device_driver": c_char_p, "program_cache": c_char_p,
    "program_cache_warning": c_char_p, "entry_name": c_char_p, "alignment": c_int64, "output_size": c_int64,
    "free": None,
}  # fmt: skip
"""Result types of adt_runner_…; the others are int32_t. Arguments carry their types, or are 32 bits wide."""


class Failure(Exception):
    """Refusal by a function of the library."""

    def __init__(self, status: int, text: str, remedy: str) -> None:
        super().__init__(text)
        self.status, self.text, self.remedy = status, text, remedy


class Library:
    """The library libadt_runner."""

    def __init__(self, path: Path) -> None:
        self.raw = ctypes.CDLL(str(path))
        self.raw.adt_last_error.restype = c_char_p
        self.raw.adt_last_remedy.restype = c_char_p
        for name, result in RESULTS.items():
            getattr(self.raw, f"adt_runner_{name}").restype = result
        self.raw.adt_tensor_device.restype = c_char_p
        self.raw.adt_tensor_data.restype = self.raw.adt_tensor_retain.restype = c_void_p
        self.raw.adt_tensor_free.restype = None

    def failure(self) -> Failure:
        text, remedy = self.raw.adt_last_error().decode(), self.raw.adt_last_remedy().decode()
        assert text and remedy
        return Failure(self.raw.adt_last_status(), text, remedy)

    def call(self, name: str, *arguments: Any) -> Any:
        function = name if name.startswith("adt_") else f"adt_runner_{name}"
        status = getattr(self.raw, function)(*arguments)
        if status:
            failure = self.failure()
            assert failure.status == status
            raise failure

    def ask(self, name: str, *arguments: Any) -> Any:
        value = getattr(self.raw, f"adt_runner_{name}")(*arguments)
        if value is None or value == -1:
            raise self.failure()
        return value.decode() if isinstance(value, bytes) else value

    def refused(self, status: int, *words: str, call: Callable[[], Any]) -> None:
        try:
            call()
        except Failure as failure:
            assert failure.status == status, (failure.status, failure.text)
            for word in words:
                assert word in failure.text + failure.remedy, (failure.text, failure.remedy)
        else:
            raise AssertionError(f"not refused: {words}")


def in_memory(data: bytes) -> Blob:
    blob = Blob(ctypes.cast(c_char_p(data), c_void_p), len(data), 0, -1)
    blob.kept = data
    return blob


def in_file(fd: int, offset: int = 0, size: int = -1) -> Blob:
    return Blob(None, size, offset, fd)


def source(manifest: Blob, params: Blob, library: Blob | str) -> Source:
    named = isinstance(library, str)
    structure = Source(
        ctypes.sizeof(Source), manifest, params, Blob(None, -1, 0, -1) if named else library,
        library.encode() if named else None,
    )  # fmt: skip
    structure.kept = (manifest, params, library)
    return structure


class Tensor:
    """A reference to an array."""

    def __init__(self, library: Library, function: str, *arguments: Any) -> None:
        """Adopt the object that *function* gives in its last argument."""
        self.library, self.handle = library, c_void_p(1)
        try:
            library.call(function, *arguments, byref(self.handle))
        except Failure:
            assert not self.handle
            raise

    @staticmethod
    def of(library: Library, array: np.ndarray[Any, Any], release: Any = None) -> Tensor:
        shape = (c_int64 * array.ndim)(*array.shape)
        return Tensor(
            library, "adt_tensor_from_memory", array.ctypes.data_as(c_void_p), c_int64(array.nbytes),
            DTYPES.index(str(array.dtype)) + 1, shape, array.ndim, release, None,
        )  # fmt: skip

    def info(self) -> TypedInfo:
        info = TypedInfo(ctypes.sizeof(TypedInfo))
        self.library.call("adt_tensor_describe", self.handle, byref(info))
        return info

    def data(self) -> int:
        data = self.library.raw.adt_tensor_data(self.handle)
        if data is None:
            raise self.library.failure()
        return int(data)

    def view(self) -> np.ndarray[Any, Any]:
        """Return the array where it lies, on a CPU."""
        info = self.info()
        raw = (ctypes.c_char * info.size).from_address(self.data())
        return np.frombuffer(raw, info.dtype.decode()).reshape(info.shape[: info.rank])

    def get(self) -> np.ndarray[Any, Any]:
        info = self.info()
        array = np.empty(info.shape[: info.rank], info.dtype.decode())
        self.library.call("adt_tensor_copy", self.handle, array.ctypes.data_as(c_void_p), c_int64(info.size))
        return array

    def free(self) -> None:
        self.library.raw.adt_tensor_free(self.handle)
        self.handle = None


class Runner:
    """A handle."""

    def __init__(
        self, library: Library, package: Path | Source, block: Options | None = None, **options: str
    ) -> None:
        self.library, self.handle = library, c_void_p()
        if block is None:
            block = Options(ctypes.sizeof(Options), **{name: text.encode() for name, text in options.items()})
        if isinstance(package, Source):
            library.call("create_from", byref(package), byref(block), byref(self.handle))
        else:
            library.call("create", str(package).encode(), byref(block), byref(self.handle))
        assert self.handle

    def session(self) -> Runner:
        other = object.__new__(Runner)
        other.library, other.handle = self.library, c_void_p()
        self.library.call("create_session", self.handle, byref(other.handle))
        return other

    def free(self) -> None:
        self.library.raw.adt_runner_free(self.handle)
        self.handle = None

    def call(self, name: str, *arguments: Any) -> None:
        self.library.call(name, self.handle, *arguments)

    def ask(self, name: str, *arguments: Any) -> Any:
        return self.library.ask(name, self.handle, *arguments)

    def info(self, kind: str, index: int, entry: int = 0) -> TypedInfo:
        info = TypedInfo(ctypes.sizeof(TypedInfo))
        self.call(f"{kind}_info", entry, index, byref(info))
        return info

    def set(self, index: int, array: np.ndarray[Any, Any], entry: int = 0, *, shaped: bool = False) -> None:
        data, size = array.ctypes.data_as(c_void_p), c_int64(array.nbytes)
        if shaped:
            shape = (c_int64 * array.ndim)(*array.shape)
            self.call("set_input_shaped", entry, index, data, size, shape, array.ndim)
        else:
            self.call("set_input", entry, index, data, size)

    def set_tensor(self, index: int, tensor: Tensor, entry: int = 0) -> None:
        self.call("set_input_tensor", entry, index, tensor.handle)

    def bind(self, index: int, array: np.ndarray[Any, Any], entry: int = 0) -> None:
        """Use the array, which must stay, where it lies."""
        tensor = Tensor.of(self.library, array)
        try:
            self.set_tensor(index, tensor, entry)
        finally:
            tensor.free()

    def input_tensor(self, index: int, entry: int = 0, shape: tuple[int, ...] = ()) -> Tensor:
        extents = (c_int64 * len(shape))(*shape) if shape else None
        return Tensor(self.library, "adt_runner_input_tensor", self.handle, entry, index, extents, len(shape))

    def take(self, index: int, entry: int = 0) -> Tensor:
        return Tensor(self.library, "adt_runner_take_output", self.handle, entry, index)

    def carry(self, from_entry: int, output: int, to_entry: int, index: int) -> None:
        """Make an output an input."""
        tensor = self.take(output, from_entry)
        try:
            self.set_tensor(index, tensor, to_entry)
        finally:
            tensor.free()

    def zeros(self) -> np.ndarray[Any, Any]:
        x = self.info("input", 0)
        return np.zeros(x.shape[: x.rank], x.dtype.decode())

    def run(self, entry: int = 0) -> None:
        self.call("run", entry)

    def shape(self, index: int, entry: int = 0) -> tuple[int, ...]:
        shape = (c_int64 * 8)()
        rank = self.ask("output_shape", entry, index, shape, 8)
        return tuple(shape[:rank])

    def get(self, index: int, entry: int = 0) -> np.ndarray[Any, Any]:
        array = np.empty(self.shape(index, entry), self.info("output", index, entry).dtype.decode())
        assert self.ask("output_size", entry, index) == array.nbytes
        size = c_int64(array.nbytes)
        self.call("get_output", entry, index, array.ctypes.data_as(c_void_p), size)
        return array


def aligned(shape: tuple[int, ...], dtype: str, off: int = 0) -> np.ndarray[Any, Any]:
    """Return an array whose address is *off* bytes beyond a multiple of 64."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + 128, "uint8")
    start = -raw.ctypes.data % 64 + off
    return raw[start : start + size].view(dtype).reshape(shape)


def main(cases: dict[str, Any]) -> None:
    """Run ``python child.py CASE LIBRARY {"argument": "path", …}``."""
    case, library, arguments = sys.argv[1:]
    cases[case](Library(Path(library)), **{k: Path(v) for k, v in json.loads(arguments).items()})
    sys.stdout.write("done\n")
