"""A tuning database is whole after an interruption, after damage and on a full disk, whoever made it."""

import contextlib
import errno
import fcntl
import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from adt.errors import AdtError, Busy, DiskError, PackageError
from adt.tuning.database import sqlite_file
from adt.tuning.database.contents import load
from adt.tuning.database.overview import verify
from adt.tuning.database.sqlite_file import FILE, PAGE
from adt.tuning.database.store import open_database
from adt.tuning.records import Workload, row
from support.standins.tuning_records import (
    applicable,
    baseline,
    database_in,
    edit,
    printed,
    records_in,
    running,
    workload,
)

RECORDS = [baseline(2.0), applicable("a", 1.0, at=2), applicable("b", failed="crash", at=3)]


def execute(path: Path, *statements: str) -> None:
    """Change a database as another program does."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def check_refused(directory: Path, reason: str) -> None:
    """Check that nobody reads or writes a database there."""
    for write in (False, True):
        with pytest.raises(PackageError, match=reason), open_database(directory, write=write):
            pass


@pytest.fixture
def in_memory() -> Iterator[Path]:
    """Return a directory that is on no disk: hundreds of databases are opened in it."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        yield Path(directory)


def test_what_was_added_is_read(tmp_path: Path) -> None:
    database_in(tmp_path / "db", RECORDS)
    with open_database(tmp_path / "db") as database:
        assert list(database.records()) == RECORDS
        assert dict(database.workloads) == {workload().id: workload()}
    assert {path.name for path in (tmp_path / "db").iterdir()} == {FILE, "lock"}


def test_what_a_killed_process_leaves_has_all_that_was_acknowledged(in_memory: Path) -> None:
    """Cut its files, as they are after each record, off at any byte after that."""
    (in_memory / "left").mkdir()
    left = in_memory / "left" / FILE
    wal = left.with_name(f"{FILE}-wal")
    ends = []
    with open_database(in_memory / "db", write=True) as database:
        for record in RECORDS:
            database.add([record], [workload()])
            ends.append((in_memory / "db" / wal.name).stat().st_size)
        shutil.copyfile(in_memory / "db" / FILE, left)
        whole = (in_memory / "db" / wal.name).read_bytes()
    main = left.read_bytes()
    for size in {*range(0, len(whole), 331), *ends, *(end - 1 for end in ends)}:
        for path in left.parent.iterdir():
            path.unlink()
        left.write_bytes(main)
        wal.write_bytes(whole[:size])
        expected = RECORDS[: sum(end <= size for end in ends)]
        assert records_in(left.parent) == expected, size
        wal.write_bytes(whole[:size])
        with open_database(left.parent, write=True) as database:
            database.add(RECORDS, [workload()])
        assert records_in(left.parent) == expected + RECORDS, size
        assert verify(left.parent).passed, size


def test_a_transaction_is_on_the_disk_when_it_ends(tmp_path: Path) -> None:
    """Check SQLite's settings; integration/test_tuning_database.py shows that it survives kills."""
    path = database_in(tmp_path / "db", RECORDS)
    with sqlite_file.writing(path) as connection:
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,), "FULL"
        assert connection.execute("PRAGMA journal_mode").fetchone() == (b"wal",)


def test_a_reader_sees_whole_batches_while_one_writes(tmp_path: Path) -> None:
    reader = (
        "import sys, pathlib\n"
        "from adt.tuning.database.store import open_database\n"
        "for _ in range(6):\n"
        "    with open_database(pathlib.Path(sys.argv[1])) as database:\n"
        "        print(len(database.records()), flush=True)\n"
    )
    with open_database(tmp_path / "db", write=True) as database:
        database.add((), [workload()])
        with running(reader, tmp_path / "db") as first, running(reader, tmp_path / "db") as other:
            while first.poll() is None or other.poll() is None:
                database.add([applicable(f"{i}") for i in range(10)])
            outputs = [(each, each.communicate()[0]) for each in (first, other)]
        total = len(database.records())
    for each, output in outputs:
        counts = [int(line) for line in output.split()]
        assert each.returncode == 0 and len(counts) == 6
        assert counts == sorted(counts) and counts[-1] <= total
        assert all(count % 10 == 0 for count in counts)


