"""The list of devices when one of them hangs."""

import pytest

from adt.device import probe
from support.devices.adb_server import Peer, fake_server, marker, packet, text

SURVEY = b"""==machine==
aarch64
==page==
4096
==boot==

==properties==
[ro.product.model]: [Pixel]
[ro.soc.model]: [SM8650]
[ro.product.cpu.abilist]: [arm64-v8a]
[ro.build.version.sdk]: [34]
[ro.hardware.egl]: [adreno]
"""


def test_one_hanging_device_does_not_hold_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def server(peer: Peer) -> None:
        request = peer.request()
        if request == "host:devices-l":
            peer.send(text("hung device usb:1\nwell device usb:2\nlocked unauthorized usb:3\n"))
        elif request.endswith(":features"):
            peer.send(text("shell_v2"))
        elif request == "host:transport:well":
            pid = f"{marker(peer.request())} 5\n".encode()
            peer.send(packet(2, pid) + packet(1, SURVEY) + packet(3, b"\0"))
        else:
            peer.drain()

    with fake_server(monkeypatch, server):
        hung, well, locked = probe.overview(seconds=1.5)
    assert (well.model, well.soc, well.gpu, well.api_level) == ("Pixel", "SM8650", "adreno", 34)
    assert (well.abis, well.problem, well.transport) == (("arm64-v8a",), "", "usb")
    assert "longer than 1.5 s" in hung.problem and hung.remedy and hung.ready
    assert locked.problem == "unauthorized" and "Allow USB debugging" in locked.remedy
