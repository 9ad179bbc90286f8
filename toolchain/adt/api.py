"""Every verb of adt as a function: typed arguments in, a frozen result out.

The command line parses, calls one of these and renders its result. Arguments
left at None take their value from the environment, ``adt.toml``,
``[tool.adt]`` or the defaults (see docs/configuration.md).
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import adt
from adt.bench.verify import Verification, compare
from adt.config.load import Resolved, load_settings
from adt.config.settings import Settings
from adt.device import deploy as deploying
from adt.device import selection
from adt.device.deploy import DeployReport
from adt.device.device import Device
from adt.device.runner import RunResult, run_on_device
from adt.device.selection import DeviceInfo
from adt.device.virtual import emulator
from adt.device.virtual.emulator import EmulatorInfo
from adt.errors import ConfigError, MismatchError, PackageError
from adt.host import cache
from adt.host.ndk import Listed, find_ndk, list_ndks, tool_environment
from adt.host.tvm_source import TvmSource, find_source
from adt.model import store
from adt.model.package import ModelPackage, load_package
from adt.target import build as target_build
from adt.target.build import BuildResult, build_bundle, find_bundle
from adt.target.bundle import TargetBundle, load_bundle
from adt.target.layout import check_layout, export
from adt.target.platforms import platform_named
from adt.target.presets import Preset, list_presets

if TYPE_CHECKING:
    from adt.bench.reference import Array
    from adt.checkup.check import Area, Check
    from adt.checkup.diagnose import Diagnosis
    from adt.checkup.mend import Repair
    from adt.target.audit.report import ElfReport

__all__ = [*adt.VERBS, "DeployResult", "UpPlan", "UpResult", "VerifyResult"]

log = logging.getLogger("adt.api")

Progress = Callable[[str], None]
VIRTUAL_PLATFORM = "linux-aarch64"
"""What the virtual device is."""


def _quiet(_line: str) -> None:
    """The default progress callback."""


def settings(flags: Mapping[str, object] | None = None) -> Resolved:
    """Resolve every setting and say where each came from; *flags* are ``section.key`` to value."""
    return load_settings(flags)


def source(*, tvm_source: str | None = None, provider: str | None = None) -> TvmSource:
    """The TVM source tree that a build would take, obtained if it is not here yet."""
    resolved = load_settings({"tvm.source": tvm_source, "tvm.provider": provider})
    return find_source(resolved.settings.tvm)


def ndk_list(*, ndk: str | None = None) -> tuple[Listed, ...]:
    """Every place on this machine that could hold an Android NDK, in the order they are looked at."""
    return list_ndks(load_settings({"build.ndk": ndk}).settings.build.ndk)


def ndk_env(
    *, ndk: str | None = None, platform: str | None = None, api_level: int | None = None
) -> dict[str, str]:
    """Variables (CC, CXX, AR, TVM_NDK_CC, …) with which other build tools use the NDK that adt uses.

    Raises:
        NdkError: there is no NDK, or it has no compiler for the API level.
        ConfigError: *platform* is not Android.
    """
    build = load_settings(
        {"build.ndk": ndk, "build.platform": platform, "build.api_level": api_level}
    ).settings.build
    chosen = platform_named(build.platform)
    if not chosen.android:
        raise ConfigError(f"{chosen.name} is not built with an NDK", remedy="Choose an android-… platform.")
    return tool_environment(find_ndk(build.ndk), chosen.ndk_triple, build.api_level)


def presets(*, ndk: str | None = None, clml: str | None = None) -> tuple[Preset, ...]:
    """Every CMake preset: what it switches on, and whether this machine can build it."""
    return list_presets(load_settings({"build.ndk": ndk, "build.clml": clml}).settings)


class BuildFlags(TypedDict, total=False):
    """Options of :func:`build_target`; one that is absent or None is resolved as every setting is."""

    platform: str | None
    """``android-arm64-v8a``, ``linux-aarch64``, ``host``, …, or a preset such as ``linux-aarch64-cpu``."""
    ndk: str | None
    """Root of the Android NDK."""
    tvm_source: str | None
    """A TVM source tree."""
    api_level: int | None
    """Lowest Android API level."""
    alignment: int | None
    """Bytes; TVM_KALLOC_ALIGNMENT."""
    opencl: bool | None
    """Build the OpenCL runtime in."""
    opencl_sdk: str | None
    """An OpenCL SDK to link against, instead of opening the device's libOpenCL at run time."""
    clml: str | None
    """A CLML SDK, whose runtime is built in."""
    rpc: bool | None
    """Build tvm_rpc."""
    build_type: str | None
    """CMake's build type."""
    jobs: int | None
    """Parallel compiler processes."""


