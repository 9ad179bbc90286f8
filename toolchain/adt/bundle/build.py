"""Cross-build TVM's runtime and adt's runner with CMake, and pack them as a TargetBundle."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import adt
from adt.bundle.bundle import (
    ACTIVITY,
    MANIFEST,
    BundleFile,
    BundleManifest,
    BundleOptions,
    BundleTvm,
    TargetBundle,
    load_bundle,
)
from adt.bundle.libraries import LIBRARIES
from adt.bundle.plan import BuildPlan
from adt.errors import AdtError, BuildError
from adt.host import cache, manifest
from adt.host.directories import resource
from adt.host.disk import disk_errors
from adt.host.document import form
from adt.host.process import cmake, ninja, run
from adt.host.sources import TvmSource

BUILD_INFO = "adt_build_info.json"
"""Description that the superbuild writes, so that nothing cross-built must run to be described."""
KEPT = {
    "symbols": "symbols",
    "include": "headers",
    "lib/cmake": "build_files",
    "lib/pkgconfig": "build_files",
    "licenses": "licenses",
}
"""Directories of what stays on this machine, and the fields of the manifest that list their files."""


def pack_bundle(plan: BuildPlan, sources: str) -> TargetBundle:
    """Install, strip and describe what *sources* (digest) became as a bundle, which replaces an older one."""
    with cache.fresh_dir(plan.bundle_dir) as directory:
        command: list[str | Path] = [cmake().path, "--install", plan.build_dir, "--prefix", directory]
        what = "installing the build's results failed"
        run([*command, "--strip", "--component", "adt"], error=BuildError, what=what)
        described = _describe(plan, directory, sources)
        manifest.write(described, directory / MANIFEST)
    return TargetBundle(plan.bundle_dir, described)


def _describe(plan: BuildPlan, directory: Path, sources: str) -> BundleManifest:
    from adt.bundle.audit.auditing import audit_made  # the whole ELF audit: only when there is work

    info: dict[str, Any] = json.loads((plan.build_dir / BUILD_INFO).read_text())
    for name in info["files"]:
        if not (directory / name).is_file():
            raise BuildError(f"the build did not give {name}", remedy="Report this with the -v output.")
    report = audit_made(
        directory, plan.platform, error=BuildError, api_level=plan.options.api_level, ndk=plan.ndk
    )
    audited = {file.name: file.facts for file in report.files if file.facts}
    kinds: dict[str, dict[str, BundleFile]] = {kind: {} for kind in (*KEPT.values(), "app_files", "files")}
    for path in sorted(p for p in directory.rglob("*") if p.is_file()):
        name = path.relative_to(directory).as_posix()
        facts = audited.get(name)
        kind = next((kind for top, kind in KEPT.items() if name.startswith(f"{top}/")), "")
        if not kind and facts is None:
            raise BuildError(f"the build gave {name}, which is no ELF file", remedy="Report this.")
        needed = facts.needed if facts and not kind else ()
        kind = kind or ("app_files" if name == ACTIVITY else "files")
        kinds[kind][name] = BundleFile(cache.file_sha256(path), path.stat().st_size, needed)
    sent = kinds["files"].keys() | kinds["app_files"].keys()
    return BundleManifest(
        adt_version=adt.__version__,
        preset=plan.preset,
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
            rpc=info["rpc"],
            alignment=info["alignment"],
            build_type=info["build_type"],
            clml_sdk=info["clml_sdk"],
            opencl_linked=info["opencl_linked"],
            **{name: info[name] for name in LIBRARIES},
            cuda=info["cuda"],
        ),
        page_alignment=min(facts.page_alignment for name, facts in audited.items() if name in sent),
        functions=registered_functions(plan.build_dir),
        files=kinds["files"],
        symbols=kinds["symbols"],
        headers=kinds["headers"],
        build_files=kinds["build_files"],
        app_files=kinds["app_files"],
        licenses=kinds["licenses"],
        sources=sources,
    )


_REGISTERED = re.compile(r'\.def(?:_packed|_method)?\(\s*((?:"[^"]*"\s*)+)')


def registered_functions(build_dir: Path) -> tuple[str, ...]:
    """Return the dotted names of the functions that the libraries in *build_dir* register, sorted.

    They are read from the sources that were compiled: what was cross-built does not run here to be asked, and
    a compiler keeps some names only as part of another text, or as instructions.
    """
    listing = run(
        [ninja().path, "-C", build_dir, "-t", "compdb"],
        error=BuildError,
        what=f"asking Ninja what was compiled in {build_dir} failed",
    )
    names: set[str] = set()
    for command in json.loads(listing.stdout):
        directory = Path(command["directory"])
        if not (directory / command["output"]).is_file():
            continue
        for file in sources_of(directory / command["file"]):
            program = "apps" in file.parts  # tvm_rpc, whose own functions no library has
            if file.suffix == ".cc" and not program:
                text = file.read_text(errors="replace")
                names |= {"".join(re.findall('"([^"]*)"', match[1])) for match in _REGISTERED.finditer(text)}
    return tuple(sorted(name for name in names if "." in name))


def sources_of(file: Path) -> list[Path]:
    """Return the sources that CMake joined in *file* (UNITY_BUILD), else *file* alone."""
    if (file.parent.name, file.suffix) != ("Unity", ".cxx"):
        return [file]
    return [Path(name) for name in re.findall(r'^#include "(.+)"$', file.read_text(), re.MULTILINE)]


log = logging.getLogger("adt.build")

CONFIGURED = "adt_configured.json"
"""The configure command and the preset files it read; another one means: configure again."""

UP_TO_DATE = "nothing: the build and the bundle are up to date"
ELSEWHERE = "nothing: the bundle is up to date; what was built here last had other paths or options"


@dataclass(frozen=True)
class BuildResult:
    """Result of a build."""

    bundle: TargetBundle = field(metadata=form(convert=lambda bundle: bundle.manifest))
    source: TvmSource
    reused: bool
    """Nothing had to be compiled, linked or packed."""
    compiled: int
    """Translation units compiled this time."""
    seconds: float
    build_dir: Path


def build_bundle(plan: BuildPlan, *, progress: Callable[[str], None] = lambda _: None) -> BuildResult:
    """Build what is missing and return the bundle; *progress* gets short lines while CMake and Ninja run."""
    began = time.monotonic()
    log.debug("TVM source: %s (%s: %s)", plan.source.path, plan.source.provider, plan.source.reason)
    if plan.clml:
        log.info("CLML SDK %s, version %s (from %s)", plan.clml.path, plan.clml.version, plan.clml.origin)
    with cache.lock(plan.build_dir), disk_errors(f"building in {plan.build_dir}", plan.build_dir):
        sources = _stage(plan.presets.parent)
        bundle = _from_elsewhere(plan, sources)
        if bundle is None:
            _configure(plan, progress)
            with ThreadPoolExecutor(1) as beside:  # Ninja's look around takes as long as reading it
                present = beside.submit(_present, plan)
                compiled = _compile(plan, progress)
            bundle = present.result()
            if bundle is None or not _current(plan, bundle, sources):
                packed = pack_bundle(plan, sources)
                seconds = time.monotonic() - began
                return BuildResult(packed, plan.source, False, compiled, seconds, plan.build_dir)
        os.utime(bundle.path / MANIFEST)  # the newest one is what every verb takes
    return BuildResult(bundle, plan.source, True, 0, time.monotonic() - began, plan.build_dir)


def _sources() -> dict[str, bytes]:
    """Read the files of cmake_presets/ and cpp_runner/ that a build reads, by path below both."""
    tops = (resource("cmake_presets"), resource("cpp_runner"))
    return {f"{top.name}/{name}": (top / name).read_bytes() for top in tops for name in _names(top)}


def _names(top: Path) -> list[str]:
    """List the files below *top*, relative to it, but for what is built there and apart."""
    names = []
    for directory, below, files in os.walk(top):
        below[:] = {*below} - {"build", "java", "plugins", "tests", "__pycache__"}
        names += [f"{directory}/{file}".removeprefix(f"{top}/") for file in files]
    return names


def _digest(sources: dict[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name, contents in sorted(sources.items()):
        digest.update(f"{name} {len(contents)}\n".encode() + contents)
    return digest.hexdigest()


def _stage(destination: Path) -> str:
    """Copy the sources to *destination*, touching only what differs; return their digest.

    A build from where adt is installed would start afresh with each virtual environment.
    """
    sources, copies = _sources(), {*_names(destination)}
    for name, contents in sources.items():
        copy = destination / name
        if name not in copies or copy.read_bytes() != contents:
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(contents)
    for name in copies - {*sources}:
        (destination / name).unlink()
    return _digest(sources)


def _from_elsewhere(plan: BuildPlan, sources: str) -> TargetBundle | None:
    """Load the bundle, if it is whole and of the same *sources*, where another build was the last one.

    Ninja would compile everything again after the environment or the cache was copied or moved, and the bytes
    would be the same. Bundles with XNNPACK and without share a build directory.
    """
    try:
        recorded = json.loads((plan.build_dir / CONFIGURED).read_text()).get("command")
    except (OSError, ValueError):
        recorded = None
    if recorded == _configuration(plan)[1]["command"]:
        return None
    bundle = _present(plan)
    return bundle if bundle and bundle.manifest.sources == sources else None


def _configuration(plan: BuildPlan) -> tuple[list[str | Path], dict[str, object]]:
    """Return the configure command, and what must be unchanged for it not to run again."""
    read = [plan.presets / "CMakePresets.json", *sorted((plan.presets / "toolchains").glob("*.cmake"))]
    command: list[str | Path] = [cmake().path, "--preset", plan.preset, "-B", plan.build_dir]
    command += [*plan.definitions, f"-DCMAKE_MAKE_PROGRAM={ninja().path}"]
    return command, {
        "command": list(map(str, command)),
        "files": {file.name: cache.file_sha256(file) for file in read},
        "identity": dict(plan.identity),
    }


def _stale(plan: BuildPlan, settings: dict[str, object]) -> str:
    """Return why CMake must configure (again); empty when it need not."""
    stamp = plan.build_dir / CONFIGURED
    if not all((plan.build_dir / name).is_file() for name in (CONFIGURED, "build.ninja", "CMakeCache.txt")):
        return _difference_to_last(plan)
    try:
        recorded = json.loads(stamp.read_text())
    except ValueError:
        return f"{stamp} is damaged"
    if changed := [key for key in settings if recorded.get(key) != settings[key]]:
        return f"changed: {', '.join(changed)}"
    variables = (plan.build_dir / "CMakeCache.txt").read_text()
    compiler_cache = re.search(r"^ADT_COMPILER_CACHE_PROGRAM:\w+=(/.*)$", variables, re.MULTILINE)
    return f"{compiler_cache[1]} is gone" if compiler_cache and not Path(compiler_cache[1]).exists() else ""


def _difference_to_last(plan: BuildPlan) -> str:
    """Describe what distinguishes this build from the last one of the same platform."""
    stamps = plan.build_dir.parent.glob(f"{plan.platform.name}-*/{CONFIGURED}")
    newest = max(stamps, key=lambda stamp: stamp.stat().st_mtime_ns, default=None)
    if newest is None:
        return f"nothing was built for {plan.platform.name} before"
    try:
        before = json.loads(newest.read_text())["identity"]
    except (ValueError, KeyError):
        return "the last build here is damaged"
    changed = [
        f"{name}: {before.get(name, 'unset')} → {plan.identity.get(name, 'unset')}"
        for name in sorted({*before, *plan.identity})
        if before.get(name) != plan.identity.get(name)
    ]
    return "; ".join(changed) or "the last configure step did not finish"


def explain_build(plan: BuildPlan) -> tuple[str, ...]:
    """Explain what :func:`build_bundle` would do now, and why, a sentence each; compiles nothing."""
    if not plan.build_dir.is_dir():
        bundle = _present(plan)
        if bundle is not None and bundle.manifest.sources == _digest(_sources()):
            return (ELSEWHERE,)
        return _configure_first(_difference_to_last(plan))
    with cache.lock(plan.build_dir):
        sources = _stage(plan.presets.parent)
        if _from_elsewhere(plan, sources):
            return (ELSEWHERE,)
        reason = _stale(plan, _configuration(plan)[1])
        if reason:
            return _configure_first(reason)
        if changed := _newer_cmake_files(plan):
            return (
                f"configure again ({', '.join(changed)} changed), and compile what follows",
                "pack the bundle",
            )
        # Ninja stops a dry run at the file lists that CMake checks first; under another name it goes on.
        copy = plan.build_dir / "adt_explain.ninja"
        shutil.copyfile(plan.build_dir / "build.ninja", copy)
        dry = run(
            [ninja().path, "-C", plan.build_dir, "-f", copy.name, "-n", "adt_bundle"],
            error=BuildError,
            what="asking Ninja failed",
        )
        copy.unlink()
        steps = re.findall(r"^\[\d+/\d+\] (.*)", dry.stdout, re.MULTILINE)
        if steps:
            return (f"run {len(steps)} build steps, first: {steps[0]}", "pack the bundle")
        bundle = _present(plan)
        if bundle is None or not _current(plan, bundle, sources):
            return ("compile nothing", "pack the bundle (it is absent, damaged or older than the build)")
    return (UP_TO_DATE,)


def _configure_first(reason: str) -> tuple[str, ...]:
    return (f"configure, and compile what follows from it ({reason})", "pack the bundle")


def _newer_cmake_files(plan: BuildPlan) -> tuple[str, ...]:
    """List CMake's own files that changed since it configured."""
    since = (plan.build_dir / "build.ninja").stat().st_mtime_ns
    source = plan.presets.parent
    files = [*source.rglob("CMakeLists.txt"), *source.rglob("*.cmake")]
    return tuple(sorted(f.relative_to(source).as_posix() for f in files if f.stat().st_mtime_ns > since))


