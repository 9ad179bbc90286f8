"""Run a package on a device, or on this machine: natively or over RPC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adt.api.place import open_place
from adt.api.requests import RunRequest
from adt.device.rtvm import RtvmOptions
from adt.errors import ConfigError, InputError
from adt.options.request import takes
from adt.package.inputs.validation import check_inputs, taken_inputs
from adt.package.manifest import Entry
from adt.package.package import ModelPackage, load_package

if TYPE_CHECKING:
    from adt.measure.reference import Array
    from adt.package.inputs.files import InputArray

NATIVE, RPC = VIA = ("native", "rpc")


@dataclass(frozen=True)
class RunResult:
    """One run of a package."""

    outputs: Mapping[str, Array]
    """Every output of the entry, by name."""
    inputs: tuple[InputArray, ...]
    """Inputs that were given, and how they were converted; empty: they were made up from the seed."""
    via: str
    """``native`` or ``rpc``."""
    place: str
    """The device's serial, ``this machine``, or the address of the RPC server."""
    label: str
    """Description of the place."""
    emulated: bool | None
    """The processor was emulated: results count, times are no device's speed. None: an RPC server that adt
    did not start."""
    report: dict[str, Any] | None
    """Document of rtvm (docs/json.md); None over RPC."""


@takes(RunRequest)
def run(request: RunRequest) -> RunResult:
    """Run the package where it belongs and return its outputs; over RPC, once.

    Raises:
        InputError: inputs do not fit the model, or a file cannot be read.
        ConfigError: options that contradict each other.
        RunError: the runner refused or failed; its own message is passed on.
        MismatchError, PackageError, NoDevice, RpcError, …: see :mod:`adt.errors`.
    """
    if request.via not in VIA:
        raise ConfigError(f"cannot run via {request.via!r}", remedy=f"Use {' or '.join(VIA)}.")
    package = load_package(request.package)
    entry = package.manifest.entry(request.entry)
    inputs = _inputs(package.manifest.name, entry, request)
    arrays = {each.name: each.array for each in inputs} if inputs is not None else None
    options = replace(
        request.options or RtvmOptions(),
        entry=entry.name,
        device=package.manifest.target.device,
        fill_mode=request.fill_mode,
        seed=request.seed,
        warmup_runs=request.warmup_runs,
        run_count=request.run_count,
    )
    if request.via == RPC:
        _check_rpc_options(options)
        return _run_remotely(package, request, entry, inputs, arrays)
    if request.key or request.tracker:
        raise ConfigError("a key and a tracker are for RPC", remedy="Add --via rpc.")
    place = open_place(package, request).place
    if place.host and options.pre_compiled:  # the runner works in a directory of its own
        options = replace(options, pre_compiled=str(Path(options.pre_compiled).absolute()))
    ran = place.run(options, arrays, timeout=request.settings.device.run_seconds)
    return RunResult(ran.outputs, inputs or (), NATIVE, place.name, place.label, ran.emulated, ran.report)


def _run_remotely(
    package: ModelPackage,
    request: RunRequest,
    entry: Entry,
    inputs: tuple[InputArray, ...] | None,
    arrays: Mapping[str, Array] | None,
) -> RunResult:
    from adt.api.remote import connect
    from adt.package.inputs.random import random_inputs

    if arrays is None:
        arrays = random_inputs(entry.inputs, request.seed, request.fill_mode)
    with connect(package, request) as remote:
        remote.model.set_inputs(arrays, entry.name)
        remote.model.run(entry.name)
        outputs = remote.model.outputs(entry.name)
        return RunResult(outputs, inputs or (), RPC, remote.name, remote.label, remote.emulated, None)


def _inputs(model: str, entry: Entry, request: RunRequest) -> tuple[InputArray, ...] | None:
    """The inputs of *entry*, checked; None: they are made up."""
    if request.picture is not None and not request.images:
        raise InputError("options for pictures, and no picture", remedy="Add --image FILE.")
    if request.inputs is None and not request.files and not request.images:
        return None
    from adt.package.inputs.files import InputArray, read_inputs

    given = taken_inputs(entry, request.inputs or {})
    arrays = tuple(InputArray(name, array, "") for name, array in given.items())
    arrays += read_inputs(entry, request.files, request.images, request.picture)
    names = [each.name for each in arrays]
    if twice := {name for name in names if names.count(name) > 1}:
        raise InputError(f"input {', '.join(sorted(twice))} is given twice", remedy="Name each input once.")
    check_inputs(model, entry, {each.name: each.array for each in arrays})
    return arrays


def _check_rpc_options(options: RtvmOptions) -> None:
    """Refuse rtvm's options over RPC: there TVM's server runs the model once."""
    plain = RtvmOptions(
        entry=options.entry, device=options.device, seed=options.seed, fill_mode=options.fill_mode
    )
    names = [name for name in vars(plain) if getattr(options, name) != getattr(plain, name)]
    if names:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in names)
        raise ConfigError(
            f"{flags}: the runner's, which does not run over RPC",
            remedy="Leave that away, or run with --via native.",
        )
