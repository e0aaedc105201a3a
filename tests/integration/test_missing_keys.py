"""A node without the keys of a job does not claim it, and a rewrap says which keys jobs need from now on; on every store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from ratchet import RESULT, JobContext, JobFilter, JobStatus, ManualClock, Options
from ratchet.contrib.encryption import Keyring
from ratchet.engine.poller import PARKED_INTERVAL
from ratchet.model.places import keys_of, parked_at
from ratchet.stores.sealed.rewrap import StoredKeys
from ratchet.testing import ManualScheduler
from tests.integration import encryption_samples as samples
from tests.integration import outsiders
from tests.integration.conftest import Stores
from tests.integration.encryption_samples import SECRET
from tests.integration.test_encryption import NEW, OLD, OTHER, keyring, live

Make = Callable[..., ManualScheduler]
HERE = __name__
during: list[Callable[[], object]] = []


def echo(value: str) -> str:
    return value


def meanwhile(value: str) -> str:
    """Something happens while its first attempt runs."""
    if JobContext.current().attempt == 1:
        during.pop()()
        raise ValueError("again")
    return value


def leave(value: str) -> str:
    """Fails after a checkpoint."""
    ctx = JobContext.current()
    if ctx.attempt == 1:
        ctx.state["seen"] = value
        raise ValueError("again")
    return str(ctx.state["seen"])


@pytest.fixture
def make(stores: Stores, clock: ManualClock) -> Iterator[Make]:
    """Makes schedulers on one store, each a node of its own; *keys*: of its codec, None for none."""
    made: list[ManualScheduler] = []
    samples.got.clear()
    during.clear()

    def make(codec: Keyring | None, **given: Any) -> ManualScheduler:
        given.setdefault("allow", [HERE, samples.__name__])
        made.append(
            ManualScheduler(
                store=stores.open(), clock=clock, seed=len(made), codec=codec, options=Options(), **given
            )
        )
        return made[-1]

    yield make
    for one in made:
        one.close()


def only_old() -> Keyring:
    return keyring("old", old=OLD)


def only_new() -> Keyring:
    return keyring("new", new=NEW)


def rewrap(scheduler: ManualScheduler) -> None:
    for _ in StoredKeys(scheduler.store, portion=3).rewrap():
        pass


def keys_in_use(scheduler: ManualScheduler) -> set[str]:
    return {key for counts in StoredKeys(scheduler.store).count().values() for key in counts}


def place_of(scheduler: ManualScheduler, job_id: UUID) -> str | None:
    record = scheduler.store.get(job_id)
    assert record is not None
    return record.stream.parked_target


class TestNotClaimed:
    @pytest.mark.parametrize("codec", [None, "other"])
    def test_no_job_of_any_kind(self, make: Make, clock: ManualClock, codec: str | None) -> None:
        """After a full life of jobs and more submissions, a node without the key starts nothing, and asks for no value."""
        writer = make(keyring("old"))
        live(writer, clock)
        live_before = writer.jobs.count()
        lacking = make(None if codec is None else keyring("other", other=OTHER))
        store: Any = getattr(lacking.store, "inner", lacking.store)
        claimed: list[Any] = []
        claim = store.claim_next_batch

        def counting(request: Any, **given: Any) -> Any:
            found = claim(request, **given)
            claimed.extend(found)
            return found

        store.claim_next_batch = counting
        try:
            for _ in range(3):
                writer.enqueue(samples.fail, SECRET).on_failure(samples.noticed).submit()
                writer.enqueue(samples.take, SECRET).then(samples.take, RESULT).submit()
                clock.advance(timedelta(seconds=PARKED_INTERVAL + 1))
                assert lacking.drain() == 0
        finally:
            store.claim_next_batch = claim
        assert claimed == []
        assert writer.jobs.count() == live_before + 9
        assert writer.drain() > 0

    def test_a_node_with_the_key_takes_it_at_once(self, make: Make) -> None:
        """It need not find out first which places there are."""
        writer, runner = make(only_new()), make(only_new())
        assert runner.drain() == 0  # it has looked for parked jobs just now
        handle = writer.enqueue_now(echo, SECRET)
        assert runner.drain() == 1
        assert handle.result() == SECRET

    def test_a_key_and_a_function(self, make: Make, clock: ManualClock) -> None:
        """A node that has only one of them does not claim the job again and again; `explain` names both."""
        writer = make(only_new(), allow=[outsiders.__name__])
        handle = writer.enqueue_now(outsiders.is_welcome, 1)
        keyed, able = make(only_new()), make(None, allow=[outsiders.__name__])
        assert keyed.drain() == 1
        assert place_of(writer, handle.id) == parked_at("$key:new", f"{outsiders.__name__}:is_welcome")
        for _ in range(3):
            clock.advance(timedelta(seconds=PARKED_INTERVAL + 1))
            assert (keyed.drain(), able.drain()) == (0, 0)
        assert [reason.code for reason in able.explain(handle.id)] == ["parked", "no_key"]
        assert [reason.code for reason in keyed.explain(handle.id)] == ["parked"]
        assert [job.id for job in writer.jobs.find(JobFilter(parked=True))] == [handle.id]
        assert writer.drain() == 1
        assert handle.job().status is JobStatus.SUCCEEDED

    def test_a_checkpoint_of_another_key(self, make: Make, clock: ManualClock) -> None:
        """
        What a run adds with another key is met when the job is claimed: once, uncounted. Then the job needs both keys.

        This is the one case in which a node claims a job without having all of its keys.
        """
        writer = make(only_old())
        handle = writer.enqueue(leave, SECRET).with_max_retries(1).submit()
        both, lacking = make(keyring("new")), make(only_old())
        assert both.drain(1) == 1
        clock.advance(timedelta(seconds=60))
        assert lacking.drain() == 1
        assert keys_of(place_of(writer, handle.id)) == ("new", "old")
        clock.advance(timedelta(seconds=PARKED_INTERVAL + 1))
        assert lacking.drain() == 0
        assert [reason.code for reason in lacking.explain(handle.id)] == ["no_key"]
        assert both.drain() == 1
        assert (both.handle(handle.id).result(), handle.job().attempts) == (SECRET, 2)


class TestRewrap:
    def test_the_new_key_is_enough(self, make: Make, clock: ManualClock) -> None:
        """
        Jobs of the old key that wait, are paused, wait for others, or have failed: nodes with the new one alone run them.

        They need no list of retired keys; the old key is named nowhere any more.
        """
        old = make(only_old())
        pending = old.enqueue_now(echo, SECRET)
        delayed = old.enqueue(echo, SECRET).with_delay(100).submit()
        paused = old.enqueue_now(echo, SECRET)
        old.pause_job(paused.id)
        signaled = old.enqueue(echo, SECRET).await_signal("go").submit()
        chain = old.enqueue(echo, SECRET).with_delay(50).then(echo, RESULT).submit()
        failed = old.enqueue_now(samples.fail, SECRET)
        running = old.enqueue_now(echo, SECRET)
        assert old.jobs.count(JobFilter(statuses=[JobStatus.PENDING])) == 5
        new = make(only_new())
        assert new.drain() == 0
        rewrap(make(keyring("new")))
        assert keys_in_use(new) == {"new"}
        new.resume_job(paused.id)
        new.signal("go")
        clock.advance(timedelta(seconds=200))
        new.drain()
        assert new.retry_job(failed.id)
        assert new.drain() == 1
        for handle in (pending, delayed, paused, signaled, chain, chain.last, running):
            assert new.handle(handle.id).result() == SECRET
        assert new.jobs.get(failed.id).attempts == 1
        assert old.drain() == 0

    def test_stopped_between_values_and_streams(self, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
        """Killed there, it leaves jobs that ask for a key too many; the next rewrap comes by, though their values are done."""
        handle = make(only_old()).enqueue_now(echo, SECRET)
        both, new = make(keyring("new")), make(only_new())
        store: Any = both.store
        with monkeypatch.context() as patch:
            patch.setattr(store.inner, "set_keys", lambda keys: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                rewrap(both)
        assert new.drain() == 0
        assert [reason.code for reason in new.explain(handle.id)] == ["no_key"]
        assert "old" in keys_in_use(both)
        rewrap(both)
        assert keys_in_use(both) == {"new"}
        assert new.drain() == 1
        assert new.handle(handle.id).result() == SECRET

    def test_a_job_that_runs_meanwhile(self, make: Make, clock: ManualClock) -> None:
        """Its next attempt is still where the old key is asked for, and `keys status` says so until the next rewrap."""
        both, new = make(keyring("new")), make(only_new())
        handle = make(only_old()).enqueue(meanwhile, SECRET).with_max_retries(1).submit()
        during.append(lambda: rewrap(both))
        assert both.drain(1) == 1
        clock.advance(timedelta(seconds=60))
        assert keys_in_use(both) == {"new", "old"}
        assert new.drain() == 0
        rewrap(both)
        assert keys_in_use(both) == {"new"}
        assert new.drain() == 1
        assert new.handle(handle.id).result() == SECRET

    def test_the_introduction(self, make: Make) -> None:
        """A job that was submitted in plain text and is encrypted now is left alone by nodes that have no codec."""
        bare, new = make(None), make(only_new())
        handle = bare.enqueue_now(echo, SECRET)
        rewrap(new)
        assert bare.drain() == 0
        assert new.drain() == 1
        assert new.handle(handle.id).result() == SECRET
