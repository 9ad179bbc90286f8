"""The server on a device, and the shell script around it (server_start.sh).

A server never runs alone: a shell on the device, its guardian, starts it in a
fresh directory and waits for two things: the server's end, and the end of its
own standard input, which comes when the watchdog, the adb server or the cable
is gone. Either way it ends all processes that the server left, removes the
directory, and exits with the server's exit code. Should the guardian itself be
killed, whoever comes next finds its directory and does the same.
"""

from __future__ import annotations

import signal

PORT_TAKEN = 98
"""Exit code of server_start.sh when the port is in use on the device."""
NOT_MADE = 97
"""Exit code of server_start.sh when the directory cannot be made."""
NOT_THERE = 96
"""Exit code of server_start.sh when the server's program is not on the device any more."""


def server_arguments(*, key: str, port: int, tracker_port: int) -> list[str]:
    """What tvm_rpc is told on a device: its own loopback only, one port, and the tracker there.

    Args:
        tracker_port: the device's port that leads to the tracker; 0 for none.
    """
    words = ["--host=127.0.0.1", f"--port={port}", f"--port-end={port + 1}", f"--key={key}"]
    if tracker_port:
        words += [f"--tracker=127.0.0.1:{tracker_port}", "--custom-addr=127.0.0.1"]
    return words


def explain_exit(code: int) -> str:
    """Why a server ended, for people."""
    if code > 128:
        try:
            return f"tvm_rpc was ended by {signal.Signals(code - 128).name}"
        except ValueError:
            return f"tvm_rpc was ended by signal {code - 128}"
    return {
        NOT_THERE: "tvm_rpc is no longer on the device",
        NOT_MADE: "the device does not let us make a working directory",
        PORT_TAKEN: "the port is in use on the device",
        127: "tvm_rpc could not be started",
        126: "tvm_rpc may not be executed on the device",
    }.get(code, f"tvm_rpc ended with exit code {code}")
