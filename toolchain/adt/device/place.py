"""Place where a package runs: a device behind ADB, or this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from adt.bundle.bundle import TargetBundle
from adt.device.deploy.store import Deployment
from adt.device.deploy.workspace import awake, workspace
from adt.device.device import Device
from adt.device.rtvm import INPUTS, ProgramExit, RtvmOptions, RtvmRun, read_report, read_run
from adt.device.scripts import script
from adt.errors import RunError
from adt.host.cache import cache_dir
from adt.host.disk import scratch_directory
from adt.host.npz import npz_bytes
from adt.host.process import run
from adt.options.sections import RUN_SECONDS
from adt.package.manifest import taken_inputs
from adt.package.package import ModelPackage

if TYPE_CHECKING:
    import numpy as np

Inputs: TypeAlias = "Mapping[str, np.ndarray] | None"
"""Every input of an entry by name; None: rtvm makes them up."""
Seconds = float | None
THIS_MACHINE = "this machine"


class Place(Protocol):
    """Something that runs one package."""

    @property
    def name(self) -> str:
        """For people: the device's serial, or :data:`THIS_MACHINE`."""

    @property
    def label(self) -> str:
        """Name for people and reports."""

    @property
    def emulated(self) -> bool:
        """Its processor is emulated: its results count, its times are no device's speed."""

    @property
    def host(self) -> bool:
        """It is the machine that adt runs on."""

    def awake(self) -> AbstractContextManager[None]:
        """Keep it from sleeping for as long as the block runs: see :mod:`adt.device.deploy.workspace`."""

    def run(self, options: RtvmOptions, inputs: Inputs = None, *, timeout: Seconds = RUN_SECONDS) -> RtvmRun:
        """Run the package in a working directory of its own, which is gone afterwards.

        *inputs* has every input by name; None lets rtvm make them up from the options' seed.
        """


@dataclass(frozen=True)
class DevicePlace:
    """A package that is deployed on a device."""

    device: Device
    deployment: Deployment
    host = False

    @property
    def name(self) -> str:
        return self.device.serial

    @property
    def label(self) -> str:
        return self.device.facts.label

    @property
    def emulated(self) -> bool:
        return self.device.facts.emulated

    def awake(self) -> AbstractContextManager[None]:
        return awake(self.device)

    def run(self, options: RtvmOptions, inputs: Inputs = None, *, timeout: Seconds = RUN_SECONDS) -> RtvmRun:
        device, deployment = self.device, self.deployment
        data = npz_bytes(inputs) if inputs is not None else None
        home = deployment.directory
        argv = [f"{home}/bin/rtvm", "--model", f"{home}/model"]
        argv += options.words(given=data is not None, programs=f"{deployment.base}/programs")
        with workspace(device, f"{deployment.base}/runs", uses=deployment.digest) as directory:
            if data is not None:
                device.push(data, f"{directory}/{INPUTS}")
            done = device.script(
                script("run"),
                directory,
                deployment.manifest,
                f"{home}/lib",
                *argv,
                timeout=timeout,
                check=False,
                doing=f"rtvm on {device.serial}",
            )
            crashes = f"the device's crash log: adt adb -s {device.serial} -- logcat -d -b crash"
            report = read_report(ProgramExit(device.serial, done.exit_code, done.out, done.err, crashes))
            with scratch_directory("run") as local:
                for name in options.files:
                    device.pull(f"{directory}/{name}", local / name)
                return read_run(options, report, local, emulated=self.emulated)


@dataclass(frozen=True)
class HostPlace:
    """This machine, with the bundle that was built for it; no device is needed."""

    bundle: TargetBundle
    package: ModelPackage

    name = THIS_MACHINE
    emulated = False
    """False: all runs natively here."""
    host = True

    @property
    def label(self) -> str:
        return f"{THIS_MACHINE} ({os.uname().machine}, {os.cpu_count()} processors)"

    def awake(self) -> AbstractContextManager[None]:
        """Do nothing: keeping the machine awake is its owner's affair."""
        return nullcontext()

    def run(self, options: RtvmOptions, inputs: Inputs = None, *, timeout: Seconds = RUN_SECONDS) -> RtvmRun:
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


@dataclass(frozen=True)
class Opened:
    """A package that is ready to run."""

    place: Place
    package: ModelPackage
    bundle: TargetBundle

    def run(self, options: RtvmOptions, inputs: Inputs, *, timeout: Seconds) -> RtvmRun:
        """Run the package as :meth:`Place.run` does, on what it takes of the model's *inputs*."""
        if inputs is not None:
            inputs = taken_inputs(self.package.manifest.entry(options.entry), inputs)
        return self.place.run(options, inputs, timeout=timeout)
