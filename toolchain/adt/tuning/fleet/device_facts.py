"""Facts of a device for the records: its name and driver, and its temperature."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from functools import cache

from adt.bundle.bundle import TargetBundle
from adt.device.device import Device
from adt.device.probe import package_like, probe
from adt.device.survey import Survey, survey_host
from adt.errors import AdtError

SURVEY_SECONDS = 10.0


@dataclass(frozen=True)
class Identity:
    """Identity of a processor, by which records are kept; devices measured together share it."""

    device: str
    """As in :attr:`adt.tuning.records.Context.device`; empty where it is not known."""
    driver: str
    """As in :attr:`adt.tuning.records.Context.driver`."""

    @property
    def text(self) -> str:
        """For people."""
        return f"{self.device}, driver {self.driver}" if self.driver else self.device

    def or_else(self, device: str, driver: str) -> Identity:
        """This, with *device* and *driver* where they are not known."""
        return Identity(self.device or device, self.driver or driver)


def of_device(device: Device, computes: str, bundle: TargetBundle | None = None) -> Identity:
    """Describe *device*, on which ``cpu``, ``opencl`` or ``cuda`` *computes*, as ``adt compile --like`` sees
    it.

    *bundle* brings the program that asks for OpenCL; without one, what was asked before counts.
    """
    probed = probe(device, bundle if computes == "opencl" else None)
    facts = package_like(probed, "")
    if computes == "opencl":
        return Identity(facts.gpu, facts.opencl_driver)
    if computes == "cuda":
        return Identity("", "")
    return Identity(facts.soc or probed.model or probed.label, "")


def celsius(device: Device) -> float | None:
    """The hottest thermal zone of *device* now; None where it tells none, or does not answer."""
    try:
        return _hottest(device.survey("thermal", timeout=SURVEY_SECONDS, check=False))
    except AdtError:
        return None


def celsius_here() -> float | None:
    """The hottest thermal zone of this machine now; None where it tells none."""
    return _hottest(survey_host("thermal", seconds=SURVEY_SECONDS))


def _hottest(survey: Survey) -> float | None:
    return survey.hottest.celsius if survey.hottest else None


@cache
def this_processor() -> str:
    """The name of this machine's processor."""
    survey = survey_host("processor", "board", seconds=SURVEY_SECONDS)
    if survey["processor"].startswith("Hardware"):  # the board says more
        return survey.board or survey.processor
    return survey.processor or survey.board or platform.machine()
