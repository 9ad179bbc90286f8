"""Devices: the list of them, one of them, its hardware, the adb program with it, and virtual ones."""

from __future__ import annotations

import logging
import os
import shlex
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from adt.cli.app import Commands, app
from adt.cli.command import Rendering, command
from adt.device.opencl import PROGRAM, OpenclCandidate, OpenclReport, no_opencl
from adt.errors import DeviceNotReady
from adt.host.disk import size_text
from adt.host.document import aligned
from adt.limits import MOST_PORT
from adt.options.option import MaybePath, Text, Texts, option, values_of
from adt.options.request import Request, resolve_settings, takes
from adt.options.sections import DeviceSettings

if TYPE_CHECKING:
    from adt.device.device import Device
    from adt.device.probe import DeviceOverview, Probe
    from adt.device.survey import CpuCluster
    from adt.virtual.emulator import EmulatorInfo


class AdbRequest(Request):
    """Request of :func:`adt.adb_command`."""

    serial: Text = DeviceSettings.serial
    arguments: Texts = option(
        "Arguments as adb takes them: ``shell ls``.", kw_only=False, metavar="ADB_ARGUMENT"
    )


def chosen_device(serial: str | None = None, timeout: float | None = None) -> Device:
    """Choose the device *serial*; None: device.serial of the settings, else ANDROID_SERIAL, else the only
    one.

    Args:
        timeout: seconds that each step on it may take; None: device.timeout of the settings.

    Raises:
        NoDevice, AmbiguousDevice, DeviceNotReady, DeviceError: see :func:`adt.device.selection.select`.
    """
    flags = {"device.serial": serial, "device.timeout": timeout}
    return device_of(resolve_settings(flags).settings.device)


def device_of(settings: DeviceSettings) -> Device:
    """Choose the device of *settings*, else that of ANDROID_SERIAL, else the only one."""
    return open_device(settings.serial, settings.limit)


def open_device(serial: str, limit: float | None) -> Device:
    """Choose the device *serial*, with *limit* seconds for each step on it."""
    from adt.device import selection

    return replace(selection.select(serial), timeout=limit)


SERVER_COMMANDS = frozenset(
    (
        *("connect", "devices", "disconnect", "fork-server", "help", "host-features", "keygen"),
        *("kill-server", "mdns", "nodaemon", "pair", "server", "server-status", "start-server"),
        *("track-devices", "version"),
    )
)
"""Commands of adb that need no device."""


@dataclass(frozen=True)
class AdbCommand:
    """A command line of adb, ready to be run."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    """Variables on top of one's own: the server that adt uses."""


def devices(*, timeout: float | None = None) -> tuple[DeviceOverview, ...]:
    """List the devices that the adb server sees, and what each one is; they are asked at the same time.

    A device that does not answer costs a few seconds and has a ``problem`` in its row.

    Args:
        timeout: seconds that each device has; None: a few.

    Raises:
        ToolNotFound, DeviceError, ConfigError: there is no adb, or its server does not answer.
    """
    from adt.device.probe import ASK_SECONDS, overview

    return overview(seconds=timeout or ASK_SECONDS)


@takes(AdbRequest)
def adb_command(request: AdbRequest) -> AdbCommand:
    """Return the command line that runs the adb of :func:`adt.device.transport.adb.find_adb`; runs nothing.

    Arguments that begin with an option of adb's own, and :data:`SERVER_COMMANDS`, get no device but one
    that was given as *serial*.

    Raises:
        ToolNotFound, ConfigError: there is no adb, or the server's address cannot be used.
        NoDevice, AmbiguousDevice, DeviceNotReady, DeviceError: no device can be chosen.
    """
    from adt.device.transport import adb

    program = str(adb.find_adb().path)
    serial = _serial(request)
    words = ["-s", serial] if serial else []
    if serial == adb.NO_SERIAL:
        words = ["-t", adb.connection_number()]
    return AdbCommand((program, *words, *request.arguments), adb.server_environment())


