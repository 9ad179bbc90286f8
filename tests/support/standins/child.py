"""A child of :mod:`adt.host.child` that does what it is told."""

import os
import signal
import subprocess
import sys
import time
from typing import Any

from adt.host.child import serve


def handle(request: tuple[str, Any]) -> Any:
    kind, value = request
    if kind == "echo":
        os.write(1, b"to stdout, where libraries write")
        return value
    if kind == "pid":
        return os.getpid(), os.getppid(), os.nice(0)
    if kind == "sleep":
        time.sleep(value)
    if kind == "start":  # something that outlives its parent
        return subprocess.Popen(["sleep", "1000"]).pid
    if kind == "signal":
        sys.stderr.write("warning\nthe last words\n")
        sys.stderr.flush()
        os.kill(os.getpid(), getattr(signal, value))
    if kind == "exit":
        os._exit(value)
    if kind == "raise":
        raise ValueError(value)
    return None


if __name__ == "__main__":
    serve(handle, niceness=3, idle=float(sys.argv[1]) if len(sys.argv) > 1 else None)
