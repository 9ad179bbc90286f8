"""Checks of adb: the program, its server, and whether they get on. Starts no server."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from adt.checkup import sockets
from adt.checkup.check import Action, Check, Fix, Scope, failed, ok, warning
from adt.device.selection import DeviceInfo, parse_listing
from adt.device.transport import adb
from adt.device.transport.adb import Adb
from adt.device.transport.deadline import Deadline
from adt.errors import AdtError
from adt.host import process
from adt.host.extras import install_command

SERVER_SECONDS = 5.0
"""Budget for one question to the adb server."""
PROGRAM_SECONDS = 10.0
VARIABLES = ("ADB_SERVER_SOCKET", "ANDROID_ADB_SERVER_PORT", "ANDROID_ADB_SERVER_ADDRESS")
"""Variables that decide where the server is, strongest first."""


@dataclass(frozen=True)
class Server:
    """The state of the adb server's address."""

    port: int
    running: bool
    protocol: int | None = None
    """Its number; clients of another number end the server when they meet it."""
    devices: tuple[DeviceInfo, ...] = ()
    problem: str = ""
    """Reason why it cannot be asked; empty when it can."""
    remedy: str = ""
    holder: str = ""
    """The process that listens, when it can be seen."""
    exposed: str = ""
    """The address it listens on, when other machines can reach it."""

    @property
    def usable(self) -> bool:
        """True if it runs and answers."""
        return self.running and not self.problem


def parse_protocol(text: str) -> int | None:
    """Parse the server protocol's number in the output of ``adb version`` (1.0.41 is 41)."""
    match = re.search(r"^Android Debug Bridge version \d+\.\d+\.(\d{1,9})", text, re.MULTILINE)
    return int(match[1]) if match else None


def clients(program: Adb) -> dict[Path, int | None]:
    """Return the adb that adt takes, and that of a person who types ``adb``, with their protocols."""
    paths = [program.path]
    if (typed := process.which("adb")) and Path(typed).resolve() != program.path.resolve():
        paths.append(Path(typed))
    runs = {path: process.run([path, "version"], timeout=PROGRAM_SECONDS, check=False) for path in paths}
    return {path: parse_protocol(run.stdout) for path, run in runs.items()}


def ask(port: int, service: str, doing: str) -> str:
    """Ask a server that runs; unlike :func:`adt.device.transport.adb.query` this starts none."""
    deadline = Deadline(SERVER_SECONDS, doing)
    try:
        sock = socket.create_connection(("127.0.0.1", port), timeout=SERVER_SECONDS)
    except TimeoutError as error:
        raise deadline.expired() from error
    with adb.Wire(sock, deadline) as wire:
        wire.request(service)
        return wire.read_text()


def look() -> Server:
    """Look at the adb server; takes no longer than two questions."""
    port = adb.server_port()
    listening = sockets.listeners((port,))
    holder = sockets.holder(listening[0]) if listening else ""
    exposed = next((listener.address for listener in listening if not listener.loopback), "")
    try:
        protocol = int(ask(port, "host:version", f"asking the adb server on port {port} for its version"), 16)
        devices = parse_listing(ask(port, "host:devices-l", "listing devices"))
    except ConnectionRefusedError:
        return Server(port, running=False)
    except (AdtError, OSError, ValueError) as error:
        return Server(
            port,
            running=True,
            problem=str(error),
            remedy=f"End what listens on port {port} ({holder or 'of another user'}), with `adt adb -- "
            "kill-server` if it is adb; or set ANDROID_ADB_SERVER_PORT to a free port.",
            holder=holder,
            exposed=exposed,
        )
    return Server(port, True, protocol, devices, holder=holder, exposed=exposed)


def check_program(program: Adb) -> Check:
    """Judge the adb that adt takes."""
    version = ".".join(map(str, program.version))
    origin = f"{program.path}, from {program.origin}"
    if not version:
        remedy = install_command("-U", "adbutils") + "   (it carries a new adb)"
        return warning("adb", "it does not say its version", origin, remedy)
    if program.old:
        return warning(
            "adb",
            f"{version} is too old for `adb pair` (wireless debugging with a code); adt works with it",
            origin,
            install_command("-U", "adbutils") + "   (it carries a new adb); or take Google's",
        )
    return ok("adb", version, origin)


def check_server(server: Server, clients: Mapping[Path, int | None], origin: str) -> Iterator[Check]:
    """Judge the adb server, whose address *origin* named; *clients* has the protocol of each program."""
    where = f"127.0.0.1:{server.port}, {origin}" + (f"; {server.holder}" if server.holder else "")
    if not server.running:
        yield warning(
            "adb server",
            "not running, so devices cannot be listed; adt starts it when it is needed",
            where,
            "adt doctor --fix, or adb start-server",
            Fix(Action.START_SERVER),
        )
        return
    if server.problem:
        yield failed("adb server", server.problem, where, server.remedy)
        return
    yield ok("adb server", f"runs, protocol {server.protocol}", where)
    for path, protocol in clients.items():
        if protocol not in (None, server.protocol):
            yield warning(
                "adb versions",
                f"the server speaks protocol {server.protocol}, {path} speaks {protocol}: "
                "whichever adb is run next ends the other's server, and all its connections and forwards",
                remedy="Use one adb (ADBUTILS_ADB_PATH, PATH and Android Studio may name three), then "
                "`adt adb -- kill-server`.",
            )
    if server.exposed:
        yield warning(
            "adb server's address",
            f"it listens on {server.exposed}: every machine that reaches this one can use your devices",
            where,
            "adt adb -- kill-server, then start it without -a",
        )


def address_origin(scope: Scope) -> str:
    """Return the variable or default that decides the server's address."""
    return next((name for name in VARIABLES if scope.environ.get(name)), "adb's default port")
