"""Moving values to the active key: every value of every place, one by one, on every store."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from ratchet import ConfigurationError, JobFilter, JobStatus, ManualClock
from ratchet.contrib.encryption import Keyring
from ratchet.model.stored_values import Place, ValueChange
from ratchet.stores.sealed.rewrap import PLAIN, StoredKeys, Tally
from ratchet.stores.sealed.seals import of_job
from ratchet.testing import ManualScheduler
from tests.integration import encryption_samples as samples
from tests.integration.conftest import Stores
from tests.integration.encryption_samples import SECRET
from tests.integration.test_encryption import NEW, OLD, OPTIONS, keyring, live
from tests.integration.test_tampering import damaged


def scheduler_of(stores: Stores, clock: ManualClock, codec: Keyring | None, seed: int) -> ManualScheduler:
    return ManualScheduler(store=stores.open(), clock=clock, seed=seed, codec=codec, options=OPTIONS)


def rewrapped(scheduler: ManualScheduler, portion: int = 3) -> Tally:
    return [Tally(), *StoredKeys(scheduler.store, portion=portion).rewrap()][-1]


def keys_of(scheduler: ManualScheduler) -> dict[str, set[str]]:
    return {place: set(counts) for place, counts in StoredKeys(scheduler.store, portion=3).count().items()}


@pytest.mark.parametrize("before", ["plain", "old"])
def test_every_value_of_every_place(stores: Stores, clock: ManualClock, before: str) -> None:
    """After a full life of jobs, archive included, each value has the active key, and all of them are read as before."""
    samples.got.clear()
    first = scheduler_of(stores, clock, None if before == "plain" else keyring("old", old=OLD), 0)
    handles = live(first, clock)
    clock.advance(timedelta(hours=3))
    first.drain()
    now = clock.now()
    assert first.store.archive(before=now - timedelta(hours=2), limit=1000, now=now) > 5
    everything = JobFilter(include_archived=True)
    shown = {job.id: job.to_dict() for job in first.jobs.find(everything, limit=1000)}
    second = scheduler_of(stores, clock, keyring("new"), 1)
    counted = keys_of(second)
    assert all(counted[place.value] for place in Place), counted
    tally = rewrapped(second)
    assert (tally.unreadable, tally.no_key, tally.missed) == (0, 0, 0)
    assert {key for keys in keys_of(second).values() for key in keys} == {"new"}

    only_new = scheduler_of(stores, clock, keyring("new", new=NEW), 2)
    assert {job.id: job.to_dict() for job in only_new.jobs.find(everything, limit=1000)} == shown
    assert rewrapped(only_new).moved == 0
    assert only_new.handle(handles["kept"].id).job().args == (SECRET,)
    samples.got.clear()
    clock.advance(timedelta(hours=1))
    only_new.drain()
    assert ("take", SECRET) in samples.got  # the schedule's run


def test_a_change_by_others_wins(stores: Stores, clock: ManualClock) -> None:
    """A row that has another value by the time of the swap is left alone, and met in the next pass."""
    old = scheduler_of(stores, clock, keyring("old"), 0)
    handle = old.enqueue_now(samples.take, SECRET)
    store: Any = old.store
    (row,) = store.inner.value_rows(Place.JOBS, limit=10)
    change = ValueChange(key=row.key, before={"payload": "another"}, after={"payload": "lost"})
    assert store.inner.swap_values(Place.JOBS, [change]) == 0
    assert handle.job().args == (SECRET,)


def test_a_change_between_reading_and_writing(
    stores: Stores, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a node writes at that moment is not overwritten: the rewrap misses it, and moves it in its next pass."""
    old = scheduler_of(stores, clock, keyring("old"), 0)
    handle = old.enqueue_now(samples.take, SECRET)
    old.drain()
    new = scheduler_of(stores, clock, keyring("new"), 1)
    inner: Any = new.store.inner  # type: ignore[attr-defined]  # the sealed store's
    read = inner.value_rows
    newer = sealed_result(old, handle.id, '"newer"')

    def read_and_lose(place: Place, **given: Any) -> Any:
        rows = read(place, **given)
        if place is Place.JOBS and rows:
            monkeypatch.setattr(inner, "value_rows", read)
            before = {"result": rows[0].texts["result"]}
            change = ValueChange(key=rows[0].key, before=before, after={"result": newer})
            assert inner.swap_values(place, [change]) == 1
        return rows

    monkeypatch.setattr(inner, "value_rows", read_and_lose)
    tally = rewrapped(new)
    assert (tally.missed, tally.unreadable) == (1, 0)
    assert new.handle(handle.id).result() == "newer"
    assert {key for keys in keys_of(new).values() for key in keys} == {"new"}


def sealed_result(scheduler: ManualScheduler, job_id: UUID, text: str) -> str:
    """*text* as a node with this scheduler's keys would store it."""
    store: Any = scheduler.store
    return str(store.seals.seal(text, of_job(job_id, "result")))


def test_what_cannot_be_opened_stays(stores: Stores, clock: ManualClock) -> None:
    """It is counted; the other values move."""
    old = scheduler_of(stores, clock, keyring("old"), 0)
    bad, good = (old.enqueue_now(samples.take, SECRET) for _ in range(2))
    store: Any = old.store
    row = next(row for row in store.inner.value_rows(Place.JOBS, limit=10) if row.facts["job_id"] == bad.id)
    text = damaged(row.texts["payload"])
    store.inner.swap_values(
        Place.JOBS,
        [ValueChange(key=row.key, before={"payload": row.texts["payload"]}, after={"payload": text})],
    )
    lacking = scheduler_of(stores, clock, Keyring(active="x", keys={"x": NEW}), 2)
    tally = rewrapped(lacking)
    assert (tally.moved, tally.no_key, tally.missing) == (0, 2, {"old"})
    new = scheduler_of(stores, clock, keyring("new"), 1)
    tally = rewrapped(new)
    assert (tally.moved, tally.unreadable) == (1, 1)
    assert new.jobs.get(good.id).args == (SECRET,)


def test_jobs_that_waited_for_a_retired_key(stores: Stores, clock: ManualClock) -> None:
    """Parked for a key that is gone after a rewrap: a node that names it as retired runs them."""
    old = scheduler_of(stores, clock, keyring("old"), 0)
    handle = old.enqueue_now(samples.take, SECRET)
    only_new = scheduler_of(stores, clock, keyring("new", new=NEW), 1)
    only_new.drain()
    assert [reason.code for reason in only_new.explain(handle.id)] == ["no_key"]
    rewrapped(scheduler_of(stores, clock, keyring("new"), 2))
    retired = Keyring(active="new", keys={"new": NEW}, retired=["old"])
    last = scheduler_of(stores, clock, retired, 3)
    last.drain()
    assert last.handle(handle.id).job().status is JobStatus.SUCCEEDED


def test_without_a_codec_there_are_no_keys(stores: Stores, clock: ManualClock) -> None:
    """The error says how to get some."""
    with pytest.raises(ConfigurationError, match="Keyring"):
        StoredKeys(scheduler_of(stores, clock, None, 0).store)
    assert PLAIN
