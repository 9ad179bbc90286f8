"""Every setting of adt. The classes are the sections of ``adt.toml``; requests of verbs are made of the same.

A setting ``section.key`` can be given as a flag or keyword, as ``ADT_SECTION_KEY`` in the environment, in
``adt.toml`` or in ``pyproject.toml`` under ``[tool.adt]``; :mod:`adt.options.resolve` decides between them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import get_type_hints

from adt.errors import ConfigError
from adt.limits import MOST_PORT
from adt.options.option import Directory, Flag, Number, Options, Real, Shapes, Switch, Text, Texts, option

FEWEST_ROUNDS = 6
"""Below, not even the smallest and the largest of the rounds are 95 % apart."""
ON_OFF = ("auto", "on", "off")
PORT = option("", least=1, most=MOST_PORT)
MOST_DECIBELS = 1000.0
MOST_SECONDS = 1e6
"""Longest time limit; system calls count milliseconds in 31 bits."""
PLATFORM_DEFAULT = "the connected device's, else that of a bundle here, else android-arm64-v8a with an NDK"
RUN_SECONDS = 600.0
"""The time limit of a program on a device, without ``device.timeout``."""
FOR = ("--for", "--platform")  # the first cannot be a keyword of Python


class TvmSettings(Options, section="tvm"):
    """Origin of the TVM source tree."""

    tvm_source: Directory = option(
        "TVM source tree; empty: TVM_HOME, else one that adt obtains.",
        default="",
        key="tvm.source",
        executes=True,
        metavar="DIR",
    )
    provider: Text = option(
        "Way to obtain the tree: ``auto`` (cache, then git, then the registry), ``git`` or ``registry``.",
        default="auto",
        choices=["auto", "git", "registry"],
    )


class BuildSettings(Options, section="build"):
    """Options of the build of a TargetBundle."""

    platform: Text = option(
        "Platform of the result: ``android-arm64-v8a``, ``linux-aarch64``, ``host``, …, or a preset of one "
        f"such as ``linux-aarch64-cpu`` (`adt presets` lists them); empty: {PLATFORM_DEFAULT}.",
        *FOR,
        default="",
        help="Platform of the result, or a preset of one (`adt presets`).",
        offers="platform",
    )
    ndk: Directory = option(
        "Root of the Android NDK; empty: found where Android tools look.",
        default="",
        executes=True,
        metavar="DIR",
    )
    api_level: Number = option(
        "Lowest Android API level that the bundle runs on, at least 21.", default=28, least=21
    )
    clml: Directory = option(
        "CLML SDK whose graph runtime is built in; empty: for a ``-clml`` preset ADRENO_OPENCL or CLML_SDK.",
        default="",
        executes=True,
        metavar="DIR",
    )
    xnnpack_source: Directory = option(
        "Directory of XNNPACK's source trees: xnnpack, pthreadpool, fxdiv and cpuinfo; empty: "
        "obtained when needed.",
        default="",
        executes=True,
        metavar="DIR",
    )
    alignment: Number = option(
        "Alignment in bytes of every tensor the runtime allocates; 0: the platform's own (32 on devices).",
        default=0,
    )
    opencl: Flag = option(
        "Build the OpenCL runtime in (the device's libOpenCL is opened at run time).", default=True
    )
    opencl_sdk: Directory = option(
        "Link libOpenCL from the SDK in this directory; empty: the device's, opened at run time.",
        default="",
        executes=True,
        metavar="DIR",
    )
    xnnpack: Flag = option(
        "Build XNNPACK in, Google's kernels for CPUs, for packages compiled with ``--offload xnnpack``.",
        default=False,
    )
    cuda: Flag = option(
        "Build the runtime for CUDA in, on 64-bit Linux (the driver's libcuda.so.1 is opened at run time).",
        default=False,
    )
    one_library: Flag = option(
        "Link TVM's runtime into ``libadt_runner.so``, which then exports ``adt_*`` alone: for an app with "
        "another TVM inside.",
        default=False,
    )
    rpc: Flag = option("Build tvm_rpc.", default=True)
    build_type: Text = option(
        "CMake's build type; Debug and RelWithDebInfo put symbol files beside the stripped ones.",
        default="Release",
        choices=["Release", "MinSizeRel", "RelWithDebInfo", "Debug"],
    )
    jobs: Number = option("Parallel compiler processes; 0: as Ninja decides.", "--jobs", "-j", default=0)


class CompileSettings(Options, section="compile"):
    """Options of the compilation of a model."""

    target: Text = option(
        "Kind of processor that computes: ``cpu``, ``opencl`` (buffers), ``adreno`` (textures), "
        "``adreno-buffer``, ``mali``, ``cuda:ARCH`` (NVIDIA), ``host`` (this machine), or TVM's own string, "
        "tag or dictionary for one.",
        default="cpu",
        help="Kind of processor that computes, CUDA with its architecture (cuda:sm_90); or TVM's own target.",
        metavar="TARGET",
        offers="target",
    )
    cpu: Text = option(
        "The processor: a core (``cortex-a76``), a system on chip (``snapdragon-865``), ``native``, and "
        "features: ``cortex-a76,+dotprod,+fp16``; empty: any of the platform, and on ``host`` ``native``.",
        default="",
        help="Core or chip that runs the code, and its features: cortex-a76,+dotprod.",
        metavar="CPU,+FEATURE,…",
        offers="processor",
    )
    opt_level: Number = option("TVM's optimisation level, 0 to 3.", default=3, most=3)
    shapes: Shapes = option(
        "Fixed input shapes, each ``name:1,3,224,224``, or extents of symbols, ``batch=1,past=16``; in "
        "Python also ``{'x': (1, 3), 'batch': 1}``.",
        "--shape",
        default=(),
        metavar="NAME:DIMS|SYMBOL=N",
    )
    precision: Text = option(
        "Precision of the arithmetic: ``float32``, ``float16``, or ``float16_acc32`` (but convolutions and "
        "matrix products add up in float32). Inputs and outputs stay float32.",
        default="float32",
        choices=["float32", "float16", "float16_acc32"],
    )
    keep_float32: Texts = option(
        "Operators that stay float32 in half precision besides the delicate ones, as Relax calls them "
        "(``nn.softmax``), or variables of the imported module (``lv12``); ``-NAME`` frees a delicate one.",
        default=(),
        metavar="nn.softmax,exp,…",
        separator=",",
    )
    half_only: Texts = option(
        "The operators that may compute in half precision, and no others, as Relax calls them "
        "(``nn.conv2d,matmul``; Relay's ``nn.dense`` is taken, too); empty: all but the delicate ones.",
        default=(),
        metavar="nn.conv2d,matmul,…",
        separator=",",
    )
    offload: Text = option(
        "Libraries that operators are handed to, the preferred one first: ``clml`` (Adreno GPUs), "
        "``xnnpack`` (any CPU), ``cudnn``, ``cublas`` (CUDA), ``auto``: as benchmarks of this model on the "
        "device decide (`adt compare-offload`), else ``none``.",
        default="none",
        metavar="LIBRARY,…",
        offers="libraries",
    )
    tf32: Flag = option(
        "Let cuDNN and cuBLAS round float32 to TF32, of 10 bits for 23, where the GPU is faster with it: "
        "results are as exact as in half precision.",
        default=False,
    )
    texture_choice: Text = option(
        "Use of a GPU's textures, or of buffers in blocks of four channels: where a model of what kernels "
        "read says that it is faster, ``auto``; wherever it can be, ``always``; ``never``.",
        default="auto",
        choices=["auto", "always", "never"],
    )
    db: Directory = option(
        "A tuning database (`adt tune`): kernels that it has records of, for this target, get their "
        "schedules from it, where they are faster than the usual ones; empty: none.",
        default="",
        help="Take tuned schedules from this database (`adt tune` makes one).",
        executes=False,
        metavar="DIR",
    )
    tuned_on: Text = option(
        "Device whose records of --db count, ``NAME`` or ``NAME, DRIVER``; empty: that of "
        "``--like``, else the only one.",
        default="",
        metavar="NAME[, DRIVER]",
    )
    accuracy: Switch = option(
        "Compare half precision with float32 on this machine, and keep the figures in mod.json: ``on``, "
        "``off``, or ``auto`` (for models that do not take long).",
        "--accuracy/--no-accuracy",
        default="auto",
        choices=ON_OFF,
        cli=bool,
        help="Compare half precision with float32 on this machine, for mod.json; else where that is quick.",
    )
    check: Switch = option(
        "Compare here each operator with the model's own runtime, and OpenCL kernels with the CPU: ``auto`` "
        "(kernels where there is an OpenCL device that can), ``on`` (or it is an error; of CUDA's the "
        "same schedules) or ``off``.",
        "--check/--no-check",
        default="auto",
        choices=ON_OFF,
        cli=bool,
        help="Compare operators with the model's runtime, OpenCL kernels with the CPU; else where possible.",
    )


class DeviceSettings(Options, section="device"):
    """Device, and the time that it may take."""

    serial: Text = option(
        "Serial of the device; empty: ANDROID_SERIAL, else the only device.",
        "--serial",
        "-s",
        default="",
        offers="serial",
    )
    timeout: Real = option(
        "Seconds that each step on the device may take; 0: what the step needs (600 for the run of a "
        "program, 30 for a short command, and a transfer as long as bytes travel: 60 without one end it).",
        default=0.0,
        most=MOST_SECONDS,
    )

    @property
    def limit(self) -> float | None:
        """Seconds that each step may take; None without ``device.timeout``."""
        return self.timeout or None

    @property
    def run_seconds(self) -> float:
        """Seconds that a run of a program may take."""
        return self.timeout or RUN_SECONDS


@dataclass(frozen=True)
class PortRange:
    """Ports that are tried in their order, both ends included."""

    first: int
    last: int
    insisted: bool = False
    """True if the caller named them: a tracker or server that runs on another port does not do."""

    def __post_init__(self) -> None:
        if self.first > self.last or self.first < 1 or self.last > MOST_PORT:
            named = "an empty range" if self.first > self.last else str(self)
            raise ConfigError(
                f"{named} is not a range of ports", remedy="Give the first and the last one, of 1 to 65535."
            )

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.last + 1))

    def __len__(self) -> int:
        return self.last + 1 - self.first

    def __str__(self) -> str:
        return f"{self.first} to {self.last}"

    def chosen(self, first: int | None, last: int | None) -> PortRange:
        """Return the range with the ends that are given; a first one alone takes as many ports as before."""
        if first is None and last is None:
            return self
        if last is None:
            last = min(MOST_PORT, (first or self.first) + len(self) - 1)
        return PortRange(self.first if first is None else first, last, insisted=True)


class RpcSettings(Options, section="rpc"):
    """The RPC tracker on this machine and the servers on devices."""

    key: Text = option(
        "What clients ask the tracker for; empty: ``android``, or the device's platform.", default=""
    )
    tracker_port: Number = option(PORT, doc="First port that the tracker tries.", default=9190)
    tracker_port_end: Number = option(PORT, doc="Last port that the tracker tries.", default=9199)
    port: Number = option(
        PORT,
        doc="First port that a server tries; it is the same on this machine and on the device.",
        default=9090,
    )
    port_end: Number = option(PORT, doc="Last port that a server tries; each server needs one.", default=9189)

    @property
    def tracker_ports(self) -> PortRange:
        """Ports for adt's own tracker."""
        return PortRange(self.tracker_port, self.tracker_port_end)

    @property
    def ports(self) -> PortRange:
        """Ports for servers, each the same on this machine and on the device."""
        return PortRange(self.port, self.port_end)


