"""Only tests that are marked with a reason are tried once more, and the summary says how they failed at first."""

import shutil
import subprocess
import sys
from pathlib import Path

from support.devices.programs import try_program

CONFTEST = Path(__file__).parents[1] / "conftest.py"
TESTS = """
import pathlib
import pytest

def fails_at_first(name):
    count = pathlib.Path(__file__).with_name(name)
    if not count.exists():
        count.touch()
        raise AssertionError("the server was away")

@pytest.mark.flaky({marked})
def test_marked():
    fails_at_first("marked")

def test_other():
    fails_at_first("other")
"""


def pytest_of(directory: Path, marked: str, *options: str) -> subprocess.CompletedProcess[str]:
    shutil.copy(CONFTEST, directory)
    (directory / "test_some.py").write_text(TESTS.format(marked=marked))
    words = (sys.executable, "-m", "pytest", "-q", "-raR", "--strict-markers", "--rootdir=.", *options)
    return try_program(*words, cwd=directory)


def test_a_marked_test_has_a_second_try_and_others_have_none(tmp_path: Path) -> None:
    done = pytest_of(tmp_path, "reruns=1, reason='servers go away'", "-n", "1")
    assert "1 failed, 1 passed, 1 rerun" in done.stdout, done.stdout + done.stderr
    assert "FAILED test_some.py::test_other" in done.stdout
    _, _, first = done.stdout.partition("at first: ")
    assert first.startswith("test_some.py::test_marked")
    assert "the server was away" in first and "tried once more, since servers go away" in first


def test_a_mark_without_a_reason_is_refused(tmp_path: Path) -> None:
    done = pytest_of(tmp_path, "reruns=1")
    assert done.returncode == 4, done.stdout
    assert "test_marked: write @pytest.mark.flaky(reruns=1, reason=...)" in done.stderr
