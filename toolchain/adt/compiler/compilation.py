"""A model and all that it is compiled with: as asked for (a job), and once it is imported (a compilation)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tvm
from tvm import relax

from adt.bundle.audit.auditing import audit_made
from adt.bundle.bundle import TargetBundle
from adt.bundle.platforms import Platform
from adt.compiler.importers import model_store
from adt.compiler.importers.imported_model import ImportedModel
from adt.compiler.importers.importer import import_model
from adt.compiler.importers.shapes import parse_shapes
from adt.compiler.link import Linker, linker_for
from adt.compiler.passes.offload.partition import check_combination
from adt.compiler.passes.pipeline import recurrent_steps
from adt.compiler.passes.precision.half import SINGLE
from adt.compiler.passes.records.tuning import Tuning
from adt.compiler.precision import convert_precision
from adt.compiler.targets import ModelTarget, model_target
from adt.errors import CompileError, ModelError, last_line
from adt.host.ndk import Ndk
from adt.options.sections import Settings
from adt.package.graphs import kernels_of
from adt.package.manifest import PackageLike
from adt.package.reports import Accuracy

log = logging.getLogger("adt.compile")


@dataclass(frozen=True)
class CompileJob:
    """A model and all that it is compiled with."""

    model: Path
    platform: Platform
    settings: Settings
    ndk: Ndk | None = None
    bundle: TargetBundle | None = None
    """Bundle that the package will run with; needed for Android. Generated code may assume its alignment."""
    like: PackageLike | None = None
    """The device to compile for in particular; None: any one of the platform."""
    accuracy_inputs: tuple[Path, ...] = ()
    """.npz files, one sample each, on which reduced precision is measured; empty: random inputs."""
    tuning: Tuning | None = None
    """Records that kernels get their schedules from."""
    plain: bool = False
    """A CPU computes plain loops on the model's own tensors: a reference for what is computed otherwise."""
    passes: tuple[Callable[[Any], Any], ...] = ()
    """The user's own, on the imported model, before anything else is done with it."""
    apart: bool = False
    """Each layer that a library takes is a subgraph of its own, so that it can be timed; not as fast."""

    @property
    def alignment(self) -> int:
        """Bytes to which the runtime aligns tensors."""
        build = self.bundle.manifest.options if self.bundle else self.settings.build
        return build.alignment or self.platform.alignment

    def target(self) -> ModelTarget:
        """Return the target that the settings mean."""
        target, options = package_target(self.platform, self.settings, self.like), self.settings.compile
        if self.tuning is not None and self.tuning.gpu is not None and target.gpu is not None:
            target = replace(target, gpu=target.gpu.fitted(self.tuning.gpu))
        check_combination(options.offload, target.device, tf32=options.tf32)
        return target

    def linker(self) -> Linker:
        """Return the linker of mod.so."""
        api_level = self.settings.build.api_level
        return linker_for(self.platform, ndk=self.ndk, api_level=api_level, bundle=self.bundle)

    def audit(self, library: Path) -> None:
        """Audit *library* as part of the bundle, if there is one."""
        api_level, ndk = self.settings.build.api_level, self.ndk
        if self.bundle is not None:
            path = self.bundle.path
            audit_made(library, self.platform, error=CompileError, api_level=api_level, ndk=ndk, bundle=path)

    def load(self, *, accuracy: bool = True) -> Compilation:
        """Import the model and bring it into its precision, whose *accuracy* is measured as configured."""
        linker, target, options = self.linker(), self.target(), self.settings.compile
        log.info("importing %s", self.model.name)
        # No library takes the steps of a recurrent layer as one function; in half precision they stay
        # float32. What is a reference unrolls them: it is not to have the faults of that function. The same
        # goes for products by weights of few bits, which CUDA has no kernels for.
        own = not self.plain and options.offload == "none"
        steps = recurrent_steps(target) if own else None
        blockwise = own and target.device in ("cpu", "opencl") and options.precision == SINGLE
        check = options.check != "off" and not self.plain  # a plain one was compared before
        shapes = parse_shapes(options.shapes)
        imported = import_model(self.model, shapes, steps, blockwise=blockwise, check=check)
        model_store.keep(imported.file, imported.source.sha256)
        imported = with_passes(imported, self.passes, target, options.opt_level)
        log.info("compiling for %s on %s", target.name, self.platform.name)
        options = options if accuracy else options.but(accuracy="off")
        files = self.accuracy_inputs if accuracy else ()
        imported, report = convert_precision(imported, options, target, self.like, files)
        return Compilation(
            imported,
            target,
            self.platform,
            self.settings,
            linker,
            self.alignment,
            self.like,
            report,
            self.tuning,
            self.plain,
            self.apart,
        )


@dataclass(frozen=True)
class Compilation:
    """An imported model in its precision, and what its package is made for: much of it as in the job."""

    imported: ImportedModel
    target: ModelTarget
    platform: Platform
    settings: Settings
    linker: Linker
    alignment: int
    like: PackageLike | None = None
    accuracy: Accuracy | None = None
    """Accuracy of the reduced precision, against float32."""
    tuning: Tuning | None = None
    plain: bool = False
    apart: bool = False


def package_target(platform: Platform, settings: Settings, like: PackageLike | None) -> ModelTarget:
    """Return the target that the settings mean on *platform*, for the device *like*."""
    options = settings.compile
    return model_target(options.target, platform, settings.build.api_level, like, cpu=options.cpu)


_OPAQUE = 8  # TVM's ``relax::OpPatternKind`` of what is not fused


def with_passes(
    imported: ImportedModel, passes: Sequence[Callable[[Any], Any]], target: ModelTarget, opt_level: int
) -> ImportedModel:
    """Apply the user's *passes* to *imported* in order; *target* is TVM's current one meanwhile."""
    module, before = imported.module, imported.module["main"]
    for each in passes:
        name = str(getattr(getattr(each, "info", None), "name", "")) or getattr(each, "__name__", repr(each))
        try:
            with tvm.transform.PassContext(opt_level=opt_level), tvm.target.Target(target.spec):
                module = each(module)
            main = module["main"]
            same = _types(main) == _types(before)
        except Exception as error:  # the user's own code
            raise ModelError(
                f"the pass {name} failed: {type(error).__name__}: {last_line(error)}",
                remedy="It is called with a tvm.IRModule and returns one, with main.",
            ) from error
        if not same:
            raise ModelError(
                f"the pass {name} changes what main takes or returns",
                remedy="Keep main's parameters, their order and types, and its result's type.",
            )
        module["main"] = main.with_attr("num_input", before.attrs["num_input"])
    return replace(imported, module=_unfused(module))


def _types(main: relax.Function) -> list[str]:
    return [str(parameter.struct_info) for parameter in main.params] + [str(main.ret_struct_info)]


def _unfused(module: tvm.IRModule) -> tvm.IRModule:
    """Mark kernels with 32-bit extents, TVMScript's default, as not to be fused: TVM takes a buffer whose
    extents have another type for another buffer."""
    for name, kernel in kernels_of(module).items():
        extents = [extent for buffer in kernel.buffer_map.values() for extent in buffer.shape]
        if any(str(extent.dtype) != "int64" for extent in extents):
            module[name] = kernel.with_attr("op_pattern", _OPAQUE)
    return module
