"""Records on disk: only the very process that was recorded counts."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from adt.errors import ConfigError, EmulatorError
from adt.host import process
from adt.virtual import emulator, prerequisites, state
from adt.virtual.abis import X86_64
from support.standins.emulator_records import emulator_record, write_record


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield child
    child.kill()
    child.wait()


@pytest.fixture
def record(sleeper: subprocess.Popen[bytes]) -> state.EmulatorRecord:
    """Return the record of a device whose PID 1 is the sleeper."""
    started = process.start_time(sleeper.pid)
    assert started is not None
    return emulator_record("one", sleeper.pid, started)


def test_running_process_is_found(record: state.EmulatorRecord) -> None:
    write_record(record)
    (listed,) = emulator.listing()
    assert (listed.serial, listed.pid, listed.running) == ("127.0.0.1:5555", record.pid, True)


def test_recycled_pid_is_neither_listed_nor_killed(
    sleeper: subprocess.Popen[bytes], record: state.EmulatorRecord, caplog: pytest.LogCaptureFixture
) -> None:
    at = write_record(replace(record, start_time=record.start_time - 1))
    assert emulator.listing() == ()
    assert "no longer running" in caplog.text and not at.record.exists()
    with pytest.raises(EmulatorError, match="no virtual device 'one' is running"):
        emulator.stop("one")
    assert process.end(sleeper.pid, record.start_time - 1, 0.1), "another process than ours counts as gone"
    assert sleeper.poll() is None, "and is left alone"


def test_record_of_another_boot_is_dead(record: state.EmulatorRecord) -> None:
    assert state.alive(record) and not state.alive(replace(record, boot="another"))


def test_zombie_is_dead(sleeper: subprocess.Popen[bytes]) -> None:
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert process.start_time(sleeper.pid) is None


def test_end_kills_what_ignores_sigterm() -> None:
    code = "import signal,sys,time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert process.end(child.pid, process.start_time(child.pid), 0.05)
        assert child.wait(60) == -9


def test_unreadable_record_is_removed(caplog: pytest.LogCaptureFixture) -> None:
    at = state.home("one")
    at.directory.mkdir(parents=True)
    at.record.write_text("{")
    assert emulator.listing() == ()
    assert not at.record.exists() and "unreadable" in caplog.text


@pytest.mark.parametrize("name", ["", "../x", "A", "-a", "a" * 33, "a/b", "a b"])
def test_names(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be the name"):
        state.home(name)


@pytest.mark.parametrize("size", ["", "0", "-1", "12q", "64 m", "1m,mode=777"])
def test_sizes(size: str) -> None:
    with pytest.raises(ConfigError, match="is not a size"):
        emulator.start("one", data_size=size)


def test_ports() -> None:
    with pytest.raises(ConfigError, match="not a TCP port"):
        emulator.start("one", port=70000)


WORKS = {"namespaces": None, "mounts": None, "program": None}
DENIED: dict[str, str | None] = {"namespaces": "[Errno 1] unshare: Operation not permitted"}
OLD_KERNEL: dict[str, str | None] = {
    "namespaces": None,
    "mounts": None,
    "private_binfmt": "EPERM",
    "program": "ENOEXEC",
}
QEMU = Path("/usr/bin/qemu-aarch64-static")


@pytest.mark.parametrize(
    ("userns", "root", "uid", "native", "qemu", "mode"),
    [
        ({**WORKS, "private_binfmt": None}, None, 1000, False, QEMU, "userns"),
        ({**WORKS, "private_binfmt": "EPERM"}, None, 1000, False, QEMU, "userns+host-binfmt"),
        (WORKS, None, 1000, False, None, "userns+host-binfmt"),
        (WORKS, None, 1000, True, None, "userns+native"),
        (OLD_KERNEL, None, 1000, False, QEMU, ""),
        (DENIED, None, 1000, False, QEMU, ""),
        (DENIED, WORKS, 0, False, QEMU, "root+host-binfmt"),
        (DENIED, WORKS, 0, True, None, "root+native"),
        (DENIED, {"namespaces": None, "mounts": None, "program": "ENOEXEC"}, 0, False, QEMU, ""),
        (DENIED, DENIED, 0, False, QEMU, ""),
    ],
)
def test_modes(
    monkeypatch: pytest.MonkeyPatch,
    userns: dict[str, str | None],
    root: dict[str, str | None] | None,
    uid: int,
    native: bool,
    qemu: Path | None,
    mode: str,
) -> None:
    answers = {"userns": userns, "root": root}
    monkeypatch.setattr(prerequisites, "run_trial", lambda which, *_: answers[which])
    monkeypatch.setattr(prerequisites.os, "geteuid", lambda: uid)
    chosen, namespaces, arm64 = prerequisites.choose_mode(native, qemu)
    assert chosen == mode
    wrong = [check for check in (namespaces, arm64) if not check.ok]
    assert bool(wrong) == (mode == "")
    assert not wrong or wrong[0].remedy, "what to do about the first thing that is wrong"


def test_require_says_what_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prerequisites, "run_trial", lambda which, *_: DENIED)
    monkeypatch.setattr(prerequisites.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(prerequisites.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(prerequisites, "setting", lambda path: "1" if "apparmor" in path else "")
    monkeypatch.setattr(prerequisites, "find_qemu", lambda: (None, "no qemu"))
    with pytest.raises(EmulatorError, match=r"user namespaces: .*; static qemu-aarch64: no qemu") as caught:
        prerequisites.require()
    assert "kernel.apparmor_restrict_unprivileged_userns=0" in caught.value.remedy
    assert "apt-get install qemu-user-static" in caught.value.remedy


def test_dynamic_qemu_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "qemu-aarch64"
    fake.write_bytes(Path(sys.executable).resolve().read_bytes())
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    qemu, reason = prerequisites.find_qemu()
    assert qemu is None and "not statically linked" in reason
    fake.write_text("#!/bin/sh\n")
    assert prerequisites.find_qemu()[0] is None, "a script is no interpreter either"


def test_x86_64_is_not_emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prerequisites.platform, "machine", lambda: "aarch64")
    with pytest.raises(EmulatorError, match="x86-64 is not emulated") as caught:
        prerequisites.require(X86_64)
    assert "--abi arm64-v8a" in caught.value.remedy


def test_abi_and_rootfs_arguments(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"not an ABI .*Did you mean 'x86_64'"):
        emulator.start("one", abi="x86-64")
    with pytest.raises(ConfigError, match="--rootfs replaces"):
        emulator.start("one", rootfs=tmp_path, opencl=True)


def test_record_of_before_there_were_abis_is_read(record: state.EmulatorRecord) -> None:
    at = write_record(record)
    old = at.record.read_text()
    at.record.write_text("".join(row for row in old.splitlines() if "abi" not in row).replace('"",}', '""}'))
    (listed,) = emulator.listing()
    assert listed.abi == "arm64-v8a"
