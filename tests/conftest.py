"""For all tests."""

from __future__ import annotations

import logging
import signal
from collections import Counter

import pytest

SECONDS = "adt/seconds"
"""Key in pytest's cache of each test's last duration."""
LONG = (
    "test_xnnpack", "test_sanitizers", "test_executor", "test_kills", "test_tune", "test_examples",
    "test_cpp_runner", "test_cuda", "test_generate_jni", "test_bench", "test_rpc", "test_textures",
)  # fmt: skip
"""Files that a first run begins with, which knows no times yet."""

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


SECOND_TRY = "second try"
"""The property of a test that has the reason of its mark ``flaky``, for the summary."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse a second try without a reason: what passes at the second one may be a fault all the same.

    Bring the files that take longest to the front: one of them at the end would leave the other processes idle.
    """
    seconds = config.cache.get(SECONDS, {}) if config.cache else {}
    files: Counter[str] = Counter()
    for item in items:
        unknown = 100.0 if item.path.stem in LONG and not seconds else 1.0
        files[str(item.path)] += seconds.get(item.nodeid, unknown)
    items.sort(key=lambda item: (-files[str(item.path)], str(item.path)))
    for item in items:
        for mark in item.iter_markers("flaky"):
            if set(mark.kwargs) != {"reruns", "reason"}:
                raise pytest.UsageError(f"{item.nodeid}: write @pytest.mark.flaky(reruns=1, reason=...)")
            item.user_properties.append((SECOND_TRY, mark.kwargs["reason"]))


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
