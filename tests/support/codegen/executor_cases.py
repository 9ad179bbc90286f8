"""Cases of tests/integration/test_executor.py on the C interface, one function for each test."""

import contextlib
import ctypes
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ctypes import c_int32
from pathlib import Path
from typing import Any

from support.codegen.c_runner import INPUT, USAGE, Library, OwnExecutor, Runner, main
from support.waiting import wait_for

CALLERS = 64
OK, CANCELLED = 0, 10


def own_executor(library: Library, package: Path) -> Runner:
    options = OwnExecutor(ctypes.sizeof(OwnExecutor), own_executor=1)
    return Runner(library, package, options)


def set_threads(library: Library, count: int, affinity: str) -> None:
    if library.raw.adt_set_threads(count, affinity.encode()):
        raise library.failure()


def run(runner: Runner) -> None:
    runner.set(0, runner.zeros())
    runner.run()
    runner.get(0)


def threads() -> list[Path]:
    return list(Path("/proc/self/task").iterdir())


def runner_threads() -> list[int]:
    return [int(task.name) for task in threads() if (task / "comm").read_text() == "adt-runner\n"]


def settles(look: Callable[[], Any], expected: Any) -> None:
    """Wait until *look* sees *wanted*: Linux lists a thread that was joined a moment longer."""

    def seen() -> bool:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that was listed has gone
            return bool(look() == expected)
        return False

    wait_for(seen, f"to see {expected}", seconds=10)


def with_callers(work: Callable[[], None], look: Callable[[], Any]) -> Any:
    """Return what *look* sees when each of many threads has done *work*, and is still there."""
    done, end = threading.Barrier(CALLERS + 1), threading.Event()

    def body() -> None:
        try:
            work()
        finally:
            done.wait()
            end.wait()

    with ThreadPoolExecutor(CALLERS) as pool:
        callers = [pool.submit(body) for _ in range(CALLERS)]
        done.wait()
        seen = look()
        end.set()
    for caller in callers:
        caller.result()
    return seen


def callers_stay_as_they_are(library: Library, parallel: Path) -> None:
    before = len(threads())
    core = {max(os.sched_getaffinity(0))}
    runner = Runner(library, parallel)
    run(runner)
    mine = len(threads())
    assert mine > before + 1  # the executor, and a worker

    def call() -> None:
        os.sched_setaffinity(0, core)
        run(runner)
        own = Runner(library, parallel)  # loads, runs and releases
        run(own)
        own.free()
        assert os.sched_getaffinity(0) == core

    assert with_callers(call, lambda: len(threads())) == mine + CALLERS
    runner.free()
    settles(lambda: len(threads()), before)  # the executor and its workers are gone


def kernels_of_callers(library: Library, textured: Path) -> None:
    """Run on the OpenCL of tests/support/standins/opencl_driver.c."""
    driver = ctypes.CDLL("libOpenCL.so")
    runner = Runner(library, textured, program_cache="off")
    run(runner)
    kernels = driver.standin_kernels()
    assert kernels > 0
    assert with_callers(lambda: run(runner), driver.standin_kernels) == kernels
    runner.free()
    assert driver.standin_alive() == 0


def inputs_do_not_wait(library: Library, textured: Path) -> None:
    """Copy beside runs, waiting only for readers of the memory (OpenCL is opencl_driver.c)."""
    driver = ctypes.CDLL("libOpenCL.so")
    runner = Runner(library, textured, program_cache="off")
    run(runner)
    assert driver.standin_ordered() == 0
    before = driver.standin_finishes()
    for _ in range(5):
        runner.set(0, runner.zeros())
        runner.call("start", 0)
    assert driver.standin_finishes() == before
    runner.call("wait")
    assert driver.standin_finishes() == before + 1
    # Of four copies: each, the runs behind it, and from the third on the program's memory.
    assert driver.standin_ordered() == 4 + 4 + 2
    runner.free()
    assert driver.standin_alive() == 0


