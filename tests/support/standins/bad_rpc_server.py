"""One of TVM's own RPC servers that goes wrong in the midst of a session.

python bad_rpc_server.py hang|crash NUMBER PORT TRACKER KEY: each session's NUMBERth timing never ends, or ends its process.
"""

import functools
import itertools
import os
import sys
import time
from typing import Any

import tvm
import tvm_ffi
from tvm import rpc

EVALUATOR = "runtime.RPCTimeEvaluator"


def spoil(behaviour: str, number: int) -> None:
    """Make timings in this process and its children go wrong from now on."""
    usual = tvm_ffi.get_global_func(EVALUATOR)
    numbers = itertools.count(1)

    def evaluator(*arguments: Any) -> Any:
        if next(numbers) >= number:
            while behaviour == "hang":
                time.sleep(3600)
            os._exit(1)
        return usual(*arguments)

    tvm_ffi.register_global_func(EVALUATOR, evaluator, override=True)


def main() -> None:
    behaviour, number, port, tracker, key = sys.argv[1:]
    host, _, tracker_port = tracker.rpartition(":")
    server = rpc.Server(
        "127.0.0.1",
        int(port),
        int(port) + 1,
        key=key,
        tracker_addr=(host, int(tracker_port)),
        custom_addr="127.0.0.1",
        server_init_callback=functools.partial(spoil, behaviour, int(number)),
    )
    server.proc.join() if server.proc is not None else time.sleep(3600)


if __name__ == "__main__":
    assert tvm.__version__
    main()
