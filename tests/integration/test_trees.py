"""Directories to and from a virtual device, and what is left when it ends in the middle."""

from __future__ import annotations

import os
import signal
import stat
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from device_fixtures import Rack, child, entries, processes, rack, wait_for
from hypothesis import given, settings
from hypothesis import strategies as st

from adt.device.deadline import Cancelled
from adt.device.device import Device
from adt.device.virtual import emulator
from adt.errors import AdtError, DeviceError, DeviceFull, DiskError

__all__ = ["rack"]

TMP = "/data/local/tmp"
HOSTILE = [
    "a b",
    "it's",
    '"q"',
    "$(touch x)",
    "`y`",
    "new\nline",
    "-rf",
    "*",
    "é",
    "back\\slash",
    ".h",
    "..x",
]
NAMES = st.binary(min_size=1, max_size=30).filter(
    lambda name: name not in (b".", b"..") and b"/" not in name and b"\0" not in name
)


@pytest.fixture(scope="module")
def phone(rack: Rack) -> Iterator[Device]:
    """One virtual device for all tests here; each uses a directory of its own."""
    yield rack.start("trees")
    rack.stop_all()


@pytest.fixture
def there(phone: Device) -> Iterator[str]:
    """An empty directory on the device; no process of ours is left when the test ends."""
    path = phone.script(f"mktemp -d {TMP}/testXXXXXX").out.strip()
    yield path
    phone.shell(["rm", "-rf", path])
    wait_for(lambda: not [row for row in processes(phone) if ".adt-push-" in row], "our shell ends")


def contents(top: Path) -> dict[str, tuple[str, int, bytes]]:
    """Kind, mode and contents of everything below *top*."""
    found = {}
    for path in top.rglob("*"):
        facts = path.lstat()
        kind = "link" if path.is_symlink() else "directory" if path.is_dir() else "file"
        data = (
            os.fsencode(path.readlink()) if kind == "link" else path.read_bytes() if kind == "file" else b""
        )
        found[str(path.relative_to(top))] = (kind, 0 if kind == "link" else stat.S_IMODE(facts.st_mode), data)
    return found


def make(top: Path) -> None:
    """A tree with everything in it."""
    top.mkdir(mode=0o755)
    for name in HOSTILE:
        (top / name).write_text(name)
    (top / os.fsdecode(b"\xff\xfe")).write_text("no text")
    (top / "dir $x" / "deep").mkdir(parents=True)
    (top / "dir $x" / "program").write_text("#!")
    (top / "dir $x" / "program").chmod(0o755)
    (top / "empty one").mkdir()
    (top / "private").write_text("secret")
    (top / "private").chmod(0o600)
    (top / "large").write_bytes(os.urandom(700_001))
    (top / "nothing").write_bytes(b"")
    os.utime(top / "a b", (1e9, 1e9))


def test_a_tree_comes_back_as_it_went(phone: Device, there: str, tmp_path: Path) -> None:
    make(tmp_path / "in")
    seen: list[tuple[str, int, int]] = []
    sent = phone.push_tree(
        tmp_path / "in", f"{there}/it's $(x)/new", exact_modes=True, progress=lambda *a: seen.append(a)
    )
    total = sum(path.stat().st_size for path in (tmp_path / "in").rglob("*") if path.is_file())
    assert (sent.files, sent.directories, sent.skipped) == (17, 3, ())
    assert seen[-1][1:] == (total, total) and sent.bytes >= total
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    got = phone.pull_tree(f"{there}/it's $(x)/new", tmp_path / "out", progress=lambda *a: seen.append(a))
    assert (got.files, got.directories, got.bytes, got.skipped) == (17, 3, total, ())
    assert seen[-1][1:] == (total, total)
    assert contents(tmp_path / "out") == contents(tmp_path / "in")
    assert (tmp_path / "out/a b").stat().st_mtime == 1e9
    assert entries(phone, f"{there}/it's $(x)") == ["new"]


