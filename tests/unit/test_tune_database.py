"""Answers of a tuning database about its records: the best, merged, pruned, counted, published."""

import gzip
import hashlib
import shlex
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from adt.errors import ConfigError, DownloadError, PackageError
from adt.tuning.database import changes, sqlite_file, store
from adt.tuning.database.changes import fetch, merge, prune, publish
from adt.tuning.database.contents import Selection, select, select_one
from adt.tuning.database.overview import count, verify
from adt.tuning.database.sqlite_file import FILE
from adt.tuning.database.store import open_database
from adt.tuning.records import HEADER, MeasuredOn, Record, Row, Workload, line, row
from support.devices.programs import adt
from support.site import served
from support.standins.archives import tar_bytes, tar_entry
from support.standins.tuning_records import (
    CONTEXT,
    OTHER,
    SERIAL,
    applicable,
    baseline,
    database_in,
    edit,
    name_of,
    printed,
    records_in,
    running,
    workload,
)


def make_db(
    directory: Path, records: Iterable[Record], workloads: Sequence[Workload] = (workload(),)
) -> Path:
    return database_in(directory, records, workloads).parent


def test_the_best_is_the_fastest_that_may_run(tmp_path: Path) -> None:
    lucky = [applicable("lucky", 0.5, at=1), applicable("lucky", 1.5, at=2), applicable("lucky", 1.6, at=3)]
    harmful = [applicable("harmful", 0.1, at=4), applicable("harmful", failed="hang", at=5)]
    steady = applicable("steady", 1.0, at=6)
    make_db(tmp_path / "db", [baseline(2.0), *lucky, *harmful, steady, applicable("bad", failed="build")])
    with open_database(tmp_path / "db") as database:
        assert database.best(CONTEXT) == {workload().id: steady}
        assert database.best(CONTEXT, untuned=True)[workload().id].time == 0.002
        assert database.best(OTHER) == {}


def test_what_was_confirmed_counts_alone(tmp_path: Path) -> None:
    sure = {"confirmed": True}
    lucky = [applicable("lucky", 0.5, at=1), applicable("lucky", 1.5, at=2, options=sure)]
    refuted = [
        applicable("refuted", 0.4, at=3, options=sure),
        applicable("refuted", failed="run", at=4, options=sure),
    ]
    steady = applicable("steady", 1.0, at=5)
    untuned = [baseline(9.0), baseline(2.0, at=6, options=sure)]
    make_db(tmp_path / "db", [*lucky, *refuted, steady, *untuned])
    with open_database(tmp_path / "db") as database:
        assert database.best(CONTEXT) == {workload().id: steady}
        assert database.best(CONTEXT, untuned=True) == {workload().id: untuned[1]}


def test_a_database_that_is_only_read_takes_nothing(tmp_path: Path) -> None:
    make_db(tmp_path / "db", [applicable()])
    with open_database(tmp_path / "db") as database, pytest.raises(ValueError, match="for reading"):
        database.add([applicable("b")])


@pytest.mark.parametrize(
    "wrong",
    [applicable(of=workload("unheard of")), applicable(ms=float("nan")), applicable(ms=None)],
    ids=["no workload", "no number", "neither time nor failure"],
)
def test_a_wrong_record_is_refused_with_its_batch(tmp_path: Path, wrong: Record) -> None:
    make_db(tmp_path / "db", [applicable()])
    with open_database(tmp_path / "db", write=True) as database:
        with pytest.raises(ValueError):
            database.add([applicable("good"), wrong])
        database.add([applicable("after")])
    assert [name_of(record) for record in records_in(tmp_path / "db")] == ["t", "after"]


