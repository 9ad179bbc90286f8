"""Devices behind adb, by their serials: each with a server for the tuning, or the one that runs there."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from adt.bundle.bundle import TargetBundle
from adt.device import deploy as deploying
from adt.device import selection, states
from adt.device.deploy import Deployment
from adt.device.device import Device
from adt.errors import AdtError
from adt.rpc import state, wire
from adt.rpc.device_server import Way, device_server
from adt.tuning import device_facts, sources
from adt.tuning.sources import Lease, NotNow, Phone, Presence, Sight

CONNECT_PAUSE = 10.0
"""Seconds between attempts to reach a device on the network that adb has lost."""
CONNECT_SECONDS = 3.0


class SerialSource:
    """The devices *serials*; one that is not there is waited for."""

    exclusive, keeps = False, True

    def __init__(self, serials: Sequence[str], bundle: TargetBundle, ports: Sequence[int]) -> None:
        """
        Args:
            bundle: fits all of them, and has tvm_rpc.
            ports: candidates for the servers, each the same on this machine and on the device.
        """
        self.serials, self.bundle, self.ports = tuple(dict.fromkeys(serials)), bundle, tuple(ports)
        self._tried: dict[str, float] = {}
        self._ready: dict[str, _Ready] = {}

    def presence(self) -> Presence:
        """As adb lists them; one on the network that it does not list is connected again now and then."""
        listed = {one.serial: one for one in selection.listing()}
        sights = []
        for serial in self.serials:
            found = listed.get(serial)
            there = found is not None and found.ready
            state = found.state if found is not None else "not connected"
            if found is None or found.state == "offline":
                self._reconnect(serial)
            sights.append(Sight(serial, found.model if found else "", there, "" if there else state))
        return Presence(tuple(one.name for one in sights if one.there), tuple(sights))

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
        """See :class:`adt.tuning.sources.Source`."""
        try:
            ready = self._ready.get(slot) or self._prepare(slot, computes)
            before = state.read_server(state.server_home(slot))
            others = before is not None and before.process.alive
            deployment = ready.deployment
            with device_server(
                ready.device, deployment, bundle=deployment.directory, ports=self.ports
            ) as way:
                host, port, match_key = _reached(way)
                yield Lease(
                    name=slot,
                    label=ready.phone.label,
                    emulated=ready.phone.emulated,
                    identity=ready.phone.identity,
                    key=way.key,
                    host=host,
                    port=port,
                    match_key=match_key,
                    seconds=sources.SHARED_SECONDS if others else None,
                    alive=lambda: _alive(ready.device),
                    celsius=lambda: device_facts.celsius(ready.device),
                )
        except AdtError:
            self._ready.pop(slot, None)  # it may have been restarted, or cleaned
            raise

    def _prepare(self, serial: str, computes: str) -> _Ready:
        device = selection.select(serial)
        found = sources.phone(device, computes, self.bundle)
        ready = _Ready(device, found, deploying.deploy(device, self.bundle, None).deployment)
        self._ready[serial] = ready
        return ready


@dataclass(frozen=True)
class _Ready:
    """A device that the bundle was sent to."""

    device: Device
    phone: Phone
    deployment: Deployment


def _reached(way: Way) -> tuple[str, int, str]:
    """Host, port and match key; a server that was there already may belong to a tracker.

    Raises:
        NotNow: others use it.
    """
    if not way.tracker:
        return *wire.parse_address(way.address), way.key
    grant = wire.request(way.tracker, way.key, seconds=sources.GRANT_SECONDS)
    if grant is None:
        raise NotNow("others use its server")
    return "127.0.0.1", grant.port, grant.match_key


def _alive(device: Device) -> bool:
    time.sleep(sources.SETTLE_SECONDS)
    try:
        known = {one.serial: one.state for one in selection.listing()}
        if known.get(device.serial) != states.READY:
            return False
        return device.shell(["true"], timeout=5.0, check=False).exit_code == 0
    except AdtError:
        return False
