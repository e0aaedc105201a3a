"""The audit log: the entry of a verb is written in the transaction of the change, once, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from ratchet.model.audit import AuditEntry, AuditFilter
from ratchet.model.cluster import BreakerRecord, NodeRequest
from ratchet.model.errors import InvalidJob
from ratchet.model.identifiers import new_id
from ratchet.model.job import JobFilter, LogEntry, SignalWait
from ratchet.model.status import JobStatus, Priority
from ratchet.model.stored_values import Place, ValueChange
from ratchet.spi.store import JobStore
from ratchet.spi.store.audit import PendingEntry, auditing
from ratchet.tck.contracts.transactions import rolled_back
from ratchet.tck.harness import Harness, needs
from ratchet.tck.sabotage import Situation, sabotage

TAG = "audited"
NODE = "gone"
SOON = timedelta(seconds=1)


@dataclass(frozen=True)
class Verb:
    """A change of the store: what it needs, the change itself, and how much it changes the first and the second time."""

    prepare: Callable[[Harness], Any]
    change: Callable[[Harness, JobStore, Any], object]
    counts: tuple[int, int] = (1, 0)


def _batch(harness: Harness) -> UUID:
    return harness.batch_of(2)[0].batch_id


def _failed_batch(harness: Harness) -> UUID:
    batch, _ = harness.batch_of(2)
    harness.end_all(harness.claim(), harness.failure())
    return batch.batch_id


def _schedule(harness: Harness) -> str:
    return harness.store.upsert_schedule(harness.schedule_spec(), now=harness.now).spec.name


def _paused_schedule(harness: Harness) -> str:
    name = _schedule(harness)
    harness.store.pause_schedule(name, now=harness.now)
    return name


def _two_ended(harness: Harness) -> None:
    for _ in range(2):
        harness.succeeded()


def _two_archived(harness: Harness) -> None:
    _two_ended(harness)
    assert harness.store.archive(before=harness.now + SOON, limit=9, now=harness.now) == 2


def _two_lines(harness: Harness) -> None:
    line = LogEntry(
        job_id=harness.submit(),
        claim_id=new_id(),
        sequence=1,
        attempt=1,
        at=harness.now,
        level="INFO",
        logger="shop",
        message="m",
    )
    harness.store.append_logs([line, replace(line, sequence=2)], now=harness.now)


def _breaker(version: int) -> Callable[[Harness, JobStore, Any], object]:
    return lambda harness, store, _: store.save_breaker(
        BreakerRecord(service="gateway", state="OPEN"), expected_version=version, now=harness.now
    )


VERBS: dict[str, Verb] = {
    "cancel": Verb(
        lambda harness: harness.submit(),
        lambda harness, store, job: store.cancel(job, reason="r", now=harness.now),
    ),
    "pause": Verb(
        lambda harness: harness.submit(),
        lambda harness, store, job: store.pause(job, now=harness.now),
        (1, 1),  # one that is paused stays so, which is what was asked for
    ),
    "resume": Verb(
        lambda harness: harness.paused(),
        lambda harness, store, job: store.resume(job, now=harness.now),
    ),
    "retry": Verb(
        lambda harness: harness.failed(),
        lambda harness, store, job: store.retry(job, now=harness.now),
    ),
    "reschedule": Verb(
        lambda harness: harness.submit(),
        lambda harness, store, job: store.reschedule(job, harness.after(hours=1), now=harness.now),
        (1, 1),
    ),
    "set priority": Verb(
        lambda harness: harness.submit(),
        lambda harness, store, job: store.set_priority(job, Priority.HIGH, now=harness.now),
        (1, 1),
    ),
    "replace": Verb(
        lambda harness: (harness.submit(), harness.spec()),
        lambda harness, store, both: store.replace(both[0], both[1], now=harness.now),
    ),
    "delete": Verb(
        lambda harness: harness.submit(),
        lambda harness, store, job: store.delete(job),
    ),
    "cancel matching": Verb(
        lambda harness: harness.submit_many(3, tags=(TAG,)),
        lambda harness, store, _: store.cancel_matching(
            JobFilter(tags=[TAG]), limit=2, reason="r", now=harness.now
        ),
        (2, 1),
    ),
    "retry matching": Verb(
        lambda harness: [harness.failed(tags=(TAG,)) for _ in range(2)],
        lambda harness, store, _: store.retry_matching(JobFilter(tags=[TAG]), limit=9, now=harness.now),
        (2, 0),
    ),
    "delete dead letters": Verb(
        lambda harness: [harness.failed(tags=(TAG,)) for _ in range(2)],
        lambda harness, store, _: store.delete_dead_letters(JobFilter(tags=[TAG]), limit=9),
        (2, 0),
    ),
    "cancel a batch": Verb(
        _batch,
        lambda harness, store, batch: store.cancel_batch(batch, reason="r", now=harness.now),
        (3, 0),
    ),
    "retry a batch": Verb(
        _failed_batch,
        lambda harness, store, batch: store.retry_failed(batch, now=harness.now),
        (2, 0),
    ),
    "signal": Verb(
        lambda harness: harness.waiting(signal=SignalWait(key="go")),
        lambda harness, store, _: store.send_signal(harness.signal("go"), now=harness.now),
    ),
    "new schedule": Verb(
        lambda harness: harness.schedule_spec(),
        lambda harness, store, spec: store.upsert_schedule(spec, now=harness.now),
        (1, 1),
    ),
    "pause a schedule": Verb(
        _schedule,
        lambda harness, store, name: store.pause_schedule(name, now=harness.now),
        (1, 1),
    ),
    "resume a schedule": Verb(
        _paused_schedule,
        lambda harness, store, name: store.resume_schedule(name, harness.after(hours=1), now=harness.now),
    ),
    "trigger a schedule": Verb(
        lambda harness: (_schedule(harness), harness.fire(at=harness.now)),
        lambda harness, store, both: store.trigger(both[0], both[1], now=harness.now),
        (1, 1),
    ),
    "remove a schedule": Verb(
        _schedule,
        lambda harness, store, name: store.remove_schedule(name),
    ),
    "pause a queue": Verb(
        lambda harness: None,
        lambda harness, store, _: store.pause_queue("emails", now=harness.now),
    ),
    "resume a queue": Verb(
        lambda harness: harness.store.pause_queue("emails", now=harness.now),
        lambda harness, store, _: store.resume_queue("emails", now=harness.now),
    ),
    "set a limit": Verb(
        lambda harness: None,
        lambda harness, store, _: store.set_limit("gateway", concurrent=2, now=harness.now),
        (1, 1),
    ),
    "remove a limit": Verb(
        lambda harness: harness.store.set_limit("gateway", concurrent=2, now=harness.now),
        lambda harness, store, _: store.remove_limit("gateway", now=harness.now),
    ),
    "open a breaker": Verb(lambda harness: None, _breaker(0)),
    "remove a node": Verb(
        lambda harness: harness.register(NODE),
        lambda harness, store, _: store.deregister(NODE, now=harness.now),
        (1, 1),
    ),
    "drain a node": Verb(
        lambda harness: harness.register(NODE),
        lambda harness, store, _: store.request_of_node(NODE, NodeRequest.DRAIN, now=harness.now),
        (1, 1),
    ),
    "stop a node that is gone": Verb(
        lambda harness: None,
        lambda harness, store, _: store.request_of_node(NODE, NodeRequest.STOP, now=harness.now),
        (0, 0),
    ),
    "archive": Verb(
        _two_ended,
        lambda harness, store, _: store.archive(before=harness.now + SOON, limit=9, now=harness.now),
        (2, 0),
    ),
    "purge the archive": Verb(
        _two_archived,
        lambda harness, store, _: store.purge_archive(before=harness.now + SOON, limit=9),
        (2, 0),
    ),
    "purge runs": Verb(
        _two_ended,
        lambda harness, store, _: store.purge_executions(before=harness.now + SOON, limit=9),
        (2, 0),
    ),
    "purge log lines": Verb(
        _two_lines,
        lambda harness, store, _: store.purge_logs(before=harness.now + SOON, limit=9),
        (2, 0),
    ),
}

#: Verbs that a store may answer without a transaction the second time; who calls it knows that nothing changes.
UNSURE = {"new schedule", "archive", "purge the archive", "purge runs", "purge log lines"}


def entry(harness: Harness, **changes: Any) -> AuditEntry:
    """An entry of Ann's."""
    values: dict[str, Any] = {
        "id": new_id(),
        "at": harness.now,
        "principal": "ann",
        "source": "api",
        "verb": "cancel",
    }
    return AuditEntry(**{**values, **changes})


