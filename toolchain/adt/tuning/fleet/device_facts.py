"""What a device is, for the records: its name and driver, and how warm it is."""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from adt.bundle.bundle import TargetBundle
from adt.device.device import Device
from adt.device.probe.like import like
from adt.device.probe.probing import probe
from adt.device.probe.survey import parse_thermal
from adt.device.scripts import script
from adt.errors import AdtError
from adt.host.process import run

THERMAL_SECONDS = 10.0


@dataclass(frozen=True)
class Identity:
    """What computes: records are kept by it, and devices that differ in it are not measured together."""

    device: str
    """As in :attr:`adt.tuning.records.Context.device`; empty where it is not known."""
    driver: str
    """As in :attr:`adt.tuning.records.Context.driver`."""

    @property
    def text(self) -> str:
        """For people."""
        return f"{self.device}, driver {self.driver}" if self.driver else self.device

    def filled(self, device: str, driver: str) -> Identity:
        """This, and what others say where it says nothing."""
        return Identity(self.device or device, self.driver or driver)


def of_device(device: Device, computes: str, bundle: TargetBundle | None = None) -> Identity:
    """What *device* is, as ``adt compile --like`` sees it.

    Args:
        computes: ``cpu`` or ``opencl``.
        bundle: brings the program that asks for OpenCL; without one, what was asked before counts.

    Raises:
        NoDevice, DeviceNotReady, DeviceError: it does not answer.
    """
    probed = probe(device, bundle if computes == "opencl" else None)
    facts = like(probed, "")
    if computes == "opencl":
        return Identity(facts.gpu, facts.opencl_driver)
    return Identity(facts.soc or probed.model or probed.label, "")


def celsius(device: Device) -> float | None:
    """The hottest thermal zone of *device* now; None where it tells none, or does not answer."""
    try:
        done = device.script(script("thermal"), timeout=THERMAL_SECONDS, check=False)
    except AdtError:
        return None
    return _hottest(done.out)


def celsius_here() -> float | None:
    """The hottest thermal zone of this machine now; None where it tells none."""
    done = run(["sh", "-c", script("thermal")], timeout=THERMAL_SECONDS, check=False)
    return _hottest(done.stdout)


def _hottest(text: str) -> float | None:
    found = parse_thermal(text.replace("\r\n", "\n").partition("==thermal==\n")[2])
    return max((zone.celsius for zone in found.zones), default=None) if found else None


@cache
def this_processor() -> str:
    """The name of this machine's processor."""
    for file, pattern in (
        ("/proc/cpuinfo", r"^model name\s*:\s*(.+)$"),
        ("/proc/device-tree/model", r"([^\0]+)"),
        ("/proc/cpuinfo", r"^Hardware\s*:\s*(.+)$"),
    ):
        try:
            text = Path(file).read_text(errors="replace")
        except OSError:
            continue
        if found := re.search(pattern, text, re.MULTILINE):
            return found[1].strip()
    return platform.machine()
