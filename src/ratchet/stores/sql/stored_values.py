"""The texts that a SQL store keeps, portion by portion, and others in their place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ratchet.model.stored_values import Place, ValueChange, ValueRow
from ratchet.stores.sql.database import Session, SqlPart


class _Texts(NamedTuple):
    """Where the texts of a place are: its table, the columns of its key, the texts, and what their context is made of."""

    table: str
    key: tuple[str, ...]
    texts: Mapping[str, str]  # column by field
    facts: Mapping[str, str]  # column by fact


_OF_JOB = {
    "payload": "payload",
    "params": "params",
    "state": "state",
    "signal": "signal",
    "result": "result",
    "error": "error",
    "progress": "progress_message",
}
_JOB = {"job_id": "job_id", "type": "job_type", "parent_id": "parent_id"}

_PLACES = {
    Place.JOBS: _Texts("scheduler_job", ("job_id",), _OF_JOB, _JOB),
    Place.ARCHIVE: _Texts("scheduler_job_archive", ("job_id",), _OF_JOB, _JOB),
    Place.RUNS: _Texts(
        "scheduler_job_execution",
        ("job_id", "claim_id"),
        {"error": "error", "traceback": "traceback"},
        {"job_id": "job_id"},
    ),
    Place.LOGS: _Texts(
        "scheduler_job_log",
        ("job_id", "claim_id", "sequence"),
        {"message": "message"},
        {"job_id": "job_id", "attempt": "attempt", "at": "logged_at"},
    ),
    Place.ALERTS: _Texts("scheduler_dlq_alert", ("alert_id",), {"error": "error"}, {"job_id": "job_id"}),
    Place.AUDIT: _Texts("scheduler_audit", ("audit_id",), {"reason": "reason"}, {"id": "audit_id"}),
    Place.SIGNALS: _Texts(
        "scheduler_signal",
        ("signal_id",),
        {"payload": "payload", "rejected": "rejected"},
        {"key": "signal_key"},
    ),
    Place.CONDITIONS: _Texts(
        "scheduler_workflow_condition",
        ("parent_id", "child_id"),
        {"argument": "argument"},
        {"parent_id": "parent_id", "child_id": "child_id"},
    ),
    Place.SCHEDULES: _Texts("scheduler_recurring_job", ("name",), {"template": "template"}, {"name": "name"}),
}


class SqlStoredValues(SqlPart):
    """Reads and swaps stored texts."""

    def value_rows(self, place: Place, *, after: Any = None, limit: int) -> list[ValueRow]:
        """The next rows of *place*, as they are stored."""
        where = _PLACES[place]
        columns = [*where.key, *where.texts.values(), *where.facts.values()]
        # A name for each: some columns are part of the key and of the context.
        selected = ", ".join(f"t.{column}" for column in dict.fromkeys(columns))
        beyond = "" if after is None else f" WHERE {_beyond(where.key)}"
        order = ", ".join(f"t.{column}" for column in where.key)
        sql = f"SELECT {selected} FROM {where.table} t{beyond} ORDER BY {order} LIMIT :most"
        given: dict[str, object] = {"most": limit}
        if after is not None:
            given |= {f"after_{column}": value for column, value in zip(where.key, after, strict=True)}
        names = list(dict.fromkeys(columns))
        rows = self.database.read(lambda session: session.rows(sql, given))
        return [_row(where, dict(zip(names, row, strict=True))) for row in rows]

    def swap_values(self, place: Place, changes: Sequence[ValueChange]) -> int:
        """Put texts in the place of others that still stand there; how many rows that changed."""
        where = _PLACES[place]
        return self.change(lambda session: sum(_swap(session, where, change) for change in changes))


def _row(where: _Texts, values: Mapping[str, Any]) -> ValueRow:
    return ValueRow(
        key=tuple(values[column] for column in where.key),
        texts={
            field: values[column] for field, column in where.texts.items() if isinstance(values[column], str)
        },
        facts={fact: values[column] for fact, column in where.facts.items()},
    )


def _beyond(key: Sequence[str]) -> str:
    """Rows after a key. The first part lets every product begin in the index; row values would not on MySQL."""
    first, *rest = key
    deeper = f"t.{first} > :after_{first}"
    if not rest:
        return deeper
    return f"t.{first} >= :after_{first} AND ({deeper} OR (t.{first} = :after_{first} AND {_beyond(rest)}))"


def _swap(session: Session, where: _Texts, change: ValueChange) -> int:
    given: dict[str, object] = {
        f"key_{column}": value for column, value in zip(where.key, change.key, strict=True)
    }
    for field, text in change.before.items():
        given[f"old_{where.texts[field]}"] = text
    for field, text in change.after.items():
        given[f"new_{where.texts[field]}"] = text
    columns = [where.texts[field] for field in change.after]
    compared = [where.texts[field] for field in change.before]
    texts = ", ".join(f"{column} = :new_{column}" for column in columns)
    conditions = [
        *(f"{column} = :key_{column}" for column in where.key),
        *(f"{column} = :old_{column}" for column in compared),
    ]
    return session.execute(f"UPDATE {where.table} SET {texts} WHERE {' AND '.join(conditions)}", given)
