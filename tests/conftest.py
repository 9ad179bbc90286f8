"""For all tests."""

from __future__ import annotations

import logging
import signal

import pytest

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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a second try without a reason: what passes at the second one may be a fault all the same."""
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
