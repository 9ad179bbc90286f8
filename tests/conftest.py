"""For all tests."""

from __future__ import annotations

import logging
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

SECONDS = "adt/seconds"
"""Key in pytest's cache of each test's last duration."""
LONG = {
    "test_cpu_kernels": 121, "test_integers": 110, "test_generate_jni": 99, "test_examples": 99, "test_xnnpack": 70,
    "test_build_target": 76, "test_remedies": 65, "test_importers": 63, "test_verify": 62, "test_sanitizers": 43,
    "test_textures": 36, "test_cuda": 36, "test_cpu_space": 36, "test_bench": 33, "test_onnx_sweep": 32,
    "test_tune": 31, "test_end_to_end": 31, "test_executor": 29, "test_cpu_arm": 27, "test_half_precision": 24,
    "test_opencl": 21,
    # These mostly wait.
    "test_rpc": 112, "test_stalled_device": 111, "test_kills": 88, "test_rpc_app": 73, "test_activity": 63,
    "test_rpc_shared": 62, "test_deploy": 56, "test_device": 48, "test_doctor": 47, "test_tune_builders": 43,
    "test_tune_fleet": 40, "test_awake": 39, "test_rack": 38, "test_rpc_hostile": 30, "test_apk": 30,
    "test_virtual_device": 24, "test_deploy_many": 24, "test_adb_command": 24, "test_loading": 23,
    # Unit tests.
    "test_quantize": 14, "test_requests": 13, "test_isolated": 13, "test_foreign_home": 12, "test_tune_sqlite": 11,
    "test_second_tries": 11, "test_option_texts": 11,
}  # fmt: skip
"""Seconds of the longest files on two cores, for a run that has no times of its own yet."""

# Whoever runs the tests in the background of a script has them ignore ctrl-C, and nohup the end of the terminal;
# several tests send both, to programs that inherit what we ignore.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def own_logger() -> None:
    """Give each test the logger of a program that was just started: a command line run in this process changes it."""
    logger = logging.getLogger("adt")
    logger.handlers[:], logger.propagate = [], True
    logger.setLevel(logging.NOTSET)


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a test a cache of its own."""
    monkeypatch.setenv("ADT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


SECOND_TRY = "second try"
"""The property of a test that has the reason of its mark ``flaky``, for the summary."""


def expected_seconds(path: Path, tests: Sequence[str], seconds: Mapping[str, float]) -> float:
    """Estimate the duration of a file's *tests* by the *seconds* of those that ran before, else by :data:`LONG`.

    A first run of all begins with the unit tests, whose times say nothing about other files.
    """
    recorded = [seconds[test] for test in tests if test in seconds]
    unknown = len(tests) - len(recorded)
    return sum(recorded) + (unknown if recorded else LONG.get(path.stem, unknown / 2))


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name bytes by their parameter: an archive's contain the time, and processes that share tests compare names."""
    return argname if isinstance(val, bytes) and len(val) > 16 else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse a second try without a reason: what passes at the second one may be a fault all the same.

    Bring the files that take longest to the front: one of them at the end would leave the other processes idle.
    """
    seconds = config.cache.get(SECONDS, {}) if config.cache else {}
    files: dict[Path, list[str]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item.nodeid)
    expected = {path: expected_seconds(path, tests, seconds) for path, tests in files.items()}
    items.sort(key=lambda item: (-expected[item.path], str(item.path)))
    for item in items:
        for mark in item.iter_markers("flaky"):
            if set(mark.kwargs) != {"reruns", "reason"}:
                raise pytest.UsageError(f"{item.nodeid}: write @pytest.mark.flaky(reruns=1, reason=...)")
            item.user_properties.append((SECOND_TRY, mark.kwargs["reason"]))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Refuse a pytest whose identifiers pytest-xdist cannot mark with groups, as of 9.2 with pytest-xdist 3.8."""
    if getattr(session.config.option, "loadgroup", False):
        grouped = [item.nodeid for item in session.items if item.get_closest_marker("xdist_group")]
        assert all("@" in nodeid for nodeid in grouped), "groups of tests would be torn apart"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show why a test that was tried once more had failed at first, and why it may be."""
    for report in terminalreporter.getreports("rerun"):
        terminalreporter.section(f"at first: {report.nodeid}")
        terminalreporter.write_line("\n".join(report.longreprtext.splitlines()[-25:]))
        for name, reason in report.user_properties:
            if name == SECOND_TRY:
                terminalreporter.write_line(f"tried once more, since {reason}")


class Stopwatch:
    """Keeps how long each test takes, for the order of the next run."""

    def __init__(self) -> None:
        self._seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if cache := session.config.cache:
            rounded = {test: round(seconds, 2) for test, seconds in self._seconds.items()}
            cache.set(SECONDS, cache.get(SECONDS, {}) | rounded)


class Lost:
    """Fails a run in which tests were collected and never reported, as when a process of xdist is lost."""

    def __init__(self) -> None:
        self.collected: set[str] = set()
        self.reported: set[str] = set()
        self.lost: list[str] = []

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self.collected.update(ids)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":
            self.reported.add(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus == pytest.ExitCode.OK and self.collected - self.reported:
            self.lost = sorted(self.collected - self.reported)
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.lost:
            terminalreporter.section(f"{len(self.lost)} tests were collected and not run")
            terminalreporter.write_line("\n".join(self.lost[:20]))


def pytest_configure(config: pytest.Config) -> None:
    """Watch the processes of xdist, in the one that they report to."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Lost())
        config.pluginmanager.register(Stopwatch())
