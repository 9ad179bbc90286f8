"""One benchmark as it is kept and printed: what was measured, on what, by which protocol, and the result."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import datetime

from adt.measure.conditions import Conditions, Energy, Sensors
from adt.measure.statistics import Drift, TimeSummary

SCHEMA = "adt.bench-record"
SCHEMA_VERSION = 1

QUANTILES = tuple(range(0, 101, 5))
"""Percent: which quantiles of the times a record keeps."""

NO_SPEED = "the device is emulated: how long a run takes there says nothing about the speed of any device"
EMULATED = f"{NO_SPEED}, so nothing was timed"
WRONG = "the outputs are not the reference's: fast and wrong is no result, so nothing was timed"


@dataclass(frozen=True)
class Machine:
    kind: str
    """``device`` (behind ADB) or ``host`` (this machine)."""
    name: str
    model: str
    """The device's model, or the name of this machine's processor."""
    soc: str
    """System on chip; empty where it is not known."""
    computes: str
    """The OpenCL device that ran the kernels, or ``cpu``."""
    computes_type: str
    """``cpu``, ``gpu`` or ``accelerator``; an OpenCL device of type ``cpu`` is no GPU."""
    driver: str
    """Version of the OpenCL driver; empty for the CPU."""
    emulated: bool

    @property
    def key(self) -> str:
        """Key of what measurements are compared on: model, system on chip, OpenCL device and driver."""
        return " · ".join(part for part in (self.model, self.soc, self.computes, self.driver) if part)

    @property
    def opencl_on_cpu(self) -> bool:
        """True if its kernels are OpenCL, and a CPU runs them."""
        return self.computes != "cpu" and self.computes_type == "cpu"


@dataclass(frozen=True)
class Subject:
    package: str
    package_digest: str
    """Digest (sha256) of its mod.json, which has those of its other files."""
    source_sha256: str
    """Digest of the model that it was compiled from."""
    target: str
    platform: str
    precision: str
    offload: str
    entry: str
    tvm: str
    bundle: str
    bundle_digest: str
    """Digest (sha256) of its bundle.json, which has those of its other files."""
    bundle_tvm: str
    adt: str
    tuned: int = 0
    """Kernels with the schedule of a record."""


@dataclass(frozen=True)
class Method:
    protocol: str
    """Name of the protocol, and what was changed of it."""
    warmup_runs: int
    warmup_ms: float
    runs: int
    seconds: float
    headline: str
    """``p50`` or ``p90``: the quantile that stands for the result."""
    end_to_end: bool
    """A run is copying the inputs in, running, and copying the outputs out."""
    threads: int | None
    affinity: str
    seed: int
    interleaved: bool = False
    fill_mode: str = "random"
    """Content of made-up inputs; the seed is of random ones."""

    @property
    def key(self) -> str:
        """Key that tells apart measurements that must not be compared."""
        parts = [self.protocol]
        parts += ["end to end"] if self.end_to_end else []
        parts += [f"{self.threads} threads"] if self.threads else []
        parts += [f"on CPUs {self.affinity}"] if self.affinity else []
        parts += ["interleaved"] if self.interleaved else []
        parts += [f"inputs {self.fill_mode}"] if self.fill_mode != "random" else []
        return ", ".join(parts)


@dataclass(frozen=True)
class Start:
    """From nothing to the first outputs, in a process of its own."""

    load_ms: float
    """Opening the package: library, parameters and, with a program cache, compiled OpenCL programs."""
    first_run_ms: float
    """The first inference, in which a driver compiles what was not compiled before."""


@dataclass(frozen=True)
class Speed:
    """Durations on a machine whose times count."""

    times: TimeSummary
    quantiles_ms: tuple[float, ...]
    """Quantiles of the runs' times at 0, 5, … 100 %."""
    time_line: tuple[tuple[float, float], ...]
    """Seconds since the first timed run, and the median (ms) of the runs about then."""
    drift: Drift | None
    """None: there were too few runs to tell."""
    start: Start
    """Start of the process that was timed; what a program cache had was used."""
    cold_start: Start | None
    """With nothing from a program cache; None: the package has no OpenCL, or it was not asked for."""
    program_cache: str
    """``hit``, ``written``, ``rebuilt``, ``unsupported`` or ``off``, for :attr:`start`."""
    before_load_kb: int | None
    """Resident memory of the process before it loaded the package, KiB …"""
    peak_kb: int | None
    """Most KiB that it had at any time."""
    energy: Energy
    sensors: Sensors
    workspace_bytes: int | None = None
    """Bytes of the GPU's memory in which libraries compute; None: none have any."""