def _build_settings(flags: BuildFlags) -> Settings:
    named = {f"build.{name}": value for name, value in flags.items() if name != "tvm_source"}
    return load_settings(named | {"tvm.source": flags.get("tvm_source")}).settings


def build_target(
    *, out: Path | None = None, progress: Progress = _quiet, **flags: Unpack[BuildFlags]
) -> BuildResult:
    """Build a TargetBundle, or return it at once when nothing changed.

    Args:
        out: also copy the bundle to this directory.
        progress: called with one line at a time while CMake and Ninja run.
        flags: see :class:`BuildFlags`.

    Raises:
        ToolNotFound, NdkError, SourceError, BuildError: see :mod:`adt.errors`.
    """
    result = build_bundle(_build_settings(flags), progress=progress)
    if out is not None:
        export([result.bundle], out, "bundle")
    return result


def build_abis(
    abis: Sequence[str],
    *,
    out: Path | None = None,
    layout: str = "bundle",
    progress: Progress = _quiet,
    **flags: Unpack[BuildFlags],
) -> tuple[BuildResult, ...]:
    """Build the bundles of several Android ABIs from one source tree.

    Args:
        abis: Android's names, such as ``["arm64-v8a", "x86_64"]``, or with a variant: ``arm64-v8a-cpu``.
        out: write the bundles here, in *layout*: ``bundle`` (a directory for each ABI)
            or ``jni`` (``jniLibs/<abi>/*.so``).

    Raises:
        ConfigError: an ABI or the layout is unknown, or an ABI is named twice; nothing was built.
        ToolNotFound, NdkError, SourceError, BuildError: see :mod:`adt.errors`.
    """
    check_layout(layout)
    names = [f"android-{abi}" for abi in dict.fromkeys(abis)]
    if len({platform_named(name).abi for name in names}) < len(names):
        raise ConfigError(f"{', '.join(abis)}: an ABI is named twice", remedy="Choose one variant of each.")
    results = []
    for name in names:
        flags["platform"] = name
        results.append(build_bundle(_build_settings(flags), progress=progress))
    if out is not None:
        export([result.bundle for result in results], out, layout)
    return tuple(results)


def explain_build(**flags: Unpack[BuildFlags]) -> tuple[str, ...]:
    """What :func:`build_target` with the same *flags* would do now, and why; compiles nothing."""
    return target_build.explain_build(_build_settings(flags))


