"""Plugins: libraries that add to the installed TVM wheel, each built once, then from the cache.

A plugin belongs to one build of the wheel and to one source tree. Its recipe is ``cmake_presets/plugins/``.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.metadata
import importlib.util
import json
import logging
import os
import shutil
import threading
from dataclasses import dataclass
from pathlib import Path

from adt.bundle.libraries import Library
from adt.errors import SourceError, ToolNotFound
from adt.host import cache
from adt.host.directories import resource
from adt.host.disk import scratch_directory
from adt.host.extras import install_command
from adt.host.process import Tool, cmake, compiler_identity, find_tool, ninja, run
from adt.host.sources import TvmSource, find_source, wheel_version
from adt.options.resolve import load_settings, show_programs
from adt.options.sections import TvmSettings

log = logging.getLogger("adt.plugins")

PROJECT = "plugins"


@dataclass(frozen=True)
class Plugin:
    """One library that adds to the wheel."""

    name: str
    library: str
    what: str


OPENCL = Plugin("opencl", "libtvm_runtime_opencl.so", "TVM's OpenCL runtime")
CUDA: Plugin = Plugin("cuda", "libadt_codegen_cuda.so", "what keeps machine code for CUDA")


@dataclass(frozen=True)
class Wheel:
    """The installed TVM."""

    version: str
    tvm: Path
    ffi: Path
    digest: str
    """Digest (sha256) that names the libraries of both."""


def code_generator(library: Library) -> Plugin:
    """Return the plugin that makes subgraphs for *library*."""
    name = library.plugin
    return Plugin(name, f"libadt_codegen_{name}.so", f"the code generator for {library.title}")


def opencl_runtime() -> Path:
    """Build TVM's OpenCL runtime for this process; see :func:`build`."""
    return build(OPENCL)


def build(plugin: Plugin, settings: TvmSettings | None = None) -> Path:
    """Build the library of *plugin* (10 to 30 s) if it was not before; others wait for the first caller."""
    wheel = installed_wheel()
    if settings is None:
        show_programs(resolved := load_settings())
        settings = resolved.settings.tvm
    source = find_source(settings)
    compiler = _compiler(plugin)
    project = resource("cmake_presets")
    name = f"plugins/{plugin.name}-{wheel.version}-{_key(wheel, source, compiler, project)}"
    path, _ = cache.entry(name, lambda directory: _build(plugin, wheel, source, compiler, project, directory))
    return path / plugin.library


def installed_wheel() -> Wheel:
    """Find the TVM that ``import tvm`` gives, without importing it; SourceError if there is none."""
    version = wheel_version()
    directories: dict[str, Path] = {}
    lines = []
    for package, distribution in (("tvm", "apache-tvm"), ("tvm_ffi", "apache-tvm-ffi")):
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            raise SourceError(
                f"the Python package {package} is not installed", remedy=install_command(distribution)
            )
        directory = directories[package] = Path(spec.origin).parent
        recorded = _recorded_digests(distribution)
        for library in sorted((directory / "lib").glob("*.so")):
            stat = library.stat()
            known = recorded.get(f"{package}/lib/{library.name}") or str(stat.st_mtime_ns)
            lines.append(f"{package} {library.name} {stat.st_size} {known}")
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return Wheel(version, directories["tvm"], directories["tvm_ffi"], digest)


def _recorded_digests(distribution: str) -> dict[str, str]:
    """Return each file's sha256 as the installer recorded it: hashing 230 MB takes as long as linking."""
    try:
        files = importlib.metadata.files(distribution) or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    return {str(file): file.hash.value for file in files if file.hash is not None}


def _compiler(plugin: Plugin) -> Tool:
    remedy = f"apt-get install g++   (or set CXX): {plugin.what} is compiled once"
    name = os.environ.get("CXX") or next(filter(shutil.which, ("c++", "g++", "clang++")), None)
    if name is None:
        raise ToolNotFound("there is no C++ compiler on PATH (c++, g++ or clang++)", remedy=remedy)
    return find_tool(name, remedy=remedy)


