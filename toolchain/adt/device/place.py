"""Place where a package runs (a device behind ADB, or this machine), and the runner program there: ``rtvm``.

What the program is asked, what it answers, and how it fails, is the same everywhere.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import signal
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from adt.bundle.bundle import TargetBundle
from adt.device.deploy.store import Deployment
from adt.device.deploy.workspace import awake, workspace
from adt.device.device import Device
from adt.device.opencl import no_opencl
from adt.device.scripts import script
from adt.errors import AdtError, InputError, MismatchError, OutOfMemory, PackageError, RunError
from adt.host.cache import cache_dir
from adt.host.disk import scratch_directory
from adt.host.npz import DamagedNpz, npz_bytes, read_npz
from adt.host.process import last_lines, run
from adt.options.sections import RUN_SECONDS
from adt.package.host_run.run import HostRun, run_packages
from adt.package.inputs.random import random_inputs
from adt.package.manifest import taken_inputs
from adt.package.package import ModelPackage

if TYPE_CHECKING:
    import numpy as np

    from adt.package.manifest import Given


log = logging.getLogger("adt.run")

# Exit codes of rtvm
OK = 0
USAGE, DAMAGED, BAD_INPUT, RUN_FAILED, DOES_NOT_FIT, NO_DEVICE, DEVICE_LOST, OUT_OF_MEMORY = range(2, 10)
NOT_EXECUTABLE, NOT_FOUND = 126, 127

INPUTS, OUTPUTS, TIMES, CALLS = "in.npz", "out.npz", "times.npz", "calls.npz"
"""Files of a run, in its working directory."""


@dataclass(frozen=True)
class RtvmOptions:
    """Options of ``rtvm``; the defaults are its own."""

    entry: str = "main"
    device: str = "cpu"
    """``cpu``, ``opencl`` or ``cuda``."""
    seed: int = 0
    """Seed of the inputs that it makes up when none are given …"""
    fill_mode: str = "random"
    warmup_runs: int = 0
    """Runs before the first timed one."""
    warmup_ms: float = 0.0
    """Milliseconds that the warm-up takes at least."""
    run_count: int = 1
    """Timed runs, at least."""
    min_seconds: float = 0.0
    """Seconds that the timed runs take at least."""
    max_seconds: float | None = None
    """Seconds after which no further run begins."""
    threads: int | None = None
    """CPU threads; None for what TVM takes."""
    affinity: str = ""
    """``big``, ``little``, ``all`` or CPU numbers (``4-7``, ``0,2``); empty for TVM's choice."""
    end_to_end: bool = False
    """A timed run copies the inputs in and the outputs out, too."""
    zero_copy: bool = False
    """Inputs of the CPU are used where they lie."""
    profile: int = 0
    """Further runs that time each call; 0 for none."""
    sample_ms: int = 0
    """Temperatures, clocks and power between the timed runs, at most so often; 0 for never."""
    dump_calls: tuple[int, int] | None = None
    """In one further run, keep the arguments of the calls from here up to here (exclusive)."""
    keep_times: bool = False
    """Bring every run's start and time back as arrays, for long measurements."""
    program_cache: bool = True
    """Keep compiled OpenCL programs on the device for the next load."""
    pre_compiled: str = ""
    """A file for them instead, on the machine that runs the model."""

    def words(self, *, given: bool, programs: str) -> list[str]:
        """Return rtvm's arguments after ``--model DIR``; *given*: with inputs; *programs*: with OpenCL's."""
        if self.device not in ("cpu", "opencl", "cuda") or self.run_count < 1 or self.warmup_runs < 0:
            raise InputError(
                f"cannot run {self.run_count} times after {self.warmup_runs} on {self.device!r}",
                remedy="Give a run count of at least 1, at least 0 warm-up runs, and cpu, opencl or cuda.",
            )
        words = ["--device", self.device, "--entry", self.entry, "--json", "--output", OUTPUTS]
        words += ["--input", INPUTS] if given else ["--seed", str(self.seed)]
        words += ["--fill-mode", self.fill_mode] if self.fill_mode != "random" and not given else []
        words += ["--dry-run", str(self.warmup_runs), "--run-count", str(self.run_count)]
        names = ("warmup_ms", "min_seconds", "max_seconds", "threads", "affinity", "profile", "sample_ms")
        for name in (*names, "end_to_end", "zero_copy"):
            if value := getattr(self, name):
                words.append(f"--{name.replace('_', '-')}")
                words += [] if value is True else [f"{value:g}" if isinstance(value, float) else str(value)]
        words += ["--times", TIMES] if self.keep_times else []
        if self.dump_calls is not None:
            first, end = self.dump_calls
            words += ["--dump-calls", CALLS, "--calls", f"{first}:{end}"]
        if self.pre_compiled:
            return [*words, "--pre-compiled", self.pre_compiled]
        return [*words, "--program-cache", programs if self.program_cache else "off"]

    def worthwhile(self, place: str, *, emulated: bool | None) -> RtvmOptions:
        """Return what of these is worth its time on *place*: one run where no time means anything."""
        if not emulated:
            return self
        profile = min(self.profile, 1)
        once = replace(self, warmup_runs=0, warmup_ms=0.0, run_count=1, min_seconds=0.0, profile=profile)
        if once != self:
            log.info("%s is emulated, where nothing is measured: the model runs once", place)
        return once

    @property
    def own_flags(self) -> str:
        """Flags that only rtvm knows: none for one plain run, which every runtime of TVM can do."""
        changed = [name for name, value in vars(RtvmOptions()).items() if getattr(self, name) != value]
        anywhere = ("entry", "device", "seed", "fill_mode")
        return " and ".join(f"--{name.replace('_', '-')}" for name in changed if name not in anywhere)

    @property
    def files(self) -> tuple[str, ...]:
        files = {OUTPUTS: True, TIMES: self.keep_times, CALLS: self.dump_calls is not None}
        return tuple(name for name, kept in files.items() if kept)