def test_contexts_are_chosen_by_their_words(tmp_path: Path) -> None:
    both = (CONTEXT, OTHER)
    assert select(both, Selection()) == both
    assert select(both, Selection(device="adreno")) == (CONTEXT,)
    assert select(both, Selection(target="cortex", tvm="0.25")) == (OTHER,)
    assert select(both, Selection(tvm="0.26")) == ()
    assert select(both, Selection(target="adreno (textures)")) == (CONTEXT,)
    assert select_one(both, Selection(driver="0502")) == CONTEXT
    with pytest.raises(ConfigError, match="2 devices") as several:
        select_one(both, Selection())
    assert "Adreno (TM) 650, driver V@0502.0" in several.value.details and "SM8250" in several.value.details
    with pytest.raises(ConfigError, match="no records of what was asked for"):
        select_one(both, Selection(device="Mali"))


def test_merging_adds_what_is_new_once(tmp_path: Path) -> None:
    same, new = applicable("same", at=1), applicable("new", of=workload("dense"), context=OTHER, at=2)
    desk = make_db(tmp_path / "desk", [same, applicable("desk", at=3)])
    rack = make_db(tmp_path / "rack", [same, new], [workload(), workload("dense")])
    done = merge([desk, rack, desk], tmp_path / "all")
    assert (done.workloads, done.records, done.duplicates) == (2, 3, 3)
    assert {name_of(record) for record in records_in(tmp_path / "all")} == {"same", "desk", "new"}
    before = (tmp_path / "all" / FILE).read_bytes()
    assert merge([rack], tmp_path / "all").records == 0
    assert (tmp_path / "all" / FILE).read_bytes() == before
    with pytest.raises(ConfigError, match="into itself"):
        merge([desk], tmp_path / "rack/../desk")


def test_an_interrupted_merge_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    into, source = (
        make_db(tmp_path / "into", [applicable("a")]),
        make_db(tmp_path / "source", [applicable("b")]),
    )
    before = (into / FILE).read_bytes()

    def interrupted(self: store.Writer, rows: Sequence[Row]) -> None:
        with sqlite_file.transaction(self._connection, self._path):
            self._connection.executemany(sqlite_file.INSERT, rows)
            raise KeyboardInterrupt

    monkeypatch.setattr(store.Writer, "add", interrupted)
    with pytest.raises(KeyboardInterrupt):
        merge([source], into)
    assert {path.name for path in into.iterdir()} == {FILE, "lock"}
    assert (into / FILE).read_bytes() == before


def test_merging_passes_over_damage(tmp_path: Path) -> None:
    source = make_db(tmp_path / "source", [applicable("a"), applicable("b"), applicable("c")])
    edit(source / FILE, rb"\"b\"", rb"\"x\"")
    done = merge([source], tmp_path / "all")
    assert (done.records, done.passed_over) == (2, 1)
    assert (count(source).damaged, count(source).records) == (1, 2)
    assert verify(tmp_path / "all").passed


OF_MIXED = "7d3e33d6d79cf49678e5987680955d9bddb938eca4f75f1b89f23e00923b13a7"
"""The sha256 of the published lines."""
MIXED = [
    baseline(2.0, at=1),
    applicable("fast", 1.0, at=2),
    applicable("slow", 3.0, at=3),
    applicable("middle", 1.5, at=4),
    applicable("refused", failed="run", at=5),
    applicable("deadly", 0.1, at=5.5),
    applicable("deadly", failed="wrong", at=6),
    applicable("other", 9.0, at=7, context=OTHER, of=workload("dense")),
]


def test_pruning_keeps_the_fastest_the_untuned_and_the_deadly(tmp_path: Path) -> None:
    directory = make_db(tmp_path / "db", MIXED, [workload(), workload("dense")])
    before = (directory / FILE).read_bytes()
    would = prune(directory, keep=1, failures=True, dry_run=True)
    assert (would.removed, would.kept, would.backup, would.applied) == (3, 5, None, False)
    assert (directory / FILE).read_bytes() == before

    done = prune(directory, keep=1, failures=True)

    assert (done.removed, done.kept, done.workloads_removed) == (3, 5, 0)
    assert [name_of(record) for record in records_in(directory)] == ["", "fast", "deadly", "deadly", "other"]
    assert done.backup is not None
    (tmp_path / "restored").mkdir()
    done.backup.rename(tmp_path / "restored" / FILE)
    assert records_in(tmp_path / "restored") == MIXED
    assert verify(directory).passed