TEXT = json.dumps({"root_index": 0, "nodes": [{"type": "ffi.String", "data": "large"}] * 300})
LARGE = Workload(Workload.id_of(TEXT), "1", "0.25.0", TEXT)
"""It needs several pages."""
MANY = [applicable(f"{i}_" + "x" * 150, at=i) for i in range(60)]


def many_in(directory: Path) -> Path:
    return database_in(directory, MANY, [workload(), LARGE])


@pytest.mark.parametrize("content", [b"\0", b"\x05\x0d"], ids=["zeros", "an inner page"])
def test_a_damaged_page_costs_what_is_in_it(in_memory: Path, content: bytes) -> None:
    path = many_in(in_memory / "db")
    whole = path.read_bytes()
    lost = []
    for start in range(0, len(whole), PAGE):
        path.write_bytes(whole[:start] + (content * PAGE)[:PAGE] + whole[start + PAGE :])
        result = verify(in_memory / "db")
        assert not result.passed, start
        records = records_in(in_memory / "db")
        assert all(record in MANY for record in records)
        lost.append(len(MANY) - len(records))
        if any(finding.number == 0 for finding in result.findings):  # not only what a row says
            with (
                pytest.raises(PackageError, match="is not written so"),
                open_database(in_memory / "db", write=True),
            ):
                pass
        repaired = verify(in_memory / "db", repair=True)
        assert repaired.passed and repaired.records == len(records), start
        assert repaired.taken_out is not None
        assert repaired.taken_out.read_bytes()[start:][:PAGE] == (content * PAGE)[:PAGE]
        with open_database(in_memory / "db", write=True) as database:
            database.add(RECORDS, [workload()])
        assert records_in(in_memory / "db") == [*records, *RECORDS]
    assert lost[:2] == [0, 0], "of the pages that lead to others nothing is lost"
    assert sorted(lost)[-2] < 10, "but for the page with the kernel of all"


def test_no_flipped_bit_makes_another_record(in_memory: Path) -> None:
    path = database_in(in_memory / "db", RECORDS)
    whole = path.read_bytes()
    used = [place for place in range(len(whole)) if whole[place] or place % 97 == 0]
    for place in used[::7]:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        try:
            records = records_in(in_memory / "db")
        except AdtError:
            continue
        assert all(record in RECORDS for record in records), place
        if records != RECORDS:
            assert not verify(in_memory / "db").passed, place


def test_a_damaged_header_is_repaired(in_memory: Path) -> None:
    path = database_in(in_memory / "db", RECORDS)
    whole = path.read_bytes()
    later = []
    for place in range(100):
        bit = place % 8
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
        try:
            repaired = verify(in_memory / "db", repair=True)
        except PackageError as error:
            assert "of its format" in str(error), place
            later.append(place)
            continue
        assert repaired.passed and repaired.records == 3, place
        with open_database(in_memory / "db", write=True) as database:
            assert list(database.records()) == RECORDS
    assert len(later) <= 4, "the version"


