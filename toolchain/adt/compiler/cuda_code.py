"""Machine code for NVIDIA's GPUs from what TVM's CUDA code generator writes, on a machine without one.

The compiler is NVRTC, a library of NVIDIA's that the extra ``cuda`` installs, or else ``nvcc``. Left alone,
TVM's wheel keeps the CUDA source in mod.so wherever it finds no GPU, which no device's runtime can load; the
plugin ``cuda`` (``cmake_presets/plugins``) has it ask for machine code all the same.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from adt.bundle import plugins
from adt.compiler.targets import ModelTarget
from adt.compiler.targets.parser import PTX
from adt.errors import CompileError, ToolNotFound
from adt.host.disk import scratch_directory
from adt.host.extras import install_command
from adt.host.process import compiler_identity, run, which
from adt.options.sections import TvmSettings

NVRTC_13 = ("nvidia-cuda-nvrtc", "nvidia-cuda-runtime", "nvidia-cuda-crt")


class _Release(NamedTuple):
    """Distribution of NVRTC on the package index."""

    distribution: str
    compiler: str
    """Package below ``nvidia``."""
    library: str
    headers: str
    """Package below ``nvidia``."""


_RELEASES = (
    _Release("nvidia-cuda-nvrtc-cu12", "cuda_nvrtc", "libnvrtc.so.12", "cuda_runtime"),  # the extra's
    _Release("nvidia-cuda-nvrtc", "cu13", "libnvrtc.so.13", "cu13"),  # PyTorch's
)
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
"""Headers that TVM includes for NVRTC, with the integers' names alone, which kernels use."""
REGISTERED = "tvm_callback_cuda_compile"  # by this name TVM asks for machine code, of Python


@dataclass(frozen=True)
class CudaCompiler:
    """Compiler of CUDA on this machine."""

    name: str
    """Name for people: ``NVRTC 12.9.86`` or the path of nvcc."""
    identity: str
    """Another one means other code."""
    nvcc: Path | None = None
    """None: NVRTC."""
    library: Path | None = None
    """NVRTC's library …"""
    headers: Path | None = None
    """Directory of CUDA's headers."""

    def knows(self, arch: str) -> bool:
        """Return True if it compiles for *arch*."""
        return arch in _architectures(self)

    def compile(self, source: str, arch: str, *, ptx: bool) -> bytes:
        """Compile *source* for *arch* (``sm_87``), with *ptx* to what drivers compile for later ones."""
        if self.nvcc is None:
            return _compile_with_nvrtc(self, source, arch, ptx)
        with scratch_directory("nvcc") as directory:
            (directory / "kernels.cu").write_text(source)
            options = ["-w", "-O3", "-ptx" if ptx else "-cubin", f"-arch={_option(arch, ptx)}"]
            files = [directory / "code", directory / "kernels.cu"]
            done = run([self.nvcc, *options, "-o", *files], check=False)
            if done.returncode:
                raise _refused("nvcc", arch, done.stdout + done.stderr)
            return (directory / "code").read_bytes()


def find_compiler(arch: str = "") -> CudaCompiler:
    """Return the compiler of CUDA on this machine: the first that knows *arch*, or else the first."""
    compilers = [compiler for compiler in (*map(_nvrtc, _RELEASES), _nvcc()) if compiler]
    if not compilers:
        raise ToolNotFound("no compiler of CUDA is here: neither NVRTC nor nvcc", remedy=_remedy())
    return next((compiler for compiler in compilers if arch and compiler.knows(arch)), compilers[0])


def _nvcc() -> CudaCompiler | None:
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    found = which("nvcc") or shutil.which("nvcc", path=f"{home}/bin")
    return CudaCompiler(found, compiler_identity(Path(found)), Path(found)) if found else None


@dataclass(frozen=True)
class CudaCode:
    """Form of machine code of CUDA kernels."""

    arch: str
    """``sm_87``"""
    ptx: bool
    """True for code that a driver compiles, for *arch* and all later ones; else machine code."""
    plugin: str
    """The library that has TVM ask for it."""


def cuda_code(target: ModelTarget, settings: TvmSettings) -> CudaCode | None:
    """Return the form of kernels for *target*; None where it is not CUDA."""
    if target.device != "cuda":
        return None
    find_compiler(target.spec["arch"])
    plugin = plugins.build(plugins.CUDA, settings)
    return CudaCode(str(target.spec["arch"]), target.name == "cuda", str(plugin))


