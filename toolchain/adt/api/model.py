"""Models: compile them to ModelPackages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from adt.config.load import load_settings
from adt.errors import MismatchError
from adt.host.ndk import find_ndk
from adt.model.package import ModelPackage, PackageLike
from adt.target.build import find_bundle
from adt.target.bundle import load_bundle
from adt.target.plan import plan_build
from adt.target.platforms import platform_named


def compile(  # the verb's name; Python's own compile() is not used here
    model: Path,
    *,
    out: Path | None = None,
    platform: str | None = None,
    target: str | None = None,
    shapes: Sequence[str] | None = None,
    bundle: Path | None = None,
    ndk: str | None = None,
    api_level: int | None = None,
    opt_level: int | None = None,
    like: str | None = None,
) -> ModelPackage:
    """Compile an ONNX model to a ModelPackage for *platform*.

    Args:
        out: directory of the package; by default ``<model>-<platform>`` here.
        shapes: ``name:1,3,224,224`` texts for inputs with open dimensions.
        bundle: directory of the bundle it will run with; by default the one that
            ``build_target`` built here for the platform, if there is one. Android needs one.
        like: serial of a device to compile for in particular: its platform, the features that all
            of its CPUs have, and the limits of its OpenCL, which mod.json records.

    Raises:
        NoDevice, DeviceNotReady, DeviceError: with *like*, the device is absent or not usable.
        ModelError, UnsupportedOp, CompileError, MismatchError: see :mod:`adt.errors`.
    """
    from adt.model.compile import compile_model, package_name

    model_like = None
    if like is not None:
        platform, model_like = _like(like, platform)
    resolved = load_settings(
        {
            "build.platform": platform,
            "build.ndk": ndk,
            "build.api_level": api_level,
            "compile.target": target,
            "compile.shapes": tuple(shapes) if shapes else None,
            "compile.opt_level": opt_level,
        }
    ).settings
    chosen = platform_named(resolved.build.platform)
    linked = load_bundle(bundle) if bundle else None
    if linked is None and chosen.android:
        linked = find_bundle(plan_build(resolved))
    return compile_model(
        model,
        out or Path(f"{package_name(model)}-{chosen.name}"),
        platform=chosen,
        settings=resolved,
        ndk=find_ndk(resolved.build.ndk) if chosen.android else None,
        bundle=linked,
        like=model_like,
    )


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
