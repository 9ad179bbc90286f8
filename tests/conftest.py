"""For all tests."""

from __future__ import annotations

import signal

import pytest

# Whoever runs the tests in the background of a script has them ignore ctrl-C, and nohup the end of the terminal;
# several tests send both, to programs that inherit what we ignore.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show why a test that was tried once more had failed at first: it may be a bug all the same."""
    for report in terminalreporter.getreports("rerun"):
        terminalreporter.section(f"at first: {report.nodeid}")
        terminalreporter.write_line("\n".join(report.longreprtext.splitlines()[-25:]))
