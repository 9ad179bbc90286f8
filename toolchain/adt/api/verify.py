"""Compare a device's outputs with a reference, whole or kernel by kernel."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from adt.api.place import open_place
from adt.api.requests import LayersRequest, VerifyRequest
from adt.compiler.importers import model_store
from adt.device.place import Opened
from adt.device.rtvm import RtvmOptions
from adt.errors import AdtError, ConfigError, PackageError
from adt.measure.layers import LayerScan, Scan, compare_layers
from adt.measure.verify import Verification, accuracy, compare, worst_of
from adt.numerics import joined
from adt.options.request import takes
from adt.options.sections import Settings
from adt.package import origin
from adt.package.package import load_package

if TYPE_CHECKING:
    from adt.measure.reference import Array


@dataclass(frozen=True)
class VerifyResult:
    """A device's outputs against the reference."""

    serial: str
    verification: Verification
    """Worst comparison of each output over several sets of inputs; with a model as the reference, of all
    together."""
    outputs: Mapping[str, Array]
    """Outputs of the device, by name, on the first set of inputs."""
    emulated: bool
    """The device was a virtual one: right or wrong counts, time does not."""
    reference: str = "onnxruntime"
    """Kind of the reference: ``onnxruntime``, ``tflite``, ``torch``, ``keras``, ``host``, ``file``,
    ``model``."""
    reference_what: str = "onnxruntime on this machine"
    """Description of the reference."""
    runs: tuple[tuple[str, Verification], ...] = ()
    """Each set of inputs by name, and what came of it."""
    right: Mapping[str, Array] = field(default_factory=dict)
    """Outputs of the reference, by name, on the first set of inputs."""


@dataclass(frozen=True)
class LayersResult:
    """A device's kernels against the same kernels on this machine's CPU."""

    serial: str
    emulated: bool
    layers: LayerScan


@takes(VerifyRequest)
def verify(request: VerifyRequest) -> VerifyResult:
    """Run the package where it belongs and the reference here, on the same inputs, and compare.

    Raises:
        RunError, ModelError, …: see :mod:`adt.errors`. A difference over the tolerance does
            not raise: look at ``result.verification.passed``.
    """
    opened = open_place(load_package(request.package), request)
    sets = (request.inputs,) if isinstance(request.inputs, Mapping) else request.inputs
    return verify_at(
        opened,
        request.settings,
        lambda: model_store.source_model(opened.package, request.model),
        sets,
        seeds=request.seeds,
        trust=request.trust,
    )


def verify_at(
    opened: Opened,
    resolved: Settings,
    find_model: Callable[[], Path],
    inputs: Sequence[Mapping[str, Array]] | None,
    *,
    seeds: int = 1,
    trust: bool = False,
) -> VerifyResult:
    """Run a package where it is ready and its reference on the same inputs, and compare.

    Args:
        resolved: seed, tolerances, reference and time limit are taken from it.
        find_model: the source model, for its own runtime; asked for where the reference needs it.
        inputs: sets of name to array; made up from the seed when None.
        seeds: how many sets to make up.
        trust: the reference may be a model that is code.

    Raises:
        RunError, InputError, ModelError, …: see :mod:`adt.errors`. A difference over the tolerance does not.
    """
    from adt.measure.reference import FILE, MODEL, reference_named, with_unused
    from adt.measure.roundings import explained
    from adt.package.inputs.random import random_inputs
    from adt.package.inputs.validation import taken_inputs

    manifest = opened.package.manifest
    entry = manifest.entry()
    first, fill = resolved.verify.seed, resolved.verify.fill_mode
    if seeds < 1 or (seeds > 1 and fill != "random") or (inputs is not None and (seeds > 1 or not inputs)):
        raise ConfigError(
            f"{seeds} sets of made-up inputs ({fill}) and {len(inputs or ())} sets of the caller's",
            remedy="Give --seeds N (at least 1, of random inputs), or --input once or several times.",
        )
    sets = (
        [(f"input {number}", taken_inputs(entry, arrays)) for number, arrays in enumerate(inputs, start=1)]
        if inputs is not None
        else [
            (f"seed {seed}" if fill == "random" else fill, random_inputs(entry.inputs, seed, fill))
            for seed in range(first, first + seeds)
        ]
    )
    reference = reference_named(resolved.verify.reference, opened.package, find_model, resolved, trust=trust)
    if reference.name == FILE and len(sets) > 1:
        raise ConfigError(
            f"one file of right outputs, and {len(sets)} sets of inputs",
            remedy="Verify one set of inputs at a time, or against a runtime: --reference auto.",
        )
    options = RtvmOptions(entry=entry.name, device=manifest.target.device)
    near, limits = reference.name == MODEL, resolved.verify

    def judged(
        arrays: Mapping[str, Array], got: Mapping[str, Array], right: Mapping[str, Array]
    ) -> Verification:
        if near:
            return accuracy(got, right, limits)
        quanta = manifest.made.quanta
        comparison = compare(got, right, limits, manifest.precision, quanta)
        if not comparison.passed and reference.model is not None:
            whole = with_unused(arrays, opened.package)
            with contextlib.suppress(AdtError):  # onnxruntime that crashes at that is no evidence
                return explained(
                    comparison, got, right, reference.model, whole, limits, manifest.precision, quanta
                )
        return comparison

    runs: list[tuple[str, Verification]] = []
    given, rights = [], []
    for name, arrays in sets:
        given.append(opened.place.run(options, arrays, timeout=resolved.device.run_seconds).outputs)
        rights.append(reference.run(arrays))
        runs.append((name, judged(arrays, given[-1], rights[-1])))
    return VerifyResult(
        opened.place.name,
        accuracy(joined(given), joined(rights), limits) if near else worst_of(runs),
        given[0],
        opened.place.emulated,
        reference.name,
        reference.what,
        tuple(runs),
        rights[0],
    )


@takes(LayersRequest)
def verify_layers(request: LayersRequest) -> LayersResult:
    """Compare each kernel that the device runs with the same kernel on this machine's CPU.

    Without *max_rel* a difference passes as the kernel's types allow (docs/verify.md).

    Raises:
        PackageError: the package does not have its kernels from before their schedules, or was not compiled
            here and is not to be trusted.
        RunError, InputError, …: see :mod:`adt.errors`. A wrong kernel does not raise: look at
            ``result.layers.passed``.
    """
    from adt.package.inputs.random import random_inputs
    from adt.package.inputs.validation import taken_inputs

    package, inputs = load_package(request.package), request.inputs
    if not (request.trust or origin.is_known(package.manifest)):
        raise PackageError(
            f"the package {request.package} was not compiled here, and --layers runs its kernels on "
            "this machine",
            remedy="Compile it again from its source model, or add --trust if you know who made it.",
        )
    opened = open_place(package, request)
    entry = package.manifest.entry()
    arrays = (
        taken_inputs(entry, inputs)
        if inputs is not None
        else random_inputs(entry.inputs, request.seed, request.fill_mode)
    )
    scan = Scan(
        max_rel=request.max_rel,
        max_steps=request.max_steps,
        calls=request.calls,
        everything=request.everything,
        timeout=request.settings.device.run_seconds,
        **({"chunk_bytes": request.chunk_bytes} if request.chunk_bytes else {}),
    )
    layers = compare_layers(opened.place, package, arrays, scan)
    return LayersResult(opened.place.name, opened.place.emulated, layers)
