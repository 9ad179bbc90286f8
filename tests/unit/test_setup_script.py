"""Behaviour of ./demo.sh and ./test.sh on a machine without adt."""

import os
import subprocess
import sys
from pathlib import Path
from shlex import quote

import pytest

from support.devices.programs import try_program, write_program

ROOT = Path(__file__).parents[2]
SYSTEM = "/usr/bin/python3"
NEW_ENOUGH = "import sys; sys.exit(sys.version_info < (3, 11))"


def setup(command: str, bin_first: Path) -> subprocess.CompletedProcess[str]:
    """Run *command* with the functions of scripts/setup.sh, the programs in *bin_first* before others."""
    script = f"source {ROOT}/scripts/setup.sh; {command}"
    return try_program("bash", "-c", script, PATH=f"{bin_first}:{os.environ['PATH']}")


def test_the_systems_python_comes_first(tmp_path: Path) -> None:
    """Prefer it: a version manager's on PATH would hide that the system's does not work."""
    other = write_program(tmp_path / "bin/python3", "exit 0")
    there = Path(SYSTEM).exists() and subprocess.run([SYSTEM, "-c", NEW_ENOUGH], check=False).returncode == 0

    assert setup("find_python", other.parent).stdout.strip() == (SYSTEM if there else str(other))


def test_who_cannot_install_packages_is_told_of_all_with_a_command_that_works(tmp_path: Path) -> None:
    write_program(tmp_path / "bin/id", "echo 1000")
    write_program(tmp_path / "bin/sudo", "exit 1")
    write_program(tmp_path / "bin/dpkg-query", "exit 1")

    done = setup("need_packages first second", tmp_path / "bin")

    assert done.returncode == 4
    assert "missing: first second" in done.stderr
    assert "apt-get update && apt-get install first second" in done.stderr


@pytest.mark.parametrize(
    ("setting", "passed"),
    [
        ("global.constraint='/etc/c.txt'", "UV_CONSTRAINT=/etc/c.txt"),
        (":env:.index-url='https://u:p@own/simple?a=b'", "UV_DEFAULT_INDEX=https://u:p@own/simple?a=b"),
        ("global.timeout='60'", "UV_NATIVE_TLS=1"),
        ("global.find-links='/a\\n/b'", ""),
        ("install.no-binary=':all:'", ""),
    ],
)
def test_uv_installs_only_where_it_can_do_as_pip_is_configured(
    tmp_path: Path, setting: str, passed: str
) -> None:
    """Give uv the settings of pip's configuration, and leave it to pip where one has no equal."""
    write_program(tmp_path / "bin/python", f'[ "$*" != "-m pip config list" ] || echo {quote(setting)}')
    write_program(tmp_path / "bin/uv", "env; echo asked for $*")

    done = setup(f"venv={quote(str(tmp_path))}; install_by_uv 'adt[demo]'", tmp_path)

    assert (done.returncode == 0) == bool(passed) == ("adt[demo]" in done.stdout)
    assert passed in done.stdout.splitlines() or not passed


def test_what_is_compiled_of_python_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    shown = setup(f"{quote(sys.executable)} -c 'import sys; print(sys.dont_write_bytecode)'", tmp_path).stdout
    assert shown.strip() == "False"
