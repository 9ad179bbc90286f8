"""Cross-build TVM's runtime and adt's runner, and pack them as a TargetBundle.

CMake presets and one superbuild do the work (``cmake_presets/``); this module
decides where, whether anything must be done at all, and checks what came out.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import adt
from adt.config.settings import BuildSettings, Settings
from adt.errors import AdtError, BuildError, PackageError
from adt.host import cache, manifest
from adt.host.elf import read_elf
from adt.host.ndk import Ndk, find_ndk
from adt.host.process import run
from adt.host.resources import resource
from adt.host.tools import cmake, find_tool, ninja
from adt.host.tvm_source import TvmSource, find_source
from adt.target.bundle import (
    MANIFEST,
    BundleFile,
    BundleManifest,
    BundleOptions,
    BundleTvm,
    TargetBundle,
    load_bundle,
)
from adt.target.platforms import Platform, platform_named

log = logging.getLogger("adt.build")

BUILD_INFO = "adt_build_info.json"
"""What the superbuild says of itself, so that nothing cross-built must run to be described."""
CONFIGURED = "adt_configured.json"
"""The configure command and the preset files it read; another one means: configure again."""
MINIMUM_PAGE = {"AARCH64": 16384}
"""ELF machine to the smallest p_align that a LOAD segment may have."""


@dataclass(frozen=True)
class BuildPlan:
    """Everything a build depends on, before anything runs."""

    platform: Platform
    source: TvmSource
    ndk: Ndk | None
    options: BuildSettings
    definitions: tuple[str, ...]
    """``-D`` arguments on top of the preset."""
    build_dir: Path
    bundle_dir: Path

    @property
    def presets(self) -> Path:
        """The build's own copy of cmake_presets/, with cpp_runner/ beside it."""
        return self.build_dir / "source/cmake_presets"


@dataclass(frozen=True)
class BuildResult:
    """What a build gave."""

    bundle: TargetBundle
    source: TvmSource
    reused: bool
    """Nothing had to be compiled, linked or packed."""
    compiled: int
    """Translation units compiled this time."""
    seconds: float
    build_dir: Path


def plan_build(settings: Settings) -> BuildPlan:
    """Find the tools and the source, and name the directories; builds nothing.

    Raises:
        ToolNotFound, NdkError, SourceError: something that the build needs is missing.
    """
    platform = platform_named(settings.build.platform)
    ndk = find_ndk(settings.build.ndk) if platform.android else None
    if ndk:
        compiler = ndk.compiler(platform.ndk_triple, settings.build.api_level)
    else:
        compiler = find_tool(platform.compiler, remedy=f"apt-get install {platform.packages}").path
    source = find_source(settings.tvm)
    definitions = _definitions(settings.build, platform, source, ndk)
    stat = compiler.stat()
    identity = json.dumps(
        {
            "definitions": definitions,
            "source": source.digest,
            "compiler": [str(compiler), stat.st_size, stat.st_mtime_ns],
            "ndk": ndk.revision if ndk else "",
        }
    )
    key = f"{platform.name}-{hashlib.sha256(identity.encode()).hexdigest()[:12]}"
    root = cache.cache_dir()
    return BuildPlan(
        platform,
        source,
        ndk,
        settings.build,
        definitions,
        build_dir=root / "build" / key,
        bundle_dir=root / "bundles" / key,
    )


def _definitions(
    options: BuildSettings, platform: Platform, source: TvmSource, ndk: Ndk | None
) -> tuple[str, ...]:
    values = {
        "ADT_TVM_SOURCE": str(source.path),
        "USE_OPENCL": "ON" if options.opencl else "OFF",
        "USE_CPP_RPC": "ON" if options.rpc else "OFF",
        "USE_KALLOC_ALIGNMENT": str(options.alignment or platform.alignment),
        "CMAKE_BUILD_TYPE": options.build_type,
    }
    if ndk:
        values |= {"ADT_NDK": str(ndk.path), "ANDROID_PLATFORM": f"android-{options.api_level}"}
    return tuple(f"-D{name}={value}" for name, value in values.items())


