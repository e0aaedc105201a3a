"""
Documents as neutral rows (`ratchet.model.moves`), and back.

Records are read and written by the codecs that the nouns use, so that a field that one of them gains is seen by the test that compares
it with the fields of its kind. Jobs are written field by field: what is moved need not be valid to this version, as long as it can be stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from ratchet.model.cluster import BREAKER_GATE, BreakerRecord
from ratchet.model.composition import (
    BatchRecord,
    Condition,
    Edge,
    EdgeKind,
    EdgeState,
    FireOutcome,
    FireRecord,
    ScheduleRecord,
    ScheduleSpec,
    SignalSpec,
)
from ratchet.model.job import Alert, Execution, LogEntry, StreamKey
from ratchet.model.moves import FIELDS, NeutralRow, RowKind, has_ended, plain_stream, stream_of
from ratchet.model.status import BackoffPolicy, JobStatus, JobType
from ratchet.stores.memory.rows import Cost, FireRow, Limit, Reservation, SignalRow
from ratchet.stores.mongo.documents.jobs import Link, link
from ratchet.stores.mongo.documents.values import (
    ALERTS,
    BATCHES,
    BREAKERS,
    COSTS,
    EDGES,
    FIRES,
    LIMITS,
    RESERVATIONS,
    RUNS,
    SCHEDULES,
    SIGNALS,
    Codec,
    Document,
    duration_of,
    fire_identity,
    length,
    micros,
    time_of,
)
from ratchet.stores.mongo.schema import Names

LINES: Final = Codec(LogEntry, "job_id", "claim_id", "sequence")


class Copied(NamedTuple):
    """One collection as rows of a kind."""

    collection: str
    outward: Callable[[Document], NeutralRow]
    inward: Callable[[NeutralRow], Document]
    identity: Callable[[tuple[Any, ...]], Any]


def _only(key: tuple[Any, ...]) -> Any:
    return key[0]


def _parts(*names: str) -> Callable[[tuple[Any, ...]], Any]:
    return lambda key: dict(zip(names, key, strict=True))


def _time(value: int | None) -> datetime | None:
    return None if value is None else time_of(int(value))


def _length(value: timedelta | None) -> int | None:
    return None if value is None else length(value)


def _given(document: Mapping[str, Any]) -> Document:
    return {name: value for name, value in document.items() if value is not None}


# --- queues, limits, breakers --------------------------------------------------------------------

_PAUSES: Final = ("paused_at", "paused_until", "paused_until_of")


def _queue_out(document: Document) -> NeutralRow:
    times = {name: _time(document.get(name)) for name in _PAUSES}
    return {"queue": document["_id"], "paused": bool(document.get("paused")), **times}


def _queue_in(row: NeutralRow) -> Document:
    times = {name: None if row[name] is None else micros(row[name]) for name in _PAUSES}
    return _given({"_id": row["queue"], "paused": row["paused"], **times})


def _limit_out(document: Document) -> NeutralRow:
    limit = LIMITS.value(document)
    period = _length(limit.period)
    start = period if limit.name.startswith(BREAKER_GATE) else 1
    return {
        "resource": limit.name,
        "max_concurrent": limit.concurrent,
        "rate": limit.rate,
        "period_us": period,
        "tokens": None if limit.rate is None else limit.level / (start or 1),
        "refilled_at": limit.refilled_at,
        "asked_at": limit.asked_at,
    }


def _limit_in(row: NeutralRow) -> Document:
    start = row["period_us"] if row["resource"].startswith(BREAKER_GATE) else 1
    return LIMITS.document(
        Limit(
            name=row["resource"],
            concurrent=row["max_concurrent"],
            rate=row["rate"],
            period=None if row["period_us"] is None else duration_of(row["period_us"]),
            level=round((row["tokens"] or 0) * (start or 1)),
            refilled_at=row["refilled_at"],
            asked_at=row.get("asked_at"),
        )
    )


def _breaker_out(document: Document) -> NeutralRow:
    found = BREAKERS.value(document)
    return {
        "service": found.service,
        "state": found.state,
        "open_until": found.until,
        "document": found.document,
        "version": found.version,
    }


def _breaker_in(row: NeutralRow) -> Document:
    return BREAKERS.document(
        BreakerRecord(
            service=row["service"],
            state=row["state"],
            until=row["open_until"],
            document=row["document"],
            version=row["version"],
        )
    )


# --- schedules -----------------------------------------------------------------------------------


def _schedule_out(document: Document) -> NeutralRow:
    record = SCHEDULES.value(document)
    spec = record.spec
    return {
        **{name: getattr(spec, name) for name in _SCHEDULED},
        "jitter_us": length(spec.jitter),
        **{name: getattr(record, name) for name in _RECORDED},
    }


_SCHEDULED: Final = (
    "name", "expression", "zone", "target", "template", "misfire", "overlap", "starts_at", "ends_at", "declared",
)  # fmt: skip
_RECORDED: Final = ("paused", "next_fire_at", "last_fire_at", "created_at", "updated_at")


def _schedule_in(row: NeutralRow) -> Document:
    spec = ScheduleSpec(
        **{name: row[name] for name in _SCHEDULED},
        jitter=duration_of(row["jitter_us"]),
        next_fire_at=row["next_fire_at"],
    )
    record = ScheduleRecord(spec=spec, **{name: row[name] for name in _RECORDED})
    return {"_id": row["name"], **SCHEDULES.document(record)}


def _fire_out(document: Document) -> NeutralRow:
    fire = FIRES.value(document)
    record = fire.record
    return {
        "schedule": record.schedule,
        "fire_at": record.fire_at,
        "outcome": record.outcome.value,
        "job_id": record.job_id,
        "reason": record.reason,
        "recorded_at": fire.recorded_at,
    }


def _fire_in(row: NeutralRow) -> Document:
    record = FireRecord(
        schedule=row["schedule"],
        fire_at=row["fire_at"],
        outcome=FireOutcome(row["outcome"]),
        job_id=row["job_id"],
        reason=row["reason"],
    )
    fire = FireRow(record=record, recorded_at=row["recorded_at"])
    return {"_id": fire_identity((row["schedule"], row["fire_at"])), **FIRES.document(fire)}


# --- batches, edges, signals ---------------------------------------------------------------------

_BATCH: Final = tuple(one.name for one in FIELDS[RowKind.BATCH])


def _batch_out(document: Document) -> NeutralRow:
    record = BATCHES.value(document)
    return {name: getattr(record, name) for name in _BATCH}


def _batch_in(row: NeutralRow) -> Document:
    return BATCHES.document(BatchRecord(**{name: row[name] for name in _BATCH}))


def _cost_out(document: Document) -> NeutralRow:
    cost = COSTS.value(document)
    return {
        "batch_id": document["_id"],
        "runs": cost.runs,
        "run_time_us": length(cost.run_time),
        "started_at": cost.started_at,
    }


def _cost_in(row: NeutralRow) -> Document:
    cost = Cost(runs=row["runs"], run_time=duration_of(row["run_time_us"]), started_at=row["started_at"])
    return {"_id": row["batch_id"], **COSTS.document(cost)}


def _edge_out(document: Document) -> NeutralRow:
    edge = EDGES.value(document)
    condition = edge.condition
    return {
        "parent_id": edge.parent_id,
        "child_id": edge.child_id,
        "kind": edge.kind.value,
        "position": edge.position,
        "state": edge.state.value,
        "condition_kind": None if condition is None else condition.kind,
        "predicate": None if condition is None else condition.predicate,
        "argument": None if condition is None else condition.argument,
        "eval_order": None if condition is None else condition.order,
        "description": None if condition is None else condition.description,
    }


def _edge_in(row: NeutralRow) -> Document:
    condition = None
    if row["condition_kind"] is not None:
        condition = Condition(
            kind=row["condition_kind"],
            predicate=row["predicate"],
            argument=row["argument"],
            order=row["eval_order"] or 0,
            description=row["description"],
        )
    return EDGES.document(
        Edge(
            parent_id=row["parent_id"],
            child_id=row["child_id"],
            kind=EdgeKind(row["kind"]),
            position=row["position"],
            condition=condition,
            state=EdgeState(row["state"]),
        )
    )


def _signal_out(document: Document) -> NeutralRow:
    signal = SIGNALS.value(document)
    spec = signal.spec
    return {
        "signal_id": spec.signal_id,
        "key": spec.key,
        "job_id": spec.job_id,
        "payload": spec.payload,
        "rejected": spec.rejected,
        "sent_at": signal.sent_at,
        "keep_until": spec.keep_until,
        "consumed_by": signal.taken_by[0] if signal.taken_by else None,
    }


def _signal_in(row: NeutralRow) -> Document:
    spec = SignalSpec(
        signal_id=row["signal_id"],
        key=row["key"],
        payload=row["payload"],
        job_id=row["job_id"],
        rejected=row["rejected"],
        keep_until=row["keep_until"],
    )
    taken = () if row["consumed_by"] is None else (row["consumed_by"],)
    return {
        "_id": row["signal_id"],
        **SIGNALS.document(SignalRow(spec=spec, sent_at=row["sent_at"], taken_by=taken)),
    }


# --- keys ----------------------------------------------------------------------------------------


def _business_key_out(document: Document) -> NeutralRow:
    held = RESERVATIONS.value(document)
    return {"business_key": document["_id"], "job_id": held.job_id, "reserved_at": held.reserved_at}


def _business_key_in(row: NeutralRow) -> Document:
    held = Reservation(job_id=row["job_id"], reserved_at=row["reserved_at"])
    return {"_id": row["business_key"], **RESERVATIONS.document(held)}


def _idempotency_key_out(document: Document) -> NeutralRow:
    return {"idempotency_key": document["_id"], "job_id": document["job_id"]}


def _idempotency_key_in(row: NeutralRow) -> Document:
    return {"_id": row["idempotency_key"], "job_id": row["job_id"]}


# --- history -------------------------------------------------------------------------------------

_RUN: Final = tuple(
    one.name for one in FIELDS[RowKind.RUN] if one.name not in ("queue_wait_us", "scheduled_at")
)
_LINE: Final = tuple(one.name for one in FIELDS[RowKind.LOG])
_ALERT: Final = tuple(one.name for one in FIELDS[RowKind.ALERT])


def _run_out(document: Document) -> NeutralRow:
    run = RUNS.value(document)
    return {**{name: getattr(run, name) for name in _RUN}, "queue_wait_us": _length(run.queue_wait)}


def _run_in(row: NeutralRow) -> Document:
    start, end, wait = row["started_at"], row["finished_at"], row["queue_wait_us"]
    took = None if start is None or end is None else max(end - start, timedelta())
    return RUNS.document(
        Execution(
            **{name: row[name] for name in _RUN},
            duration=took,
            queue_wait=None if wait is None else duration_of(wait),
        )
    )


def _line_out(document: Document) -> NeutralRow:
    entry = LINES.value(document)
    return {name: getattr(entry, name) for name in _LINE}


def _line_in(row: NeutralRow) -> Document:
    return LINES.document(LogEntry(**{name: row[name] for name in _LINE}))


def _alert_out(document: Document) -> NeutralRow:
    alert = ALERTS.value(document)
    return {name: getattr(alert, name) for name in _ALERT}


def _alert_in(row: NeutralRow) -> Document:
    return ALERTS.document(Alert(**{name: row[name] for name in _ALERT}))


def _flow_out(document: Document) -> NeutralRow:
    key = document["_id"]
    return {
        "seconds": int(key["seconds"]),
        "begins_at": time_of(key["at"]),
        "source": key["source"],
        "document": document["document"],
    }


def _flow_in(row: NeutralRow) -> Document:
    key = (row["seconds"], row["begins_at"], row["source"])
    return {"_id": _flow_identity(key), "document": row["document"]}


def _flow_identity(key: tuple[Any, ...]) -> Document:
    return {"seconds": key[0], "at": micros(key[1]), "source": key[2]}


#: What an entry's document calls a field otherwise.
_AUDIT: Final = {"criteria": "filter", "affected": "count"}
_AUDITED: Final = tuple(
    one.name for one in FIELDS[RowKind.AUDIT] if one.name not in ("audit_id", "audited_at")
)


def _audit_out(document: Document) -> NeutralRow:
    return {
        "audit_id": document["_id"],
        "audited_at": time_of(document["at"]),
        **{name: document.get(_AUDIT.get(name, name)) for name in _AUDITED},
    }


def _audit_in(row: NeutralRow) -> Document:
    fields = {_AUDIT.get(name, name): row[name] for name in _AUDITED}
    return _given({"_id": row["audit_id"], "at": micros(row["audited_at"]), **fields})


COLLECTIONS: Final[dict[RowKind, Copied]] = {
    RowKind.QUEUE: Copied(Names.QUEUES, _queue_out, _queue_in, _only),
    RowKind.LIMIT: Copied(Names.LIMITS, _limit_out, _limit_in, _only),
    RowKind.BREAKER: Copied(Names.BREAKERS, _breaker_out, _breaker_in, _only),
    RowKind.SCHEDULE: Copied(Names.SCHEDULES, _schedule_out, _schedule_in, _only),
    RowKind.FIRE: Copied(Names.FIRES, _fire_out, _fire_in, lambda key: fire_identity((key[0], key[1]))),
    RowKind.BATCH: Copied(Names.BATCHES, _batch_out, _batch_in, _only),
    RowKind.BATCH_COST: Copied(Names.BATCH_METRICS, _cost_out, _cost_in, _only),
    RowKind.SIGNAL: Copied(Names.SIGNALS, _signal_out, _signal_in, _only),
    RowKind.EDGE: Copied(Names.DEPENDENCIES, _edge_out, _edge_in, _parts("parent_id", "child_id")),
    RowKind.BUSINESS_KEY: Copied(Names.BUSINESS_KEYS, _business_key_out, _business_key_in, _only),
    RowKind.IDEMPOTENCY_KEY: Copied(Names.IDEMPOTENCY_KEYS, _idempotency_key_out, _idempotency_key_in, _only),
    RowKind.RUN: Copied(Names.EXECUTIONS, _run_out, _run_in, _parts("job_id", "claim_id")),
    RowKind.LOG: Copied(Names.LOGS, _line_out, _line_in, _parts("job_id", "claim_id", "sequence")),
    RowKind.ALERT: Copied(Names.ALERTS, _alert_out, _alert_in, _only),
    RowKind.FLOW: Copied(Names.FLOW, _flow_out, _flow_in, _flow_identity),
    RowKind.AUDIT: Copied(Names.AUDIT, _audit_out, _audit_in, _only),
}

# --- jobs ----------------------------------------------------------------------------------------

JOBS: Final = {RowKind.JOB: Names.JOBS, RowKind.ARCHIVED_JOB: Names.ARCHIVE}

#: The field of a document, where it has another name.
_RENAMED: Final = {"job_type": "type", "backoff_base_us": "backoff_base", "timeout_us": "timeout"}
_TYPE_OF: Final = {one.name: one.type for one in FIELDS[RowKind.ARCHIVED_JOB]}
#: What is put together from several fields.
_OTHERWISE: Final = ("job_id", "root_id", "stream", "current", "scheduled_at", "tags", "held_at")
#: What a document leaves out.
_DEFAULTS: Final[NeutralRow] = {
    "job_type": JobType.SINGLE.value,
    "backoff": BackoffPolicy.NONE.value,
    "max_retries": 0,
    "backoff_base_us": 0,
    "jitter": 0.0,
    "needs": 0,
    "attempts": 0,
    "crashes": 0,
    "has_dependants": False,
    "has_conditions": False,
    "result_truncated": False,
}
#: Fields of a document that follow from others, or belong to a claim; they are made anew or left.
DERIVED: Final = frozenset(
    {"due_at", "links", "deadline_at", "rev", "stream_id", "home_stream_id", "claim_id", "claimed_at", "held_claim_id"}
    | {"held_until"}
)  # fmt: skip


def job_out(document: Document, kind: RowKind, key_of: Callable[[int], StreamKey]) -> NeutralRow:
    """The job of a document."""
    row: NeutralRow = {}
    for one in FIELDS[kind]:
        name = one.name
        if name not in _OTHERWISE:
            stored = document.get(_RENAMED.get(name, name))
            if stored is None:
                row[name] = _DEFAULTS.get(name)
            elif one.type == "time":
                row[name] = time_of(int(stored))
            elif one.type == "int":
                row[name] = int(stored)
            elif one.type == "real":
                row[name] = float(stored)
            else:
                row[name] = stored
    current = int(document["stream_id"])
    home = int(document.get("home_stream_id", current))
    waits = row["status"] in (JobStatus.PENDING, JobStatus.RUNNING)
    row["job_id"] = document["_id"]
    row["root_id"] = document.get("root_id", document["_id"])
    row["scheduled_at"] = time_of(int(document["due_at"] if waits else document["scheduled_at"]))
    row["stream"] = plain_stream(key_of(home))
    row["current"] = plain_stream(key_of(current)) if waits and current != home else None
    row["tags"] = sorted(document.get("tags", ()))
    row["no_retry_for"] = row["no_retry_for"] or None
    if not has_ended(row):
        row["node_id"] = None
    if row["status"] == JobStatus.RUNNING:
        row["status"] = JobStatus.PENDING.value
    return row


def job_in(row: NeutralRow, id_of: Callable[[StreamKey], int]) -> Document:
    """The document of a job."""
    home = id_of(stream_of(row["stream"]))
    current = home if row["current"] is None else id_of(stream_of(row["current"]))
    due = micros(row["scheduled_at"])
    found: Document = {"_id": row["job_id"], "due_at": due, "scheduled_at": due, "stream_id": current}
    if current != home:
        found["home_stream_id"] = home
    if row["root_id"] != row["job_id"]:
        found["root_id"] = row["root_id"]
    for name, value in row.items():
        if name in _OTHERWISE or value is None or value == _DEFAULTS.get(name, NotImplemented):
            continue
        found[_RENAMED.get(name, name)] = micros(value) if _TYPE_OF[name] == "time" else value
    if row["tags"]:
        found["tags"] = row["tags"]
    if row["progress"] is None:
        found.pop("progress_message", None)
    waits = _awaits_signal(row)
    if waits and row["signal_due_at"] is not None:
        found["signal_deadline"] = micros(row["signal_due_at"])
    if links := _links(row, awaits=waits):
        found["links"] = links
    if deadlines := [at for at in (found.get("expiry_due_at"), found.get("signal_due_at")) if at is not None]:
        found["deadline_at"] = min(deadlines)
    return found


def _awaits_signal(row: NeutralRow) -> bool:
    return row["status"] == JobStatus.WAITING and row["signal_key"] is not None and row["signal"] is None


def _links(row: NeutralRow, *, awaits: bool) -> list[str]:
    """What `documents.jobs` writes for its one index of a job's surroundings, in its order."""
    links = [link(Link.TAG, tag) for tag in row["tags"] or ()]
    if row["root_id"] != row["job_id"]:
        links.append(link(Link.ROOT, row["root_id"]))
    for kind, name in (
        (Link.BATCH, "batch_id"),
        (Link.PARENT, "parent_id"),
        (Link.SCHEDULE, "schedule"),
        (Link.BUSINESS_KEY, "business_key"),
    ):
        if row[name] is not None:
            links.append(link(kind, row[name]))
    if awaits:
        links.append(link(Link.SIGNAL, row["signal_key"]))
    return links
