"""Full and read-only disks: each error names the directory that is so, nothing is left in it, the remedy works."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from test_kills import SESSION

from adt.errors import DiskError
from adt.host.cache import cache_dir
from adt.tuning.database.store import open_database
from support.devices import small_disk
from support.devices.fork_server import ON_SMALL_DISK
from support.devices.programs import ADT, adt, adt_json
from support.models.onnx_graphs import f32, graph_of, node
from support.sampling import matrix
from support.standins.tuning_records import applicable, workload

GENERATE = ("generate", "cpp", "--package", "com.example.net")
SIDE = 512
"""Extent of a matrix that makes the package larger than a megabyte."""


@dataclass
class Site:
    """A directory that becomes a small disk for one command, and others beside it."""

    top: Path

    @property
    def place(self) -> Path:
        return self.top / "place"

    def run(
        self, *words: object, free: str, size: str = "1m", **environment: Path
    ) -> subprocess.CompletedProcess[str]:
        """Run adt with *words*, with only *free* bytes left in the place, or ``ro``."""
        at = {
            "ADT_CACHE_DIR": self.top / "cache",
            "TMPDIR": self.top / "tmp",
            "ADT_DATA_DIR": self.top / "data",
        }
        for directory in (self.place, *at.values()):
            directory.mkdir(exist_ok=True)
        disk = (ON_SMALL_DISK, self.place, f"size={size},mode=755", free, self.top / "names")
        environ = os.environ | {name: str(path) for name, path in (at | environment).items()}
        return adt(*disk, *words, env=environ, cwd=self.top)

    def fails(self, *words: object, remedy: str, free: str, size: str = "1m", **environment: Path) -> str:
        """Check that a verb ends with a disk error that names the place and the remedy, and return the
        message."""
        done = self.run(*words, free=free, size=size, **environment)
        assert done.returncode == DiskError.exit_code, done.stderr
        error = next(line for line in done.stderr.splitlines() if line.startswith("error: "))
        assert ("cannot use" if free == "ro" else "no space left in") in error, error
        assert str(self.place) in error, error
        assert remedy in re.sub(r"\s+", " ", done.stderr), done.stderr
        assert "Traceback" not in done.stderr and "internal error" not in done.stderr
        names = (self.top / "names").read_text().split()
        left = [name for name in names if name.startswith((".", "adt-")) and name != SESSION]
        assert left == [], "temporary names"
        assert list((self.top / "tmp").glob("adt-*")) == []
        return error

    def works(self, *words: object, free: str, **environment: Path) -> None:
        """Check that a verb works that leaves the place alone, as the remedy has it."""
        if free == CURED:
            done = self.run(*words, free=free, **environment)
            assert done.returncode == 0, done.stderr


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model.onnx"
    graph = graph_of([node("MatMul", ["x", "w"], ["y"])], {"x": (1, SIDE)}, ["y"], {"w": f32(SIDE, SIDE)})
    path.write_bytes(graph.SerializeToString())
    return path


@pytest.fixture(scope="module")
def package(model: Path) -> Path:
    out = model.with_name("pkg")
    adt_json("compile", model, "--for", "host", "-o", out)
    return out


SPACE = ("200000", "0", "ro")
FREE = pytest.mark.parametrize("free", SPACE)
CURED = SPACE[0]
"""State of the disk with which the remedies are followed, too: no other state changes what they do."""


@FREE
def test_the_directory_of_temporary_files(site: Site, model: Path, free: str) -> None:
    words = ("compile", model, "--for", "host", "--no-cache", "-o", site.top / "model.tar")
    site.fails(*words, free=free, remedy="set TMPDIR to a directory on another disk", TMPDIR=site.place)
    assert not (site.top / "model.tar").exists()
    site.works(*words, free=free)


def test_no_object_file_needs_room(site: Site, model: Path) -> None:
    """Compile with a full TMPDIR, where LLVM ends the process when it cannot write an object."""
    done = site.run("compile", model, "--for", "host", "-o", site.top / "pkg", free="0", TMPDIR=site.place)
    assert done.returncode == 0, done.stderr


@FREE
def test_the_cache(site: Site, model: Path, free: str) -> None:
    words = ("compile", model, "--for", "host", "-o", site.top / "pkg")
    site.fails(*words, free=free, remedy="set ADT_CACHE_DIR to a directory", ADT_CACHE_DIR=site.place)
    assert not (site.top / "pkg").exists()
    site.works(*words, free=free)


@pytest.mark.parametrize(("free", "name"), matrix(SPACE, ("pkg", "pkg.tar")))
@pytest.mark.usefixtures("package")
def test_where_a_package_goes(site: Site, model: Path, free: str, name: str) -> None:
    """Copy the package from the cache, which has it."""
    words = ["compile", model, "--for", "host", "-o"]
    out = site.place / name
    site.fails(*words, out, free=free, remedy=f"name another place than {out}", ADT_CACHE_DIR=cache_dir())
    site.works(*words, site.top / name, free=free, ADT_CACHE_DIR=cache_dir())


@FREE
def test_what_is_made_of_a_package(site: Site, package: Path, free: str) -> None:
    out = site.place / "out"
    another = f"name another place than {out}"
    page = ("inspect", package, "--html", site.place / "page.html")
    site.fails(*page, free="0" if free != "ro" else free, remedy="name another place")
    site.fails(*GENERATE, package, "--out", out, free=free, remedy=another, ADT_CACHE_DIR=cache_dir())
    assert (site.top / "names").read_text() == "", "a project that came to nothing"
    site.fails("package", "split-params", package, "-o", out, free=free, remedy=another)
    site.works(*GENERATE, package, "--out", site.top / "out", free=free, ADT_CACHE_DIR=cache_dir())


@FREE
def test_a_quantized_model(site: Site, model: Path, free: str) -> None:
    words, out = ("quantize", model, "--calibrate", "random:4", "-o"), site.place / "q.onnx"
    site.fails(*words, out, free=free, remedy=f"name another place than {out}")
    assert not out.exists()
    site.works(*words, site.top / "q.onnx", free=free)


@FREE
def test_a_tuning_database(site: Site, free: str) -> None:
    with open_database(site.top / "db", write=True) as database:
        database.add([applicable(f"block_{n:04}" + "x" * 100) for n in range(4000)], [workload()])
    words = ("db", "merge", site.top / "db", "--into")
    site.fails(*words, site.place / "db", free=free, remedy="another place than")
    assert (site.top / "names").read_text() == "", "a database that came to nothing"
    site.works(*words, site.top / "other", free=free)


@FREE
def test_a_build(site: Site, free: str) -> None:
    source = next((cache_dir() / "tvm-source").glob("*/*/CMakeLists.txt"), None) or next(
        (cache_dir() / "tvm-source").glob("*/CMakeLists.txt")
    )
    words = ("build-target", "--for", "host", "--tvm-source", source.parent)
    site.fails(*words, free=free, remedy="set ADT_CACHE_DIR to a directory", ADT_CACHE_DIR=site.place)
    done = site.run(*words, "--explain", free=free, ADT_CACHE_DIR=site.place)
    assert done.returncode in (0, DiskError.exit_code), done.stderr


def test_settings_and_output(site: Site) -> None:
    site.place.mkdir()
    done = site.run("-v", "presets", "--json", free="0")
    assert done.returncode == 0, done.stderr
    shell = [sys.executable, small_disk.__file__, site.place, "size=1m", "0", site.top / "names", "sh", "-c"]
    command = f"cd {site.place} && exec {ADT}"
    for words, destination in ((" presets --json > listed", "standard output"), (" init", "adt.toml")):
        done = subprocess.run(
            [*map(str, shell), command + words], capture_output=True, text=True, check=False
        )
        assert done.returncode == DiskError.exit_code, done.stderr
        assert "no space left" in done.stderr and destination in done.stderr and "remedy: " in done.stderr
