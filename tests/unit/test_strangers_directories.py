"""Links, FIFOs and devices in a directory that somebody else made: refused by name, and nothing is written."""

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import adt
from adt.bundle.bundle import export, load_bundle
from adt.errors import InputError, PackageError
from adt.host import cache
from adt.host.contained import UnsafeFile, regular_files
from adt.package.classes import read_labels
from adt.package.files import MOST_FILES, _members, unpack
from adt.package.inspection.inspection import open_inspection
from adt.package.integrity import examine
from adt.package.package import merge_params, split_params, write_package
from adt.quantization.samples import read_samples
from adt.tuning.database.changes import merge, prune
from adt.tuning.database.metaschedule import WORKLOADS, import_records
from adt.tuning.database.overview import verify
from adt.tuning.database.sqlite_file import FILE
from adt.tuning.database.store import LOCK, is_written, open_database, writing
from adt.tuning.database.tuned_schedules import GPUS
from adt.tuning.records import LINES, workload_row
from support.standins.artefacts import entry, make_bundle, make_inspected_package, tensor
from support.standins.tuning_records import applicable, baseline, database_in, workload

SECRET = "secret of the user's"
SECONDS = 20
"""A FIFO that is opened waits for ever."""

Intruder = Callable[[Path, Path], None]
INTRUDERS: dict[str, Intruder] = {
    "link": lambda place, secret: place.symlink_to(secret),
    "dangling": lambda place, secret: place.symlink_to(secret.with_name("absent")),
    "zero": lambda place, _: place.symlink_to("/dev/zero"),
    "fifo": lambda place, _: os.mkfifo(place),
}


@pytest.fixture(autouse=True)
def no_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("ADT_CACHE_DIR", str(tmp_path / "cache"))
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(SECRET)
    return path


def put(intruder: str, place: Path, secret: Path) -> None:
    """Let *intruder* be at *place*; a link leads to the file's own contents, as a stranger's would."""
    if intruder == "link" and place.is_file():
        secret.write_bytes(place.read_bytes())
    place.unlink(missing_ok=True)
    INTRUDERS[intruder](place, secret)


@pytest.mark.parametrize("intruder", INTRUDERS)
@pytest.mark.parametrize(
    "name", ["mod.json", "mod.so", "mod.params", "inspect/graph.json", "inspect/other", "inspect/opencl/k.cl"]
)
def test_a_package(tmp_path: Path, secret: Path, name: str, intruder: str) -> None:
    package = make_inspected_package(tmp_path / "pkg")
    put(intruder, package.path / name, secret)
    place = str(package.path / name)
    assert any(place in finding.found for finding in examine(package.path).findings)
    for write in (
        lambda: split_params(package, tmp_path / "parts"),
        lambda: write_package(package, tmp_path / "copy"),
        lambda: write_package(package, tmp_path / "copy.tar"),
        lambda: open_inspection(package.path).sizes(),
    ):
        with pytest.raises(PackageError) as caught:
            write()
        if intruder == "link":
            assert "cp -rL" in caught.value.remedy and place in caught.value.what
    assert not list(tmp_path.glob("copy*")) and not (tmp_path / "parts").exists()


