"""Probe of a device (CPU clusters, memory, temperatures, GPU and its OpenCL), and the list of all devices.

The survey is taken each time; adt_probe asks for OpenCL once per boot, and this machine remembers the answer.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from adt.device import opencl, selection
from adt.device.deploy.payload import check_device, user_directory
from adt.device.deploy.workspace import workspace
from adt.device.device import Device
from adt.device.opencl import OpenclDevice, OpenclReport
from adt.device.scripts import script
from adt.device.selection import DeviceInfo
from adt.device.survey import HARDWARE, Cpu, Gpu, Memory, Survey, Thermal
from adt.device.transport import adb
from adt.errors import AdtError, DeviceError, DiskError, PackageError
from adt.host import manifest
from adt.host.cache import cache_dir

if TYPE_CHECKING:
    from adt.bundle.bundle import TargetBundle
    from adt.package.manifest import PackageLike

log = logging.getLogger("adt.probe")

ASK_SECONDS = 5.0
"""Seconds that one device may take to describe itself; another is not kept waiting by it."""
OVERVIEW_WORKERS = 16
SCHEMA = "adt.probe"
SCHEMA_VERSION = 1
SURVEY_SECONDS = 60.0
LIBRARY_SECONDS = 20
"""Seconds that one OpenCL library may take to load and answer."""
PROGRAM_SECONDS = 180.0
VIRTUAL_CPU = "a virtual device has no CPU of its own: it runs on this machine's"
_FEATURES = {"asimddp": "+dotprod", "asimdhp": "+fullfp16", "i8mm": "+i8mm", "bf16": "+bf16"}
"""64-bit Arm: what the kernel calls a feature, and what LLVM does."""


@dataclass(frozen=True)
class Android:
    release: str
    api_level: int | None
    abis: tuple[str, ...]
    """The preferred one first."""
    fingerprint: str


@dataclass(frozen=True)
class Probe:
    """One device at one moment."""

    serial: str
    label: str
    virtual: bool
    """It is adt's virtual device: an emulator's numbers are no device's."""
    platforms: tuple[str, ...]
    """The platforms whose bundles run here, the preferred one first."""
    boot: str
    """Names the device's present boot; empty when it does not say."""
    when: str
    """Time of the probe, UTC, ISO 8601."""
    model: str
    soc: str
    """Model and system on chip; empty when the device does not say."""
    kernel: str
    """``uname -r``."""
    machine: str
    """``uname -m``."""
    page_size: int | None
    """Bytes."""
    selinux: str | None
    """``Enforcing``, ``Permissive`` or ``Disabled``."""
    android: Android | None
    cpu: Cpu | None
    memory: Memory | None
    thermal: Thermal | None
    gpu: Gpu | None
    opencl: OpenclReport | None
    program: str
    """Digest (sha256) of the adt_probe that asked for OpenCL; empty without that part."""
    missing: dict[str, str] = field(default_factory=dict)
    """Reason why a part is None, by the part's name."""
    schema: str = SCHEMA
    schema_version: int = SCHEMA_VERSION


def survey_hardware(device: Device, *parts: str, libraries: Sequence[str] = ()) -> Survey:
    """Ask *device* for its hardware, and for *parts* of the survey."""
    limit, doing = device.allow(SURVEY_SECONDS), f"probing {device.serial}"
    what = f"{doing} failed"
    return device.survey(*HARDWARE, *parts, libraries=libraries, timeout=limit, doing=doing, what=what)