def find_bundle(settings: Settings) -> TargetBundle | None:
    """The bundle that :func:`build_bundle` would return, if it was built before; builds nothing."""
    try:
        return load_bundle(plan_build(settings).bundle_dir)
    except PackageError:
        return None


def build_bundle(settings: Settings, *, progress: Callable[[str], None] = lambda _: None) -> BuildResult:
    """Build what is missing and return the bundle.

    Args:
        progress: called with one short line at a time while CMake and Ninja run.

    Raises:
        BuildError: CMake or Ninja failed, or a result would not load on the device.
    """
    began = time.monotonic()
    plan = plan_build(settings)
    log.debug("TVM source: %s (%s: %s)", plan.source.path, plan.source.provider, plan.source.why)
    with cache.lock(plan.build_dir), cache.disk_errors(f"building in {plan.build_dir}"):
        _stage(plan.presets.parent)
        _configure(plan, progress)
        compiled, idle = _compile(plan, progress)
        bundle = _existing(plan) if idle else None
        if bundle is None:
            packed = _pack(plan)
            return BuildResult(packed, plan.source, False, compiled, time.monotonic() - began, plan.build_dir)
    return BuildResult(bundle, plan.source, True, 0, time.monotonic() - began, plan.build_dir)


def _stage(destination: Path) -> None:
    """Copy cmake_presets/ and cpp_runner/ to *destination*, touching only what differs.

    A build that read them where adt is installed would start afresh with each
    virtual environment, and compile the runner again after each `pip install`.
    """
    wanted = {
        file.relative_to(top.parent): file
        for top in (resource("cmake_presets"), resource("cpp_runner"))
        for file in top.rglob("*")
        if file.is_file() and not {"build", "__pycache__"} & set(file.relative_to(top).parts)
    }
    for name, file in wanted.items():
        copy, contents = destination / name, file.read_bytes()
        if not copy.is_file() or copy.read_bytes() != contents:
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(contents)
    for copy in [file for file in destination.rglob("*") if file.is_file()]:
        if copy.relative_to(destination) not in wanted:
            copy.unlink()


def _configure(plan: BuildPlan, progress: Callable[[str], None]) -> None:
    """Run CMake's configure step unless the same command on the same preset files ran here before."""
    read = [plan.presets / "CMakePresets.json", *sorted((plan.presets / "toolchains").glob("*.cmake"))]
    command: list[str | Path] = [
        cmake().path,
        "--preset",
        plan.platform.name,
        "-B",
        plan.build_dir,
        *plan.definitions,
    ]
    command.append(f"-DCMAKE_MAKE_PROGRAM={ninja().path}")
    wanted = {
        "command": list(map(str, command)),
        "files": {file.name: cache.file_sha256(file) for file in read},
    }
    stamp = plan.build_dir / CONFIGURED
    if stamp.is_file() and (plan.build_dir / "build.ninja").is_file():
        try:
            if json.loads(stamp.read_text()) == wanted:
                return
        except ValueError:
            log.warning("%s is damaged; configuring again", stamp)
    stamp.unlink(missing_ok=True)
    (plan.build_dir / "CMakeCache.txt").unlink(missing_ok=True)
    plan.build_dir.mkdir(parents=True, exist_ok=True)
    log.info("building TVM's runtime for %s; the first time takes some minutes", plan.platform.name)
    progress("configuring")
    run(
        command,
        cwd=plan.presets,
        error=BuildError,
        what=f"configuring for {plan.platform.name} failed",
        remedy=f"CMake's message is above; the whole log is {plan.build_dir / 'configure.log'}",
        log_file=plan.build_dir / "configure.log",
    )
    stamp.write_text(json.dumps(wanted, indent=1))