def everything(harness: Harness) -> list[AuditEntry]:
    """All entries, newest first."""
    return harness.store.find_audit(AuditFilter(), limit=1000).items


class TestAuditedChanges:
    @pytest.mark.parametrize("name", VERBS)
    def test_one_entry_for_a_change(self, harness: Harness, name: str) -> None:
        """A change that is carried out for somebody leaves one entry, with how much it has changed."""
        verb = VERBS[name]
        subject = verb.prepare(harness)
        assert everything(harness) == []
        written: list[AuditEntry] = []
        for round_, count in enumerate(verb.counts[: 1 if name in UNSURE else 2]):
            pending = PendingEntry(
                entry(harness, at=harness.now + timedelta(seconds=round_), verb=name), many=True
            )
            with auditing(pending):
                verb.change(harness, harness.store, subject)
            assert pending.is_written
            assert pending.changed == count
            written.append(pending.entry(count))
        assert everything(harness) == written[::-1]

    @pytest.mark.parametrize("name", VERBS)
    def test_nothing_is_written_for_nobody(self, harness: Harness, name: str) -> None:
        """The engine's own calls leave no entry."""
        verb = VERBS[name]
        verb.change(harness, harness.store, verb.prepare(harness))
        assert everything(harness) == []

    def test_moved_values(self, harness: Harness) -> None:
        """Texts that are put in the place of others, where a store can do that: one entry, with how many rows were changed."""
        store: Any = getattr(harness.store, "inner", harness.store)  # behind a codec too
        job_id = harness.submit()
        rows = store.value_rows(Place.JOBS, limit=9) if hasattr(store, "swap_values") else []
        changes = [
            ValueChange(key=row.key, before={"payload": row.texts["payload"]}, after={"payload": "{}"})
            for row in rows
        ]
        pending = PendingEntry(entry(harness, object="keys"), many=True)
        with auditing(pending):
            changed = store.swap_values(Place.JOBS, changes) if rows else 0
        assert everything(harness) == ([pending.entry(1)] if changed else [])
        assert changed == len(rows)
        assert harness.status(job_id) is JobStatus.PENDING

    def test_one_entry_for_several_transactions(self, harness: Harness) -> None:
        """A verb that calls the store several times has one entry, whose count grows."""
        harness.submit_many(3, tags=(TAG,))
        pending = PendingEntry(entry(harness), many=True)
        with auditing(pending):
            for count in (1, 2, 3, 3):
                harness.store.cancel_matching(JobFilter(tags=[TAG]), limit=1, reason="r", now=harness.now)
                assert everything(harness) == [pending.entry(count)]

    def test_nothing_to_change_and_then_something(self, harness: Harness) -> None:
        """The outcome is that of all transactions together."""
        pending = PendingEntry(entry(harness), many=False)
        with auditing(pending):
            harness.store.cancel(new_id(), reason="r", now=harness.now)
            assert [one.outcome for one in everything(harness)] == ["unchanged"]
            harness.store.cancel(harness.submit(), reason="r", now=harness.now)
            assert [one.outcome for one in everything(harness)] == ["done"]

    def test_a_verb_that_is_refused_leaves_no_entry(self, harness: Harness) -> None:
        """What raises has changed nothing, and says nothing."""
        with auditing(PendingEntry(entry(harness), many=False)), pytest.raises(InvalidJob):
            harness.store.cancel_matching(JobFilter(), limit=1, reason="r", now=harness.now)
        assert everything(harness) == []

    @needs("transactions", "within")
    def test_with_the_callers_transaction(self, harness: Harness) -> None:
        """The entry is there when and only when the caller commits, like the change."""
        job_id = harness.submit()
        pending = PendingEntry(entry(harness, job_id=job_id), many=False)
        with rolled_back(harness.store) as connection, auditing(pending):
            harness.store.cancel(job_id, reason="r", now=harness.now, within=connection)
        assert everything(harness) == []
        pending = PendingEntry(entry(harness, job_id=job_id), many=False)
        with harness.store.begin() as connection, auditing(pending):
            harness.store.cancel(job_id, reason="r", now=harness.now, within=connection)
        assert everything(harness) == [pending.entry(1)]
        assert harness.status(job_id) is JobStatus.CANCELED

    @needs("transactions", "within")
    def test_by_itself_in_the_callers_transaction(self, harness: Harness) -> None:
        """An entry without a change goes with the caller's transaction, too."""
        refused = entry(harness, outcome="refused")
        with rolled_back(harness.store) as connection:
            harness.store.append_audit(refused, within=connection)
        assert everything(harness) == []
        with harness.store.begin() as connection:
            harness.store.append_audit(refused, within=connection)
        assert everything(harness) == [refused]


