"""Records of other databases are added, each once, and published as one file; old ones are removed.

A published file is a ``.tar.gz`` of one entry, ``records.jsonl`` (:mod:`adt.tuning.records`): the same bytes
for the same records. Serial numbers, the tuning, and what failed programs printed are left out.
"""

from __future__ import annotations

import gzip
import shlex
import tarfile
import zlib
from collections.abc import Container, Hashable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path

from adt.errors import ConfigError, DownloadError, PackageError
from adt.host.cache import file_sha256, fresh_file
from adt.host.contained import DAMAGED, Bounded, write_file
from adt.host.disk import disk_errors, scratch_directory
from adt.host.document import FLAT
from adt.host.download import check_digest, download, is_address
from adt.tuning.database.contents import MOST_BYTES, Contents, Selection, file_of, load, load_lines, select
from adt.tuning.database.sqlite_file import repair_remedy
from adt.tuning.database.store import writing
from adt.tuning.records import (
    BASELINE,
    HEADER,
    LINES,
    CandidateKey,
    Context,
    Record,
    Workload,
    fastest_candidates,
    line,
    quarantined_candidates,
    record_row,
    workload_row,
)


@dataclass(frozen=True)
class MergeResult:
    """Result of a merge: numbers of what was added."""

    into: Path
    workloads: int
    records: int
    duplicates: int
    """Records that were there already."""
    passed_over: int
    """Rows of the sources that are damaged, and records whose workload is missing."""


def merge(sources: Sequence[Path], into: Path) -> MergeResult:
    """See :func:`adt.verbs.db.db_merge`; an interruption leaves *into* as it was."""
    contents = []
    for source in sources:
        if source.resolve() == into.resolve():
            raise ConfigError(f"{into} cannot be merged into itself", remedy="Name others before --into.")
        contents.append(load(source))
        if refused := contents[-1].refused():
            raise PackageError(f"{source} is not merged: {refused[0][1]}", remedy=repair_remedy(source))
    return merge_contents(contents, into)


def merge_contents(sources: Sequence[Contents], into: Path) -> MergeResult:
    """Do as :func:`merge`, with databases that were read and may be applied."""
    with writing(into) as (target, writer):
        ids = {workload.id: workload.id for workload in target.workloads.values()}
        """The id under which each workload is, or now comes to be, in the database."""
        alike: dict[tuple[str, str], list[Workload]] = {}
        for workload in target.workloads.values():
            alike.setdefault((workload.tvm, workload.structural_hash), []).append(workload)
        workloads = []
        for workload in (each for source in sources for each in source.workloads.values()):
            if workload.id not in ids:
                equals = alike.setdefault((workload.tvm, workload.structural_hash), [])
                ids[workload.id] = next((o.id for o in equals if _is_same(workload, o)), workload.id)
                if ids[workload.id] == workload.id:
                    equals.append(workload)
                    workloads.append(workload)
        records = [replace(r, workload=ids[r.workload]) for source in sources for r in source.records]
        new = new_records(records, target.records)
        rows = [*map(workload_row, workloads), *map(record_row, new)]
        if rows:
            writer.add(rows)
    passed_over = sum(len(source.damaged) + len(source.orphans) for source in sources)
    return MergeResult(into, len(workloads), len(new), len(records) - len(new), passed_over)


def new_records(records: Iterable[Record], known: Iterable[Record]) -> list[Record]:
    """Return those of *records* that are not *known*, each once."""
    seen = set(map(_measurement, known))
    new: dict[Hashable, Record] = {}
    for record in records:
        new.setdefault(_measurement(record), record)
    return [record for measurement, record in new.items() if measurement not in seen]


def _measurement(record: Record) -> Hashable:
    """Return the key of a measurement; its database and tuning are no part of it."""
    return record.workload, record.context, record.trace, record.at, record.seconds, record.failure is None


def _is_same(workload: Workload, other: Workload) -> bool:
    """Return True if two workloads of equal hash are the same; only this needs TVM."""
    from adt.compiler.passes.records.workload import same
    from adt.tuning.database.store import modules_of

    modules = modules_of((workload, other))
    return None not in modules and same(*modules)


