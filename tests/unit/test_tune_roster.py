"""Devices that may measure, and the blame for failures."""

from dataclasses import dataclass

from adt.rpc.wire import Target
from adt.tuning.candidates import MeasureJob, MeasureOutcome, Timing
from adt.tuning.fleet.roster import LONGEST_PAUSE, MAX_FAILURES, PATIENCE, Roster, Suspects
from adt.tuning.fleet.sources import UNKNOWN, Hardware, Lease, Sighting
from adt.tuning.records import Failure, MeasuredOn

A, B, C = "a", "b", "c"


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


def lease(name: str) -> Lease:
    server = Target("127.0.0.1", 1, "")
    return Lease(name, Hardware("", False, UNKNOWN), "key", server, None, lambda: True, lambda: None)


def sightings(*names: str, there: bool = True, note: str = "") -> list[Sighting]:
    return [Sighting(name, f"phone {name}", there, note) for name in names]


def state(roster: Roster, name: str) -> str:
    return next(status.state for status in roster.statuses() if status.name == name)


def test_devices_come_measure_leave_and_come_back() -> None:
    roster = Roster()
    roster.update(sightings(A, B), gone="left")
    assert [(status.name, status.label, status.state) for status in roster.statuses()] == [
        (A, "phone a", "starting"),
        (B, "phone b", "starting"),
    ]
    assert roster.at_work() == set() and roster.in_service() == {A, B}
    roster.set_state(A, "measuring")
    roster.set_state(B, "idle")
    assert roster.at_work() == {A, B}
    roster.update(sightings(A), gone="left")
    assert (state(roster, A), state(roster, B)) == ("measuring", "left")
    roster.update((), gone="away")  # the tracker does not answer
    assert (state(roster, A), state(roster, B)) == ("away", "left")
    roster.update(sightings(A, B), gone="left")
    assert roster.in_service() == {A, B}
    roster.update([*sightings(A, there=False, note="offline"), *sightings(B)], gone="left")
    (status, _) = roster.statuses()
    assert (status.state, status.note) == ("away", "offline")


def test_a_device_that_fails_again_and_again_while_others_succeed_is_out_for_longer_and_longer() -> None:
    clock = Clock()
    roster = Roster(clock=clock)
    roster.set_state(B, "idle")
    pauses = []
    for _ in range(7):
        waits = []
        while not any(waits):
            clock.now += 1
            waits.append(roster.fail(A, "crash: ended", candidate=True))
            roster.succeed(B, 0.5)
        pauses.append((len(waits), waits[-1]))
        assert roster.is_barred(A) and state(roster, A) == "out" and roster.refuses(lease(A))
        clock.now += waits[-1]
        assert not roster.is_barred(A) and not roster.refuses(lease(A)) and state(roster, A) == "starting"
    assert pauses == [
        (MAX_FAILURES, 60),
        (1, 120),
        (1, 240),
        (1, 480),
        (1, 960),
        (1, LONGEST_PAUSE),
        (1, LONGEST_PAUSE),
    ]
    roster.succeed(A, 0.5)
    assert [roster.fail(A, "hang: no answer") for _ in range(2)] == [0, 0]
    status = roster.statuses()[0]
    assert (status.measured, status.failed, status.restarts, status.note) == (1, 9, 11, "hang: no answer")


def test_a_device_that_is_alone_or_whose_candidates_were_to_blame_stays_in_service() -> None:
    roster = Roster(clock=Clock())
    assert [roster.fail(A, "crash") for _ in range(10)] == [0.0] * 10
    clock = Clock()
    roster = Roster(clock=clock)
    for _ in range(10):
        clock.now += 1
        assert roster.fail(A, "crash") == 0
        roster.clear((A,))
        roster.succeed(B, 0.1)
    assert state(roster, A) == "restarting"