def _configure(plan: BuildPlan, progress: Callable[[str], None]) -> None:
    """Run CMake's configure step unless the same command on the same preset files ran here before."""
    command, settings = _configuration(plan)
    reason = _stale(plan, settings)
    if not reason:
        return
    log.debug("configuring: %s", reason)
    stamp = plan.build_dir / CONFIGURED
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
    stamp.write_text(json.dumps(settings, indent=1))


def _compile(plan: BuildPlan, progress: Callable[[str], None]) -> int:
    """Run Ninja; return how many translation units were compiled."""
    jobs = [f"-j{plan.options.jobs}"] if plan.options.jobs else []
    done = run(
        [ninja().path, "-C", plan.build_dir, *jobs],
        error=BuildError,
        what=f"building for {plan.platform.name} failed",
        remedy=f"The compiler's message is above; the whole log is {plan.build_dir / 'build.log'}."
        f" If nothing of yours explains it, remove {plan.build_dir} to build afresh.",
        log_file=plan.build_dir / "build.log",
        on_line=progress_of_ninja(progress),
    )
    progress("")
    return len(re.findall(r"\] Building C(?:XX)? object", done.stdout))


def progress_of_ninja(progress: Callable[[str], None]) -> Callable[[str], None]:
    """Return what takes Ninja's lines and shows the steps done, and the time left once a tenth is done."""
    began = time.monotonic()
    progress("compiling")

    def on_line(line: str) -> None:
        if (step := re.match(r"\[(\d+)/(\d+)\] .*?([^/]*)$", line)) and (done := int(step[1])):
            steps = int(step[2])
            left = (time.monotonic() - began) / (done + 1) * (steps - done)  # others are half done
            estimate = f", about {left:.0f} s left" if done * 10 >= steps else ""
            progress(f"{done} of {steps}{estimate}: {step[3]}")

    return on_line


def _present(plan: BuildPlan) -> TargetBundle | None:
    """Load the bundle that is there, if it is whole and says what an older adt did not record."""
    if not (plan.bundle_dir / MANIFEST).is_file():
        return None
    try:
        bundle = load_bundle(plan.bundle_dir)
        return bundle if bundle.manifest.functions else None
    except AdtError as error:
        log.warning("%s; packing it again", error.what)
        return None


def _current(plan: BuildPlan, bundle: TargetBundle, sources: str) -> bool:
    """Return True if *bundle* has these *sources*, and was packed after its files were last built."""
    if bundle.manifest.sources != sources:
        return False
    packed = (bundle.path / MANIFEST).stat().st_mtime_ns
    built = [file for name in bundle.manifest.all_files if (file := plan.build_dir / name).is_file()]
    return all(file.stat().st_mtime_ns <= packed for file in built)
