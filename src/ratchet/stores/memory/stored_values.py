"""The texts that the in-memory store keeps, and others in their place."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import is_dataclass
from dataclasses import replace as dataclass_replace
from typing import Any, NamedTuple
from uuid import UUID

from msgspec.structs import replace

from ratchet.model.job import StreamKey
from ratchet.model.places import with_keys
from ratchet.model.status import JobStatus
from ratchet.model.stored_values import Place, ValueChange, ValueRow
from ratchet.stores.memory.state import Part, State, atomic
from ratchet.stores.memory.tables import Table

#: The names on the way from a row to a value in it.
_Path = tuple[str, ...]


class _Texts(NamedTuple):
    """Where the texts of a place are."""

    table: Callable[[State], Table[Any, Any]]
    texts: dict[str, _Path]
    facts: dict[str, _Path]


_OF_JOB: dict[str, _Path] = {
    "payload": ("spec", "payload"),
    "params": ("spec", "params"),
    **{name: (name,) for name in ("state", "signal", "result", "error")},
    "progress": ("progress", "message"),
}
_JOB: dict[str, _Path] = {
    "job_id": ("job_id",),
    "type": ("spec", "type"),
    "parent_id": ("spec", "parent_id"),
    "place": ("spec", "stream", "parked_target"),
    "queued_at": ("stream", "parked_target"),
}
_PLACES = {
    Place.JOBS: _Texts(lambda state: state.jobs, _OF_JOB, _JOB),
    Place.ARCHIVE: _Texts(lambda state: state.jobs, _OF_JOB, _JOB),
    Place.RUNS: _Texts(
        lambda state: state.executions,
        {"error": ("error",), "traceback": ("traceback",)},
        {"job_id": ("job_id",)},
    ),
    Place.LOGS: _Texts(
        lambda state: state.logs,
        {"message": ("message",)},
        {"job_id": ("job_id",), "attempt": ("attempt",), "at": ("at",)},
    ),
    Place.ALERTS: _Texts(lambda state: state.alerts, {"error": ("error",)}, {"job_id": ("job_id",)}),
    Place.AUDIT: _Texts(lambda state: state.audit, {"reason": ("reason",)}, {"id": ("id",)}),
    Place.SIGNALS: _Texts(
        lambda state: state.signals,
        {"payload": ("spec", "payload"), "rejected": ("spec", "rejected")},
        {"key": ("spec", "key")},
    ),
    Place.CONDITIONS: _Texts(
        lambda state: state.edges,
        {"argument": ("condition", "argument")},
        {"parent_id": ("parent_id",), "child_id": ("child_id",)},
    ),
    Place.SCHEDULES: _Texts(
        lambda state: state.schedules, {"template": ("spec", "template")}, {"name": ("spec", "name")}
    ),
}


class MemoryStoredValues(Part):
    """Reads and swaps stored texts."""

    @atomic
    def value_rows(self, place: Place, *, after: Any = None, limit: int) -> list[ValueRow]:
        where = _PLACES[place]
        rows = sorted(
            (
                (key, row)
                for key, row in where.table(self._state).items()
                if (after is None or _order(key) > _order(after)) and _is_at(place, row)
            ),
            key=lambda found: _order(found[0]),
        )
        return [_row(where, key, row) for key, row in rows[:limit]]

    @atomic
    def swap_values(self, place: Place, changes: Sequence[ValueChange]) -> int:
        where, changed = _PLACES[place], 0
        table = where.table(self._state)
        for change in changes:
            row = table.get(change.key)
            if row is None or not _is_at(place, row):
                continue
            if any(_at(row, where.texts[field]) != text for field, text in change.before.items()):
                continue
            for field, text in change.after.items():
                row = _with(row, where.texts[field], text)
            table.put(change.key, row)
            changed += 1
        return changed

    @atomic
    def set_keys(self, keys: Mapping[UUID, Collection[str]]) -> int:
        return set_keys(self._state, keys)


def set_keys(state: State, keys: Mapping[UUID, Collection[str]]) -> int:
    """Move jobs to the places of these keys; how many were changed."""
    changed = 0
    for job_id in sorted(keys, key=lambda job_id: job_id.int):
        row = state.jobs.get(job_id)
        if row is None or row.archived_at is not None:
            continue
        fields: dict[str, Any] = {"spec": replace(row.spec, stream=_at_keys(row.spec.stream, keys[job_id]))}
        if row.status is not JobStatus.RUNNING:
            stream = _at_keys(row.stream, keys[job_id])
            fields |= {"stream": stream, "stream_id": state.stream(stream)}
        after = replace(row, **fields)
        if after.stream == row.stream and after.spec.stream == row.spec.stream:
            continue
        state.jobs.put(job_id, after)
        if after.status is JobStatus.PENDING:
            state.backdated(after.stream_id)
        changed += 1
    return changed


def _at_keys(stream: StreamKey, keys: Collection[str]) -> StreamKey:
    return replace(stream, parked_target=with_keys(stream.parked_target, keys))


def _is_at(place: Place, row: Any) -> bool:
    """Jobs and the archive are one table here."""
    if place is Place.JOBS or place is Place.ARCHIVE:
        return (row.archived_at is not None) is (place is Place.ARCHIVE)
    return True


def _order(key: Any) -> tuple[str, ...]:
    return tuple(map(str, key)) if isinstance(key, tuple) else (str(key),)


def _row(where: _Texts, key: Any, row: Any) -> ValueRow:
    texts = {field: _at(row, path) for field, path in where.texts.items()}
    return ValueRow(
        key=key,
        texts={field: text for field, text in texts.items() if isinstance(text, str)},
        facts={fact: _at(row, path) for fact, path in where.facts.items()},
    )


def _at(row: Any, path: _Path) -> Any:
    for name in path:
        row = getattr(row, name, None)
    return row


def _with(row: Any, path: _Path, text: str) -> Any:
    name, *rest = path
    value: Any = _with(getattr(row, name), tuple(rest), text) if rest else text
    if is_dataclass(row) and not isinstance(row, type):
        return dataclass_replace(row, **{name: value})
    return replace(row, **{name: value})
