"""This machine: the Python that runs adt, TVM in it, the programs that adt drives, and the virtual device."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import adt
from adt.bundle.platforms import PLATFORMS, Platform, platform_named
from adt.checkup import storage
from adt.checkup.check import Action, Check, Fix, Question, Scope, Status, failed, ok, warning
from adt.compiler.cuda_code import find_compiler
from adt.errors import AdtError, SdkError, ToolNotFound
from adt.host import process
from adt.host.directories import resource
from adt.host.extras import FFI, OURS, TVM, install_command, install_tvm, wrong_tvm
from adt.host.ndk import find_apk_tools
from adt.host.process import Finished, Tool, Version, parse_version
from adt.virtual import prerequisites, state

OWN_DIRECTORIES = ("cmake_presets", "cpp_runner", "templates")
IMPORT_SECONDS = 120.0
"""Budget for `import tvm` on a slow disk."""
IMPORT = "import json, tvm; print(json.dumps([tvm.__version__, tvm.__file__]))"


def check_adt(missing: tuple[str, ...], package: Path) -> Check:
    """Judge adt's own installation; *missing* are directories that should travel with it."""
    if missing:
        lack = f"{adt.__version__}, but its own {', '.join(missing)} is missing"
        return failed("adt", lack, str(package), "Install adt again.")
    return ok("adt", adt.__version__, str(package))


def check_import(done: Finished) -> Check:
    name = "import tvm"
    if done.returncode != 0:
        last = done.tail(1) or "it says nothing"
        ended = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
        remedy = f"{install_tvm()}   (`{sys.executable} -c 'import tvm'` shows all of the message)"
        return failed(name, f"fails ({ended}): {last}", sys.executable, remedy)
    version, path = json.loads(done.stdout.splitlines()[-1])
    if version != OURS[0]:
        remedy = "Another TVM lies before the installed one: look at PYTHONPATH."
        return warning(name, f"gives TVM {version}, not the installed {OURS[0]}", path, remedy)
    return ok(name, f"works: TVM {version}", str(Path(path).parent))


def _python_questions(scope: Scope) -> Iterator[Question]:
    def own() -> Iterator[Check]:
        missing = []
        for name in OWN_DIRECTORIES:
            try:
                resource(name)
            except FileNotFoundError:
                missing.append(name)
        yield check_adt(tuple(missing), Path(adt.__file__).parent)

    def settings() -> Iterator[Check]:
        if scope.settings_error:
            raise scope.settings_error
        if scope.settings.build.platform:
            platform_named(scope.settings.build.platform)
        yield ok("settings", "can be read", "`adt config` shows each one")

    def tvm() -> Iterator[Check]:
        yield (pair := check_pair())
        if pair.status is Status.FAILED:
            return  # the import says nothing more
        done = process.run([sys.executable, "-P", "-c", IMPORT], timeout=IMPORT_SECONDS, check=False)
        yield check_import(done)

    yield Question("Python", lambda: [ok("Python", shown(sys.version_info[:3]), sys.executable)])
    yield Question("adt", own)
    yield Question("settings", settings)
    yield Question("TVM", tvm)


def check_pair() -> Check:
    """Judge the installed versions of TVM and its FFI."""
    if reason := wrong_tvm():
        return failed("TVM", reason, "installed packages", install_tvm())
    return ok("TVM", f"{TVM} {OURS[0]} with {FFI} {OURS[1]}", "installed packages")


VERSION_SECONDS = 20.0
"""Budget for a program to say its version."""

DEMO_PLATFORM = "linux-aarch64"
"""Platform that `adt up` builds for when there is no phone: its compiler is worth installing unasked."""


@dataclass(frozen=True)
class Required:
    """A program without which nothing is built."""

    name: str
    minimum: Version
    reason: str
    """Reason for the minimum."""
    find: Callable[[], Tool]


REQUIRED = (
    Required("cmake", (3, 26), "tvm-ffi's build and the presets need it", process.cmake),
    Required("ninja", (1, 11), "the superbuild's graph needs it", process.ninja),
)


def shown(version: Sequence[int]) -> str:
    return ".".join(map(str, version))


def version_line(path: Path) -> str:
    """Return the first line of ``PROGRAM --version``."""
    what = f"{path} does not say its version"
    remedy = f"Run `{path} --version` by hand; install it again when it is broken."
    try:
        done = process.run([path, "--version"], timeout=VERSION_SECONDS, what=what, remedy=remedy)
    except ToolNotFound as error:  # a file for another machine, or no program at all
        raise ToolNotFound(f"{path} does not run ({error.what})", remedy=remedy) from error
    return (done.stdout.strip() or done.stderr.strip()).partition("\n")[0]


def check_required(required: Required, tool: Tool, line: str) -> Check:
    """Judge the version in the first *line* of what *tool* prints."""
    version = parse_version(line)
    origin, remedy = f"{tool.path}, {tool.origin}", install_command("-U", required.name)
    if not version:
        return warning(required.name, f"it says no version but {line!r}", origin, remedy)
    if version < required.minimum:
        old = f"{shown(version)} is too old: {shown(required.minimum)} or newer is needed ({required.reason})"
        return failed(required.name, old, origin, remedy)
    return ok(required.name, shown(version), origin)


