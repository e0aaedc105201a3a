"""Ways to lose a job, and what a worker that has lost it may still try."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from ratchet.model.claim import JobClaim
from ratchet.model.decision import CountCrash, HandBack, Reschedule
from ratchet.model.identifiers import new_id
from ratchet.model.job import Progress
from ratchet.tck.harness import Harness

RESOURCE = "gateway"
KEY = "invoice-42"


def fresh(harness: Harness) -> JobClaim:
    """A run that holds a business key and a permit, so that it could lose both."""
    harness.store.set_limit(RESOURCE, concurrent=1, now=harness.now)
    return harness.running(business_key=KEY, resource=RESOURCE, max_retries=9)


def reclaim(harness: Harness, job_id: UUID, node: str) -> JobClaim:
    """Claim the job again."""
    return harness.claim_job(job_id, node_id=node)


# --- ways to lose a job: each leaves it RUNNING again, under another claim --------------------------


def retried(harness: Harness, old: JobClaim, node: str) -> JobClaim:
    harness.end(old, harness.another_try())
    return reclaim(harness, old.job_id, node)


def failed_and_retried(harness: Harness, old: JobClaim, node: str) -> JobClaim:
    harness.end(old, harness.failure())
    assert harness.store.retry(old.job_id, now=harness.now)
    return reclaim(harness, old.job_id, node)


def postponed(harness: Harness, old: JobClaim, node: str) -> JobClaim:
    harness.end(old, Reschedule(at=harness.now))
    return reclaim(harness, old.job_id, node)


def crashed(harness: Harness, old: JobClaim, node: str) -> JobClaim:
    harness.end(old, CountCrash(detail="boom", max_crashes=3))
    return reclaim(harness, old.job_id, node)


def handed_back(harness: Harness, old: JobClaim, node: str) -> JobClaim:
    assert harness.store.hand_back([old], now=harness.now) == 1
    return reclaim(harness, old.job_id, node)


def handed_back_as_unknown(harness: Harness, old: JobClaim, node: str) -> JobClaim:
    assert harness.store.hand_back_unknown(old.node_id, [], now=harness.now) == [old.job_id]
    return reclaim(harness, old.job_id, node)


def rescued(harness: Harness, old: JobClaim, node: str) -> JobClaim:
    harness.register(old.node_id)
    harness.rescue(old.node_id)
    return reclaim(harness, old.job_id, node)


def deregistered(harness: Harness, old: JobClaim, node: str) -> JobClaim:
    harness.register(old.node_id)
    assert harness.store.deregister(old.node_id, now=harness.now) == 1
    return reclaim(harness, old.job_id, node)


def deleted_and_inserted(harness: Harness, old: JobClaim, node: str) -> JobClaim:
    """The job is deleted and stored again under the same id: versions and attempts start over, tokens do not."""
    harness.end(old)
    assert harness.store.delete(old.job_id)
    spec = harness.spec(job_id=old.job_id, business_key=KEY, resource=RESOURCE, max_retries=9)
    harness.insert([spec])
    return reclaim(harness, old.job_id, node)


LOSSES: dict[str, Callable[[Harness, JobClaim, str], JobClaim]] = {
    f.__name__: f
    for f in (
        retried,
        failed_and_retried,
        postponed,
        crashed,
        handed_back,
        handed_back_as_unknown,
        rescued,
        deregistered,
        deleted_and_inserted,
    )
}


# --- what a stale worker may still try; True: the store says that it did something ------------------


def _succeed(harness: Harness, old: JobClaim) -> bool:
    answer = harness.complete(old, callback=harness.spec(job_id=CALLBACK))
    return answer.won and not answer.replayed


def _retry(harness: Harness, old: JobClaim) -> bool:
    answer = harness.complete(old, harness.another_try(harness.after(days=1)))
    return answer.won and not answer.replayed


def _fail(harness: Harness, old: JobClaim) -> bool:
    answer = harness.complete(old, harness.failure("from the stale worker"))
    return answer.won and not answer.replayed


def _reschedule(harness: Harness, old: JobClaim) -> bool:
    answer = harness.complete(old, Reschedule(at=harness.after(days=1)))
    return answer.won and not answer.replayed


def _hand_back_by_completion(harness: Harness, old: JobClaim) -> bool:
    answer = harness.complete(old, HandBack())
    return answer.won and not answer.replayed


def _count_crash(harness: Harness, old: JobClaim) -> bool:
    answer = harness.complete(old, CountCrash(detail="stale", max_crashes=1))
    return answer.won and not answer.replayed


def _goes_on(harness: Harness, old: JobClaim) -> bool:
    answer = harness.complete(old, harness.failure(), still_running=True, state='{"stale":true}')
    return answer.won and not answer.replayed


def _hand_back(harness: Harness, old: JobClaim) -> bool:
    return harness.store.hand_back([old], now=harness.now) > 0


def _park(harness: Harness, old: JobClaim) -> bool:
    return harness.store.park(old, "shop.jobs:gone", now=harness.now)


def _progress(harness: Harness, old: JobClaim) -> bool:
    return harness.store.save_progress(old, Progress(fraction=0.75, message="stale"), now=harness.now)


def _state(harness: Harness, old: JobClaim) -> bool:
    return harness.store.save_state(old, '{"stale":true}', now=harness.now)


def _settle(harness: Harness, old: JobClaim) -> bool:
    harness.store.settle([old], now=harness.now)
    return False


def _release_permits(harness: Harness, old: JobClaim) -> bool:
    return harness.store.release_permits([old]) > 0


def _mark_started(harness: Harness, old: JobClaim) -> bool:
    return harness.store.mark_started([old], now=harness.now) > 0


def _bodies(harness: Harness, old: JobClaim) -> bool:
    return harness.store.bodies([old]) != {}


ATTEMPTS: dict[str, Callable[[Harness, JobClaim], bool]] = {
    f.__name__.lstrip("_"): f
    for f in (
        _succeed,
        _retry,
        _fail,
        _reschedule,
        _hand_back_by_completion,
        _count_crash,
        _goes_on,
        _hand_back,
        _park,
        _progress,
        _state,
        _settle,
        _release_permits,
        _mark_started,
        _bodies,
    )
}

CALLBACK = new_id()
