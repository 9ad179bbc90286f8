"""Checks of adb, its server (none is started) and the devices that it sees: their state and offers."""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from shlex import quote

from adt.bundle.bundle import newest_with
from adt.bundle.platforms import PLATFORMS
from adt.checkup import rpc
from adt.checkup.check import Action, Area, Check, Fix, Question, Scope, failed, ok, warning
from adt.checkup.host import running_emulators
from adt.device import selection
from adt.device.device import Device
from adt.device.opencl import PLACES, PROGRAM, OpenclReport
from adt.device.probe import probe, survey_hardware
from adt.device.selection import DeviceInfo, is_address, parse_listing
from adt.device.survey import STORAGE, TEMP, DeviceFacts, Survey
from adt.device.transport import adb
from adt.device.transport.adb import Adb
from adt.device.transport.deadline import Deadline
from adt.errors import AdtError
from adt.host import process
from adt.host.disk import size_text
from adt.host.extras import install_command
from adt.limits import natural
from adt.virtual.state import EmulatorRecord, emulators_directory

SERVER_SECONDS = 5.0
PROGRAM_SECONDS = 10.0
VARIABLES = ("ADB_SERVER_SOCKET", "ANDROID_ADB_SERVER_PORT", "ANDROID_ADB_SERVER_ADDRESS")
"""Variables that decide where the server is, strongest first."""


@dataclass(frozen=True)
class Server:
    """The state of the adb server's address."""

    port: int
    running: bool
    protocol: int | None = None
    """Its number; clients of another number end the server when they meet it."""
    devices: tuple[DeviceInfo, ...] = ()
    problem: str = ""
    """Reason why it cannot be asked; empty when it can."""
    remedy: str = ""
    holder: str = ""
    """The process that listens, when it can be seen."""
    exposed: str = ""
    """The address it listens on, when other machines can reach it."""

    @property
    def usable(self) -> bool:
        return self.running and not self.problem


def parse_protocol(text: str) -> int | None:
    """Parse the server protocol's number in the output of ``adb version`` (1.0.41 is 41)."""
    match = re.search(r"^Android Debug Bridge version \d+\.\d+\.(\d{1,9})", text, re.MULTILINE)
    return int(match[1]) if match else None


def clients(program: Adb) -> dict[Path, int | None]:
    """Return the adb that adt takes, and that of a person who types ``adb``, with their protocols."""
    paths = [program.path]
    if (typed := process.which("adb")) and Path(typed).resolve() != program.path.resolve():
        paths.append(Path(typed))
    runs = {path: process.run([path, "version"], timeout=PROGRAM_SECONDS, check=False) for path in paths}
    return {path: parse_protocol(run.stdout) for path, run in runs.items()}


def ask(port: int, service: str, doing: str) -> str:
    """Ask a server that runs; unlike :func:`adt.device.transport.adb.query` this starts none."""
    deadline = Deadline(SERVER_SECONDS, doing)
    try:
        sock = socket.create_connection(("127.0.0.1", port), timeout=SERVER_SECONDS)
    except TimeoutError as error:
        raise deadline.expired() from error
    with adb.Wire(sock, deadline) as wire:
        wire.request(service)
        return wire.read_text()


def look() -> Server:
    """Look at the adb server; takes no longer than two questions."""
    port = adb.server_port()
    listening = rpc.listeners((port,))
    holder = rpc.holder(listening[0]) if listening else ""
    exposed = next((listener.address for listener in listening if not listener.loopback), "")
    server = Server(port, running=True, holder=holder, exposed=exposed)
    try:
        protocol = int(ask(port, "host:version", f"asking the adb server on port {port} for its version"), 16)
        devices = parse_listing(ask(port, "host:devices-l", "listing devices"))
    except ConnectionRefusedError:
        return Server(port, running=False)
    except (AdtError, OSError, ValueError) as error:
        remedy = f"End what listens on port {port} ({holder or 'of another user'}), with `adt adb -- "
        remedy += "kill-server` if it is adb; or set ANDROID_ADB_SERVER_PORT to a free port."
        return replace(server, problem=str(error), remedy=remedy)
    return replace(server, protocol=protocol, devices=devices)


def check_program(program: Adb) -> Check:
    version = ".".join(map(str, program.version))
    origin = f"{program.path}, from {program.origin}"
    newer = install_command("-U", "adbutils") + "   (it carries a new adb)"
    if not version:
        return warning("adb", "it does not say its version", origin, newer)
    if program.old:
        old = f"{version} is too old for `adb pair` (wireless debugging with a code); adt works with it"
        return warning("adb", old, origin, f"{newer}; or take Google's")
    return ok("adb", version, origin)


