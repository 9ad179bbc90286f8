"""Make an APK of packages and bundles without Gradle, install it, and have it measure or serve there."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from adt.bundle.platforms import platform_named
from adt.cli.command import Rendering, command
from adt.cli.terminal import status_line
from adt.errors import AdtError, ConfigError, InputError, MismatchError, RunError, exclusive
from adt.host.disk import scratch_directory, size_text
from adt.host.document import FLAT, OR_NULL, form, in_document
from adt.options.option import (
    Directory,
    MaybePath,
    Number,
    OneOrMorePaths,
    Paths,
    PathTo,
    Real,
    Text,
    option,
    python,
)
from adt.options.request import Request, takes
from adt.options.sections import RUN_SECONDS, BuildSettings, DeviceSettings, VerifySettings
from adt.verbs import options as shared
from adt.verbs.bench import protocol_of, speed_lines
from adt.verbs.device import device_of

if TYPE_CHECKING:
    from adt.bundle.audit.report import ElfReport
    from adt.device.transport.sync import Progress
    from adt.integrate.apk import Keystore
    from adt.integrate.model_api import Project
    from adt.measure.record import BenchRecord
    from adt.rpc.server import RpcServer


class ApkRequest(Request):
    """Request of :func:`adt.apk`."""

    packages: OneOrMorePaths = option(
        "Packages that `adt compile` made, for each platform; those of one name are one model.",
        default=(),
        kw_only=False,
        help="Packages that `adt compile` made, for each platform.",
        metavar="PACKAGE",
    )
    bundles: Paths = shared.BUNDLES
    allow_4k: bool = shared.ALLOW_4K
    ndk: Directory = BuildSettings.ndk
    seed: Number = VerifySettings.seed
    threads: int | None = shared.THREADS
    affinity: str = shared.AFFINITY
    protocol: str = shared.PROTOCOL
    runs: int | None = shared.RUNS
    seconds: float | None = shared.SECONDS
    warmup_runs: int | None = shared.WARMUP_RUNS
    warmup_ms: float | None = shared.WARMUP_MS
    end_to_end: bool = shared.END_TO_END
    rpc_server: bool = option("Make an app that is an RPC server, without packages.", default=False)
    out: MaybePath = shared.output("APK to write; else NAME.apk here.", "--out", "-o")
    java_package: str | None = option(
        "Id of the app; else com.example.MODEL_bench or .adt_rpc.",
        "--package",
        "--java-package",
        default=None,
        metavar="com.a.b",
    )
    sdk: str = option("Android SDK; else ANDROID_HOME, else Debian's programs.", default="", metavar="DIR")
    keystore: MaybePath = option("Keystore with the key to sign with; else a debug key.", default=None)
    key_alias: str = option("Name of the key in a keystore that has several.", default="")
    keystore_password: str = python("The keystore's.", default="")
    key_password: str = python("The key's, when it has one of its own.", default="")
    debuggable: bool = option("Let debuggers, and all who have adb, look into the app.", default=False)


class InstallRequest(Request):
    """Request of :func:`adt.install`."""

    serial: Text = DeviceSettings.serial
    timeout: Real = DeviceSettings.timeout
    key: str = shared.KEY
    tracker: str = shared.TRACKER_ADDRESS
    apk: PathTo = option("APK, which `adt apk` makes.", kw_only=False, metavar="APK")
    run: bool = option(
        "Start the app and wait until it has measured, or serves RPC; keep the results.", default=False
    )
    record: bool = option("Keep the results for `adt report`.", default=True)
    progress: Progress | None = python("Called with name, bytes sent, and bytes in all.", default=None)


log = logging.getLogger("adt.apk")

SUFFIX = ".apk"
SERVER_APP = "com.example.adt_rpc"
"""An RPC server that was given no name."""


@dataclass(frozen=True)
class Apk:
    """The result of :func:`apk`."""

    path: Path
    size: int
    """Bytes."""
    project: Project = field(metadata=FLAT)
    min_sdk: int
    """The lowest API level that it can be installed on."""
    schemes: tuple[str, ...] = field(metadata=form("signatures"))
    """Its signatures that were verified: ``v2``, ``v3``."""
    keystore: Path
    debug_key: bool
    """It is signed with adt's own debug key."""
    tools: str
    elf: dict[str, ElfReport]
    """The audit of its libraries, by ABI."""

    @property
    @in_document()
    def app(self) -> str:
        """Application id."""
        return self.project.java_package


@dataclass(frozen=True)
class Installed:
    """An app that was installed and, if that was asked for, has measured."""

    serial: str
    apk: Path
    app: str = field(metadata=OR_NULL)
    """Application id; empty: `adt apk` did not make it."""
    records: tuple[BenchRecord, ...] = ()
    """One for each model; none: it was only installed, or serves."""
    files: tuple[Path, ...] = ()
    server: RpcServer | None = None


