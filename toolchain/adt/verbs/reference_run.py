"""Reference of a generated device test: made-up inputs, and the model's own outputs on them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from adt.compiler.importers import model_store
from adt.errors import AdtError, InputError
from adt.integrate.model_api import Project, ReferenceOutput, ReferenceRun
from adt.measure.reference import reference_named
from adt.measure.verify import limits_for, limits_of_output
from adt.numerics import REORDERED, Array
from adt.options.sections import Settings, VerifySettings
from adt.package.inputs.random import random_inputs
from adt.package.manifest import PackageManifest, TensorSpec
from adt.package.package import ModelPackage

log = logging.getLogger("adt.generate")

MOST_BYTES = 16 << 20
"""Limit of all arrays: a project is kept in version control."""


def with_references(project: Project, settings: Settings) -> Project:
    """Add a reference to each model of *project* whose source is there; warn of why others have none."""
    models = []
    for model in project.models:
        packages = [variant.package for part in model.every_device for variant in part.variants]
        try:
            models.append(replace(model, reference=reference_run(packages, settings)))
        except AdtError as error:
            log.warning("the device test of %s compares with no reference: %s", model.api.name, error.what)
            models.append(model)
    return replace(project, models=tuple(models))


def reference_run(packages: Sequence[ModelPackage], settings: Settings) -> ReferenceRun:
    """Run the reference of *packages*, which are of one model, on its entry ``main``."""
    package, asked = packages[0], settings.verify
    entry = package.manifest.entry()
    inputs = random_inputs(entry.inputs, asked.seed, asked.fill_mode)
    reference = reference_named(asked.reference, package, lambda: model_store.source_model(package), settings)
    right = reference.run(inputs)
    manifests = [each.manifest for each in packages]
    outputs = tuple(_output(spec, right, manifests, asked) for spec in entry.outputs)
    run = ReferenceRun(
        f"seed {asked.seed}" if asked.fill_mode == "random" else asked.fill_mode,
        reference.name,
        tuple(inputs[spec.name].tobytes() for spec in entry.inputs),
        outputs,
    )
    size = sum(map(len, run.inputs)) + sum(len(output.data) for output in outputs)
    if size > MOST_BYTES:
        raise InputError(
            f"its arrays have {size >> 20} MiB, more than {MOST_BYTES >> 20}",
            remedy="Compile the model with smaller extents: --shape.",
        )
    return run


def _output(
    spec: TensorSpec, right: Mapping[str, Array], manifests: Sequence[PackageManifest], asked: VerifySettings
) -> ReferenceOutput:
    """Compute one output, with the widest of the tolerances of *manifests*: any of them may run."""
    array = right.get(spec.name)
    if array is None or array.dtype.name != spec.dtype:
        raise InputError(
            f"the reference gives no {spec.dtype} {spec.name}", remedy="Verify against another: --reference."
        )
    if not np.isfinite(array).all():
        raise InputError(
            f"the reference gives NaN or infinity as {spec.name}", remedy="Set another [verify] seed."
        )
    whole = array.dtype.kind != "f"
    share = max(limits_for(manifest.precision, asked).max_changed for manifest in manifests)
    return ReferenceOutput(
        array.astype("<f8").tobytes(),
        max(_limit(spec.name, array, manifest, asked) for manifest in manifests),
        int(share * array.size) if whole else 0,
    )


def _limit(name: str, array: Array, manifest: PackageManifest, asked: VerifySettings) -> float:
    """Compute the gap that an element of *array* may have, as :func:`adt.measure.verify.compare` has it."""
    max_abs, max_rel = limits_of_output(array.dtype.name, manifest.precision, asked)
    quanta = manifest.made.quanta.get(name, 0.0) * (1 if asked.max_steps < 0 else asked.max_steps)
    magnitude = float(np.abs(array.astype(np.float64)).max(initial=0.0))
    return max(max_abs, max_rel * magnitude, quanta * (1 + REORDERED["float32"]))