def test_pruning_makes_the_file_small(tmp_path: Path) -> None:
    slow = [applicable("x" * 150, 3.0, at=at) for at in range(200)]
    directory = make_db(tmp_path / "db", [*MIXED, *slow], [workload(), workload("dense")])
    before = (directory / FILE).stat().st_size
    prune(directory, keep=1)
    assert (directory / FILE).stat().st_size < before / 5


def test_dropping_a_device(tmp_path: Path) -> None:
    directory = make_db(tmp_path / "db", MIXED, [workload(), workload("dense")])
    for nothing in ({}, {"drop": True}):
        with pytest.raises(ConfigError):
            prune(directory, **nothing)
    done = prune(directory, drop=True, selection=Selection(device="650"))
    assert (done.removed, done.workloads_removed, done.contexts) == (7, 1, (CONTEXT,))
    with open_database(directory) as database:
        assert set(database.workloads) == {workload("dense").id}
    with pytest.raises(PackageError, match="there is no tuning database"):
        prune(tmp_path / "absent", keep=1)
    assert not (tmp_path / "absent").exists()


def test_counting(tmp_path: Path) -> None:
    more = [baseline(8.0, of=workload("dense"), at=8), applicable("d", 2.0, of=workload("dense"), at=9)]
    summary = count(make_db(tmp_path / "db", [*MIXED, *more], [workload(), workload("dense")]))
    assert (summary.workloads, summary.records, len(summary.contexts)) == (2, 10, 2)
    adreno = summary.contexts[0]
    assert adreno.context == CONTEXT
    assert (adreno.workloads, adreno.records, adreno.measured) == (2, 9, 7)
    assert adreno.failures == {"run": 1, "wrong": 1} and adreno.quarantined == 1
    assert (adreno.tuned, adreno.compared, adreno.best_ratio) == (2, 2, 4.0)
    assert adreno.mean_ratio == pytest.approx(8**0.5)
    assert [(device.name, device.records) for device in adreno.devices] == [(SERIAL, 9)]
    assert (adreno.first, adreno.last) == (1, 9)
    assert (summary.contexts[1].best_ratio, summary.contexts[1].compared) == (None, 0)


def test_emulated_times_are_no_speed(tmp_path: Path) -> None:
    emulated = [replace(record, on=MeasuredOn("emu", "virtual", None, emulated=True)) for record in MIXED[:3]]
    context = count(make_db(tmp_path / "db", emulated)).contexts[0]
    assert (context.emulated, context.tuned, context.compared, context.best_ratio) == (True, 0, 0, None)
    assert context.measured == 3


def test_published_bytes_do_not_depend_on_the_order(tmp_path: Path) -> None:
    both = [workload(), workload("dense")]
    first = publish(make_db(tmp_path / "one", MIXED, both), tmp_path / "one.tar.gz")
    two = publish(make_db(tmp_path / "two", reversed(MIXED), both[::-1]), tmp_path / "two.tar.gz")
    assert (tmp_path / "one.tar.gz").read_bytes() == (tmp_path / "two.tar.gz").read_bytes()
    with tarfile.open(tmp_path / "one.tar.gz") as archive:
        assert archive.getnames() == ["records.jsonl"]
        published = archive.extractfile("records.jsonl")
        assert published is not None
        assert hashlib.sha256(published.read()).hexdigest() == OF_MIXED, "others read these files"
    assert (tmp_path / "one.tar.gz").read_bytes()[4:8] == bytes(4), "no time of day"
    assert first.sha256 == two.sha256 == hashlib.sha256((tmp_path / "one.tar.gz").read_bytes()).hexdigest()
    assert (first.records, first.workloads, set(first.contexts)) == (8, 2, {CONTEXT, OTHER})