def _serial(request: AdbRequest) -> str:
    """Return the serial for adb's ``-s``; empty for none."""
    from adt.device import selection

    first = next(iter(request.arguments), "help")
    if first.startswith("-") or first in SERVER_COMMANDS:
        return request.named("serial") or ""
    named = request.serial or os.environ.get("ANDROID_SERIAL", "")
    if first.startswith("wait-for-"):  # it need not be there yet
        return named
    try:
        return selection.select(request.serial).serial
    except DeviceNotReady:  # what is offline or in recovery can be reconnected or restarted
        if not named:
            raise
        return named


def probe(serial: str | None = None, *, timeout: float | None = None, fresh: bool = False) -> Probe:
    """Look at a device: CPU clusters, memory, temperatures, GPU, and what OpenCL offers.

    The last part needs a bundle for the device that was built here, and is
    remembered until the device restarts; nothing is left on the device.

    Args:
        serial, timeout: see :func:`chosen_device`.
        fresh: look for OpenCL again, not only once per boot of the device.

    A part that cannot be read does not raise: it is None, and ``probe.missing`` says why.
    """
    return probe_device(chosen_device(serial, timeout), fresh=fresh)


def probe_device(device: Device, *, fresh: bool = False) -> Probe:
    """Look at a device that was chosen already, as :func:`probe`."""
    from adt.bundle.bundle import newest_with
    from adt.device import probe as device_probe

    hardware = device_probe.survey_hardware(device)
    bundle = newest_with(PROGRAM, device.facts.platforms)
    return device_probe.probe(device, bundle, hardware=hardware, fresh=fresh)


def check_computes(device: Device, kind: str) -> None:
    """Refuse to compute on OpenCL on a device whose probe finds none; without a bundle none is asked."""
    report = probe_device(device).opencl if kind == "opencl" else None
    if report is not None and report.device is None:
        raise no_opencl(device.serial, virtual=device.facts.virtual)


log = logging.getLogger("adt.adb")


@command("adt devices --json")
def devices_command(
    timeout: Annotated[float | None, option("Seconds that each device has; else a few.", default=None)],
) -> Rendering:
    """List the devices that adb sees, with model, chip and ABIs, and what mends bad ones."""
    listed = devices(timeout=timeout)
    return Rendering("devices", {"devices": listed}, _lines(listed))


def _lines(devices: Sequence[DeviceOverview]) -> Iterator[str]:
    if not devices:
        yield "no device: connect a phone with USB debugging on, or run `adt emulator start`"
        return
    rows: list[tuple[str, ...]] = [("SERIAL", "STATE", "VIA", "MODEL", "SOC", "GPU", "API", "ABIS")]
    for device in devices:
        level = "" if device.api_level is None else str(device.api_level)
        texts = (device.serial, device.state, device.transport, device.model, device.soc, device.gpu)
        rows.append(tuple(text or "-" for text in (*texts, level, ",".join(device.abis))))
    yield from aligned(rows)
    for device in devices:
        if device.problem:
            yield f"\n{device.serial}: {device.problem}\n  remedy: {device.remedy}"


@command(
    "adt adb --serial 127.0.0.1:5555 -- logcat -d",
    name="adb",
    json=False,
    context_settings={"allow_interspersed_args": False},
    no_args_is_help=True,
)
def run_adb_command(request: AdbRequest) -> None:
    """Run the adb that adt uses, with the chosen device; input, output and exit code are adb's."""
    command = adb_command(request)
    log.debug("$ %s", shlex.join(command.argv))
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and what we become would, too
        signal.signal(number, signal.SIG_DFL)
    os.dup2(sys.stderr.fileno(), 2)
    # Not a child of ours: the terminal, ctrl-C and the way it ends are then adb's own.
    os.execve(command.argv[0], command.argv, os.environ | command.environment)


HOTTEST = 3


@command("adt probe", phone=True)
def probe_command(
    serial: Annotated[str | None, DeviceSettings.serial],
    timeout: Annotated[float | None, DeviceSettings.timeout],
    fresh: Annotated[
        bool, option("Ask for OpenCL again, which is otherwise done once per boot.", default=False)
    ],
) -> Rendering:
    """Show a device's CPU, memory, temperatures, GPU and OpenCL."""
    hardware = probe(serial, timeout=timeout, fresh=fresh)
    return Rendering("probe", hardware, _probe_lines(hardware))


