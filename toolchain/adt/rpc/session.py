"""Sessions with servers: TVM's own, opened in bounded time, with errors that say what to do.

TVM's client waits without end for a tracker that has no device and for a server that does not answer, and
shows the end of a server as "kShutdown" or a check that failed. Here the tracker is asked by
:mod:`adt.rpc.wire`, the connection is made and checked by :mod:`adt.rpc.relay`, and what breaks a session is
explained with what the watchdog knows.
"""

from __future__ import annotations

import contextlib
import logging
import math
import re
import secrets
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from shlex import quote
from typing import TYPE_CHECKING, Any

from adt.errors import AdtError, MismatchError, RpcError, RunError, TrackerError, last_line
from adt.numerics import Array
from adt.package.files import LIBRARY, PARAMS, read_tensors
from adt.package.manifest import Entry, check_inputs
from adt.package.package import ModelPackage
from adt.rpc import relay, server, tracker, wire
from adt.rpc.wire import Answer, Target

if TYPE_CHECKING:
    from tvm.rpc import RPCSession

WAIT = 60.0
"""Seconds to wait for a free device."""
STALE_PAUSE = 0.3
"""Seconds between questions to a tracker that named a server which has ended."""
CONNECT_SECONDS = 30.0
"""In which a server must answer that was given to us."""
NOTICE_SECONDS = 3.0
"""Seconds in which the watchdog finds out why a server ended."""

_LOST = re.compile(
    r"kShutdown|Channel closes before|previously closed|Connection reset|Broken pipe|Bad file descriptor"
    r"|SockChannel::|== RPCCode::k\w+|Connection refused"
)
"""Messages of TVM when the other side of a session is gone."""


@dataclass(frozen=True)
class Session:
    """A session and where it went."""

    remote: RPCSession
    target: Target

    @property
    def serial(self) -> str:
        """The device, when adt started its server; else empty."""
        found = (status.serial for status in server.statuses() if status.address == self.target.address)
        return next(found, "")


@contextlib.contextmanager
def open_session(
    *, key: str = "", tracker_address: str = "", address: str = "", timeout: float | None, wait: float = WAIT
) -> Iterator[Session]:
    """Open a TVM RPC session for as long as the block runs.

    It goes to the server with *key* that the tracker (adt's own, if *tracker_address* is empty) names, or to
    the one at *address*, which was started with *key*. The server ends it after *timeout* seconds, whatever
    runs in it. RpcError if it cannot be reached, or ended before the block did.
    """
    limit = 0 if timeout is None else max(1, math.ceil(timeout))
    if address:
        target = Target(*wire.parse_address(address), key, key)
        remote, link = _connect(target, limit)
    else:
        target, remote, link = _open_by_tracker(tracker_address, key, wait, limit)
    try:
        yield Session(remote, target)
    except AdtError:
        raise
    except Exception as error:
        if not lost(error):
            raise
        if fault := link.fault():
            raise RpcError(
                f"the server at {target.address} breaks the protocol of TVM's RPC: {fault}",
                remedy="Nothing of that reached TVM. Serve from a bundle that this adt built (adt "
                "build-target, then adt rpc start); if you do not know that server, do not use it.",
            ) from error
        raise _ended(target, time.monotonic() - link.began, limit, error) from error
    except BaseException:  # ctrl-C, perhaps because the server has stalled
        link.close(at_once=True)
        raise
    finally:
        close(remote)
        link.close()


class StaleRegistration(RpcError):
    """The tracker named a server that has ended."""


def lost(error: BaseException) -> bool:
    """Return True if *error*, as TVM raised it, means that the server at the other end is gone."""
    return not isinstance(error, AdtError) and _LOST.search(str(error)) is not None


