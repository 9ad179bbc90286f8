"""Make an APK of packages and bundles without Gradle, install it, and have it measure or serve there."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from adt.api.bench import protocol_of
from adt.api.bundles import choose_bundle
from adt.api.device import device_of
from adt.api.generate import bundles_of
from adt.api.requests import ApkRequest, InstallRequest
from adt.api.rpc import serve_deployed
from adt.bundle.audit.auditing import audit_ndk
from adt.device import app as on_device
from adt.errors import AdtError, ConfigError, InputError, MismatchError, RunError
from adt.host.android_sdk import find_apk_tools
from adt.host.disk import scratch_directory
from adt.integrate.apk.build import build_apk
from adt.integrate.apk.entries import apk_entries, audit_libraries
from adt.integrate.apk.keystore import Keystore, debug_keystore, users_keystore
from adt.integrate.apk.manifest import application_id, manifest_text, min_sdk, read_apk
from adt.integrate.bench_plan import ACTIVITY_CLASS, ERROR, RESULTS, BenchPlan, planned_models, result_file
from adt.integrate.contents import app_libraries
from adt.integrate.large_pages import check_large_pages
from adt.integrate.model_api import Project
from adt.integrate.project import project, server_project
from adt.options.request import takes
from adt.options.sections import RUN_SECONDS
from adt.package.package import load_package
from adt.rpc import server, state
from adt.rpc.server import RpcServer

if TYPE_CHECKING:
    from adt.bundle.audit.report import ElfReport
    from adt.measure.record import BenchRecord

log = logging.getLogger("adt.apk")

SUFFIX = ".apk"
SERVER_APP = "com.example.adt_rpc"
"""An RPC server that was given no name."""
SERVER_PLATFORM = "android-arm64-v8a"
"""Platform of the bundle when none is named."""


@dataclass(frozen=True)
class Apk:
    """The result of :func:`apk`."""

    path: Path
    size: int
    """Bytes."""
    project: Project
    min_sdk: int
    """The lowest API level that it can be installed on."""
    schemes: tuple[str, ...]
    """Its signatures that were verified: ``v2``, ``v3``."""
    keystore: Path
    debug_key: bool
    """It is signed with adt's own debug key."""
    tools: str
    """The tools that linked and signed it."""
    elf: dict[str, ElfReport]
    """The audit of its libraries, by ABI."""


@dataclass(frozen=True)
class Installed:
    """An app that was installed and, if that was asked for, has measured."""

    serial: str
    apk: Path
    app: str
    """Application id; empty: `adt apk` did not make it."""
    records: tuple[BenchRecord, ...]
    """One for each model; none: it was only installed, or serves."""
    files: tuple[Path, ...]
    """Paths where they are kept."""
    server: RpcServer | None = None
    """Server that it carries."""


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
    out = request.out
    if out is not None and out.suffix != SUFFIX:
        raise ConfigError(f"{out} does not end in {SUFFIX}", remedy="Devices install only files that do.")
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
    built = build_apk(
        manifest_text(described, debuggable=request.debuggable),
        entries,
        out or Path(described.name + SUFFIX),
        min_sdk=level,
        tools=tools,
        keystore=key,
    )
    return Apk(
        built.path, built.size, described, level, built.schemes, key.path, key.debug, tools.origin, elf
    )


def _described(request: ApkRequest) -> Project:
    if not request.rpc_server:
        packages = tuple(load_package(path) for path in request.packages)
        name = request.java_package or application_id(packages[0].manifest.name if packages else "")
        return project(packages, bundles_of(packages, request.bundles), java_package=name)
    if request.packages:
        raise ConfigError(
            "an app that serves RPC carries no packages",
            remedy="Leave them away: clients send what they run; or leave --rpc-server away.",
        )
    paths = request.bundles or (None,)
    chosen = [choose_bundle((SERVER_PLATFORM,), path, server=True) for path in paths]
    return server_project(chosen, java_package=request.java_package or SERVER_APP)


def _keystore(request: ApkRequest) -> Keystore:
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
        NoDevice, AmbiguousDevice, DeviceNotReady: see :mod:`adt.errors`.
    """
    apk = request.apk
    contents = read_apk(apk)
    if (request.key or request.tracker_address) and not (contents.serves and request.run):
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
    if not request.run:
        return Installed(device.serial, apk, contents.app, (), ())
    if contents.serves:
        serving = serve_deployed(
            device,
            f"{contents.app}/{ACTIVITY_CLASS}",
            request.settings.rpc,
            key=request.key,
            tracker_address=request.tracker_address,
        )
        return Installed(device.serial, apk, contents.app, (), (), serving)
    with scratch_directory("results") as scratch:
        results = on_device.run_app(
            device,
            contents.app,
            ACTIVITY_CLASS,
            results=RESULTS,
            files=[result_file(stem) for stem in contents.stems],
            over=ERROR,
            into=scratch,
            timeout=seconds,
        )
        records, files = _records(results, request.record)
    return Installed(device.serial, apk, contents.app, records, files)


def _records(results: Sequence[Path], keep: bool) -> tuple[tuple[BenchRecord, ...], tuple[Path, ...]]:
    """Read what the app measured, and keep it.

    Raises:
        RunError, InputError: the app says that it failed, or wrote something else; what it measured besides
            is kept all the same.
    """
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