def test_verify_finds_and_repairs_a_row(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = database_in(tmp_path / "db", RECORDS)
    edit(path, b"0.001", b"0.009")
    damaged = path.read_bytes()

    assert records_in(tmp_path / "db") == [RECORDS[0], RECORDS[2]]
    assert "is damaged: row 3; that is passed over" in caplog.text
    (finding,) = verify(tmp_path / "db").findings
    assert (finding.number, "row 3" in finding.what) == (3, True)
    repaired = verify(tmp_path / "db", repair=True)
    assert repaired.passed and repaired.records == 2
    assert repaired.taken_out is not None and repaired.taken_out.read_bytes() == damaged
    assert verify(tmp_path / "db", repair=True).taken_out is None, "nothing was wrong"


def test_a_record_without_its_workload_is_found_and_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    execute(database_in(tmp_path / "db", RECORDS), "DELETE FROM entries WHERE kind = 'workload'")
    assert records_in(tmp_path / "db") == []
    assert "3 records whose workload is missing" in caplog.text
    assert len(verify(tmp_path / "db").findings) == 3
    assert verify(tmp_path / "db", repair=True).records == 0
    assert verify(tmp_path / "db").passed


@pytest.mark.parametrize("content", [b"", b"notes of mine", b"notes of mine\n" * 1000])
def test_what_is_no_database_is_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / FILE
    path.write_bytes(content)
    check_refused(tmp_path, "no tuning database")
    with pytest.raises(PackageError, match="no tuning database"):
        verify(tmp_path, repair=True)
    assert path.read_bytes() == content


def test_a_directory_with_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").touch()
    with pytest.raises(PackageError, match="left alone"), open_database(tmp_path, write=True):
        pass
    with pytest.raises(PackageError, match="something else, not a tuning database"), open_database(tmp_path):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["photo.jpg"]


def test_a_later_format_is_refused(tmp_path: Path) -> None:
    execute(database_in(tmp_path / "db", RECORDS), "PRAGMA user_version = 2")
    check_refused(tmp_path / "db", "has version 2")


def test_rows_of_a_later_adt_stay(tmp_path: Path) -> None:
    path = database_in(tmp_path / "db", RECORDS)
    with sqlite_file.writing(path) as connection, sqlite_file.transaction(connection, path):
        connection.execute(sqlite_file.INSERT, row("note", {"text": "hot day"}))
    edit(path, b"0.001", b"0.009")
    with open_database(tmp_path / "db", write=True) as database:
        assert len(database.records()) == 2
    assert verify(tmp_path / "db", repair=True).passed
    assert [item.data for item in load(tmp_path / "db").others] == [{"text": "hot day"}]


# Strangers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER more AFTER INSERT ON entries BEGIN DELETE FROM entries; END",
        "CREATE VIEW more AS SELECT * FROM entries",
        "CREATE TABLE more (a)",
        "CREATE INDEX more ON entries (data)",
    ],
)
def test_what_a_strangers_file_has_besides_is_refused(tmp_path: Path, statement: str) -> None:
    execute(database_in(tmp_path / "db", RECORDS), statement)
    check_refused(tmp_path / "db", "was not made by adt")


def test_a_view_in_the_place_of_the_table_is_not_asked(tmp_path: Path) -> None:
    path = tmp_path / FILE
    execute(
        path,
        "PRAGMA journal_mode = WAL",
        "PRAGMA user_version = 1",
        "CREATE VIEW entries AS WITH RECURSIVE n(number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM n)"
        " SELECT number, 'note' AS kind, 0 AS crc, '{}' AS data FROM n",
    )
    with pytest.raises(PackageError, match="no tuning database"), open_database(tmp_path):
        pass


def test_a_rollback_journal_is_not_applied(tmp_path: Path) -> None:
    """Ignore such a journal: SQLite removes the file that it names."""
    path = database_in(tmp_path / "db", RECORDS)
    path.with_name(f"{FILE}-journal").write_bytes(b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + bytes(600))
    check_refused(tmp_path / "db", "beside it")


def test_pages_that_go_round_in_a_circle_end(tmp_path: Path) -> None:
    """Let each entry of an inner page lead to the same page: 20 levels of them are more rows than can be read."""
    path = many_in(tmp_path / "db")
    data = bytearray(path.read_bytes())
    root = PAGE
    assert data[root] == 5, "an inner page"
    cells = int.from_bytes(data[root + 3 : root + 5], "big")
    for cell in range(cells):
        place = root + int.from_bytes(data[root + 12 + 2 * cell :][:2], "big")
        data[place : place + 4] = (2).to_bytes(4, "big")
    path.write_bytes(data)
    result = verify(tmp_path / "db")
    assert not result.passed and result.records == len(MANY)


def test_a_row_that_is_too_long_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = many_in(tmp_path / "db")
    monkeypatch.setitem(sqlite_file.LIMITS, sqlite3.SQLITE_LIMIT_LENGTH, 5000)
    result = verify(tmp_path / "db")
    assert not result.passed and (result.records, result.workloads) == (len(MANY), 1)
    assert path.is_file()


@pytest.mark.parametrize("values", ["1, 2, 3", "x'00', 'a', x'ff'", "'record', 1.5, '{}'"])
def test_values_of_other_kinds_are_damage(tmp_path: Path, values: str) -> None:
    execute(database_in(tmp_path / "db", RECORDS), f"INSERT INTO entries (kind, crc, data) VALUES ({values})")
    assert records_in(tmp_path / "db") == RECORDS
    assert len(verify(tmp_path / "db").findings) == 1


