"""Run a package on a device, or on this machine: natively or over RPC."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from adt.cli.command import Rendering, command
from adt.errors import InputError, dependent, exclusive
from adt.host.document import aligned, document_of, form
from adt.numerics import Array
from adt.options.option import Files, MaybePath, Number, PathTo, Real, Text, option, python
from adt.options.request import Request, takes
from adt.options.sections import MOST_SECONDS, DeviceSettings, VerifySettings
from adt.package.classes import TOP, Ranking, check_scores, rank, read_labels
from adt.verbs.arrays import (
    PictureFlags,
    check_outputs,
    described,
    picture_options,
    save_outputs,
    split_output,
    table,
)
from adt.verbs.deploy import open_place
from adt.verbs.options import (
    AFFINITY,
    BUNDLE,
    ENTRY,
    NATIVE,
    PACKAGE,
    REMOTE_KEY,
    REMOTE_TRACKER,
    RPC,
    THREADS,
    VIA,
    Arrays,
)

if TYPE_CHECKING:
    from adt.device.place import RtvmOptions
    from adt.package.inputs.files import InputArray
    from adt.package.inputs.pictures import PictureOptions
    from adt.package.manifest import Entry
    from adt.package.package import ModelPackage


class RunRequest(Request):
    """Request of :func:`adt.run`."""

    package: PathTo = option(PACKAGE, kw_only=False)
    serial: Text = DeviceSettings.serial
    timeout: Real = DeviceSettings.timeout
    bundle: MaybePath = BUNDLE
    entry: str = ENTRY
    via: str = VIA
    key: str = REMOTE_KEY
    tracker: str = REMOTE_TRACKER
    seed: Number = VerifySettings.seed
    fill_mode: Text = VerifySettings.fill_mode
    inputs: Arrays | None = python("Name to array, list or number.", default=None)
    files: Files = option(
        "Input from a file: .npz, .npy, or plain bytes (.raw, .bin); repeatable.",
        "--input",
        "-i",
        "--file",
        default=(),
        metavar="[NAME=]FILE",
    )
    images: Files = option(
        "Picture as an input, prepared as the options under Pictures say; several are a batch.",
        "--image",
        default=(),
        metavar="[NAME=]FILE",
    )
    picture: PictureOptions | None = python("How pictures are prepared.", default=None)
    run_count: int = option("Number of timed runs.", default=1, least=1)
    warmup_runs: int = option("Least number of warm-up runs before the timed ones.", default=0)
    options: RtvmOptions | None = python(
        "What else rtvm can do; entry, device, seed and the counts above are put in.", default=None
    )


@dataclass(frozen=True)
class RunResult:
    """One run of a package."""

    outputs: Mapping[str, Array] = field(metadata=form(convert=described))
    """Every output of the entry, by name."""
    inputs: tuple[InputArray, ...]
    """Inputs that were given, and how they were converted; empty: they were made up from the seed."""
    via: str
    """``native`` or ``rpc``."""
    place: str
    """The device's serial, ``this machine``, or the address of the RPC server."""
    label: str
    emulated: bool | None
    """The processor was emulated: results count, times are no device's speed. None: an RPC server that adt
    did not start."""
    report: dict[str, Any] | None
    """Document of rtvm (docs/json.md); None over RPC and with TVM's wheel."""


@takes(RunRequest)
def run(request: RunRequest) -> RunResult:
    """Run the package where it belongs and return its outputs; over RPC, once.

    Raises:
        InputError: inputs do not fit the model, or a file cannot be read.
        ConfigError: options that contradict each other.
        RunError: the runner refused or failed; its own message is passed on.
    """
    from adt.device.place import HostPlace, RtvmOptions
    from adt.package.package import load_package

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
        if flags := options.own_flags:  # TVM's server runs the model once
            raise exclusive(flags, "--via rpc")
        return _run_remotely(package, request, entry, inputs, arrays)
    if request.key or request.tracker:
        raise dependent("--key and --tracker", "--via rpc")
    place = open_place(package, request, request.bundle, measures=False).place
    if options.pre_compiled and isinstance(place, HostPlace):  # the runner works in a directory of its own
        options = replace(options, pre_compiled=str(Path(options.pre_compiled).absolute()))
    options = options.worthwhile(place.name, emulated=place.emulated)
    ran = place.run(options, arrays, timeout=request.settings.device.run_seconds)
    return RunResult(
        ran.outputs, inputs or (), NATIVE, place.name, place.label, ran.emulated, ran.report or None
    )


def _run_remotely(
    package: ModelPackage,
    request: RunRequest,
    entry: Entry,
    inputs: tuple[InputArray, ...] | None,
    arrays: Mapping[str, Array] | None,
) -> RunResult:
    from adt.package.inputs.random import random_inputs
    from adt.verbs.remote import RemoteRequest, connect

    if arrays is None:
        arrays = random_inputs(entry.inputs, request.seed, request.fill_mode)
    with connect(package, RemoteRequest(**request.keywords_of(RemoteRequest))) as remote:
        remote.model.set_inputs(arrays, entry.name)
        remote.model.run(entry.name)
        outputs = remote.model.outputs(entry.name)
        return RunResult(outputs, inputs or (), RPC, remote.name, remote.label, remote.emulated, None)


