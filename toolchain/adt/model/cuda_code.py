"""Machine code for NVIDIA's GPUs from what TVM's CUDA code generator writes, on a machine without one.

The compiler is NVRTC, a library of NVIDIA's that the extra ``cuda`` installs, or else ``nvcc``. Left alone,
TVM's wheel keeps the CUDA source in mod.so wherever it finds no GPU, which no device's runtime can load; the
plugin ``cuda`` (``cmake_presets/plugins``) has it ask for machine code all the same.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from adt.errors import CompileError, ToolNotFound
from adt.host.disk import scratch_directory
from adt.host.process import run
from adt.host.tools import compiler_identity
from adt.model import plugins
from adt.model.targets import ModelTarget
from adt.model.targets.cuda import PTX
from adt.options.sections import TvmSettings

REMEDY = (
    f'{sys.executable} -m pip install "adt[cuda]"   (NVRTC, 93 MB; no GPU is needed), or put nvcc on PATH'
)
NVRTC = "nvidia-cuda-nvrtc-cu12"
"""The extra's distribution with the compiler."""
LIBRARY = "libnvrtc.so.12"
HEADERS = {
    "cuda.h": "",
    "cuda/std/cstdint": """
namespace cuda { namespace std {
using int8_t = signed char; using int16_t = short; using int32_t = int; using int64_t = long long;
using uint8_t = unsigned char; using uint16_t = unsigned short; using uint32_t = unsigned int;
using uint64_t = unsigned long long;
} }
""",
    "cuda/std/type_traits": """
namespace cuda { namespace std {
template <class A, class B> struct is_same; template <class A, class B> constexpr bool is_same_v = false;
template <class A> constexpr bool is_same_v<A, A> = true;
template <class T> struct is_integral; template <class T> struct is_floating_point;
template <class T> struct is_signed; template <class T> struct is_unsigned;
template <bool B, class T = void> struct enable_if;
template <bool B, class A, class C> struct conditional;
} }
""",
}
"""What TVM includes for NVRTC, without NVIDIA's C++ library: kernels use the integers' names alone."""
REGISTERED = "tvm_callback_cuda_compile"
"""By this name TVM asks for machine code, of Python."""


@dataclass(frozen=True)
class CudaCompiler:
    """What compiles CUDA here."""

    name: str
    """For people: ``NVRTC 12.9.86`` or the path of nvcc."""
    identity: str
    """Another one means other code."""
    nvcc: Path | None = None
    """None: NVRTC."""

    def compile(self, source: str, arch: str, *, ptx: bool) -> bytes:
        """Compile *source* for *arch* (``sm_87``).

        Args:
            ptx: to what a driver compiles, for *arch* and all later ones; else to machine code.

        Raises:
            CompileError: the compiler refuses it, or does not know the architecture.
        """
        if self.nvcc is None:
            return _compile_with_nvrtc(source, arch, ptx)
        with scratch_directory("nvcc") as directory:
            (directory / "kernels.cu").write_text(source)
            done = run(
                [
                    *(self.nvcc, "-w", "-O3", "-ptx" if ptx else "-cubin"),
                    *(f"-arch={_option(arch, ptx)}", "-o", directory / "code", directory / "kernels.cu"),
                ],
                check=False,
            )
            if done.returncode:
                raise _refused("nvcc", arch, done.stdout + done.stderr)
            return (directory / "code").read_bytes()


def find_compiler() -> CudaCompiler:
    """The compiler of CUDA on this machine.

    Raises:
        ToolNotFound: there is none.
    """
    if _nvrtc() is not None:
        version = metadata.version(NVRTC)
        return CudaCompiler(f"NVRTC {version}", f"nvrtc {version}")
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    found = shutil.which("nvcc") or shutil.which("nvcc", path=f"{home}/bin")
    if found is None:
        raise ToolNotFound("no compiler of CUDA is here: neither NVRTC nor nvcc", remedy=REMEDY)
    return CudaCompiler(found, compiler_identity(Path(found)), Path(found))


