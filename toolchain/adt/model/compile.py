"""Compile a model file to a ModelPackage."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from adt.bundle.audit.gate import audit_made
from adt.bundle.bundle import TargetBundle
from adt.bundle.platforms import Platform
from adt.errors import CompileError
from adt.host.cache import fresh_dir, leave_alone
from adt.host.ndk import Ndk
from adt.model.assemble import Making, assemble
from adt.model.functions import check_functions
from adt.model.importers.imported_model import ImportedModel
from adt.model.importers.importer import import_model
from adt.model.importers.shapes import parse_shapes
from adt.model.link import linker_for
from adt.model.package import model_store
from adt.model.package.files import LIBRARY, MANIFEST
from adt.model.package.kernel_check import check
from adt.model.package.manifest import PackageLike, PackageManifest
from adt.model.package.package import ModelPackage
from adt.model.passes.offload.partition import check_combination
from adt.model.passes.precision.conversion import reduced
from adt.model.targets import ModelTarget, model_target
from adt.model.tuning.tuning import Tuning
from adt.model.versions import OURS, install, require_tvm, texture_codegen_trusted
from adt.options.sections import Settings

log = logging.getLogger("adt.compile")


def compile_model(
    model: Path,
    out: Path,
    *,
    platform: Platform,
    settings: Settings,
    ndk: Ndk | None = None,
    bundle: TargetBundle | None = None,
    like: PackageLike | None = None,
    accuracy_inputs: Sequence[Path] = (),
    tuning: Tuning | None = None,
) -> ModelPackage:
    """Compile the model file for *platform* into the directory *out*, which appears complete or not at all.

    Args:
        bundle: the bundle that the package will run with; needed for Android. Its
            alignment is what the generated code may assume.
        like: the device to compile for in particular; None: any one of the platform.
        accuracy_inputs: .npz files, one sample each, on which reduced precision is measured.
        tuning: records that kernels get their schedules from.

    Raises:
        ModelError, UnsupportedOp, ConfigError, MismatchError, InputError: see :func:`readied`.
        UnsupportedOp: the code calls a function that no runtime has.
        CompileError: TVM or the linker failed.
        PackageError: *out* exists and is no package.
    """
    leave_alone(out, lambda there: (there / MANIFEST).is_file(), "a package")
    imported, making = readied(
        model,
        platform=platform,
        settings=settings,
        ndk=ndk,
        bundle=bundle,
        like=like,
        accuracy_inputs=accuracy_inputs,
    )
    making = replace(making, tuning=tuning)
    with fresh_dir(out) as directory:
        package = assemble(imported, making, directory)
        if bundle is not None:
            audit_made(
                directory / LIBRARY,
                platform,
                error=CompileError,
                api_level=settings.build.api_level,
                ndk=ndk,
                bundle=bundle.path,
            )
        registered = bundle.manifest.functions if bundle is not None else ()
        check_functions(imported, package.manifest.made.functions, registered)
        say_tuned(package.manifest)
        checked = None
        wanted = _wanted_check(making.target, settings.compile.check)
        if making.target.device == "opencl" and wanted != "off":
            checked = check(imported, package, making, wanted=wanted)
    return ModelPackage(out, package.manifest, checked=checked)


def readied(
    model: Path,
    *,
    platform: Platform,
    settings: Settings,
    ndk: Ndk | None = None,
    bundle: TargetBundle | None = None,
    like: PackageLike | None = None,
    accuracy_inputs: Sequence[Path] = (),
) -> tuple[ImportedModel, Making]:
    """The model file imported and in its precision, and what it is to be compiled for.

    Args:
        model, platform, settings, ndk, bundle, like, accuracy_inputs: see :func:`compile_model`.

    Raises:
        ModelError, UnsupportedOp: the model cannot be imported.
        ConfigError, MismatchError, InputError: see :func:`adt.model.passes.precision.conversion.reduced`.
        ToolNotFound, NdkError: the platform's compiler is not there.
    """
    linker = linker_for(platform, ndk=ndk, api_level=settings.build.api_level, bundle=bundle)
    target = package_target(platform, settings, like)
    check_combination(settings.compile.offload, target.device, platform, settings.build.api_level)
    alignment = bundle.manifest.options.alignment if bundle else settings.build.alignment
    alignment = alignment or platform.alignment
    log.info("importing %s", model.name)
    imported = import_model(model, parse_shapes(settings.compile.shapes))
    model_store.keep(imported.file, imported.source.sha256)
    log.info("compiling for %s on %s", target.name, platform.name)
    imported, accuracy = reduced(imported, settings.compile, target, like, accuracy_inputs)
    return imported, Making(target, platform, settings, linker, alignment, like, accuracy)


def say_tuned(made: PackageManifest) -> None:
    """Say how many kernels have the schedule of a record, and of which device."""
    report = made.made.tuning
    if report is None:
        return
    log.info("tuned %d of %d kernels (%s)", made.tuned, made.total, report.told)
    for kernel in report.refused:
        log.warning("the record of %s does not apply to it any more: it is untuned", kernel)


def _wanted_check(target: ModelTarget, setting: str) -> str:
    """The setting, but for textures of a TVM whose textures are known to be wrong: the check decides."""
    untrusted = texture_codegen_trusted(require_tvm()) if target.textures else None
    if untrusted is None:
        return setting
    if setting == "off":
        raise CompileError(
            f"textures are not trusted unchecked: {untrusted}",
            remedy=f"Leave --no-check out, use --target adreno-buffer, or: {install(*OURS)}",
        )
    log.warning("textures must pass the check: %s", untrusted)
    return "on"


def package_target(platform: Platform, settings: Settings, like: PackageLike | None) -> ModelTarget:
    """What the settings stand for on *platform*, for the device *like*."""
    features, limits, gpu = (like.cpu_features, like.opencl_limits, like.gpu) if like else ((), None, "")
    return model_target(
        settings.compile.target,
        platform,
        settings.build.api_level,
        features,
        limits,
        cpu=settings.compile.cpu,
        gpu=gpu,
    )