FILL_MODES = ("random", "zeros", "ones", "arange")


class VerifySettings(Options, section="verify"):
    seed: Number = option(
        "Seed of the inputs that are made up when none are given.", default=0, help="Seed of made-up inputs."
    )
    fill_mode: Text = option(
        "Values of made-up inputs: ``random`` ones of the seed, ``zeros``, ``ones``, ``arange``: 0, 1, ….",
        default="random",
        choices=FILL_MODES,
    )
    max_abs: Real = option(
        "Largest absolute difference to the reference that passes; else as the package's precision allows.",
        default=-1.0,
    )
    max_rel: Real = option(
        "Share of the reference's largest magnitude up to which larger differences pass, too; else as "
        "the package's precision allows.",
        default=-1.0,
    )
    max_steps: Number = option(
        "How far off an element of an integer output may be; by default 1 of 8- and 16-bit types, which "
        "quantised models round otherwise, and 0 of wider ones. Of a float output that was quantised: "
        "quanta, by default 1.",
        default=-1,
        help="Steps that an integer, or a float that was quantized, may be off; else 1, from 32 bits on 0.",
    )
    max_changed: Real = option(
        "Share of an integer output's elements that may be off by more: of nearly equal scores either may be "
        "the largest; else 0.01.",
        default=-1.0,
        metavar="SHARE",
        most=1,
    )
    allow_nonfinite: Flag = option(
        "Allow NaN or infinity at the same places as in the reference. An output with nothing else never "
        "passes.",
        "--allow-nonfinite",
        default=False,
    )
    reference: Text = option(
        "Source of the right answer: ``auto`` (the runtime of the model's format), ``onnxruntime``, "
        "``tflite``, ``torch``, ``keras``, ``host`` (this machine's CPU by TVM), an .npz file that has "
        "it, or another model: the one that was quantized, to which the outputs are only to be near.",
        default="auto",
        help="Source of the right answer: auto (the runtime of the model's format), onnxruntime, tflite, "
        "torch, keras, host (TVM on this machine), an .npz file, or the model that was quantized.",
    )
    min_snr: Real = option(
        "Least signal-to-noise ratio of float outputs in decibels, all inputs together, where --reference "
        "is a model.",
        default=10.0,
        least=-MOST_DECIBELS,
        most=MOST_DECIBELS,
        metavar="DB",
    )
    min_top1: Real = option(
        "Least share of rows whose best class is the same, where --reference is a model.",
        default=0.0,
        most=1,
        metavar="SHARE",
    )


