"""Every setting of adt, as frozen dataclasses; the text under a field documents it.

A setting ``section.key`` can be given as a flag, as ``ADT_SECTION_KEY`` in the
environment, in ``adt.toml`` or in ``pyproject.toml`` under ``[tool.adt]``;
:mod:`adt.config.load` decides between them. Defaults live in ``defaults.toml``.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
from dataclasses import dataclass
from typing import Any

RUN_SECONDS = 600.0
"""That a program on a device may run where nobody said."""


@dataclass(frozen=True)
class TvmSettings:
    """Where the TVM source tree comes from."""

    source: str
    """A TVM source tree (``--tvm-source``, or TVM_HOME); empty: obtain one."""
    provider: str
    """``auto`` (cache, then git, then the registry), ``git`` or ``registry``."""


@dataclass(frozen=True)
class BuildSettings:
    """How a TargetBundle is built."""

    platform: str
    """What to build for: ``android-arm64-v8a``, ``linux-aarch64``, ``host``, …, or a preset of one such as
    ``linux-aarch64-cpu`` (`adt presets` lists them)."""
    ndk: str
    """Root of the Android NDK; empty: look where Android tools look."""
    api_level: int
    """Lowest Android API level that the bundle runs on, at least 21."""
    alignment: int
    """Bytes; alignment of every tensor the runtime allocates. 0: the platform's own (32 on devices)."""
    opencl: bool
    """Build the OpenCL runtime in (the device's libOpenCL is opened at run time)."""
    opencl_sdk: str
    """Link libOpenCL from the SDK in this directory; empty: the device's is opened at run time."""
    clml: str
    """Build the CLML graph runtime in, with the SDK in this directory; empty: only for a ``-clml``
    preset, with the SDK that ADRENO_OPENCL or CLML_SDK names."""
    nnapi: bool
    """Build the runtime for Android's NNAPI in, from API level 29; libneuralnetworks.so is linked then."""
    rpc: bool
    """Build tvm_rpc."""
    build_type: str
    """CMake's build type; Debug and RelWithDebInfo put symbol files beside the stripped ones."""
    jobs: int
    """Parallel compiler processes; 0: as Ninja decides."""


@dataclass(frozen=True)
class CompileSettings:
    """How a model is compiled."""

    target: str
    """What computes: ``cpu``, ``opencl`` (buffers), ``adreno`` (textures), ``adreno-buffer``, ``mali``,
    ``host`` (this machine), or TVM's own string, tag or dictionary for one of them."""
    cpu: str
    """The processor: a core (``cortex-a76``), a system on chip (``snapdragon-865``), ``native``, and
    features: ``cortex-a76,+dotprod,+fp16``; empty: any of the platform."""
    shapes: tuple[str, ...]
    """Fixed input shapes, each ``name:1,3,224,224``, or extents of symbols, ``batch=1,past=16``."""
    opt_level: int
    """TVM's optimisation level, 0 to 3."""
    precision: str
    """``float32``; ``float16`` (computes in half precision); or ``float16_acc32`` (does, but convolutions and
    matrix products add up in float32)."""
    keep_float32: tuple[str, ...]
    """Operators that stay float32 in half precision besides the delicate ones, as Relax calls them
    (``nn.softmax``), or variables of the imported module (``lv12``); ``-NAME`` frees a delicate one."""
    accuracy: str
    """Compare half precision with float32 on this machine, and keep the figures in mod.json: ``on``,
    ``off``, or ``auto`` (for models that do not take long)."""
    offload: str
    """Hand operators to a vendor's library: ``clml`` (Adreno GPUs), ``nnapi`` (Android), or ``none``."""
    texture_choice: str
    """For ``adreno``: ``auto`` (textures where they are the faster choice, by records of both forms or by a
    model) or ``always`` (wherever they can be)."""
    check: str
    """Run OpenCL kernels on this machine at once and compare them with the CPU: ``auto`` (where it has an
    OpenCL device that can), ``on`` (or it is an error) or ``off``."""
    db: str
    """A tuning database (`adt tune`): kernels that it has records of, for this target, get their schedules
    from it; empty: none."""
    tuned_on: str
    """Which device's records of the database, ``NAME`` or ``NAME, DRIVER``; empty: those of the device that
    is compiled for (``--like``), or of the only one."""


