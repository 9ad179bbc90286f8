"""Servers on boards without ADB: what to run there, and running it."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from adt.bundle.bundle import TargetBundle
from adt.bundle.platforms import PLATFORMS
from adt.errors import MismatchError, RpcError
from adt.host import process
from adt.host.disk import scratch_directory
from adt.rpc import wire

DIRECTORY = "adt-rpc"
"""Directory of the bundle on the board, below the home directory."""
PROGRAM = "bin/tvm_rpc"


@dataclass(frozen=True)
class ServePlan:
    """Commands that run a server on a board."""

    bundle: Path
    argv: tuple[str, ...]
    """Command line of tvm_rpc, relative to the bundle."""
    commands: tuple[str, ...]
    """Commands that a person types on this machine, in order."""
    address: str
    """Address for clients when there is no tracker; ``host:port``."""
    exposed: bool


def arguments(*, key: str, port: int, tracker: str = "", expose: bool = False) -> list[str]:
    """Return tvm_rpc's arguments for one *port* of the loopback, or of all addresses, and the *tracker*.

    The tracker sends clients to the loopback; those of an exposed server to where its connection comes from.
    """
    host = "0.0.0.0" if expose else "127.0.0.1"
    words = [f"--host={host}", f"--port={port}", f"--port-end={port + 1}", f"--key={key}"]
    words += [f"--tracker={tracker}"] if tracker else []
    return [*words, f"--custom-addr={host}"] if tracker and not expose else words


def plan(bundle: TargetBundle, *, board: str, key: str, port: int, tracker: str, expose: bool) -> ServePlan:
    """Plan the commands that bring *bundle* to *board* and serve there, with the *tracker*, if any.

    Without *expose* nothing listens on the network: ssh carries the ports, in both directions,
    and both sides use 127.0.0.1.
    """
    _check(bundle)
    ssh = ["ssh"]
    if not expose:
        ssh += ["-L", f"{port}:127.0.0.1:{port}"]
        if tracker:
            host, number = wire.parse_address(tracker)
            ssh += ["-R", f"{number}:{f'[{host}]' if ':' in host else host}:{number}"]
            tracker = f"127.0.0.1:{number}"
    words = arguments(key=key, port=port, tracker=tracker, expose=expose)
    argv = (PROGRAM, "server", *words, "--work-dir=rpc-work")
    command = f"cd {DIRECTORY} && LD_LIBRARY_PATH=$PWD/lib exec {shlex.join(argv)}"
    commands = (
        f"scp -r {shlex.quote(str(bundle.path))} {shlex.quote(board)}:{DIRECTORY}",
        f"{shlex.join(ssh)} {shlex.quote(board)} {shlex.quote(command)}",
    )
    host = board.rpartition("@")[2] if expose else "127.0.0.1"
    return ServePlan(bundle.path, argv, commands, f"{host}:{port}", expose)


def serve(bundle: TargetBundle, words: Sequence[str]) -> int:
    """Run tvm_rpc of *bundle* here until it ends or we are interrupted; return its exit code."""
    with run_server(bundle, words, output=2) as child:
        code = child.wait()
        return code if code >= 0 else 128 - code


@contextlib.contextmanager
def run_server(
    bundle: TargetBundle, words: Sequence[str], *, output: int
) -> Iterator[subprocess.Popen[bytes]]:
    """Run tvm_rpc of *bundle* here while the block runs; *words* follow ``server`` and its directory."""
    _check(bundle)
    manifest, here = bundle.manifest, PLATFORMS["host"].machine
    if manifest.machine != here or manifest.platform.startswith("android"):
        raise MismatchError(
            f"the bundle is for {manifest.platform} ({manifest.machine}), this machine is Linux on {here}",
            remedy="On the board itself: adt build-target --for host, then adt rpc serve --run.",
        )
    library_path = str(bundle.path.absolute() / "lib")
    if before := os.environ.get("LD_LIBRARY_PATH"):
        library_path += os.pathsep + before
    with scratch_directory("rpc") as work:
        child = process.start(
            [bundle.file(PROGRAM).absolute(), "server", *words, f"--work-dir={work}"],
            cwd=work,
            env={"LD_LIBRARY_PATH": library_path},
            stdout=output,
            stderr=output,
            reaped=True,
        )
        try:
            yield child
        finally:
            process.kill_group(child)
            with contextlib.suppress(ProcessLookupError):  # what serves a session outlives its server
                os.killpg(child.pid, signal.SIGKILL)
            end = time.monotonic() + 2.0  # by then processes that were killed are gone
            while _runs(child.pid) and time.monotonic() < end:
                time.sleep(0.01)


def _runs(group: int) -> bool:
    """Return True if a process of *group* runs; one that ended, but was not waited for, does not."""
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended while we looked
            state, _parent, its_group = status.read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state not in "ZX":
                return True
    return False


def _check(bundle: TargetBundle) -> None:
    if PROGRAM not in bundle.manifest.files:
        raise RpcError(
            f"the bundle {bundle.path} has no tvm_rpc",
            remedy=f"Build it with RPC: adt build-target --for {bundle.manifest.platform} --rpc",
        )
