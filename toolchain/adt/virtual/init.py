"""PID 1 of a virtual device, and the short-lived launcher that becomes it.

Run as a program. The starter sends one message (:mod:`adt.host.messages`), the fields of a :class:`Boot`, to
its standard input and receives messages from its standard output:

    {"pid": N}             PID 1 as this machine counts
    {"ready": true}        connections are taken
    {"error": "..."}       it did not come up

Then the starter records the device and sends ``commit``. Until it has, the end of its standard input (the
starter was interrupted or killed) ends the device: no device runs that nobody has on record. PID 1 collects
orphans, and ends everything on SIGTERM. When it ends, the kernel kills what is left in its pid namespace.
"""

from __future__ import annotations

import asyncio
import contextlib
import encodings.idna  # noqa: F401 - see below
import logging
import os
import signal
import socket
import sys
import time
import traceback  # noqa: F401 - see below
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from adt.host.messages import committed, encode, receive, send
from adt.virtual import abis, filesystem, namespaces, properties
from adt.virtual.daemon import Daemon, Peers, serve

# Once the device's root is in place there is no Python library to import from:
# everything that is ever needed must have been imported above.

log = logging.getLogger("adt.virtual.init")

GRACE = 1.5
"""Seconds between SIGTERM and the end of what does not heed it."""
WATCHED = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD}


@dataclass(frozen=True)
class Boot:
    """Everything PID 1 needs to know."""

    name: str
    userland: str
    """Directory with the device's file system."""
    abi: str
    data: str
    data_size: str
    """Size of a tmpfs that becomes /data instead; empty for none."""
    listening: int
    """Descriptor of the listening socket."""
    log: str
    """File that takes the output."""
    user_namespace: bool
    """False only for root on a machine without user namespaces."""
    interpreter: str
    """Static qemu-aarch64 to register for this device alone; empty when arm64 programs run already."""
    debug: bool = False
    """True if the log is to hold everything."""


def close_input() -> None:
    """Have nothing at standard input."""
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)


def report(fd: int, **message: object) -> None:
    """Send *message* to the starter; one that is gone is no matter here."""
    with contextlib.suppress(OSError):
        send(fd, encode(message))


def launch(device: Callable[[str], Daemon] = Daemon) -> NoReturn:
    """Enter the namespaces and leave PID 1 behind, with the daemon that *device* makes of its name."""
    boot = Boot(**receive(0))
    started = os.dup(1)
    output = os.open(boot.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    os.dup2(output, 1)
    os.dup2(output, 2)
    logging.Formatter.converter = time.gmtime  # no /etc/localtime in the device
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.DEBUG if boot.debug else logging.INFO,
        format="%(asctime)sZ %(name)s %(levelname)s %(message)s",
    )
    try:
        peers = Peers()
        host_id = namespaces.spare_id() if boot.user_namespace else None
        if host_id is not None:
            filesystem.give_data(Path(boot.data), host_id)
        namespaces.enter(user=boot.user_namespace, host_id=host_id)
        pid = os.fork()
    except OSError as error:
        report(started, error=str(error))
        os._exit(1)
    if pid:
        report(started, pid=pid)
        os._exit(0)
    code = 1
    try:
        code = run(boot, device, started, peers)
    except OSError as error:  # a mount or another system call that this machine does not allow
        log.error("the virtual device cannot be built: %s", error)
        report(started, error=str(error))
    except BaseException as error:
        log.exception("the virtual device failed")
        report(started, error=repr(error))
    finally:
        os._exit(code)


def run(boot: Boot, device: Callable[[str], Daemon], started: int, peers: Peers) -> int:
    """Run as PID 1: build the root, start the daemon, collect orphans; return the exit code."""
    os.setsid()
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    abi = abis.named(boot.abi)
    userland, interpreter = Path(boot.userland), Path(boot.interpreter) if boot.interpreter else None
    log.info("virtual device %s: %s", boot.name, properties.notice(userland, abi))
    filesystem.build(
        boot.name, userland, Path(boot.data), data_size=boot.data_size, abi=abi, interpreter=interpreter
    )
    os.umask(0o022)
    # by its descriptor: asyncio sets TCP_NODELAY only where the protocol is known
    listening = socket.socket(fileno=boot.listening)
    listening.set_inheritable(False)
    os.set_inheritable(started, False)
    namespaces.limit_programs(namespaces.FILE_CAPABILITIES)
    server = os.fork()
    if server == 0:
        be_daemon(boot, device, listening, started, peers)
    namespaces.keep_capabilities(namespaces.FILE_CAPABILITIES)
    peers.close()
    listening.close()
    os.close(started)
    if not committed(0):
        log.warning("the starter is gone: ending")
        return end(server)
    close_input()
    while True:
        number = signal.sigwait(WATCHED)
        if number != signal.SIGCHLD:
            log.info("signal %d: ending", number)
            return end(server)
        if server in collect():
            log.error("the daemon ended by itself: ending")
            end(server)
            return 1


def be_daemon(
    boot: Boot, device: Callable[[str], Daemon], listening: socket.socket, started: int, peers: Peers
) -> NoReturn:
    """Run the daemon in the forked child of PID 1; never returns."""
    code = 1
    try:
        close_input()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)

        def ready() -> None:
            report(started, ready=True)
            os.close(started)

        daemon = device(boot.name)
        namespaces.keep_capabilities(daemon.capabilities)
        if problem := daemon.shell_problem():
            report(started, error=problem)
        else:
            asyncio.run(serve(listening, daemon, ready, peers))
            code = 0
    except BaseException:
        log.exception("the daemon failed")
    finally:
        os._exit(code)


def collect() -> set[int]:
    """Collect every child that has ended; return their pids."""
    ended: set[int] = set()
    with contextlib.suppress(ChildProcessError):
        while pid := os.waitpid(-1, os.WNOHANG)[0]:
            ended.add(pid)
    return ended


def end(server: int) -> int:
    """End every process of the device: SIGTERM, then after GRACE the kernel's SIGKILL as PID 1 leaves."""
    deadline = time.monotonic() + GRACE
    try:
        os.kill(-1, signal.SIGTERM)
        os.kill(-1, signal.SIGCONT)
    except ProcessLookupError:
        return 0
    while time.monotonic() < deadline:
        collect()
        try:
            os.kill(-1, 0)
        except ProcessLookupError:
            log.info("all processes ended")
            return 0
        signal.sigtimedwait({signal.SIGCHLD}, max(0.0, deadline - time.monotonic()))
    log.info("some processes did not heed SIGTERM and are killed")
    return 0


if __name__ == "__main__":
    launch()
