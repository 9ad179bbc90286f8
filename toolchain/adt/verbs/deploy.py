"""Put packages on devices, several at once, and remove what is old."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import typer

from adt.bundle.platforms import platform_named
from adt.cli.command import Rendering, command
from adt.cli.terminal import colours, moves, silence_line, status_line, terminal, visible
from adt.errors import ConfigError
from adt.host.document import FLAT, form, in_document
from adt.options.option import MaybePath, OneOrMorePaths, Options, Real, Text, option, python
from adt.options.request import Request, takes
from adt.options.sections import DeviceSettings
from adt.package.compatibility import check_half, check_own_cpu
from adt.verbs.device import device_of, open_device, probe_device
from adt.verbs.options import BUNDLE, KEY, quiet

if TYPE_CHECKING:
    from rich.table import Table

    from adt.bundle.bundle import TargetBundle
    from adt.device.app import PrivateCopy
    from adt.device.deploy.store import DeployReport
    from adt.device.deploy.workspace import CleanReport
    from adt.device.device import Device
    from adt.device.place import Opened
    from adt.device.selection import Event, Outcomes, Say
    from adt.device.transport.sync import Progress
    from adt.package.package import ModelPackage
    from adt.rpc.server import RpcServer

T = TypeVar("T")
RULED = {True: ("failed", "red"), False: ("done", "green")}


class DeviceFlags(Options):
    """Choice of devices."""

    serial: str | None = option(
        "Serial of the device, or of several: a,b; else ANDROID_SERIAL, else the only device.",
        "--serial",
        "-s",
        default=None,
        metavar="SERIAL,…",
        offers="serials",
    )
    everyone: bool = option("Take every device that adb sees.", "--all", default=False)


def several(flags: DeviceFlags) -> tuple[str, ...]:
    """Return the serials where several devices are meant; none: the one that is meant without a list."""
    from adt.device.selection import named_serials

    serials = named_serials(flags.serial, everyone=flags.everyone)
    return serials if len(serials) > 1 or flags.everyone else ()


@contextmanager
def live_table(serials: Sequence[str], *, quiet: bool) -> Iterator[Callable[[Event], None]]:
    """Yield a function that takes what happens: a table that changes in place on a terminal, else lines.

    Piped, only the end of each device is a line, without the error, which :func:`rendering` says.
    """
    if quiet:
        yield lambda _event: None
        return
    if not moves():
        silent: dict[str, Callable[[str, float], None]] = defaultdict(silence_line)

        def tell(event: Event) -> None:
            silent[event.serial](event.text, event.silent)
            if event.done:
                typer.echo(f"{event.serial}: {'failed' if event.failed else event.text}", err=True)

        yield tell
        return
    from rich.console import Console
    from rich.live import Live

    rows: dict[str, tuple[str, str, str]] = dict.fromkeys(serials, ("waiting", "dim", ""))
    console = Console(file=terminal(), no_color=colours() is False)
    with Live(_table(rows), console=console, refresh_per_second=8, transient=True) as live:

        def show(event: Event) -> None:
            state, style = RULED[event.failed] if event.done else ("working", "cyan")
            rows[event.serial] = (state, style, event.text)
            live.update(_table(rows))

        yield show


def _table(rows: dict[str, tuple[str, str, str]]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for heading in ("device", "state", "what"):
        table.add_column(heading, no_wrap=heading != "what", overflow="ellipsis")
    for serial, (state, style, text) in rows.items():
        table.add_row(Text(visible(serial)), Text(state, style=style), Text(visible(text)))
    return table


def rendering(verb: str, outcomes: Outcomes[T], summary: Callable[[T], str]) -> Rendering:
    """Return the output about each device; the exit code is that of the first one that failed, if any."""
    return Rendering(verb, {"devices": outcomes.all}, _lines(outcomes, summary), exit_code=outcomes.exit_code)


def _lines(outcomes: Outcomes[T], summary: Callable[[T], str]) -> Iterator[str]:
    width = max(len(outcome.serial) for outcome in outcomes.all)
    for outcome in outcomes.all:
        error, value = outcome.error, outcome.value
        text = summary(value) if value is not None else f"error: {error and error.what}"
        yield f"{outcome.serial:<{width}}  {text}"
    _remedies(outcomes)
    if outcomes.failed:
        typer.echo(f"{len(outcomes.failed)} of {len(outcomes.all)} devices failed", err=True)


def _remedies(outcomes: Outcomes[T]) -> None:
    """Print details and remedy of each device's error, those of several devices once."""
    serials: dict[tuple[str, str], list[str]] = {}
    for outcome in outcomes.failed:
        if error := outcome.error:
            serials.setdefault((error.details.rstrip(), error.remedy), []).append(outcome.serial)
    for details in dict.fromkeys(details for details, _ in serials if details):
        typer.echo(details, err=True)
    for (_, remedy), names in serials.items():
        typer.echo(f"{', '.join(names)}: remedy: {remedy}", err=True)


