"""Builders: processes of this machine or of a Dask cluster, which run this module and compile candidates."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import os
import platform
import queue
import re
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias

import adt
from adt.compiler.cuda_code import find_compiler
from adt.errors import AdtError, ConfigError, DiskError, MismatchError, ToolNotFound, last_line
from adt.host.child import Child, ChildDied, ChildHung, Speech, serve
from adt.host.disk import scratch_directory
from adt.host.extras import install_command, require_tvm
from adt.rpc.wire import parse_address
from adt.tuning.candidates import BuildJob, BuildOutcome, Toolchain
from adt.tuning.records import Failure

LIBRARY = "candidate.so"
SPEECH = Speech(BuildJob | None, BuildOutcome | None)
"""A candidate; None only gets the process ready."""
START_SECONDS = 120.0
"""Seconds that the process may take to import TVM, before its first candidate."""
MAX_BUILDS = 500
"""Candidates after which the process is replaced: TVM does not give back all memory."""


def build(job: BuildJob) -> BuildOutcome:
    """Compile and link the candidate of *job* as `adt compile` does a model's kernels.

    Whatever TVM, adt's checks or the linker raise is the candidate's failure; a full disk is not.
    """
    began = time.perf_counter()
    library, failure, disk = b"", None, None
    try:
        library = _compile(job.module, job.toolchain)
    except DiskError as error:
        disk = error.what, error.remedy, error.details
    except AdtError as error:
        details = error.details.strip().splitlines() or [""]
        failure = Failure("build", f"{error.what}: {details[-1].strip()[:300]}".rstrip(": "))
    except Exception as error:  # TVM raises InternalError, RuntimeError, ValueError, TypeError, …
        failure = Failure("build", f"{type(error).__name__}: {last_line(error):.300}")
    return BuildOutcome(job.id, library, failure, time.perf_counter() - began, disk)


def _compile(module: str, toolchain: Toolchain) -> bytes:
    import tvm

    from adt.compiler.cuda_code import machine_code
    from adt.compiler.link import Linker
    from adt.compiler.passes.lowering import tir_pipeline
    from adt.compiler.passes.records.schedules import load_intrinsics

    load_intrinsics(str(toolchain.target.get("mtriple", "")))
    linker = Linker(Path(toolchain.compiler), toolchain.link_options)
    with (
        tvm.transform.PassContext(opt_level=toolchain.opt_level),
        scratch_directory("candidate") as scratch,
        machine_code(toolchain.cuda),
    ):
        executable = tvm.compile(
            tvm.ir.load_json(module),
            target=tvm.target.Target(toolchain.target),
            tir_pipeline=tir_pipeline(
                toolchain.alignment,
                textures=toolchain.textures,
                buffers=toolchain.device != "cpu" and not toolchain.textures,
            ),
        )
        path = scratch / LIBRARY
        linker.export(executable, path, scratch)
        return path.read_bytes()


class BuildProcess:
    """A process that compiles candidates, replaced when it crashes or hangs. For one thread."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._child = Child("adt.tuning.fleet.builders", speech=SPEECH)
        self._builds = 0

    def build(self, job: BuildJob) -> BuildOutcome:
        """Do as :func:`build`; a compiler that crashes or hangs is the candidate's failure, too."""
        began = time.perf_counter()
        try:
            if self._builds >= MAX_BUILDS:
                self._child.kill()
            if self._child.pid is None:
                self._builds = 0
                self._child.ask(None, START_SECONDS)
            self._builds += 1
            outcome: BuildOutcome = self._child.ask(job, self._timeout)
        except ChildHung:
            failure = Failure("build-timeout", f"it was not built within {self._timeout:g} s")
        except ChildDied as error:
            failure = Failure("build-crash", f"the compiler {error}")
        else:
            return outcome
        return BuildOutcome(job.id, b"", failure, time.perf_counter() - began)

    def close(self) -> None:
        """End the process, whatever it does. For any thread."""
        self._child.close()


NICENESS = 10
"""Priority of builds: measuring on this machine, and the search, come first."""
IDLE_SECONDS = 600.0
"""Seconds without a candidate after which it ends; it is started again when there is one."""


def answer(job: BuildJob | None) -> BuildOutcome | None:
    """Build a candidate; None: only get ready for one."""
    import tvm  # noqa: F401

    return build(job) if job is not None else None


log = logging.getLogger("adt.tune")

