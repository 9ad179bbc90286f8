"""Connect, disconnect, pair: adb's answers are texts, and most failures say OKAY."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from device_fake_server import Handler, Peer, fake_server, text

from adt.device import adb, network
from adt.device.network import Connection
from adt.errors import AdtError, ConfigError, DeviceError, DeviceNotReady, NoDevice

ADDRESS = "127.0.0.1:37099"


def says(*answers: bytes) -> tuple[Handler, ...]:
    """A server that gives one answer on each connection."""

    def handler(answer: bytes) -> Handler:
        return lambda peer: peer.request(answer) and None

    return tuple(handler(answer) for answer in answers)


def okay(said: str) -> bytes:
    return b"OKAY" + text(said)


def listing(state: str) -> bytes:
    return okay(f"{ADDRESS} {state} transport_id:1\n" if state else "")


def test_a_device_is_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = says(listing(""), okay(f"connected to {ADDRESS}"), listing("offline"), listing("device"))
    with fake_server(monkeypatch, *answers) as server:
        assert network.connect(ADDRESS) == Connection(ADDRESS, already=False)
    assert server.peers[1].requests == [f"host:connect:{ADDRESS}"]


def test_one_that_was_connected_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = says(listing("device"), okay(f"already connected to {ADDRESS}"), listing("device"))
    with fake_server(monkeypatch, *answers):
        assert network.connect(ADDRESS).already


def test_an_unauthorized_one_has_the_remedy_of_its_state(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = says(listing(""), okay(f"connected to {ADDRESS}"), listing("unauthorized"))
    with fake_server(monkeypatch, *answers), pytest.raises(DeviceNotReady) as caught:
        network.connect(ADDRESS)
    assert "Allow USB debugging" in caught.value.remedy


def test_what_did_not_connect_is_forgotten_again(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = okay(f"failed to connect to '{ADDRESS}': Connection refused")
    answers = says(listing(""), refused, listing("offline"), b"", okay(f"disconnected {ADDRESS}"))
    with fake_server(monkeypatch, *answers) as server, pytest.raises(NoDevice, match="Connection refused"):
        network.connect(ADDRESS)
    assert server.peers[-1].requests == [f"host:disconnect:{ADDRESS}"]


def test_one_that_asks_its_owner_stays_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = okay(f"failed to authenticate to {ADDRESS}")
    answers = says(listing(""), refused, listing("unauthorized"))
    with fake_server(monkeypatch, *answers) as server, pytest.raises(DeviceNotReady, match="unauthorized"):
        network.connect(ADDRESS)
    assert len(server.peers) == 3


@pytest.mark.parametrize(
    "bad", ["phone", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:70000", "a b:5", "x:5;reboot"]
)
def test_what_is_no_address_is_refused_here(bad: str) -> None:
    for call in (network.connect, network.disconnect, lambda address: network.pair(address, "123456")):
        with pytest.raises(ConfigError, match="HOST:PORT"):
            call(bad)


def test_pairing_returns_what_adb_says(monkeypatch: pytest.MonkeyPatch) -> None:
    said = f"Successfully paired to {ADDRESS} [guid=adb-1]"
    with fake_server(monkeypatch, *says(b"OKAY" + okay(said))) as server:
        assert network.pair(ADDRESS, "123456") == said
    assert server.peers[0].requests == [f"host:pair:123456:{ADDRESS}"]


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (b"OKAYFAIL" + text("Unable to start pairing client."), NoDevice, "Unable to start"),
        (b"OKAYOKAY" + text("Failed: Wrong password or connection was dropped."), NoDevice, "Wrong password"),
        (b"FAIL" + text("unknown host service"), DeviceError, "too old to pair"),
        (b"FAIL" + text("something else"), DeviceError, "something else"),
    ],
)
def test_pairing_that_fails_is_judged_by_the_text(
    monkeypatch: pytest.MonkeyPatch, answer: bytes, kind: type[AdtError], words: str
) -> None:
    with fake_server(monkeypatch, *says(answer)), pytest.raises(kind, match=words) as caught:
        network.pair(ADDRESS, "123456")
    assert caught.value.remedy


@pytest.mark.parametrize("code", ["", "12 34", "1:2", "$(id)"])
def test_what_is_no_code_is_refused_here(code: str) -> None:
    with pytest.raises(ConfigError, match="pairing code"):
        network.pair(ADDRESS, code)


def test_a_silent_phone_ends_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "PAIR_SECONDS", 0.2)

    def handler(peer: Peer) -> None:
        peer.request()
        peer.drain()

    with fake_server(monkeypatch, handler), pytest.raises(DeviceError, match="longer than"):
        network.pair(ADDRESS, "123456")


def test_disconnecting_what_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = b"FAIL" + text(f"no such device '{ADDRESS}'")
    with fake_server(monkeypatch, *says(b"", refused)), pytest.raises(NoDevice, match="not connected"):
        network.disconnect(ADDRESS)
    with fake_server(monkeypatch, *says(b"", okay(f"disconnected {ADDRESS}"))):
        network.disconnect(ADDRESS)


@pytest.mark.parametrize(("given", "passed"), [(None, "0"), ("1", "1")])
def test_a_server_of_ours_does_not_listen_for_announcements(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: str | None, passed: str
) -> None:
    """A stand-in for the adb program notes what it was started with, and starts nothing."""
    program, note = tmp_path / "adb", tmp_path / "note"
    program.write_text(
        f'#!/bin/sh\n[ "$1" = version ] && echo "Version 36.0.0" && exit\necho "$ADB_MDNS" >{note}\nexit 1\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("ADBUTILS_ADB_PATH", str(program))
    monkeypatch.delenv("ADB_SERVER_SOCKET", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as plug:
        monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(plug.getsockname()[1]))
    monkeypatch.delenv("ADB_MDNS", raising=False)
    if given is not None:
        monkeypatch.setenv("ADB_MDNS", given)
    with pytest.raises(DeviceError, match="did not start"):
        adb.start_server()
    assert note.read_text().strip() == passed
