"""With a codec, no store holds in plain text what jobs carry, and code gets all of it."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from ratchet import (
    RESULT,
    RESULTS,
    InvalidJob,
    JobFilter,
    JobStatus,
    JobType,
    Join,
    ManualClock,
    MissingKey,
    Options,
    Scheduler,
    call,
)
from ratchet.contrib.encryption import Keyring
from ratchet.model.errors import JobFailedError
from ratchet.testing import ManualScheduler
from tests.integration import encryption_samples as samples
from tests.integration.conftest import Stores
from tests.integration.dumps import dump
from tests.integration.encryption_samples import SECRET
from tests.support.store_urls import fresh_url
from tests.support.waiting import until

OLD, NEW, OTHER = os.urandom(32), os.urandom(32), os.urandom(32)
#: Retention short enough that a test can see the archive.
OPTIONS = Options(retention=timedelta(hours=1), dead_letter_retention=timedelta(days=2), result_limit=2_000)

Make = Callable[..., ManualScheduler]


@pytest.fixture(autouse=True)
def _fresh() -> None:
    samples.got.clear()
    logging.getLogger(samples.__name__).setLevel(logging.INFO)


@pytest.fixture
def make(stores: Stores, clock: ManualClock) -> Iterator[Make]:
    """Makes schedulers on one store, each a node of its own."""
    made: list[ManualScheduler] = []

    def make(**given: Any) -> ManualScheduler:
        given.setdefault("options", OPTIONS)
        made.append(ManualScheduler(store=stores.open(), clock=clock, seed=len(made), **given))
        return made[-1]

    yield make
    for one in made:
        one.close()


def keyring(active: str = "new", **keys: bytes) -> Keyring:
    return Keyring(active=active, keys=keys or {"new": NEW, "old": OLD})


def live(scheduler: ManualScheduler, clock: ManualClock) -> dict[str, Any]:
    """A full life of jobs with the secret in every place that there is."""
    handles: dict[str, Any] = {}
    enqueue = scheduler.enqueue
    handles["plain"] = (
        enqueue(samples.say, SECRET)
        .with_param("card", SECRET)
        .on_success(call(samples.succeeded, SECRET))
        .submit()
    )
    handles["chain"] = enqueue(samples.say, SECRET).then(samples.take, RESULT).submit()
    handles["many"] = scheduler.enqueue_many(samples.take, [(SECRET, n) for n in range(3)])[0]
    handles["kept"] = enqueue(samples.take, SECRET).with_delay(timedelta(days=300)).submit()
    handles["paused"] = enqueue(samples.take, SECRET).submit()
    scheduler.pause_job(handles["paused"].id)
    handles["failed"] = (
        enqueue(samples.fail, SECRET)
        .with_param("card", SECRET)
        .on_failure(call(samples.failed, SECRET))
        .submit()
    )
    handles["retried"] = enqueue(samples.fail_once, SECRET).with_max_retries(2).submit()
    handles["later"] = enqueue(samples.later, SECRET).submit()
    handles["large"] = enqueue(samples.large, SECRET).submit()
    handles["branched"] = (
        enqueue(samples.say, SECRET)
        .when(call(samples.is_secret, SECRET), samples.take, SECRET)
        .when(call(samples.broken, SECRET), samples.take, SECRET, order=1)
        .submit()
    )
    handles["join"] = (
        scheduler.join([enqueue(samples.say, SECRET), enqueue(samples.say, SECRET)], Join.ALL)
        .then(samples.take, RESULTS)
        .submit()
    )
    handles["batch"] = (
        scheduler.enqueue_batch("import")
        .for_each([SECRET, SECRET], samples.say)
        .then_on_batch_success(samples.take, SECRET)
        .submit()
    )
    handles["signaled"] = enqueue(samples.signaled).await_signal("go").submit()
    handles["early"] = scheduler.signal("early", {"by": SECRET})
    handles["rejected"] = enqueue(samples.signaled).await_signal("no").submit()
    handles["timed out"] = (
        enqueue(samples.signaled)
        .await_signal("never", timeout=timedelta(minutes=5))
        .with_param("card", SECRET)
        .on_failure(call(samples.failed, SECRET))
        .submit()
    )
    scheduler.schedule_recurring("0 * * * *", call(samples.take, SECRET), name="hourly")
    scheduler.signal("go", {"by": SECRET})
    scheduler.signal("no", rejected=f"{SECRET} is stolen")
    scheduler.drain()
    handles["caught"] = enqueue(samples.signaled).await_signal("early").submit()
    scheduler.signal("kept for later", {"by": SECRET})
    clock.advance(timedelta(minutes=10))
    scheduler.drain()
    clock.advance(timedelta(minutes=55))
    scheduler.drain()
    return handles


class TestStoredValues:
    def test_no_store_holds_a_secret(self, make: Make, clock: ManualClock) -> None:
        """After a full life of jobs, no table, collection or file has the secret in it; with no codec, all have."""
        scheduler = make(codec=keyring())
        live(scheduler, clock)
        assert SECRET not in dump(scheduler.store)
        clock.advance(timedelta(hours=3))
        scheduler.drain()
        now = clock.now()
        assert scheduler.store.archive(before=now - timedelta(hours=2), limit=1000, now=now) > 5
        held = dump(scheduler.store)
        assert SECRET not in held
        assert '"sealed"' in held or '\\"sealed\\"' in held

    def test_the_dump_would_show_it(self, make: Make, clock: ManualClock) -> None:
        """The same life without a codec leaves the secret in the dump: the dump looks everywhere."""
        scheduler = make()
        live(scheduler, clock)
        held = dump(scheduler.store)
        for place in (f"at {SECRET}", "stolen", "cannot charge", "cannot judge", "working on", "Traceback"):
            assert place in held
        assert held.count(SECRET) > 40

    def test_code_gets_all_of_it(self, make: Make, clock: ManualClock) -> None:
        """Arguments, params, state, results, signals, callbacks, conditions, joins, batches and schedules are as without a codec."""
        plain, sealed_got = make(), None
        del plain
        scheduler = make(codec=keyring())
        handles = live(scheduler, clock)
        sealed_got = samples.got
        assert ("say", SECRET, {"card": SECRET}, SECRET) in sealed_got
        assert ("succeeded", {"card": SECRET}, SECRET) in sealed_got
        assert ("take", SECRET) in sealed_got  # RESULT, and the schedule's run
        assert ("take", [SECRET, SECRET]) in sealed_got
        assert ("condition", SECRET, SECRET) in sealed_got
        assert ("signal", {"by": SECRET}, None) in sealed_got
        assert ("signal", None, f"{SECRET} is stolen") in sealed_got
        failures = [one for one in sealed_got if one[0] == "failed"]
        assert {one[2].split(":")[0] for one in failures} >= {"ValueError"}
        assert all(one[1] == {"card": SECRET} and one[3] == SECRET for one in failures)
        assert (
            len(failures) == 2
        )  # one callback by the worker, one by the store, for the signal that timed out
        assert handles["plain"].result() == handles["retried"].result() == handles["later"].result() == SECRET
        assert handles["batch"].results()
        assert SECRET in str(handles["batch"].results())
        assert handles["caught"].result() == {"by": SECRET}

    def test_people_with_the_key_see_it(self, make: Make, clock: ManualClock) -> None:
        """Jobs, runs, logs, progress, dead letters and alerts show what was stored."""
        scheduler = make(codec=keyring())
        handles = live(scheduler, clock)
        plain, failed = handles["plain"].job(), handles["failed"].job()
        assert (plain.args, plain.params, plain.result) == ((SECRET,), {"card": SECRET}, SECRET)
        assert plain.progress is not None
        assert plain.progress.message == f"at {SECRET}"
        assert plain.unreadable == {}
        assert [line.message for line in scheduler.jobs.logs(plain.id)] == [f"working on {SECRET}"]
        assert failed.error == f"ValueError: cannot charge {SECRET}"
        (run,) = scheduler.jobs.executions(failed.id)
        assert SECRET in str(run.error)
        assert "Traceback" in str(run.traceback)
        letter = next(one for one in scheduler.dead_letters.find() if one.job_id == failed.id)
        assert SECRET in str(letter.error)
        assert any(SECRET in str(alert.error) for alert in letter.alerts)
        assert any(SECRET in str(alert.error) for alert in scheduler.dead_letters.alerts())
        assert any(SECRET in str(group.message) for group in scheduler.dead_letters.summary())
        assert SECRET in str(handles["large"].job().result)
        with pytest.raises(JobFailedError, match=SECRET):
            handles["failed"].result()

    def test_alerts_are_grouped_as_without_a_codec(self, make: Make, clock: ManualClock) -> None:
        """Ten failures of one cause are one alert with a count, though no two of the stored texts are equal."""
        scheduler = make(codec=keyring())
        for _ in range(10):
            scheduler.enqueue_now(samples.fail, SECRET)
        scheduler.drain()
        (alert,) = scheduler.dead_letters.alerts()
        assert alert.count == 10
        (group,) = scheduler.dead_letters.summary()
        assert group.count == 10

    def test_searching_by_what_is_encrypted_is_refused(self, make: Make, clock: ManualClock) -> None:
        """By arguments or by the text of an error: `InvalidJob` says why, in every verb that takes a filter."""
        scheduler = make(codec=keyring())
        for where in (
            JobFilter(args={"0": SECRET}),
            JobFilter(error_contains="charge"),
            JobFilter(trace_id="4bf92f3577b34da6a3ce929d0e0e4736"),
        ):
            for verb in (
                lambda where: scheduler.jobs.find(where),
                lambda where: scheduler.jobs.count(where),
                lambda where: scheduler.cancel_jobs(where),
                lambda where: scheduler.retry_jobs(where),
                lambda where: scheduler.dead_letters.purge(where),
            ):
                with pytest.raises(InvalidJob, match="codec"):
                    verb(where)
        with pytest.raises(InvalidJob, match="codec"):
            scheduler.dead_letters.find(JobFilter(error_contains="charge"))

    def test_a_declared_schedule_is_stored_once(self, make: Make, clock: ManualClock) -> None:
        """Declaring the same schedule again changes nothing: its stored template stays as it is."""
        scheduler = make(codec=keyring())

        def declare() -> str:
            scheduler.schedule_recurring("0 * * * *", call(samples.take, SECRET), name="hourly")
            record: Any = scheduler.store.inner.schedule("hourly")  # type: ignore[attr-defined]  # the sealed store's
            return str(record.spec.template)

        first = declare()
        clock.advance(timedelta(minutes=1))
        assert declare() == first
        assert SECRET not in first

    def test_a_schedule_is_changed(self, make: Make, clock: ManualClock) -> None:
        """With its key or without: its arguments stay sealed once, and its business key is the one it was."""
        scheduler, stranger = make(codec=keyring()), make()
        scheduler.schedule_recurring(
            "0 * * * *", call(samples.take, SECRET), name="hourly", business_key="one"
        )

        def stored() -> str:
            record: Any = scheduler.store.inner.schedule("hourly")  # type: ignore[attr-defined]  # the sealed store's
            return str(record.spec.template)

        first = stored()
        stranger.schedules.get("hourly").change(zone="Asia/Tokyo")
        scheduler.schedules.get("hourly").change(expression="30 * * * *")
        assert stored() == first
        with pytest.raises(MissingKey):
            stranger.schedules.get("hourly").change(args=["mine"])
        scheduler.schedules.get("hourly").change(args=[SECRET + "2"])
        assert SECRET not in stored()
        assert json.loads(stored())["business_key"] == json.loads(first)["business_key"]
        clock.advance(timedelta(hours=1))
        scheduler.drain()
        assert scheduler.schedules.get("hourly").runs().items[0].args == (SECRET + "2",)


class TestIntroduction:
    def test_rows_from_before_are_read(self, make: Make, clock: ManualClock) -> None:
        """Jobs and schedules that were stored in plain text run and are shown by a scheduler with a codec."""
        plain = make()
        chain = (
            plain.enqueue(samples.say, SECRET).with_param("card", SECRET).then(samples.take, RESULT).submit()
        )
        plain.schedule_recurring("0 * * * *", call(samples.take, SECRET), name="hourly")
        scheduler = make(codec=keyring())
        assert scheduler.jobs.get(chain.id).args == (SECRET,)
        clock.advance(timedelta(hours=1))
        scheduler.drain()
        assert chain.last.job().status is JobStatus.SUCCEEDED
        assert ("say", SECRET, {"card": SECRET}, SECRET) in samples.got
        assert samples.got.count(("take", SECRET)) == 2

    def test_results_are_filled_across_keys(self, make: Make, clock: ManualClock) -> None:
        """A step whose parents returned under other keys gets their results."""
        old = make(codec=keyring("old", old=OLD))
        parent = old.enqueue(samples.take, SECRET).then(samples.take, RESULT).submit()
        old.drain(1)
        new = make(codec=keyring("new"))
        new.drain()
        assert new.handle(parent.last.id).result() == SECRET
        held = dump(new.store)
        assert SECRET not in held


class TestNoKey:
    def test_a_node_without_the_key_leaves_the_job_alone(self, make: Make, clock: ManualClock) -> None:
        """PENDING and uncounted; `explain` and `health` say no_key; a node with the key runs it."""
        writer = make(codec=keyring())
        handle = writer.enqueue_now(samples.take, SECRET)
        for codec in (keyring("other", other=OTHER), None):
            lacking = make(codec=codec)
            lacking.drain()
            job = writer.jobs.get(handle.id)
            assert (job.status, job.attempts, job.error) == (JobStatus.PENDING, 0, None)
            (reason,) = lacking.explain(handle.id)
            assert reason.code == "no_key"
            assert "'new'" in reason.text
        assert lacking.drain() == 0  # parked: it is not even claimed again
        assert samples.got == []
        assert list(writer.dead_letters.find()) == []
        writer.drain()
        assert handle.result() == SECRET

    @pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
    def test_real_nodes(self, kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
        """`health` says no_key while no node has the key; once one starts, it runs the job."""
        url = fresh_url(kind, request, tmp_path)
        lacking, having = (
            Scheduler(url, allow=[samples.__name__], codec=codec)
            for codec in (keyring("other", other=OTHER), keyring())
        )
        with lacking:
            handle = having.enqueue_now(samples.take, SECRET)
            until(lambda: [one.code for one in having.explain(handle.id)] == ["no_key"])
            health = lacking.health()
            (problem,) = [one for one in health.problems if one.code == "no_key"]
            assert (health.ok, problem.count) == (False, 1)
            assert "new" in problem.text
            (reason,) = having.explain(handle.id)
            assert "Nodes without it" in reason.text
            with having:
                assert handle.result(timeout=60) == SECRET
        assert [job.attempts for job in having.jobs.find()] == [1]
        for scheduler in (lacking, having):
            scheduler.close()

    def test_a_callback_waits_for_the_key_too(self, make: Make, clock: ManualClock) -> None:
        """A node without any codec must not call it as if there had been no error."""
        writer = make(codec=keyring())
        writer.enqueue(samples.fail, SECRET).on_failure(call(samples.failed, SECRET)).submit()
        writer.enqueue(samples.fail, SECRET).on_failure(samples.noticed).submit()
        writer.drain(2)
        make().drain()
        assert samples.got == []
        callbacks = writer.jobs.find(JobFilter(types=[JobType.CALLBACK]))
        assert [(job.status, job.attempts) for job in callbacks] == [(JobStatus.PENDING, 0)] * 2
        clock.advance(timedelta(seconds=20))
        writer.drain()
        error = f"ValueError: cannot charge {SECRET}"
        assert sorted(samples.got) == [("failed", {}, error, SECRET), ("noticed", error)]

    def test_a_schedule_is_fired_by_a_node_with_the_key(self, make: Make, clock: ManualClock) -> None:
        """One without it makes no run that nobody could read."""
        writer = make(codec=keyring())
        writer.schedule_recurring("0 * * * *", call(samples.take, SECRET), name="hourly")
        clock.advance(timedelta(hours=1))
        for lacking in (make(), make(codec=keyring("other", other=OTHER))):
            lacking.drain()
            assert writer.jobs.count() == 0
        writer.drain()
        assert samples.got == [("take", SECRET)]

    def test_a_result_under_a_missing_key_parks_the_step(self, make: Make, clock: ManualClock) -> None:
        """The step that takes it waits for a node with that key."""
        old = make(codec=keyring("old", old=OLD))
        parent = old.enqueue(samples.take, SECRET).then(samples.take, RESULT).submit()
        old.drain(1)
        only_new = make(codec=keyring("new", new=NEW))
        only_new.drain()
        (reason,) = only_new.explain(parent.last.id)
        assert reason.code == "no_key"
        both = make(codec=keyring("new"))
        both.drain()
        assert both.handle(parent.last.id).result() == SECRET