@dataclass(frozen=True)
class Flag:
    """Something that the figures must be read with."""

    name: str
    """``opencl-on-cpu``, ``host``, ``throttled``, ``drift``, ``noisy``, ``governor``, ``powered``, ``screen``
    or ``warm``."""
    text: str


@dataclass(frozen=True)
class BenchRecord:
    id: str
    """Hexadecimal, its own."""
    when: str
    """Time of its end, UTC, ISO 8601."""
    label: str
    machine: Machine
    subject: Subject
    method: Method
    conditions: Conditions | None
    """Just before the runs; None when nothing was timed."""
    correct: bool | None
    """The outputs are the reference's; None: they were not compared."""
    speed: Speed | None
    """None: nothing was timed."""
    no_speed: str
    """Reason why there is no speed; empty with one."""
    flags: tuple[Flag, ...]
    schema: str = SCHEMA
    schema_version: int = SCHEMA_VERSION

    @property
    def headline_ms(self) -> float | None:
        """The quantile that stands for the result, milliseconds; None without a speed."""
        if self.speed is None:
            return None
        return self.speed.times.p90_ms if self.method.headline == "p90" else self.speed.times.p50_ms


def is_moment(text: str) -> bool:
    """Return True if *text* is a time in ISO 8601 with its zone, as :attr:`BenchRecord.when`."""
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


@dataclass(frozen=True)
class Protocol:
    """Untimed runs, then timed ones; each goes on until both its number and its time are reached."""

    name: str
    warmup_runs: int
    warmup_ms: float
    runs: int
    seconds: float
    rounds: int = 8
    """Rounds of an interleaved comparison, each A B B A."""
    headline: str = "p50"
    """The quantile that stands for the result: ``p50`` or ``p90``."""

    @property
    def key(self) -> str:
        """Key that tells apart measurements that must not be compared: the name, and what was changed."""
        base, others = PROTOCOLS[self.name], ("name", "rounds", "headline")
        values = {name: value for name, value in vars(self).items() if name not in others}
        changed = [f"{name}={each:g}" for name, each in values.items() if each != getattr(base, name)]
        return f"{self.name} ({', '.join(changed)})" if changed else self.name

    @property
    def text(self) -> str:
        return (
            f"{self.name}: runs ≥ {self.warmup_runs} and {self.warmup_ms:g} ms to warm up, "
            f"then runs ≥ {self.runs} and {self.seconds:g} s"
        )


PROTOCOLS = {
    protocol.name: protocol
    for protocol in (
        Protocol("default", warmup_runs=3, warmup_ms=500, runs=50, seconds=3),
        Protocol("quick", warmup_runs=1, warmup_ms=50, runs=10, seconds=0.2, rounds=6),
        Protocol("mlperf", warmup_runs=3, warmup_ms=500, runs=1024, seconds=60, headline="p90"),
    )
}
"""``mlperf`` is as long as MLPerf's single-stream scenario and reports its p90; it is no MLPerf result."""


def protocol_named(name: str = "default", **asked: float | None) -> Protocol:
    """Return the protocol *name*, with the values *asked* in place of its own; None leaves one as it is."""
    changes = {key: value for key, value in asked.items() if value is not None}
    return dataclasses.replace(PROTOCOLS[name], **changes)  # type: ignore[arg-type]  # named as the fields
