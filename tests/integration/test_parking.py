"""A job that this node does not know or may not run is parked: it waits, uncounted, for a node that can."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from ratchet import JobStatus, ManualClock, Options
from ratchet.engine.poller import PARKED_INTERVAL
from ratchet.testing import ManualScheduler
from tests.integration import outsiders
from tests.integration.conftest import Stores

HERE = __name__
ran: list[Any] = []


def known(name: str) -> str:
    ran.append(name)
    return name


def late(name: str) -> str:
    ran.append(name)
    return name


@pytest.fixture(autouse=True)
def fresh() -> None:
    ran.clear()
    outsiders.asked.clear()
    for function in (known, late):
        vars(function).clear()  # what a test before this one declared


@pytest.fixture
def old(stores: Stores, clock: ManualClock) -> Iterator[ManualScheduler]:
    """A node that may run the functions of this module, and nothing else."""
    made = ManualScheduler(store=stores.open(), clock=clock, allow=[HERE])
    yield made
    made.close()


@pytest.fixture
def new(stores: Stores, clock: ManualClock) -> Iterator[ManualScheduler]:
    """A node that may run everything."""
    made = ManualScheduler(store=stores.open(), clock=clock, seed=1)
    yield made
    made.close()


def test_what_is_not_allowed_here_waits_for_a_node_where_it_is(
    old: ManualScheduler, new: ManualScheduler
) -> None:
    """PENDING, no attempt, no run, no dead letter, also without retries; the next node runs it at once."""
    handle = new.enqueue_now(outsiders.is_welcome, 1)
    assert old.drain() == 1
    job = handle.job()
    assert (job.status, job.attempts, job.crashes, job.error) == (JobStatus.PENDING, 0, 0, None)
    assert list(old.dead_letters.find()) == []
    assert outsiders.asked == []
    assert new.drain() == 1
    assert (handle.status(), outsiders.asked) == (JobStatus.SUCCEEDED, [1])
    assert handle.job().attempts == 1


@pytest.mark.parametrize(
    "target",
    [
        f"{HERE}:renamed_since",
        f"{HERE}_that_is_not_deployed:run",
        "billing.charge",
        "os:system",
        "os.__dict__:system",
    ],
    ids=["function", "module", "declared_name", "policy", "dunder"],
)
def test_nothing_that_a_node_lacks_ends_a_job(
    old: ManualScheduler, new: ManualScheduler, target: str
) -> None:
    """A missing function, module or declaration, a policy: each job is parked once, and no attempt is counted."""
    builder = new.enqueue(known, "x")
    raw = replace(
        builder._step.checked(new.backend).spec(new.backend.ids(), new.backend.now()), target=target
    )
    builder._disarm()
    new.store.insert([raw], now=new.backend.now())
    old.drain()
    found = old.jobs.get(raw.job_id)
    assert (found.status, found.attempts, found.error) == (JobStatus.PENDING, 0, None)
    assert [reason.code for reason in old.explain(raw.job_id)] == ["parked"]
    assert target in old.explain(raw.job_id)[0].text
    assert old.drain() == 0


def test_a_parked_job_is_parked_once_by_each_node_and_does_not_spin(
    old: ManualScheduler, new: ManualScheduler, stores: Stores, clock: ManualClock
) -> None:
    """The node that parked it does not claim it again, and neither does another one that cannot run it."""
    handle = new.enqueue_now(outsiders.is_welcome, 1)
    assert old.drain() == 1
    other = ManualScheduler(store=stores.open(), clock=clock, allow=[HERE], seed=2)
    for _ in range(3):
        assert (old.drain(), other.drain()) == (0, 0)
        clock.advance(timedelta(seconds=PARKED_INTERVAL + 1))
    other.close()
    assert len(old.jobs.executions(handle.id, all=True)) <= 1
    assert new.drain() == 1


def test_a_node_that_learns_of_the_function_takes_what_it_parked(
    stores: Stores, clock: ManualClock, new: ManualScheduler
) -> None:
    """It looks again now and then: a module that is imported later, a declaration that comes late."""
    strict = ManualScheduler(store=stores.open(), clock=clock, allow=["nowhere"], seed=3)
    handle = new.enqueue_now(late, "b")
    assert strict.drain() == 1
    strict.job(late)
    clock.advance(timedelta(seconds=PARKED_INTERVAL + 1))
    assert strict.drain() == 1
    assert handle.result() == "b"
    strict.close()


def test_explain_says_what_this_process_lacks_and_which_nodes_run(
    old: ManualScheduler, new: ManualScheduler
) -> None:
    """Target, the policy's hint, and the nodes that have neither declared nor run it."""
    old.job(known)
    handle = new.enqueue_now(outsiders.is_welcome, 1)
    old.drain()
    (reason,) = old.explain(handle.id)
    assert reason.code == "parked"
    for part in (outsiders.__name__ + ":is_welcome", "add 'tests.integration.outsiders' to allow"):
        assert part in reason.text
    assert old._core.manual.node_id in reason.text
    assert "lacks" not in new.explain(handle.id)[0].text


def test_a_thousand_parked_jobs_are_one_line(
    old: ManualScheduler, new: ManualScheduler, caplog: pytest.LogCaptureFixture
) -> None:
    """The log names the target once a minute, with how many more."""
    new.enqueue_many(outsiders.is_welcome, [(number,) for number in range(20)])
    with caplog.at_level(logging.WARNING, "ratchet.engine"):
        assert old.drain() == 20
    lines = [record.getMessage() for record in caplog.records if "parked" in record.getMessage()]
    assert len(lines) == 1
    assert "tests.integration.outsiders:is_welcome" in lines[0]


def test_an_error_about_the_arguments_is_the_jobs_own(old: ManualScheduler, new: ManualScheduler) -> None:
    """The target is known, only what it is called with is not: parked, it would be claimed again and again."""
    handle = new.enqueue_now(known, outsiders.Visitor("ann"))
    assert old.drain(limit=10) == 1
    assert (handle.status(), handle.job().error_type) == (JobStatus.FAILED, "TargetNotAllowed")


def test_an_idle_node_looks_soon_after_another_has_parked_a_job(
    stores: Stores, clock: ManualClock, old: ManualScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever parks a job wakes the others; one that has looked for parked targets lately does so when that is due."""
    lazy = Options(poll_delay_min=30, poll_delay_max=60, poll_delay_idle=60)
    idle = ManualScheduler(store=stores.open(), clock=clock, seed=4, options=lazy)
    idle.drain()
    poller = idle._core.manual.assembly.poller
    woken: list[None] = []
    monkeypatch.setattr(old._core.manual.assembly.announcer, "_spread", lambda: woken.append(None))
    clock.advance(timedelta(seconds=4))
    poller.run_once(clock.now())
    assert poller.rest > timedelta(seconds=PARKED_INTERVAL)
    handle = idle.enqueue_now(outsiders.is_welcome, 1)
    assert old.drain() == 1
    assert woken == [None]
    poller.woken()
    poller.run_once(clock.now())
    left = timedelta(seconds=PARKED_INTERVAL - 4)
    while left:
        assert timedelta(0) < poller.rest <= left
        left -= poller.rest
        clock.advance(poller.rest)
        if left:
            poller.run_once(clock.now())
    assert idle.drain() == 1
    assert handle.status() is JobStatus.SUCCEEDED
    idle.close()
