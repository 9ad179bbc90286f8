"""Specifications of faults, what is armed, and the control socket that changes it."""

import asyncio
import json
import threading
from pathlib import Path

import pytest

from adt.errors import ConfigError, EmulatorError
from adt.virtual import control, filesystem
from adt.virtual.faults import KINDS, Fault, Injector, parse

GOOD = (
    "drop-after=0",
    "stall-after=64k@once",
    "reboot-after=1M",
    "bandwidth=500k",
    "truncate",
    "enospc=1g",
    "wrong-hash@once",
    "readonly=/data/local/tmp",
    "unauthorized=2.5",
    "offline@once",
    "no-shell-v2",
)


def test_every_kind_is_read_and_written_back() -> None:
    read = parse(GOOD)
    assert tuple(map(str, read)) == GOOD
    assert {fault.kind for fault in read} == set(KINDS)
    assert read[1] == Fault("stall-after", "64k", True) and read[1].amount == 65536
    assert read[2].amount == 1 << 20 and read[8].seconds == 2.5
    assert read[4].amount is None


@pytest.mark.parametrize(
    "text",
    ["", "late", "drop-after", "drop-after=", "drop-after=x", "drop-after=-1", "drop-after=1t", "offline=1",
     "bandwidth=0", "unauthorized=soon", "readonly=data", "readonly", "wrong-hash=", "offline@twice",
     "offline@once@once"],
)  # fmt: skip
def test_what_is_no_fault_is_answered_with_the_list(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse([text])
    assert repr(text) in caught.value.what
    assert all(kind.usage in caught.value.details for kind in KINDS.values())


def test_a_slip_gets_a_suggestion() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'wrong-hash'"):
        parse(["wronghash"])


def test_contradictions() -> None:
    with pytest.raises(ConfigError, match="given twice"):
        parse(["drop-after=1", "drop-after=2"])
    with pytest.raises(ConfigError, match="cannot strike once"):
        parse(["readonly=/data@once"])
    assert len(parse(["readonly=/data", "readonly=/sdcard"])) == 2


def test_once_is_gone_and_the_rest_stays() -> None:
    injector = Injector()
    injector.replace(parse(["wrong-hash@once", "truncate"]))
    assert injector.strikes("wrong-hash") and not injector.strikes("wrong-hash")
    assert injector.strikes("truncate") and injector.strikes("truncate")
    assert not injector.strikes("offline")


def test_shell_v2_is_offered_again_through_a_new_connection() -> None:
    cut: list[int] = []
    injector = Injector()
    injector.on_new_handshake = lambda: cut.append(1)
    injector.replace(parse(["no-shell-v2"]))
    assert injector.features(("shell_v2", "ls_v2")) == ("ls_v2",)
    injector.replace(parse(["no-shell-v2", "truncate"]))
    assert len(cut) == 1, "nothing new for a new connection"
    injector.replace(())
    assert len(cut) == 2 and injector.features(("shell_v2",)) == ("shell_v2",)


def test_readonly_of_a_directory_that_is_not_there(tmp_path: Path) -> None:
    injector = Injector()
    with pytest.raises(OSError, match="no directory /none/such"):
        injector.replace(parse(["truncate", "readonly=/none/such"]))
    assert injector.armed() == ()


def test_control_socket(tmp_path: Path) -> None:
    path = tmp_path / ("d" * 100) / ("e" * 100) / "control"
    path.parent.mkdir(parents=True)
    path.touch()
    injector, loop, ready = Injector(), asyncio.new_event_loop(), threading.Event()

    async def serve() -> None:
        server = await control.serve(control.listen(path), injector)
        ready.set()
        async with server:
            await stop.wait()

    stop = asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        assert ready.wait(5)
        assert path.stat().st_mode & 0o777 == 0o600
        assert control.ask(path, None) == ()
        assert control.ask(path, ["offline", "truncate=9@once"]) == ("offline", "truncate=9@once")
        assert control.ask(path, None) == ("offline", "truncate=9@once")
        with pytest.raises(EmulatorError, match="no directory"):
            control.ask(path, ["readonly=/none/such"])
        assert control.ask(path, []) == ()
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(5)
        loop.close()
    with pytest.raises(EmulatorError, match="does not answer"):
        control.ask(path, None)


@pytest.mark.parametrize("line", [b"", b"no json", b"[]", b'{"faults": 3}', b'{"faults": ["late"]}'])
def test_control_answers_nonsense_with_an_error(line: bytes) -> None:
    assert "error" in control.answer(line, Injector()) or json.loads(line) == []


def test_boot_identifiers_are_uuids_and_differ(tmp_path: Path) -> None:
    found = set()
    for _ in range(3):
        filesystem.new_boot_id(tmp_path / "id")
        text = (tmp_path / "id").read_text()
        assert [len(part) for part in text.strip().split("-")] == [8, 4, 4, 4, 12] and text[14] == "4"
        found.add(text)
    assert len(found) == 3
