from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.services.pgbouncer import PgBouncer
from tests.services.postgresql import PostgreSQL


@pytest.fixture
def server() -> Iterator[PostgreSQL]:
    with PostgreSQL() as server:
        yield server


def fill(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")


def kept(url: str) -> int:
    with psycopg.connect(url) as connection:
        (answer,) = connection.execute("SELECT answer FROM kept").fetchone() or (None,)
        assert isinstance(answer, int)
        return answer


class TestPrivateServer:
    def test_keeps_its_data_through_restart_and_kill(self, server: PostgreSQL) -> None:
        """What was committed is there after an orderly restart, and after SIGKILL and recovery."""
        url = server.create_database()
        fill(url)
        server.restart()
        assert kept(url) == 42
        server.kill()
        with pytest.raises(psycopg.OperationalError):
            kept(url)
        server.start()
        assert kept(url) == 42

    def test_runs_with_durable_commits_and_room_for_many_clients(self, server: PostgreSQL) -> None:
        """Durability tests mean something only with fsync on; many workers need many connections."""
        with psycopg.connect(server.url) as connection:
            assert connection.execute("SHOW fsync").fetchone() == ("on",)
            assert connection.execute("SHOW max_connections").fetchone() == ("300",)

    def test_close_leaves_nothing_behind(self) -> None:
        """After close, neither the data nor the server is there."""
        server = PostgreSQL(fsync=False).start()
        directory, url = server.directory, server.url
        server.close()
        assert not directory.exists()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(url)


class TestSharedServer:
    def test_gives_each_test_an_empty_database(
        self, postgresql_url: str, postgresql_server: PostgreSQL
    ) -> None:
        """Two databases of one server know nothing of each other, and a dropped one is gone in use."""
        other = postgresql_server.create_database()
        fill(other)
        with psycopg.connect(postgresql_url) as connection:
            assert connection.execute("SELECT to_regclass('kept')").fetchone() == (None,)
        with psycopg.connect(other):
            postgresql_server.drop_database(other)
        with pytest.raises(psycopg.OperationalError, match="does not exist"):
            psycopg.connect(other)

    def test_cannot_be_stopped_by_one_test(self, postgresql_server: PostgreSQL) -> None:
        """A test that would disturb the others is told to take a server of its own."""
        with pytest.raises(RuntimeError, match=r"take a private one: PostgreSQL\(\)"):
            postgresql_server.kill()

    def test_drops_only_what_it_made(self, postgresql_server: PostgreSQL) -> None:
        """A server given by URL may hold other data; it is never dropped."""
        with pytest.raises(ValueError, match="was not made by create_database"):
            postgresql_server.drop_database(postgresql_server.url)


class TestPgBouncer:
    def test_answers_and_refuses_startup_options(self, pgbouncer_url: str) -> None:
        """The shared PgBouncer is as strict as one in production: what needs a session's settings fails."""
        with psycopg.connect(pgbouncer_url, prepare_threshold=None) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        with pytest.raises(psycopg.OperationalError, match="unsupported startup parameter"):
            psycopg.connect(pgbouncer_url, options="-c search_path=public")

    def test_shares_the_database_with_its_upstream(self) -> None:
        """What is written through PgBouncer is in the PostgreSQL behind it."""
        with PostgreSQL(fsync=False) as server, PgBouncer(upstream=server.url) as bouncer:
            url = bouncer.create_database()
            fill(url)
            assert kept(url.replace(f":{bouncer.port}/", f":{server.port}/")) == 42
            bouncer.kill()
            bouncer.start()
            assert kept(url) == 42
