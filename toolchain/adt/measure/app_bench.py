"""Measurement that an application made of a model it carries (schema ``adt.app-bench``), as a benchmark.

libadt_activity.so, in the app of ``adt apk`` and in the build type ``benchmark`` of a generated one, writes
what it sees on the device; what that amounts to is worked out here, as for ``adt bench``.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from adt.errors import InputError, RunError
from adt.host import manifest
from adt.limits import read_json
from adt.measure import conditions
from adt.measure.bench import flag_measurement, speed_of
from adt.measure.conditions import Conditions
from adt.measure.record import NO_SPEED, BenchRecord, Machine, Method, Subject, is_moment

SCHEMA, SCHEMA_VERSION = "adt.app-bench", 1
ERROR_SCHEMA = "adt.app-bench-error"

WRITERS = ("native-activity", "benchmark-activity")
"""The latter: apps that `adt generate` made when they had an activity in Kotlin."""
EMULATOR = re.compile(r"sdk_g?phone|Android SDK built for|\b(ranchu|goldfish)\b", re.IGNORECASE)
"""Names that Android's emulator gives its model and its system on chip."""
UNASKED = Conditions((), None, None, None, "", "", "")
"""An application cannot see governors, power and heat."""

_REMEDY = "Name a file that an adt application wrote: its <model>.json, pulled from the device."


@dataclass(frozen=True)
class AppMachine:
    """The device, as Android's properties have it; empty where they do not."""

    model: str
    soc: str
    android_release: str
    api_level: int
    abi: str


@dataclass(frozen=True)
class AppDevice:
    kind: str
    """``cpu`` or ``opencl``."""
    name: str
    driver: str
    """Empty for the CPU."""
    type: str
    """``cpu``, ``gpu`` or ``accelerator``; empty: OpenCL's device does not say."""


@dataclass(frozen=True)
class AppMemory:
    """Memory of the application's process, resident in KiB; None: not known."""

    before_load_kb: int | None
    peak_kb: int | None
    workspace_bytes: int | None = None
    """Bytes of a device's memory that libraries on a GPU take."""


@dataclass(frozen=True)
class AppSample:
    """Readings between two runs, as rtvm's."""

    at_ms: float
    temperatures: dict[str, float]
    frequencies_mhz: dict[str, float]
    power: dict[str, int]


@dataclass(frozen=True)
class AppBench:
    when: str
    """Time of its end, UTC, ISO 8601."""
    app: str
    writer: str
    machine: AppMachine
    package: str
    package_digest: str
    """Digest (sha256) of mod.json."""
    entry: str
    bundle_digest: str
    """Digest (sha256) of bundle.json; empty: not known."""
    adt_version: str
    runner_version: str
    device: AppDevice
    threads: int | None
    """None: the runtime's choice."""
    affinity: str
    """Empty: the system's choice."""
    end_to_end: bool
    seed: int
    program_cache: str
    """``hit``, ``written``, ``rebuilt``, ``unsupported`` or ``off``."""
    warmup_runs: int
    """As many as there were."""
    warmup_ms: float
    """They went on for at least so long."""
    load_ms: float
    first_run_ms: float
    run_ms: list[float]
    start_ms: list[float]
    """Start of each run, since the process or its activity began."""
    memory: AppMemory
    samples: list[AppSample]
    schema: str
    schema_version: int


def read(path: Path) -> BenchRecord:
    """Read the benchmark, or an application's reason for having none, from the file *path*."""
    raw = read_object(path, _REMEDY)
    if not is_from_app(raw):
        raise InputError(f"{path} holds no benchmark of an application", remedy=_REMEDY)
    return record_of(raw, path)


def read_object(path: Path, remedy: str) -> dict[str, Any]:
    """Read the JSON object in the file *path*; an empty one for any other value."""
    try:
        raw = read_json(path)
    except FileNotFoundError as error:
        raise InputError(f"there is no file {path}", remedy=remedy) from error
    except (ValueError, OSError) as error:
        raise InputError(f"{path} cannot be read: {error}", remedy=remedy) from error
    return raw if isinstance(raw, dict) else {}


def is_from_app(raw: Mapping[str, Any]) -> bool:
    """Return True if *raw* is what an application leaves: a measurement, or why there is none."""
    return raw.get("schema") in (SCHEMA, ERROR_SCHEMA)