def _inputs(model: str, entry: Entry, request: RunRequest) -> tuple[InputArray, ...] | None:
    """Read the inputs of *entry*, and check them; None: they are made up."""
    from adt.package.manifest import check_inputs, taken_inputs

    if request.picture is not None and not request.images:
        raise dependent("options of pictures", "--image FILE")
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


@command("adt run model-pkg --image cat.jpg --labels synset.txt", phone=True)
def run_command(
    request: RunRequest,
    pictures: PictureFlags,
    threads: Annotated[int | None, THREADS],
    affinity: Annotated[str, AFFINITY],
    warmup_ms: Annotated[
        float,
        option("Least milliseconds of warm-up runs before the timed ones.", default=0.0, most=MOST_SECONDS),
    ],
    zero_copy: Annotated[bool, option("Use the CPU's inputs where they lie, uncopied.", default=False)],
    pre_compiled: Annotated[
        str, option("File on the device with compiled OpenCL programs.", default="", metavar="FILE")
    ],
    program_cache: Annotated[bool, option("Keep compiled OpenCL programs on the device.", default=True)],
    outputs: Annotated[
        tuple[str, ...] | None,
        option(
            "File for the outputs: all as .npz; the only one, or that of a name, also as .npy or .raw.",
            "--output",
            "-o",
            default=(),
            metavar="[NAME=]FILE",
            check=check_outputs,
        ),
    ],
    labels: Annotated[
        Path | None,
        option("Show the best classes by these labels, one a line or .json.", default=None),
    ],
    top: Annotated[
        int | None,
        option("Number of classes to show; else 5 with --labels.", default=None, metavar="K", least=1),
    ],
    softmax: Annotated[
        bool | None,
        option(
            "Turn scores into probabilities; else on when they do not sum to 1.",
            "--softmax/--no-softmax",
            default=None,
        ),
    ],
) -> Rendering:
    """Run a package on a device and show or save its outputs; inputs are arrays, bytes or pictures."""
    from adt.device.place import RtvmOptions
    from adt.package.package import load_package

    names = read_labels(labels) if labels else ()
    specs = load_package(request.package).manifest.entry(request.entry).outputs
    for text in outputs or ():
        split_output(text, [spec.name for spec in specs])
    if names or top or softmax is not None:
        check_scores(specs, names)
    options = RtvmOptions(
        threads=threads,
        affinity=affinity,
        warmup_ms=warmup_ms,
        zero_copy=zero_copy,
        pre_compiled=pre_compiled,
        program_cache=program_cache,
    )
    result = run(request.but(picture=picture_options(pictures), options=options))
    written = save_outputs(outputs or (), result.outputs)

    def ranking() -> Ranking | None:
        if not (names or top or softmax is not None):
            return None
        return rank(result.outputs, labels=names, top=top or TOP, softmax=softmax)

    files = {"output": written[0] if written else None, "written": written}
    return Rendering(
        "run",
        lambda: document_of(result) | files | {"classes": ranking()},
        _lines(result, written, ranking),
    )


def _lines(
    result: RunResult, written: tuple[Path, ...] = (), ranking: Callable[[], Ranking | None] = lambda: None
) -> Iterator[str]:
    from adt.package.manifest import kind

    how = " over RPC" if result.via == "rpc" else ""
    where = result.label if result.label.startswith(result.place) else f"{result.place}, {result.label}"
    yield f"ran on {where}{how}"
    if result.emulated:
        yield "emulated: right or wrong counts here, time does not"
    for each in result.inputs:
        source = f"  {each.source}" if each.source else ""
        yield f"input   {each.name}: {kind(each.array)}{source}"
    if not result.inputs:
        yield "input   made up from the seed"
    yield from table(result.outputs)
    if time := _time(result):
        yield time
    yield from (f"wrote {path}" for path in written)
    if (classes := ranking()) is not None:  # last, for an output may have no classes
        yield from _class_lines(classes)


def _class_lines(ranking: Ranking) -> Iterator[str]:
    applied = "applied" if ranking.softmax else "not applied"
    yield f"classes of {ranking.output}, softmax {applied}: {ranking.reason}"
    for number, row in enumerate(ranking.rows):
        if len(ranking.rows) > 1:
            yield f"row {number} of the batch"
        yield from aligned(
            [
                (
                    f"{place:>3}.",
                    f"{rank.probability:.6f}" if rank.probability is not None else f"{rank.score:g}",
                    f"{rank.index:>4}",
                    rank.label,
                )
                for place, rank in enumerate(row, start=1)
            ]
        )


def _time(result: RunResult) -> str:
    """Format the duration of the runs where it means something; else nothing."""
    from statistics import median

    report = result.report or {}
    times = report.get("run_ms") or []
    device = report.get("device") or {}
    on_cpu = isinstance(device, dict) and device.get("kind") == "opencl" and device.get("type") == "cpu"
    if result.emulated is not False or on_cpu or len(times) < 2:
        return ""
    return f"time    {median(times):.3f} ms, the median of {len(times)} runs (adt bench measures more)"
