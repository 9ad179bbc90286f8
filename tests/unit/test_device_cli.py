"""The verbs about devices: what they print and how they end."""

import json
from dataclasses import replace
from importlib import import_module

import pytest
import typer
from typer.testing import CliRunner

import adt
from adt.cli.app import app
from adt.device.probe import DeviceOverview
from adt.device.selection import Event, Outcome, Outcomes
from adt.errors import NoDevice
from adt.verbs import device as verbs
from adt.verbs.deploy import live_table, rendering

PHONE = DeviceOverview(
    serial="R58M123ABC",
    state="device",
    model="Pixel 8",
    product="shiba",
    transport="usb",
    soc="Google Tensor G3",
    gpu="mali",
    api_level=34,
    abis=("arm64-v8a", "armeabi-v7a"),
    virtual=False,
    problem="",
    remedy="",
)
LOCKED = replace(
    PHONE,
    serial="x",
    state="unauthorized",
    model="",
    soc="",
    gpu="",
    api_level=None,
    abis=(),
    problem="unauthorized",
    remedy="Unlock the phone.",
)


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


def offer(monkeypatch: pytest.MonkeyPatch, name: str, answer) -> None:
    """Let the function ``adt.NAME`` return *answer*."""
    monkeypatch.setattr(import_module(adt.NAMES[name]), name, lambda *_, **__: answer)


def test_the_list_has_a_column_for_each_fact() -> None:
    head, phone, locked, _ = verbs._lines([PHONE, LOCKED])
    assert head.split() == ["SERIAL", "STATE", "VIA", "MODEL", "SOC", "GPU", "API", "ABIS"]
    assert "Google Tensor G3" in phone and phone.endswith("34   arm64-v8a,armeabi-v7a")
    assert locked.split() == ["x", "unauthorized", "usb", "-", "-", "-", "-", "-"]
    assert phone.index("usb") == locked.index("usb") == head.index("VIA")


def test_a_bad_state_is_followed_by_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, "devices", (PHONE, LOCKED))
    done = run("devices")
    assert done.exit_code == 0
    assert "x: unauthorized\n  remedy: Unlock the phone." in done.stdout
    assert done.stdout.count("remedy:") == 1


def test_the_document_has_every_field(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, "devices", (PHONE,))
    document = json.loads(run("devices", "--json").stdout)
    assert document["schema"] == "adt.devices"
    assert document["devices"] == [vars(PHONE) | {"abis": list(PHONE.abis)}]


def test_no_device_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, "devices", ())
    assert "adt emulator start" in run("devices").stdout


def test_an_error_of_several_devices_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Print, when piped, one line for each device, and details and remedies that several share once."""
    error = NoDevice("no device has the serial", remedy="Plug it in.", details="No device is connected.")
    outcomes = Outcomes(tuple(Outcome(serial, 0.1, None, error) for serial in ("a", "b")))
    with live_table(["a", "b"], quiet=False) as on_event:
        for serial in ("a", "b"):
            on_event(Event(serial, error.what, done=True, failed=True))
    with pytest.raises(typer.Exit):
        rendering("deploy", outcomes, str).show(as_json=False)
    out, err = capsys.readouterr()
    assert out.splitlines() == [f"{serial}  error: {error.what}" for serial in ("a", "b")]
    assert error.what not in err and err.count(error.details) == err.count(error.remedy) == 1
    assert "a, b: remedy: Plug it in." in err