def compile(  # the verb's name; Python's own compile() is not used here
    model: Path,
    *,
    out: Path | None = None,
    platform: str | None = None,
    target: str | None = None,
    shapes: Sequence[str] | None = None,
    bundle: Path | None = None,
    ndk: str | None = None,
    api_level: int | None = None,
    opt_level: int | None = None,
) -> ModelPackage:
    """Compile an ONNX model to a ModelPackage for *platform*.

    Args:
        out: directory of the package; by default ``<model>-<platform>`` here.
        shapes: ``name:1,3,224,224`` texts for inputs with open dimensions.
        bundle: directory of the bundle it will run with; by default the one that
            ``build_target`` built here for the platform, if there is one. Android needs one.

    Raises:
        ModelError, UnsupportedOp, CompileError, MismatchError: see :mod:`adt.errors`.
    """
    from adt.model.compile import compile_model, package_name

    resolved = load_settings(
        {
            "build.platform": platform,
            "build.ndk": ndk,
            "build.api_level": api_level,
            "compile.target": target,
            "compile.shapes": tuple(shapes) if shapes else None,
            "compile.opt_level": opt_level,
        }
    ).settings
    chosen = platform_named(resolved.build.platform)
    linked = load_bundle(bundle) if bundle else (find_bundle(resolved) if chosen.android else None)
    return compile_model(
        model,
        out or Path(f"{package_name(model)}-{chosen.name}"),
        platform=chosen,
        settings=resolved,
        ndk=find_ndk(resolved.build.ndk) if chosen.android else None,
        bundle=linked,
    )


def doctor(
    *areas: Area | str,
    fix: bool = False,
    serial: str | None = None,
    ndk: str | None = None,
    package: Path | None = None,
    bundle: Path | None = None,
    on_check: Callable[[Check], None] = lambda _: None,
    on_repair: Callable[[Repair], None] = lambda _: None,
) -> Diagnosis:
    """Look at this machine, the NDK, the devices and a package: what was found, and what mends it.

    Args:
        areas: ``host``, ``ndk``, ``device``, ``rpc``, ``package``; everything when none is named.
        fix: mend what can be mended safely, then look again.
        on_check: called with each check as it comes.
        on_repair: called after each repair.

    Raises:
        ConfigError: an area that is none. A failed check does not raise: look at ``result.passed``.
    """
    from adt.checkup.check import Area
    from adt.checkup.diagnose import diagnose
    from adt.checkup.scope import make_scope

    for area in areas:
        if area not in list(Area):
            raise ConfigError(f"the doctor has no area {area!r}", remedy=f"Choose of: {', '.join(Area)}.")
    scope = make_scope(
        {"build.ndk": ndk, "device.serial": serial},
        os.environ,
        areas=tuple(map(Area, areas)),
        package=package,
        bundle=bundle,
    )
    return diagnose(scope, fix=fix, on_check=on_check, on_repair=on_repair)


def elf(
    *paths: Path,
    platform: str | None = None,
    api_level: int | None = None,
    ndk: str | None = None,
    bundle: Path | None = None,
) -> ElfReport:
    """Audit ELF files, and those in directories, bundles, packages and archives: would they load?

    Args:
        platform: what to judge them for; by default what the bundle or package among *paths*,
            or *bundle*, was made for, else what each file says of itself.
        api_level: Android API level to judge at; by default the bundle's, else each file's own.
        ndk: checks the system's symbols; by default the one that Android tools would find, if any.
        bundle: what will be on the device too.

    Raises:
        PackageError: there is nothing to audit. A file that would not load does not raise:
            look at ``report.verdict``.
    """
    from adt.target.audit.request import audit_paths

    resolved = load_settings({"build.ndk": ndk}).settings
    return audit_paths(paths, platform=platform, api_level=api_level, settings=resolved.build, bundle=bundle)


def devices() -> tuple[DeviceInfo, ...]:
    """The devices that the adb server sees."""
    return selection.listing()


def emulator_start(
    name: str = "default",
    *,
    port: int | None = None,
    rootfs: Path | None = None,
    data_size: str | None = None,
) -> EmulatorInfo:
    """Start the virtual device *name* (an arm64 Linux behind real ADB) and connect adb to it.

    Raises:
        EmulatorError: this machine cannot run one; the message says what to install or switch on.
    """
    info = emulator.start(name, port=port, rootfs=rootfs, data_size=data_size)
    selection.connect(info.serial)
    return info


def emulator_stop(name: str = "default") -> EmulatorInfo:
    """Stop the virtual device *name* and disconnect adb from it.

    Raises:
        EmulatorError: there is none of that name.
    """
    info = emulator.stop(name)
    selection.disconnect(info.serial)
    return info