SERIALS = python("Devices of :func:`adt.deploy_many` and :func:`adt.clean_many`.", default=())
ON_EVENT = python("Called with what happens on each of several devices.", default=quiet)


class DeployRequest(Request):
    """Request of :func:`adt.deploy` and :func:`adt.deploy_many`."""

    serial: Text = DeviceSettings.serial
    timeout: Real = DeviceSettings.timeout
    bundle: MaybePath = BUNDLE
    key: str = KEY
    packages: OneOrMorePaths = option(
        "Packages that `adt compile` made; else the bundle alone.",
        default=(),
        kw_only=False,
        metavar="PACKAGE",
    )
    rpc: bool | None = option(
        "Start tracker and RPC server, which run programs for whoever connects; else if no package is named.",
        "--rpc/--no-rpc",
        default=None,
    )
    run_as: str | None = option(
        "Copy into the directory of this debuggable app, too.", default=None, metavar="APP"
    )
    dry_run: bool = option("Only show what would be done.", default=False)
    full_hash: bool = option("Read every byte on the device again.", default=False)
    say: Callable[[str], None] = python("Called with what is being done, in a few words.", default=quiet)
    serials: Sequence[str] = SERIALS
    on_event: Callable[[Event], None] = ON_EVENT


class CleanRequest(Request):
    """Request of :func:`adt.clean` and :func:`adt.clean_many`."""

    serial: Text = DeviceSettings.serial
    timeout: Real = DeviceSettings.timeout
    keep: int = option("Number of deployments of each name that stay, the last used.", default=2)
    dry_run: bool = option("Only show what would be done.", default=False)
    serials: Sequence[str] = SERIALS
    on_event: Callable[[Event], None] = ON_EVENT


@dataclass(frozen=True)
class DeployResult:
    """A bundle on a device, with a package or alone."""

    serial: str
    package: ModelPackage | None = field(metadata=form(convert=lambda package: package and package.path))
    bundle: TargetBundle = field(metadata=form(convert=lambda bundle: bundle.path))
    report: DeployReport = field(metadata=FLAT)
    private: PrivateCopy | None = field(
        default=None, metadata=form("private_directory", lambda copy: copy and copy.directory)
    )
    """Copy in an app's own directory, when that was asked for."""

    @property
    @in_document()
    def name(self) -> str:
        """Name of the deployment."""
        return self.report.deployment.name


@dataclass(frozen=True)
class Deployed:
    """All that one `deploy` put on one device."""

    serial: str
    results: tuple[DeployResult, ...] = field(metadata=form("deployments"))
    """One for each package, in order; the bundle alone comes first, when it was deployed too."""
    rpc: RpcServer | None
    """The server that is ready there; None when none was asked for."""
    report: DeployReport = field(metadata=FLAT)
    """All of it together, with the last deployment."""


@takes(DeployRequest)
def deploy(request: DeployRequest) -> Deployed:
    """Send what is missing of packages and their bundle to a device; a bundle alone serves RPC there.

    A second time sends nothing, and the server that runs stays.

    Raises:
        MismatchError: package, bundle and device do not fit each other, or no bundle was built.
        RpcError, TrackerError: the server does not become ready; what was sent is complete.
    """
    packages = _load_packages(request)
    return _deploy_on(_only_device(request), request, packages, request.say)


@takes(DeployRequest)
def deploy_many(request: DeployRequest) -> Outcomes[Deployed]:
    """Call :func:`deploy` for several devices at once; what fails on one is in its outcome and stops no
    other.

    Raises:
        PackageError, ConfigError: what is to be deployed is no package; nothing was done.
    """
    packages = _load_packages(request)
    return _on_each(request, lambda device, say: _deploy_on(device, request, packages, say))


def _only_device(request: DeployRequest | CleanRequest) -> Device:
    if request.serials:
        raise ConfigError(
            f"{len(request.serials)} devices for a verb of one",
            remedy="Name one with serial; adt.deploy_many and adt.clean_many take several.",
        )
    return device_of(request.settings.device)


