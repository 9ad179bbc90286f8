"""A rack of virtual devices on this machine: deploy, servers, sessions; what it takes in time and memory.

    python bench/rack.py [--devices N] [--abi arm64-v8a|x86_64] [--json]

Starts N virtual devices, deploys to all of them at once with an RPC server on each
under one key, opens N sessions that are all held at the same time, sends numbers there
and back, and takes everything away again. It has state and an adb server of its own.
The times are those of this machine, and no phone's; devices are emulated unless they have its processor.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil
from own_place import end_server, own_place

import adt
from adt.errors import AdtError

KEY = "rack"


@contextlib.contextmanager
def phase(name: str, times: dict[str, float]) -> Iterator[None]:
    """Add the seconds that the block took to *times*."""
    sys.stderr.write(f"{name} …\n")
    began = time.perf_counter()
    yield
    times[name] = time.perf_counter() - began


def is_own_reaper(process: psutil.Process) -> bool:
    """Return True if it is the shell that would clean up after this very program, and ends with it."""
    return process.ppid() == os.getpid() and process.cmdline()[-1:] == ["adt-reaper"]


def processes(state: Path) -> dict[int, int]:
    """Map each process whose state is in *state*, and each child of one, to its memory share (bytes)."""
    found: dict[int, int] = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid == os.getpid() or is_own_reaper(process):
                continue
            if process.environ().get("XDG_STATE_HOME") == str(state):
                for one in (process, *process.children(recursive=True)):
                    with contextlib.suppress(psutil.Error):
                        found[one.pid] = one.memory_full_info().pss
    return found


def serve(together: threading.Barrier) -> bool:
    """Open a session, wait until all are open, send numbers there and back."""
    from tvm import runtime

    with adt.rpc_session(key=KEY, timeout=600, wait=120) as remote:
        together.wait(timeout=300)
        sent = np.random.default_rng(threading.get_ident()).random(10_000, dtype=np.float32)
        there = runtime.tensor(sent, remote.cpu())
        return bool((there.numpy() == sent).all())


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--devices", type=int, default=10)
    parser.add_argument("--abi", default="arm64-v8a")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    count: int = arguments.devices
    times: dict[str, float] = {}
    with own_place() as home:
        names = [f"rack-{number}" for number in range(count)]
        try:
            with phase("start the devices", times), ThreadPoolExecutor(4) as pool:
                started = pool.map(lambda name: adt.emulator_start(name, abi=arguments.abi), names)
                serials = [info.serial for info in started]
            with phase("deploy and start the servers", times):
                outcomes = adt.deploy_many(serials=serials, key=KEY)
            for outcome in outcomes.failed:
                sys.stderr.write(f"{outcome.serial}: {outcome.error}\n")
            status = adt.rpc_status()
            queues = status.tracker.summary.queues if status.tracker.summary else ()
            registered = sum(queue.total for queue in queues if queue.key == KEY)
            with phase("hold all sessions at once", times), ThreadPoolExecutor(count) as pool:
                together = threading.Barrier(count)
                served = sum(pool.map(lambda _: serve(together), range(count)))
            memory = sum(processes(home / "state").values())
        finally:
            with phase("take everything away", times):
                adt.rpc_stop(all=True)
                adt.tracker_stop()
                for name in names:
                    with contextlib.suppress(AdtError):
                        adt.emulator_stop(name)
        end_server()
        left = len(processes(home / "state"))
    report = {
        "devices": count,
        "deployed": count - len(outcomes.failed),
        "registered": registered,
        "served": served,
        "processes_left": left,
        "memory_bytes": memory,
        "seconds": times,
    }
    if arguments.json:
        sys.stdout.write(json.dumps(report, indent=2) + "\n")
    else:
        for name, took in times.items():
            sys.stdout.write(f"{name:<30} {took:6.1f} s\n")
        sys.stdout.write(f"{registered} registered, {served} served at once, {left} processes left\n")
        sys.stdout.write(f"{memory / count / 2**20:.0f} MiB per device, server and watchdog included\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
