"""What is tried again after a drop, and what is not; the list of devices when one of them hangs."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from device_fake_server import Peer, fake_server, text

from adt.device import overview
from adt.device.adb import ConnectionLost
from adt.device.device import Device
from adt.device.link import Forward, retry_idempotent, wait_ready
from adt.errors import DeviceError, DeviceNotReady, NoDevice


def ready(peer: Peer) -> None:
    peer.request(b"OKAY" + text("S device transport_id:1\n"))


def failing(*errors: Exception) -> tuple[Callable[[], str], list[int]]:
    calls: list[int] = []

    def call() -> str:
        calls.append(1)
        if len(calls) <= len(errors):
            raise errors[len(calls) - 1]
        return "done"

    return call, calls


LOST = ConnectionLost("the connection broke", remedy="again")


def test_a_drop_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    call, calls = failing(LOST, NoDevice("gone", remedy="-"))
    with fake_server(monkeypatch, ready):
        assert retry_idempotent(Device("S"), "asking", call) == "done"
    assert len(calls) == 3


def test_the_last_attempt_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    call, calls = failing(*[LOST] * 5)
    with fake_server(monkeypatch, ready), pytest.raises(ConnectionLost):
        retry_idempotent(Device("S"), "asking", call, attempts=2)
    assert len(calls) == 2


def test_what_happened_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """By the error that is raised in the end; the warnings only say that it goes on."""
    call, _ = failing(*[LOST] * 3)
    with (
        fake_server(monkeypatch, ready),
        caplog.at_level("INFO"),
        pytest.raises(ConnectionLost, match="broke"),
    ):
        retry_idempotent(Device("S"), "asking", call)
    assert [record.getMessage() for record in caplog.records] == [
        f"asking: interrupted; trying again ({number} of 3)" for number in (2, 3)
    ]


def test_what_is_no_drop_is_not_tried_again() -> None:
    call, calls = failing(DeviceError("exit code 1", remedy="-"))
    with pytest.raises(DeviceError, match="exit code 1"):
        retry_idempotent(Device("S"), "asking", call)
    assert len(calls) == 1


@pytest.mark.parametrize(("row", "kind"), [("", NoDevice), ("S unauthorized\n", DeviceNotReady)])
def test_a_device_that_does_not_come_back_is_an_error(
    monkeypatch: pytest.MonkeyPatch, row: str, kind: type[Exception]
) -> None:
    def handler(peer: Peer) -> None:
        peer.request(b"OKAY" + text(row))

    with fake_server(monkeypatch, handler), pytest.raises(kind):
        wait_ready("S", timeout=0.7)


def test_only_what_is_missing_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two forwards and a reverse; after the drop adb has one of the forwards, and others'."""
    requests: list[str] = []

    def server(peer: Peer) -> None:
        request = peer.request()
        requests.append(request)
        if request == "host:transport:S":
            request = peer.request()
            requests.append(request)
        if "list-forward" in request:
            rows = (
                "(reverse) tcp:5 tcp:6\n"
                if request.startswith("reverse")
                else "S tcp:1001 tcp:1\nT tcp:1002 tcp:2\n"
            )
            peer.send(text(rows))
        elif request == "host:devices-l":
            peer.send(text("S device transport_id:1\n"))
        elif "tcp:0;" in request:
            peer.send(b"OKAY" + text(str(1000 + int(request[-1]))))
        else:
            peer.send(b"OKAY")

    with fake_server(monkeypatch, server):
        links = Device("S").links
        assert [links.forward(1), links.forward(2)] == [Forward(1001, 1), Forward(1002, 2)]
        assert links.reverse(9090, 1000) == Forward(9090, 1000, reverse=True)
        requests.clear()
        assert links.restore() == (Forward(1002, 2), Forward(9090, 1000, reverse=True))
        made = [request for request in requests if ":forward:" in request]
        assert made == [
            "host-serial:S:forward:norebind:tcp:1002;tcp:2",
            "reverse:forward:norebind:tcp:1000;tcp:9090",
        ]
        links.close()
        assert links.in_force == ()
    assert [r.partition("killforward:")[2] for r in requests if "killforward" in r] == [
        "tcp:1000",
        "tcp:1002",
        "tcp:1001",
    ]


FACTS = b"[ro.product.model]: [Pixel]\n[ro.soc.model]: [SM8650]\n[ro.product.cpu.abilist]: [arm64-v8a]\n[ro.build.version.sdk]: [34]\n[ro.hardware.egl]: [adreno]\n==uname==\naarch64\n==page==\n4096\n==boot==\n\n"


def test_one_hanging_device_does_not_hold_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def server(peer: Peer) -> None:
        request = peer.request()
        if request == "host:devices-l":
            peer.send(text("hung device usb:1\nwell device usb:2\nlocked unauthorized usb:3\n"))
        elif request.endswith(":features"):
            peer.send(text("shell_v2"))
        elif request == "host:transport:well":
            marker = peer.request().split("echo ", 1)[1].split()[0].replace("''", "")
            pid = f"{marker} 5\n".encode()
            for kind, data in ((2, pid), (1, FACTS), (3, b"\0")):
                peer.send(struct.pack("<BI", kind, len(data)) + data)
        else:
            peer.drain()

    with fake_server(monkeypatch, server):
        hung, well, locked = overview.overview(seconds=1.5)
    assert (well.model, well.soc, well.gpu, well.api_level) == ("Pixel", "SM8650", "adreno", 34)
    assert (well.abis, well.problem, well.transport) == (("arm64-v8a",), "", "usb")
    assert "longer than 1.5 s" in hung.problem and hung.remedy and hung.ready
    assert locked.problem == "unauthorized" and "Allow USB debugging" in locked.remedy
