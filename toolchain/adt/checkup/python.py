"""The Python that runs adt, adt itself, and TVM in it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import adt
from adt.bundle.platforms import platform_named
from adt.checkup.check import Area, Check, Question, Status
from adt.checkup.pairs import check_pair
from adt.checkup.scope import Scope
from adt.host import process
from adt.host.process import Finished
from adt.host.resources import resource
from adt.model.versions import FFI, OURS, TVM, install, installed_version

MINIMUM = (3, 11)
OWN_DIRECTORIES = ("cmake_presets", "cpp_runner", "templates")
IMPORT_SECONDS = 120.0
"""Budget for `import tvm` on a slow disk."""
IMPORT = "import json, tvm; print(json.dumps([tvm.__version__, tvm.__file__]))"


def check_python(version: tuple[int, ...], executable: str) -> Check:
    """Judge the interpreter."""
    said = ".".join(map(str, version[:3]))
    if version[:2] < MINIMUM:
        return Check(
            Area.HOST,
            "Python",
            Status.FAILED,
            f"{said} is too old: adt needs {MINIMUM[0]}.{MINIMUM[1]} or newer",
            executable,
            "apt-get install python3.11 python3.11-venv, then install adt in a new virtual environment",
        )
    return Check(Area.HOST, "Python", Status.OK, said, executable)


def check_adt(missing: tuple[str, ...], package: Path) -> Check:
    """Judge adt's own installation; *missing* are directories that should travel with it."""
    if missing:
        found = f"{adt.__version__}, but its own {', '.join(missing)} is missing"
        return Check(Area.HOST, "adt", Status.FAILED, found, str(package), "Install adt again.")
    return Check(Area.HOST, "adt", Status.OK, adt.__version__, str(package))


def check_import(done: Finished, installed: str) -> Check:
    """Judge what `import tvm` did in a process of its own.

    Args:
        installed: apache-tvm's version by its metadata.
    """
    name = "import tvm"
    if done.returncode != 0:
        last = done.tail(1) or "it says nothing"
        ended = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
        return Check(
            Area.HOST,
            name,
            Status.FAILED,
            f"fails ({ended}): {last}",
            sys.executable,
            f"{install(*OURS)}   (`{sys.executable} -c 'import tvm'` shows all of the message)",
        )
    version, path = json.loads(done.stdout.splitlines()[-1])
    if version != installed:
        return Check(
            Area.HOST,
            name,
            Status.WARNING,
            f"gives TVM {version}, not the installed {installed}",
            path,
            "Another TVM lies before the installed one: look at PYTHONPATH.",
        )
    return Check(Area.HOST, name, Status.OK, f"works: TVM {version}", str(Path(path).parent))


def questions(scope: Scope) -> Iterator[Question]:
    """Python, adt, the TVM pair, the import, the settings."""

    def python() -> Iterator[Check]:
        yield check_python(sys.version_info[:3], sys.executable)

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
        platform_named(scope.settings.build.platform)
        yield Check(Area.HOST, "settings", Status.OK, "can be read", "`adt config` shows each one")

    def tvm() -> Iterator[Check]:
        installed = installed_version(TVM)
        yield (pair := check_pair(installed, installed_version(FFI)))
        if installed is None or pair.status is Status.FAILED:
            return  # the import says nothing more
        done = process.run([sys.executable, "-P", "-c", IMPORT], timeout=IMPORT_SECONDS, check=False)
        yield check_import(done, installed)

    yield Question(Area.HOST, "Python", python)
    yield Question(Area.HOST, "adt", own)
    yield Question(Area.HOST, "settings", settings)
    yield Question(Area.HOST, "TVM", tvm)
