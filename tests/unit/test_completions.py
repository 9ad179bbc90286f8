"""Shell completion of values, through what a shell runs."""

import socket
import sys

import pytest

from adt.bundle.libraries import LIBRARIES
from support.devices.adb_server import Peer, fake_server, replying, text
from support.devices.programs import MAIN, run_program


def offered(line: str) -> list[str]:
    """Return the words that bash would offer at the end of *line*."""
    environ = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    done = run_program(sys.executable, "-c", MAIN, _ADT_COMPLETE="complete_bash", **environ)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("adt compile m.onnx --target adr", ["adreno", "adreno-buffer"]),
        ("adt compile m.onnx --precision f", ["float32", "float16", "float16_acc32"]),
        ("adt compile m.onnx --offload ", [*LIBRARIES, "auto", "none"]),
        ("adt compile m.onnx --offload xnnpack,c", ["xnnpack,clml", "xnnpack,cudnn", "xnnpack,cublas"]),
        ("adt build-target --for linux-arm", ["linux-armhf", "linux-armhf-cpu", "linux-armhf-opencl"]),
        ("adt tune m.onnx --tuner r", ["random", "replay"]),
        ("adt bench p --protocol q", ["quick"]),
        ("adt compile m.onnx --cpu nat", ["native"]),
    ],
)
def test_values_of_options_are_offered(line: str, words: list[str]) -> None:
    assert offered(line) == words


LISTING = "".join(f"{serial} device product:p model:m transport_id:1\n" for serial in ("A1", "A2", "B"))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("adt run p --serial A", ["A1", "A2"]),
        ("adt deploy p -s ", ["A1", "A2", "B"]),
        ("adt deploy p -s A1,", ["A1,A2", "A1,B"]),
        ("adt compile m.onnx --like B", ["B"]),
    ],
)
def test_serials_are_those_of_the_server(
    monkeypatch: pytest.MonkeyPatch, line: str, words: list[str]
) -> None:
    # the first connection only looks whether there is a server
    with fake_server(monkeypatch, lambda _peer: None, replying(b"OKAY" + text(LISTING))):
        assert offered(line) == words


def test_a_server_that_is_silent_offers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_server(monkeypatch, Peer.drain):
        assert offered("adt run p --serial ") == []


def test_without_a_server_none_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_server(monkeypatch, Peer.drain) as server:
        pass
    assert offered("adt run p --serial ") == []
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", server.port), timeout=5)