TIMEOUT = 60.0
"""Seconds for one candidate."""


class LocalBuilders:
    """Processes that compile candidates here; one that crashes or hangs is replaced, its candidate failed."""

    def __init__(self, workers: int, *, timeout: float = TIMEOUT) -> None:
        self.workers = workers
        """Number of builds that can run at once."""
        self._closed = threading.Event()
        self._processes = [BuildProcess(timeout) for _ in range(workers)]
        self._idle: queue.SimpleQueue[BuildProcess] = queue.SimpleQueue()
        for process in self._processes:
            self._idle.put(process)
        self._pool = ThreadPoolExecutor(workers, "adt-builder")  # no daemons: who makes builders closes them

    def submit(self, job: BuildJob, done: Callable[[BuildOutcome], None]) -> None:
        """Compile *job* some time, then call *done* in some thread: once, unless closed before."""
        self._pool.submit(self._build, job, done)

    def close(self) -> None:
        """End all processes, and give up what was not compiled; idempotent."""
        self._closed.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        with ThreadPoolExecutor(self.workers) as pool:
            list(pool.map(BuildProcess.close, self._processes))  # what one raises
        self._pool.shutdown()

    def _build(self, job: BuildJob, done: Callable[[BuildOutcome], None]) -> None:
        process = self._idle.get()
        try:
            outcome = process.build(job)
        except Exception:  # nobody asks the future
            log.exception("a builder failed")
            raise
        finally:
            self._idle.put(process)
        if not self._closed.is_set():
            done(outcome)


def make_builders(builders: str, toolchain: Toolchain, *, timeout: float = TIMEOUT) -> Builders:
    """Make builders: a number of processes (empty: of CPUs), or those of the Dask scheduler at an address."""
    if "://" in builders:
        return DaskBuilders(builders, toolchain, timeout=timeout)
    if builders and not re.fullmatch("[1-9][0-9]{0,5}", builders):
        raise ConfigError(
            f"--builders {builders[:80]!r} is neither a number of processes nor an address",
            remedy="Say --builders 4, or --builders dask://127.0.0.1:8786 for a Dask cluster.",
        )
    return LocalBuilders(int(builders) if builders else len(os.sched_getaffinity(0)), timeout=timeout)


ANSWER_SECONDS = 10.0
"""Seconds in which a scheduler must answer."""
COUNT_SECONDS = 2.0
"""Seconds after which the workers are counted anew."""
THREAD = threading.local()
"""On a worker: the process that this thread compiles in."""


class DaskBuilders:
    """Builders on the workers of the user's Dask cluster: as many at once as those have threads, now.

    Each thread compiles in a :class:`BuildProcess`: a candidate that crashes or hangs the compiler takes no
    worker along.
    """

    def __init__(self, address: str, toolchain: Toolchain, *, timeout: float) -> None:
        """Connect to the scheduler *address*; a candidate may take *timeout* seconds."""
        self._timeout = timeout
        self._lock = threading.Lock()
        self._closed = False
        self._futures: dict[int, Any] = {}
        self._counted_at = 0.0
        self._workers = 0
        self._client = _connect(address)
        try:
            _check(self._client.run(_facts, toolchain), address)
        except BaseException:
            self.close()
            raise

    @property
    def workers(self) -> int:
        """Threads of all workers."""
        now = time.monotonic()
        if now - self._counted_at > COUNT_SECONDS:
            with contextlib.suppress(Exception):  # the scheduler is being restarted: as many as before
                self._workers = sum(self._client.nthreads().values())
            self._counted_at = now
        return self._workers

    def submit(self, job: BuildJob, done: Callable[[BuildOutcome], None]) -> None:
        """Have a worker compile *job*."""
        # pure: Dask would take equal jobs for one. Retries are for lost workers: a compiler's crash is none.
        future = self._client.submit(_build, job, self._timeout, pure=False)
        with self._lock:
            self._futures[job.id] = future

        def ended(future: Any) -> None:
            with self._lock:
                if self._closed or self._futures.pop(job.id, None) is None:
                    return
            done(_outcome(job, future))

        future.add_done_callback(ended)

    def close(self) -> None:
        """Take back what was not compiled, and disconnect; the cluster stays."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            futures = list(self._futures.values())
        with contextlib.suppress(Exception):  # nobody may be there any more
            self._client.cancel(futures, force=True)
        self._client.close(timeout=2)


Builders: TypeAlias = LocalBuilders | DaskBuilders


def _build(job: BuildJob, timeout: float) -> BuildOutcome:
    """Compile *job* on a worker, in this thread's process."""
    if not hasattr(THREAD, "process"):
        THREAD.process = BuildProcess(timeout)
    process: BuildProcess = THREAD.process
    return process.build(job)


