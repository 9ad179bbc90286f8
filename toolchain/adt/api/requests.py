"""Requests of verbs: each of their options, written once (:mod:`adt.options`).

The command line makes its flags of them, and Python the keywords of ``adt.compile(...)``; settings among them
are written in :mod:`adt.options.sections`. What several verbs have is a class that theirs are made of.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from adt.errors import ConfigError
from adt.integrate.android_versions import NEWEST, VERSIONS
from adt.limits import MOST_MODEL_BYTES
from adt.options.option import (
    Files,
    MaybePath,
    OneOrMorePaths,
    OneOrMoreTexts,
    Options,
    Paths,
    PathTo,
    Texts,
    option,
    python,
)
from adt.options.request import Request
from adt.options.sections import (
    ApiLevel,
    BuildSettings,
    ClmlSdk,
    CompileSettings,
    Computing,
    DeviceSerial,
    DeviceSettings,
    DeviceTimeout,
    Kernels,
    KernelTolerance,
    MadeUpInputs,
    NdkRoot,
    PlatformName,
    Processor,
    Records,
    Seed,
    Shapes,
    Target,
    TuneSettings,
    TvmSettings,
    TvmSource,
    VerifySettings,
)

if TYPE_CHECKING:
    from adt.api.up_plan import Step, UpPlan
    from adt.checkup.check import Check
    from adt.checkup.repair import Repair
    from adt.device.parallel import Event
    from adt.device.rtvm import RtvmOptions
    from adt.device.transport.sync import Progress
    from adt.measure.reference import Array
    from adt.package.inputs.pictures import PictureOptions
    from adt.tuning.results import Status, TuningPlan

    Arrays = Mapping[str, Array]
    Pictures = Mapping[str, PictureOptions]
else:
    Arrays = Check = Event = PictureOptions = Pictures = Progress = Any
    Repair = RtvmOptions = Status = Step = TuningPlan = UpPlan = Any


def quiet(*_event: object) -> None:
    """Ignore an event."""


# Building


class NdkRequest(Request, NdkRoot):
    """Request of :func:`adt.ndk_list`."""


class NdkEnvRequest(Request, ApiLevel, NdkRoot, PlatformName):
    """Request of :func:`adt.ndk_env`."""


class PresetsRequest(Request, ClmlSdk, NdkRoot):
    """Request of :func:`adt.presets`."""


class SourceRequest(Request, TvmSettings):
    """Request of :func:`adt.source`."""


class BuildProgress(Options):
    """Option of verbs that build."""

    progress: Callable[[str], None] = python(
        "Called with one line at a time while CMake and Ninja run.", default=quiet
    )


class BuildRequest(Request, BuildProgress, TvmSource, BuildSettings):
    """Request of :func:`adt.build_target`."""

    out: MaybePath = option("Also copy the bundle here.", "--out", "-o", default=None)


class Layout(Options):
    """Files that a build writes."""

    layout: str = option(
        "What the output holds: a directory for each ABI, or jniLibs/<abi>/*.so.",
        default="bundle",
        choices=["bundle", "jni"],
    )


class AbisRequest(Layout, BuildRequest):
    """Request of :func:`adt.build_abis`."""

    abis: Texts = option(
        'Android\'s names, such as ``["arm64-v8a", "x86_64"]``, or with a variant: ``arm64-v8a-cpu``.',
        kw_only=False,
    )


class RunsWith(Options):
    """The bundle that a package runs with."""

    bundle: MaybePath = option(
        "The bundle; else the newest fitting one built here.", default=None, metavar="DIR"
    )


class RunsBeside(Options):
    """The bundle that lies beside what is audited."""

    bundle: MaybePath = option("The bundle that will be on the device too.", default=None, metavar="DIR")


class ElfRequest(Request, RunsBeside, NdkRoot):
    """Request of :func:`adt.elf`."""

    paths: OneOrMorePaths = option(
        "ELF files, directories (bundles, packages, any), .aar .apk .jar .whl .zip.", kw_only=False
    )
    platform: str | None = option(
        "What to judge them for; else what the bundle or package among them was made for, else what each "
        "file says of itself.",
        "--for",
        default=None,
        help="What to judge them for: android-arm64-v8a, linux-aarch64, host, …; else what they say.",
        metavar="PLATFORM",
        offers="platform",
    )
    api_level: int | None = option(
        "Android API level to judge at; else the bundle's, else each file's own.", default=None
    )


# Models


def is_word(model: str | os.PathLike[str]) -> bool:
    """Return True if *model* is spelled without directory or colon, as names of networks are."""
    return not {"/", "\\", ":"} & set(os.fspath(model))


def fetched(place: Any, *, any_digest: bool) -> Any:
    """*place* of a model, or the local copy of what it is the address of."""
    if place is None or not os.fspath(place).startswith(("https:/", "http:/")):
        return place
    from adt.host.download import local_file  # verbs that download nothing start without it

    return local_file(place, any_digest=any_digest, most_bytes=MOST_MODEL_BYTES)


class Trust(Options):
    """Permission to run a stranger's code."""

    trust: bool = option(
        "Run the code of whoever made the model here, with your rights: .pt2, .relax, module:function; "
        "with --layers, the kernels of a package made elsewhere.",
        default=False,
        help="Run code of whoever made it, with your rights: .pt2, module:function, kernels of --layers.",
    )


