"""The first and most frequent steps of adt behind each adb that people have: Debian's 29 and adbutils' 36."""

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from adt.device.deploy.store import deploy
from adt.device.device import Device
from adt.device.transport import adb, forwards
from adt.device.transport.forwards import Forward
from adt.errors import DeviceError
from support.devices.fixtures import Rack, adb_server, ask
from support.standins.artefacts import native_bundle as make_bundle
from support.standins.artefacts import native_package as make_package
from support.waiting import wait_for


@pytest.fixture(scope="module")
def phone(adb_rack: Rack) -> Iterator[Device]:
    yield adb_rack.start("phone")
    adb_rack.stop_all()


def test_the_server_is_of_the_program_that_was_named(phone: Device) -> None:
    """Identify the server by its program: both versions speak the same protocol."""
    running = Path(f"/proc/{adb_server()}/exe").resolve()
    assert running == adb.find_adb().path.resolve()


def test_commands_have_both_streams_and_their_exit_code(phone: Device) -> None:
    done = phone.script('echo "$1"; echo err >&2; exit 3', "it's $(x)", check=False)
    assert (done.out, done.err, done.exit_code) == ("it's $(x)\n", "err\n", 3)
    assert phone.shell(["cat"]).out == "", "it reads the end of its input"
    with pytest.raises(DeviceError, match="exit code 127"):
        phone.shell(["no-such-program"])


def test_files_go_there_and_back(phone: Device, tmp_path: Path) -> None:
    contents = os.urandom(5_000_000)
    phone.push(contents, "/data/local/tmp/a file's $(name)\n")
    assert phone.pull("/data/local/tmp/a file's $(name)\n", tmp_path / "back") == len(contents)
    assert (tmp_path / "back").read_bytes() == contents


def test_ports_lead_both_ways(phone: Device) -> None:
    listen = ["busybox", "nc", "-l", "-p", "7777", "-e", "echo", "hello"]
    forward = forwards.make(phone.serial, Forward(0, 7777))
    with phone.start(listen, timeout=300):

        def greeted() -> bool:
            with socket.create_connection(("127.0.0.1", forward.local), timeout=60) as sock:
                return sock.recv(100) == b"hello\n"

        wait_for(greeted, "the program on the device answers")
    forwards.end(phone.serial, forward)
    with socket.create_server(("127.0.0.1", 0)) as server:
        reverse = forwards.make(phone.serial, Forward(server.getsockname()[1], 0, reverse=True))
        answering = threading.Thread(target=lambda: server.accept()[0].sendall(b"from here\n"))
        answering.start()
        assert ask(phone, reverse.remote) == "from here\n"
        answering.join(60)
        with pytest.raises(DeviceError, match="rebind"):
            forwards.make(phone.serial, Forward(1, reverse.remote, reverse=True))
        forwards.end(phone.serial, reverse)
    assert forwards.listed(phone.serial) == forwards.listed(phone.serial, reverse=True) == {}


def test_a_deployment_is_sent_once(phone: Device, tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "bundle", {"lib/large one.so": b"large" * 100_000})
    package = make_package(tmp_path / "package")
    first = deploy(phone, bundle, package, user="programs")
    assert first.sent_bytes > 500_000
    second = deploy(phone, bundle, package, user="programs")
    assert (second.sent_bytes, second.sent_files) == (0, ())
    assert set(second.reused_files) >= set(first.sent_files)