@dataclass(frozen=True)
class PruneResult:
    """Result of a pruning, or of its rehearsal."""

    path: Path
    applied: bool
    removed: int
    """Records."""
    kept: int
    workloads_removed: int
    """Number of workloads of which no record is left."""
    contexts: tuple[Context, ...]
    """Contexts that were looked at."""
    backup: Path | None
    """The state before; None when nothing was changed."""


def prune(
    directory: Path,
    *,
    keep: int | None = None,
    failures: bool = False,
    drop: bool = False,
    selection: Selection | None = None,
    dry_run: bool = False,
) -> PruneResult:
    """See :func:`adt.verbs.db.db_prune`; untuned schedules stay, and all of what must not run again."""
    selection = selection or Selection()
    if not drop and keep is None and not failures:
        raise ConfigError(
            "nothing was named that should go", remedy="Give --keep K, --failures, or --drop with --device."
        )
    if drop and selection == Selection():
        raise ConfigError(
            "--drop would take out every record",
            remedy="Say of what: --device, --driver, --target, --tvm. To be rid of all, remove it.",
        )
    file_of(directory)  # only what is there is pruned
    removed: set[int] = set()
    with nullcontext((load(directory), None)) if dry_run else writing(directory) as (contents, writer):
        contexts = select(contents.contexts, selection)
        for context in contexts:
            rows = [(number, record) for number, record in contents.rows if record.context == context]
            slow = set() if keep is None else _slow_candidates([record for _, record in rows], keep)
            for number, record in rows:
                failed = failures and record.failure is not None and not record.failure.quarantined
                if drop or failed or (record.workload, record.trace) in slow:
                    removed.add(number)
        used = {record.workload for number, record in contents.rows if number not in removed}
        unused = {number for name, number in contents.workload_numbers.items() if name not in used}
        backup = writer.remove(removed | unused) if writer and removed | unused else None
    kept = len(contents.rows) - len(removed)
    return PruneResult(directory, not dry_run, len(removed), kept, len(unused), contexts, backup)


def _slow_candidates(records: Sequence[Record], keep: int) -> set[CandidateKey]:
    """Return the candidates of one context that may run, and are none of their workload's *keep* fastest."""
    spared = fastest_candidates(records, keep) | quarantined_candidates(records)
    return {(r.workload, r.trace) for r in records if r.seconds and r.trace != BASELINE} - spared


MAX_PACKED_BYTES = 1 << 30
"""Bytes of a published file."""
COMPRESSION_LEVEL = 6
"""Level of the compression: with another one the same records would be other bytes."""


@dataclass(frozen=True)
class PublishResult:
    path: Path
    sha256: str
    size: int
    """Bytes."""
    workloads: int
    records: int
    contexts: tuple[Context, ...]


@dataclass(frozen=True)
class FetchResult:
    sha256: str
    merged: MergeResult = field(metadata=FLAT)


def publish(
    directory: Path, out: Path, *, keep: int | None = None, selection: Selection | None = None
) -> PublishResult:
    """Publish *directory*; see :func:`adt.verbs.db.db_publish`. *out* appears complete or not at all."""
    if not out.name.endswith(".tar.gz"):
        raise ConfigError(f"{out} is not named as an archive", remedy="Give -o NAME.tar.gz")
    contents = load(directory)
    if contents.damaged or contents.orphans or contents.refused():
        raise PackageError(
            f"{directory} is damaged, and is not published so", remedy=repair_remedy(directory)
        )
    contexts = select(contents.contexts, selection or Selection())
    records = sorted(_public_records(contents, contexts, keep), key=_order)
    if not records:
        raise ConfigError(
            f"{directory} has no records to publish" + (" of what was asked for" if contents.records else ""),
            remedy=f"Look at what is there: adt db stats {shlex.quote(str(directory))}",
        )
    names = sorted({record.workload for record in records})
    with scratch_directory("publish") as scratch, disk_errors(f"writing {out}", out):
        plain = scratch / LINES
        with plain.open("wb") as file:
            file.write(HEADER)
            file.writelines(line(workload_row(contents.workloads[name])) for name in names)
            file.writelines(line(record_row(record)) for record in records)
        _pack(plain, out)
    used = tuple(context for context in contexts if any(r.context == context for r in records))
    return PublishResult(out, file_sha256(out), out.stat().st_size, len(names), len(records), used)


