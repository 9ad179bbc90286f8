"""A server that forks the `adt` program, with the libraries loaded that take a second to import.

:func:`forked_adt` returns a program that behaves as `adt` does: its standard streams, working directory,
environment, signals and exit status are those of the process that a fork runs in. It differs in what a start
alone shows: imports, the seed of hashes, the command line in /proc. Tests of these start ``programs.ADT``.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import json
import logging
import os
import runpy
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

FORKED = ("adt.host.isolated", "adt.package.host_run.child")
"""Modules that run in children of the program, and import what the server has loaded."""
ON_SMALL_DISK = "--on-small-disk"
"""First argument, before those of :func:`small_disk.fork`."""
SUPPORT = Path(__file__).parent
CLIENT = """#!{python} -IS
import sys
sys.path.append({support!r})
from fork_client import main
main({address!r}, {program!r})
"""


@functools.cache
def forked_adt(program: str) -> str:
    """Return the path of a program called ``adt``, which is a fork of *program* as this process's server has it."""
    directory = tempfile.mkdtemp(prefix="adt-forks-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    address, client = f"{directory}/socket", Path(directory, "adt")
    paths = {"python": sys.executable, "support": str(SUPPORT), "address": address, "program": program}
    client.write_text(CLIENT.format(**paths))
    client.chmod(0o755)
    argv = [sys.executable, __file__, address, program]
    server = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdin is not None and server.stdout is not None
    assert server.stdout.readline() == b"ready\n", "the server of forks does not start"
    atexit.register(server.communicate)  # it ends with this process
    return str(client)


@dataclass(frozen=True)
class Request:
    """A client's command line, conditions and environment, and descriptors of its streams and directory."""

    arguments: list[str]
    conditions: list[object]
    environment: dict[str, str]
    descriptors: list[int]

    @classmethod
    def receive(cls, connection: socket.socket) -> Request:
        """Read the request of a client."""
        size, descriptors, _, _ = socket.recv_fds(connection, 8, 4)
        with connection.makefile("rb") as stream:
            return cls(*json.loads(stream.read(int(size))), descriptors)

    def take(self) -> None:
        """Give this process what is the client's."""
        for place, descriptor in enumerate(self.descriptors[:3]):
            os.dup2(descriptor, place)
        os.fchdir(self.descriptors[3])
        sys.stdout.reconfigure(line_buffering=sys.stdout.isatty())  # type: ignore[union-attr]
        os.environ.clear()
        os.environ.update(self.environment)


class Server:
    """Forks for each client, and tells it the end of its fork."""

    def __init__(self, address: str, conditions: list[object]) -> None:
        self._conditions = conditions
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(address)
        self._listener.listen(64)
        self._forks: list[tuple[int, int, socket.socket]] = []
        """Process id, its descriptor, and the client's connection; each is readable at the end of what it is of."""
        self._selector = selectors.DefaultSelector()
        for file in (sys.stdin, self._listener):
            self._selector.register(file, selectors.EVENT_READ)

    def serve(self) -> Request:
        """Serve until stdin ends; return in each fork."""
        while True:
            ready = self._selector.select()[0][0].fileobj  # one at a time: it may close what else is ready
            if ready is self._listener:
                if request := self._accept():
                    return request
            elif ready is sys.stdin:
                for pid, _descriptor, _connection in self._forks:
                    os.kill(pid, signal.SIGKILL)
                os._exit(0)
            else:
                self._finish(*next(fork for fork in self._forks if ready in fork[1:]))

    def _accept(self) -> Request | None:
        """Fork for the next client; return its request in the fork."""
        connection, _ = self._listener.accept()
        request = Request.receive(connection)
        pid = os.fork() if request.conditions == self._conditions else None
        if pid == 0:
            request.take()
            self._close()
        if pid:
            self._forks.append((pid, os.pidfd_open(pid), connection))
            for file in self._forks[-1][1:]:
                self._selector.register(file, selectors.EVENT_READ)
        if pid != 0:
            connection.send(b"%d\n" % (pid or 0))
        if not pid:
            connection.close()
        for descriptor in request.descriptors:
            os.close(descriptor)
        return request if pid == 0 else None

    def _finish(self, pid: int, descriptor: int, connection: socket.socket) -> None:
        """Tell the client how its fork ended, and end the fork of a client that was killed."""
        self._forks.remove((pid, descriptor, connection))
        for file in (descriptor, connection):
            self._selector.unregister(file)
        os.kill(pid, signal.SIGKILL)  # it is still to be waited for
        _, status = os.waitpid(pid, 0)
        with contextlib.suppress(OSError):
            connection.send(b"%d\n" % status)
        os.close(descriptor)
        connection.close()

    def _close(self) -> None:
        """Close in a fork what is the server's."""
        self._selector.close()
        self._listener.close()
        for _, descriptor, connection in self._forks:
            os.close(descriptor)
            connection.close()


def preload() -> None:
    """Import what most verbs import, and verify that no library has started a thread."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # it starts its threads when it is loaded
    for module in ("adt.cli.app", "adt.compiler.compile", "onnxruntime", "tvm.relax.frontend.onnx"):
        import_module(module)  # adt first: it keeps onnxruntime from starting a thread

    gc.collect()
    gc.freeze()  # collections of forks touch none of it
    assert len(os.listdir("/proc/self/task")) == 1, "a fork would lack the threads of a library"  # noqa: PTH208


class _Forked(subprocess.Popen[bytes]):
    """A child that was forked."""

    def __init__(self, pid: int, argv: Sequence[object], stdin: int, stdout: int) -> None:
        self.args, self.pid, self.returncode, self.stderr = argv, pid, None, None  # type: ignore[assignment]
        self._child_created, self._waitpid_lock = True, threading.Lock()
        self.stdin, self.stdout = os.fdopen(stdin, "wb"), os.fdopen(stdout, "rb")


def fork_module(argv: Sequence[object], *, stderr: int, **options: Any) -> subprocess.Popen[bytes]:
    """Start ``python -P -m MODULE`` as :func:`adt.host.process.start` does; fork if that is as good.

    It is for two of adt's own modules, and while no library has started a thread: one waits for interrupts.
    """
    from adt.host import isolated, process, reaper

    _, _, _, module, *arguments = map(str, argv)
    if module not in FORKED or len(os.listdir("/proc/self/task")) > 2:  # noqa: PTH208
        return process.start(argv, stderr=stderr, **options)  # type: ignore[arg-type]
    (requests, stdin), (stdout, answers) = os.pipe(), os.pipe()
    environment = process.environment()
    sys.stdout.flush()
    sys.stderr.flush()
    with process._interrupts_put_off():
        if pid := os.fork():
            reaper.reap_group(pid)
    if pid:
        os.close(requests)
        os.close(answers)
        return _Forked(pid, argv, stdin, stdout)
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for place, descriptor in enumerate((requests, answers, stderr)):
            os.dup2(descriptor, place)
        os.closerange(3, 4096)
        os.chdir(process.NEUTRAL)
        os.environ.clear()
        os.environ.update(environment)
        sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__
        logging.getLogger("adt").handlers.clear()
        gc.freeze()  # no object of the parent's is to close a descriptor of ours
        if module == "adt.host.isolated":
            isolated._serve(int(arguments[0]), arguments[1:])
        else:
            runpy.run_module(module, run_name="__main__")
        os._exit(0)
    except SystemExit as end:
        os._exit(int(end.code or 0))
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def main(address: str, program: str) -> None:
    """Serve; in a fork, be the program."""
    from fork_client import conditions

    here = conditions()
    preload()
    server = Server(address, here)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    request = server.serve()
    from adt import SILENT
    from adt.cli.main import main as run

    for name, value in SILENT.items():
        os.environ.setdefault(name, value)
    from adt.host import child

    child.start = fork_module
    arguments = request.arguments
    if arguments[:1] == [ON_SMALL_DISK]:
        from small_disk import fork

        arguments = fork(*arguments[1:])
    sys.argv[:] = [program, *arguments]
    sys.exit(run())


if __name__ == "__main__":
    main(*sys.argv[1:])
