"""Probe a device: one shell script, and adt_probe for OpenCL once per boot."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from datetime import UTC, datetime

from adt.bundle.bundle import TargetBundle
from adt.device.device import Device, DeviceFacts
from adt.device.fit import check_device
from adt.device.payload import user_directory
from adt.device.probe import opencl, survey
from adt.device.probe.facts import Android, Gpu, OpenclReport, Probe
from adt.device.probe.remembered import remember, remembered
from adt.device.scripts import script
from adt.device.workspace import workspace
from adt.errors import AdtError, DeviceError

log = logging.getLogger("adt.probe")

SURVEY_SECONDS = 60.0
LIBRARY_SECONDS = 20
"""Seconds that one OpenCL library may take to load and answer."""
PROGRAM_SECONDS = 180.0

# what drivers print is kept out of the report also where the device does not carry stderr apart

VIRTUAL_CPU = "a virtual device has no CPU of its own: it runs on this machine's"


def probe(device: Device, bundle: TargetBundle | None, *, fresh: bool = False) -> Probe:
    """Look at *device*; nothing is left on it.

    Clocks, memory and temperatures are read each time. What OpenCL offers is
    asked once per boot and then remembered on this machine.

    Args:
        bundle: brings the program that asks for OpenCL; without one that part is missing.
        fresh: ask for OpenCL again.

    Raises:
        NoDevice, DeviceNotReady, DeviceError: the device is absent, not usable, or the connection broke.
    """
    facts = device.facts
    done = device.script(
        script("probe_survey"),
        timeout=device.allow(SURVEY_SECONDS),
        doing=f"probing {device.serial}",
        what=f"probing {device.serial} failed",
    )
    found = survey.parse(done.out)
    missing = dict(found.missing)
    report, program, why = _opencl(device, bundle, found.boot, fresh=fresh)
    if report is None:
        missing["opencl"] = why
    gpu = found.gpu or _gpu(report, facts.properties)
    if gpu is not None:
        missing.pop("gpu", None)
    cpu = found.cpu
    if facts.virtual:
        cpu, missing["cpu"] = None, VIRTUAL_CPU
    if facts.page_size is None:
        missing["page_size"] = "getconf PAGESIZE says nothing"
    android = _android(facts)
    if android is None:
        missing["android"] = "this is not Android"
    made = Probe(
        serial=device.serial,
        label=facts.label,
        virtual=facts.virtual,
        platforms=facts.platforms,
        boot=found.boot,
        when=datetime.now(UTC).isoformat(timespec="seconds"),
        model=facts.properties.get("ro.product.model", "") or found.board,
        soc=soc(facts.properties) or found.board_soc,
        kernel=found.kernel,
        machine=facts.machine,
        page_size=facts.page_size,
        selinux=found.selinux,
        android=android,
        cpu=cpu,
        memory=found.memory,
        thermal=found.thermal,
        gpu=gpu,
        opencl=report,
        program=program,
        missing=dict(sorted(missing.items())),
    )
    remember(made)
    return made


def soc(properties: Mapping[str, str]) -> str:
    """The system on chip, as Android's properties name it; empty when they do not."""
    if model := properties.get("ro.soc.model", ""):
        return f"{properties.get('ro.soc.manufacturer', '')} {model}".strip()
    for key in ("ro.board.platform", "ro.hardware.chipname", "ro.hardware"):
        if name := properties.get(key, ""):
            return name
    return ""


def _android(facts: DeviceFacts) -> Android | None:
    if not facts.platforms[0].startswith("android-"):
        return None
    return Android(
        release=facts.properties.get("ro.build.version.release", ""),
        api_level=facts.api_level,
        abis=facts.abis,
        fingerprint=facts.properties.get("ro.build.fingerprint", ""),
    )


def _gpu(report: OpenclReport | None, properties: Mapping[str, str]) -> Gpu | None:
    """The GPU's name from elsewhere than the kernel."""
    if report and (device := report.device) and device.kind == "gpu" and device.name:
        return Gpu(_model_of(device.name, device.version or ""), "OpenCL")
    name = properties.get("ro.hardware.egl", "")
    return Gpu(name, "ro.hardware.egl") if name else None


def _model_of(name: str, version: str) -> str:
    """Qualcomm's driver calls every GPU ``QUALCOMM Adreno(TM)``, and has the model in its version only."""
    model = re.search(r"Adreno\(TM\) \w*\d\w*", version)
    return model[0] if model and not re.search(r"\d", name) else name


def _opencl(
    device: Device, bundle: TargetBundle | None, boot: str, *, fresh: bool
) -> tuple[OpenclReport | None, str, str]:
    """What OpenCL offers, the sha256 of the program that asked, and else why there is nothing."""
    before = None if fresh else remembered(device.serial, boot)
    program = bundle.manifest.files[opencl.PROGRAM].sha256 if bundle else ""
    if before and before.opencl and program in ("", before.program):
        return before.opencl, before.program, ""
    if bundle is None:
        platform = device.facts.platforms[0]
        what = f"no bundle for {platform} that brings adt_probe was built here"
        return None, "", f"{what}: adt build-target --for {platform}"
    try:
        check_device(bundle.manifest, device.facts, device.serial)
        return _ask(device, bundle), program, ""
    except AdtError as why:  # the rest of the probe is worth having
        return None, "", f"{why.what}: {why.remedy}"
    except ValueError as why:
        return None, "", f"adt_probe's answer cannot be read ({why}): build the bundle again with this adt"


def _ask(device: Device, bundle: TargetBundle) -> OpenclReport:
    with workspace(device, f"{user_directory()}/tmp") as there:
        program = f"{there}/adt_probe"
        device.push(bundle.file(opencl.PROGRAM), program, mode=0o755)
        done = device.script(
            script("probe"),
            program,
            str(LIBRARY_SECONDS),
            *opencl.places(bundle.manifest.platform),
            timeout=device.allow(PROGRAM_SECONDS),
            check=False,
            doing=f"asking {device.serial} for OpenCL",
        )
    if done.exit_code:
        words = "; ".join(done.tail(3).splitlines()) or "it said nothing"
        raise DeviceError(
            f"adt_probe failed on {device.serial} (exit code {done.exit_code}): {words}",
            remedy=f"Build the bundle again with this adt: adt build-target --for {bundle.manifest.platform}",
        )
    return opencl.parse_report(done.out)
