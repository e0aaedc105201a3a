"""Faults: the connection is lost before, during and after every request; nothing is lost, and nothing is done twice."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import pytest

from ratchet.model.claim import JobClaim
from ratchet.model.errors import CommitUnknown, StoreUnavailable
from ratchet.model.identifiers import new_id
from ratchet.model.status import JobStatus, JobType
from ratchet.spi.store import JobStore
from ratchet.tck.faults import Proxy
from ratchet.tck.harness import Harness, needs
from ratchet.tck.sabotage import Situation, sabotage, settled


class Submitting(Situation):
    """Submits a small graph with tags and keys."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        key = str(new_id())
        self.parent = harness.spec(tags=("t",), idempotency_key=key, business_key=key)
        self.child = harness.child()
        self.edge = harness.edge(self.parent, self.child)

    def operate(self, store: JobStore) -> None:
        specs = [self.parent, self.child]
        answers = store.insert(specs, now=self.harness.now, edges=[self.edge])
        assert [(a.job_id, a.created) for a in answers] == [(spec.job_id, True) for spec in specs]

    def is_done(self) -> bool:
        store = self.harness.store
        parts = [
            store.get(self.parent.job_id) is not None,
            store.get(self.child.job_id) is not None,
            store.edges_of(self.child.job_id) != [],
            dict(store.tags_of([self.parent.job_id])) != {},
        ]
        assert len(set(parts)) == 1, f"only a part of the submission is stored: {parts}"
        return parts[0]

    def repeat(self) -> None:
        self.operate(self.harness.store)
        assert len(self.harness.store.edges_of(self.child.job_id)) == 1


class Claiming(Situation):
    """Claims five due jobs of their own queue at once."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.queue = str(new_id())
        self.node = f"node-{self.queue}"
        self.ids = set(harness.submit_many(5, queue=self.queue))
        self.request = harness.request(5, node_id=self.node, queues=frozenset({self.queue}))
        self.returned: list[JobClaim] | None = None

    def operate(self, store: JobStore) -> None:
        self.returned = [job.claim for job in store.claim_next_batch(self.request, now=self.harness.now)]

    def is_done(self) -> bool:
        held = self.harness.store.claims_of(self.node)
        assert set(held) in (set(), self.ids), "only a part of the claim was made"
        return set(held.values()) == {self.request.claim_id}

    def judge(self, error: StoreUnavailable | None) -> None:
        """A claim may return fewer jobs, but it returns exactly those that the node holds."""
        held = settled(self.is_done)
        if error is None:
            assert self.returned is not None
            assert {claim.job_id for claim in self.returned} == (self.ids if held else set())
        elif not isinstance(error, CommitUnknown):
            assert not held, f"the caller was told that nothing happened ({error!r}), but it holds jobs"
        self.repeat()

    def repeat(self) -> None:
        """The node does not know the token: it hands everything back and claims again, until it has all five."""

        def claim_anew() -> bool:
            store = self.harness.store
            store.hand_back_unknown(self.node, [], now=self.harness.now)
            self.request = self.harness.request(5, node_id=self.node, queues=frozenset({self.queue}))
            self.operate(store)
            assert self.returned is not None
            # the server may still be working for the lost connection, and hold the rows
            assert {claim.job_id for claim in self.returned} == self.ids
            assert {(claim.attempts, claim.crashes) for claim in self.returned} == {(0, 0)}
            return self.is_done()

        assert settled(claim_anew)


class Completing(Situation):
    """Ends three runs in one call, with a callback, a dependant and a batch."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        queue = str(new_id())
        batch, children = harness.batch_of(2, queue=queue)
        self.batch_id = batch.batch_id
        parent, self.child = harness.spec(queue=queue), harness.child()
        harness.insert([parent, self.child], [harness.edge(parent, self.child)])
        claims = harness.claim(queues=frozenset({queue}))
        assert {c.job_id for c in claims} == {parent.job_id, *(child.job_id for child in children)}
        self.callback = harness.spec(type=JobType.CALLBACK, scheduled_at=harness.after(days=1))
        self.completions = [harness.completion(claim) for claim in claims[:-1]]
        self.completions.append(harness.completion(claims[-1], harness.failure(), callback=self.callback))

    def operate(self, store: JobStore) -> None:
        answers = store.complete(self.completions, now=self.harness.now)
        assert all(answer.won for answer in answers)

    def is_done(self) -> bool:
        store = self.harness.store
        batch = store.batch(self.batch_id)
        assert batch is not None
        ended = [store.get(c.claim.job_id) for c in self.completions]
        parts = [record is not None and record.status is not JobStatus.RUNNING for record in ended]
        parts += [store.get(self.callback.job_id) is not None, batch.completed + batch.failed == 2]
        parts += [len(store.executions(c.claim.job_id)) == 1 for c in self.completions]
        assert len(set(parts)) == 1, f"only a part of the completion was made: {parts}"
        return parts[0]

    def repeat(self) -> None:
        self.operate(self.harness.store)
        for completion in self.completions:
            record = self.harness.record(completion.claim.job_id)
            assert (record.attempts, record.crashes) == (1, 0)
        batch = self.harness.store.batch(self.batch_id)
        assert batch is not None
        assert (batch.completed + batch.failed, batch.finished_at) == (2, self.harness.now)


