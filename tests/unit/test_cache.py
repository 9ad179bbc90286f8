"""Cache entries appear whole, are checked, and are made again when damaged."""

import logging
import os
import shutil
import threading
import time
from pathlib import Path

import pytest

from adt.errors import Busy
from adt.host import cache

pytestmark = pytest.mark.usefixtures("own_cache")


def make(directory: Path) -> None:
    (directory / "sub").mkdir()
    (directory / "sub" / "file").write_text("contents")


def test_entry_is_made_once() -> None:
    path, reused = cache.entry("a/b", make)
    assert not reused and (path / "sub/file").read_text() == "contents"
    again, reused = cache.entry("a/b", lambda _: pytest.fail("made twice"))
    assert reused and again == path


def test_a_damaged_entry_is_said_and_made_again(caplog: pytest.LogCaptureFixture) -> None:
    path, _ = cache.entry("a", make)
    (path / "sub/file").write_text("tampered")
    with caplog.at_level(logging.WARNING, "adt"):
        path, reused = cache.entry("a", make)
    assert not reused and "damaged" in caplog.text
    assert (path / "sub/file").read_text() == "contents"


def test_a_lost_file_is_damage_and_a_new_time_is_not() -> None:
    path, _ = cache.entry("a", make)
    os.utime(path / "sub/file", (1, 1))
    assert cache.lookup("a") == path
    (path / "sub/file").unlink()
    assert cache.lookup("a") is None


def test_a_failed_make_leaves_nothing(own_cache: Path) -> None:
    def broken(directory: Path) -> None:
        make(directory)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.entry("a", broken)
    assert [p.name for p in own_cache.iterdir()] == ["a.lock"]


def test_fresh_dir_keeps_the_old_one_on_failure(tmp_path: Path) -> None:
    final = tmp_path / "out"
    with cache.fresh_dir(final) as directory:
        (directory / "x").write_text("old")
    with pytest.raises(RuntimeError), cache.fresh_dir(final) as directory:
        (directory / "x").write_text("new")
        raise RuntimeError
    assert (final / "x").read_text() == "old"
    assert list(tmp_path.iterdir()) == [final]


def test_lock_times_out_with_a_message(tmp_path: Path) -> None:
    with cache.lock(tmp_path / "thing"):
        pid = os.fork()
        if pid == 0:
            try:
                with cache.lock(tmp_path / "thing", timeout=0.1):
                    os._exit(1)
            except Busy:
                os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_digest_sees_names_bits_and_bytes(tmp_path: Path) -> None:
    make(tmp_path)
    first = cache.tree_digest(tmp_path)
    (tmp_path / "sub/file").chmod(0o755)
    second = cache.tree_digest(tmp_path)
    (tmp_path / "sub/file").rename(tmp_path / "sub/other")
    assert len({first, second, cache.tree_digest(tmp_path)}) == 3


def test_a_lock_that_its_holder_removed_is_taken_anew(tmp_path: Path) -> None:
    """Wait for the lock without holding a file that nobody else can see."""
    path = tmp_path / "deep/file"
    entered = threading.Event()

    def wait() -> None:
        with cache.lock(path):
            assert (tmp_path / "deep/file.lock").exists()
            entered.set()

    waiting = threading.Thread(target=wait)
    with cache.lock(path):
        waiting.start()
        time.sleep(0.2)  # it polls by now; sooner, the test proves less
        shutil.rmtree(tmp_path / "deep")
    waiting.join(60)
    assert entered.is_set()
