"""A server for one block: on one certain device, or on this machine.

A key may stand for several devices, and a tracker gives whichever is free. Who means one device gets a server
of its own, which no tracker knows and nobody else can use, for it takes clients with a secret key only. It is
stopped at the end; unless a server from the same bundle runs on the device already, which is then used.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from shlex import quote

from adt.bundle.bundle import TargetBundle
from adt.device.deploy.store import Deployment
from adt.device.device import Device
from adt.errors import RpcError
from adt.host import cache
from adt.host.disk import temporary_directory
from adt.options.sections import PortRange
from adt.rpc import board, server, state, wire

log = logging.getLogger("adt.rpc")

BUSY_SECONDS = 600.0
"""Seconds that we wait for another adt that has a server of its own on the device."""


@dataclass(frozen=True)
class Endpoint:
    """Server as a session reaches it; arguments of :func:`adt.rpc.session.open_session`."""

    key: str
    tracker: str = ""
    address: str = ""


@contextlib.contextmanager
def device_server(
    device: Device, deployment: Deployment, *, bundle: str, ports: PortRange
) -> Iterator[Endpoint]:
    """Run a server on *device*, from *deployment*, for as long as the block runs.

    *bundle* is the directory on the device of the same bundle deployed alone, from which `adt rpc start` and
    `adt deploy` start theirs.
    """
    at = state.server_home(device.serial)
    with cache.lock(state.rpc_directory() / "runs" / at.directory.name, timeout=BUSY_SECONDS):
        record = state.read_server(at)
        if record is not None and record.serves:
            yield _existing(record, {bundle, deployment.directory})
            return
        key = f"adt-{secrets.token_hex(16)}"
        try:
            started = server.start(device, deployment, key=key, use_tracker=False, ports=ports)
            log.debug("started a server on %s at %s for this run", device.serial, started.address)
            yield Endpoint(key, address=started.address)
        finally:
            left = state.read_server(at)
            if left is None or left.key == key:  # else somebody has started another one there
                server.stop(device.serial)


def _existing(record: state.ServerRecord, deployments: set[str]) -> Endpoint:
    """Return how to reach the server that runs, if it is the only one under its key, and from our bundle."""
    serial = record.serial
    if record.deployment not in deployments:
        raise RpcError(
            f"the RPC server that runs on {serial} is from another bundle than the package needs",
            remedy=f"End it, and one from the right bundle is started for the run: adt rpc stop --serial "
            f"{serial}; or name the bundle that it is from: --bundle DIR.",
        )
    if not record.tracker:
        return Endpoint(record.key, address=record.address)
    total = wire.summary(record.tracker).queue(record.key).total
    if total > 1:
        raise RpcError(
            f"{total} servers have the key {record.key} of {serial}; their tracker gives any of them",
            remedy=f"Take any of them: --key {record.key}; or give this one a key of its own: adt rpc start "
            f"--serial {quote(serial)} --key KEY.",
        )
    return Endpoint(record.key, tracker=record.tracker)


@contextlib.contextmanager
def local_server(bundle: TargetBundle) -> Iterator[Endpoint]:
    """Run the server of *bundle* on the loopback of this machine for as long as the block runs."""
    key = f"adt-{secrets.token_hex(16)}"
    with contextlib.ExitStack() as stack, tempfile.TemporaryFile(dir=temporary_directory()) as output:
        for _ in range(5):  # somebody may take the port between our finding it free and the server's start
            with socket.create_server(("127.0.0.1", 0)) as probe:
                port = probe.getsockname()[1]
            words = board.arguments(key=key, port=port)
            child = stack.enter_context(board.run_server(bundle, words, output=output.fileno()))
            if _answers(child, port):
                yield Endpoint(key, address=f"127.0.0.1:{port}")
                return
            stack.close()
        output.seek(0)
        raise RpcError(
            f"the RPC server of {bundle.path} does not start on this machine",
            remedy="Its last words are below; build the bundle again: adt build-target --for host.",
            details="\n".join(output.read().decode(errors="replace").splitlines()[-30:]),
        )


def _answers(child: subprocess.Popen[bytes], port: int) -> bool:
    end = time.monotonic() + 30.0
    while child.poll() is None and time.monotonic() < end:
        if wire.try_server("127.0.0.1", port, seconds=5) is wire.Answer.MISMATCH:  # it expects our key
            return child.poll() is None
        time.sleep(0.05)
    return False
