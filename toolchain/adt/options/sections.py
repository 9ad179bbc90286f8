"""Every setting of adt. The classes are the sections of ``adt.toml``; requests of verbs are made of the same.

A setting ``section.key`` can be given as a flag or keyword, as ``ADT_SECTION_KEY`` in the environment, in
``adt.toml`` or in ``pyproject.toml`` under ``[tool.adt]``; :mod:`adt.options.resolve` decides between them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from adt.errors import ConfigError
from adt.limits import MOST_PORT
from adt.options.option import Directory, Flag, Number, Options, Real, Shapes, Switch, Text, Texts, option

FEWEST_ROUNDS = 6
"""Below, not even the smallest and the largest of the rounds are 95 % apart."""
MOST_DECIBELS = 1000.0
MOST_SECONDS = 1e6
"""Longest time limit; system calls count milliseconds in 31 bits."""
RUN_SECONDS = 600.0
"""The time limit of a program on a device, without ``device.timeout``."""
FOR = ("--for", "--platform")
"""Flags of the platform: the first cannot be a keyword of Python."""


class TvmSettings(Options, section="tvm"):
    """Origin of the TVM source tree."""

    tvm_source: Directory = option(
        "A TVM source tree (``--tvm-source``, or TVM_HOME); empty: obtain one.",
        default="",
        key="tvm.source",
        help="A TVM source tree; else TVM_HOME, else one is obtained.",
        executes=True,
        metavar="DIR",
    )
    provider: Text = option(
        "How the tree is obtained: ``auto`` (cache, then git, then the registry), ``git`` or ``registry``.",
        default="auto",
        choices=["auto", "git", "registry"],
    )


class BuildSettings(Options, section="build"):
    """Options of the build of a TargetBundle."""

    platform: Text = option(
        "What to build for: ``android-arm64-v8a``, ``linux-aarch64``, ``host``, …, or a preset of one such "
        "as ``linux-aarch64-cpu`` (`adt presets` lists them); empty: the connected device's, else "
        "that of the bundles here, else ``android-arm64-v8a`` if there is an NDK.",
        *FOR,
        default="",
        help="What to build for, or a preset of one (adt presets); else what the connected device is, else "
        "what a bundle here is for.",
        metavar="PLATFORM",
        offers="platform",
    )
    ndk: Directory = option(
        "Root of the Android NDK; empty: look where Android tools look.",
        default="",
        help="Root of the Android NDK; else found as Android tools do.",
        executes=True,
        metavar="DIR",
    )
    api_level: Number = option(
        "Lowest Android API level that the bundle runs on, at least 21.",
        default=28,
        least=21,
    )
    clml: Directory = option(
        "Build the CLML graph runtime in, with the SDK in this directory; empty: only for a ``-clml`` "
        "preset, with the SDK that ADRENO_OPENCL or CLML_SDK names.",
        default="",
        help="Build CLML in, with this SDK; a -clml preset looks in the environment.",
        executes=True,
        metavar="DIR",
    )
    xnnpack_source: Directory = option(
        "XNNPACK's source: a directory with the trees xnnpack, pthreadpool, fxdiv and cpuinfo; empty: they "
        "are obtained.",
        default="",
        help="XNNPACK's source trees; else they are obtained.",
        executes=True,
        metavar="DIR",
    )
    alignment: Number = option(
        "Alignment in bytes of every tensor the runtime allocates; 0: the platform's own (32 on devices).",
        default=0,
        least=0,
    )
    opencl: Flag = option(
        "Build the OpenCL runtime in (the device's libOpenCL is opened at run time).", default=True
    )
    opencl_sdk: Directory = option(
        "Link libOpenCL from the SDK in this directory; empty: the device's is opened at run time.",
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
    jobs: Number = option(
        "Parallel compiler processes; 0: as Ninja decides.",
        "--jobs",
        "-j",
        default=0,
        least=0,
    )


class CompileSettings(Options, section="compile"):
    """Options of the compilation of a model."""

    target: Text = option(
        "What computes: ``cpu``, ``opencl`` (buffers), ``adreno`` (textures), ``adreno-buffer``, ``mali``, "
        "``cuda:ARCH`` (NVIDIA), ``host`` (this machine), or TVM's own string, tag or dictionary for one.",
        default="cpu",
        help="What computes, CUDA with an architecture (cuda:sm_90); or TVM's own target.",
        metavar="TARGET",
        offers="target",
    )
    cpu: Text = option(
        "The processor: a core (``cortex-a76``), a system on chip (``snapdragon-865``), ``native``, and "
        "features: ``cortex-a76,+dotprod,+fp16``; empty: any of the platform, and on ``host`` ``native``.",
        default="",
        help="Processor: a core, a chip, native, +features.",
        metavar="CPU,+FEATURE,…",
        offers="processor",
    )
    opt_level: Number = option("TVM's optimisation level, 0 to 3.", default=3, least=0, most=3)
    shapes: Shapes = option(
        "Fixed input shapes, each ``name:1,3,224,224``, or extents of symbols, ``batch=1,past=16``; in "
        "Python also ``{'x': (1, 3), 'batch': 1}``.",
        "--shape",
        default=(),
        metavar="NAME:1,3,224,224|SYMBOL=1,…",
    )
    precision: Text = option(
        "Computing in half precision: ``float16``, ``float16_acc32`` (but convolutions and matrix "
        "products add up in float32), or not at all, ``float32``. Inputs and outputs stay float32.",
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
        "Hand operators to libraries, the first of them first: ``clml`` (Adreno GPUs), ``xnnpack`` (any "
        "CPU), ``cudnn``, ``cublas`` (CUDA), ``auto``: as benchmarks of this model on the device decide "
        "(`adt compare-offload`), else ``none``.",
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
        "Channels in blocks of four, in textures or buffers: where a model of what kernels read says that it "
        "is faster, ``auto``; wherever they can be, ``always``; ``never``. For GPUs.",
        default="auto",
        choices=["auto", "always", "never"],
    )
    db: Directory = option(
        "A tuning database (`adt tune`): kernels that it has records of, for this target, get their "
        "schedules from it, where they are faster than the usual ones; empty: none.",
        default="",
        help="Take tuned schedules from this database (adt tune).",
        executes=False,
        metavar="DIR",
    )
    tuned_on: Text = option(
        "Which device's records of the database, ``NAME`` or ``NAME, DRIVER``; empty: those of the device "
        "that is compiled for (``--like``), or of the only one.",
        default="",
        help="… those of this device.",
        metavar="NAME[, DRIVER]",
    )
    accuracy: Switch = option(
        "Compare half precision with float32 on this machine, and keep the figures in mod.json: ``on``, "
        "``off``, or ``auto`` (for models that do not take long).",
        "--accuracy/--no-accuracy",
        default="auto",
        cli=bool,
    )
    check: Switch = option(
        "Compare here each operator with the model's own runtime, and OpenCL kernels with the CPU: ``auto`` "
        "(kernels where there is an OpenCL device that can), ``on`` (or it is an error; of CUDA's the "
        "same schedules) or ``off``.",
        "--check/--no-check",
        default="auto",
        cli=bool,
    )


class DeviceSettings(Options, section="device"):
    """Device, and the time that it may take."""

    serial: Text = option(
        "Serial of the device; empty: ANDROID_SERIAL, or the only device.",
        "--serial",
        "-s",
        default="",
        help="The device; else ANDROID_SERIAL, else the only one.",
        offers="serial",
    )
    timeout: Real = option(
        "Seconds that each step on the device may take: a transfer, a command, a run of a program. 0: 600 "
        "for a run, 30 for a short command, and for a transfer as long as bytes travel (60 without one are "
        "its end).",
        default=0.0,
        help="Seconds that each step on the device may take; else what it needs.",
        least=0,
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

    def __contains__(self, port: int) -> bool:
        return self.first <= port <= self.last

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
    tracker_port: Number = option("First port that the tracker tries.", default=9190, least=1, most=MOST_PORT)
    tracker_port_end: Number = option(
        "Last port that the tracker tries.", default=9199, least=1, most=MOST_PORT
    )
    port: Number = option(
        "First port that a server tries; it is the same on this machine and on the device.",
        default=9090,
        least=1,
        most=MOST_PORT,
    )
    port_end: Number = option(
        "Last port that a server tries; each server needs one.", default=9189, least=1, most=MOST_PORT
    )

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
        "Seed of the inputs that are made up when none are given.",
        default=0,
        least=0,
        help="Seed of made-up inputs.",
    )
    fill_mode: Text = option(
        "What made-up inputs hold: ``random`` values of the seed, ``zeros``, ``ones``, ``arange``: 0, 1, ….",
        default="random",
        choices=FILL_MODES,
    )
    max_rel: Real = option(
        "A larger one passes too if it is at most this times the reference's largest magnitude; by default "
        "as the package's precision allows.",
        default=-1.0,
        least=0,
        help="… or relative to the largest magnitude.",
    )
    max_steps: Number = option(
        "How far off an element of an integer output may be; by default 1 of 8- and 16-bit types, which "
        "quantised models round otherwise, and 0 of wider ones. Of a float output that was quantised: "
        "quanta, by default 1.",
        default=-1,
        least=0,
        help="Steps an integer may be off (by default 1 of 8 and 16 bits, else 0), or a float quanta (1).",
    )
    max_abs: Real = option(
        "Largest absolute difference to the reference that passes; by default as the package's precision "
        "allows.",
        default=-1.0,
        least=0,
    )
    max_changed: Real = option(
        "Share of an integer or boolean output's elements that may be off by more: of nearly equal scores "
        "either may be the largest; by default 0.01.",
        default=-1.0,
        least=0,
        most=1,
        help="Share of an integer output that may be off by more (0.01).",
        metavar="SHARE",
    )
    allow_nonfinite: Flag = option(
        "An output may have NaN or infinity at the same places as the reference's. Nothing else in it is "
        "never enough.",
        "--allow-nonfinite",
        default=False,
    )
    reference: Text = option(
        "What computes the right answer: ``auto`` (the runtime of the model's format), ``onnxruntime``, "
        "``tflite``, ``torch``, ``keras``, ``host`` (this machine's CPU by TVM), an .npz file that has "
        "it, or another model: the one that was quantized, to which the outputs are only to be near.",
        default="auto",
        help="auto (the runtime of the model's format), onnxruntime, tflite, torch, keras, host (TVM on this "
        "machine's CPU), an .npz file with the right outputs, or the model that was quantized.",
    )
    min_snr: Real = option(
        "With a model as the reference: the least signal-to-noise ratio of a float output in decibels, all "
        "inputs together.",
        default=10.0,
        least=-MOST_DECIBELS,
        most=MOST_DECIBELS,
        help="With a model as --reference: least SNR that passes (10).",
        metavar="DB",
    )
    min_top1: Real = option(
        "… and the share of rows whose best class has to be the same.",
        default=0.0,
        least=0,
        most=1,
        help="… and least share of the same best classes (0).",
        metavar="SHARE",
    )


class TuneSettings(Options, section="tune"):
    """Options of `adt tune`."""

    trials: Number = option(
        "Candidates to build and measure, of all kernels together, or of each one (``per_task``).",
        "--trials",
        "-n",
        default=1000,
        least=1,
    )
    per_task: Flag = option(
        "Every kernel gets ``trials`` candidates, instead of more for those that promise more.",
        "--per-task/--in-all",
        default=False,
        help="… for each kernel, or of all together.",
    )
    early_stopping: Number = option(
        "A kernel is done when so many candidates in a row made it no faster (1 %); 0: never.",
        default=0,
        least=0,
        metavar="K",
    )
    tuner: Text = option(
        "What proposes candidates: ``evolutionary``, ``random``, or ``replay`` (those that are on record).",
        default="evolutionary",
        choices=["evolutionary", "random", "replay"],
    )
    cost_model: Text = option(
        "What foretells how fast a candidate is: ``xgb`` (learns from what is measured), ``none``, or "
        "``auto`` (xgb where it is installed).",
        default="auto",
        choices=["auto", "xgb", "none"],
    )
    number: Number = option("Calls of a kernel in one repeat, at least.", default=1, least=1)
    repeat: Number = option(
        "Repeats, of slow kernels fewer; the fastest of them counts.",
        default=10,
        least=1,
        help="Repeats; the fastest counts.",
    )
    min_repeat_ms: Number = option(
        "A repeat takes at least so long: more calls are made.", default=10, least=0
    )
    timeout: Real = option(
        "Seconds for loading and timing one candidate; after that it counts as hung.",
        default=10.0,
        least=0.001,
        most=MOST_SECONDS,
        help="Seconds after which a candidate on a device counts as hung.",
    )
    seed: Number = option("Seed of the search.", default=0, least=0)
    builders: Text = option(
        "How many processes of this machine compile candidates, or the scheduler of a Dask cluster that does "
        "(``dask://HOST:PORT``); empty: as many as this machine has cores.",
        default="",
        metavar="N|dask://HOST:PORT",
        executes=True,
    )
    wait: Real = option(
        "Seconds to wait for a device when none is there.", default=600.0, least=0, most=MOST_SECONDS
    )


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


SECTIONS: dict[str, type[Options]] = {
    "tvm": TvmSettings,
    "build": BuildSettings,
    "compile": CompileSettings,
    "device": DeviceSettings,
    "rpc": RpcSettings,
    "verify": VerifySettings,
    "tune": TuneSettings,
}
