"""What goes in comes out: every kind of value, on every dialect, in every way of sending it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ratchet.model.errors import InvalidJob, UnstorableData
from ratchet.model.status import JobStatus, Priority
from ratchet.stores.sql.columns import EXCEPTIONS, KINDS, kind_in
from ratchet.stores.sql.database import Session
from ratchet.stores.sql.store import SqlStore, open_store

NASTY = "a'b\"c\\d{e},f\tg\nh\ri%j:k\u2028ü🦆 NULL"
LATE = datetime(2999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
EARLY = datetime(1, 1, 2, 0, 0, 0, 1, tzinfo=UTC)
ID = UUID("01890000-0000-7000-8000-00000000000f")


@pytest.fixture(params=["sqlite", "postgresql", "mysql"])
def store(request: Any, tmp_path: Path) -> Iterator[SqlStore]:
    url = f"sqlite:///{tmp_path / 'x.db'}"
    store = open_store(url if request.param == "sqlite" else request.getfixturevalue(f"{request.param}_url"))
    store.migrate()
    yield store
    store.close()


COLUMNS = ("signal_id", "signal_key", "job_id", "payload", "rejected", "sent_at", "keep_until", "consumed_by")
ROW = (ID, NASTY, None, "", None, LATE, EARLY, UUID(int=2**128 - 1))
READ = f"SELECT {', '.join(COLUMNS)} FROM scheduler_signal ORDER BY signal_id"


@pytest.mark.parametrize("count", [1, 200], ids=["few", "many"])
@pytest.mark.parametrize("ignore", [False, True])
def test_bulk_inserts(store: SqlStore, count: int, ignore: bool) -> None:
    """UUIDs, times to the microsecond, NULL, '' and every odd character come back as they were, COPY or not."""
    rows = [(UUID(int=ID.int + i), *ROW[1:]) for i in range(count)]

    def work(session: Session) -> int:
        return session.insert_rows("scheduler_signal", COLUMNS, rows, on_conflict_do_nothing=ignore)

    assert store.database.run(work) == count
    assert store.database.read(lambda session: session.rows(READ)) == rows


def test_duplicates_are_left_alone_when_told_so(store: SqlStore) -> None:
    """Only the new row is inserted and counted; the old one is not changed."""
    second = (UUID(int=1), "other", *ROW[2:])

    def work(session: Session) -> list[int]:
        return [
            session.insert_rows("scheduler_signal", COLUMNS, rows, on_conflict_do_nothing=True)
            for rows in ([ROW], [(ID, "changed", *ROW[2:]), second], [])
        ]

    assert store.database.run(work) == [1, 1, 0]
    assert store.database.read(lambda session: session.rows(READ)) == [second, ROW]


def test_binds_lists_and_row_sets(store: SqlStore) -> None:
    """One value, a list and a row set carry the same values; a time in another zone is the same time."""
    berlin = LATE.astimezone(timezone(timedelta(hours=1)))

    def work(session: Session) -> Any:
        return [
            session.row(
                "SELECT CAST(:job_id AS {uuid}) AS job_id, CAST(:at AS {time}) AS sent_at, CAST(:yes AS {bool}) AS sealed,"
                " CAST(:text AS {text}) AS name, CAST(:none AS {time}) AS held_at",
                {"job_id": ID, "at": berlin, "yes": True, "text": NASTY, "none": None},
            ),
            session.rows(
                "SELECT job_id, sent_at, sealed, name, progress, attempts"
                " FROM {rows r (job_id, sent_at, sealed, name, progress, attempts)} ORDER BY attempts",
                {"r": [(ID, berlin, False, NASTY, 0.1, 1), (None, None, None, None, None, 2)]},
            ),
            session.rows("SELECT 1 AS one FROM scheduler_queue WHERE queue {in names text}", {"names": []}),
        ]

    assert store.database.read(work) == [
        (ID, LATE, True, NASTY, None),
        [(ID, LATE, False, NASTY, 0.1, 1), (None, None, None, None, None, 2)],
        [],
    ]


def test_membership_of_every_kind(store: SqlStore) -> None:
    """A value is found in a list of its kind, and nothing else is."""
    store.database.run(lambda session: session.insert_rows("scheduler_signal", COLUMNS, [ROW]))
    cases = [
        ("signal_id", "uuid", ID, UUID(int=5)),
        ("sent_at", "time", LATE, EARLY),
        ("signal_key", "text", NASTY, "NULL"),
    ]
    for column, kind, present, absent in cases:
        text = f"SELECT count(*) AS n FROM scheduler_signal WHERE {column} {{in xs {kind}}}"
        found = [
            store.database.read(lambda session, t=text, x=xs: session.value(t, {"xs": x}))
            for xs in ([present], [absent], [absent, present], [None], [])
        ]
        assert found == [1, 0, 1, 0, 0], column


def test_enums_are_their_values(store: SqlStore) -> None:
    """Statuses and priorities can be passed as they are, one by one, in lists and in rows."""

    def work(session: Session) -> Any:
        session.insert_rows("scheduler_queue", ("queue", "paused"), [(JobStatus.PENDING, False)])
        return session.rows(
            "SELECT queue, CAST(:priority AS {int}) AS p FROM scheduler_queue WHERE queue {in names text} AND queue = :one",
            {"priority": Priority.HIGH, "names": [JobStatus.PENDING], "one": JobStatus.PENDING},
        )

    assert store.database.run(work) == [("PENDING", 3)]


@pytest.mark.parametrize("text", ["nul \0", "half a pair \ud83e"], ids=["nul", "surrogate"])
@pytest.mark.parametrize("way", ["bind", "rows", "insert", "many"])
def test_texts_that_cannot_be_stored(store: SqlStore, text: str, way: str) -> None:
    """Refused as UnstorableData however they are sent, and nothing of the transaction stays."""

    def work(session: Session) -> Any:
        session.insert_rows("scheduler_queue", ("queue", "paused"), [("before", False)])
        match way:
            case "bind":
                session.execute("INSERT INTO scheduler_queue (queue) VALUES (:text)", {"text": text})
            case "rows":
                session.execute(
                    "INSERT INTO scheduler_queue (queue) SELECT name FROM {rows r (name)}", {"r": [(text,)]}
                )
            case _:
                rows = [(text + str(i), False) for i in range(100 if way == "many" else 1)]
                session.insert_rows("scheduler_queue", ("queue", "paused"), rows)

    with pytest.raises(UnstorableData):
        store.database.run(work)
    assert store.database.read(lambda session: session.rows("SELECT queue FROM scheduler_queue")) == []


@pytest.mark.parametrize("way", ["bind", "list", "rows", "insert", "many"])
def test_times_without_a_zone(store: SqlStore, way: str) -> None:
    """Nobody can know which zone was meant: refused however they are sent, with the form that works."""
    naive = datetime(2026, 1, 1)

    def work(session: Session) -> Any:
        match way:
            case "bind":
                session.execute("UPDATE scheduler_queue SET paused_at = :at", {"at": naive})
            case "list":
                session.rows(
                    "SELECT 1 AS one FROM scheduler_queue WHERE paused_at {in xs time}", {"xs": [naive]}
                )
            case "rows":
                session.rows("SELECT paused_at FROM {rows r (paused_at)}", {"r": [(naive,)]})
            case _:
                rows = [(f"q{i}", naive) for i in range(100 if way == "many" else 1)]
                session.insert_rows("scheduler_queue", ("queue", "paused_at"), rows)

    with pytest.raises(InvalidJob, match="without a time zone"):
        store.database.run(work)


def test_numbers_that_do_not_fit(store: SqlStore) -> None:
    """A number beyond 64 bits is a data error, not a crash."""
    with pytest.raises(UnstorableData):
        store.database.run(
            lambda session: session.execute("UPDATE scheduler_batch SET total = :n", {"n": 2**70})
        )


def test_labels_of_expressions(store: SqlStore) -> None:
    """An expression is decoded by its label: a schema column's, or one with a telling end."""
    store.database.run(lambda session: session.insert_rows("scheduler_signal", COLUMNS, [ROW]))
    text = """
        SELECT max(sent_at) AS latest_at, min(sent_at) AS sent_at, count(*) AS n,
               EXISTS (SELECT 1 FROM scheduler_signal) AS is_there, {clock} AS now_at FROM scheduler_signal
    """
    *found, now = store.database.read(lambda session: session.row(text)) or ()
    assert found == [LATE, LATE, 1, True]
    assert abs(now - datetime.now(UTC)) < timedelta(minutes=1)


_KINDS_OF_TYPES = {
    "uuid": "uuid", "timestamp with time zone": "time", "boolean": "bool", "smallint": "int", "integer": "int",
    "bigint": "int", "double precision": "real", "text": "text", "character varying": "text", "character": "text",
}  # fmt: skip


def test_kinds_are_those_of_the_catalog(postgresql_url: str) -> None:
    """Every column of every table has the kind that its name is said to have, and no kind is made up."""
    store = open_store(postgresql_url)
    store.migrate()
    columns = store.database.read(
        lambda session: session.rows(
            "SELECT table_name, column_name, data_type FROM information_schema.columns WHERE table_schema = 'public'"
        )
    )
    store.close()
    assert len(columns) > 200
    wrong = [row for row in columns if kind_in(row[0], row[1]) != _KINDS_OF_TYPES[row[2]]]
    assert wrong == []
    assert set(KINDS) <= {name for _, name, _ in columns}
    assert set(EXCEPTIONS) <= {(table, name) for table, name, _ in columns}