class AuditedCancellation(Situation):
    """Jobs are canceled for somebody, and the connection is lost."""

    def __init__(self, harness: Harness) -> None:
        self._harness = harness
        self._jobs = harness.submit_many(2, tags=(str(new_id()),))
        self._where = JobFilter(tags=list(harness.record(self._jobs[0]).tags))
        self._entry = entry(harness)

    def operate(self, store: JobStore) -> None:
        with auditing(PendingEntry(self._entry, many=True)):
            store.cancel_matching(self._where, limit=9, reason="r", now=self._harness.now)

    def is_done(self) -> bool:
        done = set(self._harness.statuses(self._jobs)) == {JobStatus.CANCELED}
        written = [one for one in everything(self._harness) if one.id == self._entry.id]
        assert [one.count for one in written] == ([2] if done else [])
        return done

    def repeat(self) -> None:
        self.operate(self._harness.store)


class AuditedPause(Situation):
    """A queue is closed for somebody, and the connection is lost."""

    def __init__(self, harness: Harness) -> None:
        self._harness = harness
        self._queue = str(new_id())
        self._entry = entry(harness, verb="pause")

    def operate(self, store: JobStore) -> None:
        with auditing(PendingEntry(self._entry, many=False)):
            store.pause_queue(self._queue, now=self._harness.now)

    def is_done(self) -> bool:
        queues = {queue.name for queue in self._harness.store.queues() if queue.paused}
        done = self._queue in queues
        written = [one.outcome for one in everything(self._harness) if one.id == self._entry.id]
        assert written == (["done"] if done else [])
        return done

    def repeat(self) -> None:
        self.operate(self._harness.store)


