"""Workloads and records of a tuning, made up: nothing was measured."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from adt.compiler.passes.records.traces import canonical
from adt.tuning.database.sqlite_file import FILE
from adt.tuning.database.store import open_database
from adt.tuning.records import BASELINE, Context, Failure, MeasuredOn, Record, Workload

CONTEXT = Context(
    '{"device":"adreno","kind":"opencl","textures":true}', "0.25.0", "Adreno (TM) 650", "V@0502.0"
)
OTHER = Context('{"arch":"aarch64","kind":"llvm","mcpu":"cortex-a76"}', "0.25.0", "SM8250", "")
SERIAL = "serial-R58M12ABCDE"


def workload(name: str = "conv") -> Workload:
    text = json.dumps({"root_index": 0, "nodes": [{"type": "ffi.String", "data": name}]})
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Workload(digest[:32], str(int(digest[:16], 16)), "0.25.0", text)


def record(
    trace: str = "t",
    ms: float | None = 1.0,
    *,
    of: Workload | None = None,
    context: Context = CONTEXT,
    failed: str = "",
    at: float = 1.0,
    run: str = "run",
    serial: str = SERIAL,
    options: Mapping[str, Any] | None = None,
) -> Record:
    """Return a candidate that took *ms* milliseconds, or *failed*; trace "" is the untuned schedule."""
    seconds = () if failed or ms is None else (ms / 1000,)
    failure = Failure(failed, f"/home/somebody/{trace}: it did not work") if failed else None
    on = MeasuredOn(serial, "Pixel 7", 41.5)
    return Record(
        (of or workload()).id, context, "conv", trace, seconds, failure, on, run, at, dict(options or {})
    )


def applicable(name: str = "t", ms: float | None = 1.0, **how: Any) -> Record:
    """Return a record of a trace that may be applied (and fits no workload); empty: the untuned one."""
    trace = canonical(json.dumps([[["GetSBlock", [], [name, "main"], ["b0"]]], []])) if name else BASELINE
    return record(trace, ms, **how)


def name_of(record: Record) -> str:
    """Return the name with which :func:`applicable` was called."""
    return str(json.loads(record.trace)[0][0][2][0]) if record.trace else ""


def baseline(ms: float, **how: Any) -> Record:
    return record(BASELINE, ms, **how)


def database_in(
    directory: Path, records: Iterable[Record], workloads: Sequence[Workload] = (workload(),)
) -> Path:
    """Make or extend the database in *directory*; return its file."""
    with open_database(directory, write=True) as database:
        database.add(list(records), workloads)
    return directory / FILE


def records_in(directory: Path) -> list[Record]:
    with open_database(directory) as database:
        return list(database.records())


def edit(path: Path, old: bytes, new: bytes) -> None:
    """Damage a file."""
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new))


@contextmanager
def running(program: str, *arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    """Run the Python *program*, which knows what this process does, and kill it at the end."""
    with subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def printed(process: subprocess.Popen[bytes]) -> str:
    """Return the next line that *process* prints."""
    assert process.stdout is not None
    return process.stdout.readline().decode().strip()