def emulator_list() -> tuple[EmulatorInfo, ...]:
    """Every virtual device on this machine."""
    return emulator.listing()


@dataclass(frozen=True)
class DeployResult:
    """A package and a bundle on a device."""

    serial: str
    package: ModelPackage
    bundle: TargetBundle
    report: DeployReport


def deploy(package: Path, *, serial: str | None = None, bundle: Path | None = None) -> DeployResult:
    """Send what is missing of *package* and its bundle to the device; a second time sends nothing.

    Raises:
        MismatchError: package, bundle and device do not fit each other.
        NoDevice, AmbiguousDevice, DeviceNotReady, DeviceError, DeviceFull: see :mod:`adt.errors`.
    """
    resolved = load_settings({"device.serial": serial}).settings
    opened = load_package(package)
    device = selection.select(resolved.device.serial or None)
    return _deploy(device, opened, _bundle_for(opened, bundle))


def _bundle_for(package: ModelPackage, explicit: Path | None) -> TargetBundle:
    """The bundle to run *package* with: *explicit*, or the one built here for its platform."""
    if explicit:
        return load_bundle(explicit)
    platform = package.manifest.target.platform
    present = load_settings().settings
    if platform_named(present.build.platform).name != platform:  # a variant of the same platform stays
        present = load_settings({"build.platform": platform}).settings
    found = find_bundle(present)
    if found is None:
        raise MismatchError(
            f"no bundle for {platform} was built here with the present settings",
            remedy=f"adt build-target --for {platform}, or pass --bundle DIR",
        )
    return found


def _deploy(device: Device, package: ModelPackage, bundle: TargetBundle) -> DeployResult:
    report = deploying.deploy(device, bundle, package)
    return DeployResult(device.serial, package, bundle, report)


def run(
    package: Path,
    *,
    serial: str | None = None,
    bundle: Path | None = None,
    inputs: Mapping[str, Array] | None = None,
    seed: int | None = None,
    entry: str = "main",
    run_count: int = 1,
    dry_run: int = 0,
    timeout: float | None = None,
) -> RunResult:
    """Run the package on the device and return its outputs.

    Args:
        inputs: name to array; made up from *seed* when None.
        run_count: timed runs; dry_run: untimed ones before them.

    Raises:
        RunError, InputError: the runner refused or failed; its own message is passed on.
    """
    resolved = load_settings(
        {"device.serial": serial, "verify.seed": seed, "device.timeout": timeout}
    ).settings
    opened = load_package(package)
    device = selection.select(resolved.device.serial or None)
    deployed = _deploy(device, opened, _bundle_for(opened, bundle))
    return run_on_device(
        device,
        deployed.report.deployment,
        inputs=inputs,
        seed=resolved.verify.seed,
        entry=entry,
        run_count=run_count,
        dry_run=dry_run,
        device_kind=opened.manifest.target.device,
        timeout=resolved.device.timeout,
    )


@dataclass(frozen=True)
class VerifyResult:
    """A device's outputs against onnxruntime on this machine."""

    serial: str
    verification: Verification
    outputs: Mapping[str, Array]
    """What the device gave, by name."""
    virtual: bool
    """The device was a virtual one: right or wrong counts, time does not."""


def verify(
    package: Path,
    *,
    serial: str | None = None,
    bundle: Path | None = None,
    model: Path | None = None,
    inputs: Mapping[str, Array] | None = None,
    seed: int | None = None,
    max_abs: float | None = None,
    max_rel: float | None = None,
    timeout: float | None = None,
) -> VerifyResult:
    """Run the package on the device and the source model in onnxruntime, on the same inputs, and compare.

    Args:
        model: the source model; by default the copy that compiling kept in the cache.
        inputs: name to array; made up from *seed* when None.

    Raises:
        RunError, ModelError, …: see :mod:`adt.errors`. A difference over the tolerance does
            not raise: look at ``result.verification.passed``.
    """
    resolved = load_settings(
        {
            "device.serial": serial,
            "verify.seed": seed,
            "verify.max_abs": max_abs,
            "verify.max_rel": max_rel,
            "device.timeout": timeout,
        }
    ).settings
    opened = load_package(package)
    device = selection.select(resolved.device.serial or None)
    deployed = _deploy(device, opened, _bundle_for(opened, bundle))
    return _verify(device, deployed, resolved, store.source_model(opened, model), inputs)


