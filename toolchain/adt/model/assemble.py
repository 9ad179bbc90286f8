"""Make the files of a ModelPackage from an imported model."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import adt
from adt.config.settings import Settings
from adt.errors import AdtError, CompileError
from adt.host import manifest
from adt.host.cache import file_sha256
from adt.host.elf import ElfFacts, read_elf
from adt.model.importers.imported import ImportedModel
from adt.model.inspection.capture import Capture
from adt.model.inspection.record import Recorded, record, recorded_files
from adt.model.link import Linker
from adt.model.offload.partition import Offloaded, offload, plugin_for
from adt.model.package import (
    LIBRARY,
    MANIFEST,
    PARAMS,
    Entry,
    Kernel,
    ModelPackage,
    PackageFile,
    PackageLike,
    PackageMade,
    PackageManifest,
    PackageTarget,
    PackageTvm,
)
from adt.model.precision.accuracy_report import Accuracy
from adt.model.prepare import Prepared, prepare
from adt.model.targets import ModelTarget
from adt.target.platforms import Platform

KERNEL_PREFIX = "__tvm_ffi_"
"""How the code generator names the functions that a module exports."""


@dataclass(frozen=True)
class Making:
    """What a package is made for."""

    target: ModelTarget
    platform: Platform
    settings: Settings
    linker: Linker
    alignment: int
    """Bytes to which the runtime aligns tensors."""
    like: PackageLike | None = None
    accuracy: Accuracy | None = None
    """Of the reduced precision, against float32."""


def assemble(imported: ImportedModel, making: Making, directory: Path) -> ModelPackage:
    """Compile *imported* and write mod.so, mod.params and mod.json into *directory*.

    Raises:
        CompileError: TVM or the linker failed.
        ModelError: operators were to be handed over, and the model has open dimensions.
        ToolNotFound, SourceError, DownloadError: … and their code generator cannot be built.
    """
    handed = _hand_over(imported, making)
    if handed is not None:
        imported = dataclasses.replace(imported, module=handed.module, params=handed.params)
    prepared, recorded = _build(imported, making, directory / LIBRARY)
    if handed is not None:
        handed.write(directory)
    _save_params(prepared, directory / PARAMS)
    described = _describe(imported, prepared, recorded, making, directory, handed)
    manifest.write(described, directory / MANIFEST)
    return ModelPackage(directory, described)


def _hand_over(imported: ImportedModel, making: Making) -> Offloaded | None:
    """Hand operators to a vendor's library, if that was asked for."""
    kind = making.settings.compile.offload
    if kind == "none":
        return None
    with tvm_errors(f"the part for {kind}"):
        return offload(
            imported.module,
            imported.params,
            kind,
            plugin=plugin_for(kind, making.settings.tvm),
            api_level=making.settings.build.api_level,
        )


def _build(imported: ImportedModel, making: Making, library: Path) -> tuple[Prepared, Recorded]:
    import tvm

    capture = Capture()

    with tvm_errors("the model"), tempfile.TemporaryDirectory(prefix="adt-link-") as scratch:
        pass_context = tvm.transform.PassContext(opt_level=making.settings.compile.opt_level)
        wanted = tvm.target.Target(making.target.spec)
        with pass_context, wanted:
            prepared = prepare(imported.module, imported.params, making.target, making.alignment)
            built = tvm.compile(
                prepared.module,
                wanted,
                relax_pipeline=capture.after(prepared.relax_pipeline),
                tir_pipeline=prepared.tir_pipeline,
            )
        built.export_library(str(library), fcompile=making.linker.for_export(), workspace_dir=scratch)
    return prepared, record(library.parent, capture, built, prepared.plain)


@contextlib.contextmanager
def tvm_errors(what: str) -> Iterator[None]:
    """Turn whatever TVM raises while it compiles *what* into a CompileError; ours pass unchanged."""
    try:
        yield
    except AdtError:
        raise
    except Exception as why:  # TVM raises InternalError, ValueError, TypeError, …
        lines = [line for line in str(why).splitlines() if line.strip()]
        raise CompileError(
            f"TVM could not compile {what}: {type(why).__name__}: {lines[-1].strip() if lines else ''}",
            remedy="TVM's last lines are below; another --opt-level may avoid the failing pass.",
            details="\n".join(lines[-10:]),
        ) from why


def _save_params(prepared: Prepared, path: Path) -> None:
    import tvm

    tvm.runtime.save_param_dict_to_file(dict(prepared.params), str(path))


def context_symbols(elf: ElfFacts) -> tuple[str, ...]:
    """The data symbols of a module that the runtime fills with its functions: the module's ABI."""
    return tuple(sorted(name for name in elf.objects if name.startswith("__TVM")))


def exported_functions(elf: ElfFacts) -> tuple[str, ...]:
    """The functions that a module offers to its callers, sorted."""
    return tuple(
        sorted(
            name.removeprefix(KERNEL_PREFIX)
            for name in elf.functions
            if name.startswith(KERNEL_PREFIX) and not name.startswith(KERNEL_PREFIX + "_")
        )
    )


def package_name(model: Path) -> str:
    """A short name from the model's file name: letters, digits, ``_`` and ``-``."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", model.stem).strip("_") or "model"


def _describe(
    imported: ImportedModel,
    prepared: Prepared,
    recorded: Recorded,
    making: Making,
    directory: Path,
    handed: Offloaded | None,
) -> PackageManifest:
    import tvm
    import tvm_ffi

    target, platform, settings = making.target, making.platform, making.settings
    elf = read_elf(directory / LIBRARY)
    names = exported_functions(elf)
    entry = Entry("main", imported.inputs, imported.outputs, tuple(prepared.params))
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
            cpu_features=target.cpu_features,
        ),
        tvm=PackageTvm(str(tvm.__version__), str(tvm_ffi.__version__), context_symbols(elf)),
        alignment=making.alignment,
        precision=settings.compile.precision,
        offload=handed.kind if handed else "none",
        kernels=tuple(
            Kernel(name, target.device, tuned=False, textures=recorded.textures.get(name, 0))
            for name in names
        ),
        tuned=0,
        total=len(names),
        files={
            LIBRARY: PackageFile(*_facts(directory / LIBRARY), needed=elf.needed),
            PARAMS: PackageFile(*_facts(directory / PARAMS)),
        },
        like=making.like,
        made=PackageMade(
            settings=_recorded_settings(settings),
            textures=prepared.textures,
            accuracy=making.accuracy,
            offload=handed.report if handed else None,
        ),
        inspection=recorded_files(directory),
    )


def _recorded_settings(settings: Settings) -> dict[str, Any]:
    """The settings that decide the package's bytes: checking it does not."""
    facts = dataclasses.asdict(settings.compile)
    del facts["check"]
    return facts


def _facts(path: Path) -> tuple[str, int]:
    return file_sha256(path), path.stat().st_size