@dataclass(frozen=True)
class RtvmRun:
    outputs: dict[str, np.ndarray]
    """Every output of the entry, by name."""
    report: dict[str, Any]
    """The JSON object that rtvm printed: what ran, on what, and its times (docs/json.md)."""
    emulated: bool
    """It ran on a virtual device: the report's times are an emulator's, and no device's speed."""
    times: dict[str, np.ndarray] = field(default_factory=dict)
    """With ``keep_times``: ``run_ms`` and ``start_ms``, float64, one for each timed run."""
    calls: dict[str, np.ndarray] = field(default_factory=dict)
    """With ``dump_calls``: arguments of calls, ``<index>|<name>|<argument>``."""


@dataclass(frozen=True)
class ProgramExit:
    where: str
    """The serial of the device, or what else it ran on."""
    exit_code: int
    """Its own; 128 + N when signal N ended it."""
    out: str
    err: str
    log: str
    """Place where more may be found when it crashed, as the rest of a sentence."""

    def tail(self, lines: int = 30) -> str:
        return last_lines(self.out, self.err, lines)


def read_report(ended: ProgramExit) -> dict[str, Any]:
    """Read the report of a program, which failed if it printed none."""
    if ended.err.strip():
        log.debug("rtvm: %s", ended.err.strip())
    if ended.exit_code != OK:
        raise explain(ended)
    with contextlib.suppress(ValueError):
        report = json.loads(ended.out)
        if isinstance(report, dict):
            return report
    raise RunError(
        "rtvm did not print its report",
        remedy="Rebuild the bundle (adt build-target): its rtvm does not fit this adt.",
        details=ended.tail(),
    )


def read_run(options: RtvmOptions, report: dict[str, Any], files: Path, *, emulated: bool) -> RtvmRun:
    """Read a run with the files that it left in the directory *files*."""
    arrays = {name: load_npz(files / name) for name in options.files}
    return RtvmRun(arrays[OUTPUTS], report, emulated, arrays.get(TIMES, {}), arrays.get(CALLS, {}))


def load_npz(path: Path) -> dict[str, np.ndarray]:
    try:
        return read_npz(path)
    except (DamagedNpz, FileNotFoundError) as error:
        raise RunError(
            f"the outputs that came back from the device cannot be read: {error}",
            remedy="Run again; if it stays so, rebuild the bundle: its rtvm does not fit this adt.",
        ) from error