@takes(ApkRequest)
def apk(request: ApkRequest) -> Apk:
    """Write a signed APK whose app runs packages, measures them and writes the results, or serves RPC.

    Raises:
        ConfigError: a name, a keystore or its password is not right, or an input has no fixed shape.
        MismatchError: packages and bundles do not fit each other, or are not for Android.
        RpcError: an app is to serve, and a bundle has no RPC.
        ToolNotFound, SdkError: what makes APKs is not on this machine.
        BuildError: one of its programs fails, or a library would not load, or not with pages of 16 KB.
    """
    from adt.bundle.audit.auditing import audit_ndk
    from adt.host.ndk import find_apk_tools
    from adt.integrate.apk import apk_entries, audit_libraries, build_apk, manifest_text, min_sdk
    from adt.integrate.contents import BenchPlan, app_libraries, check_large_pages, planned_models

    out = request.out
    if out is not None and out.suffix != SUFFIX:
        raise ConfigError(f"{out} does not end in {SUFFIX}", remedy=f"Name it so: -o {out.stem}{SUFFIX}")
    described = _described(request)
    measured = protocol_of(request)
    plan = BenchPlan(
        app=described.java_package,
        bundle_digests=described.bundle_digests,
        models=planned_models(described),
        threads=request.threads or 0,
        affinity=request.affinity,
        seed=request.seed,
        end_to_end=request.end_to_end,
        warmup_runs=measured.warmup_runs,
        warmup_ms=round(measured.warmup_ms),
        runs=measured.runs,
        min_ms=round(measured.seconds * 1000),
    )
    entries = apk_entries(described, plan.text())
    level, symbols = min_sdk(described), audit_ndk(request.ndk)
    files = {entry.name: entry.contents for entry in entries if isinstance(entry.contents, Path)}
    libraries = app_libraries(files)
    elf = {
        bundle.manifest.abi: audit_libraries(libraries, bundle, api_level=level, ndk=symbols)
        for bundle in described.bundles
    }
    if not request.allow_4k:
        check_large_pages(libraries)
    tools, key = find_apk_tools(request.sdk), _keystore(request)
    path = out or Path(described.name + SUFFIX)
    manifest = manifest_text(described, debuggable=request.debuggable)
    schemes = build_apk(manifest, entries, path, min_sdk=level, tools=tools, keystore=key)
    size = path.stat().st_size
    return Apk(path, size, described, level, schemes, key.path, key.debug, tools.origin, elf)


def _described(request: ApkRequest) -> Project:
    from adt.integrate.apk import application_id
    from adt.integrate.project import project, server_project
    from adt.package.package import load_package
    from adt.verbs.bundles import choose_bundle
    from adt.verbs.default_platform import default_platform
    from adt.verbs.generate import bundles_of

    if not request.rpc_server:
        packages = tuple(load_package(path) for path in request.packages)
        name = request.java_package or application_id(packages[0].manifest.name if packages else "")
        return project(packages, bundles_of(packages, request.bundles), java_package=name)
    if request.packages:
        raise exclusive("PACKAGE", "--rpc-server", "clients send what they run")
    name = "" if request.bundles else default_platform(request.resolved, android=True)
    platforms = (platform_named(name).name,) if name else ()
    chosen = [choose_bundle(platforms, path, server=True) for path in request.bundles or (None,)]
    return server_project(chosen, java_package=request.java_package or SERVER_APP)


def _keystore(request: ApkRequest) -> Keystore:
    from adt.integrate.apk import debug_keystore, users_keystore

    if request.keystore is None:
        return debug_keystore()
    return users_keystore(
        request.keystore,
        request.key_alias,
        password=request.keystore_password,
        key_password=request.key_password,
    )


@takes(InstallRequest)
def install(request: InstallRequest) -> Installed:
    """Install an APK on a device, in place of an older one, and have it measure, or serve RPC.

    Raises:
        InputError: *apk* is none.
        ConfigError: *run*, and `adt apk` did not make it; or a key or a tracker, and it does not serve.
        MismatchError: it has no libraries for the device, or the device is too old.
        DeviceError, DeviceFull: the device has no package manager, refuses the app, or is full.
        RunError: the app fails, does not start, or takes too long.
        RpcError, TrackerError: it does not become a server that clients can use.
    """
    from adt.device import app as on_device
    from adt.integrate.apk import read_apk
    from adt.integrate.contents import ACTIVITY_CLASS, ERROR, RESULTS
    from adt.rpc import server, state
    from adt.verbs.rpc import serve_deployed

    apk = request.apk
    contents = read_apk(apk)
    if (request.key or request.tracker) and not (contents.serves and request.run):
        raise ConfigError(
            f"{apk} does not register with a tracker" + ("" if contents.serves else ": it is no RPC server"),
            remedy="Leave --key and --tracker away; or: adt apk --rpc-server, then adt install APK --run.",
        )
    if request.run and not contents.app:
        raise ConfigError(
            f"{apk} was not made by `adt apk`: it has no plan of what to measure",
            remedy="Install it without --run, and start the app on the device; `adt report --import` takes "
            "what the benchmark of a generated app wrote.",
        )
    device = device_of(request.settings.device)
    seconds = device.allow(RUN_SECONDS)
    offered = device.facts.abis
    if contents.abis and offered and not set(contents.abis) & set(offered):
        raise MismatchError(
            f"{apk} is for {', '.join(contents.abis)}, and {device.serial} runs {', '.join(offered)}",
            remedy="Make it with a package and a bundle for the device: adt build-target --for "
            f"android-{offered[0]}, adt compile MODEL --for android-{offered[0]}.",
        )
    running = state.read_server(state.server_home(device.serial))
    if contents.serves and running is not None and running.app == contents.app:
        server.stop(device.serial)  # its watchdog would start the old app while it is replaced
    on_device.install(device, apk, timeout=seconds, app=contents.app, progress=request.progress)
    installed = Installed(device.serial, apk, contents.app)
    if not request.run:
        return installed
    if contents.serves:
        place = f"{contents.app}/{ACTIVITY_CLASS}"
        rpc, key, tracker = request.settings.rpc, request.key, request.tracker
        return replace(installed, server=serve_deployed(device, place, rpc, key=key, tracker_address=tracker))
    with scratch_directory("results") as scratch:
        results = on_device.run_app(
            device,
            contents.app,
            ACTIVITY_CLASS,
            results=RESULTS,
            files=[f"{stem}.json" for stem in contents.stems],
            over=ERROR,
            into=scratch,
            timeout=seconds,
        )
        records, files = _records(results, request.record)
    return replace(installed, records=records, files=files)