def _outcome(job: BuildJob, future: Any) -> BuildOutcome:
    """Return the outcome in *future*; an error of Dask's is the candidate's failure: the tuning goes on."""
    try:
        if future.cancelled():
            raise RuntimeError("the scheduler dropped it")
        outcome: BuildOutcome = future.result(timeout=ANSWER_SECONDS)
    except Exception as error:  # KilledWorker, CommClosedError, what unpickling raises, …
        message = f"Dask: {type(error).__name__}: {error}"[:300]
        return BuildOutcome(job.id, b"", Failure("build-crash", message), 0.0)
    return outcome


def _facts(toolchain: Toolchain) -> dict[str, Any]:
    """Collect, on a worker, the facts that must be as they are here."""
    paths = [toolchain.compiler, *([toolchain.cuda.plugin] if toolchain.cuda else [])]
    missing = [path for path in paths if not (shutil.which(path) or os.path.exists(path))]  # noqa: PTH110
    if toolchain.cuda is not None:
        try:
            find_compiler(toolchain.cuda.arch)
        except ToolNotFound:
            missing.append("a compiler of CUDA (NVRTC or nvcc)")
    return {"versions": _versions(), "missing": missing}


def _versions() -> dict[str, str]:
    python = ".".join(platform.python_version_tuple()[:2])
    return {"adt": adt.__version__, "TVM": require_tvm(), "Python": python}


def _connect(address: str) -> Any:
    try:
        import distributed
    except ImportError as error:
        raise ToolNotFound(
            f"--builders {address} takes Dask, which is not installed", remedy=install_command(extra="dask")
        ) from error
    scheme, _, place = address.partition("://")
    try:
        host, _ = parse_address(place if scheme in ("dask", "tcp", "tls") else "")
    except ConfigError as error:
        raise ConfigError(
            f"--builders {address} is no address of a Dask scheduler",
            remedy="Say --builders dask://HOST:PORT; `dask scheduler` prints its address when it starts.",
        ) from error
    if scheme != "tls" and not _is_loopback(host):
        log.warning(
            "%s is not on this machine: whoever answers there can run anything here, and whoever reaches it "
            "anything on its workers; use tls:// or a tunnel",
            place,
        )
    url = address if scheme == "tls" else f"tcp://{place}"
    logging.getLogger("distributed").setLevel(logging.ERROR)  # it logs each lost connection with a traceback
    try:
        client = distributed.Client(url, timeout=ANSWER_SECONDS, set_as_default=False, name="adt-tune")
    except (OSError, TimeoutError, ValueError) as error:
        raise ConfigError(
            f"no Dask scheduler answers at {url}: {error}",
            remedy="Start one: `dask scheduler --host 127.0.0.1`, and `dask worker ADDRESS --nworkers 4 "
            "--nthreads 1` on each machine, in an environment with this adt.",
        ) from error
    return client


def _check(workers: Mapping[str, Mapping[str, Any]], address: str) -> None:
    """Check that every worker can build what this machine would."""
    if not workers:
        raise ConfigError(
            f"the Dask scheduler at {address} has no workers",
            remedy=f"dask worker {address.replace('dask://', 'tcp://')} --nworkers 4 --nthreads 1",
        )
    ours = _versions()
    for worker, facts in sorted(workers.items()):
        for name, version in ours.items():
            if facts["versions"][name] != version:
                raise MismatchError(
                    f"the Dask worker {worker} has {name} {facts['versions'][name]}, this machine {version}",
                    remedy="Start the workers in an environment with the same adt, TVM and Python.",
                )
        if facts["missing"]:
            raise ToolNotFound(
                f"the Dask worker {worker} lacks {', '.join(facts['missing'])}",
                remedy="Candidates are linked there as here: the compiler and the bundle must be at the same "
                "paths, for example on a shared file system.",
            )


def _is_loopback(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


if __name__ == "__main__":
    serve(answer, speech=SPEECH, niceness=NICENESS, idle=IDLE_SECONDS)