def _on_each(request: DeployRequest | CleanRequest, work: Callable[[Device, Say], T]) -> Outcomes[T]:
    from adt.device import selection

    return selection.for_each(
        request.serials,
        work,
        opened=lambda serial: open_device(serial, request.settings.device.limit),
        on_event=request.on_event,
    )


def _load_packages(request: DeployRequest) -> tuple[ModelPackage, ...]:
    from adt.device.app import check_app
    from adt.package.package import load_package

    packages = tuple(load_package(path) for path in request.packages)
    names = [package.manifest.name for package in packages]
    if len({package.path.resolve() for package in packages}) < len(packages):
        raise ConfigError(f"a package is named twice: {', '.join(names)}", remedy="Name each one once.")
    if request.run_as is not None:
        check_app(request.run_as)
    return packages


def _deploy_on(
    device: Device, request: DeployRequest, packages: tuple[ModelPackage, ...], say: Say
) -> Deployed:
    from adt.device.app import copy_into_app
    from adt.device.deploy.payload import payload_of
    from adt.device.deploy.store import joined
    from adt.verbs.bundles import choose_bundle

    serves = (not packages if request.rpc is None else request.rpc) and not request.dry_run
    jobs: list[tuple[TargetBundle, ModelPackage | None]] = []
    if serves or not packages:
        # The server has a deployment of its own: it then runs on, whichever packages come and go.
        platforms = device.facts.platforms
        jobs.append((choose_bundle(platforms, request.bundle, device=device, server=serves), None))
    jobs += [(choose_bundle(package, request.bundle, device=device), package) for package in packages]
    results = []
    for bundle, package in jobs:
        name = package.manifest.name if package else bundle.manifest.preset
        say(f"deploying {name}")
        report = deploy_to(
            device,
            package,
            bundle,
            dry_run=request.dry_run,
            full_hash=request.full_hash,
            progress=_percent(say),
        )
        copy = None
        if request.run_as and not request.dry_run:
            copy = copy_into_app(device, report.deployment, payload_of(bundle, package), request.run_as)
        results.append(DeployResult(device.serial, package, bundle, report, copy))
    server = None
    if serves:
        from adt.verbs.rpc import serve_deployed

        say("starting the RPC server")
        settings = request.settings.rpc
        server = serve_deployed(device, results[0].report.deployment, settings, key=request.key)
    return Deployed(device.serial, tuple(results), server, joined([result.report for result in results]))


def _percent(say: Say) -> Progress:
    last = ""

    def report(name: str, done: int, total: int) -> None:
        nonlocal last
        text = f"{100 * done // max(1, total):3d} %  {name}"
        if text != last:
            last = text
            say(text)

    return report


def deploy_to(
    device: Device,
    package: ModelPackage | None,
    bundle: TargetBundle,
    *,
    dry_run: bool = False,
    full_hash: bool = False,
    progress: Progress | None = None,
) -> DeployReport:
    """Send what is missing of *package* (None: the bundle alone) and *bundle* to *device*."""
    from adt.device.deploy import store

    if package is not None and package.manifest.needs_half and not dry_run:
        opencl = probe_device(device).opencl
        if opencl is not None and opencl.device is not None:  # else the run says what is the matter
            name = f"{opencl.device.name} of device {device.serial}"
            check_half(package.manifest, name, fp16=bool(opencl.device.fp16))
    return store.deploy(device, bundle, package, dry_run=dry_run, full_hash=full_hash, progress=progress)


def runs_here(package: ModelPackage, request: Request) -> bool:
    """Return True if *package* is for this machine, and no device (a virtual one of its kind) is named."""
    return request.named("serial") is None and package.manifest.target.for_this_machine


def open_place(package: ModelPackage, request: Request, named: Path | None, measures: bool = True) -> Opened:
    """Make *package* ready with the bundle *named* or the newest that fits: deploy it, or run it here.

    Who *measures* nothing needs no bundle for this machine: while there is none, TVM's wheel runs it.
    """
    from adt.bundle.bundle import cached_bundles
    from adt.device.place import DevicePlace, HostPlace, Opened
    from adt.package.host_run.opencl import opencl_device
    from adt.verbs.bundles import choose_bundle

    if runs_here(package, request):
        check_own_cpu(package.manifest)
        wheel_aligns = package.manifest.alignment <= platform_named("host").alignment
        needed = measures or named or not wheel_aligns or cached_bundles(("host",))
        bundle = choose_bundle(package, named) if needed else None
        if package.manifest.needs_half and (opencl := opencl_device()) is not None:
            check_half(package.manifest, f"{opencl} of this machine", fp16=opencl.fp16)
        return Opened(HostPlace(bundle, package), package, bundle)
    if named is not None:
        choose_bundle(package, named)  # a bundle that does not fit is refused without a device
    device = device_of(request.settings.device)
    bundle = choose_bundle(package, named, device=device)
    report = deploy_to(device, package, bundle)
    return Opened(DevicePlace(device, report.deployment), package, bundle)


