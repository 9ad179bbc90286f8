"""Compile one candidate to a library: one plain function, and a process around it that may crash or hang."""

from __future__ import annotations

import time
from pathlib import Path

from adt.errors import AdtError, DiskError, last_line
from adt.host.child import Child, ChildDied, ChildHung, Speech, serve
from adt.host.disk import scratch_directory
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

    What TVM, adt's checks of images, or the linker refuse is the candidate's failure, no exception; that a
    disk is full is not its fault.
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
        self._child = Child("adt.tuning.fleet.build_process", speech=SPEECH)
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


if __name__ == "__main__":
    serve(answer, speech=SPEECH, niceness=NICENESS, idle=IDLE_SECONDS)