def _key(wheel: Wheel, source: TvmSource, compiler: Tool, project: Path) -> str:
    """Hash everything that decides what is built."""
    made_of = [wheel.digest, source.digest, compiler_identity(compiler.path)]
    made_of += [cache.file_sha256(file) for file in sorted((project / PROJECT).rglob("*")) if file.is_file()]
    return hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:12]


def _build(
    plugin: Plugin, wheel: Wheel, source: TvmSource, compiler: Tool, project: Path, directory: Path
) -> None:
    log.info("building %s for the installed TVM %s (once)", plugin.what, wheel.version)
    remedy = (
        f"The tree {source.path} ({source.version}) must be the source of the installed TVM {wheel.version}; "
        "see --tvm-source, TVM_HOME and the tvm.provider setting."
    )
    with scratch_directory("plugin") as scratch:
        configure: list[str | Path] = [
            cmake().path,
            *("-S", str(project / PROJECT), "-B", scratch, "-G", "Ninja"),
            f"-DCMAKE_MAKE_PROGRAM={ninja().path}",
            f"-DCMAKE_CXX_COMPILER={compiler.path}",
            f"-DADT_PLUGIN={plugin.name}",
            f"-DADT_TVM_SOURCE={source.path}",
            f"-DADT_TVM_WHEEL={wheel.tvm}",
            f"-DADT_FFI_WHEEL={wheel.ffi}",
        ]
        what = f"building {plugin.what} for TVM {wheel.version} failed"
        run(configure, error=SourceError, what=what, remedy=remedy)
        run([ninja().path, "-C", scratch], error=SourceError, what=what, remedy=remedy)
        shutil.copy2(scratch / plugin.library, directory / plugin.library)


ATTRIBUTES = "relax.attrs."
"""Types of operators' attributes: where tree and wheel disagree, those operators are passed over."""


@dataclass(frozen=True)
class LoadedPlugin:
    """A plugin in this process."""

    library: ctypes.CDLL
    foreign: frozenset[str]
    """Types of operators' attributes that the plugin, compiled from its source tree, would misread."""


_LOADED: dict[Path, LoadedPlugin] = {}
_LOCK = threading.Lock()


def load_plugin(library: Path) -> LoadedPlugin:
    """Load *library*, once, whose functions TVM then has; SourceError if it is for another TVM."""
    import tvm

    path = library.resolve()
    with _LOCK:
        if path in _LOADED:
            return _LOADED[path]
        remedy = f"Remove {library.parent} to build it again for the installed TVM."
        try:
            handle = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise SourceError(
                f"the plugin {library.name} cannot be loaded: {error}", remedy=remedy
            ) from error
        compare = tvm.get_global_func(layout_function(library), allow_missing=True)
        foreign = foreign_types(library.name, [str(text) for text in compare()] if compare else [])
        _LOADED[path] = LoadedPlugin(handle, foreign)
        return _LOADED[path]


def layout_function(library: Path) -> str:
    """Return the name of the function that compares the headers of *library*'s tree with the wheel."""
    return f"adt.layout_differences.{library.stem.rpartition('_')[2]}"


def foreign_types(name: str, differences: list[str]) -> frozenset[str]:
    """Return the types that the plugin *name* must not read, from what it found: ``type.field: how`` each."""
    types = {text.partition(":")[0].rpartition(".")[0] for text in differences}
    if any(not kind.startswith(ATTRIBUTES) for kind in types):
        raise SourceError(
            f"the plugin {name} was built from a TVM source tree that does not fit the installed TVM",
            remedy="Build it from the installed version's source: ADT_TVM_PROVIDER=git, or TVM_HOME.",
            details="\n".join(differences),
        )
    return frozenset(types)
