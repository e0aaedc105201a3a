"""
Successes of jobs whose end means nothing for others. Most runs end like this, so this must be the cheapest end.

The jobs are not read first. One update for all jobs of a claim compares the claim's token, and that nothing
else follows from the end of any of them; another command writes their runs, in the same transaction. Where
the update does not find all jobs as they were claimed, the transaction is aborted and the rules decide about
each job.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from pymongo import UpdateMany

from ratchet.model.claim import JobClaim
from ratchet.model.cluster import resources_of
from ratchet.model.decision import Completion, Succeed
from ratchet.model.job import ExecutionStatus
from ratchet.model.status import JobStatus
from ratchet.stores.mongo.documents.values import Document, micros
from ratchet.stores.mongo.schema import Names

if TYPE_CHECKING:
    from ratchet.stores.mongo.database import Database
    from ratchet.stores.mongo.transaction.work import Work

#: Characters of results that one command takes; the server takes no command above 48 MB, and no value above 16.
RESULTS: Final = 1_000_000

_POSITION: Final = "_position"  # only while the server computes the update
#: What a job no longer has once it has succeeded.
_GONE: Final = (
    "claim_id",
    "claimed_at",
    "held_claim_id",
    "held_until",
    "expiry_due_at",
    "signal_due_at",
    "deadline_at",
    "paused_from",
    "error",
    "error_type",
    _POSITION,
)
_REMOVE: Final = "$$REMOVE"


#: Fields of a job whose end means something for others: for its batch, for its key, for jobs that wait for it.
LINK_FIELDS: Final = ("batch_id", "business_key", "has_dependants")
_NOT_LINKED: Final = dict.fromkeys(LINK_FIELDS)
#: Linked jobs that are remembered; those whose run was taken away are forgotten when others push them out.
_REMEMBERED: Final = 20_000


class LinkedJobs:
    """
    Jobs that were claimed here and are linked to others.

    Only a guess that saves a try: the server checks it when a job is ended as one without links.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._linked: dict[int, None] = {}

    def claimed(self, documents: Iterable[Document]) -> None:
        """Jobs as they are claimed; their documents hold at least the `LINK_FIELDS`."""
        linked = [one["_id"].int for one in documents if any(name in one for name in LINK_FIELDS)]
        if linked:
            with self._lock:
                self._linked.update(dict.fromkeys(linked))
                for number in list(self._linked)[: max(0, len(self._linked) - _REMEMBERED)]:
                    del self._linked[number]

    def forget(self, job_ids: Iterable[UUID]) -> None:
        """Jobs whose run has ended."""
        with self._lock:
            for job_id in job_ids:
                self._linked.pop(job_id.int, None)

    def has(self, job_id: UUID) -> bool:
        """True where the job is known to be linked."""
        return job_id.int in self._linked


class NotPlain(Exception):
    """A claim no longer holds its job, or the job is linked to others: abort the transaction."""


def plain_successes(database: Database, completions: Sequence[Completion]) -> list[Completion]:
    """Those of *completions* that are probably such successes; none where a job is named twice."""
    found = [one for one in completions if _looks_plain(database, one)]
    if not found or len({one.claim.job_id.int for one in completions}) < len(completions):
        return []
    size = sum(len(one.decision.result or "") for one in found if isinstance(one.decision, Succeed))
    return found if size <= RESULTS else []


def write_successes(work: Work, completions: Sequence[Completion], *, now: datetime) -> None:
    """End the jobs of these runs as SUCCEEDED; `NotPlain` where that is not all there is to do."""
    by_claim: dict[UUID, list[Completion]] = {}
    for one in completions:
        by_claim.setdefault(one.claim.claim_id, []).append(one)
    updates = [
        UpdateMany(_held(claim_id, [one.claim.job_id for one in runs]), _succeeded(runs, now))
        for claim_id, runs in by_claim.items()
    ]
    done = work.write(Names.JOBS, lambda jobs: jobs.bulk_write(updates, session=work.session))
    if done.matched_count != len(completions):
        raise NotPlain
    runs = [_run(one, now) for one in completions]
    work.write(Names.EXECUTIONS, lambda them: them.insert_many(runs, ordered=False, session=work.session))


def _looks_plain(database: Database, one: Completion) -> bool:
    return (
        type(one.decision) is Succeed
        and one.started_at is not None
        and not (one.still_running or one.verdicts or one.callback is not None or one.state is not None)
        and not database.linked_jobs.has(one.claim.job_id)
        and _takes_no_permit(database, one.claim)
    )


def _takes_no_permit(database: Database, claim: JobClaim) -> bool:
    key = database.streams.known_key(claim.stream_id)
    return key is not None and not resources_of(key)


def _held(claim_id: UUID, job_ids: Iterable[UUID]) -> Document:
    """The jobs that the claim still holds; the server goes by their ids, because no other index has a running job's."""
    running = {"status": JobStatus.RUNNING.value, **_NOT_LINKED}
    return {"_id": {"$in": list(job_ids)}, "claim_id": claim_id, **running}  # fence


def _succeeded(completions: Sequence[Completion], now: datetime) -> list[Document]:
    """The update: each job finds its own values at its position among the ids."""
    results = [one.decision for one in completions if isinstance(one.decision, Succeed)]
    values: Document = {
        "status": JobStatus.SUCCEEDED.value,
        "attempts": {"$add": [{"$ifNull": ["$attempts", 0]}, 1]},
        "rev": {"$add": [{"$ifNull": ["$rev", 0]}, 1]},
        "started_at": _own([_started(one) for one in completions]),
        "finished_at": _own([micros(one.finished_at or now) for one in completions]),
        "result": _own([one.result for one in results]),
        "result_truncated": _own([one.truncated or None for one in results]),
    }
    ids = {"$literal": [one.claim.job_id for one in completions]}
    return [
        {
            "$set": {_POSITION: {"$indexOfArray": [ids, "$_id"]}}
        },  # the server makes a table of a constant list
        {"$set": values},
        {"$unset": list(_GONE)},
    ]


def _own(values: Sequence[Any]) -> Any:
    """The expression that gives each job its own of these values; None leaves the field out."""
    if all(value == values[0] for value in values):
        return _REMOVE if values[0] is None else {"$literal": values[0]}
    return {"$ifNull": [{"$arrayElemAt": [{"$literal": list(values)}, f"${_POSITION}"]}, _REMOVE]}


def _run(one: Completion, now: datetime) -> Document:
    """The run's own document, as `RUNS` would write it; all from the claim, which holds the job."""
    claim = one.claim
    started, finished = _started(one), micros(one.finished_at or now)
    return {
        "_id": {"job_id": claim.job_id, "claim_id": claim.claim_id},
        "attempt": claim.attempt,
        "node_id": claim.node_id,
        "started_at": started,
        "finished_at": finished,
        "duration": max(finished - started, 0),
        "queue_wait": max(started - micros(claim.scheduled_at), 0),
        "status": ExecutionStatus.SUCCEEDED,
        "counted": True,
    }


def _started(one: Completion) -> int:
    assert one.started_at is not None
    return micros(one.started_at)
