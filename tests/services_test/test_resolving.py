"""What the test servers promise without one running."""

from __future__ import annotations

import os

import pytest

from tests.services import programs
from tests.services.kinds import CLASSES, server_class
from tests.services.mariadb import MariaDB
from tests.services.server import ServerUnavailable, free_port, made_here, with_database


class TestMissingServer:
    @pytest.fixture(autouse=True)
    def nothing_installed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(programs, "SEARCH_PATH", "/nonexistent")

    def test_the_error_names_the_command_that_fixes_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without the program and without root, the message holds a line to paste, and the other way out."""
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        with pytest.raises(ServerUnavailable) as problem:
            MariaDB.install()
        assert "sudo apt-get update && sudo apt-get install -y mariadb-server" in str(problem.value)
        assert "set RATCHET_TEST_MYSQL_URL" in str(problem.value)


class TestNamedServer:
    @pytest.mark.parametrize("kind", CLASSES)
    def test_the_environment_comes_first(self, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """A URL in the environment is used as it is; nothing is installed or started."""
        monkeypatch.setenv(server_class(kind).variable, "scheme://host/name")
        server = server_class(kind).resolve()
        assert server.url == "scheme://host/name"
        assert not server.private

    def test_names_each_variable_once(self) -> None:
        """No two servers read the same variable."""
        assert len({server_class(kind).variable for kind in CLASSES}) == len(CLASSES)


def test_a_database_url_keeps_the_rest_of_its_servers() -> None:
    """Only the path changes: credentials and options reach the new database too."""
    url = with_database("mongodb://user:secret@127.0.0.1:27017/?replicaSet=rs0", "ratchet_a")
    assert url == "mongodb://user:secret@127.0.0.1:27017/ratchet_a?replicaSet=rs0"
    assert made_here(url) == "ratchet_a"


def test_ports_lie_below_those_of_outgoing_connections() -> None:
    """While a server is down, no client may be given its port."""
    assert all(15_000 <= free_port() < 32_000 for _ in range(50))
