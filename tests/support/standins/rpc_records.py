"""Records of servers that a test makes up."""

import time
from dataclasses import replace
from typing import Any

from adt.rpc import state


def server_record(**changes: Any) -> state.ServerRecord:
    """Return the record of a ready server, which this process watches, with *changes*."""
    base = state.ServerRecord(
        serial="phone:1",
        key="android",
        port=9090,
        tracker="127.0.0.1:9190",
        deployment="/data/d",
        parent="/data/rpc",
        tag="adt00",
        adb_port=5037,
        process=state.this_process(),
        since=time.time(),
        state="ready",
        ready_since=time.time() - 5,
        there=state.DeviceSide("/data/rpc/7-adt00", (7, 8), 40000),
    )
    return replace(base, **changes)
