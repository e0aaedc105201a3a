"""An upgrade of the schema on a busy database: it waits for tables without making everybody else wait behind it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from ratchet.model.errors import StoreUnavailable
from ratchet.model.options import Options
from ratchet.stores.sql import migrations
from ratchet.stores.sql.database import Database
from ratchet.stores.sql.migrations import SchemaMigrator, migrations_of
from ratchet.stores.sql.urls import dialect_of
from tests.support.waiting import until

LOOK = "SELECT count(*) FROM scheduler_node"


@pytest.fixture(params=["postgresql", "mysql"])
def database(request: Any) -> Iterator[Database]:
    """A database with the schema of 0.1.0."""
    made = Database(dialect_of(request.getfixturevalue(f"{request.param}_url"), Options()))
    SchemaMigrator(made, migrations_of(made.dialect.name)[:1]).migrate()
    yield made
    made.close()


def test_others_work_while_an_upgrade_waits(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    """
    A transaction that stays open has used a table: the upgrade tries again and again, and does not stand in the way.

    Statements of others are answered between its tries; when the transaction has ended, the upgrade is done.
    """
    applied: list[str] = []
    upgrade = threading.Thread(target=lambda: applied.extend(SchemaMigrator(database).migrate()))
    with database.dialect.writing() as session:
        session.value(LOOK)
        upgrade.start()
        for tries in (1, 2, 3):
            until(lambda least=tries: waits(caplog) >= least, 60, "it does not try again")  # type: ignore[misc]
            with database.dialect.reading() as other:
                assert other.value(LOOK) == 0
        assert applied == []
    upgrade.join(60)
    assert applied == [one.name for one in migrations_of(database.dialect.name)[1:]]
    SchemaMigrator(database).check()


def waits(caplog: pytest.LogCaptureFixture) -> int:
    return sum("the upgrade of the schema waits" in record.getMessage() for record in caplog.records)


def test_an_upgrade_gives_up_and_says_why(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """After its patience the error says what to do; nothing is half done, and the next upgrade completes it."""
    with monkeypatch.context() as patched:
        patched.setattr(migrations, "PATIENCE", 0.0)
        with database.dialect.writing() as session:
            session.value(LOOK)
            with pytest.raises(
                StoreUnavailable, match="find the one that stays open for long, end it, and run"
            ):
                SchemaMigrator(database).migrate()
    assert SchemaMigrator(database).migrate()[0] == "V002__checks"
    SchemaMigrator(database).check()
