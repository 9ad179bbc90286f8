"""``adt doctor``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import typer

from adt.api.requests import DoctorRequest, quiet
from adt.checkup.check import Status
from adt.cli.command import Rendering, command

if TYPE_CHECKING:
    from adt.checkup.check import Check
    from adt.checkup.diagnosis import Diagnosis
    from adt.checkup.repair import Repair

MARKS = {Status.OK: ("✓", "green"), Status.WARNING: ("!", "yellow"), Status.FAILED: ("✗", "red")}


@command("adt doctor ndk --ndk $NDK")
def doctor(request: DoctorRequest, as_json: bool) -> Rendering:
    """Check this machine, the NDK, the devices and a package: what is wrong, and what mends it."""
    from adt.api.inspect import doctor
    from adt.errors import DoctorFailed

    lines = _Lines()
    on_check, on_repair = (quiet, quiet) if as_json else (lines.check, lines.repair)
    result = doctor(request.but(on_check=on_check, on_repair=on_repair))
    error = None
    if not result.passed:
        mendable = not request.fix and any(check.fix for check in result.failed)
        names = ", ".join(f"{check.area}: {check.name}" for check in result.failed)
        error = DoctorFailed(
            f"{len(result.failed)} of {len(result.checks)} checks failed ({names})",
            remedy="Do what stands under each ✗" + (", or run it again with --fix." if mendable else "."),
        )
    return Rendering("doctor", lambda: _fields(result), ["\n" + _summary(result.checks)], error)


def _fields(result: Diagnosis) -> dict[str, Any]:
    return {
        "passed": result.passed,
        "counts": {status.value: sum(c.status is status for c in result.checks) for status in Status},
        "checks": [vars(check) | {"fix": check.fix and vars(check.fix)} for check in result.checks],
        "repairs": [
            vars(repair.fix) | {"done": repair.done, "said": repair.said} for repair in result.repairs
        ],
    }


class _Lines:
    """Prints one line per check under its area's heading, as the checks come."""

    def __init__(self) -> None:
        self._area = ""
        self._mending = self._written = False
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(errors="replace")  # a terminal without ✓ is no reason to fail

    def check(self, check: Check) -> None:
        """Show one check."""
        if check.area != self._area:
            self._heading(check.area)
            self._area, self._mending = check.area, False
        mark, colour = MARKS[check.status]
        origin = typer.style(f"  ({check.origin})", dim=True) if check.origin else ""
        typer.echo(f"  {typer.style(mark, fg=colour, bold=True)} {check.name}: {check.found}{origin}")
        if check.remedy and check.status is not Status.OK:
            typer.echo(f"      → {check.remedy}")

    def repair(self, repair: Repair) -> None:
        """Show one repair; the checks that follow are a new round."""
        if not self._mending:
            self._heading("fixing")
        self._area, self._mending = "", True
        mark = "✓" if repair.done else "✗"
        typer.echo(f"  {typer.style(mark, fg='green' if repair.done else 'red', bold=True)} {repair.said}")

    def _heading(self, text: str) -> None:
        typer.secho(("\n" if self._written else "") + text, bold=True)
        self._written = True


def _summary(checks: tuple[Check, ...]) -> str:
    counted = [(MARKS[status][0], sum(check.status is status for check in checks)) for status in Status]
    return f"{len(checks)} checks: " + ", ".join(f"{count} {mark}" for mark, count in counted)