def check_server(server: Server, clients: Mapping[Path, int | None], origin: str) -> Iterator[Check]:
    """Judge the adb server, whose address *origin* named; *clients* has the protocol of each program."""
    where = f"127.0.0.1:{server.port}, {origin}" + (f"; {server.holder}" if server.holder else "")
    if not server.running:
        state = "not running, so devices cannot be listed; adt starts it when it is needed"
        start = "adt doctor --fix, or adb start-server"
        yield warning("adb server", state, where, start, Fix(Action.START_SERVER))
        return
    if server.problem:
        yield failed("adb server", server.problem, where, server.remedy)
        return
    yield ok("adb server", f"runs, protocol {server.protocol}", where)
    for path, protocol in clients.items():
        if protocol not in (None, server.protocol):
            yield warning(
                "adb versions",
                f"the server speaks protocol {server.protocol}, {path} speaks {protocol}: "
                "whichever adb is run next ends the other's server, and all its connections and forwards",
                remedy="Use one adb (ADBUTILS_ADB_PATH, PATH and Android Studio may name three), then "
                "`adt adb -- kill-server`.",
            )
    if server.exposed:
        danger = f"it listens on {server.exposed}: every machine that reaches this one can use your devices"
        remedy = "adt adb -- kill-server, then start it without -a"
        yield warning("adb server's address", danger, where, remedy)


def address_origin(scope: Scope) -> str:
    """Return the variable or default that decides the server's address."""
    return next((name for name in VARIABLES if scope.environ.get(name)), "adb's default port")


LITTLE = 100 << 20
"""Bytes: a bundle and a middle-sized model."""
TOO_LITTLE = 10 << 20
"""Bytes: not even a bundle fits."""
NOEXEC = 126
"""A shell's exit code for a file that may not be executed."""
TRIED = 7
"""Exit code of the trial program on the device."""


def check_states(
    devices: Sequence[DeviceInfo], named: str, running: Sequence[EmulatorRecord], *, needed: bool
) -> Iterator[Check]:
    """Judge each device that adb lists; none at all is a fault if they are *needed*, or one is *named*."""
    ready = any(device.ready for device in devices)
    if named and named not in [device.serial for device in devices]:
        absent = f"adb does not see it; it sees {', '.join(d.serial for d in devices) or 'no device'}"
        remedy, fix = "Plug it in, or name another one (`adt devices`).", None
        if is_address(named):
            remedy, fix = f"adt adb -- connect {named}", Fix(Action.CONNECT, (named,))
        yield failed(f"device {named}", absent, "--serial or ANDROID_SERIAL", remedy, fix)
    for device in devices:
        name = f"device {device.serial}"
        model = f"{device.model}, " if device.model else ""
        if device.ready:
            yield ok(name, f"{model}ready", f"adb, {device.transport}")
            continue
        passed_over = device.serial != named and (ready or bool(named))
        yield failed(
            name,
            f"{model}{device.state}",
            f"adb, {device.transport}",
            adb.state_remedy(device.state, device.serial),
            Fix(Action.RECONNECT_OFFLINE) if device.state == "offline" else None,
            needed=not passed_over and device.state not in adb.SETTLING,
        )
    for record in running:
        serial = f"127.0.0.1:{record.port}"
        if serial not in [device.serial for device in devices] and serial != named:
            state, where = f"it runs as {serial}, but adb is not connected to it", str(emulators_directory())
            fix = Fix(Action.CONNECT, (serial,))
            yield warning(f"virtual device {record.name}", state, where, f"adb connect {serial}", fix)
    if not devices and not running and not named:
        yield failed("devices", "adb sees none", remedy=selection.ADVICE, needed=needed)


def check_facts(serial: str, facts: DeviceFacts, api_level: int) -> Iterator[Check]:
    """Judge a device's own facts for bundles that are built for the Android API level *api_level*."""
    name, level = f"{serial}: platform", facts.api_level
    if any(platform in PLATFORMS for platform in facts.platforms):
        yield ok(name, facts.label, "getprop")
    else:
        unknown = f"{facts.label}: adt builds for {', '.join(PLATFORMS)}"
        yield failed(name, unknown, "getprop", "Use another device with --serial.")
    name = f"{serial}: API level"
    if level is not None and level < api_level:
        low = f"{level}, but bundles are built for {api_level} and newer"
        remedy = f"adt build-target --for {facts.platforms[0]} --api-level {level}"
        yield warning(name, low, "getprop; the setting build.api_level", remedy)
    elif level is not None:
        yield ok(name, str(level), "getprop")
    name = f"{serial}: page size"
    if facts.page_size is None:
        yield warning(name, "the device does not say", "getconf PAGESIZE")
    else:
        note = "; what runs here must be aligned to it" if facts.page_size > 4096 else ""
        yield ok(name, f"{facts.page_size} bytes{note}", "getconf PAGESIZE")