def _probe_lines(hardware: Probe) -> Iterator[str]:
    return (f"{name:<10} {text}".rstrip() for name, text in rows(hardware))


def rows(hardware: Probe) -> Iterator[tuple[str, str]]:
    """Yield heading and text of each line; an empty heading goes on with the last one."""
    yield "device", f"{hardware.serial}: {hardware.label}"
    system = f"Linux {hardware.kernel}"
    if hardware.android:
        system = f"Android {hardware.android.release}, API {hardware.android.api_level}, {system}"
    yield "system", f"{system}, {hardware.machine}"
    if hardware.soc:
        yield "SoC", hardware.soc
    if hardware.cpu:
        for index, cluster in enumerate(hardware.cpu.clusters):
            yield "" if index else "CPU", _cluster(cluster)
        if names := _notable(hardware.cpu.features):
            yield "", names
    if memory := hardware.memory:
        free = "" if memory.available is None else f", {size_text(memory.available)} available"
        yield "memory", size_text(memory.total) + free
    if hardware.page_size:
        yield "pages", f"{hardware.page_size} bytes"
    if thermal := hardware.thermal:
        hottest = sorted(thermal.zones, key=lambda zone: -zone.celsius)[:HOTTEST]
        hot = ", ".join(f"{zone.kind} {zone.celsius:.1f} °C" for zone in hottest) or "none readable"
        counts = f"{len(thermal.zones)} zones read, {thermal.unreadable} not readable"
        yield "thermal", f"hottest: {hot}; {counts}"
    if hardware.selinux:
        yield "SELinux", hardware.selinux
    if hardware.gpu:
        yield "GPU", f"{hardware.gpu.name} (from {hardware.gpu.source})"
    if hardware.opencl:
        yield from _opencl(hardware.opencl)
    for part, reason in hardware.missing.items():
        yield "unknown", f"{part}: {reason}"


def _cluster(cluster: CpuCluster) -> str:
    name = cluster.core or (f"part {cluster.part}" if cluster.part else "unknown core")
    text = f"{len(cluster.cpus)} × {name}"
    if cluster.max_khz:
        low = f"{(cluster.min_khz or 0) // 1000} to " if cluster.min_khz else ""
        text += f", {low}{cluster.max_khz // 1000} MHz"
    if cluster.current_khz:
        text += f", now {cluster.current_khz // 1000} MHz"
    if cluster.governor:
        text += f", governor {cluster.governor}"
    return f"{text} (CPU {', '.join(map(str, cluster.cpus))})"


def _notable(features: tuple[str, ...]) -> str:
    """List those of the CPU's features that matter to a model."""
    meanings = {
        "asimddp": "dot products",
        "fphp": "fp16",
        "i8mm": "int8 matrices",
        "bf16": "bfloat16",
        "sve": "SVE",
        "sve2": "SVE2",
        "sme": "SME",
    }
    return ", ".join(f"{text} ({name})" for name, text in meanings.items() if name in features)


def _opencl(report: OpenclReport) -> Iterator[tuple[str, str]]:
    chosen, device, platform = report.chosen, report.device, report.platform
    if chosen is None:
        yield "OpenCL", "TVM's runtime finds no library"
    else:
        place = f" ({chosen.path})" if chosen.path not in (None, chosen.library) else ""
        yield "OpenCL", chosen.library + place
    if platform:
        yield "", f"platform {platform.name}, {platform.version}"
    if device:
        units = f"{device.compute_units} compute units"
        yield "", f"{device.kind} {device.name}, driver {device.driver_version}, {units}"
        images = (
            f"images {device.image2d_max_width} × {device.image2d_max_height} texels, row pitch "
            f"{device.image_pitch_alignment}, from buffers up to {device.image_max_buffer_size}"
        )
        yield "", images if device.images else "no images"
        yield "", f"fp16 {'yes' if device.fp16 else 'no'}, work groups up to {device.max_work_group_size}"
        if device.qualcomm:
            yield "", " ".join(device.qualcomm)
        if chosen and chosen.clml_versions:
            yield "", f"CLML {', '.join(chosen.clml_versions)}"
    elif chosen:
        yield "", "TVM's runtime finds no device in it" + (f": {chosen.said}" if chosen.said else "")
        for refused in (d for p in chosen.platforms for d in p.devices if d.refused_by_tvm):
            yield "", f"{refused.name}: {refused.refused_by_tvm}"
    others = [candidate for candidate in report.candidates if candidate is not chosen]
    for candidate in others:
        if not candidate.absent:
            yield "", f"{candidate.library}: {_outcome(candidate)}"
    if absent := [candidate.library for candidate in others if candidate.absent]:
        yield "", f"not there: {', '.join(absent)}"


