"""Compile one package in a process of its own: ``python kernel_compile.py DIR`` reads ``DIR/job``.

A crash of the compiler then ends this process alone, and several run at once. What adt says
of a model that it cannot compile goes to ``DIR/said``. Where it is wanted, the package is run
once, so that the driver's compiler is done with it, too (the programs stay in adt's cache).
"""

from __future__ import annotations

import contextlib
import pickle
import sys
from dataclasses import dataclass
from pathlib import Path

from adt.api.place import open_place
from adt.api.requests import RemoteRequest
from adt.compiler.compilation import CompileJob
from adt.compiler.compile import compile_model
from adt.device.rtvm import RtvmOptions
from adt.errors import AdtError

JOB, SAID, PACKAGE = "job", "said", "package"


@dataclass(frozen=True)
class Task:
    """What is compiled, and run once if that is wanted."""

    job: CompileJob
    run_once: bool
    bundle: Path | None
    """Whose runner runs it; None: of the one that was built here."""


def main() -> int:
    place = Path(sys.argv[1])
    task: Task = pickle.loads((place / JOB).read_bytes())  # the parent wrote it a moment ago
    try:
        package = compile_model(task.job, place / PACKAGE)
    except AdtError as why:
        (place / SAID).write_text(why.what)
        return 1
    if task.run_once:
        options = RtvmOptions(device=package.manifest.target.device)
        with contextlib.suppress(AdtError):  # the run that is timed says it
            open_place(package, RemoteRequest(package.path, bundle=task.bundle)).place.run(options)
    return 0


if __name__ == "__main__":
    import kernel_compile  # what was pickled is of the module of that name

    sys.exit(kernel_compile.main())
