"""A strict keyring: once everything is encrypted, a value in plain text was put there by somebody else, and reaches no code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from ratchet import RESULT, ConfigurationError, JobStatus, ManualClock, call
from ratchet.contrib.encryption import Keyring
from ratchet.model.callbacks import failure_facts
from ratchet.model.errors import UnreadablePayload
from ratchet.model.payload import encode
from ratchet.model.stored_values import Place
from ratchet.stores.sealed.rewrap import StoredKeys
from ratchet.stores.sealed.values import is_told_by_store
from ratchet.testing import ManualScheduler
from tests.integration import encryption_samples as samples
from tests.integration.conftest import Stores
from tests.integration.encryption_samples import SECRET
from tests.integration.test_encryption import NEW, OLD, live
from tests.integration.test_tampering import rows, write

PLANTED = "planted"

#: Values are opened around the store. What a store writes by itself is written by one of two: SQL, or the rules that MongoDB shares with memory.
on_two = pytest.mark.parametrize("stores", ["memory", "sqlite"], indirect=True)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    samples.got.clear()


def strict() -> Keyring:
    return Keyring(active="new", keys={"new": NEW, "old": OLD}, strict=True)


@pytest.fixture
def scheduler(stores: Stores, clock: ManualClock) -> Iterator[ManualScheduler]:
    made = ManualScheduler(store=stores.open(), clock=clock, codec=strict())
    yield made
    made.close()


def unreadable(scheduler: ManualScheduler) -> set[Any]:
    return {letter.job_id for letter in scheduler.dead_letters.find() if letter.reason == "unreadable"}


@on_two
def test_a_full_life_is_as_ever(scheduler: ManualScheduler, clock: ManualClock) -> None:
    """Nothing that Ratchet itself stores is refused: also what a store tells a callback, and what it says of a signal that did not come."""
    handles = live(scheduler, clock)
    assert not unreadable(scheduler)
    assert len([one for one in samples.got if one[0] == "failed"]) == 2  # one by the worker, one by the store
    assert ("take", [SECRET, SECRET]) in samples.got
    assert ("condition", SECRET, SECRET) in samples.got
    assert ("signal", {"by": SECRET}, None) in samples.got
    assert handles["later"].result() == SECRET
    assert all(job.unreadable == {} for job in scheduler.jobs.find(limit=1000))
    *_, tally = StoredKeys(scheduler.store).rewrap()
    assert tally.unreadable == 0


@on_two
@pytest.mark.parametrize("field", ["payload", "params"])
def test_planted_arguments(scheduler: ManualScheduler, field: str) -> None:
    """The job becomes a dead letter, its function is not called, and listings name the value instead of showing it."""
    handle = scheduler.enqueue(samples.take, SECRET).with_param("card", SECRET).with_max_retries(3).submit()
    planted = encode((PLANTED,), {}) if field == "payload" else json.dumps({"card": PLANTED})
    write(scheduler, Place.JOBS, rows(scheduler, Place.JOBS)[handle.id], **{field: planted})
    job = handle.job()
    assert "plain text" in job.unreadable[field]
    assert PLANTED not in str(job.to_dict())
    scheduler.drain()
    assert unreadable(scheduler) == {handle.id}
    assert samples.got == []


@on_two
def test_a_planted_state_and_signal(scheduler: ManualScheduler, clock: ManualClock) -> None:
    """What a job would look at while it runs."""
    later = scheduler.enqueue_now(samples.later, SECRET)
    waiting = scheduler.enqueue(samples.signaled).await_signal("go").with_delay(timedelta(hours=1)).submit()
    scheduler.signal("go", {"by": SECRET})
    scheduler.drain()
    held = rows(scheduler, Place.JOBS)
    write(scheduler, Place.JOBS, held[later.id], state=json.dumps({"at": PLANTED}))
    signal = json.loads(held[waiting.id].texts["signal"])
    write(scheduler, Place.JOBS, held[waiting.id], signal=json.dumps({**signal, "payload": f'"{PLANTED}"'}))
    samples.got.clear()
    clock.advance(timedelta(hours=2))
    scheduler.drain()
    assert unreadable(scheduler) == {later.id, waiting.id}
    assert samples.got == []


@on_two
def test_a_planted_result(scheduler: ManualScheduler) -> None:
    """Neither `result()` nor a step that takes it gets it."""
    first = scheduler.enqueue_now(samples.take, SECRET)
    scheduler.drain()
    write(scheduler, Place.JOBS, rows(scheduler, Place.JOBS)[first.id], result=f'"{PLANTED}"')
    samples.got.clear()
    with pytest.raises(UnreadablePayload, match="plain text"):
        first.result()
    step = scheduler.join([first.id]).then(samples.take, RESULT).submit()
    scheduler.drain()
    assert samples.got == []
    assert step.job().status is JobStatus.FAILED


@on_two
def test_a_planted_schedule_fires_nothing(scheduler: ManualScheduler, clock: ManualClock) -> None:
    """It would otherwise be encrypted with each run, and look like one of ours."""
    for name in ("bad", "good"):
        scheduler.schedule_recurring("0 * * * *", call(samples.take, name), name=name)
    row = next(row for row in rows(scheduler, Place.SCHEDULES).values() if "bad" in str(row.key))
    template = json.loads(row.texts["template"])
    template["payload"] = encode((PLANTED,), {})
    write(scheduler, Place.SCHEDULES, row, template=json.dumps(template))
    assert len(scheduler.schedules.list()) == 2
    clock.advance(timedelta(hours=1))
    scheduler.drain()
    assert samples.got == [("take", "good")]


@on_two
def test_a_planted_condition(scheduler: ManualScheduler) -> None:
    """The argument of a branch: the branch's job fails, and its condition is not asked."""
    scheduler.enqueue(samples.say, SECRET).when(call(samples.is_secret, SECRET), samples.take, 1).submit()
    (row,) = rows(scheduler, Place.CONDITIONS).values()
    write(scheduler, Place.CONDITIONS, row, argument=encode((PLANTED,), {}))
    scheduler.drain()
    assert not [one for one in samples.got if one[0] in ("condition", "take")]
    assert scheduler.jobs.counts()[JobStatus.FAILED] == 1