@takes(CleanRequest)
def clean(request: CleanRequest) -> CleanReport:
    """Remove this user's old deployments from a device, and what only they needed; never one in use.

    Raises:
        ConfigError: so many cannot be kept; nothing was done.
    """
    from adt.device.deploy import workspace

    return workspace.clean(_only_device(request), keep=request.keep, dry_run=request.dry_run)


@takes(CleanRequest)
def clean_many(request: CleanRequest) -> Outcomes[CleanReport]:
    """Call :func:`clean` for several devices at once."""
    from adt.device.deploy import workspace

    def clean_device(device: Device, say: Say) -> CleanReport:
        say("cleaning")
        return workspace.clean(device, keep=request.keep, dry_run=request.dry_run)

    return _on_each(request, clean_device)


@command("adt deploy model-pkg", phone=True)
def deploy_command(request: DeployRequest, flags: DeviceFlags, as_json: bool) -> Rendering:
    """Send what is missing of packages and their bundle to a device; a bundle alone serves RPC."""
    if not (serials := several(flags)):
        with status_line("adt deploy") as say:
            result = deploy(request.but(serial=flags.serial, say=say))
        return Rendering("deploy", result, _deploy_lines(result))
    with live_table(serials, quiet=as_json) as on_event:
        outcomes = deploy_many(request.but(serials=serials, on_event=on_event))
    return rendering("deploy", outcomes, _deploy_summary)


def _deploy_lines(result: Deployed) -> Iterator[str]:
    yield f"device      {result.serial}"
    for deployed in result.results:
        report = deployed.report
        sent, reused = ("sent", "reused") if report.applied else ("would send", "would reuse")
        yield f"{sent:<11} {len(report.sent_files)} files, {report.sent_bytes:,} bytes"
        if not report.applied:
            for name in report.sent_files:
                yield f"              {name}{' (damaged there)' * (name in report.mended_files)}"
        yield f"{reused:<11} {len(report.reused_files)} files"
        if not report.applied and report.free is not None:
            yield f"free        {report.free:,} bytes"
        yield f"deployment  {report.deployment.directory}"
        if copy := deployed.private:
            yield f"in the app  {copy.directory} ({'copied' if copy.copied else 'was there'})"
    if result.rpc:
        yield result.rpc.ready_line


def _deploy_summary(result: Deployed) -> str:
    """Format one line of a table of devices."""
    report = result.report
    sent = "sent" if report.applied else "would send"
    summary = f"{sent} {len(report.sent_files)} files, {report.sent_bytes:,} bytes"
    return f"{summary}; {result.rpc.ready_line}" if result.rpc else summary


@command("adt clean --keep 1 --dry-run", phone=True)
def clean_command(request: CleanRequest, flags: DeviceFlags, as_json: bool) -> Rendering:
    """Remove your old deployments from a device, never one in use."""
    if not (serials := several(flags)):
        report = clean(request.but(serial=flags.serial))
        return Rendering("clean", report, _clean_lines(report))
    with live_table(serials, quiet=as_json) as on_event:
        outcomes = clean_many(request.but(serials=serials, on_event=on_event))
    return rendering("clean", outcomes, _clean_summary)


def _clean_summary(report: CleanReport) -> str:
    verb = "removed" if report.applied else "would remove"
    return (
        f"{verb} {len(report.removed)} deployments, {report.files} files ({report.size:,} bytes); "
        f"{len(report.kept)} kept"
    )


def _clean_lines(report: CleanReport) -> Iterator[str]:
    yield f"device   {report.serial}"
    verb = "removed" if report.applied else "would go"
    for name in report.removed:
        yield f"{verb:<8} {name}"
    for name in report.kept:
        yield f"kept     {name}{' (in use)' * (name in report.in_use)}"
    yield f"freed    {report.files} files, {report.size:,} bytes" + " (dry run)" * (not report.applied)
    if report.leftovers:
        yield f"left by a restart of the device: {report.leftovers} directories"
    if report.deploying:
        yield f"{report.deploying} deploys are under way: no file was removed; run this again later"
