"""Whatever a migration adds has to be moved, or named here as something that is not."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import fields

from ratchet import Options
from ratchet.model.cluster import BreakerRecord
from ratchet.model.composition import (
    BatchRecord,
    Condition,
    Edge,
    FireRecord,
    ScheduleRecord,
    ScheduleSpec,
    SignalSpec,
)
from ratchet.model.job import Alert, Execution, LogEntry, StreamKey
from ratchet.model.moves import FIELDS, RowKind
from ratchet.moving.reports import TABLES as NAMED
from ratchet.stores.memory.rows import Cost, FireRow, Limit, Reservation, SignalRow
from ratchet.stores.mongo.documents import jobs as documents
from ratchet.stores.mongo.documents import neutral as mongo
from ratchet.stores.mongo.moving import HELD_BACK as MONGO_HELD_BACK
from ratchet.stores.mongo.schema import ALL_NAMES, Names
from ratchet.stores.sql.moving import HELD_BACK
from ratchet.stores.sql.rows import neutral as sql
from ratchet.stores.sql.store import open_store

#: Tables that are not moved, and why.
LEFT = {
    "ratchet_schema_version": "each store has its own",
    "scheduler_move": "how far the move has come",
    "scheduler_node": "nodes register where they start",
    "scheduler_lock": "leases of nodes",
    "scheduler_resource_permit": "of runs, and nothing runs",
    "scheduler_stream": "numbers of gates, made anew; each job has the key",
}
#: The same for collections that only MongoDB has.
LEFT_IN_MONGODB = {
    Names.STILL_RUNNING: "of runs, and nothing runs",
    Names.SIGNAL_GATES: "lets transactions meet",
    Names.WAKEUPS: "wakes nodes",
}


def catalog(folder: Path) -> dict[str, set[str]]:
    """Every table of a new store, and its columns; the other products have the same, which `tests/stores` compares."""
    store = open_store(f"sqlite:///{folder / 'new.db'}", Options())
    store.migrate()
    with store.database.dialect.reading() as session:
        names = [
            name
            for (name,) in session.rows("SELECT name FROM sqlite_master WHERE type = 'table'")
            if not name.startswith("sqlite_")
        ]
        found = {
            name: {
                column for (column,) in session.rows(f"SELECT name AS label FROM pragma_table_info('{name}')")
            }
            for name in names
        }
    store.close()
    return found


def moved() -> dict[str, set[str]]:
    """Every table that is moved, and the columns that are read and written."""
    found = {copied.table: set(copied.columns(kind).values()) for kind, copied in sql.TABLES.items()}
    found |= {table: set(sql.job_columns(kind)) for kind, table in sql.JOBS.items()}
    found[sql.QUEUE] = {*sql.queue_columns(), *sql.QUEUE_OF_CLAIM}
    found[sql.EDGES] = set(sql.EDGE_COLUMNS)
    found[sql.CONDITIONS] = set(sql.CONDITION_COLUMNS.values())
    found["scheduler_job_tag"] = {"tag", "job_id"}
    # of a run whose code is still running, and nothing runs
    found["scheduler_business_key_reservation"] |= {"claim_id", "node_id"}
    return found


def test_every_table_and_column_is_moved(tmp_path: Path) -> None:
    """A table or column of the schema that the move does not know is named."""
    there = catalog(tmp_path)
    assert {name: columns for name, columns in there.items() if name not in LEFT} == moved()
    assert LEFT.keys() <= there.keys()


def test_every_moved_table_is_fenced(tmp_path: Path) -> None:
    """What is copied cannot change while it is copied."""
    assert set(HELD_BACK) == set(moved())
    assert set(MONGO_HELD_BACK) == set(ALL_NAMES) - LEFT.keys() - LEFT_IN_MONGODB.keys()


def test_every_collection_is_moved() -> None:
    """A collection that the move does not know is named; each kind is in both families, under one name."""
    known = {copied.collection for copied in mongo.COLLECTIONS.values()} | set(mongo.JOBS.values())
    assert known | LEFT.keys() | LEFT_IN_MONGODB.keys() == {*ALL_NAMES, Names.VERSION}
    assert mongo.COLLECTIONS.keys() | mongo.JOBS.keys() == set(RowKind) == set(NAMED)
    assert {kind: copied.table for kind, copied in sql.TABLES.items()} | sql.JOBS | {
        RowKind.EDGE: sql.EDGES
    } == NAMED


def test_every_field_of_a_document_is_moved() -> None:
    """A field that a document can have, of a job or of another record, has a place in its neutral row."""
    names = {mongo._RENAMED.get(one.name, one.name) for one in FIELDS[RowKind.ARCHIVED_JOB]}
    stored = {*documents._SPEC, *documents._ROW, *documents._TYPES} - mongo.DERIVED
    assert stored <= names, stored - names
    records = {
        RowKind.RUN: (Execution, {"duration": "", "queue_wait": "queue_wait_us"}),
        RowKind.LOG: (LogEntry, {}),
        RowKind.ALERT: (Alert, {}),
        RowKind.BATCH: (BatchRecord, {}),
        RowKind.BATCH_COST: (Cost, {"run_time": "run_time_us"}),
        RowKind.LIMIT: (
            Limit,
            {"name": "resource", "concurrent": "max_concurrent", "period": "period_us", "level": "tokens"},
        ),
        RowKind.BREAKER: (BreakerRecord, {"until": "open_until"}),
        RowKind.SIGNAL: (SignalSpec, {}),
        RowKind.FIRE: (FireRecord, {}),
        RowKind.SCHEDULE: (ScheduleSpec, {"jitter": "jitter_us"}),
        RowKind.EDGE: (Edge, {"condition": "condition_kind"}),
        # of a run whose code is still running, and nothing runs
        RowKind.BUSINESS_KEY: (Reservation, {"claim_id": "", "node_id": ""}),
    }
    for kind, (record, renamed) in records.items():
        have = {one.name for one in FIELDS[kind]}
        missing = {renamed.get(one.name, one.name) for one in fields(record)} - have - {""}
        assert not missing, (kind, missing)
    assert {one.name for one in fields(SignalRow)} == {"spec", "sent_at", "taken_by"}
    assert {one.name for one in fields(FireRow)} == {"record", "recorded_at"}
    assert {one.name for one in fields(ScheduleRecord)} == {"spec", *mongo._RECORDED}
    assert {one.name for one in fields(Condition)} == {
        "kind",
        "predicate",
        "argument",
        "order",
        "description",
    }
    assert len(fields(StreamKey)) == 8, "a stream is moved by all fields of its key"