def test_one_of_another_kind_is_refused_for_good() -> None:
    roster = Roster()
    roster.update(sightings(A), gone="left")
    roster.refuse(A, "it is a Mali")
    roster.update(sightings(A), gone="left")
    assert roster.is_barred(A) and roster.refuses(lease(A)) and state(roster, A) == "out"
    assert roster.in_service() == set()


def test_the_temperature_is_asked_now_and_then() -> None:
    clock = Clock()
    roster = Roster(clock=clock)
    assert roster.celsius(A, lambda: 41.5) == roster.celsius(A, lambda: 50.0) == 41.5
    assert roster.celsius(B, lambda: None) is None
    clock.now += 10
    assert roster.celsius(A, lambda: 50.0) == 50.0


# suspects -----------------------------------------------------------------------------------------


def job(number: int) -> MeasureJob:
    return MeasureJob(number, "conv", b"", (), "cpu", Timing())


def outcome(number: int, name: str, kind: str = "", *, lost: bool = False) -> MeasureOutcome:
    failure = Failure(kind, f"{kind}!") if kind else None
    seconds = () if kind or lost else (0.1,)
    return MeasureOutcome(number, seconds, failure, lost, MeasuredOn(name, "", None), "soc", "")


def test_what_ran_or_was_refused_is_told_at_once() -> None:
    suspects = Suspects()
    for measured in (outcome(1, A), outcome(2, A, "run")):
        assert suspects.judge(job(measured.id), measured, {B}) == (measured, ())
    assert not suspects.waiting and suspects.take(B) is None


def test_what_crashed_one_device_is_tried_on_another_and_blamed_when_it_crashes_that() -> None:
    suspects = Suspects()
    assert suspects.judge(job(1), outcome(1, A, "crash"), {B, C}) == (None, ())
    assert suspects.waiting and suspects.take(A) is None
    assert suspects.take(B) == job(1) and suspects.take(C) is None
    verdict, cleared = suspects.judge(job(1), outcome(1, B, "hang"), {C})
    assert verdict and verdict.failure == Failure("hang", "hang! (b, and a before)") and cleared == (A, B)
    suspects.judge(job(2), outcome(2, A, "crash"), {B})
    assert suspects.take(B) == job(2)
    assert suspects.judge(job(2), outcome(2, B), {A}) == (outcome(2, B), ())


def test_what_crashes_the_only_device_is_blamed() -> None:
    crash = outcome(1, A, "crash")
    assert Suspects().judge(job(1), crash, frozenset()) == (crash, (A,))


def test_nobody_waits_for_a_device_that_does_not_come() -> None:
    clock = Clock()
    suspects = Suspects(clock=clock)
    for number in (1, 2):
        suspects.judge(job(number), outcome(number, A, "crash"), {B})
    assert suspects.orphans({A, B}) == ()
    assert suspects.orphans({A}) == (outcome(1, A, "crash"), outcome(2, A, "crash"))
    suspects.judge(job(3), outcome(3, A, "crash"), {B})
    clock.now += PATIENCE + 1
    assert suspects.orphans({A, B}) == (outcome(3, A, "crash"),)
    suspects.judge(job(4), outcome(4, A, "crash"), {B})
    assert suspects.drop() == (outcome(4, A, lost=True),) and suspects.drop() == ()


def test_what_takes_two_devices_along_is_blamed_and_what_one_device_loses_twice_is_not() -> None:
    suspects = Suspects()
    for _ in range(3):
        assert suspects.judge(job(1), outcome(1, A, lost=True), {B}) == (outcome(1, A, lost=True), ())
    verdict, cleared = suspects.judge(job(1), outcome(1, B, lost=True), {C})
    assert (
        verdict
        and not verdict.lost
        and verdict.failure
        and verdict.failure.kind == "crash"
        and cleared == (A, B)
    )
    suspects.judge(job(2), outcome(2, A, "crash"), {B})
    suspects.take(B)
    verdict, _ = suspects.judge(job(2), outcome(2, B, lost=True), {C})
    assert verdict and verdict.failure and "a before" in verdict.failure.message
