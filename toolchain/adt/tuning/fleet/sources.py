"""Sources of devices to measure on, and the lease of a server of one that a worker gets."""

from __future__ import annotations

import contextlib
import platform
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple, TypeAlias

from adt.bundle.bundle import TargetBundle
from adt.device import selection
from adt.device.deploy import store
from adt.device.deploy.store import Deployment
from adt.device.device import Device
from adt.device.place import THIS_MACHINE
from adt.device.probe import package_like, probe
from adt.device.survey import Survey, survey_host
from adt.device.transport.adb import READY
from adt.errors import AdtError
from adt.options.sections import PortRange
from adt.rpc import server, state, wire
from adt.rpc.temporary_server import Endpoint, device_server, local_server

GRANT_SECONDS = 2.0
"""Time limit of one request for a free server, in seconds."""
SHARED_SECONDS = 15.0
"""After which a server goes back to its tracker, once the candidate that is measured is done."""
SETTLE_SECONDS = 0.5
"""In which a tracker or adb notices that a server or device is gone."""


class Identity(NamedTuple):
    """Identity of a processor, by which records are kept; devices measured together share it."""

    device: str
    """As in :attr:`adt.tuning.records.Context.device`; empty where it is not known."""
    driver: str
    """As in :attr:`adt.tuning.records.Context.driver`."""

    @property
    def text(self) -> str:
        """For people."""
        return f"{self.device}, driver {self.driver}" if self.driver else self.device


UNKNOWN = Identity("", "")


@dataclass(frozen=True)
class Hardware:
    """Facts about a device that measures, as far as adb or this machine tells them."""

    label: str
    emulated: bool
    identity: Identity
    """Identity of the processor; its runtime, or for a CPU the server's key, fills empty fields."""


@dataclass(frozen=True)
class Sighting:
    """A device as the tracker or adb lists it."""

    name: str
    label: str
    """Name of the device for people; empty when only its server will tell."""
    there: bool
    note: str = ""


Presence: TypeAlias = tuple[tuple[str, ...], tuple[Sighting, ...]]
"""Slots, as many as can measure at a time, each for a worker; and the devices that are there now."""


@dataclass(frozen=True)
class Lease:
    """A server that a worker may use."""

    name: str
    """Name of its device: see :class:`Sighting`."""
    hardware: Hardware
    key: str
    server: wire.Target
    seconds: float | None
    """It goes back after so long; None: it is kept as long as it is wanted, for session after session."""
    alive: Callable[[], bool]
    """Tells whether the device is still there, after a session broke."""
    celsius: Callable[[], float | None]


class NotNow(Exception):
    """No server is free; the message says why."""


class TrackerSource:
    """All servers that are registered with a tracker under a key; whichever is free is used."""

    exclusive = False
    """They are this machine: nothing else may run while they measure."""
    dedicated = False
    """Their servers are for us alone, as long as we want them."""

    def __init__(self, address: str, key: str) -> None:
        self.address, self.key = address, key
        self._hardware: dict[str, Hardware] = {}
        self._lock = threading.Lock()

    def presence(self) -> Presence:
        """Return the servers with the key that are there now, also in use; asked every second."""
        serials = _serials()
        names = dict.fromkeys(serials.get(address, address) for address in self._addresses())
        slots = tuple(f"{self.key} {number}" for number, _ in enumerate(names, 1))
        return slots, tuple(Sighting(name, "", there=True) for name in names)

    @contextlib.contextmanager
    def lease(self, slot: str, computes: str) -> Iterator[Lease]:
        """Lend a server for *computes* (``cpu``, ``opencl``, ``cuda``) to a worker; NotNow: others use it."""
        grant = wire.request(self.address, self.key, seconds=GRANT_SECONDS)
        if grant is None:
            raise NotNow(f"every server with the key {self.key} is in use")
        address = _local(f"{grant.host}:{grant.port}")
        serial = _serials().get(address, "")
        hardware = self._hardware_of(serial, computes) if serial else None
        yield Lease(
            name=serial or address,
            hardware=hardware or Hardware(f"RPC server, key {self.key}", False, UNKNOWN),
            key=self.key,
            server=replace(grant, host=address.rpartition(":")[0]),
            seconds=SHARED_SECONDS,
            alive=lambda: self._registered(address),
            celsius=(lambda: celsius(Device(serial))) if serial else lambda: None,
        )

    def _hardware_of(self, serial: str, computes: str) -> Hardware | None:
        """Return what adb tells of a device whose server adt started; None while it does not answer."""
        with self._lock, contextlib.suppress(AdtError):
            if serial not in self._hardware:
                self._hardware[serial] = hardware_of(Device(serial), computes)
            return self._hardware[serial]
        return None

    def _addresses(self) -> list[str]:
        """List the addresses of the servers with the key that are there now, also in use."""
        servers = wire.summary(self.address).servers
        return [_local(each.address) for each in servers if each.key == self.key]

    def _registered(self, address: str) -> bool:
        time.sleep(SETTLE_SECONDS)
        with contextlib.suppress(AdtError):
            return address in self._addresses()
        return False


def hardware_of(device: Device, computes: str, bundle: TargetBundle | None = None) -> Hardware:
    """Ask *device* over adb for its facts, as ``adt compile --like`` sees them.

    *bundle* brings the program that asks for OpenCL; without one, what was asked before counts.
    """
    probed = probe(device, bundle if computes == "opencl" else None)  # brings the facts, too
    facts = package_like(probed, "")
    identity = {
        "cpu": Identity(facts.soc or probed.model or probed.label, ""),
        "opencl": Identity(facts.gpu, facts.opencl_driver),
    }.get(computes, UNKNOWN)
    return Hardware(device.facts.label, device.facts.emulated, identity)


