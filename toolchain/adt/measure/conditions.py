"""State of a machine before it is measured: governors, battery, screen, heat; and a wait till it is cool."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from adt.device import survey
from adt.device.place import DevicePlace, Place
from adt.device.survey import Survey
from adt.errors import ConfigError

log = logging.getLogger("adt.bench")

SCRIPT_SECONDS = 60.0

COOL_DOWN_MOST = 900.0
"""Seconds after which cooling down is given up."""
COOL_DOWN_POLL = 5.0


@dataclass(frozen=True)
class Conditions:
    """State that a machine reports just before the runs."""

    governors: tuple[str, ...]
    """Governors of the CPUs, each once; empty where the machine does not say."""
    external_power: bool | None
    """It does not run from its battery alone; None: it has no battery, or does not say."""
    screen_on: bool | None
    hottest_celsius: float | None
    hottest_zone: str
    cpu: str
    """The processor's name, where the kernel gives one."""
    board: str
    """The machine's name, where a device tree gives one."""


@dataclass(frozen=True)
class CoolDown:
    """Wait before the runs."""

    celsius: float | None = None
    """Until the hottest zone is at most so warm …"""
    seconds: float | None = None
    """Seconds of the longest wait."""

    @property
    def text(self) -> str:
        """As it is given."""
        return f"{self.celsius:g}C" if self.celsius is not None else f"{self.seconds:g}s"


def parse_cool_down(text: str) -> CoolDown:
    """Parse ``45C`` (or ``45°C``) or ``30s``."""
    if match := re.fullmatch(r"\s*(\d{1,6}(?:\.\d+)?)\s*(°?[cC]|s)\s*", text):
        number = float(match[1])
        return CoolDown(seconds=number) if match[2] == "s" else CoolDown(celsius=number)
    raise ConfigError(
        f"--cool-down {text!r} is neither a temperature nor a time", remedy="Write 45C, or 30s."
    )


def conditions(place: Place) -> Conditions:
    """Ask the machine that *place* is on."""
    if isinstance(place, DevicePlace):
        doing = f"asking {place.name} how it stands"
        return read(place.device.survey(*survey.CONDITIONS, timeout=SCRIPT_SECONDS, check=False, doing=doing))
    return read(survey.survey_host(*survey.CONDITIONS, seconds=SCRIPT_SECONDS))


def read(answer: Survey) -> Conditions:
    """Take from a survey what counts for a measurement."""
    return Conditions(
        governors=answer.governors,
        external_power=answer.external_power,
        screen_on=answer.screen_on,
        hottest_celsius=answer.hottest.celsius if answer.hottest else None,
        hottest_zone=answer.hottest.kind if answer.hottest else "",
        cpu=answer.processor,
        board=answer.board,
    )


def cool_down(
    place: Place,
    goal: CoolDown,
    *,
    most: float = COOL_DOWN_MOST,
    sleep: Callable[[float], None] = time.sleep,
    look: Callable[[Place], Conditions] = conditions,
) -> bool:
    """Wait until the machine is as cool as *goal*, at most *most* seconds; False if it did not get there."""
    if goal.seconds is not None:
        log.info("cooling down for %g s", goal.seconds)
        sleep(goal.seconds)
        return True
    assert goal.celsius is not None
    waited = 0.0
    while True:
        now = look(place)
        if now.hottest_celsius is None:
            log.warning("%s gives no temperature that could be waited for", place.name)
            return False
        if now.hottest_celsius <= goal.celsius:
            return True
        if waited >= most:
            log.warning(
                "%s is still at %.1f °C (%s) after %g s; it is measured as it is",
                place.name, now.hottest_celsius, now.hottest_zone, waited,
            )  # fmt: skip
            return False
        if waited == 0:
            log.info(
                "waiting until %s (%.1f °C) is at most %g °C",
                now.hottest_zone,
                now.hottest_celsius,
                goal.celsius,
            )
        pause = min(COOL_DOWN_POLL, most - waited)
        sleep(pause)
        waited += pause
