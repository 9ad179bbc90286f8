"""Work on several devices at once, with work that needs no device."""

import _thread
import threading
from functools import partial

import pytest

from adt.device import selection
from adt.device.device import Device
from adt.device.selection import Event, Say, for_each
from adt.device.transport.deadline import Deadline
from adt.errors import ConfigError, DeviceError, NoDevice
from support.devices.adb_server import fake_server, replying, text

work_on_each = partial(for_each, opened=Device, on_event=lambda _: None)


def test_one_that_fails_stops_no_other() -> None:
    def work(device: Device, say: Say) -> str:
        say("working")
        if device.serial == "b":
            raise DeviceError("no luck", remedy="none")
        return device.serial.upper()

    events: list[Event] = []
    outcomes = work_on_each(["a", "b", "c"], work, on_event=events.append)
    assert [outcome.value for outcome in outcomes.all] == ["A", None, "C"]
    assert [outcome.serial for outcome in outcomes.failed] == ["b"]
    assert outcomes.exit_code == DeviceError.exit_code
    assert {(e.serial, e.failed) for e in events if e.done} == {("a", False), ("b", True), ("c", False)}
    assert Event("a", "working") in events


def test_the_first_failure_in_the_order_of_the_devices_gives_the_exit_code() -> None:
    second_failed = threading.Event()

    def work(device: Device, _say: Say) -> None:
        if device.serial == "a":
            assert second_failed.wait(60)
            raise NoDevice("gone", remedy="none")
        second_failed.set()
        raise DeviceError("broke", remedy="none")

    assert work_on_each(["a", "b"], work).exit_code == NoDevice.exit_code


def test_no_more_at_once_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    running, most, lock = 0, 0, threading.Lock()
    three = threading.Barrier(3, timeout=60)

    def work(_device: Device, _say: Say) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        three.wait()
        with lock:
            running -= 1

    monkeypatch.setattr(selection, "WORKERS", 3)
    work_on_each([str(n) for n in range(12)], work)
    assert most == 3


def test_interrupted_it_ends_what_is_under_way_and_starts_nothing_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(selection, "WORKERS", 2)
    started: list[str] = []
    cleaned: list[str] = []
    began = threading.Barrier(2)

    def work(device: Device, say: Say) -> None:
        started.append(device.serial)
        deadline = Deadline(None, "waiting for ever")
        if device.serial in "ab":
            began.wait(60)
        if device.serial == "a":
            _thread.interrupt_main()
        try:
            while True:
                deadline.remaining()
                threading.Event().wait(0.01)
        finally:
            Deadline(5, "cleaning up").remaining()  # begun after the interruption: it may run
            cleaned.append(device.serial)

    with pytest.raises(KeyboardInterrupt):
        work_on_each(["a", "b", "c", "d"], work)
    assert sorted(started) == sorted(cleaned) == ["a", "b"]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("adt-device")]


def test_a_bug_is_not_hidden() -> None:
    def work(_device: Device, _say: Say) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work_on_each(["a"], work)


@pytest.mark.parametrize(
    ("names", "serials"), [(None, ()), ("", ()), ("a", ("a",)), ("a,b", ("a", "b")), (" a , b,", ("a", "b"))]
)
def test_the_devices_that_are_meant(names: str | None, serials: tuple[str, ...]) -> None:
    assert selection.named_serials(names, everyone=False) == serials


def test_serials_of_connected_devices_may_have_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    listing = "ABC,DEF                device usb:1-4\nABC                    device usb:1-5\n"

    # The first connection only finds out that a server listens.
    with fake_server(monkeypatch, lambda _peer: None, replying(b"OKAY" + text(listing))):
        assert selection.named_serials("x, ABC,DEF,ABC", everyone=False) == ("x", "ABC,DEF", "ABC")


def test_contradictions_are_refused() -> None:
    for names, everyone in (("a", True), ("a,a", False)):
        with pytest.raises(ConfigError):
            selection.named_serials(names, everyone=everyone)


def test_all_of_none_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "listing", tuple)
    with pytest.raises(NoDevice):
        selection.named_serials(None, everyone=True)