def _outcome(candidate: OpenclCandidate) -> str:
    if candidate.outcome == "answered":
        names = [device.name or "?" for platform in candidate.platforms for device in platform.devices]
        return f"answers, with {', '.join(names) or 'no device'}"
    return f"{candidate.outcome}: {candidate.said}"


NAME = option("Name; several devices can run.", default="default", kw_only=False, offers="virtual_device")


class EmulatorRequest(Request):
    """Request of :func:`adt.emulator_start`."""

    name: str = option(NAME, default="default", kw_only=False)
    port: int | None = option(
        "ADB port on 127.0.0.1; else a free one.", default=None, least=1, most=MOST_PORT
    )
    rootfs: MaybePath = option("Root file system, such as Android's /system.", default=None, metavar="DIR")
    data_size: str | None = option("Size of /data; else no limit.", default=None, metavar="64M")
    abi: str | None = option("ABI: arm64-v8a, or x86_64 on such a machine; else arm64-v8a.", default=None)
    opencl: bool = option("Add OpenCL: PoCL, which computes on the processor.", default=False)


@takes(EmulatorRequest)
def emulator_start(request: EmulatorRequest) -> EmulatorInfo:
    """Start a virtual device (a Linux, arm64 by default, behind real ADB) and connect adb to it.

    Raises:
        EmulatorError: this machine cannot run one; the message says what to install or switch on.
        ConfigError: an argument is not one.
    """
    from adt.device import selection
    from adt.virtual import emulator

    info = emulator.start(**values_of(request))
    selection.connect(info.serial)
    return info


def emulator_stop(name: str = "default") -> EmulatorInfo:
    """Stop a virtual device and disconnect adb from it.

    Raises:
        EmulatorError: there is none of that name.
    """
    from adt.device import selection
    from adt.virtual import emulator

    info = emulator.stop(name)
    selection.disconnect(info.serial)
    return info


def emulator_list() -> tuple[EmulatorInfo, ...]:
    """List every virtual device on this machine."""
    from adt.virtual import emulator

    return emulator.listing()


group = typer.Typer(
    cls=Commands, help="Start, stop or list virtual devices: Linux (arm64) behind real ADB, not Android."
)
app.add_typer(group, name="emulator", no_args_is_help=True)


@command("adt emulator start", group=group, name="start")
def emulator_start_command(request: EmulatorRequest) -> Rendering:
    """Start a virtual device and connect adb to it."""
    return _rendering("emulator-start", (emulator_start(request),))


@command("adt emulator stop", group=group, name="stop")
def emulator_stop_command(name: Annotated[str, NAME]) -> Rendering:
    """Stop a virtual device."""
    info = emulator_stop(name)
    return Rendering("emulator-stop", {"emulators": [info]}, [f"stopped {info.name} ({info.serial})"])


@command("adt emulator list", group=group, name="list")
def emulator_list_command() -> Rendering:
    """List the virtual devices of this machine."""
    return _rendering("emulator-list", emulator_list())


def _rendering(verb: str, devices: tuple[EmulatorInfo, ...]) -> Rendering:
    from adt.virtual import abis

    lines = []
    for info in devices:
        state = f"running, pid {info.pid}" if info.running else "stopped"
        speed = abis.named(info.abi).speed
        lines.append(f"{info.name:<12} {info.serial:<18} {state:<22} {info.abi}, {speed}")
    return Rendering(verb, {"emulators": devices}, lines or ["no virtual device: adt emulator start"])
