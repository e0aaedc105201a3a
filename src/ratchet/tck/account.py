"""The summary at the end of a run: which contracts were fulfilled, which were skipped, and why."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ratchet.tck.suite import contract_name, differences, listed_contracts

#: A narrowed run leaves out hundreds of contracts; only the first ones are printed.
SHOWN = 20


class Account:
    """
    Counts contracts, not test cases, and fails a run that left one out.

    A contract with parameters is fulfilled when all its cases passed. A run that was narrowed (``-k``, a
    node id) is not complete, and says so.
    """

    def __init__(self) -> None:
        self.names: dict[str, str] = {}  # node id of a case to its contract
        self.passed: dict[str, set[str]] = {}
        self.failed: set[str] = set()
        self.skipped: dict[str, str] = {}
        self.problems: list[str] = []

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        cls = getattr(item, "cls", None)
        if isinstance(cls, type) and cls.__module__.startswith("ratchet.tck.contracts."):
            method = getattr(item, "originalname", item.name)
            self.names[item.nodeid] = contract_name(cls, method)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = self.names.get(report.nodeid)
        if name is None:
            return
        if report.failed:
            self.failed.add(name)
        elif report.skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else "no reason was given"
            self.skipped[name] = reason.removeprefix("Skipped: ")
        elif report.when == "call":
            self.passed.setdefault(name, set()).add(report.nodeid)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[None]:
        self.problems = differences()
        executed = self.failed | self.passed.keys() | self.skipped.keys()
        self.problems += [f"not executed: {name}" for name in listed_contracts() if name not in executed]
        if self.problems and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        yield
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            for line in self.lines():  # after pytest's own summary
                reporter.write_line(line)

    def lines(self) -> Iterator[str]:
        """What is wrong, what was skipped and why, what failed, and the total."""
        yield from self.problems[:SHOWN]
        if len(self.problems) > SHOWN:
            yield f"… and {len(self.problems) - SHOWN} more like these"
        skipped = {name: why for name, why in self.skipped.items() if name not in self.passed}
        yield from (f"skipped: {name}: {skipped[name]}" for name in sorted(skipped))
        yield from (f"failed: {name}" for name in sorted(self.failed))
        fulfilled = self.passed.keys() - self.failed
        yield f"{len(fulfilled) + len(skipped)} of {len(listed_contracts())} contracts, {len(skipped)} skipped"