_MEANINGS = {
    "SIGKILL": "; SIGKILL mostly means that memory ran out.",
    "SIGILL": "; the package may use CPU features that this device lacks: compile it without --like, or "
    "like this device.",
}
"""Usual meaning of some signals."""


def explain(done: ProgramExit) -> AdtError:
    """Return the error for a failed run: rtvm's own message and remedy, of the class its exit code means."""
    output, code, where = done.err or done.out, done.exit_code, done.where
    if code > 128 and (name := signal_name(code - 128)):
        return RunError(
            f"rtvm was ended by {name} on {where}",
            remedy=f"Look at {done.log}" + _MEANINGS.get(name, "."),
            details=done.tail(),
        )
    if code in (NOT_EXECUTABLE, NOT_FOUND) or re.search("CANNOT LINK EXECUTABLE|error while loading", output):
        return RunError(
            f"rtvm does not start on {where}",
            remedy="Deploy again; if it stays so, the bundle does not fit the device: build it for the "
            "device's platform (adt build-target --for PLATFORM).",
            details=done.tail(),
        )
    what, more, remedy = _last_words(output)
    rebuild = "Rebuild the bundle (adt build-target): its rtvm does not know what this adt asks for."
    kind, otherwise = {
        USAGE: (RunError, rebuild),
        DAMAGED: (PackageError, "Deploy the package again; if that does not help, compile it again."),
        DOES_NOT_FIT: (MismatchError, "Compile the model again for the bundle that is on the device."),
        NO_DEVICE: (MismatchError, "Compile the model for cpu."),
        OUT_OF_MEMORY: (OutOfMemory, "Use a smaller model, or compile it for smaller inputs."),
        BAD_INPUT: (InputError, "adt inspect shows the inputs that the model takes."),
    }.get(code, (RunError, f"Look at {done.log}."))
    message, details = what or f"rtvm failed on {where} (exit code {code})", more if what else done.tail()
    error: AdtError = kind(message, remedy=remedy or otherwise, details=details)
    return error


def _last_words(output: str) -> tuple[str, str, str]:
    """Return rtvm's message, the text below it (perhaps a driver's log) and its remedy, or empty texts."""
    own = r"^rtvm: error: (?P<text>.*?)(?:\nremedy: (?P<remedy>.*?))?\s*\Z"
    around = r"^error: (?P<text>.*)(?:\nremedy: (?P<remedy>.*))?"  # of the script that starts it
    match = re.search(own, output, re.MULTILINE | re.DOTALL) or re.search(around, output, re.MULTILINE)
    if match is None:
        return "", "", ""
    what, _, more = match["text"].partition("\n")
    return what.strip(), more.strip()[-4000:], (match["remedy"] or "").strip()


def signal_name(number: int) -> str:
    """Return the name of the signal *number*; empty if there is none."""
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return ""


Inputs: TypeAlias = "Mapping[str, np.ndarray] | None"
"""Every input of an entry by name; None: rtvm makes them up."""
Seconds = float | None
THIS_MACHINE = "this machine"


@dataclass(frozen=True)
class DevicePlace:
    """A package that is deployed on a device."""

    device: Device
    deployment: Deployment

    @property
    def name(self) -> str:
        return self.device.serial

    @property
    def label(self) -> str:
        return self.device.facts.label

    @property
    def emulated(self) -> bool:
        """True if its processor is emulated: its results count, its times are no device's speed."""
        return self.device.facts.emulated

    def awake(self) -> AbstractContextManager[None]:
        """Keep it from sleeping for as long as the block runs: see :mod:`adt.device.deploy.workspace`."""
        return awake(self.device)

    def run(self, options: RtvmOptions, inputs: Inputs = None, *, timeout: Seconds = RUN_SECONDS) -> RtvmRun:
        """Run the package in a working directory of its own, which is gone afterwards.

        *inputs* has every input by name; None lets rtvm make them up from the options' seed.
        """
        device, deployment = self.device, self.deployment
        data = npz_bytes(inputs) if inputs is not None else None
        home = deployment.directory
        argv = [f"{home}/bin/rtvm", "--model", f"{home}/model"]
        argv += options.words(given=data is not None, programs=f"{deployment.base}/programs")
        with workspace(device, f"{deployment.base}/runs", uses=deployment.digest) as directory:
            if data is not None:
                device.push(data, f"{directory}/{INPUTS}")
            words = (directory, deployment.manifest, f"{home}/lib", *argv)
            doing = f"running {deployment.name} on {device.serial}" + " (emulated)" * self.emulated
            done = device.script(script("run"), *words, timeout=timeout, check=False, doing=doing)
            crashes = f"the device's crash log: adt adb -s {device.serial} -- logcat -d -b crash"
            ended = ProgramExit(device.serial, done.exit_code, done.out, done.err, crashes)
            if ended.exit_code == NO_DEVICE and options.device == "opencl":
                raise no_opencl(device.serial, virtual=device.facts.virtual)
            report = read_report(ended)
            with scratch_directory("run") as local:
                for name in options.files:
                    device.pull(f"{directory}/{name}", local / name)
                return read_run(options, report, local, emulated=self.emulated)


