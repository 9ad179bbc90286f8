"""Records in the two JSON files of MetaSchedule's own database, for and from other programs.

``database_workload.json`` has lines ``[hash, base64 of the module]``, ``database_tuning_record.json`` lines
``[workload's line, [trace, seconds, target, arguments]]``. They do not tell the device, nor TVM's version but
inside a module's text.
"""

from __future__ import annotations

import base64
import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tvm.s_tir import meta_schedule
from tvm.target import Target

from adt.compiler.passes.records.key import target_key, tvm_key, tvm_version
from adt.compiler.passes.records.traces import TraceError, canonical
from adt.compiler.passes.records.workload import workload
from adt.compiler.targets.target import ModelTarget
from adt.errors import PackageError, last_line
from adt.host.cache import fresh_dir, leave_alone
from adt.host.contained import open_contained
from adt.host.disk import disk_errors
from adt.package.graphs import read_graphs
from adt.tuning.database.changes import new_records
from adt.tuning.database.contents import MOST_BYTES, Selection, select_one
from adt.tuning.database.store import modules_of, open_database
from adt.tuning.records import BASELINE, Context, Failure, Record, Workload, by_candidate, typical_record

log = logging.getLogger("adt.tune")

WORKLOADS, RECORDS = "database_workload.json", "database_tuning_record.json"
FAILED_SECONDS = 1e10
"""Seconds that MetaSchedule writes for a candidate that failed."""


@dataclass(frozen=True)
class ExportResult:
    out: Path
    context: Context
    workloads: int
    records: int


@dataclass(frozen=True)
class ImportResult:
    into: Path
    contexts: tuple[Context, ...]
    workloads: int
    """Different ones, of the files."""
    records: int
    duplicates: int
    """Records that were there already."""
    refused: tuple[str, ...]
    """Reasons why lines were passed over, each with its number."""


def export(directory: Path, out: Path, selection: Selection, *, failures: bool = False) -> ExportResult:
    """See :func:`adt.verbs.db.db_export`; *out* appears complete or not at all.

    Each candidate is written once; one that must not run again has no time, and untuned schedules no place.
    """
    leave_alone(out, lambda place: (place / WORKLOADS).is_file(), "a database of MetaSchedule")
    with open_database(directory) as database:
        context = select_one(database.contexts(), selection)
        records = _exported_records(database.records(context), failures)
        names = dict.fromkeys(record.workload for record in records)
        lines = list(_workload_lines(database.workloads[name] for name in names))
    numbers = {name: number for number, (name, _, _) in enumerate(lines)}
    records = [record for record in records if record.workload in numbers]
    target = _tvm_target(context.target)
    with fresh_dir(out) as place:
        (place / WORKLOADS).write_text("".join(text for _, text, _ in lines))
        with (place / RECORDS).open("w") as file:
            for record in records:
                index = numbers[record.workload]
                *_, arguments = lines[index]
                seconds = list(record.seconds) or [FAILED_SECONDS]
                row = [index, [json.loads(record.trace), seconds, target, arguments]]
                file.write(json.dumps(row, separators=(",", ":")) + "\n")
    return ExportResult(out, context, len(lines), len(records))


def _exported_records(records: Sequence[Record], failures: bool) -> list[Record]:
    """Select one record for each candidate: its typical time, or that it failed or must not run."""
    exported = []
    for (_, trace), measured in by_candidate(records).items():
        if trace == BASELINE:
            continue
        failed = next((record for record in measured if record.failure), None)
        if row := typical_record(measured) or (failed if failures else None):
            exported.append(row)
    return exported


def _workload_lines(workloads: Iterable[Workload]) -> Iterator[tuple[str, str, list[Any]]]:
    """Yield id, line and arguments of each workload that this TVM can read; warn of the others."""
    recorded = tuple(workloads)
    for each, module in zip(recorded, modules_of(recorded), strict=True):
        if module is not None:
            text = json.dumps(meta_schedule.database.Workload(module).as_json()) + "\n"
            arguments = meta_schedule.arg_info.ArgInfo.from_prim_func(module["main"])
            yield each.id, text, [argument.as_json() for argument in arguments]


def _tvm_target(key: str) -> dict[str, Any] | None:
    """Build TVM's target from the key of a context; None where TVM knows none."""
    try:
        facts = json.loads(key)
    except ValueError:
        return None
    if facts.get("kind") == "llvm" and (arch := facts.pop("arch", "")):
        facts["mtriple"] = f"{arch}-unknown-linux-gnu"
    if facts.pop("textures", False):
        facts["keys"] = [facts.get("device", ""), "opencl", "gpu", "texture"]
    try:
        exported: dict[str, Any] = json.loads(str(Target({k: v for k, v in facts.items() if v != ""})))
    except Exception as error:  # whatever TVM's parser raises
        log.debug("no target of TVM for %s: %s", key, error)
        return None
    return exported


