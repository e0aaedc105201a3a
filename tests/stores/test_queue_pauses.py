"""Queues that are paused until a time, beside nodes of 0.1.0, which know of no time; and what it costs a claim."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet.stores.mongo.documents.values import micros
from ratchet.stores.mongo.store import MongoStore
from ratchet.stores.sql.database import Session
from tests.stores.sql_stores import KINDS, SqlSteps
from tests.stores.sql_transitions import intact

#: What 0.1.0 writes.
OLD_PAUSE = "UPDATE scheduler_queue SET paused = true, paused_at = :now WHERE queue = :queue AND NOT paused"
OLD_RESUME = "UPDATE scheduler_queue SET paused = false, paused_at = NULL WHERE queue = :queue AND paused"


@pytest.fixture(params=KINDS)
def steps(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlSteps]:
    with intact(request.param, request, tmp_path) as found:
        yield found


def by_old_code(steps: SqlSteps, statement: str) -> int:
    def write(session: Session) -> int:
        params = {"queue": "emails", "now": steps.now} if ":now" in statement else {"queue": "emails"}
        return session.execute(statement, params)

    return steps.store.database.run(write)


def test_a_pause_of_old_code_has_no_end(steps: SqlSteps) -> None:
    """A node of 0.1.0 resumed the queue early and paused it again: the time of the earlier pause does not open it."""
    steps.submit(queue="emails")
    steps.store.pause_queue("emails", now=steps.now, until=steps.after(hours=1))
    steps.advance(minutes=1)
    assert by_old_code(steps, OLD_RESUME) == 1
    assert by_old_code(steps, OLD_PAUSE) == 1
    (record,) = steps.store.queues()
    assert (record.paused, record.paused_at, record.paused_until) == (True, steps.now, None)
    assert steps.store.next_due_at(steps.request(), now=steps.now) is None
    steps.advance(hours=2)
    assert steps.claim() == []
    assert steps.store.resume_queue("emails", now=steps.now)
    assert len(steps.claim()) == 1


def test_a_pause_of_old_code_after_the_time(steps: SqlSteps) -> None:
    """The same where the time of the earlier pause has passed."""
    steps.submit(queue="emails")
    steps.store.pause_queue("emails", now=steps.now, until=steps.after(hours=1))
    steps.advance(hours=2)
    assert by_old_code(steps, OLD_RESUME) == 1
    assert by_old_code(steps, OLD_PAUSE) == 1
    assert steps.claim() == []


def test_a_pause_of_old_code_on_mongodb(mongodb_url: str) -> None:
    """There, too, what 0.1.0 writes has no end."""
    store = MongoStore(mongodb_url)
    store.migrate()
    now = store.database_time()
    store.pause_queue("emails", now=now, until=now.replace(year=now.year + 1))

    def write(collections):  # type: ignore[no-untyped-def] # only here
        queues = collections["scheduler_queue"]
        queues.update_one({"_id": "emails"}, {"$set": {"paused": False}, "$unset": {"paused_at": ""}})
        queues.update_one({"_id": "emails"}, {"$set": {"paused": True, "paused_at": micros(now) + 1}})

    store.database.write(write)
    (record,) = store.queues()
    assert (record.paused, record.paused_until) == (True, None)
    store.close()
