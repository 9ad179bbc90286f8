"""Requests of verbs: each of their options, written once (:mod:`adt.options`).

The command line makes its flags of them, and Python the keywords of ``adt.compile(...)``. Settings among them
are those of :mod:`adt.options.sections`; an option that several verbs have is a constant here.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adt.errors import ConfigError, InputError
from adt.limits import MOST_MODEL_BYTES
from adt.options.option import (
    Directory,
    Files,
    Flag,
    MaybePath,
    Number,
    OneOrMorePaths,
    Paths,
    PathTo,
    Real,
    Switch,
    Text,
    Texts,
    option,
    python,
)
from adt.options.request import Request
from adt.options.sections import (
    BuildSettings,
    CompileSettings,
    DeviceSettings,
    TuneSettings,
    VerifySettings,
)

if TYPE_CHECKING:
    from adt.device.rtvm import RtvmOptions
    from adt.measure.reference import Array
    from adt.package.inputs.pictures import PictureOptions
    from adt.tuning.results import Status, TuningPlan

    Arrays = Mapping[str, Array]


def quiet(*_event: object) -> None:
    """Ignore an event."""


def is_word(model: str | os.PathLike[str]) -> bool:
    """Return True if *model* is spelled without directory or colon, as names of networks are."""
    return not {"/", "\\", ":"} & set(os.fspath(model))


def fetched(place: Any, *, any_digest: bool) -> Any:
    """*place* of a model, or the local copy of what it is the address of."""
    if place is None or not os.fspath(place).startswith(("https:/", "http:/")):
        return place
    from adt.host.download import local_file  # verbs that download nothing start without it

    return local_file(place, any_digest=any_digest, most_bytes=MOST_MODEL_BYTES)


def model_file(model: Any, arguments: Mapping[str, Any], *, runs: bool = True) -> Any:
    """Return the file of a model that is a module of Relax, an address or the name of a network.

    Args:
        runs: False: the verb refuses models that are code; else one that is not trusted is refused here.
    """
    params = arguments.get("params")
    if model is None:
        return None
    if not isinstance(model, str | os.PathLike):
        from adt.compiler.importers.relax import module_file  # with TVM, which others start without

        model, params = module_file(model, params or {}), None
    if params is not None:
        raise ConfigError(
            "params belong to a tvm.IRModule, and the model is a file, which has its own",
            remedy="Leave them away, or give the module.",
        )
    model = fetched(model, any_digest=bool(arguments["insecure_no_digest"]))
    if is_word(model):
        from adt.compiler.networks.known import named

        model = named(Path(model)) or model
    if runs:
        from adt.compiler.importers.model_store import require_trusted

        require_trusted(model, bool(arguments["trust"]))
    return model


def load_npz(path: Path) -> Arrays:
    """Load the arrays of an .npz file by name; pickled objects are refused."""
    from adt.host.npz import DamagedNpz, not_plain, read_npz

    try:
        return read_npz(path)
    except FileNotFoundError as error:
        raise InputError(f"there is no input file {path}", remedy="Check --input.") from error
    except DamagedNpz as error:
        raise not_plain(path, error) from error


def call_span(text: str) -> tuple[int, int]:
    """Parse ``A:B``, two numbers."""
    numbers = re.fullmatch("([0-9]{1,9}):([0-9]{1,9})", text)
    if not numbers or int(numbers[1]) >= int(numbers[2]):
        raise ConfigError(f"--calls {text[:80]!r}", remedy="Give two numbers: --calls 10:20 is 10 to 19.")
    return int(numbers[1]), int(numbers[2])


PROGRESS = python("Called with one line at a time while CMake and Ninja run.", default=quiet)
TRUST = option(
    "Run the code of whoever made the model here, with your rights: .pt2, .relax, module:function; "
    "with --layers, the kernels of a package made elsewhere.",
    default=False,
    help="Run code of whoever made it, with your rights: .pt2, module:function, kernels of --layers.",
)
INSECURE_NO_DIGEST = option(
    "Take a model from an address without its sha256, and say what that is.", default=False
)
MODEL = option(
    "An .onnx, .tflite, .pt2, .keras or .h5 file, its address (``https://…/m.onnx#sha256=…``), "
    "module:function, a Python callable that makes a PyTorch model, or a name of ``adt.networks()``; in "
    "Python also a ``tvm.IRModule``.",
    kw_only=False,
    help="An .onnx, .tflite, .pt2, .keras or .h5 file, its address with #sha256=…, module:function, "
    "or an untrained network of `adt networks`.",
    complete=model_file,
)
PARAMS = python(
    "Of a ``tvm.IRModule`` as the model: arrays by the names of parameters of ``main``; the others are "
    "inputs.",
    default=None,
    complete=lambda params, arguments: None,  # the model's file has them
)
LINKED_BUNDLE = option(
    "The bundle it will run with; Android needs one: by default the newest one that was built here.",
    default=None,
    metavar="DIR",
)
LIKE = option(
    "Serial of a device to compile for: its platform, its CPUs' features, its OpenCL's limits.",
    default=None,
    metavar="SERIAL",
    offers="serial",
)
BUNDLES = option("Each platform's bundle; else the newest built here.", "--bundle", default=(), metavar="DIR")
ALLOW_4K = option(
    "Take libraries that devices with pages of 16 KB, and so Google Play, do not.",
    "--allow-4k",
    default=False,
)
BUNDLE = option("The bundle; else the newest fitting one built here.", default=None, metavar="DIR")
KEY = option("What clients ask the tracker for.", "--key", "-k", default="")
RPC = option(
    "Start tracker and RPC server, which run programs for whoever connects; else only where no "
    "package is named.",
    "--rpc/--no-rpc",
    default=None,
)
PORT = option("The port, or the first one to try.", default=None, least=1, most=65535)
TRACKER_ADDRESS = option("Another tracker than adt's own.", "--tracker", default="", metavar="HOST:PORT")
PACKAGE = option("A package that `adt compile` made: its directory, or x.tar.", kw_only=False)
ENTRY = option("Entry function.", default="main")
VIA = option("By the runner, or by an RPC server.", default="native", choices=["native", "rpc"])
REMOTE_KEY = option(
    "Over RPC, instead of a serial: any device that the tracker has under it.", "--key", "-k", default=""
)
TRACKER = option("Over RPC: the tracker; else adt's own.", default="", metavar="HOST:PORT")
SOURCE_MODEL = option(
    "The source model; else the copy that compiling kept.", default=None, complete=model_file
)
INPUTS = option(
    "Name to array; made up from *seed* when not given.",
    "--input",
    "-i",
    default=None,
    help="Inputs by name, as .npz.",
    cli=Path,
    parse=load_npz,
)
THREADS = option("CPU threads.", default=None, least=1)
AFFINITY = option("CPUs to run on: big, little, all, or numbers (4-7).", default="", metavar="CPUS")
PROTOCOL = option(
    "How it is measured, as far as the numbers of runs and seconds do not say.",
    default="default",
    choices=["default", "quick", "mlperf"],
)
RUNS = option("Timed runs, at least …", default=None)
SECONDS = option("… and for at least so long.", default=None)
WARMUP_RUNS = option("Runs before them, at least …", default=None)
WARMUP_MS = option("… and for at least so many milliseconds.", default=None)
END_TO_END = option("Time copying inputs in and outputs out, too.", default=False)
COOL_DOWN = option(
    "Wait first: until the hottest zone is at most so warm (45C), or so long (30s).", default=None
)
RECORD = option("Keep the result for `adt report`.", default=True)
LABEL = option("Kept with the result.", default="")
VERIFY = option("Compare the outputs with the reference first.", default=True)
ROUNDS = option("Rounds of --ab, each A B B A.", default=None, help="Rounds, each A B B A.")

DB = option("Directory of the database.", kw_only=False, metavar="DB")
ELF_BUNDLE = option("The bundle that will be on the device too.", default=None, metavar="DIR")


class CompileRequest(Request):
    """Request of :func:`adt.compile`."""

    trust: bool = TRUST
    insecure_no_digest: bool = INSECURE_NO_DIGEST
    model: PathTo = option(MODEL, kw_only=False)
    params: Mapping[str, Any] | None = PARAMS
    platform: Text = BuildSettings.platform
    ndk: Directory = BuildSettings.ndk
    api_level: Number = BuildSettings.api_level
    target: Text = CompileSettings.target
    cpu: Text = CompileSettings.cpu
    opt_level: Number = CompileSettings.opt_level
    shapes: Texts = CompileSettings.shapes
    precision: Text = CompileSettings.precision
    keep_float32: Texts = CompileSettings.keep_float32
    half_only: Texts = CompileSettings.half_only
    offload: Text = CompileSettings.offload
    tf32: Flag = CompileSettings.tf32
    texture_choice: Text = CompileSettings.texture_choice
    bundle: MaybePath = LINKED_BUNDLE
    like: str | None = LIKE
    db: Directory = CompileSettings.db
    tuned_on: Text = CompileSettings.tuned_on
    accuracy: Switch = CompileSettings.accuracy
    check: Switch = CompileSettings.check
    out: MaybePath = option(
        "Directory of the package, or x.tar for one file; by default MODEL-PLATFORM here.",
        "--out",
        "-o",
        default=None,
    )
    accuracy_inputs: Paths = option(
        "One sample to compare half precision on, instead of random inputs; repeatable.",
        default=(),
        metavar="FILE.npz",
    )
    use_cache: bool = option(
        "Copy what was compiled before with all the same.", "--cache/--no-cache", default=True
    )
    passes: Sequence[Callable[[Any], Any]] = python(
        "Passes of your own, from ``tvm.IRModule`` to ``tvm.IRModule``: run in their order on the imported "
        "model, before precision, libraries and adt's own passes. What they make is not cached.",
        default=(),
    )


class TuneRequest(Request):
    """Request of :func:`adt.tune`."""

    trust: bool = TRUST
    insecure_no_digest: bool = INSECURE_NO_DIGEST
    model: PathTo = option(MODEL, kw_only=False)
    params: Mapping[str, Any] | None = PARAMS
    platform: Text = BuildSettings.platform
    ndk: Directory = BuildSettings.ndk
    api_level: Number = BuildSettings.api_level
    target: Text = CompileSettings.target
    cpu: Text = CompileSettings.cpu
    opt_level: Number = CompileSettings.opt_level
    shapes: Texts = CompileSettings.shapes
    precision: Text = CompileSettings.precision
    keep_float32: Texts = CompileSettings.keep_float32
    half_only: Texts = CompileSettings.half_only
    offload: Text = CompileSettings.offload
    tf32: Flag = CompileSettings.tf32
    texture_choice: Text = CompileSettings.texture_choice
    bundle: MaybePath = LINKED_BUNDLE
    like: str | None = LIKE
    trials: Number = TuneSettings.trials
    per_task: Flag = TuneSettings.per_task
    early_stopping: Number = TuneSettings.early_stopping
    tuner: Text = TuneSettings.tuner
    cost_model: Text = TuneSettings.cost_model
    number: Number = TuneSettings.number
    repeat: Number = TuneSettings.repeat
    min_repeat_ms: Number = TuneSettings.min_repeat_ms
    timeout: Real = TuneSettings.timeout
    seed: Number = TuneSettings.seed
    builders: Text = TuneSettings.builders
    wait: Real = TuneSettings.wait
    db: MaybePath = option(
        "Directory of the records, made when absent; else compile.db of the settings.",
        default=None,
        metavar="DIR",
    )
    serials: Texts = option(
        "Devices that measure: a,b,c. Else ANDROID_SERIAL, else the only one.",
        "--serial",
        "-s",
        default=(),
        metavar="A,B,…",
        offers="serials",
        cli=str,
        separator=",",
    )
    key: str = option("Instead: every device that the tracker has under it.", "--key", "-k", default="")
    tracker: str = option("The tracker for the key; else adt's own.", default="", metavar="HOST:PORT")
    device: str = option(
        "Of a key with different devices: the one that counts; else the first that answers.",
        default="",
        metavar="NAME[, DRIVER]",
    )
    compare: bool = option("Then run the model tuned and untuned in turns.", default=False)
    fit: bool = option(
        "Then fit to the times what schedules know of the GPU: `adt compile --db` takes it.", default=False
    )
    on_plan: Callable[[TuningPlan], None] = python(
        "Told what is going to be done, before it begins.", default=quiet
    )
    on_status: Callable[[Status], None] = python(
        "Told how it stands, several times a second, in this thread.", default=quiet
    )
    stop: threading.Event | None = python(
        "When it is set the tuning ends soon, with everything kept.", default=None
    )
    gentle: bool = python(
        "A first SIGINT or SIGTERM while devices measure does the same, instead of raising; for programs "
        "that then look at ``interrupted`` of the result.",
        default=False,
    )


class RemoteRequest(Request):
    """A package where it runs, natively or over RPC."""

    package: PathTo = option(PACKAGE, kw_only=False)
    serial: Text = DeviceSettings.serial
    timeout: Real = DeviceSettings.timeout
    bundle: MaybePath = BUNDLE
    entry: str = ENTRY
    via: str = VIA
    key: str = REMOTE_KEY
    tracker: str = TRACKER


class RunRequest(Request):
    """Request of :func:`adt.run`."""

    package: PathTo = option(PACKAGE, kw_only=False)
    serial: Text = DeviceSettings.serial
    timeout: Real = DeviceSettings.timeout
    bundle: MaybePath = BUNDLE
    entry: str = ENTRY
    via: str = VIA
    key: str = REMOTE_KEY
    tracker: str = TRACKER
    seed: Number = VerifySettings.seed
    fill_mode: Text = VerifySettings.fill_mode
    inputs: Arrays | None = python("Name to array.", default=None)
    files: Files = option(
        ".npz, .npy, or plain bytes (.raw, .bin); repeatable.",
        "--input",
        "-i",
        default=(),
        metavar="[NAME=]FILE",
    )
    images: Files = option(
        "A picture, prepared as *picture* says; several are a batch.",
        "--image",
        default=(),
        metavar="[NAME=]FILE",
    )
    picture: PictureOptions | None = python("How pictures are prepared.", default=None)
    run_count: int = option("Timed runs.", default=1, least=1)
    warmup_runs: int = option("Runs before them that are not timed …", default=0, least=0)
    options: RtvmOptions | None = python(
        "What else rtvm can do; entry, device, seed and the counts above are put in.", default=None
    )


class VerifyRequest(Request):
    """Request of :func:`adt.verify`."""

    package: PathTo = option(PACKAGE, kw_only=False)
    serial: Text = DeviceSettings.serial
    timeout: Real = DeviceSettings.timeout
    bundle: MaybePath = BUNDLE
    trust: bool = TRUST
    insecure_no_digest: bool = INSECURE_NO_DIGEST
    model: MaybePath = SOURCE_MODEL
    seed: Number = VerifySettings.seed
    fill_mode: Text = VerifySettings.fill_mode
    max_rel: Real = VerifySettings.max_rel
    max_steps: Number = VerifySettings.max_steps
    max_abs: Real = VerifySettings.max_abs
    max_changed: Real = VerifySettings.max_changed
    allow_nonfinite: Flag = VerifySettings.allow_nonfinite
    reference: Text = VerifySettings.reference
    min_snr: Real = VerifySettings.min_snr
    min_top1: Real = VerifySettings.min_top1
    inputs: Arrays | Sequence[Arrays] | None = option(
        "Name to array, or several such sets; made up from *seed* when not given.",
        "--input",
        "-i",
        default=None,
        help="Inputs by name, as .npz; several: one set each.",
        cli=list[Path],
        parse=lambda paths: [load_npz(path) for path in paths],
    )
    seeds: int = option(
        "So many sets of made-up inputs, from the seed, the next one, …; the worst is shown.",
        default=1,
        metavar="N",
    )

    def _complete(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """With the local copy of a reference that an address stands for."""
        reference = fetched(arguments["reference"], any_digest=bool(arguments["insecure_no_digest"]))
        return super()._complete({**arguments, "reference": reference and os.fspath(reference)})


class LayersRequest(Request):
    """Request of :func:`adt.verify_layers`."""

    package: PathTo = option(PACKAGE, kw_only=False)
    serial: Text = DeviceSettings.serial
    timeout: Real = DeviceSettings.timeout
    bundle: MaybePath = BUNDLE
    inputs: Arrays | None = INPUTS
    seed: Number = VerifySettings.seed
    fill_mode: Text = VerifySettings.fill_mode
    max_rel: Real = VerifySettings.max_rel
    max_steps: Number = VerifySettings.max_steps
    trust: bool = TRUST
    calls: tuple[int, int] | None = option(
        "With --layers: only these calls of the run, without the last.",
        default=None,
        metavar="A:B",
        cli=str,
        parse=call_span,
    )
    everything: bool = option(
        "With --layers: go on after a wrong kernel, and show every call.", "--all", default=False
    )
    chunk_bytes: int | None = option(
        "How much of the device's tensors is fetched at a time.",
        "--chunk-mb",
        default=None,
        help="With --layers: MiB of tensors fetched at a time (256).",
        metavar="MIB",
        least=1,
        parse=lambda mebibytes: mebibytes << 20,
    )


class BenchRequest(Request):
    """Request of :func:`adt.bench`."""

    trust: bool = TRUST
    insecure_no_digest: bool = INSECURE_NO_DIGEST
    model: MaybePath = SOURCE_MODEL
    package: PathTo = option(PACKAGE, kw_only=False)
    serial: Text = DeviceSettings.serial
    timeout: Real = DeviceSettings.timeout
    bundle: MaybePath = BUNDLE
    inputs: Arrays | None = INPUTS
    seed: Number = VerifySettings.seed
    threads: int | None = THREADS
    affinity: str = AFFINITY
    protocol: str = PROTOCOL
    runs: int | None = RUNS
    seconds: float | None = SECONDS
    warmup_runs: int | None = WARMUP_RUNS
    warmup_ms: float | None = WARMUP_MS
    end_to_end: bool = END_TO_END
    fill_mode: Text = VerifySettings.fill_mode
    cool_down: str | None = COOL_DOWN
    record: bool = RECORD
    label: str = LABEL
    verify: bool = VERIFY
    cold_start: bool = option("With OpenCL: load once without compiled programs, too.", default=True)


class AbRequest(Request):
    """Request of :func:`adt.bench_ab`."""

    trust: bool = TRUST
    serial: Text = DeviceSettings.serial
    timeout: Real = DeviceSettings.timeout
    bundle: MaybePath = BUNDLE
    inputs: Arrays | None = INPUTS
    seed: Number = VerifySettings.seed
    threads: int | None = THREADS
    affinity: str = AFFINITY
    protocol: str = PROTOCOL
    runs: int | None = RUNS
    seconds: float | None = SECONDS
    warmup_runs: int | None = WARMUP_RUNS
    warmup_ms: float | None = WARMUP_MS
    end_to_end: bool = END_TO_END
    fill_mode: Text = VerifySettings.fill_mode
    cool_down: str | None = COOL_DOWN
    record: bool = RECORD
    label: str = LABEL
    verify: bool = VERIFY
    rounds: int | None = ROUNDS
    a: PathTo = option("A package.", kw_only=False)
    b: PathTo = option("Another one.", kw_only=False)


class CompareOffloadRequest(Request):
    """Request of :func:`adt.compare_offload`."""

    trust: bool = TRUST
    insecure_no_digest: bool = INSECURE_NO_DIGEST
    model: PathTo = option(MODEL, kw_only=False)
    params: Mapping[str, Any] | None = PARAMS
    platform: Text = BuildSettings.platform
    ndk: Directory = BuildSettings.ndk
    api_level: Number = BuildSettings.api_level
    target: Text = CompileSettings.target
    cpu: Text = CompileSettings.cpu
    opt_level: Number = CompileSettings.opt_level
    shapes: Texts = CompileSettings.shapes
    precision: Text = CompileSettings.precision
    keep_float32: Texts = CompileSettings.keep_float32
    half_only: Texts = CompileSettings.half_only
    offload: Text = CompileSettings.offload
    tf32: Flag = CompileSettings.tf32
    texture_choice: Text = CompileSettings.texture_choice
    bundle: MaybePath = BUNDLE
    serial: Text = DeviceSettings.serial
    timeout: Real = DeviceSettings.timeout
    like: str | None = LIKE
    db: Directory = CompileSettings.db
    tuned_on: Text = CompileSettings.tuned_on
    inputs: Arrays | None = INPUTS
    seed: Number = VerifySettings.seed
    threads: int | None = THREADS
    affinity: str = AFFINITY
    protocol: str = PROTOCOL
    runs: int | None = RUNS
    seconds: float | None = SECONDS
    warmup_runs: int | None = WARMUP_RUNS
    warmup_ms: float | None = WARMUP_MS
    end_to_end: bool = END_TO_END
    fill_mode: Text = VerifySettings.fill_mode
    cool_down: str | None = COOL_DOWN
    record: bool = RECORD
    label: str = LABEL
    rounds: int | None = ROUNDS


class ApkRequest(Request):
    """Request of :func:`adt.apk`."""

    packages: OneOrMorePaths = option(
        "Packages that `adt compile` made, for each platform; those of one name are one model.",
        default=(),
        kw_only=False,
        help="Packages that `adt compile` made, for each platform.",
        metavar="[PACKAGE]...",
    )
    bundles: Paths = BUNDLES
    allow_4k: bool = ALLOW_4K
    ndk: Directory = BuildSettings.ndk
    seed: Number = VerifySettings.seed
    threads: int | None = THREADS
    affinity: str = AFFINITY
    protocol: str = PROTOCOL
    runs: int | None = RUNS
    seconds: float | None = SECONDS
    warmup_runs: int | None = WARMUP_RUNS
    warmup_ms: float | None = WARMUP_MS
    end_to_end: bool = END_TO_END
    rpc_server: bool = option("Instead of packages: an app that is an RPC server.", default=False)
    out: MaybePath = option("The APK; else NAME.apk here.", "--out", "-o", default=None, metavar="FILE")
    java_package: str | None = option(
        "The app's id; else com.example.MODEL_bench or .adt_rpc.",
        "--package",
        default=None,
        metavar="com.a.b",
    )
    sdk: str = option("Android SDK; else ANDROID_HOME, else Debian's programs.", default="", metavar="DIR")
    keystore: MaybePath = option(
        "Sign with a key of this; else with a debug key.", default=None, metavar="FILE"
    )
    key_alias: str = option("Which key of it, when it has several.", default="")
    keystore_password: str = python("The keystore's.", default="")
    key_password: str = python("The key's, when it has one of its own.", default="")
    debuggable: bool = option("Let debuggers, and all who have adb, look into the app.", default=False)


class ProfileRequest(Request):
    """Request of :func:`adt.profile`."""

    package: PathTo = option(PACKAGE, kw_only=False)
    serial: Text = DeviceSettings.serial
    timeout: Real = DeviceSettings.timeout
    bundle: MaybePath = BUNDLE
    entry: str = ENTRY
    via: str = VIA
    key: str = REMOTE_KEY
    tracker: str = TRACKER
    inputs: Arrays | None = INPUTS
    seed: Number = VerifySettings.seed
    fill_mode: Text = VerifySettings.fill_mode
    threads: int | None = THREADS
    affinity: str = AFFINITY
    runs: int = option("Runs with clocks, and without.", "--runs", "-n", default=20, least=1)
    warmup_runs: int = option("Runs before them.", default=3, least=0)
    peak_gflops: float | None = option(
        "What the device computes at best, GFLOP/s: draws the roofline.", default=None
    )
    peak_gbps: float | None = option(
        "What its memory delivers at best, GB/s: draws the roofline.", default=None
    )


class ReportRequest(Request):
    """Request of :func:`adt.report`."""

    device: str = option("Part of the serial, model, chip or OpenCL device.", default="")
    package: str = option("Name of the package; * and ? stand for others.", default="")
    since: str = option("A date (2026-01-31) or an age (7d, 12h).", default="")
    label: str = option("The label; * and ? stand for others.", default="")
    threshold: float = option(
        "Percent that a result must be worse by, and by more than the runs' own noise.", default=5.0
    )
    against: str = option(
        "best: the fastest earlier result; previous: the one before.",
        default="best",
        choices=["best", "previous"],
    )


JobRequest = CompileRequest | TuneRequest | CompareOffloadRequest
"""A model, and what it is compiled for."""
PlaceRequest = (
    RemoteRequest | RunRequest | VerifyRequest | LayersRequest | BenchRequest | AbRequest | ProfileRequest
)
"""Packages, and where they run."""
