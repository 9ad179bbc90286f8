"""A tuning database is whole after an interruption at any byte, after damage and on a full disk."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from adt.errors import Busy, DiskError, PackageError
from adt.tuning import journal
from adt.tuning.database import open_database
from adt.tuning.verifying import verify
from tuning_records import applicable, baseline, workload

RECORDS = [baseline(2.0), applicable("a", 1.0, at=2), applicable("b", failed="crash", at=3)]


def made(directory: Path) -> Path:
    """A database of one workload and three records; returns its journal."""
    with open_database(directory, write=True) as database:
        database.add(RECORDS[:1], [workload()])
        for one in RECORDS[1:]:
            database.add([one])
    return directory / "records.jsonl"


@pytest.fixture
def in_memory() -> Iterator[Path]:
    """A directory that is on no disk: thousands of databases are opened in it."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        yield Path(directory)


def test_what_was_added_is_read(tmp_path: Path) -> None:
    made(tmp_path / "db")
    with open_database(tmp_path / "db") as database:
        assert list(database.records()) == RECORDS
        assert dict(database.workloads) == {workload().id: workload()}


def test_cut_off_at_every_byte(in_memory: Path) -> None:
    path = made(in_memory / "db")
    whole = path.read_bytes()
    ends = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        expected = RECORDS[: max(0, sum(end <= size for end in ends) - 2)]
        with open_database(in_memory / "db") as database:
            assert list(database.records()) == expected, size
        if size % 10 == 0:
            assert verify(in_memory / "db").passed, size
        assert path.stat().st_size == size, "reading changes nothing"
        with open_database(in_memory / "db", write=True) as database:
            assert list(database.records()) == expected, size
            database.add(RECORDS, [workload()])
        if size % 10 == 0:
            with open_database(in_memory / "db") as database:
                assert list(database.records()) == expected + RECORDS, size


def test_what_is_cut_off_is_kept_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = made(tmp_path / "db")
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    with open_database(tmp_path / "db", write=True):
        pass
    (aside,) = (tmp_path / "db/backup").iterdir()
    assert path.read_bytes() + aside.read_bytes() == whole[:-5]
    assert str(aside) in caplog.text


def test_every_flipped_byte_of_a_line_costs_that_line_only(
    in_memory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = made(in_memory / "db")
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    start = len(b"".join(lines[:3]))
    for place in range(start, start + len(lines[3]) - 1):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with open_database(in_memory / "db") as database:
            assert list(database.records()) == [RECORDS[0], RECORDS[2]], place
    assert "damaged in line 4" in caplog.text


def test_verify_finds_and_repairs_damage(tmp_path: Path) -> None:
    path = made(tmp_path / "db")
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    damaged = lines[3].replace(b"0.001", b"0.002")
    assert damaged != lines[3]
    path.write_bytes(b"".join((*lines[:3], damaged, lines[4])))

    found = verify(tmp_path / "db")

    assert [(one.offset, one.size) for one in found.findings] == [(len(b"".join(lines[:3])), len(lines[3]))]
    assert "line 4" in found.findings[0].what
    repaired = verify(tmp_path / "db", repair=True)
    assert repaired.passed
    assert repaired.taken_out is not None and repaired.taken_out.read_bytes() == damaged
    assert path.read_bytes() == b"".join((*lines[:3], lines[4]))


def test_a_record_without_its_workload_is_found_and_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = made(tmp_path / "db")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join((lines[0], lines[2], lines[3])))
    with open_database(tmp_path / "db") as database:
        assert database.records() == ()
    assert "2 records whose workload is missing" in caplog.text
    assert len(verify(tmp_path / "db").findings) == 2
    assert verify(tmp_path / "db", repair=True).records == 0
    assert verify(tmp_path / "db").passed


def test_the_first_line_can_be_lost(tmp_path: Path) -> None:
    path = made(tmp_path / "db")
    whole = path.read_bytes()
    path.write_bytes(b"".join(whole.splitlines(keepends=True)[1:]))
    with open_database(tmp_path / "db") as database:
        assert list(database.records()) == RECORDS
    assert not verify(tmp_path / "db").passed
    assert verify(tmp_path / "db", repair=True).passed
    assert path.read_bytes() == whole


@pytest.mark.parametrize("content", [b"", b"notes of mine", b"notes of mine\n", b"{}\n[]\n"])
def test_what_is_no_database_is_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "records.jsonl"
    path.write_bytes(content)
    if not content:
        with open_database(tmp_path, write=True) as database:
            assert database.records() == ()
        return
    for write in (False, True):
        with pytest.raises(PackageError, match="no tuning database"), open_database(tmp_path, write=write):
            pass
    assert path.read_bytes() == content