def _public_records(contents: Contents, contexts: Iterable[Context], keep: int | None) -> Iterator[Record]:
    for context in contexts:
        records = [record for record in contents.records if record.context == context]
        if keep is not None:
            fastest = fastest_candidates(records, keep)
            records = [record for record in records if _is_public(record, fastest)]
        devices: dict[str, str] = {}
        for record in records:
            on = record.on
            if on:
                on = replace(on, name=devices.setdefault(on.name, f"device-{len(devices) + 1}"))
            failure = record.failure and replace(record.failure, message="")
            yield replace(record, on=on, failure=failure, run="")


def _is_public(record: Record, fastest: Container[CandidateKey]) -> bool:
    """Return True if others get *record* when they get only the fastest: that, and what must not run."""
    if record.failure:
        return record.failure.quarantined
    return record.trace == BASELINE or (record.workload, record.trace) in fastest


def _order(record: Record) -> tuple[object, ...]:
    return (*astuple(record.context), record.workload, record.trace, record.at, record.seconds)


def _pack(plain: Path, out: Path) -> None:
    with (
        fresh_file(out) as temporary,
        temporary.open("wb") as file,
        gzip.GzipFile("", "wb", COMPRESSION_LEVEL, file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        member = tarfile.TarInfo(LINES)
        member.size, member.mode = plain.stat().st_size, 0o644
        with plain.open("rb") as source:
            tar.addfile(member, source)


def fetch(source: str, into: Path, *, sha256: str = "") -> FetchResult:
    """See :func:`adt.verbs.db.db_fetch`."""
    if is_address(source):
        if not sha256:
            raise ConfigError(
                f"{source} could be anything: its sha256 is missing",
                remedy="Give --sha256; `adt db publish` printed it.",
            )
        archive = download(source, sha256, most_bytes=MAX_PACKED_BYTES)
        digest = sha256.lower()
    else:
        archive, digest = _local(Path(source), into, sha256)
    with scratch_directory("fetch") as scratch:
        _unpack(archive, scratch / LINES)
        contents = load_lines(scratch / LINES)
    if contents.damages or contents.orphans:
        raise _refusal(archive, "its records are damaged")
    if refused := contents.refused():
        raise _refusal(archive, refused[0][1])
    return FetchResult(digest, merge_contents([contents], into))


def _local(archive: Path, into: Path, sha256: str) -> tuple[Path, str]:
    if archive.is_dir():
        command = shlex.join(("adt", "db", "merge", str(archive), "--into", str(into)))
        raise PackageError(f"{archive} is a directory", remedy=f"A database is added with: {command}")
    if not archive.is_file():
        raise PackageError(f"there is no file {archive}", remedy="Give the file that `adt db publish` wrote.")
    if sha256:
        check_digest(sha256)
    with disk_errors(f"reading {archive}", archive, written=False):
        digest = file_sha256(archive)
    if sha256 and digest != sha256.lower():
        raise DownloadError(
            f"{archive} has sha256 {digest}, expected {sha256.lower()}",
            remedy="It is not the file that was meant: do not use it; ask who published it.",
        )
    return archive, digest


def _unpack(archive: Path, to: Path) -> None:
    """Write the one entry of *archive* to *to*; no name, mode or size in it is trusted."""
    try:
        with (
            gzip.open(archive, "rb") as packed,
            Bounded(packed) as bounded,
            tarfile.open(fileobj=bounded, mode="r:") as tar,
        ):
            member = tar.next()
            if member is None or member.name != LINES:
                raise _refusal(archive, f"its first entry is not {LINES}")
            if member.size > MOST_BYTES:
                raise _refusal(archive, f"it would unpack to more than {MOST_BYTES >> 30} GiB")
            write_file(tar, member, to.parent, to.name)
            if tar.next() is not None:
                raise _refusal(archive, "it has more than one entry")
    except (*DAMAGED, gzip.BadGzipFile, zlib.error) as error:
        raise _refusal(archive, f"it is no .tar.gz, or is damaged: {error}") from error


def _refusal(archive: Path, reason: str) -> PackageError:
    return PackageError(
        f"{archive} is no published tuning database: {reason}; nothing of it was used",
        remedy="Get it again from who published it, with its sha256.",
    )
