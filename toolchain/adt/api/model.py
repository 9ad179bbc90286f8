"""Models: compile them to ModelPackages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from adt.api.bundles import choose_bundle
from adt.config.load import load_settings
from adt.errors import ConfigError, MismatchError
from adt.host.ndk import find_ndk
from adt.model.importers.formats import require_model
from adt.model.package import ModelPackage, PackageLike
from adt.model.targets import place
from adt.model.versions import require_tvm
from adt.target.bundle import load_bundle
from adt.target.platforms import platform_named

if TYPE_CHECKING:
    from adt.model.compiled import Job
    from adt.model.importers.any import Explanation


def compile(  # the verb's name; Python's own compile() is not used here
    model: Path,
    *,
    out: Path | None = None,
    platform: str | None = None,
    target: str | None = None,
    cpu: str | None = None,
    shapes: Sequence[str] | None = None,
    bundle: Path | None = None,
    ndk: str | None = None,
    api_level: int | None = None,
    opt_level: int | None = None,
    like: str | None = None,
    precision: str | None = None,
    keep_float32: Sequence[str] | None = None,
    accuracy: bool | None = None,
    accuracy_inputs: Sequence[Path] = (),
    offload: str | None = None,
    texture_choice: str | None = None,
    check: bool | None = None,
    db: Path | None = None,
    tuned_on: str | None = None,
    use_cache: bool = True,
) -> ModelPackage:
    """Compile a model to a ModelPackage for *platform*.

    Args:
        model: an .onnx, .tflite, .pt2, .keras or .h5 file, or ``Path("module:function")``, a Python
            callable that makes a PyTorch model.
        out: directory of the package, or a name that ends in ``.tar`` for one file; by default
            ``<model>-<platform>`` here.
        target: one of :data:`adt.model.targets.NAMES`, or TVM's own string, tag or dictionary (JSON).
        cpu: the processor: a core, a system on chip, ``native``, features (``cortex-a76,+dotprod,+fp16``).
        shapes: for open dimensions: ``name:1,3,224,224`` texts for inputs, ``batch=1,past=16`` for symbols.
        bundle: directory of the bundle it will run with. Android needs one: by default the newest one that
            was built here for the platform.
        like: serial of a device to compile for in particular: its platform, the features that all
            of its CPUs have, and the limits of its OpenCL, which mod.json records.
        precision: ``float32``, ``float16`` or ``float16_acc32``; inputs and outputs stay float32.
        keep_float32: operators (``nn.softmax``) or variables of the imported module (``lv12``) that stay
            float32 in half precision; ``-NAME`` frees one that does by default.
        accuracy: compare half precision with float32 (True), or not (False); None does for models that
            do not take long. mod.json has the figures.
        accuracy_inputs: .npz files, one sample each, to compare on; random inputs without.
        offload: ``clml`` or ``nnapi``: hand operators to the vendor's library; needs a bundle that has it.
        texture_choice: for ``adreno``: ``auto`` or ``always``, see docs/adreno.md; None: as configured.
        check: run the OpenCL kernels on this machine at once and compare them with the CPU; True: it is an
            error when that cannot be done; None: as configured, by default where it can (``.checked`` of
            the result says what came of it).
        db: a tuning database (:func:`adt.tune`): kernels get the fastest schedules that it has for this
            target, where they are faster than the usual ones.
        tuned_on: which device's records of it, ``NAME`` or ``NAME, DRIVER``; by default those of the device
            *like*, or of the only one that it has for the target.
        use_cache: take the package from the cache if it was compiled before with all the same
            (``.cached`` of the result says so); False compiles again.

    Raises:
        NoDevice, DeviceNotReady, DeviceError: with *like*, the device is absent or not usable.
        ToolNotFound: TVM is not installed, or in versions that are known to break.
        ConfigError: no such target or processor, or it contradicts the platform; or *db* has records of
            several devices.
        PackageError: *db* is no tuning database.
        VerifyFailed: the OpenCL kernels compute wrong numbers.
        ModelError, UnsupportedOp, CompileError, MismatchError: see :mod:`adt.errors`.
    """
    from adt.model.assemble import package_name
    from adt.model.compiled import compile_to
    from adt.model.precision.accuracy import warn

    require_tvm()
    require_model(model)
    job = job_of(
        model,
        platform=platform,
        target=target,
        cpu=cpu,
        shapes=shapes,
        bundle=bundle,
        ndk=ndk,
        api_level=api_level,
        opt_level=opt_level,
        like=like,
        precision=precision,
        keep_float32=keep_float32,
        accuracy=accuracy,
        accuracy_inputs=accuracy_inputs,
        offload=offload,
        texture_choice=texture_choice,
        check=check,
        db=db,
        tuned_on=tuned_on,
    )
    job = tuned_job(job)
    package = compile_to(job, out or Path(f"{package_name(model)}-{job.platform.name}"), use_cache=use_cache)
    if package.manifest.made.accuracy:
        warn(package.manifest.made.accuracy)  # also of a package from the cache
    return package


def job_of(
    model: Path,
    *,
    platform: str | None = None,
    target: str | None = None,
    cpu: str | None = None,
    shapes: Sequence[str] | None = None,
    bundle: Path | None = None,
    ndk: str | None = None,
    api_level: int | None = None,
    opt_level: int | None = None,
    like: str | None = None,
    precision: str | None = None,
    keep_float32: Sequence[str] | None = None,
    accuracy: bool | None = None,
    accuracy_inputs: Sequence[Path] = (),
    offload: str | None = None,
    texture_choice: str | None = None,
    check: bool | None = None,
    db: Path | None = None,
    tuned_on: str | None = None,
    server: bool = False,
) -> Job:
    """A model and all that it is compiled with, resolved; its records are not (:func:`tuned_job`).

    Args and errors are those of :func:`compile`.

    Args:
        server: a bundle that is not named must have an RPC server.
    """
    from adt.model.compile import package_target
    from adt.model.compiled import Job

    require_tvm()
    model_like = None
    if like is not None:
        platform, model_like = _like(like, platform)
    resolved, chosen = place(
        {
            "build.platform": platform,
            "build.ndk": ndk,
            "build.api_level": api_level,
            "compile.target": target,
            "compile.cpu": cpu,
            "compile.shapes": tuple(shapes) if shapes else None,
            "compile.opt_level": opt_level,
            "compile.precision": precision,
            "compile.keep_float32": tuple(keep_float32) if keep_float32 else None,
            "compile.accuracy": None if accuracy is None else ("on" if accuracy else "off"),
            "compile.offload": offload,
            "compile.texture_choice": texture_choice,
            "compile.check": None if check is None else "on" if check else "off",
            "compile.db": db,
            "compile.tuned_on": tuned_on,
        }
    )
    linked = load_bundle(bundle) if bundle else None
    if linked is None and chosen.android:
        opencl = package_target(chosen, resolved, model_like).device == "opencl"
        linked = choose_bundle((chosen.name,), server=server, opencl=opencl)
    return Job(
        model,
        platform=chosen,
        settings=resolved,
        ndk=find_ndk(resolved.build.ndk) if chosen.android else None,
        bundle=linked,
        like=model_like,
        accuracy_inputs=tuple(accuracy_inputs),
    )


def tuned_job(job: Job) -> Job:
    """*job* with the records of the database that its settings name, if they name one.

    Raises:
        ConfigError: the database has records of several devices, or none of the one that was chosen.
        PackageError: there is no database.
    """
    wanted = job.settings.compile
    if not wanted.db:
        if wanted.tuned_on:
            raise ConfigError(
                f"records of {wanted.tuned_on} were asked for (--tuned-on), and no database that has them",
                remedy="Name the database, too: --db DIR",
            )
        return job
    from adt.model.compile import package_target
    from adt.model.tuning.key import tvm_key
    from adt.tuning.chosen import tuning_for

    target = package_target(job.platform, job.settings, job.like)
    found = tuning_for(Path(wanted.db), target, tvm_key(), tuned_on=wanted.tuned_on, like=job.like)
    return replace(job, tuning=found)


def explain(model: Path, *, shapes: Sequence[str] | None = None) -> Explanation:
    """Say what importing a model does with each of its operators, and why it fails if it does.

    Args:
        model: as :func:`compile` takes it.
        shapes: for open dimensions: ``name:1,3,224,224`` texts for inputs, ``batch=1,past=16`` for symbols.

    Raises:
        ModelError: the file is missing or of no format that adt reads.
        ToolNotFound: TVM, or what the model's format needs, is not installed.
    """
    from adt.model.importers.any import explain_model
    from adt.model.importers.shapes import parse_shapes

    require_tvm()
    resolved = load_settings({"compile.shapes": tuple(shapes) if shapes else None}).settings
    return explain_model(model, parse_shapes(resolved.compile.shapes))


def _like(serial: str, platform: str | None) -> tuple[str, PackageLike]:
    """The platform of the device *serial* and what to compile for.

    Args:
        platform: what was asked for; None for the device's own.
    """
    from adt.api.probe import probe
    from adt.device.probe.like import like

    found = probe(serial=serial)
    if platform is not None and platform_named(platform).name not in found.platforms:
        raise MismatchError(
            f"{serial} is {', '.join(found.platforms)}, not {platform}",
            remedy="Leave --for out, or name another device with --like.",
        )
    chosen = platform or found.platforms[0]
    return chosen, like(found, platform_named(chosen).machine)
