"""Compare a device's outputs with onnxruntime's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from adt.api.deploy import DeployResult, bundle_for, deploy_to
from adt.measure.verify import Verification, compare, limits_for
from adt.config.load import load_settings
from adt.config.settings import Settings
from adt.device import selection
from adt.device.device import Device
from adt.device.runner import run_on_device
from adt.model import store
from adt.model.package import load_package

if TYPE_CHECKING:
    from adt.measure.reference import Array


@dataclass(frozen=True)
class VerifyResult:
    """A device's outputs against onnxruntime on this machine."""

    serial: str
    verification: Verification
    outputs: Mapping[str, Array]
    """What the device gave, by name."""
    virtual: bool
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
            "device.serial": serial,
            "verify.seed": seed,
            "verify.max_abs": max_abs,
            "verify.max_rel": max_rel,
            "device.timeout": timeout,
        }
    ).settings
    opened = load_package(package)
    device = selection.select(resolved.device.serial)
    deployed = deploy_to(device, opened, bundle_for(opened, bundle))
    return verify_deployed(device, deployed, resolved, store.source_model(opened, model), inputs)


def verify_deployed(
    device: Device,
    deployed: DeployResult,
    resolved: Settings,
    model: Path,
    inputs: Mapping[str, Array] | None,
) -> VerifyResult:
    """Run a deployed package and its source model on the same inputs, and compare.

    Args:
        deployed: with a package; its program runs once.
        resolved: seed, tolerances and time limit are taken from it.
        model: the source model, for onnxruntime.
        inputs: name to array; made up from the seed when None.

    Raises:
        RunError, InputError, ModelError, …: see :mod:`adt.errors`. A difference over the tolerance does not.
    """
    from adt.measure.reference import run_reference
    from adt.model.random_inputs import random_inputs

    package = deployed.package
    assert package is not None, "a bundle alone has nothing to verify"
    entry = package.manifest.entry()
    given = dict(inputs) if inputs is not None else random_inputs(entry.inputs, resolved.verify.seed)
    ran = run_on_device(
        device,
        deployed.report.deployment,
        inputs=given,
        seed=resolved.verify.seed,
        entry=entry.name,
        run_count=1,
        dry_run=0,
        device_kind=package.manifest.target.device,
        timeout=resolved.device.timeout,
    )
    limits = limits_for(package.manifest.precision, resolved.verify)
    verification = compare(ran.outputs, run_reference(model, given), limits)
    return VerifyResult(device.serial, verification, ran.outputs, device.facts.virtual)
