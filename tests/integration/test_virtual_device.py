"""The virtual device with a real adb: what is promised to the device layer, and what must not stay behind."""

import contextlib
import dataclasses
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from adt.checkup import rpc as sockets
from adt.errors import EmulatorError
from adt.host import process
from adt.host.messages import encode, receive, send
from adt.host.process import python_path
from adt.virtual import emulator, init, prerequisites, properties, state, userland
from support.devices.fixtures import adb_program
from support.devices.ports import free_port
from support.devices.virtual import (
    TMP,
    Phone,
    adb,
    ask,
    connect,
    echo_server,
    phone,
    pid_namespace,
    pids_in_namespace,
    pids_inside,
    places,
)
from support.waiting import wait_for

__all__ = ["adb", "connect", "phone", "places"]


# what it is ------------------------------------------------------------------------------------


def test_arm64_programs_run_and_it_says_what_it_is(phone: Phone) -> None:
    assert phone.shell("uname -m") == "aarch64\n"
    assert phone.shell("id -u") == "0\n"
    assert phone.shell("getprop ro.adt.platform; getprop ro.adt.virtual") == "linux-aarch64\n1\n"
    assert "not Android" in phone.shell("getprop ro.product.model")
    assert "not_Android" in phone.adb("devices", "-l").stdout
    assert "no speed" in phone.info.log.read_text()
    assert phone.info.abi == phone.shell("getprop ro.product.cpu.abi").strip()


def test_properties_and_log(phone: Phone) -> None:
    assert phone.shell("setprop debug.adt.test 'a b=c' && getprop debug.adt.test") == "a b=c\n"
    assert phone("shell", "setprop ro.product.model x", rc=1).stderr
    assert phone.shell("getprop none.such fallback") == "fallback\n"
    assert phone.shell("svc power stayon usb && settings get global stay_on_while_plugged_in") == "2\n"
    assert (
        phone.shell("settings delete global stay_on_while_plugged_in; settings get global none") == "null\n"
    )
    phone.shell("logcat -c; log -t adt -p W hello there")
    assert phone.shell("logcat -d").rstrip().endswith("W adt: hello there")


def test_the_userland_is_read_only_and_the_host_is_not_in_sight(phone: Phone, places: Path) -> None:
    done = phone("shell", "touch /system/x; touch /x; ls /home /root /srv; cat /proc/1/environ", rc=None)
    assert done.stderr.count("Read-only file system") == 2
    assert done.stderr.count("No such file or directory") == 3
    assert "HOME=" not in done.stdout, "the environment of who started it holds secrets"
    assert not (phone.info.root / "system/x").exists()


def test_listens_on_loopback_only(phone: Phone) -> None:
    assert [listener.address for listener in sockets.listeners([phone.info.port])] == ["127.0.0.1"]


# shell -----------------------------------------------------------------------------------------


def test_standard_input(phone: Phone) -> None:
    text = "line\n" * 100_000
    assert phone("shell", "wc -c", text=text).stdout.strip() == str(len(text))
    assert phone("exec-out", "printf 'a\\nb\\0c'").stdout == "a\nb\0c"
    phone("exec-in", f"cat > {TMP}/in", text="exec-in\n")
    wait_for(lambda: phone.shell(f"cat {TMP}/in") == "exec-in\n")
    assert phone("shell", "-x", "echo v1; exit 3").stdout == "v1\n", "protocol 1 has no exit code"


def test_terminal(phone: Phone) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(
            adb_program("adbutils"), phone.adb.argv("shell", "-tt", serial=phone.info.serial), phone.adb.env
        )
    seen = b""

    def read_until(text: bytes) -> None:
        nonlocal seen
        deadline = time.monotonic() + 120
        while text not in seen:
            assert time.monotonic() < deadline, seen
            if select.select([terminal], [], [], 0.1)[0]:
                seen += os.read(terminal, 4096)

    try:
        read_until(b"# ")
        os.write(terminal, b"stty rows 33 cols 77; stty size; tty\n")
        read_until(b"33 77")
        read_until(b"/dev/pts/")
        os.write(terminal, b"sleep 4324\n")
        wait_for(lambda: "sleep 4324" in phone.shell("ps -A -o ARGS"))
        os.write(terminal, b"\x03")
        read_until(b"^C")
        os.write(terminal, b"echo after-$?\n")
        read_until(b"after-130")
        os.write(terminal, b"exit 4\n")
        # pytest's own process reads what is left so that adb can end
        with contextlib.suppress(OSError):
            while os.read(terminal, 4096):
                pass
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 4
    finally:
        os.close(terminal)


