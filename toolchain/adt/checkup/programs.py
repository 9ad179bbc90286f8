"""The programs that adt drives on this machine, and whether they are new enough."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from adt.bundle.platforms import PLATFORMS, Platform
from adt.checkup.check import Action, Area, Check, Fix, Question, Status
from adt.checkup.scope import Scope
from adt.errors import AdtError, ToolNotFound
from adt.host import process, tools
from adt.host.tools import Tool
from adt.host.version import Version, parse_version

SECONDS = 20.0
"""Budget for a program to say its version."""

DEMO_PLATFORM = "linux-aarch64"
"""What `adt up` builds for when there is no phone: its compiler is worth installing unasked."""


@dataclass(frozen=True)
class Required:
    """A program without which nothing is built."""

    name: str
    minimum: Version
    why: str
    """What the minimum is for."""
    find: Callable[[], Tool]


REQUIRED = (
    Required("cmake", (3, 26), "tvm-ffi's build and the presets need it", tools.cmake),
    Required("ninja", (1, 11), "the superbuild's graph needs it", tools.ninja),
)


def shown(version: Version) -> str:
    """A version for people."""
    return ".".join(map(str, version))


def said_version(path: Path) -> str:
    """The first line of ``PROGRAM --version``.

    Raises:
        ProcessFailed, ToolNotFound: it does not run, or not to its end in time.
    """
    what = f"{path} does not say its version"
    remedy = f"Run `{path} --version` by hand; install it again when it is broken."
    try:
        done = process.run([path, "--version"], timeout=SECONDS, what=what, remedy=remedy)
    except ToolNotFound as why:  # a file for another machine, or no program at all
        raise ToolNotFound(f"{path} does not run ({why.what})", remedy=remedy) from why
    return (done.stdout.strip() or done.stderr.strip()).partition("\n")[0]


def check_required(required: Required, tool: Tool, said: str) -> Check:
    """Judge the version that *tool* says."""
    version = parse_version(said)
    origin = f"{tool.path}, {tool.origin}"
    mend = f"pip install -U {required.name}"
    if not version:
        found = f"it says no version but {said!r}"
        return Check(Area.HOST, required.name, Status.WARNING, found, origin, mend)
    if version < required.minimum:
        found = f"{shown(version)} is too old: {shown(required.minimum)} or newer is needed ({required.why})"
        return Check(Area.HOST, required.name, Status.FAILED, found, origin, mend)
    return Check(Area.HOST, required.name, Status.OK, shown(version), origin)


def check_compiler(platform: Platform, path: Path | None, said: str, *, needed: bool) -> Check:
    """Judge the compiler of one platform.

    Args:
        path: None when it is not on PATH.
        said: the first line of its ``--version``.
        needed: *platform* is what the settings build for.
    """
    name = f"compiler for {platform.name}"
    offered = needed or platform.name == DEMO_PLATFORM
    if path is None:
        return Check(
            Area.HOST,
            name,
            Status.FAILED if needed else Status.WARNING,
            f"{platform.compiler} is not on PATH; only `--for {platform.name}` needs it",
            remedy=f"apt-get install {platform.packages}",
            fix=Fix(Action.INSTALL, tuple(platform.packages.split())) if offered else None,
        )
    return Check(Area.HOST, name, Status.OK, said, str(path))


def check_git(path: Path | None, said: str) -> Check:
    """Judge git, which only fetches TVM's source."""
    if path is None:
        return Check(
            Area.HOST,
            "git",
            Status.WARNING,
            "not on PATH; TVM's source then comes from the package index or a directory of yours",
            remedy="apt-get install git",
            fix=Fix(Action.INSTALL, ("git",)),
        )
    return Check(Area.HOST, "git", Status.OK, said.removeprefix("git version "), str(path))


def questions(scope: Scope) -> Iterator[Question]:
    """One question per program."""

    def required(one: Required) -> Iterator[Check]:
        tool = one.find()
        yield check_required(one, tool, said_version(tool.path))

    def compiler(platform: Platform) -> Iterator[Check]:
        needed = scope.builds_for(platform)
        found = shutil.which(platform.compiler)
        try:
            said = said_version(Path(found)) if found else ""
        except AdtError as why:
            status = Status.FAILED if needed else Status.WARNING
            name = f"compiler for {platform.name}"
            yield Check(Area.HOST, name, status, why.what, remedy=f"apt-get install {platform.packages}")
            return
        yield check_compiler(platform, Path(found) if found else None, said, needed=needed)

    def git() -> Iterator[Check]:
        found = shutil.which("git")
        yield check_git(Path(found) if found else None, said_version(Path(found)) if found else "")

    for one in REQUIRED:
        yield Question(Area.HOST, one.name, partial(required, one))
    for platform in PLATFORMS.values():
        if platform.compiler:
            name = f"compiler for {platform.name}"
            yield Question(Area.HOST, name, partial(compiler, platform))
    yield Question(Area.HOST, "git", git)