def _records(results: Sequence[Path], keep: bool) -> tuple[tuple[BenchRecord, ...], tuple[Path, ...]]:
    """Read what the app measured, and keep it; then raise the first failure that it wrote, if any."""
    from adt.measure import app_bench, history

    records: list[BenchRecord] = []
    failures: list[AdtError] = []
    for path in results:
        try:
            records.append(app_bench.read(path))
        except (RunError, InputError) as error:
            failures.append(error)
    files = [history.save_if_possible(record) for record in records] if keep else []
    for failure in failures[1:]:
        log.warning("%s", failure.what)
    if failures:
        raise failures[0]
    return tuple(records), tuple(filter(None, files))


STORE_PASSWORD, KEY_PASSWORD = "ADT_KEYSTORE_PASSWORD", "ADT_KEY_PASSWORD"


@command("adt apk detector-pkg --bundle bundle-arm64 --package com.example.vision")
def apk_command(
    request: ApkRequest,
    password_file: Annotated[
        Path | None,
        option(
            f"File whose first line is the keystore's password; else {STORE_PASSWORD}, else adt asks.",
            "--keystore-password-file",
            default=None,
        ),
    ],
) -> Rendering:
    """Make a signed APK that measures packages on a phone, or serves RPC: no Gradle, no Java code."""
    password = _password(request.keystore, password_file) if request.keystore else ""
    key_password = os.environ.get(KEY_PASSWORD, "")
    result = apk(request.but(keystore_password=password, key_password=key_password))
    return Rendering("apk", result, _lines(result))


def _password(keystore: Path, file: Path | None) -> str:
    """Return the keystore's password; empty if there is nobody to ask."""
    if file is not None:
        try:
            return file.read_text(encoding="utf-8").partition("\n")[0].rstrip("\r")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"{file} cannot be read: {error}", remedy="Name a text file with --keystore-password-file."
            ) from error
    if (known := os.environ.get(STORE_PASSWORD)) is not None or not sys.stdin.isatty():
        return known or ""
    return str(typer.prompt(f"Password of {keystore}", hide_input=True, err=True))


def _lines(result: Apk) -> Iterator[str]:
    abis = ", ".join(bundle.manifest.abi for bundle in result.project.bundles)
    yield f"{'app':<11} {result.project.java_package} for {abis}, API level {result.min_sdk} and newer"
    for model in result.project.models:
        yield f"{'model':<11} {model.api.name}"
    key = "a debug key: not for release" if result.debug_key else str(result.keystore)
    yield f"{'signed':<11} {' and '.join(result.schemes)}, with {key}"
    yield f"{'made with':<11} {result.tools}"
    for report in result.elf.values():
        for file in report.files:
            for finding in file.findings:
                yield f"{'!':<11} {file.name}: {finding.what}"
    yield f"{'wrote':<11} {result.path} ({result.size:,} bytes)"


@command("adt install app.apk --serial 0123456789ABCDEF --run")
def install_command(request: InstallRequest) -> Rendering:
    """Install an APK on a phone; with --run, have it measure there, or serve RPC."""
    with status_line("adt install") as say:

        def progress(_name: str, sent: int, total: int) -> None:
            say(f"sent {size_text(sent)} of {size_text(total)}" if sent < total else "installing")

        result = install(request.but(progress=progress))
    return Rendering("install", result, _installed_lines(result))


def _installed_lines(result: Installed) -> Iterator[str]:
    yield f"{'device':<11} {result.serial}"
    yield f"{'installed':<11} {result.app or result.apk}"
    for record in result.records:
        yield f"{'package':<11} {record.subject.package}"
        yield f"{'outputs':<11} not compared with the reference: `adt verify` does that"
        yield from speed_lines(record)
    for file in result.files:
        yield f"{'kept':<11} {file}"
    if result.server:
        yield result.server.ready_line
