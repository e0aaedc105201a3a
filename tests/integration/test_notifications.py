"""Alerts that leave the house: what a receiver gets, whatever happens on the way, on every store."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from ratchet import (
    BreakerOpened,
    JobDeadLettered,
    JobFailed,
    JobFilter,
    JobStatus,
    ManualClock,
    NodeLost,
    Options,
)
from ratchet.contrib import webhook
from ratchet.contrib.alerting.notifier import GRACE, PREFIX
from ratchet.testing import ManualScheduler
from tests.integration.conftest import Stores
from tests.integration.test_alerts import declined, of_three_causes
from tests.support.receivers import Reply, WebhookReceiver

SECRET = "correct horse battery staple"
WINDOW = timedelta(hours=1)


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with WebhookReceiver() as made:
        yield made


def fail(scheduler: ManualScheduler, count: int = 1) -> None:
    """So many dead letters of one cause."""
    scheduler.submit_all(scheduler.enqueue(declined, number).with_max_retries(0) for number in range(count))
    scheduler.drain()


def sent(scheduler: ManualScheduler) -> list[str]:
    """The jobs that send, by status."""
    found = scheduler.jobs.find(JobFilter(targets=[f"{PREFIX}webhook"]), limit=100)
    return sorted(str(job.status) for job in found)


def test_three_causes_are_three_messages(scheduler: ManualScheduler, receiver: WebhookReceiver) -> None:
    """Each names its cause and is signed; the rest of the hour is silent, however much fails."""
    webhook.notify(scheduler, receiver.url(), secret=SECRET)
    for _ in range(3):
        of_three_causes(scheduler, 60)
        scheduler.drain()
    assert len(receiver.received) == 3
    for request in receiver.received:
        webhook.verify(request.body, request.headers[webhook.SIGNATURE], SECRET)
        assert request.path == "/services/T0/B0/xyzzy-token"
    told = {
        (one.document["details"]["target"].split(":")[1], one.document["details"]["error"].split(":")[0])
        for one in receiver.received
    }
    assert told == {
        ("declined", "ValueError"),
        ("unreachable", "ConnectionError"),
        ("unreachable", "TimeoutError"),
    }
    assert all(
        one.document["text"].startswith(one.document["title"].split(":")[0]) for one in receiver.received
    )


def test_what_came_after_is_told_when_the_window_ends(
    scheduler: ManualScheduler, clock: ManualClock, receiver: WebhookReceiver
) -> None:
    """One message with the number that came since the first; none where nothing came."""
    webhook.notify(scheduler, receiver.url())
    fail(scheduler, 1)
    assert [one.document["count"] for one in receiver.received] == [1]
    fail(scheduler, 40)
    clock.advance(WINDOW + GRACE + timedelta(seconds=1))
    scheduler.drain()
    first, more = receiver.received
    assert (more.document["count"], more.document["repeated"], more.document["details"]["total"]) == (
        40,
        True,
        41,
    )
    assert "40 jobs more" in more.document["text"]
    assert first.headers[webhook.DELIVERY] != more.headers[webhook.DELIVERY]
    clock.advance(timedelta(days=1))
    fail(scheduler, 1)
    clock.advance(timedelta(days=1))
    scheduler.drain()
    assert [one.document["count"] for one in receiver.received] == [1, 40, 1]


def test_a_cause_that_goes_on_is_one_message_an_hour(
    scheduler: ManualScheduler, clock: ManualClock, receiver: WebhookReceiver
) -> None:
    """The next alert says how many the one before has counted, so that nothing is told twice."""
    webhook.notify(scheduler, receiver.url())
    for _ in range(3):
        fail(scheduler, 1)
        fail(scheduler, 9)
        clock.advance(WINDOW + timedelta(seconds=1))
    assert [one.document["repeated"] for one in receiver.received] == [False, False, False]
    assert "has counted 10 jobs" in receiver.received[1].document["text"]
    clock.advance(GRACE)
    scheduler.drain()
    assert (receiver.received[3].document["repeated"], receiver.received[3].document["count"]) == (True, 9)


def test_an_alert_of_a_node_that_died_is_told(
    stores: Stores, clock: ManualClock, receiver: WebhookReceiver
) -> None:
    """
    A node that wrote the alert and told nobody (it was killed then, or has no notifier) loses nothing: the next
    one that looks finds the row. Two that look send it once.
    """
    mute = ManualScheduler(store=stores.open(), clock=clock)
    fail(mute, 5)
    mute.close()
    for seed in (1, 2):
        other = ManualScheduler(store=stores.open(), clock=clock, seed=seed)
        notifier = webhook.notify(other, receiver.url())
        notifier.run_once()
        other.drain()
        other.close()
    assert [one.document["count"] for one in receiver.received] == [5]


def test_a_receiver_that_is_away(scheduler: ManualScheduler, clock: ManualClock) -> None:
    """The message is sent again, with the same id, until it is taken; user jobs go on meanwhile."""
    with WebhookReceiver(lambda number: Reply(503 if number < 4 else 200)) as receiver:
        webhook.notify(scheduler, receiver.url())
        fail(scheduler)
        for _ in range(4):
            other = scheduler.enqueue_now(sorted, [2, 1])
            clock.advance(timedelta(minutes=2))
            scheduler.drain()
            assert other.result() == [1, 2]
    assert len(receiver.received) == 4
    assert len({one.headers[webhook.DELIVERY] for one in receiver.received}) == 1
    assert sent(scheduler) == ["PENDING", "SUCCEEDED"]  # the other one tells of repeats


def test_nothing_is_told_about_what_tells(scheduler: ManualScheduler, clock: ManualClock) -> None:
    """A message that is never taken becomes a dead letter, without another message about that."""
    with WebhookReceiver(lambda number: Reply(500)) as receiver:
        webhook.notify(scheduler, receiver.url(), [JobDeadLettered, JobFailed], max_retries=2)
        fail(scheduler)
        for _ in range(10):
            clock.advance(timedelta(minutes=10))
            scheduler.drain()
    letters = scheduler.dead_letters.find(JobFilter(targets=[f"{PREFIX}webhook"]))
    assert {"the receiver answered 500: ok" in str(one.error) for one in letters} == {True}
    targets = {one.document["details"]["target"] for one in receiver.received}
    assert targets == {f"{declined.__module__}:declined"}
    assert len({one.headers[webhook.DELIVERY] for one in receiver.received}) == len(letters) == 3


@pytest.mark.parametrize(("status", "tries"), [(400, 1), (404, 1), (302, 1), (429, 3), (500, 3)])
def test_what_is_sent_again(
    scheduler: ManualScheduler, clock: ManualClock, receiver: WebhookReceiver, status: int, tries: int
) -> None:
    """What the receiver will never take is a dead letter at once. A redirect is not followed."""
    elsewhere = receiver.url("/elsewhere")
    with WebhookReceiver(lambda number: Reply(status, b"no", (("Location", elsewhere),))) as refusing:
        webhook.notify(scheduler, refusing.url(), max_retries=2)
        fail(scheduler)
        for _ in range(3):
            clock.advance(timedelta(minutes=1))
            scheduler.drain()
    assert (len(refusing.received), receiver.received) == (tries, [])
    (letter,) = scheduler.dead_letters.find(JobFilter(targets=[f"{PREFIX}webhook"]))
    assert f"answered {status}: no" in str(letter.error)


def test_a_pause_that_the_receiver_asks_for(scheduler: ManualScheduler, clock: ManualClock) -> None:
    """Retry-After is kept to."""
    with WebhookReceiver(
        lambda number: Reply(429 if number == 1 else 200, b"", (("Retry-After", "600"),))
    ) as receiver:
        webhook.notify(scheduler, receiver.url())
        fail(scheduler)
        clock.advance(timedelta(seconds=590))
        scheduler.drain()
        assert len(receiver.received) == 1
        clock.advance(timedelta(seconds=20))
        scheduler.drain()
        assert len(receiver.received) == 2


def test_other_events_are_grouped(
    scheduler: ManualScheduler, clock: ManualClock, receiver: WebhookReceiver
) -> None:
    """The first of a cause is told at once, the others are one message with a count when the window ends."""
    notifier = webhook.notify(scheduler, receiver.url(), [BreakerOpened, NodeLost], label="shop")
    publish = scheduler.backend.publish
    for number in range(50):
        publish(BreakerOpened(service=("bank", "post")[number % 2], at=clock.now()))
        publish(NodeLost(node_id=f"node-{number}", by="me", at=clock.now(), requeued=3))
    scheduler.drain()
    titles = sorted(one.document["title"] for one in receiver.received)
    assert titles == [
        "[shop] node node-0 is lost",
        "[shop] the circuit breaker 'bank' is open until it is reset",
        "[shop] the circuit breaker 'post' is open until it is reset",
    ]
    clock.advance(WINDOW)
    notifier.run_once()
    scheduler.drain()
    more = [one.document for one in receiver.received[3:]]
    assert sorted((one["event"], one["count"], one["repeated"]) for one in more) == [
        ("BreakerOpened", 24, True),
        ("BreakerOpened", 24, True),
        ("NodeLost", 49, True),
    ]
    notifier.run_once()
    scheduler.drain()
    assert len(receiver.received) == 6


def test_two_processes_tell_the_first_event_once(
    stores: Stores, clock: ManualClock, receiver: WebhookReceiver
) -> None:
    """Whoever hears of it first sends it."""
    for seed in (1, 2):
        scheduler = ManualScheduler(store=stores.open(), clock=clock, seed=seed)
        webhook.notify(scheduler, receiver.url(), [BreakerOpened])
        scheduler.backend.publish(BreakerOpened(service="bank", at=clock.now()))
        scheduler.drain()
        scheduler.close()
    assert len(receiver.received) == 1


def test_a_queue_of_their_own(scheduler: ManualScheduler, receiver: WebhookReceiver) -> None:
    """The jobs that send are where they were told to be."""
    webhook.notify(scheduler, receiver.url(), queue="alerts")
    scheduler.queues.pause("alerts")
    fail(scheduler, 3)
    assert receiver.received == []
    assert {job.queue for job in scheduler.jobs.find(JobFilter(targets=[f"{PREFIX}webhook"]))} == {"alerts"}
    scheduler.queues.resume("alerts")
    scheduler.drain()
    assert [one.document["count"] for one in receiver.received] == [3]  # as it is when it is sent


def test_a_node_that_does_not_know_the_destination(
    stores: Stores, clock: ManualClock, receiver: WebhookReceiver
) -> None:
    """It has neither address nor secret, so it leaves the job to one that has; no attempt is counted."""
    knowing = ManualScheduler(store=stores.open(), clock=clock, seed=1, allow=[declined.__module__])
    webhook.notify(knowing, receiver.url(), queue="alerts")
    knowing.queues.pause("alerts")
    fail(knowing)
    knowing.queues.resume("alerts")
    other = ManualScheduler(store=stores.open(), clock=clock, seed=2, allow=[declined.__module__])
    other.drain()
    (job, _) = knowing.jobs.find(JobFilter(targets=[f"{PREFIX}webhook"]), descending=False)
    assert (job.status, job.attempts, receiver.received) == (JobStatus.PENDING, 0, [])
    other.close()
    again = ManualScheduler(store=stores.open(), clock=clock, seed=3, allow=[declined.__module__])
    webhook.notify(again, receiver.url(), queue="alerts")
    again.drain()
    assert len(receiver.received) == 1
    again.close()
    knowing.close()


def test_purged_before_it_was_told(scheduler: ManualScheduler, receiver: WebhookReceiver) -> None:
    """Deleting the jobs deletes the alert; the message goes out with what was known of it."""
    webhook.notify(scheduler, receiver.url(), queue="alerts")
    scheduler.queues.pause("alerts")
    fail(scheduler, 3)
    assert scheduler.dead_letters.purge(JobFilter(statuses=[JobStatus.FAILED])) == 3
    assert scheduler.dead_letters.alerts() == []
    scheduler.queues.resume("alerts")
    scheduler.drain()
    assert [one.document["count"] for one in receiver.received] == [1]


def test_no_secret_is_stored(scheduler: ManualScheduler, caplog: pytest.LogCaptureFixture) -> None:
    """Neither address nor secret nor token is in a job, in its error, its history or the log, also where sending fails."""
    hidden = ("xyzzy-token", SECRET, "bearer-token", "127.0.0.1")
    with WebhookReceiver(
        lambda number: Reply(400, f"{SECRET} at /services/T0/B0/xyzzy-token, bearer-token".encode())
    ) as receiver:
        webhook.notify(scheduler, receiver.url(), secret=SECRET, headers={"Authorization": "bearer-token"})
        fail(scheduler)
        url = receiver.url()
    # Nobody listens there now.
    webhook.notify(scheduler, url, secret=SECRET, name="gone", max_retries=0).run_once()
    scheduler.drain()
    assert receiver.received[0].headers["Authorization"] == "bearer-token"
    assert len(scheduler.dead_letters.find(JobFilter(targets=[f"{PREFIX}webhook", f"{PREFIX}gone"]))) == 2
    seen = caplog.text + repr(scheduler)
    for job in scheduler.jobs.find(limit=100):
        seen += repr(job) + repr(scheduler.jobs.executions(job.id)) + repr(scheduler.jobs.logs(job.id))
    assert "the receiver was not reached: ConnectionRefusedError" in seen
    assert [one for one in hidden if one in seen] == []


def test_a_short_window(stores: Stores, clock: ManualClock, receiver: WebhookReceiver) -> None:
    """`dlq_alert_window` is the window of messages too."""
    scheduler = ManualScheduler(
        store=stores.open(), clock=clock, options=Options(dlq_alert_window=timedelta(minutes=5))
    )
    webhook.notify(scheduler, receiver.url())
    for _ in range(3):
        fail(scheduler, 2)
        clock.advance(timedelta(minutes=5, seconds=1))
    assert [one.document["repeated"] for one in receiver.received] == [False] * 3
    clock.advance(timedelta(minutes=1))
    scheduler.drain()
    assert (receiver.received[3].document["count"], receiver.received[3].document["repeated"]) == (1, True)
    scheduler.close()
