"""Every device that adb sees, with what each is, asked of all at once."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from adt.device import selection
from adt.device.device import Device
from adt.device.probe import last_probe, soc
from adt.device.selection import DeviceInfo
from adt.device.transport import adb
from adt.errors import AdtError

log = logging.getLogger("adt.device")

ASK_SECONDS = 5.0
"""Seconds that one device may take to describe itself; another is not kept waiting by it."""
AT_ONCE = 16


@dataclass(frozen=True)
class DeviceOverview(DeviceInfo):
    """One device of the list, with what it says of itself."""

    soc: str = ""
    """System on chip; empty when unknown."""
    gpu: str = ""
    """Empty when unknown: a device that was probed since it started is known best (`adt probe`)."""
    api_level: int | None = None
    """Android's; None on a device that is not Android, or that could not be asked."""
    abis: tuple[str, ...] = ()
    virtual: bool = False
    problem: str = ""
    """Reason why it is not usable, or could not be asked; empty when all is well."""
    remedy: str = ""


def overview(*, seconds: float = ASK_SECONDS) -> tuple[DeviceOverview, ...]:
    """Return every device of the adb server; usable ones are asked what they are, all within *seconds*."""
    devices: Sequence[DeviceInfo] = selection.reachable()
    if not devices:
        return ()
    with ThreadPoolExecutor(min(AT_ONCE, len(devices))) as pool:
        return tuple(pool.map(lambda info: _look(info, seconds), devices))


def _look(info: DeviceInfo, seconds: float) -> DeviceOverview:
    entry = DeviceOverview(**vars(info))
    if not info.ready:
        return replace(entry, problem=info.state, remedy=adb.state_remedy(info.state, info.serial))
    try:
        survey = Device(info.serial).survey(
            "boot", timeout=seconds, check=False, doing=f"asking {info.serial} what it is"
        )
    except AdtError as error:
        return replace(entry, problem=error.what, remedy=error.remedy)
    facts = survey.facts
    probe = last_probe(info.serial, survey["boot"])
    properties = facts.properties
    gpu = (probe.gpu.name if probe and probe.gpu else "") or next(
        (properties[key] for key in ("ro.hardware.egl", "ro.hardware.vulkan") if properties.get(key)), ""
    )
    return replace(
        entry,
        model=properties.get("ro.product.model", "") or info.model,
        soc=(probe.soc if probe else "") or soc(properties),
        gpu=gpu,
        api_level=facts.api_level,
        abis=facts.abis,
        virtual=facts.virtual,
    )