@contextlib.contextmanager
def machine_code(target: ModelTarget, settings: TvmSettings) -> Iterator[None]:
    """Meanwhile TVM compiles kernels for CUDA to code for *target*; nothing changes for other targets.

    Raises:
        ToolNotFound: no compiler of CUDA is here, or none of C++ for the plugin.
        SourceError, DownloadError: the plugin cannot be built, see :func:`adt.model.plugins.build`.
        CompileError: the compiler refuses the kernels.
    """
    if target.device != "cuda":
        yield
        return
    import tvm_ffi

    compiler, ptx = find_compiler(), target.name == "cuda"
    plugins.load_plugin(plugins.build(plugins.CUDA, settings))
    errors: list[CompileError] = []

    def compile_source(source: str) -> bytes:
        try:
            return compiler.compile(source, target.spec["arch"], ptx=ptx)
        except CompileError as error:  # of any exception TVM carries no more than the message
            errors.append(error)
            raise

    before = tvm_ffi.get_global_func(REGISTERED, allow_missing=True)
    tvm_ffi.register_global_func(REGISTERED, compile_source, override=True)
    try:
        yield
    except Exception:
        if errors:
            raise errors[0] from None
        raise
    finally:
        if before is not None:
            tvm_ffi.register_global_func(REGISTERED, before, override=True)
        else:
            tvm_ffi.registry.remove_global_func(REGISTERED)


def _option(arch: str, ptx: bool) -> str:
    return arch.replace("sm_", "compute_") if ptx else arch


def _refused(compiler: str, arch: str, text: str) -> CompileError:
    unknown = "--gpu-architecture" in text or "Unsupported gpu architecture" in text
    return CompileError(
        f"{compiler} compiles nothing for {arch}"
        if unknown
        else f"{compiler} refuses the kernels for {arch}",
        remedy=f"Name another architecture, or none ({PTX} and later, by the driver): --target cuda"
        if unknown
        else "Report this with the model; --target opencl computes the same.",
        details=text[-4000:],
    )


def _package(name: str) -> Path | None:
    """The directory of NVIDIA's Python package *name*."""
    try:
        spec = importlib.util.find_spec(f"nvidia.{name}")
    except ModuleNotFoundError:
        return None
    places = list(spec.submodule_search_locations or ()) if spec else []
    return Path(places[0]) if places else None


def _nvrtc() -> Path | None:
    """NVRTC's library, if the extra is whole."""
    package, headers = _package("cuda_nvrtc"), _package("cuda_runtime")
    library = package / "lib" / LIBRARY if package else None
    return library if library and library.is_file() and headers else None


def _compile_with_nvrtc(source: str, arch: str, ptx: bool) -> bytes:
    library, headers = ctypes.CDLL(str(_nvrtc())), _package("cuda_runtime")
    program = ctypes.c_void_p()

    def call(name: str, *arguments: Any) -> int:
        return int(getattr(library, name)(*arguments))

    def read(what: str) -> bytes:
        size = ctypes.c_size_t()
        call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        call(f"nvrtcGet{what}", program, text)
        return text.raw

    names, texts = (_strings(part) for part in (HEADERS.keys(), HEADERS.values()))
    code = source.encode()
    call("nvrtcCreateProgram", ctypes.byref(program), code, b"kernels.cu", len(HEADERS), texts, names)
    try:
        options = [
            f"--gpu-architecture={_option(arch, ptx)}",
            "-w",
            "-default-device",
            f"-I{headers}/include",
        ]
        if call("nvrtcCompileProgram", program, len(options), _strings(options)):
            raise _refused("NVRTC", arch, read("ProgramLog").rstrip(b"\0").decode(errors="replace"))
        return read("PTX" if ptx else "CUBIN")
    finally:
        call("nvrtcDestroyProgram", ctypes.byref(program))


def _strings(texts: Any) -> Any:
    encoded = [text.encode() for text in texts]
    return (ctypes.c_char_p * len(encoded))(*encoded)
