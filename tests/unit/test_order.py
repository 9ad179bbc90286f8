"""Order of the test files: a long one that begins last leaves the other processes idle."""

from collections.abc import Callable
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


@pytest.fixture
def expected(pytestconfig: pytest.Config) -> Callable[..., float]:
    (conftest,) = (
        plugin
        for plugin in pytestconfig.pluginmanager.get_plugins()
        if getattr(plugin, "__file__", None) == str(TESTS / "conftest.py")
    )
    function: Callable[..., float] = conftest.expected_seconds
    return function


def test_times_of_other_files_do_not_hide_a_long_one(expected: Callable[..., float]) -> None:
    """Sort the integration tests of a first run after only the unit tests have been recorded."""
    unit = {"tests/unit/test_targets.py::test_names": 0.1}
    long, short = TESTS / "integration/test_integers.py", TESTS / "integration/test_kernels.py"
    many = [f"{short}::test_{number}" for number in range(200)]
    assert expected(long, [f"{long}::test_one"], unit) > expected(short, many, unit)


def test_recorded_times_count_before_those_that_are_written_down(expected: Callable[..., float]) -> None:
    path = TESTS / "integration/test_integers.py"
    tests = [f"{path}::test_{number}" for number in range(3)]
    assert expected(path, tests, {tests[0]: 2.5, tests[1]: 1.5}) == 2.5 + 1.5 + 1


def test_the_files_that_are_written_down_exist(expected: Callable[..., float]) -> None:
    names = {path.stem for path in TESTS.glob("*/test_*.py")}
    assert set(expected.__globals__["LONG"]) <= names