def test_a_directory_with_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").touch()
    with pytest.raises(PackageError, match="left alone"), open_database(tmp_path, write=True):
        pass
    with pytest.raises(PackageError, match="there is no tuning database"), open_database(tmp_path):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["photo.jpg"]


def test_a_later_format_is_refused(tmp_path: Path) -> None:
    path = made(tmp_path / "db")
    path.write_bytes(path.read_bytes().replace(b'"version":1', b'"version":2', 1))
    with pytest.raises(PackageError, match="has version 2"), open_database(tmp_path / "db", write=True):
        pass


def test_records_are_on_the_disk_before_add_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    write, sync = os.write, os.fsync
    with open_database(tmp_path / "db", write=True) as database:
        monkeypatch.setattr(os, "write", lambda *a: (calls.append("write"), write(*a))[1])
        monkeypatch.setattr(os, "fsync", lambda *a: (calls.append("sync"), sync(*a))[1])
        database.add(RECORDS[:1], [workload()])
        assert calls == ["write", "sync"] * 2, "a workload is there before the record that names it"
        calls.clear()
        database.add(RECORDS[1:])
        assert calls == ["write", "sync"], "one write, one sync"


def failing_write(after: int, number: int) -> Callable[[int, bytes], int]:
    write = os.write
    state = [after]

    def partly(file: int, data: bytes) -> int:
        if state[0] == 0:
            raise OSError(number, os.strerror(number))
        piece = data[: state[0]]
        state[0] -= len(piece)
        return write(file, piece)

    return partly


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EFBIG, errno.EIO])
@pytest.mark.parametrize("after", [0, 7])
def test_a_full_disk_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int, number: int
) -> None:
    path = made(tmp_path / "db")
    before = path.read_bytes()
    with open_database(tmp_path / "db", write=True) as database:
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", failing_write(after, number))
            with pytest.raises(DiskError, match="could not be written"):
                database.add(RECORDS)
        assert path.read_bytes() == before
        assert list(database.records()) == RECORDS
        database.add(RECORDS[:1])  # there is room again
    with open_database(tmp_path / "db") as database:
        assert list(database.records()) == [*RECORDS, RECORDS[0]]


def test_what_cannot_be_taken_back_is_not_written_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    made(tmp_path / "db")
    with open_database(tmp_path / "db", write=True) as database:
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", refuse)
            patched.setattr(os, "ftruncate", refuse)
            with pytest.raises(DiskError):
                database.add(RECORDS)
        with pytest.raises(DiskError, match="not written any more"):
            database.add(RECORDS)


def test_one_process_writes(tmp_path: Path) -> None:
    made(tmp_path / "db")
    holder = (
        "import sys, pathlib\n"
        "from adt.tuning.database import open_database\n"
        "with open_database(pathlib.Path(sys.argv[1]), write=True):\n"
        "    print('held', flush=True); sys.stdin.read()\n"
    )
    running = subprocess.Popen(
        [sys.executable, "-c", holder, str(tmp_path / "db")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert running.stdout is not None and running.stdout.readline() == b"held\n"
        with (
            pytest.raises(Busy, match=f"process {running.pid} writes"),
            open_database(tmp_path / "db", write=True),
        ):
            pass
        with open_database(tmp_path / "db") as database:
            assert list(database.records()) == RECORDS, "readers need no lock"
        assert verify(tmp_path / "db").written_now
    finally:
        running.kill()
        running.communicate()
    with (
        open_database(tmp_path / "db", write=True),
        pytest.raises(Busy, match=f"process {os.getpid()}"),
        open_database(tmp_path / "db", write=True),
    ):
        pass
    assert not verify(tmp_path / "db").written_now


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> None:
        raise OSError(errno.ENOLCK, "none here")

    monkeypatch.setattr(fcntl, "lockf", refuse)
    with pytest.raises(DiskError, match="cannot be locked"), open_database(tmp_path / "db", write=True):
        pass


def test_lines_of_a_later_adt_stay(tmp_path: Path) -> None:
    path = made(tmp_path / "db")
    with path.open("ab") as file:
        file.write(journal.line("note", {"text": "hot day"}))
    with open_database(tmp_path / "db", write=True) as database:
        assert list(database.records()) == RECORDS
    assert verify(tmp_path / "db", repair=True).passed
    assert b"hot day" in path.read_bytes()


def test_a_left_over_temporary_file_goes(tmp_path: Path) -> None:
    made(tmp_path / "db")
    (tmp_path / "db/.records.jsonl.abc.tmp").write_text("half")
    with open_database(tmp_path / "db", write=True):
        pass
    assert not list((tmp_path / "db").glob(".*"))
