"""The program that stands for a fork of the server's: it passes on what is its own, signals, and the fork's end."""

import json
import os
import resource
import signal
import socket
import sys

BEFORE_IMPORTS = ("LANG", "LC_", "LD_", "OMP_", "OPENBLAS_", "PYTHON", "TVM_LIBRARY", "TVM_USE")
"""Prefixes of variables that are read when a program or a library is loaded."""
LIMITS = (resource.RLIMIT_AS, resource.RLIMIT_DATA, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE)
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def conditions() -> list[object]:
    """Return what a fork has of the server instead of its caller: where they differ, the program is executed."""
    variables = {name: value for name, value in os.environ.items() if name.startswith(BEFORE_IMPORTS)}
    namespaces = [os.stat(f"/proc/self/ns/{name}").st_ino for name in ("mnt", "net", "pid", "user")]  # noqa: PTH116
    limits = [list(resource.getrlimit(limit)) for limit in LIMITS]
    ignored = [signal.getsignal(number) == signal.SIG_IGN for number in SIGNALS]
    os.umask(mask := os.umask(0))
    return [variables, namespaces, limits, ignored, mask, os.getuid()]


def execute(program: str, *words: str) -> None:
    """Execute *program*; what :mod:`small_disk` does in a fork, it does as a program then."""
    if words[:1] == ("--on-small-disk",):  # fork_server.ON_SMALL_DISK; its import takes long
        disk = os.path.join(os.path.dirname(__file__), "small_disk.py")  # noqa: PTH118, PTH120
        # DIRECTORY OPTIONS FREE LISTING, then the program's own
        os.execv(sys.executable, [sys.executable, disk, *words[1:5], program, *words[5:]])
    os.execv(program, [program, *words])


def main(address: str, program: str) -> None:
    """Have the server at *address* fork, and end as the fork does; or be *program*."""
    server = socket.socket(socket.AF_UNIX)
    server.connect(address)
    request = json.dumps([sys.argv[1:], conditions(), dict(os.environ)]).encode()
    here = os.open(".", os.O_PATH)
    socket.send_fds(server, [b"%8d" % len(request)], [0, 1, 2, here])
    server.sendall(request)
    answers = server.makefile()
    pid = int(answers.readline())
    if not pid:
        execute(program, *sys.argv[1:])
    for number in SIGNALS:
        signal.signal(number, lambda number, _frame: os.kill(pid, number))
    code = os.waitstatus_to_exitcode(int(answers.readline()))
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)
