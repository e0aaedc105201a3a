"""
The pytest option that names a harness; the kit is loaded only when it is given.

``ratchet tck`` loads this module, and so does ``pytest -p ratchet.tck.plugin``.
"""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("ratchet", "Ratchet's conformance kit")
    group.addoption(
        "--ratchet-harness",
        metavar="PKG.MODULE:CLASS",
        help="run the contracts of ratchet.tck against the store of this harness",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--ratchet-harness"):
        config.pluginmanager.import_plugin("ratchet.tck.fixtures")
        if not hasattr(config, "workerinput"):  # pytest-xdist: only the process that sees all reports counts
            from ratchet.tck.account import Account

            config.pluginmanager.register(Account(), "ratchet-tck-account")
