"""Full disks, told by the directory that is full, and removal of a killed process's files."""

import errno
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from adt.errors import CompileError, DeviceFull, DiskError, ModelError, RunError
from adt.host import cache, disk
from adt.host.disk import disk_errors, scratch_directory
from support.waiting import running, wait_for


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("ADT_CACHE_DIR", "ADT_DATA_DIR", "XDG_STATE_HOME", "TMPDIR"):
        directory = tmp_path / variable.lower()
        directory.mkdir()
        monkeypatch.setenv(variable, str(directory))


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> set[Path]:
    """Return the directories that count as full."""
    directories: set[Path] = set()
    monkeypatch.setattr(disk, "_refusal", lambda path: errno.ENOSPC if path in directories else 0)
    return directories


@pytest.mark.parametrize(
    ("code", "message"),
    [(errno.ENOSPC, "no space left in"), (errno.EACCES, "cannot use"), (errno.EROFS, "Read-only")],
)
@pytest.mark.parametrize(
    ("place", "remedy"),
    [("adt_cache_dir/x", "ADT_CACHE_DIR"), ("adt_data_dir/x", "ADT_DATA_DIR"), ("out", "another place than")],
)
def test_the_remedy_is_of_the_file_that_failed(
    tmp_path: Path, code: int, message: str, place: str, remedy: str
) -> None:
    file = tmp_path / place
    with pytest.raises(DiskError, match=message) as caught, disk_errors("testing", tmp_path / "elsewhere/x"):
        raise OSError(code, os.strerror(code), str(file))
    assert str(file if code != errno.ENOSPC else file.parent) in caught.value.what
    assert remedy in caught.value.remedy


@pytest.mark.parametrize("full_place", ["tmpdir", "adt_cache_dir", "."])
def test_of_several_places_the_full_one_is_named(tmp_path: Path, full: set[Path], full_place: str) -> None:
    directory = (tmp_path / full_place).resolve()

    def fail() -> None:
        with (
            cache.fresh_dir(tmp_path / "out"),
            cache.fresh_dir(cache.cache_dir() / "entry"),
            scratch_directory("test"),
        ):
            full.add(directory)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(DiskError, match=f"no space left in {directory} ") as caught:
        fail()
    choice = {"tmpdir": "set TMPDIR", "adt_cache_dir": "set ADT_CACHE_DIR", ".": "another place"}[full_place]
    assert choice in caught.value.remedy
    assert sorted(p.name for p in tmp_path.rglob("*") if p.is_file()) == []


def test_a_program_that_could_not_write_is_explained(tmp_path: Path) -> None:
    words = "ld: final link failed: No space left on device"
    with pytest.raises(DiskError, match="no space left") as caught, scratch_directory("test"):
        raise CompileError("linking failed", remedy="?", details=words)
    assert words in caught.value.details and "TMPDIR" in caught.value.remedy


def test_a_crash_on_a_full_disk_is_the_disks(tmp_path: Path, full: set[Path]) -> None:
    full.add(tmp_path)
    with pytest.raises(DiskError, match="no space left"), cache.fresh_file(tmp_path / "out"):
        raise RunError("it ended with SIGBUS", remedy="?")
    with pytest.raises(ModelError), cache.fresh_file(tmp_path / "out"):
        raise ModelError("damaged", remedy="?")


def test_a_devices_disk_is_not_ours(tmp_path: Path) -> None:
    for error in (
        DeviceFull("x: No space left on device", remedy="?"),
        ValueError("No space left on device"),
    ):
        with pytest.raises(type(error)), cache.fresh_file(tmp_path / "out"):
            raise error


def test_a_replaced_directory_is_never_absent(tmp_path: Path) -> None:
    final = tmp_path / "out"
    for text in ("one", "two"):
        with cache.fresh_dir(final) as directory:
            (directory / "file").write_text(text)
    assert (final / "file").read_text() == "two" and [
        p.name for p in tmp_path.iterdir() if p.name[0] == "."
    ] == []


PROGRAM = """
import os, shutil, signal, sys, time
from pathlib import Path
from adt.host import cache, process
from adt.host.disk import scratch_directory
def interrupted(*_, **__):
    raise KeyboardInterrupt
out = Path(sys.argv[1])
(out / "old").mkdir()
with (
    scratch_directory("test") as scratch,
    cache.fresh_dir(out / "old") as directory,
    cache.fresh_file(out / "file") as file,
):
    (scratch / "x").mkdir()
    (directory / "x").write_text("x")
    file.write_text("x")
    child = process.start(["sh", "-c", "sleep 1000 & echo $! >&3; wait"], pass_fds=(3,), reaped=True)
    ENDING
"""


@pytest.mark.parametrize(
    "ending",
    [
        "os.kill(os.getpid(), 9)",
        "os._exit(1)",
        "os.killpg(0, 9)",
        "os.abort()",
        "shutil.rmtree = interrupted; sys.exit()",
    ],
)
def test_whatever_ends_a_process_nothing_of_it_stays(tmp_path: Path, ending: str) -> None:
    read, write = os.pipe()
    out = tmp_path / "out"
    out.mkdir()
    program = textwrap.dedent(PROGRAM).replace("ENDING", f"time.sleep(0.3); {ending}")
    starter = (
        f"import os, sys; os.dup2({write}, 3); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    )
    done = subprocess.run(
        [sys.executable, "-c", starter, "-c", program, out],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        pass_fds=(write,),
        start_new_session=True,
        stderr=subprocess.PIPE,
    )
    os.close(write)
    assert done.returncode in (1, -signal.SIGKILL, -signal.SIGABRT, -signal.SIGINT), done.stderr
    with os.fdopen(read) as lines:
        child = int(lines.readline())

    def left() -> list[Path]:
        return [p for place in (out, tmp_path / "tmpdir") for p in place.iterdir() if p.name != "old"]

    wait_for(lambda: not left() and not running(child), "the end of all that it started and wrote")
    assert (out / "old").is_dir() and not (out / "file").exists()
