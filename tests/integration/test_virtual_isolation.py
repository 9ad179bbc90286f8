"""Limits of programs on a virtual device, and of other users of this machine."""

import os
import pwd
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from adt.host.process import python_path
from adt.virtual import namespaces, prerequisites, state, wire
from adt.virtual.prerequisites import HostSupport
from support.devices.virtual import Phone, adb, connect, phone, places

__all__ = ["adb", "connect", "phone", "places"]

SETTINGS = (
    "kernel/core_pattern",
    "kernel/modprobe",
    "kernel/panic",
    "vm/overcommit_memory",
    "net/ipv4/ip_forward",
)
"""Files of the host's kernel; each is written with the value that it has."""


@pytest.fixture(scope="module", params=["as usual", *(["without a user namespace"] * (os.getuid() == 0))])
def device(request: pytest.FixtureRequest, connect: Callable[..., Phone]) -> Phone:
    """Start a device; for root also as it is where the machine allows no user namespaces."""
    if request.param == "as usual":
        return connect("isolated")
    support = HostSupport((), "root+native", None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prerequisites, "require", lambda _: support)
        return connect("isolated-root", abi="x86_64")


def test_the_settings_of_the_hosts_kernel_cannot_be_written(device: Phone) -> None:
    for name in SETTINGS:
        path = Path("/proc/sys", name)
        if not path.exists():  # this kernel has no such setting, or this container does not show it
            continue
        before = path.read_text()
        done = device("shell", f"echo '{before.strip()}' > {path}", rc=None)
        assert done.returncode != 0, name
        assert path.read_text() == before
    for path in ("/proc/sysrq-trigger", "/proc/sys/fs/binfmt_misc/register", "/proc/self/oom_score_adj"):
        assert device("shell", f"echo 0 > {path}", rc=None).returncode != 0, path
    assert device.shell("cat /proc/kcore /proc/keys /proc/kmsg | head -c 10") == ""


def test_a_shell_has_few_capabilities_and_cannot_gain_any(device: Phone) -> None:
    status = dict(line.split(":\t") for line in device.shell("cat /proc/self/status").splitlines())
    few = sum(1 << number for number in namespaces.FILE_CAPABILITIES)
    assert {int(status[name], 16) for name in ("CapEff", "CapPrm", "CapBnd")} == {few}
    assert {int(status[name], 16) for name in ("CapInh", "CapAmb")} == {0}
    assert status["NoNewPrivs"].strip() == "1"
    for line in (
        "mount -o remount,rw /proc",
        "umount /proc",
        "mount -t tmpfs none /tmp",
        "mknod /data/m c 1 1",
    ):
        assert device("shell", line, rc=None).returncode != 0, line
    for process in ("1", "$(pgrep -o -P 1)"):
        assert int(device.shell(f"grep CapEff /proc/{process}/status").split()[1], 16) == few


def test_root_of_the_device_is_nobody_of_this_machine(phone: Phone) -> None:
    phone.shell("echo x > /data/local/tmp/owned")
    written = (state.home(phone.info.name).data / "local/tmp/owned").stat()
    uids = [line for line in Path(f"/proc/{phone.info.pid}/status").read_text().splitlines() if "Uid" in line]
    assert phone.shell("id -u; ls -ln /data/local/tmp/owned").split()[0::3][:2] == ["0", "0"]
    assert set(uids[0].split()[1:]) == {str(written.st_uid)}
    if os.getuid() == 0:
        groups = Path(f"/proc/{phone.info.pid}/status").read_text().partition("Groups:")[2].split("\n")[0]
        assert groups.strip() == ""
        with pytest.raises(KeyError):
            pwd.getpwuid(written.st_uid)
    else:
        assert written.st_uid == os.getuid()
    assert state.home(phone.info.name).directory.stat().st_mode & 0o077 == 0


def test_data_of_an_earlier_start_stays_usable(connect: Callable[..., Phone]) -> None:
    """Reuse data of a device from before root got a user of its own; a link in it is not followed."""
    home, outside = state.home("earlier"), state.emulators_directory() / "outside"
    (home.data / "local/tmp/deep").mkdir(parents=True)
    (home.data / "local/tmp/deep/file").write_text("before\n")
    outside.write_text("")
    (home.data / "local/tmp/link").symlink_to(outside)
    device = connect("earlier")
    assert (
        device.shell("cd /data/local/tmp/deep && cat file && echo after >> file && rm -r ../deep")
        == "before\n"
    )
    assert outside.stat().st_uid == os.getuid()


def greet(port: int) -> bytes:
    """Return the first word that the device at *port* answers to an adb server of this process."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as plug:
        payload = b"host::"
        plug.sendall(wire.header(wire.CNXN, wire.VERSION_SKIP, 4096, payload, summed=True) + payload)
        try:
            return plug.recv(4)
        except ConnectionResetError:
            return b""


def test_its_starter_is_served(phone: Phone) -> None:
    assert greet(phone.info.port) == b"CNXN"


ATTACK = """
import socket, sys
from adt.virtual import wire
def packet(command, first, payload):
    return wire.header(command, first, 4096, payload, summed=True) + payload
for end in (lambda plug: plug.recv(4), lambda plug: plug.shutdown(socket.SHUT_WR), lambda plug: None):
    with socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=60) as plug:
        try:
            plug.sendall(packet(wire.CNXN, wire.VERSION_CHECKSUM, b"host::")
                         + packet(wire.OPEN, 7, b"shell:touch /data/local/tmp/taken\\0"))
            print("answer", end(plug))
        except OSError:
            print("cut")
"""

if os.getuid() == 0:  # only root can become a second user to this machine; see also test_virtual_peers.py

    def test_another_user_of_this_machine_is_refused(phone: Phone) -> None:
        done = subprocess.run(
            [sys.executable, "-P", "-c", ATTACK, str(phone.info.port)],
            env={"PATH": os.environ["PATH"], **python_path()},
            user=54321,
            group=54321,
            extra_groups=[],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        assert "CNXN" not in done.stdout
        assert set(done.stdout.split("\n")[0].split()) <= {"answer", "b''", "cut"}
        time.sleep(1)
        assert phone.shell("ls /data/local/tmp").split().count("taken") == 0
        assert "user 54321 is refused" in phone.info.log.read_text()