# Disks -----------------------------------------------------------------------------------------------


def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database_in(tmp_path / "db", RECORDS)
    connections: list[sqlite3.Connection] = []
    connect = sqlite_file._connect
    monkeypatch.setattr(
        sqlite_file, "_connect", lambda *words: (connections.append(connect(*words)), connections[-1])[1]
    )
    with open_database(tmp_path / "db", write=True) as database:
        writer = connections[-1]
        ((pages,),) = writer.execute("PRAGMA page_count")
        writer.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(DiskError, match="no space left in"):
            database.add([*MANY, *RECORDS])
        assert list(database.records()) == RECORDS == records_in(tmp_path / "db")
        writer.execute("PRAGMA max_page_count = 1000")  # there is room again
        database.add(RECORDS[:1])
    assert records_in(tmp_path / "db") == [*RECORDS, RECORDS[0]]


READER = """
import os, sys
from pathlib import Path
from adt.tuning.database.store import open_database
if os.getuid() == 0:
    os.setuid(65534)
with open_database(Path(sys.argv[1])) as database:
    print(len(database.records()))
"""


@pytest.mark.parametrize("state", ["closed", "killed", "killed, without the index", "written"])
def test_a_directory_that_may_not_be_written_is_read(tmp_path: Path, state: str) -> None:
    with tempfile.TemporaryDirectory(prefix="adt-test-") as parent:  # pytest's own nobody else may enter
        Path(parent).chmod(0o755)
        directory = Path(parent) / "db"
        database_in(tmp_path / "db", RECORDS)
        with open_database(tmp_path / "db", write=True) as database:
            if state != "closed":
                database.add(RECORDS)
            shutil.copytree(tmp_path / "db", directory)
        if state == "closed":
            shutil.rmtree(directory)
            shutil.copytree(tmp_path / "db", directory)
        if state == "killed, without the index":
            (directory / f"{FILE}-shm").unlink()
        with contextlib.ExitStack() as stack:
            if state == "written":
                assert printed(stack.enter_context(running(HOLDER, directory))) == "held"
            before = {path.name for path in directory.iterdir()}
            directory.chmod(0o555)
            stack.callback(directory.chmod, 0o755)
            for path in directory.iterdir():
                path.chmod(0o444)
            with running(READER, directory) as reader:
                assert printed(reader) == ("3" if state == "closed" else "6")
            assert {path.name for path in directory.iterdir()} == before


HOLDER = (
    "import sys, pathlib\n"
    "from adt.tuning.database.store import open_database\n"
    "with open_database(pathlib.Path(sys.argv[1]), write=True):\n"
    "    print('held', flush=True); sys.stdin.read()\n"
)


def test_one_process_writes(tmp_path: Path) -> None:
    database_in(tmp_path / "db", RECORDS)
    with running(HOLDER, tmp_path / "db") as holder:
        assert printed(holder) == "held"
        with (
            pytest.raises(Busy, match=f"process {holder.pid} writes"),
            open_database(tmp_path / "db", write=True),
        ):
            pass
        assert records_in(tmp_path / "db") == RECORDS, "readers need no lock"
        assert verify(tmp_path / "db").written_now
    with (
        open_database(tmp_path / "db", write=True),
        pytest.raises(Busy, match=f"process {os.getpid()}"),
        open_database(tmp_path / "db", write=True),
    ):
        pass
    assert not verify(tmp_path / "db").written_now


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "lockf", Mock(side_effect=OSError(errno.ENOLCK, "none here")))
    with pytest.raises(DiskError, match="cannot be locked"), open_database(tmp_path / "db", write=True):
        pass


def test_a_left_over_temporary_file_goes(tmp_path: Path) -> None:
    database_in(tmp_path / "db", RECORDS)
    (tmp_path / "db/.records.sqlite.abc.tmp").write_text("half")
    with open_database(tmp_path / "db", write=True):
        pass
    assert not list((tmp_path / "db").glob(".*"))