@pytest.mark.parametrize("stores", ["memory"], indirect=True)
def test_a_rewrap_makes_nothing_of_it(scheduler: ManualScheduler) -> None:
    """It counts it as unreadable, and does not encrypt it for whoever put it there."""
    handle = scheduler.enqueue_now(samples.take, SECRET)
    planted = encode((PLANTED,), {})
    write(scheduler, Place.JOBS, rows(scheduler, Place.JOBS)[handle.id], payload=planted)
    *_, tally = StoredKeys(scheduler.store).rewrap()
    assert tally.unreadable == 1
    assert rows(scheduler, Place.JOBS)[handle.id].texts["payload"] == planted


def test_what_a_store_tells_a_callback() -> None:
    """Only the facts of a failure, in the form in which stores write them."""
    assert is_told_by_store(failure_facts("it crashed", "Crash", "crashed", 3))
    assert is_told_by_store(encode((), {}))
    for payload in (
        encode((PLANTED,), {}),
        encode(({"message": "m", "type": "t", "reason": "r", "attempts": 1, "more": 1},), {}),
        encode(({"message": "m", "type": "t", "reason": "r", "attempts": [PLANTED]},), {}),
        encode(({"message": [PLANTED], "type": "t", "reason": "r", "attempts": 1},), {}),
        encode(({"message": "m", "type": "t", "reason": "r", "attempts": 1},), {"given": PLANTED}),
        "nonsense",
    ):
        assert not is_told_by_store(payload)


def test_strict_is_a_yes_or_no(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys from elsewhere take it, too."""
    with pytest.raises(ConfigurationError, match="strict is True or False"):
        Keyring(active="new", keys={"new": NEW}, strict="no")  # type: ignore[arg-type]
    monkeypatch.setenv("RATCHET_KEYS", "new:" + "A" * 43 + "=")
    assert Keyring.from_environment(strict=True).refuses_plaintext
    assert not Keyring.from_environment().refuses_plaintext