@contextlib.contextmanager
def machine_code(code: CudaCode | None) -> Iterator[None]:
    """Make TVM compile CUDA kernels to *code* within the context; change nothing for other targets."""
    if code is None:
        yield
        return
    import tvm_ffi

    compiler = find_compiler(code.arch)
    plugins.load_plugin(Path(code.plugin))
    errors: list[CompileError] = []

    def compile_source(source: str) -> bytes:
        try:
            return compiler.compile(source, code.arch, ptx=code.ptx)
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
    if "Unsupported gpu architecture" in text:
        return _unknown(compiler, arch)
    return CompileError(
        f"{compiler} refuses the kernels for {arch}",
        remedy="Report this with the model; --target opencl computes the same.",
        details=text[-4000:],
    )


def _remedy() -> str:
    return f"{install_command(extra='cuda')}   (NVRTC, 93 MB; no GPU is needed), or put nvcc on PATH"


def _unknown(compiler: str, arch: str) -> CompileError:
    remedy = f"Have the driver compile for its GPU (any from {PTX} on): --target cuda"
    if arch == PTX:
        remedy = f"Take that of CUDA 12, which does: {_remedy()}"
    elif int(arch.removeprefix("sm_")) > int(PTX.removeprefix("sm_")):
        remedy += f"; or add the compiler of CUDA 13, which knows newer GPUs: {install_command(*NVRTC_13)}"
    return CompileError(f"{compiler} compiles nothing for {arch}", remedy=remedy)


def _package(name: str) -> Path | None:
    """Locate NVIDIA's Python package *name*; None if it is not installed."""
    try:
        spec = importlib.util.find_spec(f"nvidia.{name}")
    except ModuleNotFoundError:
        return None
    places = list(spec.submodule_search_locations or ()) if spec else []
    return Path(places[0]) if places else None


def _nvrtc(release: _Release) -> CudaCompiler | None:
    """Locate NVRTC of *release*; None unless its library and headers are there."""
    directory, headers = _package(release.compiler), _package(release.headers)
    library = directory / "lib" / release.library if directory else None
    if library is None or headers is None or not library.is_file():
        return None
    version = metadata.version(release.distribution)
    return CudaCompiler(f"NVRTC {version}", f"nvrtc {version}", library=library, headers=headers / "include")


@functools.cache
def _architectures(compiler: CudaCompiler) -> frozenset[str]:
    if compiler.nvcc:
        return frozenset(run([compiler.nvcc, "--list-gpu-code"], check=False).stdout.split())
    library, count = ctypes.CDLL(str(compiler.library)), ctypes.c_int()
    library.nvrtcGetNumSupportedArchs(ctypes.byref(count))
    numbers = (ctypes.c_int * count.value)()
    library.nvrtcGetSupportedArchs(numbers)
    return frozenset(f"sm_{number}" for number in numbers)


def _compile_with_nvrtc(compiler: CudaCompiler, source: str, arch: str, ptx: bool) -> bytes:
    if not compiler.knows(arch):
        raise _unknown(compiler.name, arch)
    library = ctypes.CDLL(str(compiler.library))
    program = ctypes.c_void_p()

    def read(what: str) -> bytes:
        size = ctypes.c_size_t()
        getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        getattr(library, f"nvrtcGet{what}")(program, text)
        return text.raw

    names, texts, code = _strings(HEADERS.keys()), _strings(HEADERS.values()), source.encode()
    library.nvrtcCreateProgram(ctypes.byref(program), code, b"kernels.cu", len(HEADERS), texts, names)
    try:
        target = f"--gpu-architecture={_option(arch, ptx)}"
        options = _strings([target, "-w", "-default-device", f"-I{compiler.headers}"])
        if library.nvrtcCompileProgram(program, len(options), options):
            raise _refused(compiler.name, arch, read("ProgramLog").rstrip(b"\0").decode(errors="replace"))
        return read("PTX" if ptx else "CUBIN")
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _strings(texts: Any) -> Any:
    encoded = [text.encode() for text in texts]
    return (ctypes.c_char_p * len(encoded))(*encoded)