def executors_of_their_own(library: Library, parallel: Path) -> None:
    shared = [Runner(library, parallel) for _ in range(2)]
    own = [own_executor(library, parallel) for _ in range(2)]
    for runner in (*shared, *own):
        run(runner)
    settles(lambda: len(runner_threads()), 3 * 2)  # each with a worker
    for runner in (*shared, *own):
        runner.free()
    settles(runner_threads, [])


def threads_that_are_set(library: Library, parallel: Path) -> None:
    def affinities() -> list[set[int]]:
        return [os.sched_getaffinity(task) for task in runner_threads()]

    cores = sorted(os.sched_getaffinity(0))
    first, last = str(cores[0]), str(cores[-1])
    set_threads(library, 1, first)  # before there is an executor
    settles(runner_threads, [])
    runner = Runner(library, parallel)
    run(runner)
    settles(affinities, [{cores[0]}])
    set_threads(library, 2, f"{first},{last}")  # more than before, and after a run
    run(runner)
    settles(affinities, [{cores[0], cores[-1]}] * 2)
    library.refused(USAGE, "no cores", call=lambda: set_threads(library, 1, "x"))
    run(runner)
    settles(affinities, [{cores[0], cores[-1]}] * 2)
    assert sorted(os.sched_getaffinity(0)) == cores
    runner.free()


def asleep(library: Library, parallel: Path) -> None:
    runner = Runner(library, parallel)
    for _ in range(3):
        run(runner)
        time.sleep(0.01)

    def used() -> int:
        return sum(
            int(Path(f"/proc/self/task/{task}/schedstat").read_text().split()[0]) for task in runner_threads()
        )

    settles(lambda: len(runner_threads()), 2)
    first = used()
    time.sleep(0.2)
    assert used() == first


RunDone = ctypes.CFUNCTYPE(None, ctypes.c_void_p, c_int32)


class Ticket:
    """A run of *runner* that was asked for."""

    def __init__(self, runner: Runner, done: Any = None) -> None:
        self.raw, self.handle = runner.library.raw, ctypes.c_void_p()
        runner.call("run_async", 0, done, None, ctypes.byref(self.handle))
        assert self.handle

    def wait(self) -> int:
        status: int = self.raw.adt_ticket_wait(self.handle)
        return status

    def cancel(self) -> None:
        self.raw.adt_ticket_cancel(self.handle)

    def free(self) -> None:
        self.raw.adt_ticket_free(self.handle)


def tickets(library: Library, parallel: Path) -> None:
    runner = Runner(library, parallel)
    calls: list[int] = []
    done = RunDone(lambda data, status: calls.append(status))
    library.refused(USAGE, "no entry 7", call=lambda: runner.call("run_async", 7, done, None, None))
    first = Ticket(runner, done)  # without an input
    assert first.wait() == INPUT == library.raw.adt_last_status()
    assert b"input x" in library.raw.adt_last_error()
    first.free()
    runner.set(0, runner.zeros())
    several = [Ticket(runner, done) for _ in range(20)]
    assert [ticket.wait() for ticket in several] == [OK] * 20
    assert calls == [INPUT, *[OK] * 20]
    for ticket in several:
        ticket.cancel()  # too late
        ticket.free()
    assert not runner.get(0).any()
    runner.call("run_async", 0, done, None, None)
    runner.free()  # waits for it
    assert len(calls) == 22


def cancellation(library: Library, long: Path) -> None:
    runner = Runner(library, long)
    runner.set(0, runner.zeros())
    begun = threading.Event()
    done = RunDone(lambda data, status: begun.set())
    before = Ticket(runner, done)
    running, waiting, last = (Ticket(runner) for _ in range(3))
    waiting.cancel()
    begun.wait()
    time.sleep(0.05)
    running.cancel()
    assert [ticket.wait() for ticket in (before, running, waiting)] == [OK, CANCELLED, CANCELLED]
    assert b"cancelled" in library.raw.adt_last_error()
    assert last.wait() == OK
    assert not runner.get(0).any()
    again = Ticket(runner)
    again.cancel()
    assert again.wait() == CANCELLED
    library.refused(USAGE, "no outputs", call=lambda: runner.get(0))


if __name__ == "__main__":
    main(globals())
