"""Write what was generated, and again: what the user wrote or edited is never lost.

``.adt-generated.json`` in the output directory has the sha256 of each file that adt wrote there. A file that
still has it may be replaced or removed; one that has not was edited. While files are being written the record
has both, the old one's and the new one's: wherever it was interrupted, the next time finishes it.
"""

from __future__ import annotations

import difflib
import hashlib
import logging
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path, PurePosixPath

from adt import __version__
from adt.errors import PackageError, WouldOverwrite
from adt.host import cache, manifest
from adt.host.contained import UnsafeFile, contained_file, plain_name
from adt.host.disk import disk_errors
from adt.limits import MOST_ARRAY_BYTES


@dataclass(frozen=True)
class TextFile:
    """A file made from a template."""

    path: str
    """Below the output directory, with ``/``."""
    text: str
    users: bool = False
    """It is the user's from then on: written once, and never touched again. What was adt's until now is first
    brought up to date, unless it was edited."""


@dataclass(frozen=True)
class CopiedFile:
    path: str
    source: Path


@dataclass(frozen=True)
class DataFile:
    path: str
    data: bytes


OutputFile = TextFile | CopiedFile | DataFile


log = logging.getLogger("adt.generate")

SCHEMA = "adt.generated"
SCHEMA_VERSION = 1
RECORD = ".adt-generated.json"
IN_THE_WAY = "Move it away, or choose another directory: --out DIR."

Digests = dict[str, tuple[str, ...]]
"""Digests (sha256) of files that adt wrote, by path."""


@dataclass(frozen=True)
class FileRecord:
    adt_version: str
    kind: str
    """Kind of the output: ``cpp``, ``jni``, ``android-app`` or ``aar``."""
    files: Digests = field(default_factory=dict)
    """Digests by path; two of a file that was about to be replaced when the writing was interrupted."""
    schema: str = SCHEMA
    schema_version: int = SCHEMA_VERSION


class FileStep(StrEnum):
    """Step that is taken with one path."""

    CREATE = "create"
    UPDATE = "update"
    """It is as adt wrote it, and changes."""
    SAME = "same"
    KEEP = "keep"
    """It is the user's, and not what adt would write."""
    REMOVE = "remove"
    """It is as adt wrote it, and no longer generated."""
    LEAVE = "leave"
    """It is no longer generated, and was edited: it stays, and is the user's."""
    EDITED = "edited"
    """It is not as adt wrote it; replaced only by force."""
    FOREIGN = "foreign"
    """Something is there that adt did not write; replaced only by force."""


PLACED = (FileStep.CREATE, FileStep.UPDATE, FileStep.EDITED, FileStep.FOREIGN)
"""The steps that write a file; the last two by force only."""


@dataclass(frozen=True)
class FileAction:
    path: str
    step: FileStep
    file: OutputFile | None
    """None: it is no longer generated."""
    sha256: str = ""
    """Digest (sha256) of its new content; empty when it is not adt's."""


@dataclass(frozen=True)
class WritePlan:
    out: Path
    kind: str
    actions: tuple[FileAction, ...]

    def paths(self, *steps: FileStep) -> tuple[str, ...]:
        return tuple(action.path for action in self.actions if action.step in steps)

    @property
    def by_step(self) -> dict[str, tuple[str, ...]]:
        return {step.value: self.paths(step) for step in FileStep}

    @property
    def changes(self) -> bool:
        """Return True if writing by force would change anything."""
        return bool(self.paths(*PLACED, FileStep.REMOVE))


def plan(files: Iterable[OutputFile], out: Path, *, kind: str) -> WritePlan:
    """Plan the steps that make the directory *out* hold *files*, which the record calls *kind*.

    PackageError if *out* is a file, or has what another kind generated, or its record is damaged.
    """
    files = tuple(files)
    _check_paths(files)
    if out.exists() and not out.is_dir():
        raise PackageError(f"{out} is a file", remedy="Choose another directory: --out DIR.")
    before = _recorded(out, kind)
    actions = [_action(file, out, before.get(file.path, ())) for file in files]
    for path in set(before) - {file.path for file in files}:
        if present := _sha256(out, path):
            step = FileStep.REMOVE if present in before[path] else FileStep.LEAVE
            actions.append(FileAction(path, step, None))
    return WritePlan(out, kind, tuple(sorted(actions, key=lambda action: action.path)))


def write(plan: WritePlan, *, force: bool = False) -> None:
    """Do what *plan* says (*force*: to edited files, too); each file appears whole or not at all."""
    if not force:
        _refuse_conflicts(plan)
    for action in plan.actions:
        if action.file is not None:
            _check_place(plan.out, action.path)
    with (
        disk_errors(f"writing {plan.out}", plan.out),
        cache.lock(cache.cache_dir() / "locks" / _digest(str(plan.out.resolve()).encode())),
        ExitStack() as litter,
    ):
        if not plan.out.exists():
            litter.callback(shutil.rmtree, plan.out, ignore_errors=True)
        plan.out.mkdir(parents=True, exist_ok=True)
        before = _recorded(plan.out, plan.kind)
        after: Digests = {action.path: (action.sha256,) for action in plan.actions if action.sha256}
        both = {
            path: tuple(dict.fromkeys((*after.get(path, ()), *before.get(path, ()))))
            for path in sorted(set(after) | set(before))
        }
        if both != before:
            manifest.write(FileRecord(__version__, plan.kind, both), plan.out / RECORD)
        for action in plan.actions:
            if action.step is FileStep.REMOVE:
                _remove(plan.out, action.path)
            elif action.step in PLACED and action.file:
                _place(action.file, plan.out / action.path)
        if after != both:
            manifest.write(FileRecord(__version__, plan.kind, after), plan.out / RECORD)
        litter.pop_all()