def _verify(
    device: Device,
    deployed: DeployResult,
    resolved: Settings,
    model: Path,
    inputs: Mapping[str, Array] | None,
) -> VerifyResult:
    from adt.bench.random_inputs import random_inputs
    from adt.bench.reference import run_reference

    entry = deployed.package.manifest.entry()
    given = dict(inputs) if inputs is not None else random_inputs(entry.inputs, resolved.verify.seed)
    ran = run_on_device(
        device,
        deployed.report.deployment,
        inputs=given,
        seed=resolved.verify.seed,
        entry=entry.name,
        run_count=1,
        dry_run=0,
        device_kind=deployed.package.manifest.target.device,
        timeout=resolved.device.timeout,
    )
    verification = compare(ran.outputs, run_reference(model, given), resolved.verify)
    return VerifyResult(device.serial, verification, ran.outputs, device.facts.virtual)


@dataclass(frozen=True)
class Step:
    """One finished step of :func:`up`."""

    name: str
    note: str
    """What it did, or that it reused what was there."""
    seconds: float


@dataclass(frozen=True)
class UpPlan:
    """What :func:`up` is going to do, resolved before it does it."""

    model: Path
    inputs: Mapping[str, list[int]]
    """The fixed shape of each input; an open batch dimension is 1 unless ``shapes`` says otherwise."""
    platform: str
    target: str
    device: str
    """Serial of the device; empty: a virtual device will be started."""
    why: str
    """Why this device and this platform."""
    tvm_source: str
    """The TVM source tree that was asked for, or the providers that will be tried."""
    max_abs: float
    max_rel: float


@dataclass(frozen=True)
class UpResult:
    """What :func:`up` did."""

    plan: UpPlan
    steps: tuple[Step, ...]
    package: ModelPackage
    verified: VerifyResult