def _opencl(device: Device, hardware: Survey) -> tuple[OpenclReport | None, str]:
    """Return the device's report about OpenCL, or why it was not asked."""
    try:
        result = probe(device, newest_with(PROGRAM, device.facts.platforms), hardware=hardware)
        return result.opencl, result.missing.get("opencl", "")
    except AdtError as error:  # the other checks are worth having
        return None, f"{error.what}: {error.remedy}"


def check_survey(
    serial: str, facts: DeviceFacts, survey: Survey, report: OpenclReport | None = None, reason: str = ""
) -> Iterator[Check]:
    """Judge the survey, and what OpenCL libraries answered or the *reason* why none was asked."""
    name, free = f"{serial}: free space", survey.free_space
    if free is None:
        yield warning(name, f"unknown: {survey['space'][-200:] or 'df says nothing'}", "df")
    elif free < LITTLE:
        clear = f"adt clean --serial {quote(serial)} --keep 0   (what is needed again is sent again)"
        yield failed(name, f"{size_text(free)} in {TEMP}", "df", clear, needed=free < TOO_LITTLE)
    else:
        yield ok(name, f"{size_text(free)} in {TEMP}", "df")
    yield _executable(serial, survey["programs"])
    yield ok(f"{serial}: SELinux", survey.selinux or "not there", "getenforce")
    yield from check_opencl(serial, facts, survey["libraries"], survey["public"], report, reason)
    names = [line.rpartition("/")[2].removesuffix(".json") for line in survey["deployments"].splitlines()]
    size = survey["store"].split()
    used = f", {size_text(kib * 1024)}" if size and (kib := natural(size[0])) is not None else ""
    listed = f"{len(names)}: {', '.join(names)}" if names else "none"
    yield ok(f"{serial}: deployments", listed + used, f"{TEMP}/adt")


def _executable(serial: str, output: str) -> Check:
    name = f"{serial}: programs"
    text, _, code = output.rpartition("code ")
    if code == str(TRIED):
        return ok(name, f"run from {TEMP}", "tried there")
    problem = f"nothing can be made and run in {TEMP}"
    if code == str(NOEXEC):
        problem = f"{TEMP} does not let programs run (mounted noexec, or forbidden by its security policy)"
    remedy = f"Look at `adt adb -s {quote(serial)} -- shell 'ls -ldZ {TEMP}; mount'`: a policy may forbid it."
    return failed(name, f"{problem}: {text.strip() or output or 'no answer'}", "tried there", remedy)


OPENCL_FILES = "files on the device"
OPENCL_PROGRAM = "adt_probe on the device"
FOR_CPU = "Compile for the CPU: adt compile MODEL --target cpu"


def libraries(listed: str) -> dict[str, list[str]]:
    """Map each library of *listed* (lines ``PATH REAL_PATH``) to the paths that lead to it."""
    paths_of: dict[str, list[str]] = {}
    for line in listed.splitlines():
        path, _, real = line.partition(" ")
        paths_of.setdefault(real or path, []).append(path)
    return paths_of


def check_opencl(
    serial: str, facts: DeviceFacts, listed: str, public: str, report: OpenclReport | None, reason: str
) -> Iterator[Check]:
    """Say which OpenCL libraries the device has, and which of them works with TVM's runtime.

    *listed* is what :func:`libraries` reads, *public* the device's lists of libraries that apps may open;
    without a *report* none was tried, for the *reason*.
    """
    paths_of = libraries(listed)
    answered = report is not None and any(candidate.platforms for candidate in report.candidates)
    if not paths_of and not answered:
        yield _no_opencl(serial, facts, report)
        return
    if report is None:
        shown = "; ".join(
            real + (f" (also {', '.join(also)})" if (also := [p for p in paths if p != real]) else "")
            for real, paths in paths_of.items()
        )
        yield ok(f"{serial}: OpenCL", f"{shown}; loading was not tried: {reason}", OPENCL_FILES)
    else:
        yield from _opencl_tried(serial, facts, report)
    if not facts.abis or facts.virtual:
        return
    names = {path.rpartition("/")[2] for paths in paths_of.values() for path in paths}
    allowed = sorted(names & {line.split()[0] for line in public.splitlines() if line.strip()})
    name, origin = f"{serial}: OpenCL in apps", "public.libraries.txt"
    if allowed:
        yield ok(name, f"apps may open {', '.join(allowed)}", origin)
    else:
        remedy = "Programs run by adt are not affected; an app on this device has to use the CPU."
        yield warning(name, "apps may open none of them", origin, remedy)


