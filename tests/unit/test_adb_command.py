"""Command lines of the adb program: a stand-in prints its own, a fake server lists the devices."""

from pathlib import Path

import pytest

import adt
from adt.device.transport import adb
from adt.errors import AmbiguousDevice, DeviceError, NoDevice
from support.devices.adb_server import fake_server, replying, text
from support.devices.ports import free_port
from support.devices.programs import write_program

LISTING = replying(b"OKAY" + text("one device usb:1\ntwo recovery usb:2\nthree device usb:3\n"))


@pytest.fixture(autouse=True)
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Record the search for announced devices that was asked for, and start nothing."""
    script = f'[ "$1" = version ] && echo "Version 36.0.0" && exit\necho "$ADB_MDNS" >{tmp_path}/note\nexit 1'
    path = write_program(tmp_path / "adb", script)
    monkeypatch.setenv("ADBUTILS_ADB_PATH", str(path))
    for name in ("ADB_SERVER_SOCKET", "ANDROID_SERIAL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ADB_MDNS", adt.SILENT["ADB_MDNS"])
    return path


@pytest.mark.parametrize(
    "words",
    [["connect", "h:5555"], ["pair", "h:1"], ["devices", "-l"], ["kill-server"], ["-s", "x", "shell"], []],
)
def test_what_needs_no_device_gets_none(program: Path, words: list[str]) -> None:
    """Ask no server either: none runs here."""
    assert adt.adb_command(words).argv == (str(program), *words)
    assert adt.adb_command(words, serial="x").argv == (str(program), "-s", "x", *words)


def test_the_only_device_is_chosen(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_server(monkeypatch, replying(b"OKAY" + text("one device usb:1\n"))) as server:
        command = adt.adb_command(["shell", "ls", "-l"])
    assert command.argv == (str(program), "-s", "one", "shell", "ls", "-l")
    assert command.environment == {"ADB_SERVER_SOCKET": f"tcp:{server.port}"}


def test_several_devices_need_a_name(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_server(monkeypatch, LISTING):
        with pytest.raises(AmbiguousDevice):
            adt.adb_command(["shell"])
        assert adt.adb_command(["shell"], serial="three").argv[1:3] == ("-s", "three")
        monkeypatch.setenv("ANDROID_SERIAL", "one")
        assert adt.adb_command(["shell"]).argv[1:3] == ("-s", "one")
        with pytest.raises(NoDevice):
            adt.adb_command(["shell"], serial="four")


def test_one_in_another_system_can_be_restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Follow the remedy, and wait for a server that is to come."""
    with fake_server(monkeypatch, LISTING):
        assert adt.adb_command(["reboot"], serial="two").argv[1:] == ("-s", "two", "reboot")
        waiting = adt.adb_command(["wait-for-device"], serial="four")
        assert waiting.argv[1:] == ("-s", "four", "wait-for-device")
    assert adt.adb_command(["wait-for-device"]).argv[1:] == ("wait-for-device",)


@pytest.mark.parametrize(("value", "passed"), [(None, "0"), ("1", "1")])
def test_a_server_of_ours_does_not_listen_for_announcements(
    monkeypatch: pytest.MonkeyPatch, program: Path, value: str | None, passed: str
) -> None:
    monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(free_port()))
    if value is not None:
        monkeypatch.setenv("ADB_MDNS", value)
    with pytest.raises(DeviceError, match="did not start"):
        adb.start_server()
    assert program.with_name("note").read_text().strip() == passed