def test_hang_up_is_sighup_to_the_shell_only(phone: Phone) -> None:
    phone.shell(f"rm -f {TMP}/hup")
    command = f"trap 'echo hup > {TMP}/hup; exit 0' HUP; echo ready; while :; do sleep 0.1; done"
    with subprocess.Popen(
        phone.adb.argv("shell", command, serial=phone.info.serial),
        env=phone.adb.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    ) as client:
        assert client.stdout is not None and client.stdout.readline() == b"ready\n"
        client.kill()
    wait_for(lambda: phone.shell(f"cat {TMP}/hup 2>/dev/null || true") == "hup\n")


def test_orphans_are_reaped(phone: Phone) -> None:
    phone.shell("for i in 1 2 3 4 5; do (sleep 0.05 </dev/null >/dev/null 2>&1 &); done")
    wait_for(lambda: "sleep" not in phone.shell("ps -A -o S,COMM"))
    wait_for(lambda: "Z" not in phone.shell("ps -A -o S=").split())  # nor what the question itself left


# files -----------------------------------------------------------------------------------------


def test_directories(phone: Phone, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "sub/empty").mkdir(parents=True)
    for number in range(40):
        (tree / f"sub/{number}.txt").write_text(f"{number}\n" * number)
    script = tree / "run.sh"
    script.write_text("#!/system/bin/sh\necho ran\n")
    script.chmod(0o755)
    os.utime(script, (1_600_000_000, 1_600_000_000))
    phone("push", tree, TMP)
    assert phone.shell(f"{TMP}/tree/run.sh") == "ran\n"
    assert phone.shell(f"stat -c %Y {TMP}/tree/run.sh").strip() == "1600000000"
    phone("pull", f"{TMP}/tree", tmp_path / "back")
    same = [(path.relative_to(tree), path.read_bytes()) for path in sorted(tree.rglob("*")) if path.is_file()]
    back = tmp_path / "back"
    assert same == [
        (path.relative_to(back), path.read_bytes()) for path in sorted(back.rglob("*")) if path.is_file()
    ]
    assert "run.sh" in phone("ls", f"{TMP}/tree").stdout