def _serials() -> dict[str, str]:
    """Map the addresses of servers that adt started to their devices."""
    return {each.address: each.serial for each in server.statuses() if each.address}


def _local(address: str) -> str:
    """Replace the names of this machine in *address* by one."""
    host, _, port = address.rpartition(":")
    return f"127.0.0.1:{port}" if host in ("localhost", "0.0.0.0", "::1", "") else address


class LocalSource:
    """A server of our own on this machine."""

    dedicated = True

    def __init__(self, bundle: TargetBundle, *, exclusive: bool = True) -> None:
        """Measure here; *exclusive* if the measured code needs the processor for itself."""
        self.bundle = bundle
        self.exclusive = exclusive

    def presence(self) -> Presence:
        return (THIS_MACHINE,), (Sighting(THIS_MACHINE, this_processor(), there=True),)

    @contextlib.contextmanager
    def lease(self, slot: str, computes: str) -> Iterator[Lease]:
        """See :meth:`TrackerSource.lease`."""
        processor = this_processor()
        with local_server(self.bundle) as here:
            identity = Identity(processor, "") if computes == "cpu" else UNKNOWN
            yield Lease(
                name=slot,
                hardware=Hardware(processor, False, identity),
                key=THIS_MACHINE,
                server=wire.Target(*wire.parse_address(here.address), here.key),
                seconds=None,
                alive=lambda: True,
                celsius=lambda: _hottest(survey_host("thermal", seconds=SURVEY_SECONDS)),
            )


CONNECT_PAUSE = 10.0
"""Seconds between attempts to reach a device on the network that adb has lost."""
CONNECT_SECONDS = 3.0


class SerialSource:
    """The devices *serials*; one that is not there is waited for."""

    exclusive, dedicated = False, True

    def __init__(self, serials: Sequence[str], bundle: TargetBundle, ports: PortRange) -> None:
        """Measure on *serials*, fit for *bundle*; *ports* are the same on this machine and the device."""
        self.serials, self.bundle, self.ports = tuple(dict.fromkeys(serials)), bundle, ports
        self._tried: dict[str, float] = {}
        self._ready: dict[str, tuple[Device, Hardware, Deployment]] = {}

    def presence(self) -> Presence:
        """Ask adb; one on the network that it does not list is connected again now and then."""
        listed = {device.serial: device for device in selection.listing()}
        sightings = []
        for serial in self.serials:
            device = listed.get(serial)
            there = device is not None and device.ready
            state = device.state if device is not None else "not connected"
            if device is None or device.state == "offline":
                self._reconnect(serial)
            sightings.append(Sighting(serial, device.model if device else "", there, "" if there else state))
        return tuple(each.name for each in sightings if each.there), tuple(sightings)

    def _reconnect(self, serial: str) -> None:
        now = time.monotonic()
        if not selection.is_address(serial) or now - self._tried.get(serial, -CONNECT_PAUSE) < CONNECT_PAUSE:
            return
        self._tried[serial] = now
        with contextlib.suppress(AdtError):
            selection.disconnect(serial)
            selection.connect(serial, seconds=CONNECT_SECONDS)

    @contextlib.contextmanager
    def lease(self, slot: str, computes: str) -> Iterator[Lease]:
        """See :meth:`TrackerSource.lease`."""
        try:
            device, hardware, deployment = self._ready.get(slot) or self._prepare(slot, computes)
            before = state.read_server(state.server_home(slot))
            others = before is not None and before.process.alive
            directory = deployment.directory
            with device_server(device, deployment, bundle=directory, ports=self.ports) as way:
                yield Lease(
                    name=slot,
                    hardware=hardware,
                    key=way.key,
                    server=_reached(way),
                    seconds=SHARED_SECONDS if others else None,
                    alive=lambda: _alive(device),
                    celsius=lambda: celsius(device),
                )
        except AdtError:
            self._ready.pop(slot, None)  # it may have been restarted, or cleaned
            raise

    def _prepare(self, serial: str, computes: str) -> tuple[Device, Hardware, Deployment]:
        """Send the bundle to a device."""
        device = selection.select(serial)
        hardware = hardware_of(device, computes, self.bundle)
        self._ready[serial] = device, hardware, store.deploy(device, self.bundle, None).deployment
        return self._ready[serial]


Source: TypeAlias = TrackerSource | LocalSource | SerialSource
"""Devices that may come and go."""


def _reached(way: Endpoint) -> wire.Target:
    """Return the server at *way*; one that was there already may belong to a tracker."""
    if not way.tracker:
        return wire.Target(*wire.parse_address(way.address), way.key)
    grant = wire.request(way.tracker, way.key, seconds=GRANT_SECONDS)
    if grant is None:
        raise NotNow("others use its server")
    return replace(grant, host="127.0.0.1")


def _alive(device: Device) -> bool:
    time.sleep(SETTLE_SECONDS)
    with contextlib.suppress(AdtError):
        if any((each.serial, each.state) == (device.serial, READY) for each in selection.listing()):
            return device.shell(["true"], timeout=5.0, check=False).exit_code == 0
    return False


SURVEY_SECONDS = 10.0


def celsius(device: Device) -> float | None:
    """Read the hottest thermal zone of *device* now; None where it tells none, or does not answer."""
    with contextlib.suppress(AdtError):
        return _hottest(device.survey("thermal", timeout=SURVEY_SECONDS, check=False))
    return None


def _hottest(survey: Survey) -> float | None:
    return survey.hottest.celsius if survey.hottest else None


@cache
def this_processor() -> str:
    """Return the name of this machine's processor."""
    survey = survey_host("processor", "board", seconds=SURVEY_SECONDS)
    if survey["processor"].startswith("Hardware"):  # the board says more
        return survey.board or survey.processor
    return survey.processor or survey.board or platform.machine()
