"""A circuit breaker end to end: three nodes, one service that goes down and comes back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from ratchet import BreakerClosed, BreakerOpened, JobFilter, JobStatus, Options, Scheduler
from ratchet.model.cluster import BreakerRecord
from tests.lifecycle import jobs
from tests.support.waiting import until

#: Nodes that look often: the wait of the test's breaker is short.
OPTIONS = Options(
    concurrency=4, poll_delay_burst=0.1, poll_delay_min=0.1, poll_delay_max=0.2, poll_delay_idle=0.2
)
PROBES = jobs.Bank.SETTINGS.probes


@pytest.fixture
def bank() -> jobs.Bank:
    """The service, down, answering at once."""
    jobs.bank = jobs.Bank()
    jobs.bank.is_up = False
    jobs.bank.answer.set()
    return jobs.bank


@pytest.fixture
def nodes(url: str, bank: jobs.Bank) -> Iterator[list[Scheduler]]:
    """Three nodes on one store, not running yet."""
    made = [Scheduler(url, allow=["tests.lifecycle"], options=OPTIONS) for _ in range(3)]
    yield made
    bank.answer.set()
    for node in made:
        node.close()


def state(scheduler: Scheduler) -> str | None:
    """The stored state of the bank's breaker."""
    found: list[BreakerRecord] = [one for one in scheduler.breakers.list() if one.service == "bank"]
    return found[0].state if found else None


def settled(bank: jobs.Bank, still: float = 0.5) -> int:
    """How many calls there were when no new ones come."""
    seen, since = bank.calls, time.monotonic()
    while time.monotonic() - since < still:
        time.sleep(0.02)
        if bank.calls != seen:
            seen, since = bank.calls, time.monotonic()
    return seen


@pytest.mark.parametrize("target", [jobs.pay, jobs.pay_async], ids=["thread", "async"])
def test_an_outage_from_beginning_to_end(nodes: list[Scheduler], bank: jobs.Bank, target: Any) -> None:
    """Opens, holds jobs back, sends exactly the probes, opens again, closes; attempts are only spent on calls."""
    one = nodes[0]
    heard: list[Any] = []
    for node in nodes:
        node.on(BreakerOpened, BreakerClosed)(heard.append)
    # enough to open it, then the flood
    for number in range(jobs.Bank.SETTINGS.minimum_calls):
        one.enqueue(target, number).submit()
    for node in nodes:
        node.start()
    until(lambda: state(one) == "OPEN")
    failed = settled(bank, 0.1)
    assert failed == jobs.Bank.SETTINGS.minimum_calls

    bank.answer.clear()  # from here on nobody hears from the bank until the test says so
    behind = [one.enqueue(target, number).submit() for number in range(30)]
    assert {reason.code for reason in behind[0].explain()} == {"breaker_open"}
    until(lambda: bank.calls > failed)
    assert settled(bank) == failed + PROBES  # three nodes, twelve threads, three probes
    assert sum(handle.status() is JobStatus.RUNNING for handle in behind) == PROBES
    assert {reason.code for reason in behind[-1].explain()} == {"breaker_open"}

    bank.answer.set()  # the probes fail
    until(lambda: one.jobs.counts()[JobStatus.FAILED] == failed + PROBES)
    assert state(one) == "OPEN"
    assert bank.calls == failed + PROBES

    bank.is_up = True
    for handle in behind[PROBES:]:
        handle.wait(timeout=20)
    assert state(one) == "CLOSED"
    assert bank.calls == failed + len(behind)
    assert one.jobs.count(JobFilter(statuses=[JobStatus.SUCCEEDED])) == len(behind) - PROBES
    assert {one.jobs.get(handle.id).attempts for handle in behind} == {1}
    until(lambda: len(heard) == 3)
    assert [type(event) for event in sorted(heard, key=lambda event: event.at)] == [
        BreakerOpened,
        BreakerOpened,
        BreakerClosed,
    ]


def test_by_hand(nodes: list[Scheduler], bank: jobs.Bank) -> None:
    """A person opens it and nothing starts; a person resets it and the job runs."""
    one, two, _ = nodes
    bank.is_up = True
    heard: list[Any] = []
    one.on(BreakerOpened, BreakerClosed)(heard.append)
    assert one.breakers.open("bank")
    assert not one.breakers.open("bank")
    two.start()
    handle = one.enqueue(jobs.pay, 1).submit()
    time.sleep(0.7)
    assert (bank.calls, handle.status()) == (0, JobStatus.PENDING)
    assert one.breakers.reset("bank")
    assert handle.result(timeout=10) == "paid"
    until(lambda: [type(event) for event in heard] == [BreakerOpened, BreakerClosed])


@pytest.mark.parametrize("lane", ["thread", "process"])
def test_failures_and_timeouts_are_heard_from_every_lane(
    nodes: list[Scheduler], bank: jobs.Bank, lane: str
) -> None:
    """A service that refuses and one that hangs until the timeout have both failed."""
    one = nodes[0]
    refused = one.job(lane=lane, name=f"refused-{lane}")(jobs.pay_in_vain)
    hangs = one.job(lane=lane, name=f"hangs-{lane}")(jobs.pay_slowly)
    one.start()
    for _ in range(jobs.Bank.SETTINGS.minimum_calls):
        refused.enqueue().submit()
        hangs.enqueue().with_timeout(0.5).submit()
    opened = {"closed bank", "slow bank"}
    until(lambda: {each.service for each in one.breakers.list() if each.state == "OPEN"} == opened)