@dataclass(frozen=True)
class DeviceSettings:
    """Which device, and how long we wait for it."""

    serial: str
    """Serial of the device; empty: ANDROID_SERIAL, or the only device."""
    timeout: float
    """Seconds that each step on the device may take: a transfer, a command, a run of a program. 0: 600 for a
    run, 30 for a short command, and for a transfer as long as bytes travel (60 without one are its end)."""

    @property
    def limit(self) -> float | None:
        """Seconds that each step may take, where the user said."""
        return self.timeout or None

    @property
    def run_seconds(self) -> float:
        """Seconds that a run of a program may take."""
        return self.timeout or RUN_SECONDS


@dataclass(frozen=True)
class RpcSettings:
    """The RPC tracker on this machine and the servers on devices."""

    key: str
    """What clients ask the tracker for; empty: ``android``, or the device's platform."""
    tracker_port: int
    """First port that the tracker tries."""
    tracker_port_end: int
    """Last port that the tracker tries."""
    port: int
    """First port that a server tries; it is the same on this machine and on the device."""
    port_end: int
    """Last port that a server tries; each server needs one."""


@dataclass(frozen=True)
class VerifySettings:
    """What counts as right."""

    seed: int
    """Seed of the inputs that are made up when none are given."""
    max_abs: float
    """Largest absolute difference to the reference that passes; negative: as the package's precision
    allows."""
    max_rel: float
    """A larger one passes too if it is at most this times the reference's largest magnitude; negative: as
    the package's precision allows."""
    max_steps: int
    """How far off an element of an integer output may be; negative: 1 of 8- and 16-bit types, which quantised
    models round otherwise, and 0 of wider ones. Of a float output that was quantised: quanta; negative: 1."""
    max_changed: float
    """Share of an integer or boolean output's elements that may be off by more: of nearly equal scores either
    may be the largest; negative: 0.01."""
    allow_nonfinite: bool
    """An output may have NaN or infinity at the same places as the reference's. Nothing else in it is never
    enough."""
    reference: str
    """What computes the right answer: ``auto`` (the runtime of the model's format), ``onnxruntime``,
    ``tflite``, ``torch``, ``keras``, ``host`` (this machine's CPU by TVM), or an .npz file that has it."""


@dataclass(frozen=True)
class TuneSettings:
    """How a model is tuned (`adt tune`)."""

    trials: int
    """Candidates to build and measure, of all kernels together, or of each one (``per_task``)."""
    per_task: bool
    """Every kernel gets ``trials`` candidates, instead of more for those that promise more."""
    early_stopping: int
    """A kernel is done when so many candidates in a row made it no faster (1 %); 0: never."""
    tuner: str
    """What proposes candidates: ``evolutionary``, ``random``, or ``replay`` (those that are on record)."""
    cost_model: str
    """What foretells how fast a candidate is: ``xgb`` (learns from what is measured), ``none``, or ``auto``
    (xgb where it is installed)."""
    number: int
    """Calls of a kernel in one repeat, at least."""
    repeat: int
    """Repeats; the median of them counts."""
    min_repeat_ms: int
    """A repeat takes at least so long: more calls are made."""
    timeout: float
    """Seconds for loading and timing one candidate; after that it counts as hung."""
    seed: int
    """Seed of the search."""
    builders: str
    """How many processes of this machine compile candidates, or the scheduler of a Dask cluster that does
    (``dask://HOST:PORT``); empty: as many as this machine has cores."""
    wait: float
    """Seconds to wait for a device when none is there."""


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


SECTIONS: dict[str, type[Any]] = {
    "tvm": TvmSettings,
    "build": BuildSettings,
    "compile": CompileSettings,
    "device": DeviceSettings,
    "rpc": RpcSettings,
    "verify": VerifySettings,
    "tune": TuneSettings,
}


def field_docs(section: type[Any]) -> dict[str, str]:
    """The text under each field of a settings class, by field name (for docs and help)."""
    body = ast.parse(inspect.getsource(section)).body[0]
    assert isinstance(body, ast.ClassDef)
    docs: dict[str, str] = {}
    previous = ""
    for statement in body.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            previous = statement.target.id
        elif previous and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            docs[previous] = inspect.cleandoc(str(statement.value.value))
            previous = ""
    missing = {f.name for f in dataclasses.fields(section)} - docs.keys()
    assert not missing, f"settings without documentation: {missing}"
    return docs
