"""Hashing of a package's files when it is loaded: each once, until the machine is started again."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from test_cpp_runner import PACKAGE, Built, Package, built, large

from adt.host.cache import file_sha256
from adt.package.files import PARAMS
from support.devices.programs import Finished

__all__ = ["built", "large"]

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
TICK = 3.5  # seconds: a file that changed that long ago may be recorded


@pytest.fixture
def load(built: Built, tmp_path: Path) -> Callable[[Path], Finished]:
    """Return a function that runs a package once with the record in the directory "cache"."""
    return lambda package: built.run("--model", package, "--program-cache", tmp_path / "cache")


@pytest.fixture
def hashes(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "hashes"


@pytest.fixture
def package(large: Package, tmp_path: Path) -> Path:
    return Path(shutil.copytree(large.path, tmp_path / "package"))


@pytest.fixture(scope="module")
def settled(large: Package) -> Path:
    """Return the package, unchanged for longer than the file system's clock tick."""
    time.sleep(TICK)
    return large.path


def falsify(hashes: Path) -> str:
    """Make the record's digest another one, which a load that goes by it refuses."""
    boot, line = hashes.read_text().splitlines()
    version, digest = line.split()
    text = f"{boot}\n{version} {digest[::-1]}\n"
    hashes.write_text(text)
    return text


def test_a_file_is_hashed_once(load: Callable[[Path], Finished], hashes: Path, settled: Path) -> None:
    assert load(settled).code == 0
    boot, line = hashes.read_text().splitlines()
    assert boot == BOOT_ID.read_text().strip()
    assert line.split()[1] == file_sha256(settled / PARAMS)
    assert hashes.stat().st_mode & 0o777 == 0o600
    before = hashes.stat().st_mtime_ns
    assert load(settled).code == 0
    assert hashes.stat().st_mtime_ns == before
    falsify(hashes)
    load(settled).refused(PACKAGE, PARAMS, "sha256")


def test_a_file_that_was_changed_in_place_is_hashed_again(
    load: Callable[[Path], Finished], hashes: Path, package: Path
) -> None:
    time.sleep(TICK)
    assert load(package).code == 0
    recorded = hashes.read_text()
    params = package / PARAMS
    status = params.stat()
    with params.open("r+b") as file:
        file.seek(status.st_size // 2)
        file.write(b"\1")
    os.utime(params, ns=(status.st_atime_ns, status.st_mtime_ns))
    load(package).refused(PACKAGE, PARAMS, "sha256")
    assert recorded.splitlines()[1] in hashes.read_text()


def test_a_record_that_others_may_have_written_is_not_believed(
    load: Callable[[Path], Finished], hashes: Path, settled: Path, tmp_path: Path
) -> None:
    assert load(settled).code == 0
    false = falsify(hashes)

    hashes.chmod(0o660)
    assert load(settled).code == 0
    assert hashes.stat().st_mode & 0o777 == 0o600  # written again

    (tmp_path / "elsewhere").write_text(false)
    (tmp_path / "elsewhere").chmod(0o600)
    hashes.unlink()
    hashes.symlink_to(tmp_path / "elsewhere")
    assert load(settled).code == 0
    assert (tmp_path / "elsewhere").read_text() == false

    hashes.unlink()
    hashes.write_text(false)
    hashes.chmod(0o600)
    hashes.parent.chmod(0o777)
    assert load(settled).code == 0
    hashes.parent.chmod(0o700)
    load(settled).refused(PACKAGE, "sha256")


def test_a_record_of_another_start_or_a_damaged_one_is_replaced(
    load: Callable[[Path], Finished], hashes: Path, settled: Path
) -> None:
    assert load(settled).code == 0
    right = hashes.read_text()
    false = falsify(hashes)
    for text in ("0" + false[1:], false[:-10], "", "\0" * 500, right.splitlines()[0]):
        hashes.write_text(text)
        assert load(settled).code == 0
        assert hashes.read_text() == right


def test_what_others_may_change_is_hashed_each_time(
    load: Callable[[Path], Finished], hashes: Path, package: Path
) -> None:
    (package / PARAMS).chmod(0o664)
    time.sleep(TICK)
    assert load(package).code == 0
    assert not hashes.exists()
    (package / PARAMS).chmod(0o644)
    if os.geteuid() == 0:
        os.chown(package / PARAMS, 12345, 12345)
        time.sleep(TICK)
        assert load(package).code == 0
        assert not hashes.exists()


def test_what_has_just_changed_is_hashed_each_time(
    load: Callable[[Path], Finished], hashes: Path, package: Path
) -> None:
    """Hash within a tick of the file system's clock, when a file may change without a trace."""
    for _ in range(20):
        os.utime(package / PARAMS)
        began = time.monotonic()
        assert load(package).code == 0
        if time.monotonic() - began < 1.5:  # else the machine is too busy to tell
            assert not hashes.exists()
            break
        hashes.unlink(missing_ok=True)
    else:
        pytest.fail("no load took less than 1.5 s")


def test_nothing_is_kept_where_nothing_is_to_be_kept(built: Built, package: Path, tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": "", "ADT_PROGRAM_CACHE": "off"}
    assert built.run("--model", package, env=home).code == 0
    assert (
        built.run("--model", package, "--program-cache", "off", env={**home, "ADT_PROGRAM_CACHE": ""}).code
        == 0
    )
    assert not (tmp_path / "home").exists()


def test_sizes_are_looked_at_before_a_file_is_read(
    load: Callable[[Path], Finished], hashes: Path, package: Path
) -> None:
    with (package / PARAMS).open("ab") as file:
        file.write(b"\0")
    load(package).refused(PACKAGE, PARAMS, "(size)", "adt deploy")
