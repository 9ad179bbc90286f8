"""Compare a device's outputs with onnxruntime's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from adt.api.place import Opened, open_place
from adt.config.load import load_settings
from adt.config.settings import Settings
from adt.device.rtvm import RtvmOptions
from adt.measure.verify import Verification, compare, limits_for
from adt.model import store

if TYPE_CHECKING:
    from adt.measure.reference import Array


@dataclass(frozen=True)
class VerifyResult:
    """A device's outputs against onnxruntime on this machine."""

    serial: str
    verification: Verification
    outputs: Mapping[str, Array]
    """What the device gave, by name."""
    emulated: bool
    """The device was a virtual one: right or wrong counts, time does not."""


def verify(
    package: Path,
    *,
    serial: str | None = None,
    bundle: Path | None = None,
    model: Path | None = None,
    inputs: Mapping[str, Array] | None = None,
    seed: int | None = None,
    max_abs: float | None = None,
    max_rel: float | None = None,
    timeout: float | None = None,
) -> VerifyResult:
    """Run the package on the device and the source model in onnxruntime, on the same inputs, and compare.

    Args:
        model: the source model; by default the copy that compiling kept in the cache.
        inputs: name to array; made up from *seed* when None.

    Raises:
        RunError, ModelError, …: see :mod:`adt.errors`. A difference over the tolerance does
            not raise: look at ``result.verification.passed``.
    """
    resolved = load_settings(
        {
            "verify.seed": seed,
            "verify.max_abs": max_abs,
            "verify.max_rel": max_rel,
            "device.timeout": timeout,
        }
    ).settings
    opened = open_place(package, serial=serial, bundle=bundle)
    return verify_at(opened, resolved, store.source_model(opened.package, model), inputs)


def verify_at(
    opened: Opened, resolved: Settings, model: Path, inputs: Mapping[str, Array] | None
) -> VerifyResult:
    """Run a package where it is ready and its source model on the same inputs, and compare.

    Args:
        resolved: seed, tolerances and time limit are taken from it.
        model: the source model, for its own runtime.
        inputs: name to array; made up from the seed when None.

    Raises:
        RunError, InputError, ModelError, …: see :mod:`adt.errors`. A difference over the tolerance does not.
    """
    from adt.measure.reference import run_reference
    from adt.model.random_inputs import random_inputs

    manifest = opened.package.manifest
    entry = manifest.entry()
    given = dict(inputs) if inputs is not None else random_inputs(entry.inputs, resolved.verify.seed)
    options = RtvmOptions(entry=entry.name, device=manifest.target.device)
    ran = opened.place.run(options, given, timeout=resolved.device.timeout)
    limits = limits_for(manifest.precision, resolved.verify)
    verification = compare(ran.outputs, run_reference(model, given), limits)
    return VerifyResult(opened.place.name, verification, ran.outputs, ran.emulated)