def probe(
    device: Device, bundle: TargetBundle | None, *, hardware: Survey | None = None, fresh: bool = False
) -> Probe:
    """Look at *device*; nothing is left on it.

    Clocks, memory and temperatures are read each time, unless :func:`survey_hardware` just gave *hardware*.
    What OpenCL offers the program of *bundle* asks once per boot, and this machine remembers it, unless
    *fresh*.
    """
    hardware = hardware or survey_hardware(device)
    facts = device.facts
    missing = hardware.missing
    report, program, reason = _opencl(device, bundle, hardware["boot"], fresh=fresh)
    if report is None:
        missing["opencl"] = reason
    gpu = hardware.gpu or _gpu(report, facts.properties)
    if gpu is not None:
        missing.pop("gpu", None)
    if facts.virtual:
        missing["cpu"] = VIRTUAL_CPU
    if facts.page_size is None:
        missing["page_size"] = "getconf PAGESIZE says nothing"
    android = None
    if facts.platforms[0].startswith("android-"):
        fingerprint = facts.properties.get("ro.build.fingerprint", "")
        release = facts.properties.get("ro.build.version.release", "")
        android = Android(release, facts.api_level, facts.abis, fingerprint)
    else:
        missing["android"] = "this is not Android"
    result = Probe(
        serial=device.serial,
        label=facts.label,
        virtual=facts.virtual,
        platforms=facts.platforms,
        boot=hardware["boot"],
        when=datetime.now(UTC).isoformat(timespec="seconds"),
        model=facts.properties.get("ro.product.model", "") or hardware.board,
        soc=soc(facts.properties) or hardware.board_soc,
        kernel=hardware["kernel"],
        machine=facts.machine,
        page_size=facts.page_size,
        selinux=hardware.selinux,
        android=android,
        cpu=None if facts.virtual else hardware.cpu,
        memory=hardware.memory,
        thermal=hardware.thermal,
        gpu=gpu,
        opencl=report,
        program=program,
        missing=dict(sorted(missing.items())),
    )
    try:
        if result.boot:
            manifest.write(result, _file(device.serial))
    except (DiskError, OSError) as error:  # it only costs the next probe some time
        log.debug("the probe of %s is not kept: %s", device.serial, error)
    return result


def soc(properties: Mapping[str, str]) -> str:
    """Return the system on chip that Android's properties name; empty when they do not."""
    if model := properties.get("ro.soc.model", ""):
        return f"{properties.get('ro.soc.manufacturer', '')} {model}".strip()
    keys = ("ro.board.platform", "ro.hardware.chipname", "ro.hardware")
    return next((name for key in keys if (name := properties.get(key, ""))), "")


def _gpu(report: OpenclReport | None, properties: Mapping[str, str]) -> Gpu | None:
    """Find the GPU's name elsewhere than in the kernel."""
    if report and (device := report.device) and device.kind == "gpu" and device.name:
        # Qualcomm's driver tells the model of an Adreno in its version only
        model = re.search(r"Adreno\(TM\) \w*\d\w*", device.version or "")
        return Gpu(model[0] if model and not re.search(r"\d", device.name) else device.name, "OpenCL")
    name = properties.get("ro.hardware.egl", "")
    return Gpu(name, "ro.hardware.egl") if name else None


def _opencl(
    device: Device, bundle: TargetBundle | None, boot: str, *, fresh: bool
) -> tuple[OpenclReport | None, str, str]:
    """Return the report about OpenCL, the sha256 of the program that asked, or why there is none."""
    before = None if fresh else last_probe(device.serial, boot)
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
    except AdtError as error:  # the rest of the probe is worth having
        return None, "", f"{error.what}: {error.remedy}"
    except ValueError as error:
        return None, "", f"adt_probe's answer cannot be read ({error}): build the bundle again with this adt"


def _ask(device: Device, bundle: TargetBundle) -> OpenclReport:
    with workspace(device, f"{user_directory()}/tmp") as directory:
        program = f"{directory}/adt_probe"
        device.push(bundle.file(opencl.PROGRAM), program, mode=0o755)
        arguments = (program, str(LIBRARY_SECONDS), *opencl.places(bundle.manifest.platform))
        limit, doing = device.allow(PROGRAM_SECONDS), f"asking {device.serial} for OpenCL"
        done = device.script(script("probe"), *arguments, timeout=limit, check=False, doing=doing)
    if done.exit_code:
        words = "; ".join(done.tail(3).splitlines()) or "it said nothing"
        raise DeviceError(
            f"adt_probe failed on {device.serial} (exit code {done.exit_code}): {words}",
            remedy=f"Build the bundle again with this adt: adt build-target --for {bundle.manifest.platform}",
        )
    return opencl.parse_report(done.out)


