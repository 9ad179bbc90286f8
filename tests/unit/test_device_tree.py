"""Directories: what is planned, the shell scripts that finish a push, and devices that mean harm."""

from __future__ import annotations

import os
import stat
import struct
import subprocess
import tempfile
from pathlib import Path

import pytest
from device_fake_server import Peer, fake_server, text
from hypothesis import given, settings
from hypothesis import strategies as st

from adt.device.device import Device
from adt.device.tree import _RECEIVE, STAGE, plan_push, prepare_script
from adt.errors import DeviceError, DiskError

NAMES = st.binary(min_size=1, max_size=40).filter(
    lambda name: name not in (b".", b"..") and b"/" not in name and b"\0" not in name
)
"""Every name that a file can have."""


def hostile(raw: bytes) -> str:
    return os.fsdecode(raw)


def test_files_directories_modes_and_times_are_planned(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir(mode=0o750)
    (tmp_path / "a/empty").mkdir()
    (tmp_path / "a/f").write_text("four")
    (tmp_path / "a/f").chmod(0o640)
    os.utime(tmp_path / "a/f", (5, 1_600_000_000))
    tree = plan_push(tmp_path)
    assert list(tree.directories)[1:] == ["a", "a/empty"]
    assert tree.directories["a"] == 0o750
    found = tree.files["a/f"]
    assert (stat.S_IMODE(found.mode), found.size, found.mtime) == (0o640, 4, 1_600_000_000)
    assert tree.size == 4


def test_a_link_stays_one_only_inside(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("contents")
    top = tmp_path / "top"
    (top / "sub").mkdir(parents=True)
    for name, target in {
        "inside": "sub",
        "up": "../outside",
        "absolute": str(outside),
        "dangling": "../nothing",
        "directory": str(tmp_path),
        "sub/back": "../inside",
    }.items():
        (top / name).symlink_to(target)
    os.mkfifo(top / "pipe")
    tree = plan_push(top)
    assert tree.links == {"inside": "sub", "sub/back": "../inside"}
    assert set(tree.files) == {"up", "absolute"}
    assert sorted(line.partition(":")[0] for line in tree.skipped) == ["dangling", "directory", "pipe"]


def test_what_is_no_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DiskError, match="no directory"):
        plan_push(tmp_path / "missing")


def test_only_what_is_private_gets_its_mode_unless_all_is_wanted(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    for name, mode in {"open": 0o644, "private": 0o600}.items():
        (tmp_path / name).write_text("x")
        (tmp_path / name).chmod(mode)
    tree = plan_push(tmp_path)
    assert prepare_script(tree, exact_modes=False) == b"chmod 600 ./private || return 1\n:\n"
    exact = prepare_script(tree, exact_modes=True)
    assert b"chmod 644 ./open" in exact and b"chmod 755 ./." in exact


@settings(max_examples=20, deadline=None)
@given(st.sets(NAMES, min_size=1, max_size=5))
def test_the_modes_of_any_names_are_set_by_a_real_shell(names: set[bytes]) -> None:
    with tempfile.TemporaryDirectory() as there:
        top = Path(there)
        for name in names:
            (top / hostile(name)).write_text("x")
            (top / hostile(name)).chmod(0o600)
        script = prepare_script(plan_push(top), exact_modes=True)
        for name in names:
            (top / hostile(name)).chmod(0o644)
        (top.parent / f"{top.name}.sh").write_bytes(script)
        try:
            command = 'cd "$1" && run() { . "$1.sh"; } && run "$1"'
            done = subprocess.run(["sh", "-c", command, "sh", there], capture_output=True, check=True)
        finally:
            (top.parent / f"{top.name}.sh").unlink()
        assert done.stderr == b""
        assert {entry.name for entry in top.iterdir()} == {hostile(name) for name in names}
        assert {stat.S_IMODE(entry.stat().st_mode) for entry in top.iterdir()} == {0o600}


def receive(dest: Path, word: str) -> subprocess.CompletedProcess[str]:
    """Run the device's side in this machine's own shell."""
    argv = ["sh", "-c", _RECEIVE, "sh", str(dest), STAGE + "0123"]
    return subprocess.run(argv, input=word, capture_output=True, text=True, check=False, timeout=60)


def contents(top: Path) -> dict[str, str | None]:
    """Every path below *top*: a file's text, None for a directory, a link's target after an arrow."""
    return {
        str(path.relative_to(top)): f"-> {path.readlink()}"
        if path.is_symlink()
        else path.read_text()
        if path.is_file()
        else None
        for path in top.rglob("*")
    }


def test_a_new_directory_appears_at_once(tmp_path: Path) -> None:
    stage = tmp_path / f"{STAGE}0123"
    (stage / "sub").mkdir(parents=True)
    (stage / "sub/f").write_text("new")
    assert receive(tmp_path / "dest", "move\n").returncode == 0
    assert contents(tmp_path) == {"dest": None, "dest/sub": None, "dest/sub/f": "new"}


def test_files_go_beside_what_is_there(tmp_path: Path) -> None:
    dest = tmp_path / "dest"
    (dest / "sub").mkdir(parents=True)
    (dest / "kept").write_text("kept")
    (dest / "sub/f").write_text("old")
    (dest / "link").symlink_to("kept")
    stage = dest / f"{STAGE}0123"
    (stage / "sub/more").mkdir(parents=True)
    (stage / "sub/f").write_text("new")
    (stage / ".hidden").write_text("h")
    (stage / "link").symlink_to("sub")
    assert receive(dest, "move\n").returncode == 0
    assert contents(dest) == {
        "kept": "kept",
        "link": "-> sub",
        "sub": None,
        "sub/f": "new",
        "sub/more": None,
        ".hidden": "h",
    }


@pytest.mark.parametrize("word", ["", "mo", "else\n"])
def test_without_the_word_nothing_stays(tmp_path: Path, word: str) -> None:
    dest = tmp_path / "dest"
    dest.mkdir()
    (dest / "f").write_text("old")
    stage = dest / f"{STAGE}0123"
    stage.mkdir()
    (stage / "f").write_text("new")
    (dest / f"{STAGE}0123.sh").write_text(":")
    assert receive(dest, word).returncode != 0
    assert contents(dest) == {"f": "old"}


@pytest.mark.parametrize("there", ["file", "directory"])
def test_a_directory_and_a_file_do_not_replace_each_other(tmp_path: Path, there: str) -> None:
    dest = tmp_path / "dest"
    stage = dest / f"{STAGE}0123"
    stage.mkdir(parents=True)
    directory, file = (stage, dest) if there == "file" else (dest, stage)
    (directory / "x").mkdir()
    (file / "x").write_text("a file")
    done = receive(dest, "move\n")
    assert done.returncode != 0 and "directory" in done.stderr
    assert set(contents(dest)) == {"x"}


def test_what_others_left_is_removed_and_the_living_are_not(tmp_path: Path) -> None:
    dest = tmp_path / "dest"
    for name in ("dead", "alive", "0123"):
        (dest / (STAGE + name)).mkdir(parents=True)
    living = subprocess.Popen(["sh", "-c", "read -r x", "sh", STAGE + "alive"], stdin=subprocess.PIPE)
    try:
        assert receive(dest, "move\n").returncode == 0
        assert set(contents(dest)) == {STAGE + "alive"}
    finally:
        living.communicate()


@settings(max_examples=15, deadline=None)
@given(
    st.dictionaries(NAMES.filter(lambda name: name != b"sub"), st.binary(max_size=10), max_size=5),
    st.sets(NAMES.filter(lambda name: name != b"sub"), max_size=3),
)
def test_any_names_are_moved(files: dict[bytes, bytes], old: set[bytes]) -> None:
    """Names with blanks, quotes, newlines, leading dashes, stars, bytes that are no text."""
    with tempfile.TemporaryDirectory() as there:
        dest = Path(there)
        for name in old:
            (dest / hostile(name)).write_bytes(b"old")
        stage = dest / f"{STAGE}0123"
        (stage / "sub").mkdir(parents=True)
        for name, data in files.items():
            (stage / hostile(name)).write_bytes(data)
            (stage / "sub" / hostile(name)).write_bytes(data)
        done = receive(dest, "move\n")
        assert (done.returncode, done.stderr) == (0, "")
        expected = dict.fromkeys(old, b"old") | files
        assert {os.fsencode(p.name): p.read_bytes() for p in dest.iterdir() if p.is_file()} == expected
        assert {os.fsencode(p.name): p.read_bytes() for p in (dest / "sub").iterdir()} == files


def lying(name: bytes, mode: int) -> tuple:
    """A device whose top directory holds an entry of that name."""

    def features(peer: Peer) -> None:
        peer.request(b"OKAY" + text("shell_v2"))

    def handler(peer: Peer) -> None:
        peer.request()
        peer.request()
        for _ in range(2):
            peer.exactly(8 + len("/d/."))
            peer.send(struct.pack("<4sIII", b"STAT", 0o40755, 0, 0))
        peer.exactly(8 + len("/d/"))
        entry = struct.pack("<4sIIII", b"DENT", mode, 1, 2, len(name)) + name
        peer.send(entry + b"DONE" + bytes(16))
        peer.drain()

    return handler, features


@pytest.mark.parametrize("name", [b"..", b"../evil", b"/evil", b"x/../../evil", b""])
@pytest.mark.parametrize("mode", [0o100644, 0o40755])
def test_a_device_cannot_make_us_write_elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: bytes, mode: int
) -> None:
    here = tmp_path / "inner" / "here"
    here.parent.mkdir()
    handler, features = lying(name, mode)

    def either(peer: Peer) -> None:
        """The features may be asked for before or after the session is opened."""
        (features if peer_is_second(peer) else handler)(peer)

    def peer_is_second(peer: Peer) -> bool:
        return peer is not server.peers[0]

    with fake_server(monkeypatch, either) as server:
        if name == b"..":  # skipped, as its like is in every listing
            Device("S").pull_tree("/d", here)
            assert list(here.iterdir()) == []
        else:
            with pytest.raises(DeviceError, match="no file can be called"):
                Device("S").pull_tree("/d", here)
            assert not here.exists()
    assert {path.name for path in tmp_path.rglob("*")} <= {"inner", "here"}


def test_a_device_without_an_end_to_its_directories_is_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def handler(peer: Peer) -> None:
        peer.request()
        if peer is not server.peers[0]:
            peer.send(text("shell_v2"))
            return
        peer.request()
        while True:
            name, length = struct.unpack("<4sI", peer.exactly(8))
            peer.exactly(length)
            if name == b"STAT":
                peer.send(struct.pack("<4sIII", b"STAT", 0o40755, 0, 0))
            else:
                peer.send(struct.pack("<4sIIII", b"DENT", 0o40755, 0, 0, 1) + b"d" + b"DONE" + bytes(16))

    with (
        fake_server(monkeypatch, handler) as server,
        pytest.raises(DeviceError, match="deeper than"),
    ):
        Device("S").pull_tree("/d", tmp_path / "here")
    assert list(tmp_path.iterdir()) == []