def _compile(plan: BuildPlan, progress: Callable[[str], None]) -> tuple[int, bool]:
    """Run Ninja; return how many translation units were compiled and whether there was nothing to do."""
    jobs = [f"-j{plan.options.jobs}"] if plan.options.jobs else []
    done = run(
        [ninja().path, "-C", plan.build_dir, *jobs],
        error=BuildError,
        what=f"building for {plan.platform.name} failed",
        remedy=f"The compiler's message is above; the whole log is {plan.build_dir / 'build.log'}",
        log_file=plan.build_dir / "build.log",
        on_line=progress,
    )
    compiled = len(re.findall(r"\] Building C(?:XX)? object", done.stdout))
    return compiled, "no work to do" in done.stdout


def _existing(plan: BuildPlan) -> TargetBundle | None:
    if not (plan.bundle_dir / MANIFEST).is_file():
        return None
    try:
        return load_bundle(plan.bundle_dir)
    except AdtError as why:
        log.warning("%s; packing it again", why.what)
        return None


def _pack(plan: BuildPlan) -> TargetBundle:
    """Install, strip and describe the build's results as a bundle, which replaces an older one whole."""
    with cache.fresh_dir(plan.bundle_dir) as directory:
        run(
            [
                cmake().path,
                "--install",
                plan.build_dir,
                "--strip",
                "--component",
                "adt",
                "--prefix",
                directory,
            ],
            error=BuildError,
            what="installing the build's results failed",
        )
        described = _describe(plan, directory)
        manifest.write(described, directory / MANIFEST)
    return TargetBundle(plan.bundle_dir, described)


def _describe(plan: BuildPlan, directory: Path) -> BundleManifest:
    info: dict[str, Any] = json.loads((plan.build_dir / BUILD_INFO).read_text())
    files: dict[str, BundleFile] = {}
    pages: list[int] = []
    for name in info["files"]:
        if not (directory / name).is_file():
            raise BuildError(f"the build did not give {name}", remedy="Report this with the -v output.")
    for path in sorted(p for p in directory.rglob("*") if p.is_file()):
        name = path.relative_to(directory).as_posix()
        facts = read_elf(path)
        smallest = MINIMUM_PAGE.get(facts.machine, 1)
        if facts.machine != plan.platform.machine or facts.page_alignment < smallest:
            raise BuildError(
                f"{name} would not load: machine {facts.machine} (wanted {plan.platform.machine}), "
                f"pages of {facts.page_alignment} bytes (wanted at least {smallest})",
                remedy="Check the compiler that was used: adt build-target -v",
            )
        if any(part.startswith("/") for part in facts.runpath.split(":") if part):
            raise BuildError(f"{name} has a RUNPATH of this machine: {facts.runpath}", remedy="Report this.")
        pages.append(facts.page_alignment)
        files[name] = BundleFile(cache.file_sha256(path), path.stat().st_size, facts.needed)
    return BundleManifest(
        adt_version=adt.__version__,
        preset=plan.platform.name,
        platform=plan.platform.name,
        abi=plan.platform.abi,
        triple=info["compiler"]["triple"],
        machine=plan.platform.machine,
        api_level=plan.options.api_level if plan.platform.android else None,
        ndk_revision=plan.ndk.revision if plan.ndk else None,
        compiler=info["compiler"]["banner"],
        tvm=BundleTvm(info["tvm_version"], info["ffi_version"], plan.source.digest, plan.source.provider),
        context_symbols=tuple(info["context_symbols"]),
        options=BundleOptions(
            opencl=info["opencl"],
            clml=info["clml"],
            rpc=info["rpc"],
            alignment=info["alignment"],
            build_type=info["build_type"],
        ),
        page_alignment=min(pages),
        files=files,
    )


def export_bundle(bundle: TargetBundle, out: Path) -> TargetBundle:
    """Copy *bundle* to the directory *out*, which appears complete or not at all.

    Raises:
        PackageError: *out* exists and is no bundle.
    """
    if out.exists() and not (out / MANIFEST).is_file() and any(out.iterdir()):
        raise PackageError(
            f"{out} exists and is not a bundle; it was left alone",
            remedy="Choose another -o directory, or remove this one.",
        )
    with cache.fresh_dir(out) as directory:
        shutil.copytree(bundle.path, directory, dirs_exist_ok=True)
    return TargetBundle(out, bundle.manifest)