def check_compiler(platform: Platform, path: Path | None, version: str, *, needed: bool) -> Check:
    """Judge the compiler of *platform*, *needed* if settings build for it, by its version's first line."""
    name = f"compiler for {platform.name}"
    offered = needed or platform.name == DEMO_PLATFORM
    if path is None:
        lack = f"{platform.compiler} is not on PATH; only `--for {platform.name}` needs it"
        fix = Fix(Action.INSTALL, tuple(platform.packages.split())) if offered else None
        return failed(name, lack, "", f"apt-get install {platform.packages}", fix, needed=needed)
    return ok(name, version, str(path))


def check_git(path: Path | None, version: str) -> Check:
    """Judge git, which only fetches TVM's source."""
    if path is None:
        lack = "not on PATH; TVM's source then comes from the package index or a directory of yours"
        return warning("git", lack, "", "apt-get install git", Fix(Action.INSTALL, ("git",)))
    return ok("git", version.removeprefix("git version "), str(path))


def check_cuda(scope: Scope) -> Iterator[Check]:
    """Look for the compiler of kernels for CUDA: it must be there only where the settings compile for it."""
    try:
        compiler = find_compiler()
        yield ok("CUDA", compiler.name, "its machine code: --target cuda:ARCH")
    except ToolNotFound as error:
        if scope.settings.compile.target.startswith("cuda"):
            yield failed("CUDA", error.what, "the setting compile.target", error.remedy)


def _program_questions(scope: Scope) -> Iterator[Question]:
    def required(program: Required) -> Iterator[Check]:
        tool = program.find()
        yield check_required(program, tool, version_line(tool.path))

    def compiler(platform: Platform) -> Iterator[Check]:
        needed = platform is scope.platform
        try:
            yield check_compiler(platform, *_program(platform.compiler), needed=needed)
        except AdtError as error:
            name, remedy = f"compiler for {platform.name}", f"apt-get install {platform.packages}"
            yield failed(name, error.what, remedy=remedy, needed=needed)

    for program in REQUIRED:
        yield Question(program.name, partial(required, program))
    for platform in PLATFORMS.values():
        if platform.compiler:
            yield Question(f"compiler for {platform.name}", partial(compiler, platform))
    yield Question("git", lambda: [check_git(*_program("git"))])
    yield Question("CUDA", lambda: check_cuda(scope))


def _program(name: str) -> tuple[Path | None, str]:
    """Return the path of a program on PATH, and the first line of its ``--version``; None: there is none."""
    path = process.which(name)
    return (Path(path), version_line(Path(path))) if path else (None, "")


APK = "APK tools"


def check_tools(environ: Mapping[str, str], keytool: str | None) -> Check:
    """Check the tools that link and sign an APK; nobody else needs them, so their lack is a warning."""
    try:
        tools = find_apk_tools(environ=environ)
    except (ToolNotFound, SdkError) as error:
        return warning(APK, f"{error.what}; only `adt apk` needs them", remedy=error.remedy)
    if keytool is None:
        lack = "there is no keytool, and so no Java for apksigner; only `adt apk` needs it"
        return warning(APK, lack, tools.origin, "apt-get install default-jre-headless")
    return ok(APK, f"{tools.aapt2}, {tools.apksigner}", tools.origin)


EMULATOR = "virtual device"


def check_prerequisites(items: Iterable[prerequisites.Prerequisite]) -> Iterator[Check]:
    """Judge each prerequisite; a virtual device is a convenience, so none fails."""
    for item in items:
        qemu = item.remedy == prerequisites.INSTALL_QEMU  # an apt-get of this package
        fix = Fix(Action.INSTALL, ("qemu-user-static",)) if qemu else None
        status = Status.OK if item.ok else Status.WARNING
        yield Check(f"{EMULATOR}: {item.name}", status, item.found, remedy=item.remedy, fix=fix)


def running_emulators() -> list[state.EmulatorRecord]:
    """Return the virtual devices that run; remove nothing."""
    return [record for record in _records().values() if record]


def stale_emulators() -> list[str]:
    """Return the names of virtual devices with a record but without a process; remove nothing."""
    return [name for name, record in _records().items() if not record]


def _records() -> dict[str, state.EmulatorRecord | None]:
    """Map each device that has a record to it; to None where it does not run, or cannot be read."""
    records: dict[str, state.EmulatorRecord | None] = {}
    for home in state.homes():
        if home.record.is_file():
            records[home.name] = None
            with contextlib.suppress(AdtError):
                record = state.load(home)
                records[home.name] = record if state.alive(record) else None
    return records


def check_stale(names: Sequence[str]) -> Iterator[Check]:
    """Warn of records that nothing stands behind."""
    if names:
        stale = f"{', '.join(names)} is recorded as running but does not run"
        remedy = (
            "adt doctor host --fix, or adt emulator list (both remove the record; /data and the log stay)"
        )
        fix, where = Fix(Action.REMOVE_RECORDS, tuple(names)), str(state.emulators_directory())
        yield warning(f"{EMULATOR}: records", stale, where, remedy, fix)


def questions(scope: Scope) -> Iterator[Question]:
    """Yield the questions: Python, adt, TVM, programs, what an APK needs, the cache, the virtual device."""

    def emulator() -> Iterator[Check]:
        try:
            yield from check_prerequisites(prerequisites.survey().checks)
        except AdtError as error:
            yield warning(EMULATOR, error.what, remedy=error.remedy)

    yield from _python_questions(scope)
    yield from _program_questions(scope)
    yield Question(APK, lambda: [check_tools(scope.environ, process.which("keytool"))])
    yield from storage.questions()
    yield Question(EMULATOR, emulator)
    yield Question(f"{EMULATOR}: records", lambda: check_stale(stale_emulators()))