class TestAuditFaults:
    @pytest.mark.parametrize("situation", [AuditedCancellation, AuditedPause])
    def test_a_lost_connection_does_not_part_them(
        self, harness: Harness, situation: Callable[[Harness], Situation]
    ) -> None:
        """Whenever it is lost: the change and its entry are both there, or neither is; sent again, it is one entry."""
        assert sabotage(harness, lambda: situation(harness)) > 0


class TestAuditLog:
    def test_kept_as_it_was_written(self, harness: Harness) -> None:
        """Every field comes back, whatever is in the texts."""
        full = entry(
            harness,
            principal="ann ✓",
            source="dashboard",
            verb="cancel",
            job_id=new_id(),
            object="queue:e-mails/ö",
            filter={"tags": ["a", "b"], "queue": "x", "args": {"0": 42, "$a.b": None}},
            count=7,
            reason="because ' \" \\ \n 😀",
            outcome="refused",
        )
        bare = entry(harness, principal=None, at=harness.now - timedelta(seconds=1))
        harness.store.append_audit(full)
        harness.store.append_audit(bare)
        assert everything(harness) == [full, bare]

    def test_written_twice_is_one(self, harness: Harness) -> None:
        """An entry that is sent again because the answer was lost is there once."""
        one = entry(harness)
        harness.store.append_audit(one)
        harness.store.append_audit(one)
        assert everything(harness) == [one]

    def test_pages(self, harness: Harness) -> None:
        """Newest first, none twice and none left out, also where several have the same time."""
        entries = [entry(harness, at=harness.now + timedelta(seconds=index // 3)) for index in range(10)]
        for one in entries:
            harness.store.append_audit(one)
        found: list[AuditEntry] = []
        cursor: str | None = None
        for _ in range(4):
            page = harness.store.find_audit(AuditFilter(), limit=3, cursor=cursor)
            found += page.items
            cursor = page.next_cursor
        assert cursor is None
        assert found == sorted(entries, key=lambda one: (one.at, one.id), reverse=True)

    @pytest.mark.parametrize(
        "cursor", ["", "x", "2026-01-01T00:00:00 nobody", "0190a5d2-6c1f-7b3e-9a44-2f1c5f0c9e11"]
    )
    def test_a_cursor_of_something_else(self, harness: Harness, cursor: str) -> None:
        """It is refused, rather than taken for the beginning."""
        with pytest.raises(InvalidJob, match="not a cursor"):
            harness.store.find_audit(AuditFilter(), limit=3, cursor=cursor)

    def test_filters(self, harness: Harness) -> None:
        """Each criterion leaves what it says; together they all hold."""
        job_id, other = new_id(), new_id()
        later = harness.now + timedelta(minutes=1)
        first = entry(harness, job_id=job_id)
        second = entry(harness, principal="bob", source="cli", verb="pause", object="queue:a", at=later)
        third = entry(
            harness, principal=None, job_id=other, outcome="refused", at=later + timedelta(minutes=1)
        )
        for one in (first, second, third):
            harness.store.append_audit(one)

        def found(**criteria: Any) -> list[AuditEntry]:
            return harness.store.find_audit(AuditFilter(**criteria), limit=10).items

        assert found(principal="ann") == [first]
        assert found(source="cli") == [second]
        assert found(verb="cancel") == [third, first]
        assert found(job_id=job_id) == [first]
        assert found(object="queue:a") == [second]
        assert found(outcome="refused") == [third]
        assert found(after=later) == [third, second]
        assert found(before=later) == [first]
        assert found(after=later, before=later + timedelta(microseconds=1)) == [second]
        assert found(verb="cancel", principal="ann", job_id=other) == []

    def test_purged_oldest_first(self, harness: Harness) -> None:
        """At most so many at once, and none that is younger."""
        entries = [entry(harness, at=harness.now + timedelta(minutes=index)) for index in range(5)]
        assert harness.store.oldest_audit_at() is None
        for one in entries:
            harness.store.append_audit(one)
        before: datetime = entries[3].at
        assert harness.store.oldest_audit_at() == entries[0].at
        assert harness.store.purge_audit(before=before, limit=2) == 2
        assert everything(harness) == entries[:1:-1]
        assert harness.store.purge_audit(before=before, limit=2) == 1
        assert harness.store.purge_audit(before=before, limit=2) == 0
        assert everything(harness) == entries[:2:-1]