def _open_by_tracker(
    address: str, key: str, wait: float, limit: int
) -> tuple[Target, RPCSession, relay.Relay]:
    """Open a session with a server that the tracker names, within *wait* seconds.

    The tracker may name a server that has ended; the next one at its address does not know that registration.
    """
    end = time.monotonic() + wait
    while True:
        target = _from_tracker(address, key, max(0.0, end - time.monotonic()))
        try:
            return target, *_connect(target, limit)
        except StaleRegistration:
            if time.monotonic() > end:
                raise
        time.sleep(STALE_PAUSE)


def _from_tracker(address: str, key: str, wait: float) -> Target:
    server.check_key(key)
    where = address or tracker.running()
    if not where:
        raise TrackerError(
            "no tracker runs that adt started",
            remedy="adt rpc start starts one together with a server; or name yours: tracker='HOST:PORT'.",
        )
    end = time.monotonic() + wait
    while True:
        summary = wire.summary(where)
        if (queue := summary.queue(key)).total:
            break
        states = {status.state for status in server.statuses() if status.key == key}
        if states.isdisjoint(("restarting", "starting")) or time.monotonic() > end:
            raise _no_such_key(where, key, summary)
        time.sleep(0.3)
    grant = wire.request(where, key, seconds=max(1.0, end - time.monotonic()))
    if grant is None:
        raise TrackerError(
            f"no device with the key {key} became free within {wait:g} s (total {queue.total}, free "
            f"{queue.free}, pending {queue.pending})",
            remedy="Wait for the sessions that use them, or start another server: adt rpc start --serial S "
            f"--key {key}; `adt rpc status` shows who is there.",
        )
    return replace(grant, host="127.0.0.1") if grant.host in ("localhost", "0.0.0.0") else grant


def _no_such_key(where: str, key: str, summary: wire.Summary) -> TrackerError:
    keys = sorted({status.key for status in summary.servers})
    there = f"it has {', '.join(keys)}" if keys else "no device has registered"
    stuck = (status for status in server.statuses() if status.key == key)
    details = "\n".join(f"{status.serial}: {status.state}: {status.last_error}" for status in stuck)
    return TrackerError(
        f"the tracker at {where} has no device with the key {key}; {there}",
        remedy=f"Start a server for it: adt rpc start --serial S --key {quote(key)}; `adt rpc status` shows "
        "what became of one that was started.",
        details=details,
    )


def _connect(target: Target, limit: int) -> tuple[RPCSession, relay.Relay]:
    try:
        return relay.connect(target.host, target.port, target.match_key, limit=limit, seconds=CONNECT_SECONDS)
    except TimeoutError as error:
        raise RpcError(
            f"the server at {target.address} did not answer within {CONNECT_SECONDS:g} s",
            remedy="It may be in use by another session (a server has one at a time), or hang: `adt rpc "
            "status`, then adt rpc stop and adt rpc start.",
        ) from error
    except (relay.Refusal, OSError) as error:
        raise _unreached(target, error) from error


def _unreached(target: Target, error: relay.Refusal | OSError) -> RpcError:
    answer = error.answer if isinstance(error, relay.Refusal) else None
    if answer is Answer.MISMATCH and target.tracker:
        return StaleRegistration(
            f"the tracker at {target.tracker} names a server at {target.address} that has ended since",
            remedy="Open the session again; `adt rpc status` shows what became of the server.",
        )
    if answer is Answer.MISMATCH:
        return RpcError(
            f"the server at {target.address} does not take a client with the key {target.key!r}",
            remedy="Go through its tracker (leave address away): a registered server takes nobody else; "
            "without a tracker the key must be the one that it was started with.",
        )
    if answer is not None:
        return RpcError(
            f"what listens at {target.address} is not a TVM RPC server",
            remedy="Check the port: `adt rpc status` shows where servers listen.",
        )
    serials = [status.serial for status in server.statuses() if status.address == target.address]
    start_again = f"adt rpc start --serial {quote((serials or ['S'])[0])} --key {quote(target.key)}"
    if target.tracker:
        return RpcError(
            f"a device is registered as {target.key} at {target.address}, but cannot be reached there",
            remedy=f"The forward to it may be missing (`adt adb -- forward --list`): {start_again}",
            details=str(error),
        )
    return RpcError(
        f"no server answers at {target.address}",
        remedy=f"Is it running, and is the port forwarded? {start_again} --no-tracker, or `adt rpc serve` "
        "for a board.",
        details=str(error),
    )