def record_of(raw: Mapping[str, Any], path: Path) -> BenchRecord:
    """Make the record of the document *raw* of the file *path*: the same one, with the same id, each time."""
    if raw["schema"] == ERROR_SCHEMA:
        whose = f"{raw.get('app')}: {raw['model']}" if raw.get("model") else f"{raw.get('app') or 'the app'}"
        raise RunError(
            f"{whose} could not be measured: {raw.get('what')}",
            remedy=str(raw.get("remedy") or "Look at the device's log: adt adb -- logcat -d."),
        )
    if raw.get("schema_version") != SCHEMA_VERSION:
        raise InputError(
            f"{path} has schema version {raw.get('schema_version')}; this adt reads {SCHEMA_VERSION}",
            remedy="Make the application again with this adt, and measure again.",
        )
    document = manifest.structure(raw, AppBench, path, error=InputError, remedy=_REMEDY)
    if problem := _problem(document):
        raise InputError(f"{path} cannot be: {problem}", remedy=_REMEDY)
    text = json.dumps(raw, sort_keys=True, ensure_ascii=False)
    return _record(document, hashlib.sha256(text.encode()).hexdigest()[:16])


def _problem(document: AppBench) -> str:
    """Return what no application would write; empty when all is well."""
    runs, starts, kind = document.run_ms, document.start_ms, document.device.kind
    times = [document.warmup_ms, document.load_ms, document.first_run_ms, *runs, *starts]
    package, bundle = document.package_digest, document.bundle_digest
    rules = (
        (document.writer in WRITERS, f"its writer is {document.writer!r}"),
        (kind in ("cpu", "opencl"), f"its device is {kind!r}"),
        (is_moment(document.when), f"its time is {document.when!r}"),
        (0 < len(runs) == len(starts), f"it has {len(runs)} runs and {len(starts)} starts"),
        (
            all(math.isfinite(time) and time >= 0 for time in times) and sum(runs) > 0,
            "it has a time that is none",
        ),
        (re.fullmatch("[0-9a-f]{64}", package), f"it has the digest {package!r}"),
        (re.fullmatch("([0-9a-f]{64})?", bundle), f"it has the digest {bundle!r}"),
    )
    return next((problem for holds, problem in rules if not holds), "")


def _record(document: AppBench, identity: str) -> BenchRecord:
    machine = _machine(document)
    times, starts = np.array(document.run_ms), np.array(document.start_ms)
    samples = [vars(sample) for sample in document.samples]
    report = {
        "load_ms": document.load_ms,
        "first_run_ms": document.first_run_ms,
        "memory": vars(document.memory),
        "program_cache": {"state": document.program_cache},
        "samples": samples,
    }
    energy = conditions.energy(samples, starts, times, None)
    speed = None if machine.emulated else speed_of(times, starts, report, None, energy)
    return BenchRecord(
        id=identity,
        when=document.when,
        label="",
        machine=machine,
        subject=_subject(document),
        method=_method(document),
        conditions=UNASKED if speed else None,
        correct=None,
        speed=speed,
        no_speed="" if speed else f"{NO_SPEED}, so the application's times are left out",
        flags=tuple(flag_measurement(machine, UNASKED, speed, samples)) if speed else (),
    )


def _machine(document: AppBench) -> Machine:
    device, soc = document.device, document.machine.soc
    model = document.machine.model or "an Android device"
    opencl = (device.name or "OpenCL", device.type, device.driver)
    computes, kind, driver = opencl if device.kind == "opencl" else ("cpu", "cpu", "")
    emulated = bool(EMULATOR.search(f"{model} {soc}"))
    return Machine(
        "device", model, model, soc, computes, computes_type=kind, driver=driver, emulated=emulated
    )


def _subject(document: AppBench) -> Subject:
    return Subject(
        package=document.package,
        package_digest=document.package_digest,
        source_sha256="",
        target=document.device.kind,
        platform=f"android-{document.machine.abi}",
        precision="",
        offload="",
        entry=document.entry,
        tvm="",
        bundle="",
        bundle_digest=document.bundle_digest,
        bundle_tvm="",
        adt=document.adt_version,
    )


def _method(document: AppBench) -> Method:
    return Method(
        protocol=f"in an app ({document.writer})",
        warmup_runs=document.warmup_runs,
        warmup_ms=document.warmup_ms,
        runs=len(document.run_ms),
        seconds=sum(document.run_ms) / 1000,
        headline="p50",
        end_to_end=document.end_to_end,
        threads=document.threads,
        affinity=document.affinity,
        seed=document.seed,
    )