def test_what_is_published_tells_nothing_private(tmp_path: Path) -> None:
    publish(make_db(tmp_path / "db", MIXED, [workload(), workload("dense")]), tmp_path / "x.tar.gz")
    text = gzip.decompress((tmp_path / "x.tar.gz").read_bytes())
    assert SERIAL.encode() not in text and b"/home/" not in text and b'"run":"run"' not in text
    assert b"Pixel 7" in text and b"device-1" in text


def test_only_the_best_is_published(tmp_path: Path) -> None:
    directory = make_db(tmp_path / "db", MIXED, [workload(), workload("dense")])
    publish(directory, tmp_path / "x.tar.gz", keep=1, selection=Selection(device="Adreno"))
    assert fetch(str(tmp_path / "x.tar.gz"), tmp_path / "got").merged.records == 3
    assert {name_of(record) for record in records_in(tmp_path / "got")} == {"", "fast", "deadly"}
    with open_database(tmp_path / "got") as fetched:
        assert name_of(fetched.best(CONTEXT)[workload().id]) == "fast"
    with pytest.raises(ConfigError, match="no records to publish"):
        publish(directory, tmp_path / "y.tar.gz", selection=Selection(device="Mali"))
    with pytest.raises(ConfigError, match="not named"):
        publish(directory, tmp_path / "y.zip")
    assert not (tmp_path / "y.tar.gz").exists()


def test_a_damaged_database_is_not_published(tmp_path: Path) -> None:
    edit(database_in(tmp_path / "db", MIXED, [workload(), workload("dense")]), rb"\"fast\"", rb"\"best\"")
    with pytest.raises(PackageError, match="is damaged"):
        publish(tmp_path / "db", tmp_path / "x.tar.gz")


