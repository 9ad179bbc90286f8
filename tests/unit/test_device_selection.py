"""Choosing a device: the listing's text, the decision, its errors."""

from contextlib import nullcontext
from pathlib import Path

import pytest

from adt.device import selection
from adt.device.device import Device
from adt.device.selection import DeviceInfo, choose, parse_listing
from adt.device.transport import adb
from adt.errors import (
    AdtError,
    AmbiguousDevice,
    ConfigError,
    DeviceError,
    DeviceNotReady,
    NoDevice,
    ToolNotFound,
)
from support.devices.adb_server import Peer, fake_server, replying, text
from support.devices.programs import write_program

LISTING = """\
R58M123ABC             device usb:1-2 product:beyond1 model:SM_G973F device:beyond1 transport_id:3
127.0.0.1:6555         offline product:vdev model:Virtual device:vdev transport_id:4
emulator-5554          device product:sdk model:sdk_gphone device:generic transport_id:5
0a388e93               no permissions (user in plugdev group; are your udev rules wrong?); see [http://x/y] usb:1-3 transport_id:6
ffff                   unauthorized transport_id:7
"""


def info(serial: str, state: str = "device") -> DeviceInfo:
    return DeviceInfo(serial, state, "M", "P", "usb")


def test_a_listing_is_read_line_by_line() -> None:
    devices = parse_listing(LISTING)
    assert [(d.serial, d.state, d.transport) for d in devices] == [
        ("R58M123ABC", "device", "usb"),
        ("127.0.0.1:6555", "offline", "tcp"),
        ("emulator-5554", "device", "emulator"),
        ("0a388e93", "no permissions", "usb"),
        ("ffff", "unauthorized", "usb"),
    ]
    assert (devices[0].model, devices[0].product) == ("SM_G973F", "beyond1")
    assert [d.ready for d in devices] == [True, False, True, False, False]
    assert parse_listing("\n") == ()


def test_serials_with_blanks_are_read_whole() -> None:
    wireless = "adb-R58M123ABC-q1w2e3 (2)._adb-tls-connect._tcp"
    devices = parse_listing(
        "(no serial number)     device usb:3-1 product:p model:NoSer device:d transport_id:9\n"
        f"{wireless} device product:p model:Wireless device:d transport_id:10\n"
        "X Y                    unauthorized usb:1-5 transport_id:8\n"
        "[fe80::1%wlan0]:5555   strange product:x model:M6 device:d transport_id:4\n"
    )
    assert [(device.serial, device.state, device.model, device.transport) for device in devices] == [
        ("(no serial number)", "device", "NoSer", "usb"),
        (wireless, "device", "Wireless", "tcp"),
        ("X Y", "unauthorized", "", "usb"),
        ("[fe80::1%wlan0]:5555", "strange", "M6", "tcp"),
    ]


def test_a_device_without_a_serial_is_selected_by_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    listing = text("(no serial number)     device usb:3-1 transport_id:9\n")
    requests: list[str] = []

    def answer(peer: Peer) -> None:
        requests.append(peer.request())
        peer.send(listing if requests[-1] == "host:devices-l" else text("shell_v2"))

    with fake_server(monkeypatch, answer, answer, answer):
        assert Device("(no serial number)").features == {"shell_v2"}
    assert requests == ["host:devices-l", "host-transport-id:9:features"]


def test_the_named_or_the_only_usable_device_is_taken() -> None:
    assert choose([info("a"), info("b")], "b", origin="--serial").serial == "b"
    assert choose([info("a", "offline"), info("b")], "", origin="--serial").serial == "b"


@pytest.mark.parametrize(
    ("serials", "serial", "kind", "message", "remedy", "details"),
    [
        ((), "", NoDevice, "no device", "USB debugging", ""),
        ((), "", NoDevice, "no device", "adt emulator start", ""),
        (("aaa", "bbb"), "", AmbiguousDevice, "2 devices", "--serial aaa", "bbb"),
        (("R58M123ABC", "zzz"), "R58M123ABD", NoDevice, "ORIGIN", "Did you mean R58M123ABC? ", "zzz"),
        (("zzzzzz",), "R58M123ABD", NoDevice, "ORIGIN", "", "zzzzzz"),
    ],
)
def test_no_choice_says_how_to_make_one(
    serials: tuple[str, ...], serial: str, kind: type[AdtError], message: str, remedy: str, details: str
) -> None:
    with pytest.raises(kind) as caught:
        choose([info(serial) for serial in serials], serial, origin="ORIGIN")
    assert message in caught.value.what and remedy in caught.value.remedy and details in caught.value.details
    assert ("Did you mean" in remedy) == ("Did you mean" in caught.value.remedy)
    assert all(serial in caught.value.details for serial in serials)


@pytest.mark.parametrize(
    "state", ["offline", "unauthorized", "no permissions", "recovery", "sideload", "bootloader", "odd"]
)
@pytest.mark.parametrize("serial", ["a", ""])
def test_each_bad_state_has_a_remedy(state: str, serial: str) -> None:
    with pytest.raises(DeviceNotReady) as caught:
        choose([info("a", state)], serial, origin="--serial")
    assert state in caught.value.what
    assert caught.value.remedy
    assert "SERIAL" not in caught.value.remedy


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("device 'x' not found", NoDevice),
        ("no devices/emulators found", NoDevice),
        ("device offline", DeviceNotReady),
        ("device unauthorized.\nThis adb server's $ADB_VENDOR_KEYS is not set", DeviceNotReady),
        ("device still authorizing", DeviceNotReady),
        ("device still connecting", DeviceNotReady),
        ("insufficient permissions for device: user in plugdev group", DeviceNotReady),
        ("closed", DeviceError),
    ],
)
def test_a_refusal_of_the_server_becomes_the_right_error(answer: str, kind: type[Exception]) -> None:
    assert type(adb.refusal(answer, serial="x", doing="asking")) is kind


