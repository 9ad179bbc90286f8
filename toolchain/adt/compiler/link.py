"""Linker of a module's object files to mod.so with the compiler of the platform it is for."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adt.bundle.bundle import TargetBundle
from adt.bundle.platforms import BIG_PAGE, Platform
from adt.errors import CompileError, MismatchError
from adt.host.disk import scratch_directory
from adt.host.elf import section_names
from adt.host.ndk import Ndk
from adt.host.process import find_tool, run

ERROR_PARTS = Path(__file__).with_name("error_parts.c")
"""Source of the one function for which a module would need a library of TVM's."""
PARTS = "error_parts.o"  # its object file, beside the module's
OBJECTS = ("lib0.o", "lib1.o", "devc.o", PARTS)
"""Names of the object files that TVM's ``export_library`` writes, and of that."""
AT_LOAD = re.compile(r"\.((pre)?init_array|fini_array|init|fini|ctors|dtors)(\..*)?$")
"""Sections of an object file with what runs when its library is loaded or unloaded."""


@dataclass(frozen=True)
class Linker:
    """Linker of mod.so for one platform."""

    compiler: Path
    flags: tuple[str, ...]

    def link(self, output: Path, objects: list[str], params: str = "") -> None:
        """Link *objects*, which TVM generated, to the shared library *output*.

        Its SONAME, ``mod-<16 hex digits>.so``, is this package's alone, also by its *params*: a linker
        that is asked for a name takes the library that has it already.
        """
        identity = hashlib.sha256(params.encode())
        for file in objects:
            content = Path(file).read_bytes()
            identity.update(hashlib.sha256(content).digest())
            if Path(file).suffix == ".c":  # of a model without kernels TVM writes the module's data as C
                continue
            names = section_names(content)
            if at_load := sorted(name for name in names if AT_LOAD.match(name)):
                raise CompileError(
                    f"the generated code has {', '.join(at_load)}: code that runs when mod.so is loaded",
                    remedy="No kernel needs such code. With --db, a record may have brought it: see "
                    "`adt db verify DB`; else report it with the model.",
                )
        parts = str(Path(objects[0]).parent / PARTS)
        name = f"-Wl,-soname,mod-{identity.hexdigest()[:16]}.so"
        # apart: a compiler that links, too, puts the object into TMPDIR
        compiling = ["-c", "-O1", "-fPIC", "-pipe", "-xc", str(ERROR_PARTS), "-o", parts]
        linking = ["-shared", "-fPIC", "-s", name, "-o", str(output), *objects, parts, *self.flags]
        for what, arguments in ((f"compiling {ERROR_PARTS.name}", compiling), ("linking mod.so", linking)):
            run(
                [self.compiler, *arguments],
                error=CompileError,
                what=f"{what} failed",
                remedy="Is the compiler complete (`adt doctor`), and does the bundle fit this adt's TVM?",
            )

    def export(self, built: Any, library: Path, scratch: Path | None = None, params: str = "") -> None:
        """Write what ``tvm.compile`` *built* to the shared library *library*.

        The compiler's files go to *scratch*, which the caller removes, or else to a directory of their own.
        """

        def link(output: str, objects: list[str], **_options: Any) -> None:
            self.link(Path(output), objects, params)

        link.output_format = "so"  # type: ignore[attr-defined]  # how export_library asks for the kind
        with contextlib.ExitStack() as stack:
            directory = scratch or stack.enter_context(scratch_directory("link"))
            for name in OBJECTS:
                stack.callback(os.close, _in_memory(directory / name))
            built.export_library(str(library), fcompile=link, workspace_dir=str(directory))


def _in_memory(path: Path) -> int:
    """Make *path* the name of a file in memory, and return its descriptor, with which it goes.

    LLVM ends the whole process when it cannot write an object file, as on a full disk.
    """
    descriptor = os.memfd_create(path.name)
    path.symlink_to(f"/proc/{os.getpid()}/fd/{descriptor}")
    return descriptor


def linker_for(platform: Platform, *, ndk: Ndk | None, api_level: int, bundle: TargetBundle | None) -> Linker:
    """Return the linker for *platform*.

    mod.so needs the system's libraries alone; an undefined symbol is an error here instead of on the device.
    """
    if bundle is not None and bundle.manifest.platform != platform.name:
        raise MismatchError(
            f"the bundle {bundle.path} is for {bundle.manifest.platform}, the model for {platform.name}",
            remedy=f"adt build-target --for {platform.name}",
        )
    flags = ["-Wl,--no-undefined", "-Wl,--as-needed", "-lm"]
    if platform.page_alignment == BIG_PAGE:
        flags.append(f"-Wl,-z,max-page-size={BIG_PAGE}")
    if platform.android:
        if bundle is None or ndk is None:
            raise MismatchError(
                "a model for Android is compiled for the bundle that it will run with, and none was given",
                remedy=f"adt build-target --for {platform.name}, then pass --bundle DIR",
            )
        return Linker(ndk.compiler(platform.ndk_triple, api_level), tuple(flags))
    compiler = find_tool(platform.compiler, remedy=f"apt-get install {platform.packages}")
    return Linker(compiler.path, tuple(flags))
