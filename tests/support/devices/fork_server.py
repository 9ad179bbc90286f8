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
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

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
    atexit.register(server.stdin.close)  # it ends with this process
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
            for key, _ in self._selector.select():
                if key.fileobj is self._listener:
                    if request := self._accept():
                        return request
                elif key.fileobj is sys.stdin:
                    for pid, _descriptor, _connection in self._forks:
                        os.kill(pid, signal.SIGKILL)
                    os._exit(0)
                for fork in [fork for fork in self._forks if key.fileobj in fork[1:]]:
                    self._finish(*fork)

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
    sys.argv[:] = [program, *request.arguments]
    sys.exit(run())


if __name__ == "__main__":
    main(*sys.argv[1:])