def _ended(target: Target, lasted: float, limit: int, error: Exception) -> RpcError:
    if limit and lasted >= 0.95 * limit:
        return RpcError(
            f"the session was ended after its time limit of {limit} s (it lasted {lasted:.1f} s)",
            remedy="Allow more: adt.rpc_session(timeout=SECONDS).",
            details=last_line(error),
        )
    reason = _reason(target)
    return RpcError(
        f"the server at {target.address} ended during the session" + (f": {reason}" if reason else ""),
        remedy="What ran last may have crashed it or used up the device's memory; `adt rpc status` and the "
        "server's log tell more. The watchdog starts it again: open a new session.",
        details=last_line(error),
    )


def _reason(target: Target) -> str:
    """Return why the server ended, once the watchdog knows."""
    end = time.monotonic() + NOTICE_SECONDS
    while True:
        mine = [status for status in server.statuses() if status.address == target.address]
        if not mine:
            return ""
        if mine[0].last_error and mine[0].uptime < 2 * NOTICE_SECONDS:
            return mine[0].last_error
        if time.monotonic() > end:
            return "the process that served it died"
        time.sleep(0.2)


def close(remote: RPCSession) -> None:
    """End the session now; else it would last as long as anybody holds a reference into it."""
    with contextlib.suppress(Exception):  # it may have ended already
        remote.get_function("CloseRPCConnection")()


log = logging.getLogger("adt.rpc")

SET_INPUT = "adt.set_input"
"""The server's function that takes tensors as images; TVM's own copies all of them into buffers."""


@dataclass(frozen=True)
class RemoteModel:
    """A loaded model; usable as long as the block of :func:`remote_model` runs."""

    session: Any
    """``tvm.rpc.RPCSession``."""
    package: ModelPackage
    device: Any
    """``tvm.runtime.Device`` of the server on which inputs, parameters and outputs live."""
    machine: Any
    """``tvm.runtime.vm.VirtualMachine`` on the server; ``machine.module`` is its handle, which remote
    functions take as an argument."""
    params: Mapping[str, Any]
    """Every parameter as a tensor of the device, by its key in mod.params."""

    def entry(self, name: str = "main") -> Entry:
        """Return the entry function *name* of the package."""
        return self.package.manifest.entry(name)

    def set_inputs(self, inputs: Mapping[str, Array], entry: str = "main") -> None:
        """Give the machine the inputs of *entry*, with its parameters after them."""
        import numpy as np
        import tvm

        function = self.entry(entry)
        check_inputs(self.package.manifest.name, function, inputs)
        with explain_errors(self.package, "take its inputs"):
            arrays = [np.asarray(inputs[spec.name], order="C") for spec in function.inputs]
            given = [tvm.runtime.tensor(array, self.device) for array in arrays]
            if not function.images:
                self.machine.set_input(entry, *given, *(self.params[name] for name in function.params))
                return
            pairs = [(False, tensor) for tensor in given]
            pairs += [(name in function.images, self.params[name]) for name in function.params]
            set_input = self._function(SET_INPUT)
            set_input(self.machine.module, entry, *chain.from_iterable(pairs))

    def _function(self, name: str) -> Any:
        try:
            return self.session.get_function(name)
        except Exception as error:  # TVM raises AttributeError, RPCError, …
            if lost(error):
                raise
            raise MismatchError(
                f"{self.package.manifest.name} has weights in images, which the RPC server does not take: "
                f"it has no function {name}",
                remedy="Serve from a bundle that this adt built (adt build-target, then adt rpc start), or "
                "run it without RPC (--via native).",
                details=str(error),
            ) from error

    def run(self, entry: str = "main") -> None:
        """Run *entry* once on the inputs that were set, and wait until the device is done."""
        with explain_errors(self.package, "run"):
            self.machine.invoke_stateful(entry)
            self.device.sync()

    def outputs(self, entry: str = "main") -> dict[str, Array]:
        """Return the outputs of the last run of *entry*, by name."""
        with explain_errors(self.package, "give its outputs"):
            given = self.machine.get_outputs(entry)
            tensors = [given] if hasattr(given, "numpy") else list(given)
            specs = self.entry(entry).outputs
            if len(tensors) != len(specs):
                raise ValueError(f"{len(tensors)} outputs, where mod.json says {len(specs)}")
            return {spec.name: tensor.numpy() for spec, tensor in zip(specs, tensors, strict=True)}


