"""A server on one certain device, for one block: the one that runs there, or one of our own.

A key may stand for several devices, and a tracker gives whichever is free. Who means
this device gets a server of its own, which no tracker knows and nobody else can use,
and which is stopped at the end; unless one from the same bundle runs there already.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from adt.device.deploy.store import Deployment
from adt.device.device import Device
from adt.errors import RpcError
from adt.host import cache
from adt.rpc import server, state, wire

log = logging.getLogger("adt.rpc")

BUSY_SECONDS = 600.0
"""How long we wait for another adt that has a server of its own on the device."""


@dataclass(frozen=True)
class Way:
    """How a session reaches a server; arguments of :func:`adt.rpc.session.connected`."""

    key: str
    tracker: str = ""
    address: str = ""


@contextlib.contextmanager
def device_server(
    device: Device, deployment: Deployment, *, bundle: str, ports: Sequence[int]
) -> Iterator[Way]:
    """A server on *device* for as long as the block runs.

    Args:
        deployment: what to start one from; it has ``bin/tvm_rpc``.
        bundle: the directory on the device of the same bundle deployed alone, from which `adt rpc start` and
            `adt deploy` start theirs.
        ports: candidates, each the same on this machine and on the device.

    Raises:
        RpcError: another server is in the way, or ours does not become ready.
        Busy: another adt has been using the device over RPC for very long.
        NoDevice, DeviceNotReady, DeviceError: the device is gone or refuses.
    """
    at = state.server_home(device.serial)
    with cache.lock(state.rpc_directory() / "runs" / at.directory.name, timeout=BUSY_SECONDS):
        record = state.read_server(at)
        if record is not None and record.process.alive and record.state != "failed":
            yield _existing(record, {bundle, deployment.directory})
            return
        key = f"adt-{secrets.token_hex(16)}"
        try:
            began = server.start(device, deployment, key=key, use_tracker=False, ports=ports)
            log.debug("started a server on %s at %s for this run", device.serial, began.address)
            yield Way(key, address=began.address)
        finally:
            mine = state.read_server(at)
            if mine is None or mine.key == key:  # else somebody has started another one there
                server.stop(device.serial)


def _existing(record: state.ServerRecord, wanted: set[str]) -> Way:
    """How to reach the server that runs, if it is the device's only one under its key, and from our bundle.

    Raises:
        RpcError: it is not.
    """
    serial = record.serial
    if record.deployment not in wanted:
        raise RpcError(
            f"the RPC server that runs on {serial} is from another bundle than the package needs",
            remedy=f"End it, and one from the right bundle is started for the run: adt rpc stop --serial "
            f"{serial}; or name the bundle that it is from: --bundle DIR.",
        )
    if not record.tracker:
        return Way(record.key, address=record.address)
    total = wire.summary(record.tracker).queue(record.key).total
    if total > 1:
        raise RpcError(
            f"{total} servers have the key {record.key} of {serial}; their tracker gives any of them",
            remedy=f"Take any of them: --key {record.key}; or give this one a key of its own: adt rpc start "
            f"--serial {serial} --key KEY.",
        )
    return Way(record.key, tracker=record.tracker)
