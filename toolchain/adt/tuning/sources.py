"""Where devices to measure on come from, and what a worker is given of one.

A worker gets a *lease*: a server that answers, for as long as it is wanted or for some seconds. A
server that a tracker gave out goes back after a while, for others wait for it, too.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from adt.bundle.bundle import TargetBundle
from adt.device.device import Device
from adt.errors import AdtError
from adt.rpc import server, wire
from adt.tuning import device_facts
from adt.tuning.device_facts import Identity

GRANT_SECONDS = 2.0
"""How long one question for a free server waits for an answer."""
SHARED_SECONDS = 15.0
"""After which a server goes back to its tracker, once the candidate that is measured is done."""
SETTLE_SECONDS = 0.5
"""In which a tracker or adb notices that a server or device is gone."""


@dataclass(frozen=True)
class Sight:
    """A device, seen from afar."""

    name: str
    """Its serial, or its server's address."""
    label: str
    """What it is, for people; empty when only its server will tell."""
    there: bool
    note: str = ""
    """What is wrong with one that is not there."""


@dataclass(frozen=True)
class Presence:
    """Who is there at one moment."""

    slots: tuple[str, ...]
    """One worker for each: as many as can measure at a time."""
    sights: tuple[Sight, ...]


@dataclass(frozen=True)
class Lease:
    """A server that a worker may use."""

    name: str
    """Of its device: see :class:`Sight`."""
    label: str
    emulated: bool
    identity: Identity | None
    """What of it is empty, or None at all, its runtime tells over RPC; for a CPU, *key* says it."""
    key: str
    host: str
    port: int
    match_key: str
    """What the server expects its client to say."""
    seconds: float | None
    """It goes back after so long; None: it is kept as long as it is wanted, for session after session."""
    alive: Callable[[], bool]
    """Whether the device is still there, asked after a session broke."""
    celsius: Callable[[], float | None]
    """Its hottest thermal zone, now."""


class NotNow(Exception):
    """No server is free; the message says why."""


class Source(Protocol):
    """Devices that may come and go."""

    exclusive: bool
    """They are this machine: nothing else may run while they measure."""
    keeps: bool
    """Their servers are for us alone, as long as we want them."""

    def presence(self) -> Presence:
        """Who is there now; asked every second.

        Raises:
            AdtError: that cannot be found out.
        """

    def lease(self, slot: str, computes: str) -> AbstractContextManager[Lease]:
        """A server for the worker of *slot*, for as long as the block runs; what it started ends then.

        Args:
            computes: ``cpu`` or ``opencl``.

        Raises:
            NotNow: others use it.
            AdtError: it cannot be had.
        """


class TrackerSource:
    """All servers that are registered with a tracker under a key; whichever is free is used."""

    exclusive, keeps = False, False

    def __init__(self, address: str, key: str) -> None:
        self.address, self.key = address, key
        self._phones: dict[str, Phone] = {}
        self._guard = threading.Lock()

    def presence(self) -> Presence:
        """Every server with the key; one that others use is there, too."""
        servers = [one for one in wire.summary(self.address).servers if one.key == self.key]
        serials = _serials()
        sights = {}
        for one in servers:
            address = _local(one.address)
            name = serials.get(address, address)
            sights[name] = Sight(name, "", there=True)
        slots = tuple(f"{self.key} {number}" for number in range(1, len(sights) + 1))
        return Presence(slots, tuple(sights.values()))

    @contextlib.contextmanager
    def lease(self, slot: str, computes: str) -> Iterator[Lease]:
        """See :class:`Source`."""
        grant = wire.request(self.address, self.key, seconds=GRANT_SECONDS)
        if grant is None:
            raise NotNow(f"every server with the key {self.key} is in use")
        address = _local(f"{grant.host}:{grant.port}")
        serial = _serials().get(address, "")
        phone = self._phone(serial, computes) if serial else None
        yield Lease(
            name=serial or address,
            label=phone.label if phone else f"RPC server, key {self.key}",
            emulated=phone.emulated if phone else False,
            identity=phone.identity if phone else None,
            key=self.key,
            host=address.rpartition(":")[0],
            port=grant.port,
            match_key=grant.match_key,
            seconds=SHARED_SECONDS,
            alive=lambda: self._registered(address),
            celsius=(lambda: device_facts.celsius(Device(serial))) if serial else lambda: None,
        )

    def _phone(self, serial: str, computes: str) -> Phone | None:
        """What adb says of a device whose server adt started; None while it says nothing."""
        with self._guard:
            if serial not in self._phones:
                with contextlib.suppress(AdtError):
                    self._phones[serial] = phone(Device(serial), computes)
            return self._phones.get(serial)

    def _registered(self, address: str) -> bool:
        time.sleep(SETTLE_SECONDS)
        try:
            servers = wire.summary(self.address).servers
        except AdtError:
            return False
        return any(one.key == self.key and _local(one.address) == address for one in servers)


@dataclass(frozen=True)
class Phone:
    """What adb tells of a device."""

    label: str
    emulated: bool
    identity: Identity


def phone(device: Device, computes: str, bundle: TargetBundle | None = None) -> Phone:
    """Ask *device* over adb what it is.

    Args:
        bundle: see :func:`adt.tuning.device_facts.of_device`.

    Raises:
        NoDevice, DeviceNotReady, DeviceError: it does not answer.
    """
    facts = device.facts
    return Phone(facts.label, facts.emulated, device_facts.of_device(device, computes, bundle))


def _serials() -> dict[str, str]:
    """The devices whose servers adt started, by the server's address."""
    return {one.address: one.serial for one in server.statuses() if one.address}


def _local(address: str) -> str:
    """*address* with one name for this machine."""
    host, _, port = address.rpartition(":")
    return f"127.0.0.1:{port}" if host in ("localhost", "0.0.0.0", "::1", "") else address