def import_records(
    files: Path, into: Path, *, device: str, driver: str = "", target: str = ""
) -> ImportResult:
    """Import *files*; see :func:`adt.verbs.db.db_import`. An empty *target* is each record's own."""
    refused: list[str] = []
    with disk_errors(f"reading {files}", files, written=False):
        modules = _modules(list(_rows(files / WORKLOADS, refused)), refused)
        rows = list(_rows(files / RECORDS, refused))
    if rows and not any(modules):
        raise PackageError(
            f"{files / WORKLOADS} has no workload that this TVM can read",
            remedy="Export it again with the TVM that wrote it, or compile with that version.",
            details="\n".join(refused[:10]),
        )
    origin = Context(target, "", device, driver)
    with open_database(into, write=True) as database:
        names = [(database.workload_id(item[0]), item[1]) if item else None for item in modules]
        records: list[Record] = []
        for number, row in rows:
            try:
                if row is not None:
                    records.append(_record(row, names, origin))
            except (ValueError, TypeError, IndexError, KeyError, TraceError) as error:
                refused.append(f"{RECORDS} line {number}: {last_line(error)}")
        new = new_records(records, database.records())
        database.add(new)
    contexts = tuple(dict.fromkeys(record.context for record in new))
    different = len({name[0] for name in names if name})
    return ImportResult(into, contexts, different, len(new), len(records) - len(new), tuple(refused))


def _rows(path: Path, refused: list[str]) -> Iterator[tuple[int, Any]]:
    if not os.path.lexists(path):
        raise PackageError(
            f"there is no {path}", remedy=f"Give the directory with {WORKLOADS} and {RECORDS}."
        )
    with open_contained(path.parent, path.name, MOST_BYTES) as file:
        for number, text in enumerate(file, 1):
            try:
                yield number, json.loads(text)
            except (ValueError, RecursionError):
                refused.append(f"{path.name} line {number}: it is no JSON")
                yield number, None


def _modules(rows: Sequence[tuple[int, Any]], refused: list[str]) -> list[tuple[Any, str] | None]:
    """Read workload and TVM version of each line; None for a bad line, with the reason in *refused*."""
    texts = [_module_text(row) for _, row in rows]
    modules: list[tuple[Any, str] | None] = []
    for (number, row), text, module in zip(rows, texts, read_graphs(texts), strict=True):
        try:
            if isinstance(module, Exception):
                raise module
            (name,) = (variable.name_hint for variable in module.get_global_vars())
            version = json.loads(text).get("metadata", {}).get("tvm_version")
            modules.append((workload(module[name]), tvm_version(version) if version else tvm_key()))
        except Exception as error:  # what is no module, has several functions, or has none
            modules.append(None)
            if row is not None:  # else its reason is there already
                refused.append(f"{WORKLOADS} line {number}: {last_line(error)}")
    return modules


def _module_text(row: Any) -> str:
    """Return TVM's JSON in a line ``[hash, base64]``; empty where there is none."""
    try:
        data = base64.b64decode(row[1])
        return data[data.index(b"{") : data.rindex(b"}") + 1].decode()
    except (TypeError, LookupError, ValueError):
        return ""


def _record(row: Any, names: Sequence[tuple[str, str] | None], origin: Context) -> Record:
    """Return the record of a line, with the *origin* that files do not tell; its target may be empty."""
    index, (trace, seconds, its_target, _) = row
    workload = names[index] if index >= 0 else None
    if workload is None:
        raise ValueError(f"its workload, line {index + 1}, could not be read")
    if not trace[0]:
        raise ValueError("its trace has no step: it is the untuned schedule, or was never one")
    times = tuple(float(value) for value in seconds or ())
    if not times:
        raise ValueError("it has no times")
    failed = any(not 0 < value < FAILED_SECONDS for value in times)
    return Record(
        workload=workload[0],
        context=replace(origin, target=origin.target or _key(its_target), tvm=workload[1]),
        task="main",
        trace=canonical(json.dumps(trace)),
        seconds=() if failed else times,
        failure=Failure("run", "MetaSchedule recorded no time") if failed else None,
        on=None,
        run="",
        at=0,  # unknown, and the same when they are imported again
    )


def _key(target: Mapping[str, Any] | None) -> str:
    if not target:
        raise ValueError("it does not say for which target: give --target")
    device = "cpu" if target["kind"] == "llvm" else str(target["kind"])
    textures = "texture" in target.get("keys", ())
    return target_key(ModelTarget("", device, dict(target), (), textures))