def test_links_stay_inside_and_are_followed_outside(phone: Device, there: str, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("contents")
    top = tmp_path / "in"
    top.mkdir()
    (top / "lib.so.1").write_text("library")
    (top / "lib.so").symlink_to("lib.so.1")
    (top / "away").symlink_to("../outside")
    phone.push_tree(top, f"{there}/t")
    listed = phone.script('cd "$1" && readlink lib.so; readlink away; cat away', f"{there}/t", check=False)
    assert listed.out == "lib.so.1\ncontents"
    phone.script('ln -s /etc "$1/etc"; ln -s nothing "$1/dangling"', f"{there}/t")
    got = phone.pull_tree(f"{there}/t", tmp_path / "out")
    assert sorted(line.partition(":")[0] for line in got.skipped) == ["dangling", "etc"]
    assert contents(tmp_path / "out")["lib.so"][2] == b"library"
    assert not any(path.is_symlink() for path in (tmp_path / "out").rglob("*"))


def test_a_second_push_goes_beside_what_is_there(phone: Device, there: str, tmp_path: Path) -> None:
    make(tmp_path / "in")
    phone.push_tree(tmp_path / "in", f"{there}/t")
    phone.script('echo kept >"$1/kept"; echo changed >"$1/a b"; ln -s "$1" "$1-link"', f"{there}/t")
    phone.push_tree(tmp_path / "in", f"{there}/t-link")  # a link to a directory is that directory
    got = phone.pull_tree(f"{there}/t", tmp_path / "out")
    assert got.files == 18
    assert (tmp_path / "out/a b").read_text() == "a b"
    assert (tmp_path / "out/kept").read_text() == "kept\n"
    assert ".adt" not in " ".join(entries(phone, f"{there}/t/"))


def test_an_empty_tree_is_a_directory(phone: Device, there: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    assert phone.push_tree(tmp_path / "in", f"{there}/t").files == 0
    assert phone.pull_tree(f"{there}/t", tmp_path / "out").files == 0
    assert (tmp_path / "out").is_dir()


@settings(max_examples=12, deadline=None)
@given(files=st.dictionaries(NAMES, st.binary(max_size=40), max_size=4), inner=NAMES)
def test_any_name_comes_back(phone: Device, files: dict[bytes, bytes], inner: bytes) -> None:
    """Blanks, quotes, newlines, dashes, stars, bytes that are no text: in a name and in the destination."""
    files.pop(inner, None)
    with tempfile.TemporaryDirectory() as here:
        top = Path(here, "in")
        (top / os.fsdecode(inner)).mkdir(parents=True)
        for name, data in files.items():
            (top / os.fsdecode(name)).write_bytes(data)
            (top / os.fsdecode(inner) / os.fsdecode(name)).write_bytes(data)
        remote = f"{TMP}/names/{os.fsdecode(inner)}"
        try:
            phone.push_tree(top, remote, exact_modes=True)
            phone.pull_tree(remote, Path(here, "out"))
        finally:
            phone.shell(["rm", "-rf", f"{TMP}/names"])
        assert contents(Path(here, "out")) == contents(top)


def test_a_file_that_is_a_directory_there_is_named(phone: Device, there: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/x").write_text("a file")
    phone.shell(["mkdir", "-p", f"{there}/t/x"])
    with pytest.raises(DeviceError, match="not all could be moved") as caught:
        phone.push_tree(tmp_path / "in", f"{there}/t")
    assert f"{there}/t/x is a directory there" in caught.value.details
    assert phone.script('ls -A "$1"', f"{there}/t").out == "x\n"


def test_where_we_may_not_write_says_so(phone: Device, there: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/x").write_text("a file")
    with pytest.raises(DeviceError, match=r"refused|does not let us"):
        phone.push_tree(tmp_path / "in", "/proc/nowhere")
    phone.push(b"a file", f"{there}/f")
    with pytest.raises(DeviceError, match="is no directory"):
        phone.pull_tree(f"{there}/f", tmp_path / "out")
    with pytest.raises(DeviceError, match="is no directory"):
        phone.pull_tree(f"{there}/missing", tmp_path / "out")
    with pytest.raises(DeviceError, match="no absolute path"):
        phone.push_tree(tmp_path / "in", "relative/path")
    (tmp_path / "taken").write_text("mine")
    phone.shell(["mkdir", f"{there}/d"])
    with pytest.raises(DiskError):
        phone.pull_tree(f"{there}/d", tmp_path / "taken")
    assert (tmp_path / "taken").read_text() == "mine"


def large(top: Path, size: int = 60 << 20) -> None:
    """A tree that takes a while: small files, then a large one, then small ones."""
    top.mkdir()
    for name in ("a", "z"):
        for n in range(20):
            (top / f"{name}{n}").write_bytes(b"x" * 1000)
    with (top / "large").open("wb") as file:
        file.truncate(size)


def old_state(phone: Device, there: str) -> None:
    phone.script('mkdir "$1/t" && echo old >"$1/t/a0" && echo old >"$1/t/z0"', there)


def is_as_it_was(phone: Device, there: str) -> bool:
    """The two old files, and nothing else: no half of a new one, no temporary one."""
    listed = phone.script('cd "$1/t" && find . -type f | sort | xargs cat; ls -A . ..', there)
    return listed.out == "old\nold\n.:\na0\nz0\n\n..:\nt\n"


def test_cancelling_leaves_the_device_as_it_was(phone: Device, there: str, tmp_path: Path) -> None:
    large(tmp_path / "in")
    old_state(phone, there)
    cancel = threading.Event()

    def progress(path: str, done: int, total: int) -> None:
        if done > total // 2:
            cancel.set()

    with pytest.raises(Cancelled):
        phone.push_tree(tmp_path / "in", f"{there}/t", progress=progress, cancel=cancel)
    wait_for(lambda: is_as_it_was(phone, there), "what was sent is removed")


PUSH = """
import sys
from pathlib import Path
from adt.device.device import Device
def progress(path, done, total):
    if done > total // 2:
        print("half", flush=True)
        sys.stdin.readline()
Device(sys.argv[1]).push_tree(Path(sys.argv[2]), sys.argv[3], progress=progress)
"""


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGKILL, signal.SIGTERM])
def test_a_killed_push_leaves_the_device_as_it_was(
    phone: Device, there: str, tmp_path: Path, sig: signal.Signals
) -> None:
    large(tmp_path / "in")
    old_state(phone, there)
    with child(PUSH, phone.serial, str(tmp_path / "in"), f"{there}/t") as pushing:
        assert pushing.stdout is not None
        assert pushing.stdout.readline() == "half\n"
        pushing.send_signal(sig)
        pushing.wait(120)
    wait_for(lambda: is_as_it_was(phone, there), "what was sent is removed")


@pytest.mark.parametrize("fault", ["drop-after=20m@once", "enospc=20m@once", "stall-after=20m"])
def test_a_device_that_fails_in_the_middle_is_as_it_was(
    phone: Device, there: str, tmp_path: Path, fault: str
) -> None:
    large(tmp_path / "in")
    old_state(phone, there)
    emulator.set_faults("trees", [fault])
    try:
        with pytest.raises(DeviceFull if fault.startswith("enospc") else AdtError):
            phone.push_tree(tmp_path / "in", f"{there}/t", timeout=3 if "stall" in fault else 300)
    finally:
        emulator.set_faults("trees", [])

    def as_it_was() -> bool:
        try:
            return is_as_it_was(phone, there)
        except AdtError:  # adb is connecting again
            return False

    wait_for(as_it_was, "the device is back, and what was sent is removed")


def test_a_pull_that_breaks_leaves_nothing_here(phone: Device, there: str, tmp_path: Path) -> None:
    large(tmp_path / "in", 20 << 20)
    phone.push_tree(tmp_path / "in", f"{there}/t")
    emulator.set_faults("trees", ["drop-after=5m@once"])
    try:
        with pytest.raises(DeviceError, match="broke while"):
            phone.pull_tree(f"{there}/t", tmp_path / "out")
    finally:
        emulator.set_faults("trees", [])
    assert [path.name for path in tmp_path.iterdir()] == ["in"]

    def back() -> bool:
        try:
            return phone.pull_tree(f"{there}/t", tmp_path / "out").files == 41
        except AdtError:
            return False

    wait_for(back, "the device is back")