def up(
    model: Path,
    *,
    platform: str | None = None,
    serial: str | None = None,
    target: str | None = None,
    shapes: Sequence[str] | None = None,
    ndk: str | None = None,
    inputs: Mapping[str, Array] | None = None,
    seed: int | None = None,
    on_plan: Callable[[UpPlan], None] = lambda _: None,
    on_step: Callable[[Step], None] = lambda _: None,
    progress: Progress = _quiet,
) -> UpResult:
    """Do all of it: build, compile, find or start a device, deploy, run there, verify.

    Without *serial* and with no device connected, a virtual device is started
    and left running. What was made before is reused.

    Args:
        on_plan: called once with the resolved plan, before anything is made.
        on_step: called after each step.

    Raises:
        Whatever the verbs raise; a difference over the tolerance does not.
    """
    from adt.model.importer import fixed_inputs, import_onnx, parse_shapes, read_onnx

    flags = {
        "build.platform": platform,
        "build.ndk": ndk,
        "device.serial": serial,
        "compile.target": target,
        "compile.shapes": tuple(shapes) if shapes else None,
        "verify.seed": seed,
    }
    given = load_settings(flags).settings
    fixed = fixed_inputs(
        read_onnx(model), parse_shapes(given.compile.shapes)
    )  # fails here, not after a build
    device = _device_for_up(given.device.serial or None)
    found = device.platform if device else VIRTUAL_PLATFORM
    resolved = load_settings(flags | {"build.platform": platform or found}).settings
    if platform_named(resolved.build.platform).name != found:
        raise MismatchError(
            f"{device.serial if device else 'the virtual device'} is {found}, not {resolved.build.platform}",
            remedy="Leave --for out, or choose another device with --serial.",
        )
    on_plan(plan := _up_plan(model, fixed, resolved, device))
    steps: list[Step] = []

    def done(name: str, note: str, began: float) -> None:
        steps.append(Step(name, note, time.monotonic() - began))
        on_step(steps[-1])

    began = time.monotonic()
    tree = find_source(resolved.tvm)
    done("source", f"TVM {tree.version} from {tree.provider}: {tree.why}", began)

    if find_bundle(resolved) is None:
        began = time.monotonic()
        imported = import_onnx(model, parse_shapes(resolved.compile.shapes))
        done(
            "import",
            f"{len(imported.inputs)} inputs, {len(imported.outputs)} outputs: TVM can import it",
            began,
        )

    began = time.monotonic()
    built = build_bundle(resolved, progress=progress)
    what = "reused" if built.reused else f"compiled {built.compiled} translation units"
    done("build-target", f"{what}: {built.bundle.path.name}", began)

    began = time.monotonic()
    package, reused = _package_for_up(model, resolved, built.bundle)
    made = "reused" if reused else f"compiled {package.manifest.total} kernels"
    done("compile", f"{made}: {package.path.name}", began)

    began = time.monotonic()
    if device is None:
        started = emulator_start()
        device = selection.select(started.serial)
        done(
            "emulator", f"started {started.serial}: arm64 Linux behind real ADB, not Android, no speed", began
        )

    began = time.monotonic()
    deployed = _deploy(device, package, built.bundle)
    report = deployed.report
    sent = (
        f"sent {len(report.sent_files)} files, {report.sent_bytes:,} bytes" if report.sent_files else "reused"
    )
    done("deploy", f"{sent}: {device.serial}", began)

    began = time.monotonic()
    verified = _verify(device, deployed, resolved, store.source_model(package), inputs)
    done("verify", "passed" if verified.verification.passed else "FAILED", began)
    return UpResult(plan, tuple(steps), package, verified)


def _up_plan(
    model: Path, fixed: Mapping[str, tuple[int, ...]], resolved: Settings, device: Device | None
) -> UpPlan:
    if device:
        why = f"{device.serial} is connected and is {device.platform}"
    else:
        why = "no device is connected: a virtual device will be started and left running"
    return UpPlan(
        model,
        {name: list(shape) for name, shape in fixed.items()},
        resolved.build.platform,
        resolved.compile.target,
        device.serial if device else "",
        why,
        resolved.tvm.source or resolved.tvm.provider,
        resolved.verify.max_abs,
        resolved.verify.max_rel,
    )


def _device_for_up(serial: str | None) -> Device | None:
    """The device that was asked for or is connected; None when there is none at all."""
    if serial is None and not os.environ.get("ANDROID_SERIAL") and not selection.listing():
        return None
    return selection.select(serial)


def _package_for_up(model: Path, resolved: Settings, bundle: TargetBundle) -> tuple[ModelPackage, bool]:
    """The package of *model* in the cache, compiled when it is not there."""
    from adt.model.compile import compile_model, package_name

    platform = platform_named(resolved.build.platform)
    identity = json.dumps(
        [
            adt.__version__,
            store.model_sha256(model),
            platform.name,
            resolved.build.api_level,
            [resolved.compile.target, resolved.compile.shapes, resolved.compile.opt_level],
            {name: facts.sha256 for name, facts in bundle.manifest.files.items()},
        ]
    )
    name = f"packages/{package_name(model)}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"
    if path := cache.lookup(name):
        return load_package(path), True
    ndk = find_ndk(resolved.build.ndk) if platform.android else None

    def make(directory: Path) -> None:
        compile_model(model, directory, platform=platform, settings=resolved, ndk=ndk, bundle=bundle)

    path, reused = cache.entry(name, make)
    try:
        return load_package(path), reused
    except PackageError as why:
        raise PackageError(why.what, remedy=f"Remove {path} and run this again.") from why