@pytest.mark.parametrize(
    ("serial", "expected"),
    [("127.0.0.1:5555", True), ("phone.local:1", True), ("[::1]:5", True), ("R58", False), ("a:b", False)],
)
def test_addresses_are_told_from_serials(serial: str, expected: bool) -> None:
    assert selection.is_address(serial) is expected


@pytest.mark.parametrize(
    ("variables", "port"),
    [
        ({}, 5037),
        ({"ANDROID_ADB_SERVER_PORT": "6001"}, 6001),
        ({"ADB_SERVER_SOCKET": "tcp:6002", "ANDROID_ADB_SERVER_PORT": "6001"}, 6002),
        ({"ADB_SERVER_SOCKET": "tcp:localhost:6003"}, 6003),
        ({"ANDROID_ADB_SERVER_ADDRESS": "127.0.0.1"}, 5037),
        ({"ANDROID_ADB_SERVER_ADDRESS": "10.0.0.2"}, None),
        ({"ADB_SERVER_SOCKET": "tcp:farm.example:5037"}, None),
        ({"ADB_SERVER_SOCKET": "localfilesystem:/x"}, None),
        ({"ANDROID_ADB_SERVER_PORT": "many"}, None),
        ({"ANDROID_ADB_SERVER_PORT": "70000"}, None),
    ],
)
def test_the_server_port_follows_adbs_own_variables_on_this_machine(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], port: int | None
) -> None:
    for name in ("ADB_SERVER_SOCKET", "ANDROID_ADB_SERVER_ADDRESS", "ANDROID_ADB_SERVER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with nullcontext() if port else pytest.raises(ConfigError):
        assert adb.server_port() == port


def fake_adb(path: Path, version: str) -> Path:
    return write_program(path, f"echo 'Android Debug Bridge version 1.0.41'\necho 'Version {version}'")


def test_the_newest_adb_is_taken_and_says_where_from(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ADBUTILS_ADB_PATH", raising=False)
    old = fake_adb(tmp_path / "old" / "adb", "29.0.6-debian")
    monkeypatch.setenv("PATH", str(old.parent))
    program = adb.find_adb()
    assert program.origin == "adbutils" and program.version > (29, 0, 6)
    new = fake_adb(tmp_path / "new" / "adb", "99.0.1-13206524")
    monkeypatch.setenv("PATH", str(new.parent))
    assert (adb.find_adb().path, adb.find_adb().origin) == (new, "PATH")
    monkeypatch.setenv("ADBUTILS_ADB_PATH", str(old))
    chosen = adb.find_adb()
    assert (chosen.path, chosen.version, chosen.old) == (old, (29, 0, 6), True)
    assert "old" in chosen.label


def test_a_named_adb_that_does_not_run_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ADBUTILS_ADB_PATH", str(tmp_path / "nothing"))
    with pytest.raises(ToolNotFound, match="ADBUTILS_ADB_PATH"):
        adb.find_adb()


def test_no_adb_at_all_says_where_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ADBUTILS_ADB_PATH", raising=False)
    monkeypatch.setattr(adb, "_candidates", lambda: iter(()))
    with pytest.raises(ToolNotFound) as caught:
        adb.find_adb()
    assert "adbutils" in caught.value.remedy


def test_a_failed_connect_is_an_error_though_adb_answers_okay(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = b"OKAY" + text("failed to connect to '127.0.0.1:9': Connection refused")
    with (
        fake_server(monkeypatch, replying(refused)) as server,
        pytest.raises(NoDevice, match="Connection refused"),
    ):
        selection.connect("127.0.0.1:9")
    assert server.peers[0].requests == ["host:connect:127.0.0.1:9"]


def test_a_known_address_connects(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_server(monkeypatch, replying(b"OKAY" + text("already connected to 127.0.0.1:9"))):
        assert selection.connect("127.0.0.1:9") == "127.0.0.1:9"


def test_a_server_that_never_answers_ends_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adb, "REQUEST_SECONDS", 0.2)
    with fake_server(monkeypatch, Peer.drain), pytest.raises(DeviceError, match=r"longer than 0\.2 s"):
        selection.listing()


def test_a_port_that_speaks_something_else_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    server = fake_server(monkeypatch, replying(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
    with server, pytest.raises(DeviceError, match="does not speak adb") as caught:
        selection.listing()
    assert "ANDROID_ADB_SERVER_PORT" in caught.value.remedy


def test_the_variable_names_the_device_and_the_flag_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    listing = text("aaa device transport_id:1\nbbb device transport_id:2\n")
    with fake_server(monkeypatch, replying(b"OKAY" + listing)):
        with pytest.raises(AmbiguousDevice):
            selection.select()
        monkeypatch.setenv("ANDROID_SERIAL", "bbb")
        assert selection.select().serial == "bbb"
        assert selection.select("aaa").serial == "aaa"


def test_a_device_that_is_just_connecting_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    connecting, ready = (
        replying(b"OKAY" + text(f"aaa {state} transport_id:1\n")) for state in ("connecting", "device")
    )
    with fake_server(monkeypatch, connecting, connecting, ready) as server:
        assert selection.select().serial == "aaa"
    assert len(server.peers) == 3


def test_no_list_is_named_where_nothing_is_connected() -> None:
    with pytest.raises(NoDevice) as caught:
        choose([], "abcdefgh", origin="--serial")
    assert "adt devices" not in caught.value.remedy and "adt emulator start" in caught.value.remedy