@contextlib.contextmanager
def remote_model(session: Any, package: ModelPackage, *, library: str = "") -> Iterator[RemoteModel]:
    """Load *package* into a virtual machine on the server of *session*, for as long as the block runs.

    *library* is the path of its mod.so there; empty: it is uploaded, and removed at the end.
    """
    import tvm

    target = package.manifest.target
    with _on_server(session, package, library) as path:
        with explain_errors(package, "find its device"):
            devices = [session.device(kind, 0) for kind in target.vdevices]
        for kind, device in zip(target.vdevices, devices, strict=True):
            _require_device(package, kind, device)
        mismatch = (
            f"The package is for {target.platform} ({target.machine}) and TVM "
            f"{package.manifest.tvm.version}: serve from the bundle it was compiled against, or compile it "
            "for that server's."
        )
        with explain_errors(package, "be loaded", kind=MismatchError, remedy=mismatch):
            loaded = session.load_module(path)
            machine = tvm.runtime.vm.VirtualMachine(loaded, list(devices))
        with explain_errors(package, "take its parameters"):
            read = read_tensors(package.path / PARAMS)
            params = {name: tvm.runtime.tensor(value.numpy(), devices[0]) for name, value in read.items()}
        yield RemoteModel(session, package, devices[0], machine, params)


@contextlib.contextmanager
def _on_server(session: Any, package: ModelPackage, library: str) -> Iterator[str]:
    """Yield the path of mod.so on the server."""
    if library:
        yield library
        return
    name = f"{package.manifest.name}-{secrets.token_hex(4)}.so"  # dlopen knows a library by its name
    try:
        with explain_errors(package, "be uploaded"):
            session.upload(str(package.path / LIBRARY), target=name)
        log.debug("uploaded %s as %s", package.path / LIBRARY, name)
        yield name
    finally:
        # At ctrl-C the server may have stalled; it removes itself what a session left.
        if not isinstance(sys.exc_info()[1], KeyboardInterrupt):
            with contextlib.suppress(Exception):  # the server may be gone, with all that was on it
                session.remove(name)


def _require_device(package: ModelPackage, kind: str, device: Any) -> None:
    reason = ""
    try:
        if device.exist:
            return
    except Exception as error:  # TVM has no OpenCL there, or finds no driver
        if lost(error):
            raise
        reason = str(error)
    raise MismatchError(
        f"the RPC server has no {kind} device, on which {package.manifest.name} computes",
        remedy="Serve from a bundle with OpenCL on a device that has a driver (adt probe), or compile for "
        "the CPU: adt compile --target cpu.",
        details=reason,
    )


@contextlib.contextmanager
def explain_errors(
    package: ModelPackage,
    doing: str,
    *,
    kind: type[AdtError] = RunError,
    remedy: str = "Run it without RPC (--via native), which says more; adt rpc status names the log.",
) -> Iterator[None]:
    """Turn what TVM raises in the block into a *kind*; the end of the session passes as it is."""
    try:
        yield
    except Exception as error:
        if isinstance(error, AdtError) or lost(error):
            raise
        what = f"{package.manifest.name} cannot {doing} over RPC: {last_line(error)}"
        raise kind(what, remedy=remedy, details=str(error)) from error