def diff(plan: WritePlan) -> str:
    """Return the changes as a unified diff; of files that are no text, only that they differ."""
    return "".join(text for action in plan.actions for text in _diff(plan.out, action))


def _refuse_conflicts(plan: WritePlan) -> None:
    lines = [f"edited: {path}" for path in plan.paths(FileStep.EDITED)]
    lines += [f"not written by adt: {path}" for path in plan.paths(FileStep.FOREIGN)]
    if not lines:
        return
    count = len(lines)
    more = f", and {count - 1} more" * (count > 1)
    raise WouldOverwrite(
        f"{count} file{'s' * (count > 1)} in {plan.out} would be overwritten: {lines[0]}{more}; nothing was "
        "written",
        remedy="See what would change with --dry-run; move your changes into files of your own, or give "
        "--force to lose them.",
        details="\n".join(lines),
    )


def _check_place(out: Path, path: str) -> None:
    """Refuse to write where no file can be, or outside of *out*."""
    place = out / path
    if place.is_dir() and not place.is_symlink():
        raise PackageError(f"{place} is a directory, where a file goes", remedy=IN_THE_WAY)
    for parent in PurePosixPath(path).parents[:-1]:
        if (out / parent).is_symlink():
            raise PackageError(
                f"{out / parent} is a symbolic link, where a directory of files goes", remedy=IN_THE_WAY
            )


def _check_paths(files: Sequence[OutputFile]) -> None:
    seen: set[str] = {RECORD}
    for file in files:
        if not _plain(file.path):
            raise ValueError(f"{file.path!r} is no plain path below the output directory")
        if file.path.lower() in seen:  # some file systems do not tell case
            raise ValueError(f"two files are called {file.path}")
        seen.add(file.path.lower())


def _plain(path: str) -> bool:
    """True if *path* is relative, stays below its directory and has one spelling."""
    with suppress(UnsafeFile):
        return bool(plain_name(path))
    return False


def _recorded(out: Path, kind: str) -> Digests:
    """Return the sha256 of each file that adt wrote to *out*, by path."""
    if not (out / RECORD).exists():
        return {}
    remedy = f"Remove {out / RECORD}; files that differ are then overwritten only with --force."
    record = manifest.load(FileRecord, out / RECORD, schema=SCHEMA, version=SCHEMA_VERSION, remedy=remedy)
    if record.kind != kind:
        raise PackageError(
            f"{out} was generated as {record.kind}, not {kind}",
            remedy="Choose another directory for each: --out DIR.",
        )
    if wrong := [path for path in record.files if not _plain(path)]:
        raise PackageError(f"{out / RECORD} names {wrong[0]!r}, which is not in {out}", remedy=remedy)
    return record.files


def _action(file: OutputFile, out: Path, known: tuple[str, ...]) -> FileAction:
    place = out / file.path
    there = place.is_symlink() or place.exists()
    users = isinstance(file, TextFile) and file.users
    sha256 = cache.file_sha256(file.source) if isinstance(file, CopiedFile) else _digest(_contents(file))
    present = _sha256(out, file.path)
    step = FileStep.KEEP if users else FileStep.EDITED if known else FileStep.FOREIGN
    if not there:
        step = FileStep.CREATE
    elif present == sha256:
        step = FileStep.SAME
    elif present in known:
        step = FileStep.UPDATE
    return FileAction(file.path, step, file, "" if users else sha256)


def _sha256(out: Path, path: str) -> str:
    """Return the sha256 of a file in *out*; empty where there is none, or it is or lies behind a link."""
    with suppress(OSError, UnsafeFile):
        return cache.file_sha256(contained_file(out, path, MOST_ARRAY_BYTES))
    return ""


def _place(file: OutputFile, place: Path) -> None:
    with cache.fresh_file(place) as temporary:
        if isinstance(file, CopiedFile):
            shutil.copyfile(file.source, temporary)
        else:
            temporary.write_bytes(_contents(file))


def _contents(file: TextFile | DataFile) -> bytes:
    return file.text.encode() if isinstance(file, TextFile) else file.data


def _remove(out: Path, path: str) -> None:
    (out / path).unlink(missing_ok=True)
    for parent in (out / path).parents:
        if parent == out or any(parent.iterdir()):
            return
        parent.rmdir()


def _diff(out: Path, action: FileAction) -> Iterator[str]:
    if action.step in (FileStep.SAME, FileStep.KEEP, FileStep.LEAVE):
        return
    place = out / action.path
    file = action.file
    old_name = f"a/{action.path}" if place.is_file() else "/dev/null"
    new_name = f"b/{action.path}" if file is not None else "/dev/null"
    if not isinstance(file, TextFile) and (file is not None or _binary(place)):
        size = file.source.stat().st_size if isinstance(file, CopiedFile) else len(file.data) if file else 0
        yield f"Binary files {old_name} and {new_name} differ{f', {size:,} bytes' if file else ''}\n"
        return
    old = place.read_bytes() if place.is_file() else b""
    before = old.decode(errors="replace").splitlines(keepends=True)
    after = file.text.splitlines(keepends=True) if file else []
    for line in difflib.unified_diff(before, after, old_name, new_name):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _binary(path: Path) -> bool:
    """Return True if it is no text, as git finds it out: there is a zero at its beginning."""
    with path.open("rb") as file:
        return b"\0" in file.read(8192)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
