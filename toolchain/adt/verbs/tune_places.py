"""Places where a tuning measures: this machine, devices by their serials, or a tracker's servers."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from adt.bundle.bundle import TargetBundle
from adt.bundle.platforms import HOST
from adt.compiler.targets import ModelTarget
from adt.device import selection
from adt.device.device import Device
from adt.errors import AdtError, MismatchError, ToolNotFound, exclusive
from adt.limits import natural
from adt.options.sections import Settings
from adt.package.compatibility import check_tuned_cpu, own_features
from adt.package.host_run.opencl import opencl_device
from adt.package.host_run.run import NO_OPENCL
from adt.rpc import server, wire
from adt.rpc import tracker as tracking
from adt.tuning.fleet.sources import LocalSource, SerialSource, Source, TrackerSource, this_processor
from adt.verbs.bundles import choose_bundle
from adt.verbs.device import check_computes, chosen_device
from adt.verbs.rpc import served_bundle, tracker_start
from adt.verbs.tune_request import TuneRequest

if TYPE_CHECKING:
    from adt.compiler.compilation import CompileJob

log = logging.getLogger("adt.tune")

CORES = 8
"""Number of cores of a processor that cannot be asked: that of most phones."""


@dataclass(frozen=True)
class Rack:
    """Devices that measure."""

    source: Source
    words: str
    """For people."""
    cores: int
    serials: tuple[str, ...]
    """Devices behind adb among them, as far as they are known."""
    emulated: bool
    tracked: bool = False


def is_tracked(request: TuneRequest) -> bool:
    """True if a tracker gives the devices."""
    tracked = bool(request.key or request.tracker)
    if tracked and request.serials:
        raise exclusive("--serial", "--key and --tracker", "a tracker chooses the devices")
    return tracked


def platform_for(request: TuneRequest) -> str | None:
    """Return the platform of the first device that is named and there; None where other things decide."""
    if is_tracked(request) or request.named("platform") or not request.serials:
        return None
    return _first(request.serials).platform


def served(request: TuneRequest) -> TargetBundle | None:
    """Return the bundle of a server that runs on the devices already: no other could be started there."""
    if is_tracked(request):
        serials = _tracked(_key(request, request.settings))
    else:
        serials = request.serials or (chosen_device(None).serial,)
    return next(filter(None, map(served_bundle, serials)), None)


def _tracked(key: str) -> tuple[str, ...]:
    """List the devices behind adb whose servers have the key."""
    return tuple(each.serial for each in server.statuses() if each.key == key)


def _key(request: TuneRequest, settings: Settings) -> str:
    return request.key or settings.rpc.key or "android"


def _first(serials: Sequence[str]) -> Device:
    """Choose one of *serials* that is there; with none named, the device that verbs take."""
    problems = []
    for serial in serials:
        try:
            return selection.select(serial)
        except AdtError as error:
            problems.append(error)
    if problems:
        raise problems[0]
    return chosen_device(None)


@contextlib.contextmanager
def open_rack(request: TuneRequest, job: CompileJob, target: ModelTarget) -> Iterator[Rack]:
    """Open the devices that measure kernels of *job* for *target*; stop a tracker that was started for it."""
    settings, serials = job.settings, tuple(dict.fromkeys(request.serials))

    def bundle(preferred: TargetBundle | None = None) -> TargetBundle:
        explicit = job.bundle.path if job.bundle else None
        return choose_bundle(
            (job.platform.name,), explicit, server=True, computes=target.device, preferred=preferred
        )

    if is_tracked(request):
        with _tracker(request, settings) as (address, key):
            count = wire.summary(address).queue(key).total
            if not count:
                log.warning("no server is registered as %s at %s yet: waiting for one", key, address)
            words = f"servers with the key {key} of the tracker {address} ({count} now)"
            yield Rack(TrackerSource(address, key), words, CORES, _tracked(key), emulated=False, tracked=True)
    elif job.platform.name == HOST and not serials:
        check_tuned_cpu(target.cpu_features, own_features(), "this machine")
        if target.device == "opencl" and opencl_device() is None:
            raise ToolNotFound("this machine has no OpenCL device", remedy=NO_OPENCL)
        words = f"on this machine ({this_processor()})"
        local = LocalSource(bundle(), exclusive=not _own_gpu(target.device))
        yield Rack(local, words, os.cpu_count() or CORES, (), emulated=False)
    else:
        first = _first(serials)
        serials = serials or (first.serial,)
        _check_devices(serials, job.platform.name, target)
        source = SerialSource(serials, bundle(served(request)), settings.rpc.ports)
        words = f"on {', '.join(serials)}"
        cores = natural(first.shell(["nproc"], check=False).out.strip()) or CORES
        yield Rack(source, words, cores, serials, emulated=first.facts.emulated)


def _own_gpu(computes: str) -> bool:
    """Return True if kernels run on a GPU of this machine; OpenCL may also be its processor."""
    if computes == "cuda":
        return True
    device = opencl_device() if computes == "opencl" else None
    return device is not None and device.gpu


@contextlib.contextmanager
def _tracker(request: TuneRequest, settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield the address of the tracker, and the key."""
    key = _key(request, settings)
    if request.tracker:
        yield tracking.ensure(request.tracker), key
        return
    info = tracker_start()
    try:
        yield info.address, key
    finally:
        if not info.already:
            tracking.stop()


def _check_devices(serials: Sequence[str], platform: str, target: ModelTarget) -> None:
    """Refuse a device of another platform or processor; one that is not there is looked at when it comes."""
    for serial in serials:
        try:
            facts = (device := selection.select(serial)).facts
        except AdtError as error:
            log.warning("%s: %s; it joins when it is there", serial, error.what)
            continue
        check_tuned_cpu(target.cpu_features, facts.cpu_features, serial)
        if platform not in facts.platforms:
            raise MismatchError(
                f"{serial} is {' or '.join(facts.platforms)}, and the kernels are for {platform}",
                remedy="Tune devices of one platform at a time; leave --for out for the device's own.",
            )
        check_computes(device, target.device)
