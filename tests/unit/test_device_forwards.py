"""Requests to adb that carry ports, and the reading of its answers."""

import re
import threading

import pytest

from adt.device.transport import forwards
from adt.device.transport.deadline import Cancelled, cancel_on
from adt.device.transport.forwards import Forward
from adt.errors import DeviceError, NoDevice
from support.devices.adb_server import Peer, fake_server, replying, text

ROWS = "S tcp:1001 tcp:1\nT tcp:1002 tcp:2\nS tcp:1003 localabstract:x\nS localabstract:y tcp:3\n\n"


def test_forwards_are_those_of_one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_server(monkeypatch, replying(b"OKAY" + text(ROWS))) as server:
        assert forwards.listed("S") == {1001: "tcp:1", 1003: "localabstract:x"}
        assert forwards.listed("other") == {}
        assert server.peers[0].requests == ["host:list-forward"]


@pytest.mark.parametrize("first", ["(reverse) ", "UsbFfs ", ""], ids=["", "another word", "no word"])
def test_reverses_are_read_whatever_stands_before(monkeypatch: pytest.MonkeyPatch, first: str) -> None:
    rows = text(f"{first}tcp:5 tcp:6\n{first}tcp:7 localfilesystem:/x\n")
    with fake_server(monkeypatch, replying(b"OKAY", b"OKAY" + rows)) as server:
        assert forwards.listed("S", reverse=True) == {5: "tcp:6", 7: "localfilesystem:/x"}
        assert server.peers[0].requests == ["host:transport:S", "reverse:list-forward"]


def test_a_device_is_asked_for_a_port_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask by number, since ``tcp:0`` twice makes the adb server end itself; try another where one is taken."""
    asked: list[str] = []

    def server(peer: Peer) -> None:
        peer.request()
        asked.append(peer.request())
        peer.send(
            b"OKAYOKAY" if len(asked) > 2 else b"FAIL" + text("cannot bind listener: Address already in use")
        )

    with fake_server(monkeypatch, server):
        forward = forwards.make("S", Forward(9190, 0, reverse=True))
    ports = [int(re.fullmatch(r"reverse:forward:norebind:tcp:(\d+);tcp:9190", each)[1]) for each in asked]  # type: ignore[index]
    assert len(set(ports)) == 3 and set(ports) <= set(forwards.DEVICE_PORTS)
    assert forward == Forward(9190, ports[-1], reverse=True)


@pytest.mark.parametrize("reverse", [True, False])
@pytest.mark.parametrize(
    ("message", "kind", "taken"),
    [
        ("cannot bind listener: Address already in use", DeviceError, True),
        ("cannot rebind existing socket", DeviceError, True),
        ("closed", DeviceError, False),
        ("device 'S' not found", NoDevice, False),
    ],
)
def test_why_a_port_is_not_carried(
    monkeypatch: pytest.MonkeyPatch, reverse: bool, message: str, kind: type[Exception], taken: bool
) -> None:
    def server(peer: Peer) -> None:
        if peer.request() == "host:transport:S":
            peer.request()
        peer.send(b"FAIL" + text(message))

    with fake_server(monkeypatch, server):
        with pytest.raises(kind) as caught:
            forwards.make("S", Forward(9090, 9090, reverse))
        forwards.end("S", Forward(9090, 9090, reverse))  # that it is gone is no error
    if isinstance(caught.value, DeviceError):
        assert forwards.taken(caught.value) == taken


def test_a_forward_whose_removal_was_cancelled_is_not_taken_for_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()

    def server(peer: Peer) -> None:
        peer.request()
        asked.set()  # and the result never comes
        peer.drain()

    with fake_server(monkeypatch, server), cancel_on(asked), pytest.raises(Cancelled):
        forwards.end("S", Forward(9090, 9090))