def test_file_errors_name_the_reason(phone: Phone, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x")
    assert "Read-only file system" in phone("push", tmp_path / "x", "/system/x", rc=1).stderr
    assert "No such file" in phone("pull", "/none/such", tmp_path, rc=1).stderr


def test_full_disk(connect: Callable[..., Phone], tmp_path: Path) -> None:
    small = connect("small", data_size="8m")
    (tmp_path / "big").write_bytes(bytes(20_000_000))
    (tmp_path / "fits").write_bytes(bytes(100_000))
    assert "No space left on device" in small("push", tmp_path / "big", f"{TMP}/big", rc=1).stderr
    assert small("shell", f"ls {TMP}/big", rc=1), "no half a file stays"
    small("push", tmp_path / "fits", f"{TMP}/fits")
    emulator.stop("small")
    assert emulator.start("small", data_size="8m").running, "and a new tmpfs is empty"
    assert not (state.home("small").data / "local").exists(), "nothing of it was on this machine's disk"


# sockets ---------------------------------------------------------------------------------------


def test_forward(phone: Phone) -> None:
    port = int(phone("forward", "tcp:0", "tcp:9090").stdout)
    assert ask(port, b"nobody", 1) == b"", "no listener: closed"
    listener = subprocess.Popen(
        phone.adb.argv("shell", "nc -s 127.0.0.1 -p 9090 -L cat", serial=phone.info.serial),
        env=phone.adb.env,
        stdin=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: ask(port, b"ping", 4) == b"ping")
        data = os.urandom(300_000)
        assert ask(port, data, len(data)) == data
    finally:
        listener.kill()
        listener.wait()
        phone.shell("pkill nc; true")
        phone("forward", "--remove-all")


def test_reverse(phone: Phone) -> None:
    with echo_server() as port:
        chosen = int(phone("reverse", "tcp:0", f"tcp:{port}").stdout)
        # ADB has no half-closed streams: nc must not see the end of its input before the answer
        answer = f"{TMP}/answer"
        waiting = f"n=0; while [ ! -s {answer} ] && [ $((n += 1)) -lt 600 ]; do sleep 0.1; done"
        asked = f"rm -f {answer}; (echo hello; {waiting}) | nc 127.0.0.1 {chosen} > {answer}; cat {answer}"
        assert phone.shell(asked) == "echo:hello\n"
        phone("reverse", "tcp:7001", f"tcp:{port}")
        assert f"tcp:7001 tcp:{port}" in phone("reverse", "--list").stdout
        assert "cannot rebind" in phone("reverse", "--no-rebind", "tcp:7001", f"tcp:{port}", rc=1).stderr
        assert "cannot bind" in phone("reverse", "tcp:99999", f"tcp:{port}", rc=1).stderr.replace(
            "bad port", "cannot bind"
        )
        phone("reverse", "--remove", "tcp:7001")
        assert "not found" in phone("reverse", "--remove", "tcp:7001", rc=1).stderr
        phone("reverse", "--remove-all")
        assert phone("reverse", "--list").stdout.strip() == ""
        assert phone("shell", f"echo hello | nc 127.0.0.1 {chosen}", rc=None).stdout == "", (
            "nobody listens now"
        )


def test_abstract_sockets_both_ways(phone: Phone) -> None:
    """Go from host by forward to an abstract socket of the device, and by reverse to the host."""
    with echo_server() as port:
        phone("reverse", "localabstract:adt-test", f"tcp:{port}")
        local = int(phone("forward", "tcp:0", "localabstract:adt-test").stdout)
        assert ask(local, b"round", 10) == b"echo:round"
        phone("reverse", "--remove-all")
        phone("forward", "--remove-all")


# several, life and death -----------------------------------------------------------------------


def test_several_devices_do_not_meet(phone: Phone, connect: Callable[..., Phone]) -> None:
    other = connect("other")
    assert {info.name for info in emulator.listing()} >= {"main", "other"}
    assert emulator.start("other").pid == other.info.pid, "a second start is the same device"
    phone.shell(f"echo mine > {TMP}/who")
    assert other("shell", f"cat {TMP}/who", rc=1)
    for device in (phone, other):  # the same port of both
        device.shell("nohup nc -s 127.0.0.1 -p 9191 -L hostname </dev/null >/dev/null 2>&1 &")
    for device, name in ((phone, b"main\n"), (other, b"other\n")):
        port = int(device("forward", "tcp:0", "tcp:9191").stdout)
        wait_for(lambda port=port, name=name: ask(port, b"", 10) == name)  # type: ignore[misc]
        device("forward", "--remove-all")
        device.shell("pkill nc; true")


def test_data_stays_and_stop_leaves_no_process(connect: Callable[..., Phone]) -> None:
    device = connect("stays")
    device.shell(f"echo kept > {TMP}/kept")
    device.shell("trap '' TERM; nohup sh -c 'trap \"\" TERM; sleep 1000' </dev/null >/dev/null 2>&1 &")
    space = pid_namespace(device.info)
    assert len(pids_inside(device.info)) >= 3
    assert not emulator.stop("stays").running
    wait_for(lambda: pids_in_namespace(space) == [])
    assert device.info.log.is_file()
    with pytest.raises(EmulatorError, match="no virtual device 'stays' is running"):
        emulator.stop("stays")
    again = connect("stays", port=free_port())
    assert again.shell(f"cat {TMP}/kept") == "kept\n"


def test_killed_during_a_push(
    connect: Callable[..., Phone], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    device = connect("killed")
    device.shell(f"echo old > {TMP}/old")
    space = pid_namespace(device.info)
    (tmp_path / "big").touch()
    os.truncate(tmp_path / "big", 4_000_000_000)
    with subprocess.Popen(
        device.adb.argv("push", tmp_path / "big", f"{TMP}/big", serial=device.info.serial),
        env=device.adb.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as push:
        arriving = state.home("killed").data / "local/tmp/big"
        wait_for(lambda: arriving.exists() and arriving.stat().st_size > 1_000_000)
        os.kill(device.info.pid, signal.SIGKILL)
        assert push.wait(120) != 0
    wait_for(lambda: pids_in_namespace(space) == [])
    assert "killed" not in {info.name for info in emulator.listing()}
    assert "no longer running" in caplog.text
    arriving.unlink()
    again = connect("killed")
    assert again.shell(f"cat {TMP}/old") == "old\n"


def test_daemon_that_dies_takes_the_device_with_it(connect: Callable[..., Phone]) -> None:
    device = connect("halved")
    space = pid_namespace(device.info)
    (daemon,) = [pid for pid in pids_inside(device.info) if pid != device.info.pid]
    os.kill(daemon, signal.SIGKILL)
    wait_for(lambda: pids_in_namespace(space) == [])
    assert "the daemon ended by itself" in device.info.log.read_text()


def test_starter_that_dies_leaves_nothing(places: Path) -> None:
    """Kill the starter before it tells PID 1 to `commit`, which it does only once the device is on record."""
    machine = prerequisites.require()
    at = state.home("uncommitted")
    at.data.mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        boot = init.Boot(
            name="uncommitted",
            userland=str(userland.ensure_userland(machine.qemu)),
            abi="arm64-v8a",
            data=str(at.data),
            data_size="",
            listening=listening.fileno(),
            log=str(at.log),
            user_namespace=machine.user_namespace,
            interpreter=str(machine.interpreter or ""),
        )
        with subprocess.Popen(
            [sys.executable, "-m", "adt.virtual.init"],
            env={**os.environ, **python_path()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(listening.fileno(),),
        ) as launcher:
            assert launcher.stdin is not None and launcher.stdout is not None
            send(launcher.stdin.fileno(), encode(dataclasses.asdict(boot)))
            reports = [receive(launcher.stdout.fileno()) for _ in range(2)]
            pid = next(report["pid"] for report in reports if "pid" in report)
            assert {"ready": True} in reports and process.start_time(pid) is not None
            launcher.stdin.close()
            wait_for(lambda: process.start_time(pid) is None)
    assert "the starter is gone" in at.log.read_text()


def test_trial_that_is_killed_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill it as a kill of `adt doctor` does; the step inside the namespaces never ends here."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    code = "import time; from adt.virtual import trial; "
    code += "trial.inside = lambda *_: (print(flush=True), time.sleep(600)); trial.main('userns', '-', '')"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, **python_path()},
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as trial:
        assert trial.stdout is not None
        trial.stdout.read(1)
        os.killpg(trial.pid, signal.SIGKILL)
    assert trial.returncode == -signal.SIGKILL and list(tmp_path.iterdir()) == []


def test_port_in_use(phone: Phone) -> None:
    with pytest.raises(EmulatorError, match="Address already in use") as caught:
        emulator.start("taken", port=phone.info.port)
    assert "--port" in caught.value.remedy


def test_failed_start_says_why_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = prerequisites.require()
    broken = prerequisites.HostSupport(real.checks, "userns", tmp_path / "no-qemu")
    monkeypatch.setattr(prerequisites, "require", lambda _: broken)
    tree = userland.ensure_userland(real.qemu)
    monkeypatch.setattr(emulator, "ensure_userland", lambda *_, **__: tree)
    with pytest.raises(EmulatorError, match=r"did not come up: .*No such file") as caught:
        emulator.start("broken")
    assert "adt.virtual" in caught.value.details and str(state.home("broken").log) in caught.value.remedy
    assert not state.home("broken").record.exists()


# what it stands on -----------------------------------------------------------------------------


def test_scripts_of_the_device_are_found_by_absolute_name(phone: Phone) -> None:
    for name in properties.BY_PATH:
        assert phone.shell(f"ls -L /system/bin/{name}").strip() == f"/system/bin/{name}"


def test_probe_finds_everything_that_the_tests_used() -> None:
    assert [check.name for check in prerequisites.survey().checks if not check.ok] == []