class ModelPlace(Trust):
    """Places where a model may be."""

    _runs_model: ClassVar[bool] = True
    """False: the verb refuses models that are code."""
    insecure_no_digest: bool = option(
        "Take a model from an address without its sha256, and say what that is.", default=False
    )

    def _complete(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Replace an address or a network's name by its local file; refuse code that is not trusted."""
        model = fetched(arguments["model"], any_digest=bool(arguments["insecure_no_digest"]))
        if model is not None and is_word(model):
            from adt.compiler.networks.known import named

            model = named(Path(model)) or model
        if model is not None and self._runs_model:
            from adt.compiler.importers.model_store import require_trusted

            require_trusted(model, bool(arguments["trust"]))
        return super()._complete({**arguments, "model": model})


class ModelArgument(ModelPlace):
    """A model, first."""

    model: PathTo = option(
        "An .onnx, .tflite, .pt2, .keras or .h5 file, its address (``https://…/m.onnx#sha256=…``), "
        "module:function, a Python callable that makes a PyTorch model, or a name of ``adt.networks()``; in "
        "Python also a ``tvm.IRModule``.",
        kw_only=False,
        help="An .onnx, .tflite, .pt2, .keras or .h5 file, its address with #sha256=…, module:function, "
        "or an untrained network of `adt networks`.",
    )
    params: Mapping[str, Any] | None = python(
        "Of a ``tvm.IRModule`` as the model: arrays by the names of parameters of ``main``; the others are "
        "inputs.",
        default=None,
    )

    def _complete(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """With a file that has the model, where it is a module of Relax."""
        model, params = arguments["model"], arguments["params"]
        if model is not None and not isinstance(model, str | os.PathLike):
            from adt.compiler.importers.relax import module_file  # with TVM, which others start without

            model, params = module_file(model, params or {}), None
        if params is not None:
            raise ConfigError(
                "params belong to a tvm.IRModule, and the model is a file, which has its own",
                remedy="Leave them away, or give the module.",
            )
        return super()._complete({**arguments, "model": model, "params": None})


class QuantizeRequest(Request, Shapes, ModelArgument):
    """Request of :func:`adt.quantize`."""

    _runs_model = False
    out: PathTo = option("The ONNX file to write.", "--out", "-o", metavar="FILE")
    calibrate: Files = option(
        "Samples of what the model will see: pictures, .npz or .npy files, directories of them; or "
        "``random:N``, N made-up ones, for a trial.",
        default=(),
        metavar="DIR|FILE|random:N",
    )
    picture: PictureOptions | None = python("How pictures are prepared.", default=None)
    weights_only: str | None = option(
        "Quantize the constant weights of matrix products, a scale for 32 of them, and nothing else; "
        "--calibrate is needed then only to measure what that costs.",
        default=None,
        choices=["int8", "int4"],
    )
    method: str = option(
        "How ranges are taken from samples.", default="minmax", choices=["minmax", "entropy", "percentile"]
    )
    activations: str = option("Type of tensors.", default="int8", choices=["int8", "uint8"])
    per_channel: bool = option("A scale for each channel of a weight.", default=False)
    keep: Texts = option(
        "Operators (Softmax) or nodes that stay float.", default=(), metavar="NAME,…", separator=","
    )
    target_snr: float | None = option(
        "Keep the layers in float that cost most, until each output has this SNR.",
        default=None,
        metavar="DB",
    )
    target_top1: float | None = option(
        "… or until this share of held-back samples has the same best class.",
        default=None,
        metavar="SHARE",
        least=0,
        most=1,
    )


class NetworksRequest(Request):
    """Request of :func:`adt.networks`."""


class NetworkRequest(Request):
    """Request of :func:`adt.network`."""

    name: str = option("As ``adt.networks()`` has it, or spelled alike.", kw_only=False)


class ExplainRequest(Request, Shapes, ModelArgument):
    """Request of :func:`adt.explain`."""


class LinkedWith(Options):
    """The bundle that what is compiled is linked with."""

    bundle: MaybePath = option(
        "The bundle it will run with; Android needs one: by default the newest one that was built here.",
        default=None,
        metavar="DIR",
    )


class JobRequest(Request, LinkedWith, Kernels, ApiLevel, NdkRoot, PlatformName, ModelArgument):
    """Model, and what it is compiled for."""

    like: str | None = option(
        "Serial of a device to compile for: its platform, its CPUs' features, its OpenCL's limits.",
        default=None,
        metavar="SERIAL",
        offers="serial",
    )


class CompileRequest(CompileSettings, JobRequest):
    """Request of :func:`adt.compile`."""

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


class KernelRequest(Request, LinkedWith, Computing, ApiLevel, NdkRoot, PlatformName):
    """Request of :func:`adt.compile_kernel`."""

    kernel: Any = option(
        "The tensors of a TE computation, inputs first; or a PrimFunc of TVMScript; or a ``tvm.IRModule`` of "
        "PrimFuncs. For OpenCL, one without thread bindings gets a simple schedule.",
        kw_only=False,
    )
    name: str = python(
        "What a single function is called; empty: as it calls itself, else ``main``.", default=""
    )
    out: MaybePath = python("The library; by default ``<name>-<platform>.so`` here.", default=None)


class TuneRequest(TuneSettings, JobRequest):
    """Request of :func:`adt.tune`."""

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


# Packages


class PackageArgument(Options):
    """A package, first."""

    package: PathTo = option("A package that `adt compile` made: its directory, or x.tar.", kw_only=False)


class InspectRequest(Request, PackageArgument):
    """Request of :func:`adt.inspect`."""


class PackageVerifyRequest(Request, RunsBeside, NdkRoot, PackageArgument):
    """Request of :func:`adt.package_verify`."""


class SplitRequest(Request, PackageArgument):
    """Request of :func:`adt.package_split_params`."""

    out: PathTo = option("Directory for code/ and params/.", "--out", "-o", kw_only=False)


class MergeRequest(Request):
    """Request of :func:`adt.package_merge`."""

    code: PathTo = option("The part with mod.json and mod.so.", kw_only=False)
    params: PathTo = option("mod.params, or the directory that it is in.", kw_only=False)
    out: PathTo = option("Directory of the package, or x.tar.", "--out", "-o")


class KindArgument(Options):
    """Kind of what is generated, the first argument."""

    kind: str = option(
        "A C++ project; Java and Kotlin with their C++ part; an Android app; an Android library.",
        kw_only=False,
        choices=["cpp", "jni", "android-app", "aar"],
    )


class PackagesArgument(Options):
    """Packages that become parts of an app, and their bundles."""

    packages: OneOrMorePaths = option(
        "Packages that `adt compile` made, for each platform; those of one name are one model.",
        kw_only=False,
        help="Packages that `adt compile` made, for each platform.",
        metavar="PACKAGE...",
    )
    bundles: Paths = option(
        "Each platform's bundle; else the newest built here.", "--bundle", default=(), metavar="DIR"
    )


class SmallPages(Options):
    """Libraries that only some devices load."""

    allow_4k: bool = option(
        "Take libraries that devices with pages of 16 KB, and so Google Play, do not.",
        "--allow-4k",
        default=False,
    )


class GenerateRequest(Request, SmallPages, PackagesArgument, KindArgument):
    """Request of :func:`adt.generate`."""

    out: PathTo = option("The project's directory.", "--out", "-o", metavar="DIR")
    java_package: str = option(
        "The code's package; its last part is the C++ namespace.", "--package", metavar="com.a.b"
    )
    classes: Mapping[str, str] | None = python(
        "Class of a model by its package's name, or by an empty name when there is one model; else it is "
        "made of the package's name.",
        default=None,
    )
    images: Pictures | None = python(
        "How pictures are prepared for inputs that take one, by the package's name, or by an empty one for "
        "all models without their own.",
        default=None,
    )
    labels: Texts = python("Of a classifier's scores, for the sample.", default=())
    agp: str = option(
        "Series of the Android Gradle plugin that a new project pins, with what goes with it.",
        default=NEWEST.series,
        choices=tuple(VERSIONS),
        help="Android Gradle plugin of a new project.",
    )
    dry_run: bool = option("Write nothing; show what would change as a diff.", default=False)
    force: bool = option(
        "Replace edited files, and files that adt did not write.",
        default=False,
        help="Replace generated files even if they were edited.",
    )


# Devices


class DevicesRequest(Request):
    """Request of :func:`adt.devices`."""

    timeout: float | None = option("Seconds that each device has; else a few.", default=None, least=0.0)


class AdbRequest(Request, DeviceSerial):
    """Request of :func:`adt.adb_command`."""

    arguments: Texts = option(
        "As adb takes them: ``shell ls``, ``push``, …",
        kw_only=False,
        help="As adb takes them: shell ls, push, …",
        metavar="ADB_ARGUMENTS...",
    )


class DeviceRequest(Request, DeviceSettings):
    """Request of :func:`adt.chosen_device`."""


class ProbeRequest(Request, DeviceSettings):
    """Request of :func:`adt.probe`."""

    fresh: bool = option("Ask for OpenCL again, not only once per boot of the device.", default=False)


class DoctorRequest(RunsWith, NdkRoot, DeviceSettings):
    """Request of :func:`adt.doctor`, which looks at the settings itself: it says what is wrong with them."""

    areas: OneOrMoreTexts = option(
        "What to look at; everything when none is named.",
        default=(),
        kw_only=False,
        choices=["host", "ndk", "device", "rpc", "package"],
    )
    package: MaybePath = option("A package that `adt compile` made.", default=None, metavar="DIR")
    fix: bool = option("Mend what can be mended safely, say it, and look again.", default=False)
    on_check: Callable[[Check], None] = python("Called with each check as it comes.", default=quiet)
    on_repair: Callable[[Repair], None] = python("Called after each repair.", default=quiet)


class EmulatorName(Options):
    """A virtual device, first."""

    name: str = option(
        "Its name; several can run.", default="default", kw_only=False, offers="virtual_device"
    )


class EmulatorRequest(EmulatorName):
    """Request of :func:`adt.emulator_start`."""

    port: int | None = option("Its ADB port on 127.0.0.1; else a free one.", default=None)
    rootfs: MaybePath = option("Your own root file system, e.g. an Android /system tree.", default=None)
    data_size: str | None = option("Size of /data, e.g. 64M; else unlimited.", default=None)
    abi: str | None = option("arm64-v8a, or x86_64 without emulation on such a machine.", default=None)
    opencl: bool = option("With OpenCL: PoCL, which computes on the processor.", default=False)


class ServerKey(Options):
    """Key of a server."""

    key: str = option("What clients ask the tracker for.", "--key", "-k", default="")


class DeployOptions(Request, ServerKey, RunsWith, DeviceTimeout):
    """Options of every deployment."""

    packages: OneOrMorePaths = option(
        "Packages that `adt compile` made; none: the bundle alone.",
        default=(),
        kw_only=False,
        metavar="[PACKAGE]...",
    )
    rpc: bool | None = option(
        "Start tracker and RPC server, which run programs for whoever connects; else only where no "
        "package is named.",
        "--rpc/--no-rpc",
        default=None,
    )
    run_as: str | None = option(
        "Copy into this debuggable app's own directory, too.", default=None, metavar="APP"
    )
    dry_run: bool = option("Only show what would be done.", default=False)
    full_hash: bool = option("Read every byte on the device again.", default=False)


class DeployRequest(DeployOptions, DeviceSettings):
    """Request of :func:`adt.deploy`."""

    say: Callable[[str], None] = python("Called with what is being done, in a few words.", default=quiet)


class SeveralDevices(Options):
    """Devices that are worked on at once."""

    serials: Sequence[str] = option("The devices.", cli=None)
    on_event: Callable[[Event], None] = python("Called with what happens on each.", default=quiet)


class DeployManyRequest(SeveralDevices, DeployOptions):
    """Request of :func:`adt.deploy_many`."""


class CleanOptions(Request, DeviceTimeout):
    """Options of every clean-up."""

    keep: int = option("How many deployments of each name stay: those used last.", default=2, least=0)
    dry_run: bool = option("Only show what would be done.", default=False)


class CleanRequest(CleanOptions, DeviceSettings):
    """Request of :func:`adt.clean`."""


class CleanManyRequest(SeveralDevices, CleanOptions):
    """Request of :func:`adt.clean_many`."""


# RPC


class TrackerAddress(Options):
    """Address of the tracker at which a server registers."""

    tracker_address: str = option(
        "Another tracker than adt's own.", "--tracker", default="", metavar="HOST:PORT"
    )


class Registration(TrackerAddress):
    """Choice to register, and the tracker."""

    use_tracker: bool = option(
        "False: clients connect directly.",
        "--no-tracker",
        default=True,
        help="Do not register: clients connect directly.",
    )


class FirstPort(Options):
    """Port of a server or tracker."""

    port: int | None = option("The port, or the first one to try.", default=None, least=1, most=65535)


class LastPort(FirstPort):
    """Between which ports it listens."""

    port_end: int | None = option("Last port to try.", default=None, least=1, most=65535)


class Exposure(Options):
    """Reach of a server or tracker."""

    expose: bool = option("Listen on the network: whoever reaches it can run programs here.", default=False)


class TrackerRequest(Request, Exposure, LastPort):
    """Request of :func:`adt.tracker_start`."""


class RpcStartRequest(Request, LastPort, Registration, RunsWith, ServerKey, DeviceSettings):
    """Request of :func:`adt.rpc_start`."""


class RpcStopRequest(Request, DeviceSerial):
    """Request of :func:`adt.rpc_stop`."""

    everything: bool = option("The servers on all devices.", "--all", default=False)


class ServeHereRequest(Request, Exposure, FirstPort, TrackerAddress, RunsWith, ServerKey):
    """Request of :func:`adt.rpc_serve_here`."""


class ServeRequest(Registration, ServeHereRequest):
    """Request of :func:`adt.rpc_serve`."""

    board_address: str = option("The board, as ssh takes it.", "--board", default="USER@BOARD")
    platform: str = option("What the board is.", "--for", default="linux-aarch64", offers="platform")


class InstallRequest(Request, TrackerAddress, ServerKey, DeviceSettings):
    """Request of :func:`adt.install`."""

    apk: PathTo = option("An APK; `adt apk` makes them.", kw_only=False, metavar="APK")
    run: bool = option(
        "Start it, wait until it has measured, and keep the results; or until it serves RPC.", default=False
    )
    record: bool = option("Keep the results for `adt report`.", default=True)
    progress: Progress | None = python("Called with name, bytes sent, and bytes in all.", default=None)


# Running and measuring


class PlaceOptions(Request, RunsWith, DeviceSettings):
    """Place where packages run."""


class PlaceRequest(PlaceOptions, PackageArgument):
    """A package where it runs."""


class RemoteRequest(PlaceRequest):
    """A package where it runs, natively or over RPC."""

    entry: str = option("Entry function.", default="main")
    via: str = option("By the runner, or by an RPC server.", default="native", choices=["native", "rpc"])
    key: str = option(
        "Over RPC, instead of a serial: any device that the tracker has under it.", "--key", "-k", default=""
    )
    tracker: str = option("Over RPC: the tracker; else adt's own.", default="", metavar="HOST:PORT")


class InputArrays(Options):
    """One set of inputs."""

    inputs: Arrays | None = option(
        "Name to array; made up from *seed* when not given.",
        "--input",
        "-i",
        default=None,
        help="Inputs by name, as .npz.",
        cli=Path,
    )


class SourceModel(ModelPlace):
    """The source model of a package."""

    model: MaybePath = option("The source model; else the copy that compiling kept.", default=None)


class Threads(Options):
    """Processors that a package uses."""

    threads: int | None = option("CPU threads.", default=None, least=1)
    affinity: str = option("CPUs to run on: big, little, all, or numbers (4-7).", default="", metavar="CPUS")


class RunRequest(MadeUpInputs, RemoteRequest):
    """Request of :func:`adt.run`."""

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


class VerifyRequest(VerifySettings, SourceModel, PlaceRequest):
    """Request of :func:`adt.verify`."""

    inputs: Arrays | Sequence[Arrays] | None = option(
        "Name to array, or several such sets; made up from *seed* when not given.",
        "--input",
        "-i",
        default=None,
        help="Inputs by name, as .npz; several: one set each.",
        cli=list[Path],
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


class LayerOptions(Options):
    """Comparison of single kernels."""

    calls: tuple[int, int] | None = option(
        "With --layers: only these calls of the run, without the last.", default=None, metavar="A:B", cli=str
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
    )


class LayersRequest(LayerOptions, Trust, KernelTolerance, MadeUpInputs, InputArrays, PlaceRequest):
    """Request of :func:`adt.verify_layers`."""


class ProtocolOptions(Threads, Seed):
    """Protocol of a benchmark."""

    protocol: str = option(
        "How it is measured, as far as the numbers of runs and seconds do not say.",
        default="default",
        choices=["default", "quick", "mlperf"],
    )
    runs: int | None = option("Timed runs, at least …", default=None)
    seconds: float | None = option("… and for at least so long.", default=None)
    warmup_runs: int | None = option("Runs before them, at least …", default=None)
    warmup_ms: float | None = option("… and for at least so many milliseconds.", default=None)
    end_to_end: bool = option("Time copying inputs in and outputs out, too.", default=False)


class MeasureOptions(MadeUpInputs, ProtocolOptions, InputArrays, PlaceOptions):
    """Options of every measurement on a device."""

    cool_down: str | None = option(
        "Wait first: until the hottest zone is at most so warm (45C), or so long (30s).", default=None
    )
    record: bool = option("Keep the result for `adt report`.", default=True)
    label: str = option("Kept with the result.", default="")


class BenchOptions(MeasureOptions, Trust):
    """Options of every benchmark of packages."""

    verify: bool = option("Compare the outputs with the reference first.", default=True)


class BenchRequest(BenchOptions, PlaceRequest, SourceModel):
    """Request of :func:`adt.bench`."""

    cold_start: bool = option("With OpenCL: load once without compiled programs, too.", default=True)


class Rounds(Options):
    """Number of rounds in which two packages take turns."""

    rounds: int | None = option("Rounds of --ab, each A B B A.", default=None, help="Rounds, each A B B A.")


class AbRequest(Rounds, BenchOptions):
    """Request of :func:`adt.bench_ab`."""

    a: PathTo = option("A package.", kw_only=False)
    b: PathTo = option("Another one.", kw_only=False)


class CompareOffloadRequest(Rounds, MeasureOptions, Records, JobRequest):
    """Request of :func:`adt.compare_offload`."""


class ApkRequest(ProtocolOptions, Request, NdkRoot, SmallPages, PackagesArgument):
    """Request of :func:`adt.apk`."""

    packages: OneOrMorePaths = option(
        "Packages that `adt compile` made, for each platform; those of one name are one model.",
        default=(),
        kw_only=False,
        help="Packages that `adt compile` made, for each platform.",
        metavar="[PACKAGE]...",
    )
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


class ProfileRequest(Threads, MadeUpInputs, InputArrays, RemoteRequest):
    """Request of :func:`adt.profile`."""

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
    against: str = option("best: the fastest earlier result; previous: the one before.", default="best")


class UpRequest(
    Request, BuildProgress, Records, Seed, InputArrays, NdkRoot, Shapes, Target, PlatformName, DeviceSettings,
    ModelArgument,
):  # fmt: skip
    """Request of :func:`adt.up`."""

    on_plan: Callable[[UpPlan], None] = python(
        "Called once with the resolved plan, before anything is made.", default=quiet
    )
    on_step: Callable[[Step], None] = python("Called after each step.", default=quiet)


# Tuning databases


class DatabaseArgument(Options):
    """A tuning database, first."""

    db: PathTo = option("Directory of the database.", kw_only=False, metavar="DB")


class IntoOption(Options):
    """Database that records go into."""

    into: PathTo = option("The database to add to; it may be new.", metavar="DB")


class KeepOption(Options):
    """Number of records that stay."""

    keep: int | None = option("Only the K fastest of each kernel.", default=None, metavar="K", least=0)


class RecordSelection(Options):
    """Selection of records, by parts of their names."""

    device: str = option("Only records of devices so named; a part is enough.", default="")
    driver: str = option("Only of drivers so named; a part is enough.", default="")
    target: str = option("Only of targets whose key has this in it.", default="")
    tvm: str = option("Only of this version of TVM; its start is enough.", default="")


class DbVerifyRequest(Request, DatabaseArgument):
    """Request of :func:`adt.db_verify`."""

    repair: bool = option("Take out what is damaged; the old file goes to backup/.", default=False)


class DbStatsRequest(Request, DatabaseArgument):
    """Request of :func:`adt.db_stats`."""


class DbMergeRequest(Request, IntoOption):
    """Request of :func:`adt.db_merge`."""

    dbs: OneOrMorePaths = option("Databases to take from.", kw_only=False, metavar="DB…")


class DbPruneRequest(Request, RecordSelection, KeepOption, DatabaseArgument):
    """Request of :func:`adt.db_prune`."""

    failures: bool = option("Take out what could not be built, or was refused.", default=False)
    drop: bool = option("Take out everything of the devices, drivers … that are named.", default=False)
    dry_run: bool = option("Only say what would go.", default=False)


class DbExportRequest(Request, RecordSelection, DatabaseArgument):
    """Request of :func:`adt.db_export`."""

    metaschedule: PathTo = option(
        "Where to write MetaSchedule's two JSON files; ``ms.database.JSONDatabase(work_dir=…)`` opens it.",
        help="Where to write MetaSchedule's two JSON files.",
        metavar="DIR",
    )
    failures: bool = option("Failed candidates, too.", default=False)


class DbImportRequest(Request, Processor, PlatformName, IntoOption):
    """Request of :func:`adt.db_import`."""

    files: PathTo = option("Directory of MetaSchedule's two JSON files.", kw_only=False, metavar="DIR")
    device: str = option("What they were measured on, which they do not say: the GPU, or the processor.")
    driver: str = option("The GPU's driver.", default="")


class DbPublishRequest(Request, RecordSelection, KeepOption, DatabaseArgument):
    """Request of :func:`adt.db_publish`."""

    out: PathTo = option("The file to write, NAME.tar.gz.", "--out", "-o", kw_only=False)


class DbFetchRequest(Request):
    """Request of :func:`adt.db_fetch`."""

    source: str = option("A published file: its path, or its address.", kw_only=False)
    out: PathTo = option("The database to add to.", "--out", "-o", metavar="DB")
    sha256: str = option("Of the file; an address needs it.", default="")