@pytest.mark.parametrize("name", ["graph.json", "opencl/k.cl", "clml/0.json", "tir.py"])
@pytest.mark.parametrize("intruder", INTRUDERS)
def test_the_page_of_a_package(tmp_path: Path, secret: Path, name: str, intruder: str) -> None:
    package = make_inspected_package(tmp_path / "pkg")
    put(intruder, package.path / "inspect" / name, secret)
    with pytest.raises(PackageError):
        adt.inspect_html(package.path, tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize("file", ["../../secret", "/etc/passwd", "opencl/../../../secret"])
def test_a_kernels_file_outside_of_the_package(tmp_path: Path, secret: Path, file: str) -> None:
    package = make_inspected_package(tmp_path / "pkg")
    change(package.path, lambda graph: graph["kernels"][0].update(file=file))
    with pytest.raises(UnsafeFile):
        adt.inspect_html(package.path, tmp_path / "page.html")
    assert faulty_inspection(package.path)


@pytest.mark.parametrize("name", ["../evil", "/tmp/adt-evil", "a/b", "a\x1bb"])
def test_a_subgraph_whose_name_is_no_file(tmp_path: Path, name: str) -> None:
    """Refuse it: `adt inspect --offload -o DIR` wrote NAME.json wherever that leads."""
    package = make_inspected_package(tmp_path / "pkg")
    change(package.path, lambda graph: graph["handed"][0].update(name=name))
    with pytest.raises(UnsafeFile):
        open_inspection(package.path).subgraphs()
    assert faulty_inspection(package.path)


def faulty_inspection(package: Path) -> bool:
    """True if `adt package verify` finds fault with ``inspect/``."""
    return any(finding.name == "inspect" and not finding.passed for finding in examine(package).findings)


def test_a_good_package_and_a_link_to_it(tmp_path: Path) -> None:
    """Load the user's own link to a package or bundle, and a package whose files are whole."""
    make_inspected_package(tmp_path / "pkg-3")
    (tmp_path / "latest").symlink_to("pkg-3")
    assert not faulty_inspection(tmp_path / "latest")
    assert open_inspection(tmp_path / "latest").sizes()["inspect"] > 0
    adt.inspect_html(tmp_path / "latest", tmp_path / "page.html")
    split_params(open_inspection(tmp_path / "latest").package, tmp_path / "parts")
    (tmp_path / "merged").mkdir()
    (tmp_path / "own").symlink_to(tmp_path / "parts/params/mod.params")
    assert merge_params(tmp_path / "parts", tmp_path / "own", tmp_path / "merged").manifest.name == "toy"
    make_bundle(tmp_path / "bundle-2")
    (tmp_path / "bundle").symlink_to("bundle-2")
    assert load_bundle(tmp_path / "bundle").manifest.files


def change(package: Path, edit: Callable[[Any], object]) -> None:
    """Edit the graph, and describe it in mod.json as it then is."""
    graph = package / "inspect/graph.json"
    document = json.loads(graph.read_text())
    edit(document)
    graph.write_text(json.dumps(document))
    facts = json.loads((package / "mod.json").read_text())
    facts["inspection"]["inspect/graph.json"]["sha256"] = cache.file_sha256(graph)
    (package / "mod.json").write_text(json.dumps(facts))


def test_texts_are_written_to_names_of_files(tmp_path: Path) -> None:
    from adt.verbs.inspect import write_texts

    (tmp_path / "out").mkdir()
    (tmp_path / "out/k.json").symlink_to(tmp_path / "kept")
    for name in ("../evil.json", str(tmp_path / "evil.json")):
        with pytest.raises(UnsafeFile):
            write_texts({"k.json": "{}", name: "{}"}, tmp_path / "out")
    assert not (tmp_path / "evil.json").exists() and (tmp_path / "out/k.json").is_symlink()
    write_texts({"k.json": "{}"}, tmp_path / "out")
    assert (tmp_path / "out/k.json").read_text() == "{}" and not (tmp_path / "kept").exists()


@pytest.mark.parametrize("part", ["code", "code/mod.so", "code/inspect/graph.json", "params/mod.params"])
def test_the_parts_of_a_package(tmp_path: Path, part: str) -> None:
    split_params(make_inspected_package(tmp_path / "pkg"), tmp_path / "parts")
    (tmp_path / "parts" / part).rename(tmp_path / "elsewhere")
    (tmp_path / "parts" / part).symlink_to(tmp_path / "elsewhere")
    (tmp_path / "merged").mkdir()
    with pytest.raises(UnsafeFile):
        merge_params(tmp_path / "parts", tmp_path / "parts/params", tmp_path / "merged")


@pytest.mark.parametrize("intruder", INTRUDERS)
@pytest.mark.parametrize("name", ["bundle.json", "bin/rtvm", "lib"])
def test_a_bundle(tmp_path: Path, secret: Path, name: str, intruder: str) -> None:
    bundle = make_bundle(tmp_path / "bundle")
    if name == "lib":
        (bundle.path / name).rename(tmp_path / "elsewhere")
    put(intruder, bundle.path / name, tmp_path / "elsewhere" if name == "lib" else secret)
    for check_hashes in (True, False):
        with pytest.raises(PackageError):
            load_bundle(bundle.path, check_hashes=check_hashes)


@pytest.mark.parametrize("name", ["lib//libone.so", "./lib/libone.so", "lib\\one", "../bundle/lib/libone.so"])
def test_a_bundle_that_names_a_file_in_another_way(tmp_path: Path, name: str) -> None:
    """Refuse it with a remedy: `adt generate` ended in an internal error."""
    bundle = make_bundle(tmp_path / "bundle")
    (bundle.path / "lib\\one").write_bytes((bundle.path / "lib/libone.so").read_bytes())
    facts = json.loads((bundle.path / "bundle.json").read_text())
    facts["files"][name] = facts["files"].pop("lib/libone.so")
    (bundle.path / "bundle.json").write_text(json.dumps(facts))
    with pytest.raises(UnsafeFile):
        load_bundle(bundle.path)


def test_a_bundle_is_handed_on_without_what_it_does_not_name(tmp_path: Path, secret: Path) -> None:
    bundle = make_bundle(tmp_path / "bundle")
    (bundle.path / "lib/other").symlink_to(secret)
    os.mkfifo(bundle.path / "fifo")
    export([bundle], tmp_path / "out", "bundle")
    assert set(regular_files(tmp_path / "out")) == {"bundle.json", "bin/rtvm", "lib/libone.so"}


@pytest.mark.parametrize("intruder", INTRUDERS)
def test_a_directory_of_samples(tmp_path: Path, secret: Path, intruder: str) -> None:
    (tmp_path / "samples").mkdir()
    put(intruder, tmp_path / "samples/a.npz", secret)
    model = entry([tensor("x", (1, 4))], [])
    with pytest.raises(UnsafeFile):
        read_samples("model", model, [str(tmp_path / "samples")])


def test_labels_that_never_end() -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_labels(Path("/dev/zero"))


def test_an_archive_of_many_entries_takes_no_time(tmp_path: Path) -> None:
    """Read it without comparing each name with every one before it: 60 s for as many as are permitted."""
    path = tmp_path / "many.tar"
    with tarfile.open(path, "w") as tar:
        for number in range(MOST_FILES):
            tar.addfile(tarfile.TarInfo(f"inspect/{number}"))
    begin = time.process_time()
    with tarfile.open(path) as tar:
        assert sum(1 for _ in _members(tar, path)) == MOST_FILES
    assert time.process_time() - begin < SECONDS / 2
    for twice in (("inspect/a", "inspect/a/b"), ("inspect/a/b", "inspect/a")):
        with tarfile.open(path, "w") as tar:
            for name in twice:
                tar.addfile(tarfile.TarInfo(name))
        with pytest.raises(PackageError, match=r"twice|archive"):
            unpack(path, tmp_path / twice[0].replace("/", "-"))


def make_db(directory: Path) -> Path:
    return database_in(directory, [baseline(2.0), applicable("fast", 1.0)]).parent


@pytest.mark.parametrize("intruder", INTRUDERS)
@pytest.mark.parametrize("repair", [False, True])
def test_the_lock_of_a_database(tmp_path: Path, secret: Path, intruder: str, repair: bool) -> None:
    """Leave the file that it leads to alone: `adt db verify`, which only looks, emptied it."""
    directory = make_db(tmp_path / "db")
    (directory / LOCK).unlink()
    INTRUDERS[intruder](directory / LOCK, secret)
    with pytest.raises(PackageError):
        verify(directory, repair=repair)
    with pytest.raises(PackageError):
        make_db(directory)
    assert secret.read_text() == SECRET and not secret.with_name("absent").exists()


def test_a_lock_with_another_name_elsewhere(tmp_path: Path, secret: Path) -> None:
    directory = make_db(tmp_path / "db")
    (directory / LOCK).unlink()
    (directory / LOCK).hardlink_to(secret)
    verify(directory)
    with pytest.raises(PackageError):
        make_db(directory)
    assert secret.read_text() == SECRET


def test_looking_makes_no_lock(tmp_path: Path) -> None:
    directory = make_db(tmp_path / "db")
    (directory / LOCK).unlink()
    assert verify(directory).passed and not (directory / LOCK).exists()
    with open_database(directory, write=True):
        assert verify(directory).written_now
        code = "import sys; from pathlib import Path; from adt.tuning.database.store import is_written"
        words = [sys.executable, "-c", f"{code}; sys.exit(is_written(Path(sys.argv[1])))", directory]
        assert subprocess.run(words, check=False).returncode == 1
    assert not verify(directory).written_now and not is_written(tmp_path)


@pytest.mark.parametrize("intruder", INTRUDERS)
@pytest.mark.parametrize("name", [FILE, f"{FILE}-wal", f"{FILE}-shm", f"{FILE}-journal", LINES, GPUS])
def test_a_file_of_a_database(tmp_path: Path, secret: Path, name: str, intruder: str) -> None:
    directory = make_db(tmp_path / "db")
    if name == LINES:
        (directory / FILE).unlink()
    put(intruder, directory / name, secret)
    before = secret.read_bytes()
    for use in (
        verify,
        lambda at: verify(at, repair=True),
        make_db,
        lambda at: merge([at], tmp_path / "into"),
    ):
        if name != GPUS or use is make_db:
            with pytest.raises(PackageError):
                use(directory)
    assert secret.read_bytes() == before and not secret.with_name("absent").exists()


@pytest.mark.parametrize("name", ["backup", "logs"])
def test_a_directory_of_a_database(tmp_path: Path, name: str) -> None:
    directory = make_db(tmp_path / "db")
    (tmp_path / "elsewhere").mkdir()
    (directory / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnsafeFile):
        prune(directory, keep=1)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_database_that_came_to_nothing_leaves_nothing(tmp_path: Path) -> None:
    for error in (KeyboardInterrupt, OSError):
        with pytest.raises(error), writing(tmp_path / "db"):
            raise error
        assert list(tmp_path.iterdir()) == []
    with pytest.raises(OSError, match="full"), writing(make_db(tmp_path / "db")):
        raise OSError("full")
    with open_database(tmp_path / "db") as database:
        assert len(database.workloads) == 1
    with pytest.raises(OSError, match="full"), writing(tmp_path / "other") as (_, writer):
        writer.add([workload_row(workload())])
        raise OSError("full")
    with open_database(tmp_path / "other") as database:
        assert len(database.workloads) == 1


@pytest.mark.parametrize("intruder", INTRUDERS)
def test_files_of_metaschedule(tmp_path: Path, secret: Path, intruder: str) -> None:
    put(intruder, tmp_path / WORKLOADS, secret)
    with pytest.raises(PackageError):
        import_records(tmp_path, tmp_path / "db", device="d")


def test_a_cache_of_hard_links_is_one(tmp_path: Path) -> None:
    """Use what ``cp -al`` makes; nothing is written to the locks there."""
    with cache.lock(tmp_path / "entry"):
        (tmp_path / "copy.lock").hardlink_to(tmp_path / "entry.lock")
    with cache.lock(tmp_path / "copy"):
        pass


@pytest.mark.parametrize("intruder", INTRUDERS)
def test_the_lock_of_a_directory(tmp_path: Path, secret: Path, intruder: str) -> None:
    INTRUDERS[intruder](tmp_path / "entry.lock", secret)
    with pytest.raises(PackageError), cache.lock(tmp_path / "entry"):
        pass
    assert secret.read_text() == SECRET and not secret.with_name("absent").exists()
