"""TVM's own tracker, as a process of its own: ``python -m adt.rpc.tracker_process DIRECTORY``.

The starter hands over the listening socket, so that it alone decides about
addresses and ports; see :mod:`adt.rpc.launch` for how it is told that all is well.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import signal
import socket
import sys
import time
from pathlib import Path
from typing import NoReturn

from adt.errors import AdtError, TrackerError
from adt.rpc import launch, state


def main() -> int:
    """Serve until SIGTERM."""
    at = state.Home(Path(sys.argv[1]), "tracker")
    starter = launch.Starter()
    plan = starter.plan()
    launch.log_to(at)

    def stop(_signal: int, _frame: object) -> NoReturn:
        raise SystemExit(0)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    starter.watch()
    try:
        listening = socket.socket(fileno=plan["fd"])
        host, port = listening.getsockname()[:2]
        try:
            from tvm.rpc import tracker as tvm_tracker
        except Exception as why:  # whatever stops it from being imported
            starter.failed(
                TrackerError(
                    f"TVM's tracker cannot be imported: {why}",
                    remedy="pip install tornado; `adt doctor` checks TVM's wheels.",
                )
            )
            return 1
        tvm_tracker.logger.handlers.clear()
        tvm_tracker.logger.propagate = True
        asyncio.set_event_loop(asyncio.new_event_loop())
        handler = tvm_tracker.TrackerServerHandler(listening, secrets.token_hex(16))
        record = state.TrackerRecord(host, port, state.this_process(), time.time())
        try:
            state.write(record, at)
        except AdtError as why:
            starter.failed(why)
            return 1
        logging.getLogger("adt.rpc").info("the tracker listens on %s:%d", host, port)
        starter.ready(port=port)
        handler.run()
        return 0
    finally:
        at.record.unlink(missing_ok=True)
        logging.getLogger("adt.rpc").info("the tracker ends")


if __name__ == "__main__":
    sys.exit(main())