def _no_opencl(serial: str, facts: DeviceFacts, report: OpenclReport | None) -> Check:
    name, origin = f"{serial}: OpenCL", OPENCL_PROGRAM if report else OPENCL_FILES
    places = f"none in {len(PLACES)} known places"
    if facts.virtual:
        return ok(name, f"{places}, as on every virtual device that was not given one", origin)
    return warning(name, f"{places}: models compiled for OpenCL will not run here", origin, FOR_CPU)


def _opencl_tried(serial: str, facts: DeviceFacts, report: OpenclReport) -> Iterator[Check]:
    """Yield the answers of the libraries: that of the one that TVM's runtime takes first, then failures."""
    chosen, device, platform = report.chosen, report.device, report.platform
    if chosen and device and platform:
        width, height = device.image2d_max_width, device.image2d_max_height
        size = f"images up to {width} × {height}" if device.images else "no images"
        offers = f"driver {device.driver_version}, {size}, fp16 {'yes' if device.fp16 else 'no'}"
        answer = f"{chosen.library}: {platform.name}, {device.kind} {device.name}, {offers}"
        yield ok(f"{serial}: OpenCL", answer, OPENCL_PROGRAM)
    else:
        yield _opencl_unusable(serial, facts, report)
    for candidate in report.candidates:
        if candidate is not chosen and not candidate.platforms and not candidate.absent:
            what = f"{candidate.library} {candidate.outcome}: {candidate.said}"
            yield ok(f"{serial}: OpenCL library", what, OPENCL_PROGRAM)


def _opencl_unusable(serial: str, facts: DeviceFacts, report: OpenclReport) -> Check:
    """Say why TVM's runtime will not find an OpenCL device; some other library may have one."""
    name, chosen = f"{serial}: OpenCL", report.chosen
    elsewhere = [c.library for c in report.candidates if c is not chosen and c.platforms]
    if chosen is None:
        what = "TVM's runtime opens none of the libraries that are there"
    else:
        devices = [device for platform in chosen.platforms for device in platform.devices]
        refused = [f"{each.name}: {each.refused_by_tvm}" for each in devices if each.refused_by_tvm]
        reason = chosen.said or "; ".join(refused) or "it offers no GPU and no CPU"
        what = f"TVM's runtime takes {chosen.library} and finds no device: {reason}"
    remedy = FOR_CPU
    if elsewhere:
        what += f"; {', '.join(elsewhere)} would answer, but TVM's runtime does not open it"
        if facts.platforms[0].startswith("linux-"):
            remedy = f"On the device, as root: ln -s {elsewhere[0]} /usr/local/lib/libOpenCL.so"
    return warning(name, what, OPENCL_PROGRAM, remedy)


def ready(look: Callable[[], Server], serial: str) -> list[str]:
    """Return the serials to look at: *serial*, or every usable device; none when adb cannot be asked."""
    with contextlib.suppress(AdtError, OSError):
        return [device.serial for device in look().devices if device.ready and serial in ("", device.serial)]
    return []


def questions(scope: Scope) -> Iterator[Question]:
    """Yield the questions about adb, its server, the devices, then each ready device (or the named one)."""
    server_state = cache(look)

    def server() -> Iterator[Check]:
        state = server_state()
        protocols = clients(adb.find_adb()) if state.usable else {}
        yield from check_server(state, protocols, address_origin(scope))

    def listed() -> Iterator[Check]:
        state = server_state()
        if state.usable:
            needed = scope.named(Area.DEVICE)
            yield from check_states(state.devices, scope.serial, running_emulators(), needed=needed)
        elif scope.serial:
            problem = "cannot be looked for without an adb server"
            yield failed(f"device {scope.serial}", problem, remedy="adt doctor --fix, or adb start-server")

    def offers(serial: str) -> Iterator[Check]:
        device = Device(serial, scope.settings.device.limit)
        survey = survey_hardware(device, *STORAGE, libraries=PLACES)
        yield from check_facts(serial, device.facts, scope.settings.build.api_level)
        yield from check_survey(serial, device.facts, survey, *_opencl(device, survey))

    yield Question("adb", lambda: [check_program(adb.find_adb())])
    yield Question("adb server", server)
    yield Question("devices", listed)
    for serial in ready(server_state, scope.serial):
        yield Question(serial, partial(offers, serial))
