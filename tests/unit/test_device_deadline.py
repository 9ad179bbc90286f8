"""Limits of waiting for a device: in all, without a byte, and after a request to leave."""

import math
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from adt.device.device import Device
from adt.device.transport import deadline
from adt.device.transport.deadline import (
    GIVING_UP,
    LEAVING,
    QUIET,
    SHORT,
    STALL,
    Cancelled,
    Deadline,
    DeviceTimeout,
    allowed,
    cancel_on,
    transfer_seconds,
)
from adt.device.transport.sync import SyncSession
from adt.host.transfers import silence


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(deadline, "time", SimpleNamespace(monotonic=clock.monotonic))
    return clock


@pytest.fixture
def notices() -> Iterator[list[tuple[str, float]]]:
    lines: list[tuple[str, float]] = []
    token = silence.set(lambda doing, seconds: lines.append((doing, seconds)))
    yield lines
    silence.reset(token)


def test_silence_is_shown_until_a_byte_comes(clock: Clock, notices: list[tuple[str, float]]) -> None:
    limit = Deadline(SHORT, "asking S")
    limit.patience()
    clock.now += QUIET - 1
    assert limit.patience() <= 1, "it looks again in time"
    assert notices == []
    clock.now += 1
    limit.patience()
    clock.now += 2
    limit.patience()
    limit.moved()
    limit.moved()
    assert notices == [
        ("asking S: 5 s so far", QUIET),
        ("asking S: 7 s so far", QUIET + 2),
        ("asking S", 0.0),
    ]
    limit.patience()
    assert len(notices) == 3
    transfer = Deadline(None, "pushing mod.so to S", stall=STALL)
    clock.now += QUIET
    transfer.patience()
    assert notices[3:] == [("pushing mod.so to S: no byte for 5 s", QUIET)]


def test_a_stall_names_what_was_done_and_for_how_long_nothing_came(clock: Clock) -> None:
    limit = Deadline(None, "pushing mod.so to S", stall=STALL)
    for _ in range(10):  # as long as bytes travel there is no limit
        clock.now += STALL - 1
        limit.patience()
        limit.moved()
    clock.now += STALL
    with pytest.raises(
        DeviceTimeout, match=rf"^pushing mod.so to S stalled: no byte for {STALL:g} s"
    ) as caught:
        limit.patience()
    assert "--timeout" in caught.value.remedy


def test_the_end_of_a_budget_says_how_long_it_was_silent(clock: Clock) -> None:
    limit = Deadline(30, "running `true` on S")
    clock.now += 12
    limit.moved()
    clock.now += 18
    with pytest.raises(DeviceTimeout, match="took longer than 30 s; no byte came for the last 18 s"):
        limit.remaining()
    busy = Deadline(30, "reading")
    clock.now += 30
    busy.moved()
    with pytest.raises(DeviceTimeout, match=r"(?m)took longer than 30 s$"):
        busy.remaining()


def test_all_that_cleans_up_after_ctrl_c_has_one_short_time(clock: Clock) -> None:
    assert allowed(SHORT) == SHORT
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        assert Deadline(SHORT, "cleaning up").seconds == allowed(SHORT) == LEAVING
        assert allowed(LEAVING / 4) == LEAVING / 4
        clock.now += LEAVING / 2
        assert Deadline(None, "cleaning more").seconds == LEAVING / 2
        clock.now += LEAVING
        with pytest.raises(DeviceTimeout):
            Deadline(SHORT, "cleaning still more").remaining()
        try:
            raise ValueError  # what fails meanwhile gives no more time
        except ValueError:
            assert allowed(SHORT) == 0
    assert allowed(SHORT) == SHORT


@pytest.mark.parametrize(
    ("error", "seconds"),
    [(Cancelled("x", remedy=""), LEAVING), (DeviceTimeout("x", remedy=""), GIVING_UP), (ValueError(), SHORT)],
    ids=lambda value: type(value).__name__,
)
def test_what_cleans_up_after_an_error(clock: Clock, error: Exception, seconds: float) -> None:
    try:
        raise error
    except Exception:
        assert allowed(SHORT) == seconds


def test_what_a_cancelled_thread_begins_has_a_short_time(clock: Clock) -> None:
    event = threading.Event()
    with cancel_on(event):
        before = Deadline(SHORT, "working")
        event.set()
        with pytest.raises(Cancelled):
            before.patience()
        after = Deadline(SHORT, "cleaning up")
        after.patience()
        assert after.seconds == LEAVING
    assert allowed(SHORT) == SHORT


def test_a_transfer_may_take_what_its_size_needs() -> None:
    assert transfer_seconds(0) < transfer_seconds(10**6) < transfer_seconds(10**9)


@pytest.mark.parametrize(("timeout", "expected"), [(None, (None, STALL)), (7.0, (7.0, math.inf))])
def test_who_gives_a_limit_has_it_for_transfers_too(
    monkeypatch: pytest.MonkeyPatch, timeout: float | None, expected: tuple[float | None, float | None]
) -> None:
    limits: list[Deadline] = []

    def opened(_self: SyncSession, _serial: str, *, deadline: Deadline, **_: object) -> None:
        limits.append(deadline)
        raise KeyboardInterrupt

    monkeypatch.setattr(SyncSession, "__init__", opened)
    device = Device("S", timeout)
    with pytest.raises(KeyboardInterrupt), device.sync(timeout=None, doing="x"):
        pass
    assert [(limit.seconds, limit.stall) for limit in limits] == [expected]
    assert device.allow(30) == (timeout or 30)
