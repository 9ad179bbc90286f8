"""What verbs are asked for: every option of theirs, written once (:mod:`adt.options`).

The command line makes its flags of them, and Python the keywords of ``adt.compile(...)``; settings among them
are written in :mod:`adt.options.sections`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adt.options.option import Files, MaybePath, OneOrMorePaths, Paths, PathTo, Texts, option, options, python
from adt.options.request import Request
from adt.options.sections import (
    ApiLevel,
    BuildSettings,
    ClmlSdk,
    CompileSettings,
    Computing,
    DeviceSettings,
    DeviceTimeout,
    Kernels,
    KernelTolerance,
    NdkRoot,
    PlatformName,
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
    from adt.device.parallel import Event
    from adt.device.rtvm import RtvmOptions
    from adt.measure.reference import Array
    from adt.model.inputs.pictures import PictureOptions
    from adt.tuning.results import Status, TuningPlan

    Arrays = Mapping[str, Array]
else:
    Arrays = Event = PictureOptions = RtvmOptions = Status = Step = TuningPlan = UpPlan = Any


def quiet(_event: object) -> None:
    """What is called when nobody wants to hear."""


@options()
class OfModel:
    """A model, first."""

    model: PathTo = option(
        "An .onnx, .tflite, .pt2, .keras or .h5 file, or module:function, a Python callable that makes a "
        "PyTorch model.",
        kw_only=False,
        help="An .onnx, .tflite, .pt2, .keras or .h5 file, or module:function.",
    )


@options()
class OfBundle:
    """The bundle that a package runs with."""

    bundle: MaybePath = option(
        "The bundle; else the newest fitting one built here.", default=None, metavar="DIR"
    )


@options()
class SourceRequest(Request, TvmSettings):
    """Of ``source``."""


@options()
class NdkRequest(Request, NdkRoot):
    """Of ``ndk_list``."""


@options()
class NdkEnvRequest(Request, ApiLevel, NdkRoot, PlatformName):
    """Of ``ndk_env``."""


@options()
class PresetsRequest(Request, ClmlSdk, NdkRoot):
    """Of ``presets``."""


@options()
class Building:
    """Of whatever builds."""

    progress: Callable[[str], None] = python(
        "Called with one line at a time while CMake and Ninja run.", default=quiet
    )


@options()
class BuildRequest(Request, Building, TvmSource, BuildSettings):
    """Of ``build_target``."""

    out: MaybePath = option("Also copy the bundle here.", default=None, flags=["--out", "-o"])


@options()
class AbisRequest(BuildRequest):
    """Of ``build_abis``."""

    abis: Sequence[str] = option(
        'Android\'s names, such as ``["arm64-v8a", "x86_64"]``, or with a variant: ``arm64-v8a-cpu``.',
        kw_only=False,
    )
    layout: str = option(
        "What the output holds: a directory for each ABI, or jniLibs/<abi>/*.so.",
        default="bundle",
        choices=["bundle", "jni"],
    )


@options()
class ExplainRequest(Request, Shapes, OfModel):
    """Of ``explain``."""


@options()
class LinkedBundle:
    """The bundle that what is compiled is linked with."""

    bundle: MaybePath = option(
        "The bundle it will run with; Android needs one: by default the newest one that was built here.",
        default=None,
        metavar="DIR",
    )


@options()
class JobRequest(Request, LinkedBundle, Kernels, ApiLevel, NdkRoot, PlatformName, OfModel):
    """What a model is compiled for."""

    like: str | None = option(
        "Serial of a device to compile for: its platform, its CPUs' features, its OpenCL's limits.",
        default=None,
        metavar="SERIAL",
        complete="serial",
    )


@options()
class KernelRequest(Request, LinkedBundle, Computing, ApiLevel, NdkRoot, PlatformName):
    """Of ``compile_kernel``."""

    kernel: Any = option(
        "The tensors of a TE computation, inputs first; or a PrimFunc of TVMScript; or a ``tvm.IRModule`` of "
        "PrimFuncs. For OpenCL, one without thread bindings gets a simple schedule.",
        kw_only=False,
    )
    name: str = python(
        "What a single function is called; empty: as it calls itself, else ``main``.", default=""
    )
    out: MaybePath = python("The library; by default ``<name>-<platform>.so`` here.", default=None)


@options()
class CompileRequest(CompileSettings, JobRequest):
    """Of ``compile``."""

    out: MaybePath = option(
        "Directory of the package, or x.tar for one file; by default MODEL-PLATFORM here.",
        default=None,
        flags=["--out", "-o"],
    )
    accuracy_inputs: Paths = option(
        "One sample to compare half precision on, instead of random inputs; repeatable.",
        default=(),
        metavar="FILE.npz",
    )
    use_cache: bool = option(
        "Copy what was compiled before with all the same.", default=True, flags=["--cache/--no-cache"]
    )


@options()
class OfTracker:
    """A device that a tracker gives."""

    key: str = option(
        "Over RPC, instead of a serial: any device that the tracker has under it.",
        default="",
        flags=["--key", "-k"],
    )
    tracker: str = option("Over RPC: the tracker; else adt's own.", default="", metavar="HOST:PORT")


@options()
class TuneRequest(TuneSettings, JobRequest):
    """Of ``tune``."""

    db: MaybePath = option(
        "Directory of the records, made when absent; else compile.db of the settings.",
        default=None,
        metavar="DIR",
    )
    serials: Texts = option(
        "Devices that measure: a,b,c. Else ANDROID_SERIAL, else the only one.",
        default=(),
        flags=["--serial", "-s"],
        metavar="A,B,…",
        complete="serials",
        cli=str,
        separator=",",
    )
    key: str = option(
        "Instead: every device that the tracker has under it.", default="", flags=["--key", "-k"]
    )
    tracker: str = option("The tracker for the key; else adt's own.", default="", metavar="HOST:PORT")
    device: str = option(
        "Of a key with different devices: the one that counts; else the first that answers.",
        default="",
        metavar="NAME[, DRIVER]",
    )
    compare: bool = option(
        "Then run the model tuned and untuned in turns.", default=False, flags=["--compare"]
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


@options()
class OfPackage:
    """A package, first."""

    package: PathTo = option("A package that `adt compile` made.", kw_only=False)


@options()
class OnPlace(Request, OfBundle, DeviceSettings, OfPackage):
    """A package where it belongs."""


@options()
class OfArrays:
    """One set of inputs."""

    inputs: Arrays | None = option(
        "Name to array; made up from *seed* when not given.",
        default=None,
        help="Inputs by name, as .npz.",
        flags=["--input", "-i"],
        cli=Path,
    )


@options()
class OfModelCopy:
    """The source model of a package."""

    model: MaybePath = option("The source model; else the copy that compiling kept.", default=None)


@options()
class Threads:
    """What a package computes with on a CPU."""

    threads: int | None = option("CPU threads.", default=None, least=1)
    affinity: str = option("CPUs to run on: big, little, all, or numbers (4-7).", default="", metavar="CPUS")


@options()
class Entry:
    """The function of a package that runs."""

    entry: str = option("Entry function.", default="main")
    via: str = option("By the runner, or by an RPC server.", default="native", choices=["native", "rpc"])


@options()
class Remotely(OfTracker, Entry, OnPlace):
    """A package where it belongs, natively or over RPC."""


@options()
class RunRequest(Seed, Remotely):
    """Of ``run``."""

    inputs: Arrays | None = python("Name to array.", default=None)
    files: Files = option(
        ".npz, .npy, or plain bytes (.raw, .bin); repeatable.",
        default=(),
        flags=["--input", "-i"],
        metavar="[NAME=]FILE",
    )
    images: Files = option(
        "A picture, prepared as *picture* says; several are a batch.",
        default=(),
        flags=["--image"],
        metavar="[NAME=]FILE",
    )
    picture: PictureOptions | None = python("How pictures are prepared.", default=None)
    run_count: int = option("Timed runs.", default=1, least=1)
    warmup_runs: int = option("Runs before them that are not timed …", default=0, least=0)
    options: RtvmOptions | None = python(
        "What else rtvm can do; entry, device, seed and the counts above are put in.", default=None
    )


@options()
class RunnerFlags(Threads):
    """What the command line of ``run`` takes for ``options``."""

    warmup_ms: float = option("… and for at least so many milliseconds.", default=0.0, least=0)
    zero_copy: bool = option("Use the CPU's inputs where they lie.", default=False, flags=["--zero-copy"])
    pre_compiled: str = option("Compiled OpenCL programs, a file on the device.", default="", metavar="FILE")
    program_cache: bool = option("Keep compiled OpenCL programs on the device.", default=True)


@options()
class VerifyRequest(VerifySettings, OfModelCopy, OnPlace):
    """Of ``verify``."""

    inputs: Arrays | Sequence[Arrays] | None = option(
        "Name to array, or several such sets; made up from *seed* when not given.",
        default=None,
        help="Inputs by name, as .npz; several: one set each.",
        flags=["--input", "-i"],
        cli=list[Path],
    )
    seeds: int = option(
        "So many sets of made-up inputs, from the seed, the next one, …; the worst is shown.",
        default=1,
        metavar="N",
    )


@options()
class LayersRequest(KernelTolerance, Seed, OfArrays, OnPlace):
    """Of ``verify_layers``."""

    calls: tuple[int, int] | None = option(
        "With --layers: only these calls of the run, without the last.", default=None, metavar="A:B", cli=str
    )
    everything: bool = option(
        "With --layers: go on after a wrong kernel, and show every call.", default=False, flags=["--all"]
    )
    chunk_bytes: int | None = option(
        "How much of the device's tensors is fetched at a time.",
        default=None,
        help="With --layers: MiB of tensors fetched at a time (256).",
        flags=["--chunk-mb"],
        metavar="MIB",
        least=1,
    )
    trust: bool = option(
        "With --layers: run the kernels of a package made elsewhere here.", default=False, flags=["--trust"]
    )


@options()
class Measuring(Request, Threads, Seed, OfArrays, OfBundle, DeviceSettings):
    """Of every benchmark."""

    protocol: str = option(
        "How it is measured, as far as the numbers of runs and seconds do not say.",
        default="default",
        choices=["default", "quick", "mlperf"],
    )
    runs: int | None = option("Timed runs, at least …", default=None)
    seconds: float | None = option("… and for at least so long.", default=None)
    warmup_runs: int | None = option("Runs before them, at least …", default=None)
    warmup_ms: float | None = option("… and for at least so many milliseconds.", default=None)
    end_to_end: bool = option(
        "Time copying inputs in and outputs out, too.", default=False, flags=["--end-to-end"]
    )
    cool_down: str | None = option(
        "Wait first: until the hottest zone is at most so warm (45C), or so long (30s).", default=None
    )
    verify: bool = option("Compare the outputs with the reference first.", default=True)
    record: bool = option("Keep the result for `adt report`.", default=True)
    label: str = option("Kept with the result.", default="")


@options()
class BenchRequest(Measuring, OnPlace, OfModelCopy):
    """Of ``bench``."""

    cold_start: bool = option("With OpenCL: load once without compiled programs, too.", default=True)


@options()
class AbRequest(Measuring):
    """Of ``bench_ab``."""

    a: PathTo = option("A package.", kw_only=False)
    b: PathTo = option("Another one.", kw_only=False)
    rounds: int | None = option("Rounds of --ab, each A B B A.", default=None)


@options()
class ProfileRequest(Threads, Seed, OfArrays, Remotely):
    """Of ``profile``."""

    runs: int = option("Runs with clocks, and without.", default=20, flags=["--runs", "-n"], least=1)
    warmup_runs: int = option("Runs before them.", default=3, least=0)
    peak_gflops: float | None = option(
        "What the device computes at best, GFLOP/s: draws the roofline.", default=None
    )
    peak_gbps: float | None = option(
        "What its memory delivers at best, GB/s: draws the roofline.", default=None
    )


@options()
class OfKey:
    """What a server is registered as."""

    key: str = option("What clients ask the tracker for.", default="", flags=["--key", "-k"])


@options()
class TrackerAddress:
    """Where a server registers."""

    tracker_address: str = option(
        "Another tracker than adt's own.", default="", flags=["--tracker"], metavar="HOST:PORT"
    )


@options()
class Registration(TrackerAddress):
    """Whether it does."""

    use_tracker: bool = python("False: clients connect directly.", default=True)


@options()
class FirstPort:
    """Where a server or tracker listens."""

    port: int | None = option("The port, or the first one to try.", default=None, least=1, most=65535)


@options()
class LastPort(FirstPort):
    """Between which ports it listens."""

    port_end: int | None = option("Last port to try.", default=None, least=1, most=65535)


@options()
class Exposed:
    """Who reaches it."""

    expose: bool = option(
        "Listen on the network: whoever reaches it can run programs here.", default=False, flags=["--expose"]
    )


@options()
class TrackerRequest(Request, Exposed, LastPort):
    """Of ``tracker_start``."""


@options()
class ServeHereRequest(Request, Exposed, FirstPort, TrackerAddress, OfBundle, OfKey):
    """Of ``rpc_serve_here``."""


@options()
class ServeRequest(Registration, ServeHereRequest):
    """Of ``rpc_serve``."""

    board_address: str = option("The board, as ssh takes it.", default="USER@BOARD", flags=["--board"])
    platform: str = option(
        "What the board is.",
        default="linux-aarch64",
        flags=["--for"],
        complete="platform",
    )


@options()
class RpcStartRequest(Request, LastPort, Registration, OfBundle, OfKey, DeviceSettings):
    """Of ``rpc_start``."""


@options()
class Deploying(Request, OfKey, OfBundle, DeviceTimeout):
    """Of every deployment."""

    packages: OneOrMorePaths = option(
        "Packages that `adt compile` made; none: the bundle alone.",
        default=(),
        kw_only=False,
        metavar="[PACKAGE]...",
    )
    rpc: bool | None = option(
        "Start tracker and RPC server, which run programs for whoever connects; else only where no "
        "package is named.",
        default=None,
        flags=["--rpc/--no-rpc"],
    )
    run_as: str | None = option(
        "Copy into this debuggable app's own directory, too.", default=None, metavar="APP"
    )
    dry_run: bool = option("Only show what would be done.", default=False, flags=["--dry-run"])
    full_hash: bool = option("Read every byte on the device again.", default=False, flags=["--full-hash"])


@options()
class DeployRequest(Deploying, DeviceSettings):
    """Of ``deploy``."""

    say: Callable[[str], None] = python("Told in a few words what is being done.", default=quiet)


@options()
class DeployManyRequest(Deploying):
    """Of ``deploy_many``."""

    serials: Sequence[str] = option(
        "The devices.",
        help="The device, or several: a,b. Else ANDROID_SERIAL, else the only one.",
        flags=["--serial", "-s"],
        complete="serials",
        cli=str,
    )
    on_event: Callable[[Event], None] = python("Told what happens on each.", default=quiet)


@options()
class UpRequest(
    Request, Building, Records, Seed, OfArrays, NdkRoot, Shapes, Target, PlatformName, DeviceSettings, OfModel
):
    """Of ``up``."""

    on_plan: Callable[[UpPlan], None] = python(
        "Called once with the resolved plan, before anything is made.", default=quiet
    )
    on_step: Callable[[Step], None] = python("Called after each step.", default=quiet)