class TuneSettings(Options, section="tune"):
    """Options of `adt tune`."""

    trials: Number = option(
        "Candidates to build and measure, with --per-task for each kernel.",
        "--trials",
        "-n",
        default=1000,
        least=1,
    )
    per_task: Flag = option(
        "Give each kernel --trials candidates, instead of more to those that promise more.",
        "--per-task/--in-all",
        default=False,
    )
    early_stopping: Number = option(
        "Candidates in a row without a gain of 1 % after which a kernel is done; 0: never.",
        default=0,
        metavar="K",
    )
    tuner: Text = option(
        "Method that proposes candidates: ``evolutionary``, ``random``, or ``replay`` (those on record).",
        default="evolutionary",
        choices=["evolutionary", "random", "replay"],
    )
    cost_model: Text = option(
        "Model that predicts how fast a candidate is: ``xgb`` (learns from what is measured), ``none``, or "
        "``auto`` (xgb where it is installed).",
        default="auto",
        choices=["auto", "xgb", "none"],
    )
    number: Number = option("Least number of calls of a kernel in one repeat.", default=1, least=1)
    repeat: Number = option(
        "Repeats of each measurement, of which the fastest counts; slow kernels have fewer.",
        default=10,
        least=1,
    )
    min_repeat_ms: Number = option("Least milliseconds of a repeat: more calls are made.", default=10)
    timeout: Real = option(
        "Seconds after which a candidate on a device counts as hung; loading it counts.",
        default=10.0,
        least=0.001,
        most=MOST_SECONDS,
    )
    seed: Number = option("Seed of the search.", default=0)
    builders: Text = option(
        "Processes of this machine that compile candidates, or the scheduler of a Dask cluster that does "
        "(``dask://HOST:PORT``); empty: one for each core.",
        default="",
        metavar="N|dask://HOST:PORT",
        executes=True,
    )
    wait: Real = option("Seconds to wait for a device when none is there.", default=600.0, most=MOST_SECONDS)


@dataclass(frozen=True)
class Settings:
    """All settings, resolved."""

    tvm: TvmSettings
    build: BuildSettings
    compile: CompileSettings
    device: DeviceSettings
    rpc: RpcSettings
    verify: VerifySettings
    tune: TuneSettings


SECTIONS: dict[str, type[Options]] = get_type_hints(Settings)