def test_fetching_adds_to_what_is_there(tmp_path: Path) -> None:
    done = publish(make_db(tmp_path / "db", [applicable("a")]), tmp_path / "x.tar.gz")
    mine = make_db(tmp_path / "mine", [applicable("b", at=2)])
    assert fetch(str(tmp_path / "x.tar.gz"), mine, sha256=done.sha256.upper()).sha256 == done.sha256
    assert {name_of(record) for record in records_in(mine)} == {"a", "b"}
    assert fetch(str(tmp_path / "x.tar.gz"), tmp_path / "db").merged.duplicates == 1, "one's own come back"
    with pytest.raises(DownloadError, match="expected 0000"):
        fetch(str(tmp_path / "x.tar.gz"), tmp_path / "new", sha256="0" * 64)
    with pytest.raises(ConfigError, match="no sha256"):
        fetch(str(tmp_path / "x.tar.gz"), tmp_path / "new", sha256="abc")
    with pytest.raises(PackageError, match="there is no"):
        fetch(str(tmp_path / "absent.tar.gz"), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_database_is_added_by_the_command_of_the_remedy(tmp_path: Path) -> None:
    mine, into = make_db(tmp_path / "my desk", [applicable("a")]), tmp_path / "new"
    with pytest.raises(PackageError, match="is a directory") as caught:
        fetch(str(mine), into)
    command = shlex.split(caught.value.remedy.partition(": ")[2])
    assert command == ["adt", "db", "merge", str(mine), "--into", str(into)]
    assert not into.exists()
    assert adt(*command[1:]).returncode == 0
    assert {name_of(record) for record in records_in(into)} == {"a"}
    with pytest.raises(ConfigError, match="into itself") as itself:
        merge([into], into)
    assert "Name others before --into" in itself.value.remedy


def archive(*entries: tuple[tarfile.TarInfo, bytes]) -> bytes:
    return tar_bytes(*entries, mode="w:gz")


def entry(name: str = "records.jsonl", **facts: object) -> tarfile.TarInfo:
    return tar_entry(name, **facts)


GOOD = HEADER + line(row("note", {}))


@pytest.mark.parametrize(
    "content",
    [
        b"no archive",
        gzip.compress(b"no tar"),
        archive((entry(), GOOD))[:-20],
        archive(),
        archive((entry("../records.jsonl"), GOOD)),
        archive((entry(type=tarfile.SYMTYPE, linkname="/etc/passwd"), b"")),
        archive((entry(), GOOD), (entry("more"), b"")),
        archive((entry(), b"no journal\n")),
        archive((entry(), GOOD[:-9])),
        archive((entry(), GOOD * 2)),
        gzip.compress(tarfile.TarInfo("x").tobuf()[:156] + b"x" + b"\0" * 355),
    ],
    ids=[
        "text",
        "gzip",
        "cut off",
        "empty",
        "name",
        "link",
        "two",
        "no journal",
        "unfinished",
        "header",
        "x",
    ],
)
def test_no_other_archive_is_used(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.tar.gz").write_bytes(content)
    with pytest.raises(PackageError, match=r"nothing of it was used|no tuning database"):
        fetch(str(tmp_path / "x.tar.gz"), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_an_archive_that_unpacks_to_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.tar.gz").write_bytes(archive((entry(), b"\0" * 100_000)))
    monkeypatch.setattr(changes, "MOST_BYTES", 50_000)
    with pytest.raises(PackageError, match="would unpack to more"):
        fetch(str(tmp_path / "x.tar.gz"), tmp_path / "new")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, str]]:
    with served(tmp_path, monkeypatch) as place:
        yield place


def test_fetching_from_an_address(
    tmp_path: Path, site: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, address = site
    done = publish(make_db(tmp_path / "db", [applicable("a")]), root / "x.tar.gz")
    url = f"{address}/x.tar.gz"
    assert fetch(url, tmp_path / "got", sha256=done.sha256).merged.records == 1
    (root / "x.tar.gz").rename(root / "gone")
    assert fetch(url, tmp_path / "again", sha256=done.sha256).merged.records == 1, "it is kept"
    (root / "x.tar.gz").write_bytes(b"another one")
    with pytest.raises(DownloadError, match="expected 1111"):
        fetch(url, tmp_path / "new", sha256="1" * 64)
    with pytest.raises(DownloadError, match="could not download"):
        fetch(f"{address}/absent", tmp_path / "new", sha256="2" * 64)
    with pytest.raises(DownloadError, match="could not download"):
        fetch("http://127.0.0.1:9/x", tmp_path / "new", sha256="3" * 64)
    with pytest.raises(ConfigError, match="sha256 is missing"):
        fetch(url, tmp_path / "new")
    with pytest.raises(ConfigError, match="no address"):
        fetch("file:///etc/passwd", tmp_path / "new", sha256="4" * 64)
    monkeypatch.setattr(changes, "MAX_PACKED_BYTES", 5)
    with pytest.raises(DownloadError, match="more than"):
        fetch(url, tmp_path / "new", sha256="5" * 64)
    assert not (tmp_path / "new").exists()
    assert not list((tmp_path / "cache").rglob("*.part"))


def test_nothing_of_this_needs_tvm(tmp_path: Path) -> None:
    make_db(tmp_path / "db", MIXED, [workload(), workload("dense")])
    code = (
        "import sys, pathlib, adt; home = pathlib.Path(sys.argv[1])\n"
        "adt.db_verify(home / 'db'); adt.db_stats(home / 'db'); adt.db_merge([home / 'db'], into=home / 'all')\n"
        "adt.db_prune(home / 'db', keep=1); adt.db_publish(home / 'db', home / 'x.tar.gz')\n"
        "adt.db_fetch(str(home / 'x.tar.gz'), out=home / 'got')\n"
        "print([name for name in ('tvm', 'numpy', 'cattrs') if name in sys.modules])\n"
    )
    with running(code, tmp_path) as process:
        assert printed(process) == "[]"