class Canceling(Situation):
    """Cancels a job that has a dependant."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.parent, self.child = harness.spec(), harness.child()
        harness.insert([self.parent, self.child], [harness.edge(self.parent, self.child)])

    def operate(self, store: JobStore) -> None:
        store.cancel(self.parent.job_id, reason="r", now=self.harness.now)

    def is_done(self) -> bool:
        statuses = set(self.harness.statuses([self.parent.job_id, self.child.job_id]))
        assert statuses in ({JobStatus.CANCELED}, {JobStatus.PENDING, JobStatus.WAITING})
        return statuses == {JobStatus.CANCELED}

    def repeat(self) -> None:
        self.operate(self.harness.store)


SITUATIONS: dict[str, Callable[[Harness], Situation]] = {
    "submit": Submitting,
    "claim": Claiming,
    "complete": Completing,
    "cancel": Canceling,
}


class TestLostConnection:
    @pytest.mark.parametrize("what", SITUATIONS)
    def test_at_every_moment(self, harness: Harness, what: str) -> None:
        """
        The change is made completely or not at all; the caller is told which, or that it is unknown;
        repeating it makes it once.
        """
        assert sabotage(harness, partial(SITUATIONS[what], harness)) > 0


@needs("server")
class TestUnreachable:
    def proxy(self, harness: Harness) -> Proxy:
        assert harness.server is not None
        return Proxy(harness.server)

    def test_a_slow_network(self, harness: Harness) -> None:
        """With five milliseconds of delay each way, everything still works."""
        with self.proxy(harness) as proxy:
            store = harness.via(*proxy.address)
            proxy.latency = 0.005
            (answer,) = store.insert([harness.spec()], now=harness.now)
            (claim,) = harness.claim(store=store)
            assert claim.job_id == answer.job_id
            assert harness.complete(claim, store=store).won

    def test_a_server_that_does_not_answer(self, harness: Harness) -> None:
        """
        No call waits forever: StoreUnavailable comes within the deadline, and the store works again when
        the server is back.
        """
        with self.proxy(harness) as proxy:
            store = harness.via(*proxy.address)
            store.counts()
            proxy.silent = True
            spec = harness.spec()
            begin = time.monotonic()
            with pytest.raises(StoreUnavailable):
                store.insert([spec], now=harness.now)
            assert time.monotonic() - begin < harness.call_deadline.total_seconds() + 1
            proxy.silent = False
            proxy.cut_all()
            assert harness.store.get(spec.job_id) is None
            _eventually(partial(store.insert, [spec], now=harness.now))
            assert harness.status(spec.job_id) is JobStatus.PENDING

    def test_every_connection_is_cut_at_once(self, harness: Harness) -> None:
        """After a failover the handle works again by itself, within a few calls."""
        with self.proxy(harness) as proxy:
            store = harness.via(*proxy.address)
            for _ in range(3):
                store.counts()
                proxy.cut_all()
                spec = harness.spec()
                _eventually(partial(store.insert, [spec], now=harness.now))
                assert harness.status(spec.job_id) is JobStatus.PENDING

    def test_nobody_listens(self, harness: Harness) -> None:
        """A server that is down raises StoreUnavailable with a message, not a driver's error."""
        proxy = self.proxy(harness)
        store = harness.via(*proxy.address)
        proxy.close()
        with pytest.raises(StoreUnavailable) as caught:
            store.counts()
        assert str(caught.value)


def _eventually(call: Callable[[], object]) -> None:
    """Repeat a call while the store says that this may help; after a few tries it must work."""
    for _ in range(5):
        try:
            call()
        except StoreUnavailable:
            continue
        return
    call()
