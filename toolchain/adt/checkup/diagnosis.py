"""Ask every question of the areas that were named, mend what can be mended, and ask again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from adt.checkup import device, host, ndk, package, rpc
from adt.checkup.check import Area, Check, Question, Scope, Status, answers
from adt.checkup.repair import Repair, mend, planned_repairs
from adt.host.document import in_document

MENDING_ROUNDS = 3
"""One repair may uncover another: a server that was started may know of an offline device."""


@dataclass(frozen=True)
class Diagnosis:
    """The checks of one run, and the repairs."""

    checks: tuple[Check, ...]
    """As things are now: after the repairs, if there were any."""
    repairs: tuple[Repair, ...] = ()

    @property
    def failed(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.status is Status.FAILED)

    @property
    @in_document()
    def passed(self) -> bool:
        """No check failed."""
        return not self.failed

    @property
    @in_document()
    def counts(self) -> dict[str, int]:
        """Number of checks by their status."""
        return {status.value: sum(check.status is status for check in self.checks) for status in Status}


AREAS: dict[Area, Callable[[Scope], Iterator[Question]]] = {
    Area.HOST: host.questions,
    Area.NDK: ndk.questions,
    Area.DEVICE: device.questions,
    Area.RPC: lambda _: rpc.questions(),
    Area.PACKAGE: package.questions,
}
"""In the order in which they are shown."""


def examine(scope: Scope) -> Iterator[Check]:
    """Yield each check of the areas that were named as it comes; never raises for what it meets."""
    for area, questions in AREAS.items():
        if scope.areas and area not in scope.areas:
            continue

        def all_of(
            area: Area = area, questions: Callable[[Scope], Iterator[Question]] = questions
        ) -> Iterator[Check]:
            for question in questions(scope):
                yield from answers(area, question)

        yield from answers(area, Question(area.value, all_of))


def diagnose(
    scope: Scope,
    *,
    fix: bool = False,
    on_check: Callable[[Check], None] = lambda _: None,
    on_repair: Callable[[Repair], None] = lambda _: None,
) -> Diagnosis:
    """Look; with *fix* mend what can be mended and, as long as something new was tried, look again."""
    checks = _round(scope, on_check)
    repairs: list[Repair] = []
    for _ in range(MENDING_ROUNDS if fix else 0):
        tried = {repair.fix for repair in repairs}
        if not (fixes := [step for step in planned_repairs(checks) if step not in tried]):
            break
        for step in fixes:
            repairs.append(mend(step))
            on_repair(repairs[-1])
        checks = _round(scope, on_check)
    return Diagnosis(checks, tuple(repairs))


def _round(scope: Scope, on_check: Callable[[Check], None]) -> tuple[Check, ...]:
    checks = []
    for check in examine(scope):
        on_check(check)
        checks.append(check)
    return tuple(checks)
