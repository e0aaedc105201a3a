"""How long the tests of each directory took, printed at the end of a run."""

from __future__ import annotations

from collections import Counter

import pytest


class Durations:
    """A plugin of pytest that adds up what it hears; with xdist, that is what all workers report."""

    def __init__(self) -> None:
        self._seconds: Counter[str] = Counter()
        self._tests: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test was set up, called or torn down."""
        directory = directory_of(report.nodeid)
        self._seconds[directory] += report.duration
        self._tests[directory] += report.when == "call"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print a line for each directory, unless all tests were in one."""
        if len(self._seconds) < 2:
            return
        terminalreporter.section("run time per directory, of all workers together")
        for directory, seconds in self._seconds.most_common():
            terminalreporter.write_line(f"{seconds:8.1f} s  {self._tests[directory]:6} tests  {directory}")


def directory_of(test: str) -> str:
    """The directory of a test in our own tree: its first two names."""
    *directories, _ = test.split("::")[0].split("/")
    return "/".join(directories[:2]) or "."