@dataclass(frozen=True)
class HostPlace:
    """This machine, as a place like :class:`DevicePlace`; all runs natively here."""

    bundle: TargetBundle | None
    """The one that was built for it; None: the runtime of TVM's wheel, which gives outputs and no times."""
    package: ModelPackage
    emulated = False

    @property
    def name(self) -> str:
        return THIS_MACHINE if self.bundle else f"{THIS_MACHINE}, with the runtime of TVM's wheel"

    @property
    def label(self) -> str:
        return f"{self.name} ({os.uname().machine}, {os.cpu_count()} processors)"

    def awake(self) -> AbstractContextManager[None]:
        """Do nothing: keeping the machine awake is its owner's affair."""
        return nullcontext()

    def run(self, options: RtvmOptions, inputs: Inputs = None, *, timeout: Seconds = RUN_SECONDS) -> RtvmRun:
        if self.bundle is None:
            return self._run_plainly(options, inputs, timeout or RUN_SECONDS)
        program = self.bundle.path.absolute() / "bin" / "rtvm"
        with scratch_directory("run") as directory:
            if inputs is not None:
                (directory / INPUTS).write_bytes(npz_bytes(inputs))
            words = options.words(given=inputs is not None, programs=str(cache_dir() / "programs"))
            argv: list[str | Path] = [program, "--model", self.package.path.absolute(), *words]
            done = run(argv, cwd=directory, timeout=timeout, check=False)
            if done.returncode == 124 and done.stderr.rstrip().endswith(f"killed after {timeout:g} s"):
                raise RunError(
                    f"rtvm on this machine took longer than {timeout:g} s",
                    remedy="Allow more with --timeout, or run it fewer times.",
                    details=done.tail(),
                )
            code = done.returncode if done.returncode >= 0 else 128 - done.returncode
            hint = "what it said, or run it in a debugger"
            report = read_report(ProgramExit(THIS_MACHINE, code, done.stdout, done.stderr, hint))
            return read_run(options, report, directory, emulated=False)

    def _run_plainly(self, options: RtvmOptions, inputs: Inputs, timeout: float) -> RtvmRun:
        """Run the package once with TVM's wheel."""
        if flags := options.own_flags:
            raise MismatchError(
                f"{flags}: the runner's, and no bundle for host was built here",
                remedy="adt build-target --for host, or leave that away",
            )
        if inputs is None:
            entry = self.package.manifest.entry(options.entry)
            inputs = random_inputs(entry.inputs, options.seed, options.fill_mode)
        (outputs,) = run_packages([HostRun(self.package.path, inputs, options.entry)], timeout=timeout)
        return RtvmRun(outputs, {}, emulated=False)


Place: TypeAlias = DevicePlace | HostPlace


@dataclass(frozen=True)
class Opened:
    """A package that is ready to run."""

    place: Place
    package: ModelPackage
    bundle: TargetBundle | None
    """None: TVM's wheel runs it."""

    def run(self, options: RtvmOptions, inputs: Given | None, *, timeout: Seconds) -> RtvmRun:
        """Run the package as :meth:`DevicePlace.run` does, on what it takes of the model's *inputs*."""
        if inputs is not None:
            inputs = taken_inputs(self.package.manifest.entry(options.entry), inputs)
        return self.place.run(options, inputs, timeout=timeout)
