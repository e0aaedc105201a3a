"""Indexes that an upgrade builds while others write: who writes does not wait for them, and one that is missing is made up for."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg
import pytest

from ratchet.model.options import Options
from ratchet.stores.sql.database import Database
from ratchet.stores.sql.dialects.postgresql import dialect as postgresql
from ratchet.stores.sql.migrations import SchemaMigrator, migrations_of
from ratchet.stores.sql.urls import dialect_of
from tests.support.waiting import until

INDEXES = {"idx_stream_turns"}
VALID = "SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indisvalid"
INSERT = """
    INSERT INTO scheduler_stream (stream_key, queue, lane, created_at)
    VALUES (gen_random_uuid()::text, 'emails', 'THREAD', now())
"""
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'CREATE INDEX CONCURRENTLY%%' AND wait_event_type = 'Lock'"


@pytest.fixture
def database(postgresql_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """A database as the version before left it, in which no table has few rows."""
    monkeypatch.setattr(postgresql, "_FEW_ROWS", -1)
    made = Database(dialect_of(postgresql_url, Options()))
    scripts = [one for one in migrations_of("postgresql") if one.version < 8]
    SchemaMigrator(made, scripts).migrate()
    yield made
    made.close()


def valid(url: str) -> set[str]:
    with psycopg.connect(url, autocommit=True) as connection:
        return {name for (name,) in connection.execute(VALID)} & INDEXES


def test_writers_do_not_wait(database: Database, postgresql_url: str) -> None:
    """A transaction that has written stays open: the upgrade waits for it, and others write meanwhile."""
    upgrade = threading.Thread(target=SchemaMigrator(database).migrate)
    with psycopg.connect(postgresql_url) as busy, psycopg.connect(postgresql_url, autocommit=True) as other:
        busy.execute(INSERT)
        upgrade.start()
        until(lambda: other.execute(WAITING).fetchone() == (1,), 60, "the build does not wait")
        other.execute("SET lock_timeout = 2000")
        other.execute(INSERT)
        busy.commit()
        upgrade.join(60)
    assert valid(postgresql_url) == INDEXES


def test_a_build_that_was_stopped_is_made_up_for(database: Database, postgresql_url: str) -> None:
    """By the next upgrade, also where every script was applied: what is there and not valid, and what is not there."""
    SchemaMigrator(database).migrate()
    for damage in (
        "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'idx_stream_turns'::regclass",
        "DROP INDEX idx_stream_turns",
    ):
        with psycopg.connect(postgresql_url, autocommit=True) as connection:
            connection.execute(damage)
        assert valid(postgresql_url) == set()
        assert SchemaMigrator(database).migrate() == []
        assert valid(postgresql_url) == INDEXES


def test_one_that_cannot_be_built_is_a_warning(
    database: Database, postgresql_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The upgrade is done all the same, and says what is missing."""
    with psycopg.connect(postgresql_url) as busy:
        busy.execute(INSERT)
        with psycopg.connect(postgresql_url, autocommit=True) as admin:
            admin.execute(
                f"ALTER ROLE CURRENT_USER IN DATABASE {admin.info.dbname} SET statement_timeout = 300"
            )
        database.close()
        assert SchemaMigrator(database).migrate() == ["V008__key_limits"]
    assert "idx_stream_turns could not be built" in caplog.text
    assert valid(postgresql_url) == set()