def _file(serial: str) -> Path:
    return cache_dir() / "probes" / f"{hashlib.sha256(serial.encode()).hexdigest()[:24]}.json"


def last_probe(serial: str, boot: str) -> Probe | None:
    """Return the device's last probe if it is of *boot* (:attr:`Survey.boot`); asks no device."""
    path = _file(serial)
    if not boot.strip() or not path.is_file():
        return None
    try:
        probe = manifest.load(Probe, path, schema=SCHEMA, version=SCHEMA_VERSION, remedy="")
    except PackageError as error:  # of another adt, or damaged: it is made again
        log.debug("%s", error)
        return None
    return probe if (probe.serial, probe.boot) == (serial, boot.strip()) else None


def package_like(probe: Probe, machine: str) -> PackageLike:
    """Return the part of *probe* that packages for the ELF *machine* are compiled for."""
    from adt.package.manifest import PackageLike

    device = probe.opencl.device if probe.opencl else None
    return PackageLike(
        device=probe.label,
        soc=probe.soc,
        gpu=probe.gpu.name if probe.gpu else "",
        opencl_driver=(device.driver_version or "") if device else "",
        fp16=device.fp16 if device else None,
        opencl_extensions=device.extensions if device else (),
        opencl_limits=opencl_limits(device) if device else {},
        cpu_features=cpu_features(probe.cpu) if probe.cpu and machine == "AARCH64" else (),
        compute_units=(device.compute_units or 0) if device else 0,
    )


def cpu_features(cpu: Cpu) -> tuple[str, ...]:
    """Return the LLVM features that every CPU offers, of those that speed models up."""
    return tuple(llvm for name, llvm in _FEATURES.items() if name in cpu.features)


def opencl_limits(device: OpenclDevice) -> dict[str, int]:
    """Return the limits that the driver tells of *device*, as attributes of TVM's opencl target."""
    sides = (device.image2d_max_width, device.image2d_max_height) if device.images else ()
    limits = {
        "max_num_threads": device.max_work_group_size,
        "max_threads_per_block": device.max_work_group_size,
        "max_shared_memory_per_block": device.local_memory,
        "texture_spatial_limit": min((side for side in sides if side), default=None),
        "texture_depth_limit": device.image_max_array_size if device.images else None,
        # TVM's runtime aligns the rows of images that lie in buffers to the pitch, and its planner to this
        "image_base_address_alignment": device.image_pitch_alignment,
    }
    return {name: value for name, value in limits.items() if value}


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


def overview(*, seconds: float) -> tuple[DeviceOverview, ...]:
    """Return every device of the adb server; usable ones are asked what they are, all within *seconds*."""
    devices: Sequence[DeviceInfo] = selection.reachable()
    if not devices:
        return ()
    with ThreadPoolExecutor(min(OVERVIEW_WORKERS, len(devices))) as pool:
        return tuple(pool.map(lambda info: _look(info, seconds), devices))


def _look(info: DeviceInfo, seconds: float) -> DeviceOverview:
    entry = DeviceOverview(**vars(info))
    if not info.ready:
        return replace(entry, problem=info.state, remedy=adb.state_remedy(info.state, info.serial))
    try:
        doing = f"asking {info.serial} what it is"
        survey = Device(info.serial).survey("boot", timeout=seconds, check=False, doing=doing)
    except AdtError as error:
        return replace(entry, problem=error.what, remedy=error.remedy)
    facts = survey.facts
    probe = last_probe(info.serial, survey["boot"])
    properties = facts.properties
    gpu = properties.get("ro.hardware.egl") or properties.get("ro.hardware.vulkan", "")
    return replace(
        entry,
        model=properties.get("ro.product.model", "") or info.model,
        soc=(probe.soc if probe else "") or soc(properties),
        gpu=(probe.gpu.name if probe and probe.gpu else "") or gpu,
        api_level=facts.api_level,
        abis=facts.abis,
        virtual=facts.virtual,
    )
