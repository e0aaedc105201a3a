"""
One job as one document: what was submitted, and what has become of it.

``due_at`` is what the claim compares: the later of the job's own time and the time it is held back to.
``links`` and ``deadline_at`` are there for their indexes (see `Link`).
``stream_id`` changes when a job becomes a suspect or is parked; ``home_stream_id`` is then the stream it
was submitted to. ``has_dependants`` and ``has_conditions`` save the look at edges that most jobs do not
have. ``rev`` is raised by transactions that decide about a job without changing it (see `work`).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from types import NoneType
from typing import Any, Final
from uuid import UUID

from bson.int64 import Int64

from ratchet.model.claim import JobBody
from ratchet.model.job import JobSpec, Progress, SignalWait, StreamKey
from ratchet.model.status import BackoffPolicy, JobStatus, JobType, Priority
from ratchet.stores.memory.rows import Row
from ratchet.stores.mongo.documents.values import Coder, Document, duration_of, length, micros, time_of
from ratchet.stores.unreadable import shown

#: What no rule looks at, and what can be large.
WITHOUT_BODY: Final = {"payload": 0, "state": 0}


class Link:
    """Kinds of links."""

    TAG: Final = "tag"
    ROOT: Final = "root"
    BATCH: Final = "batch"
    PARENT: Final = "parent"
    SCHEDULE: Final = "schedule"
    BUSINESS_KEY: Final = "key"
    SIGNAL: Final = "signal"  # while the job waits for it


def link(kind: str, to: UUID | str) -> str:
    """How a job is found by what it belongs to."""
    return f"{kind}:{to}"


KeyOf = Callable[[int], StreamKey]

_AS_IS: Final = (None, None)
_TIME: Final = (micros, time_of)
_LENGTH: Final = (length, duration_of)
_NAMES: Final = (list, tuple)

#: Fields of the spec: name, how it is written and read, what is left out.
_SPEC: Final[dict[str, tuple[Coder | None, Coder | None, Any]]] = {
    "target": (*_AS_IS, NotImplemented),
    "payload": (*_AS_IS, NotImplemented),
    "type": (lambda kind: kind.value, JobType, JobType.SINGLE),
    "priority": (int, Priority, NotImplemented),
    "expires_at": (*_TIME, None),
    "max_retries": (*_AS_IS, 0),
    "backoff": (lambda policy: policy.value, BackoffPolicy, BackoffPolicy.NONE),
    "backoff_base": (*_LENGTH, timedelta()),
    "jitter": (*_AS_IS, 0.0),
    "timeout": (*_LENGTH, None),
    "no_retry_for": (*_NAMES, ()),
    "params": (*_AS_IS, None),
    "tags": (lambda tags: sorted(set(tags)), tuple, ()),
    "idempotency_key": (*_AS_IS, None),
    "business_key": (*_AS_IS, None),
    "on_success": (*_AS_IS, None),
    "on_failure": (*_AS_IS, None),
    "parent_id": (*_AS_IS, None),
    "batch_id": (*_AS_IS, None),
    "schedule": (*_AS_IS, None),
    "caller": (*_AS_IS, None),
}

#: Fields of the row.
_ROW: Final[dict[str, tuple[Coder | None, Coder | None, Any]]] = {
    "stream_id": (*_AS_IS, NotImplemented),
    "status": (lambda status: status.value, JobStatus, NotImplemented),
    "created_at": (*_TIME, NotImplemented),
    "scheduled_at": (*_TIME, NotImplemented),
    "needs": (*_AS_IS, 0),
    "attempts": (*_AS_IS, 0),
    "crashes": (*_AS_IS, 0),
    "claim_id": (*_AS_IS, None),
    "claimed_at": (*_TIME, None),
    "node_id": (*_AS_IS, None),
    "held_claim_id": (*_AS_IS, None),
    "held_until": (*_TIME, None),
    "started_at": (*_TIME, None),
    "finished_at": (*_TIME, None),
    "error": (*_AS_IS, None),
    "error_type": (*_AS_IS, None),
    "result": (*_AS_IS, None),
    "result_truncated": (*_AS_IS, False),
    "state": (*_AS_IS, None),
    "signal": (*_AS_IS, None),
    "signal_due_at": (*_TIME, None),
    "expiry_due_at": (*_TIME, None),
    "paused_from": (lambda status: status.value, JobStatus, None),
    "superseded_by": (*_AS_IS, None),
    "canceled_reason": (*_AS_IS, None),
    "canceled_by": (*_AS_IS, None),
    "dead_letter_reason": (*_AS_IS, None),
    "dead_lettered_at": (*_TIME, None),
    "archived_at": (*_TIME, None),
}


#: Fields of a body that documents hold under the same name, and how they are read.
_BODY: Final[dict[str, Coder | None]] = {
    name: coders[1]
    for name, coders in (_SPEC | _ROW).items()
    if name in JobBody.__struct_fields__ and name != "expires_at"
}


def new_row(spec: JobSpec, stream_id: int, now: datetime) -> Row:
    """A job as it is when it has just been submitted, PENDING."""
    return Row(
        spec=spec,
        serial=0,
        root_id=spec.root_id or spec.job_id,
        stream_id=stream_id,
        stream=spec.stream,
        status=spec.status,
        created_at=now,
        scheduled_at=spec.scheduled_at,
        needs=spec.needs,
        expiry_due_at=spec.expires_at,
    )


def document_of(row: Row, home_stream_id: int) -> Document:
    """A job as it is stored."""
    spec = row.spec
    found: Document = {"_id": spec.job_id, "due_at": micros(row.due_at)}
    if row.root_id != spec.job_id:
        found["root_id"] = row.root_id
    for name, (encode, _, default) in _SPEC.items():
        value = getattr(spec, name)
        if value != default:
            found[name] = value if encode is None else encode(value)
    for name, (encode, _, default) in _ROW.items():
        value = getattr(row, name)
        if value is not default and value != default:
            found[name] = value if encode is None else encode(value)
    if home_stream_id != row.stream_id:
        found["home_stream_id"] = home_stream_id
    if spec.signal is not None:
        found["signal_key"] = spec.signal.key
        if spec.signal.deadline is not None:
            found["signal_deadline"] = micros(spec.signal.deadline)
    if row.progress is not None:
        found |= _progress(row.progress)
    return found | _looked_up(row)


def changes_of(before: Row, after: Row, home_stream_id: int) -> Document:
    """The update that turns one into the other; empty where nothing has changed. Of the spec only the priority and the stream change."""
    sets: Document = {}
    gone: Document = {}
    for name, (encode, _, default) in _ROW.items():
        value = getattr(after, name)
        if value is getattr(before, name) or value == getattr(before, name):
            continue
        if value is default or value == default:
            gone[name] = ""
        else:
            sets[name] = value if encode is None else encode(value)
    if after.spec.signal is not None or before.expiry_due_at != after.expiry_due_at:
        was, now = _looked_up(before), _looked_up(after)
        for name in ("links", "deadline_at"):
            if name in now and now[name] != was.get(name):
                sets[name] = now[name]
            elif name in was and name not in now:
                gone[name] = ""
    if after.spec.priority != before.spec.priority:
        sets["priority"] = int(after.spec.priority)
    if before.due_at != after.due_at:
        sets["due_at"] = micros(after.due_at)
    if before.stream_id != after.stream_id or before.spec.stream is not after.spec.stream:
        if home_stream_id != after.stream_id:
            sets["home_stream_id"] = home_stream_id
        else:
            gone["home_stream_id"] = ""
    if after.progress is not None and after.progress != before.progress:
        sets |= _progress(after.progress)
        if after.progress.message is None:
            gone["progress_message"] = ""
    elif after.progress is None and before.progress is not None:
        gone |= {"progress": "", "progress_message": ""}
    update: Document = {}
    if sets:
        update["$set"] = sets
    if gone:
        update["$unset"] = gone
    return update


MOST: Final = 2**31 - 1  # attempts; the columns of the other stores have no more
_INTS: Final[frozenset[type]] = frozenset({int, Int64})
_TEXT: Final[frozenset[type]] = frozenset({str, NoneType})
#: The BSON types of fields that are taken as they are; those of the others follow from how they are read.
_TYPES: Final[dict[str, frozenset[type]]] = {
    **dict.fromkeys(("attempts", "crashes", "max_retries", "needs", "stream_id", "home_stream_id", "priority"), _INTS),
    **dict.fromkeys(("created_at", "scheduled_at", "due_at"), _INTS),
    **dict.fromkeys(
        ("expires_at", "claimed_at", "held_until", "started_at", "finished_at", "signal_due_at", "signal_deadline",
         "expiry_due_at", "dead_lettered_at", "archived_at", "timeout", "backoff_base"),
        _INTS | {NoneType},
    ),
    **dict.fromkeys(("jitter",), _INTS | {float}),
    **dict.fromkeys(("progress",), _INTS | {float, NoneType}),
    **dict.fromkeys(("target", "payload", "type", "backoff", "status"), frozenset({str})),
    **dict.fromkeys(
        ("params", "idempotency_key", "business_key", "on_success", "on_failure", "schedule", "caller", "node_id", "error",
         "error_type", "result", "state", "signal", "paused_from", "canceled_reason", "dead_letter_reason", "signal_key",
         "progress_message"),
        _TEXT,
    ),
    **dict.fromkeys(
        ("parent_id", "batch_id", "claim_id", "held_claim_id", "superseded_by", "canceled_by", "root_id"),
        frozenset({UUID, NoneType}),
    ),
    **dict.fromkeys(("result_truncated", "has_conditions", "has_dependants"), frozenset({bool})),
    **dict.fromkeys(("no_retry_for", "tags"), frozenset({list})),
}  # fmt: skip
_ENUMS: Final = frozenset({"type", "backoff", "status", "paused_from"})
#: What stands for a field that must be there.
_INSTEAD: Final[Document] = {
    "target": "",
    "payload": "",
    "priority": int(Priority.NORMAL),
    "stream_id": 0,
    "status": JobStatus.PENDING.value,
    "created_at": 0,
    "scheduled_at": 0,
    "due_at": 0,
}
_COUNTS: Final = frozenset({"attempts", "crashes", "max_retries", "timeout", "backoff_base"})


def is_sound(document: Document) -> bool:
    """True if each field has a type that it may have. Whether its value can be read shows when it is read."""
    types = _TYPES
    for name, stored in document.items():
        kinds = types.get(name)
        if kinds is not None and type(stored) not in kinds:
            return False
    return True


def salvaged(document: Document) -> tuple[Document, dict[str, str], bool]:
    """
    What can be read of *document*, the stored values of what cannot, and whether a newer version may have written them.

    A field that must be there and is not, or cannot be read, has a default.
    """
    found: Document = {}
    bad: dict[str, str] = {}
    newer = True
    for name, stored in document.items():
        if _can_be_read(name, stored):
            if stored is not None:  # null is what is left out
                found[name] = stored
        else:
            bad[name] = shown(stored)
            newer = newer and name in _ENUMS and type(stored) is str and stored.isidentifier()
    missing = [name for name in _INSTEAD if name not in document and name not in ("payload", "due_at")]
    bad |= dict.fromkeys(missing, "missing")
    return _INSTEAD | found, bad, newer and bool(bad) and not missing


def _can_be_read(name: str, stored: Any) -> bool:
    kinds = _TYPES.get(name)
    if kinds is None:
        return True
    if type(stored) not in kinds:
        return False
    if stored is None:
        return True
    if name in _COUNTS and stored < 0:
        return False
    if name in ("attempts", "crashes") and stored >= MOST:
        return False
    if name == "jitter" and not 0 <= stored <= 1:
        return False
    if name in ("no_retry_for", "tags"):
        return all(type(one) is str for one in stored)
    decode = (_ROW.get(name) or _SPEC.get(name) or (None, time_of if name.endswith("_at") else None, None))[1]
    try:
        if decode is not None:
            decode(stored)
    except (ValueError, TypeError, OverflowError):
        return False
    return True


def row_of(document: Document, key_of: KeyOf) -> Row:
    """The job of a document, as far as it can be read; fields that were not read have their default."""
    if is_sound(document):
        try:
            row = _row_of(document, key_of)
            if 0 <= row.attempts < MOST and 0 <= row.crashes < MOST:
                return row
        except (ValueError, TypeError, OverflowError, KeyError):
            pass
    return _row_of(salvaged(document)[0], key_of)


def _row_of(document: Document, key_of: KeyOf) -> Row:
    spec: dict[str, Any] = {}
    row: dict[str, Any] = {}
    for name, stored in document.items():
        if (coders := _ROW.get(name)) is not None:
            row[name] = stored if coders[1] is None else coders[1](stored)
        elif (coders := _SPEC.get(name)) is not None:
            spec[name] = stored if coders[1] is None else coders[1](stored)
    job_id: UUID = document["_id"]
    stream = key_of(row["stream_id"])
    home = document.get("home_stream_id")
    spec.setdefault("payload", "")
    signal_key = document.get("signal_key")
    if signal_key is not None:
        deadline = document.get("signal_deadline")
        spec["signal"] = SignalWait(key=signal_key, deadline=None if deadline is None else time_of(deadline))
    fraction = document.get("progress")
    if fraction is not None:
        row["progress"] = Progress(fraction=fraction, message=document.get("progress_message"))
    return Row(
        spec=JobSpec(
            job_id=job_id,
            scheduled_at=row["scheduled_at"],
            stream=stream if home is None else key_of(home),
            **spec,
        ),
        serial=job_id.int,
        root_id=document.get("root_id", job_id),
        stream=stream,
        **row,
    )


def body_of(document: Document, key_of: KeyOf) -> JobBody:
    """What a worker needs of a claimed job. Body and document leave out the same defaults."""
    stream = key_of(document["stream_id"])
    fields = {
        name: stored if (decode := _BODY[name]) is None else decode(stored)
        for name, stored in document.items()
        if name in _BODY
    }
    job_id: UUID = document["_id"]
    if "expiry_due_at" in document:  # only what has never started may still expire
        expires_at, deadline = time_of(document["expiry_due_at"]), document.get("deadline_at")
        # and only what `expire` finds, by its deadline: a worker would give any other job back to be claimed again, for ever
        if isinstance(deadline, int) and deadline <= document["expiry_due_at"]:
            fields["expires_at"] = expires_at
    return JobBody(
        job_id=job_id,
        root_id=document.get("root_id", job_id),
        queue=stream.queue,
        resource=stream.resource,
        limit_key=stream.limit_key,
        breaker=stream.breaker,
        fairness_key=stream.fairness_key,
        has_conditions=bool(document.get("has_conditions")),
        **fields,
    )


def _looked_up(row: Row) -> Document:
    """
    What the two indexes of a job's surroundings hold.

    When one index of a collection changes with a document, the server looks at all of them. So everything
    by which jobs are looked up, other than by the claim, shares one list of links and one deadline.
    """
    spec = row.spec
    links = [link(Link.TAG, tag) for tag in row.tags]
    if row.root_id != spec.job_id:
        links.append(link(Link.ROOT, row.root_id))
    if spec.batch_id is not None:
        links.append(link(Link.BATCH, spec.batch_id))
    if spec.parent_id is not None:
        links.append(link(Link.PARENT, spec.parent_id))
    if spec.schedule is not None:
        links.append(link(Link.SCHEDULE, spec.schedule))
    if spec.business_key is not None:
        links.append(link(Link.BUSINESS_KEY, spec.business_key))
    if row.awaits_signal and spec.signal is not None:
        links.append(link(Link.SIGNAL, spec.signal.key))
    found: Document = {"links": links} if links else {}
    deadlines = [at for at in (row.expiry_due_at, row.signal_due_at) if at is not None]
    if deadlines:
        found["deadline_at"] = micros(min(deadlines))
    return found


def _progress(progress: Progress) -> Document:
    found: Document = {"progress": progress.fraction}
    if progress.message is not None:
        found["progress_message"] = progress.message
    return found
