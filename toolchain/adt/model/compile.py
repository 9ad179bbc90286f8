"""Compile an imported model to a ModelPackage."""

from __future__ import annotations

import contextlib
import logging
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import adt
from adt.config.settings import Settings
from adt.errors import AdtError, CompileError
from adt.host import manifest
from adt.host.cache import file_sha256, fresh_dir, leave_alone
from adt.host.elf import ElfFacts, read_elf
from adt.host.ndk import Ndk
from adt.model import store
from adt.model.importer import ImportedModel, import_onnx, parse_shapes
from adt.model.link import Linker, linker_for
from adt.model.lowering import tir_pipeline
from adt.model.package import (
    LIBRARY,
    MANIFEST,
    PARAMS,
    Entry,
    Kernel,
    ModelPackage,
    PackageFile,
    PackageLike,
    PackageManifest,
    PackageTarget,
    PackageTvm,
)
from adt.model.schedules import relax_pipeline
from adt.model.targets import ModelTarget, model_target
from adt.target.audit.gate import audit_made
from adt.target.bundle import TargetBundle
from adt.target.platforms import Platform

log = logging.getLogger("adt.compile")

KERNEL_PREFIX = "__tvm_ffi_"
"""How the code generator names the functions that a module exports."""


def compile_model(
    model: Path,
    out: Path,
    *,
    platform: Platform,
    settings: Settings,
    ndk: Ndk | None = None,
    bundle: TargetBundle | None = None,
    like: PackageLike | None = None,
) -> ModelPackage:
    """Compile the model file for *platform* into the directory *out*, which appears complete or not at all.

    Args:
        bundle: the bundle that the package will run with; needed for Android. Its
            alignment is what the generated code may assume.
        like: the device to compile for in particular; None: any one of the platform.

    Raises:
        ModelError, UnsupportedOp: the model cannot be imported.
        CompileError: TVM or the linker failed.
        PackageError: *out* exists and is no package.
    """
    leave_alone(out, lambda there: (there / MANIFEST).is_file(), "a package")
    linker = linker_for(platform, ndk=ndk, api_level=settings.build.api_level, bundle=bundle)
    features, limits = (like.cpu_features, like.opencl_limits) if like else ((), None)
    target = model_target(settings.compile.target, platform, settings.build.api_level, features, limits)
    alignment = bundle.manifest.options.alignment if bundle else settings.build.alignment
    alignment = alignment or platform.alignment
    log.info("importing %s", model.name)
    imported = import_onnx(model, parse_shapes(settings.compile.shapes))
    store.keep(model, imported.source.sha256)
    log.info("compiling for %s on %s", target.name, platform.name)
    with fresh_dir(out) as directory:
        _build(imported, target, alignment, settings.compile.opt_level, linker, directory / LIBRARY)
        if bundle is not None:
            audit_made(
                directory / LIBRARY,
                platform,
                error=CompileError,
                api_level=settings.build.api_level,
                ndk=ndk,
                bundle=bundle.path,
            )
        _save_params(imported, directory / PARAMS)
        described = _describe(imported, directory, target, platform, settings, alignment, like)
        manifest.write(described, directory / MANIFEST)
    return ModelPackage(out, described)


def _build(
    imported: ImportedModel,
    target: ModelTarget,
    alignment: int,
    opt_level: int,
    linker: Linker,
    library: Path,
) -> None:
    import tvm

    def link(output: str, objects: list[str], **_options: Any) -> None:
        linker.link(Path(output), objects)

    link.output_format = "so"  # type: ignore[attr-defined]  # how export_library asks for the kind
    with _tvm_errors(), tempfile.TemporaryDirectory(prefix="adt-link-") as scratch:
        pass_context = tvm.transform.PassContext(opt_level=opt_level)
        wanted = tvm.target.Target(target.spec)
        with pass_context, wanted:
            built = tvm.compile(
                imported.module,
                wanted,
                relax_pipeline=relax_pipeline(target.device),
                tir_pipeline=tir_pipeline(alignment),
            )
        built.export_library(str(library), fcompile=link, workspace_dir=scratch)


@contextlib.contextmanager
def _tvm_errors() -> Iterator[None]:
    """Turn whatever TVM raises into a CompileError; ours pass unchanged."""
    try:
        yield
    except AdtError:
        raise
    except Exception as why:  # TVM raises InternalError, ValueError, TypeError, …
        lines = [line for line in str(why).splitlines() if line.strip()]
        raise CompileError(
            f"TVM could not compile the model: {type(why).__name__}: {lines[-1].strip() if lines else ''}",
            remedy="TVM's last lines are below; another --opt-level may avoid the failing pass.",
            details="\n".join(lines[-10:]),
        ) from why


def _save_params(imported: ImportedModel, path: Path) -> None:
    import tvm

    tvm.runtime.save_param_dict_to_file(dict(imported.params), str(path))


def context_symbols(elf: ElfFacts) -> tuple[str, ...]:
    """The data symbols of a module that the runtime fills with its functions: the module's ABI."""
    return tuple(sorted(name for name in elf.objects if name.startswith("__TVM")))


def package_name(model: Path) -> str:
    """A short name from the model's file name: letters, digits, ``_`` and ``-``."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", model.stem).strip("_") or "model"


def _describe(
    imported: ImportedModel,
    directory: Path,
    target: ModelTarget,
    platform: Platform,
    settings: Settings,
    alignment: int,
    like: PackageLike | None,
) -> PackageManifest:
    import tvm
    import tvm_ffi

    elf = read_elf(directory / LIBRARY)
    names = sorted(
        name.removeprefix(KERNEL_PREFIX)
        for name in elf.functions
        if name.startswith(KERNEL_PREFIX) and not name.startswith(KERNEL_PREFIX + "_")
    )
    entry = Entry("main", imported.inputs, imported.outputs, tuple(imported.params))
    return PackageManifest(
        adt_version=adt.__version__,
        name=package_name(Path(imported.source.file)),
        source=imported.source,
        entries=(entry,),
        target=PackageTarget(
            name=target.name,
            device=target.device,
            platform=platform.name,
            triple=platform.llvm_triple(settings.build.api_level),
            machine=elf.machine,
            spec=target.spec,
            vdevices=target.vdevices,
        ),
        tvm=PackageTvm(str(tvm.__version__), str(tvm_ffi.__version__), context_symbols(elf)),
        alignment=alignment,
        precision="float32",
        offload="none",
        kernels=tuple(Kernel(name, target.device, tuned=False) for name in names),
        tuned=0,
        total=len(names),
        files={
            LIBRARY: PackageFile(*_facts(directory / LIBRARY), needed=elf.needed),
            PARAMS: PackageFile(*_facts(directory / PARAMS)),
        },
        like=like,
    )


def _facts(path: Path) -> tuple[str, int]:
    return file_sha256(path), path.stat().st_size
