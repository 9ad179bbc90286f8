"""Each verb in a home directory, cache and TMPDIR that another user made: an error or a right result.

The verbs' own examples are run, with what they name there, and with no program on PATH. Nothing may be
written where the other user's links lead, and nothing may wait for ever.
"""

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import typer
from test_cli_start import verbs
from typer.testing import CliRunner

from adt.cli.app import app
from adt.errors import AdtError, DiskError
from adt.host import directories
from support.devices.ports import free_port
from support.models.onnx_graphs import f32, graph_of, node
from support.standins.artefacts import make_bundle, make_inspected_package
from support.standins.tuning_records import applicable, baseline, database_in

SECONDS = 60
STRANGER = 4242
PLACES = (".cache/adt", ".local/share/adt", ".local/state/adt")
NAMES = (
    "bench", "build", "bundles", "debug.keystore", "debug.keystore.lock", "downloads", "emulators", "locks",
    "probes", "programs", "rpc", "tracker", "tvm-digests", "tvm-source", "unpacked", "userlands",
)  # fmt: skip
"""Files that adt would write through a link."""
EXAMPLES = {
    path: command.epilog.removeprefix("Example: adt ").split()
    for path, command in verbs("", typer.main.get_command(app))
    if command.epilog
}


def make(directory: Path, mode: int = 0o755) -> Path:
    directory.mkdir(parents=True)
    directory.chmod(mode)
    return directory


def planted(place: Path, victim: Path, mode: int) -> None:
    """Create a directory of adt's with links in it."""
    make(place, mode)
    for name in NAMES:
        (place / name).symlink_to(victim)


def wide(home: Path, victim: Path) -> None:
    for place in PLACES:
        planted(home / place, victim, 0o777)


def open_above(home: Path, _victim: Path) -> None:
    """Leave the directories out, where everybody can make them."""
    for place in PLACES:
        make((home / place).parent, 0o777)


def open_higher(home: Path, _victim: Path) -> None:
    """Make the directories our own, where everybody can put others in their place."""
    for place in PLACES:
        make(home / place)
    home.chmod(0o777)


def made_above(home: Path, _victim: Path) -> None:
    """Make a directory where everybody can, as another user who was first."""
    home.chmod(0o1777)
    for place in PLACES:
        above = home / Path(place).parts[0]
        above.mkdir(exist_ok=True)
        os.chown(above, STRANGER, -1)


def foreign(home: Path, victim: Path) -> None:
    for place in PLACES:
        planted(home / place, victim, 0o755)
        os.chown(home / place, STRANGER, -1)


def foreign_links(home: Path, victim: Path) -> None:
    for place in PLACES:
        (home / place).parent.mkdir(parents=True)
        (home / place).symlink_to(victim)
        os.chown(home / place, STRANGER, -1, follow_symlinks=False)


def fifos(home: Path, _victim: Path) -> None:
    for place in PLACES:
        (home / place).parent.mkdir(parents=True)
        os.mkfifo(home / place)


Situation = Callable[[Path, Path], None]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create the files that the examples name."""
    directory = tmp_path_factory.mktemp("template")
    for name in ("model-pkg", "detector-pkg", "parts/code", "parts/params"):
        make_inspected_package(directory / name)
    make_bundle(directory / "bundle-arm64")
    for name in ("tuning", "desk", "rack"):
        database_in(directory / name, [baseline(2.0), applicable(name, 1.0)])
    graph = graph_of([node("MatMul", ["input", "w"], ["y"])], {"input": (1, 2)}, ["y"], {"w": f32(2, 2)})
    (directory / "model.onnx").write_bytes(graph.SerializeToString())
    return directory


@pytest.fixture
def home(tmp_path: Path, template: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name in [name for name in os.environ if name.startswith(("ADT_", "XDG_"))]:
        monkeypatch.delenv(name)
    shutil.copytree(template, tmp_path / "work")
    for name in ("bin", "home"):
        (tmp_path / name).mkdir()
    os.mkfifo(tmp_path / "fifo")
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "fifo"))
    monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(free_port()))
    if os.geteuid():  # only root can give files away: let this user be the stranger
        monkeypatch.setattr(os, "chown", lambda *_, **__: None)
        monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
    signal.alarm(SECONDS)
    yield tmp_path / "home"
    signal.alarm(0)


@pytest.mark.parametrize("situation", [wide, fifos])
@pytest.mark.parametrize("verb", EXAMPLES)
def test_a_home_of_another_users_making(home: Path, tmp_path: Path, verb: str, situation: Situation) -> None:
    victim = make(tmp_path / "victim")
    (victim / "kept").write_text("kept")
    situation(home, victim)
    done = CliRunner().invoke(app, EXAMPLES[verb])
    assert isinstance(done.exception, AdtError | SystemExit | None), done.exception
    assert [path.name for path in victim.iterdir()] == ["kept"] and (victim / "kept").read_text() == "kept"


@pytest.mark.parametrize("situation", [wide, open_above, open_higher, made_above, foreign, foreign_links])
@pytest.mark.parametrize("directory", [directories.cache_dir, directories.data_dir, directories.state_dir])
def test_a_directory_of_another_users_making(
    home: Path, tmp_path: Path, situation: Situation, directory: Callable[[], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    situation(home, make(tmp_path / "victim"))
    with pytest.raises(DiskError) as caught:
        directory()
    assert "ADT_SAFE_DIRECTORY" in caught.value.remedy
    monkeypatch.setenv("ADT_SAFE_DIRECTORY", "*")
    assert directory().is_absolute()


def test_a_home_of_ones_own(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Follow one's own links, which lead to other disks, and trust /tmp, where nobody can take another's files."""
    monkeypatch.undo()
    monkeypatch.setenv("HOME", str(home))
    (make(tmp_path / "disk") / "adt").mkdir()
    (home / ".cache").symlink_to(tmp_path / "disk")
    monkeypatch.setenv("ADT_DATA_DIR", str(make(tmp_path / "sticky", 0o1777) / "data"))
    for name in ("ADT_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert directories.cache_dir() == home / ".cache/adt"
    assert directories.data_dir() == tmp_path / "sticky/data"
