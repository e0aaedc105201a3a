"""Keys: what an idempotency key and a business key guarantee at submission, and for how long."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from ratchet.model.composition import Edge
from ratchet.model.decision import HandBack, Reschedule
from ratchet.model.errors import BusinessKeyBusy, InvalidJob
from ratchet.model.identifiers import new_id
from ratchet.model.job import Insertion, JobSpec
from ratchet.model.status import Busy, JobStatus
from ratchet.tck.harness import Harness


def submit(harness: Harness, **changes: object) -> Insertion:
    """Store one job; its whole answer."""
    return harness.store.insert([harness.spec(**changes)], now=harness.now)[0]


def holder_of(harness: Harness, key: str) -> UUID | None:
    """The live job that holds a business key, as the next submission is told; None if the key is free."""
    spec = harness.spec(business_key=key, busy=Busy.RETURN, scheduled_at=harness.after(days=365))
    answer = harness.store.insert([spec], now=harness.now)[0]
    if answer.created:
        assert harness.store.delete(spec.job_id)
        return None
    return answer.job_id


class TestIdempotencyKey:
    def test_the_second_gets_the_first(self, harness: Harness) -> None:
        """The same key stores no second job, and the answer names the original."""
        first = submit(harness, idempotency_key="request-1")
        spec = harness.spec(idempotency_key="request-1", payload="[]")
        second = harness.store.insert([spec], now=harness.now)[0]
        assert first.created
        assert (second.job_id, second.created) == (first.job_id, False)
        assert harness.store.get(spec.job_id) is None
        assert harness.store.counts()[JobStatus.PENDING] == 1

    def test_keys_are_told_apart_exactly(self, harness: Harness) -> None:
        """Case, trailing spaces and accents make different keys; 255 characters are allowed."""
        keys = ["a", "A", "a ", "á", "a" * 254, "a" * 255, "ß", "ss", "🧾" * 60]
        ids = [submit(harness, idempotency_key=key).job_id for key in keys]
        assert len(set(ids)) == len(keys)
        assert [submit(harness, idempotency_key=key).job_id for key in keys] == ids

    def test_twice_in_one_call(self, harness: Harness) -> None:
        """Of two specs in one call, the later one is answered with the earlier one."""
        one, two = harness.specs(2, idempotency_key="k")
        answers = harness.store.insert([one, two], now=harness.now)
        assert [(a.job_id, a.created) for a in answers] == [(one.job_id, True), (one.job_id, False)]
        assert harness.store.counts()[JobStatus.PENDING] == 1

    def test_it_outlives_the_job(self, harness: Harness) -> None:
        """The same key means the same job forever: after success, failure, cancellation and archiving."""
        ids = {
            "done": harness.succeeded(idempotency_key="done"),
            "dead": harness.failed(idempotency_key="dead"),
            "gone": harness.canceled(idempotency_key="gone"),
        }
        harness.advance(days=30)
        assert harness.store.archive(before=harness.now, limit=10, now=harness.now) == 2
        for key, job_id in ids.items():
            answer = submit(harness, idempotency_key=key)
            assert (answer.job_id, answer.created) == (job_id, False)

    def test_the_whole_graph_is_left_out(self, harness: Harness) -> None:
        """A duplicate root brings neither its steps nor its edges; other graphs of the call are stored."""
        original = submit(harness, idempotency_key="k").job_id
        root = harness.spec(idempotency_key="k")
        step = harness.child(root_id=root.job_id)
        other = harness.spec()
        answers = harness.store.insert([root, step, other], now=harness.now, edges=[harness.edge(root, step)])
        assert (answers[0].job_id, answers[0].created) == (original, False)
        assert not answers[1].created
        assert (answers[2].job_id, answers[2].created) == (other.job_id, True)
        assert harness.store.get(step.job_id) is None
        assert harness.store.edges_of(step.job_id) == []

    def test_a_duplicate_reserves_no_business_key(self, harness: Harness) -> None:
        """A duplicate is not stored, so it holds no key."""
        submit(harness, idempotency_key="i")
        assert not submit(harness, idempotency_key="i", business_key="b").created
        assert holder_of(harness, "b") is None

    def test_a_duplicate_does_not_raise_for_its_own_holder(self, harness: Harness) -> None:
        """
        The same submission with both keys is sent again with a new id: the answer is the original, not
        BusinessKeyBusy.
        """
        first = submit(harness, idempotency_key="i", business_key="b")
        second = submit(harness, idempotency_key="i", business_key="b")
        assert (second.job_id, second.created) == (first.job_id, False)

    def test_a_refused_submission_keeps_no_key(self, harness: Harness) -> None:
        """A submission that was refused for its business key does not keep its idempotency key: the next try is stored."""
        holder = harness.submit(business_key="b")
        with pytest.raises(BusinessKeyBusy):
            submit(harness, idempotency_key="i", business_key="b")
        harness.store.cancel(holder, reason="r", now=harness.now)
        assert submit(harness, idempotency_key="i", business_key="b").created


class TestKeyTwiceInOneGraph:
    """The jobs of a graph are stored together or not at all, so none of them can be the answer for another."""

    def graph(self, harness: Harness, **keys: Any) -> tuple[list[JobSpec], list[Edge]]:
        root = harness.spec(**keys)
        child = harness.child(root_id=root.job_id, **keys)
        return [root, child], [harness.edge(root, child)]

    def test_an_idempotency_key(self, harness: Harness) -> None:
        """InvalidJob is raised, and nothing is stored."""
        specs, edges = self.graph(harness, idempotency_key="once")
        with pytest.raises(InvalidJob, match="once"):
            harness.store.insert(specs, now=harness.now, edges=edges)
        assert sum(harness.store.counts().values()) == 0

    @pytest.mark.parametrize("busy", list(Busy))
    def test_a_business_key(self, harness: Harness, busy: Busy) -> None:
        """BusinessKeyBusy is raised, whatever ``busy`` says; nothing is stored, and the key is free."""
        specs, edges = self.graph(harness, business_key="twice", busy=busy)
        with pytest.raises(BusinessKeyBusy):
            harness.store.insert(specs, now=harness.now, edges=edges)
        assert sum(harness.store.counts().values()) == 0
        harness.submit(business_key="twice")


class TestNotStored:
    """A submission that is answered with an older job leaves nothing behind and changes no other job."""

    @pytest.mark.parametrize("returning_first", [True, False])
    def test_it_replaces_nobody(self, harness: Harness, returning_first: bool) -> None:
        """One key of a graph is answered with its holder: the holder of the other key, which was to be replaced, stays."""
        answering, other = harness.submit(business_key="a"), harness.submit(business_key="b")
        keys: list[dict[str, Any]] = [
            {"business_key": "a", "busy": Busy.RETURN},
            {"business_key": "b", "busy": Busy.REPLACE},
        ]
        first, second = keys if returning_first else keys[::-1]
        root = harness.spec(**first)
        child = harness.child(root_id=root.job_id, **second)
        answers = harness.store.insert([root, child], now=harness.now, edges=[harness.edge(root, child)])
        assert [(one.job_id, one.created, one.replaced) for one in answers] == [(answering, False, None)] * 2
        assert harness.statuses([answering, other]) == [JobStatus.PENDING] * 2
        assert holder_of(harness, "b") == other

    def test_its_idempotency_key_goes_to_the_next(self, harness: Harness) -> None:
        """
        Two specs of a call share the key, and the first is answered with the holder of its business key:
        the second is stored.
        """
        holder = harness.submit(business_key="b")
        one = harness.spec(idempotency_key="i", business_key="b", busy=Busy.RETURN)
        two = harness.spec(idempotency_key="i")
        answers = harness.store.insert([one, two], now=harness.now)
        assert [(a.job_id, a.created) for a in answers] == [(holder, False), (two.job_id, True)]
        assert harness.status(two.job_id) is JobStatus.PENDING
        assert submit(harness, idempotency_key="i").job_id == two.job_id

    def test_its_business_key_goes_to_the_next(self, harness: Harness) -> None:
        """
        Two specs of a call share the key, and the first belongs to a graph that is answered: the second is
        stored with the key.
        """
        holder = harness.submit(business_key="b")
        root = harness.spec(business_key="free")
        child = harness.child(root_id=root.job_id, business_key="b", busy=Busy.RETURN)
        other = harness.spec(business_key="free")
        answers = harness.store.insert(
            [root, child, other], now=harness.now, edges=[harness.edge(root, child)]
        )
        assert [(a.job_id, a.created) for a in answers] == [
            (holder, False),
            (holder, False),
            (other.job_id, True),
        ]
        assert holder_of(harness, "free") == other.job_id

    def test_a_duplicate_is_answered_with_its_original(self, harness: Harness) -> None:
        """The answer is the original even if another key of the same graph is busy."""
        original, _ = submit(harness, idempotency_key="i").job_id, harness.submit(business_key="b")
        root = harness.spec(business_key="b", busy=Busy.RETURN)
        child = harness.child(root_id=root.job_id, idempotency_key="i")
        answers = harness.store.insert([root, child], now=harness.now, edges=[harness.edge(root, child)])
        assert [one.job_id for one in answers] == [original] * 2

    def test_the_first_holder_at_work_refuses_it(self, harness: Harness) -> None:
        """Two RUNNING holders are to be replaced: the first is canceled, the second goes on, and nothing is stored."""
        first, second = harness.running(business_key="a"), harness.running(business_key="b")
        specs = [harness.spec(business_key=key, busy=Busy.REPLACE) for key in ("a", "b")]
        with pytest.raises(BusinessKeyBusy, match=str(first.job_id)):
            harness.store.insert(specs, now=harness.now)
        assert harness.statuses([first.job_id, second.job_id]) == [JobStatus.CANCELED, JobStatus.RUNNING]
        assert harness.store.counts()[JobStatus.PENDING] == 0


class TestBusinessKeyBusy:
    def test_raise(self, harness: Harness) -> None:
        """The error names the key and its holder, and nothing of the call is stored."""
        holder = harness.submit(business_key="invoice-42")
        before, refused = harness.spec(), harness.spec(business_key="invoice-42")
        child = harness.child()
        with pytest.raises(BusinessKeyBusy) as caught:
            harness.store.insert(
                [before, refused, child], now=harness.now, edges=[harness.edge(before, child)]
            )
        assert (caught.value.key, caught.value.holder) == ("invoice-42", holder)
        assert [harness.store.get(s.job_id) for s in (before, refused, child)] == [None] * 3
        assert harness.store.edges_of(before.job_id) == []
        assert sum(harness.store.counts().values()) == 1

    def test_return(self, harness: Harness) -> None:
        """The answer is the holder; this spec is not stored, but the others are."""
        holder = harness.submit(business_key="k")
        mine, other = harness.spec(business_key="k", busy=Busy.RETURN), harness.spec()
        answers = harness.store.insert([mine, other], now=harness.now)
        assert [(a.job_id, a.created) for a in answers] == [(holder, False), (other.job_id, True)]
        assert harness.store.get(mine.job_id) is None

    @pytest.mark.parametrize("state", ["PENDING", "PAUSED", "WAITING"])
    def test_replace(self, harness: Harness, state: str) -> None:
        """The holder is CANCELED as superseded, its dependants are canceled too, and the new job has the key."""
        make = {"PENDING": harness.submit, "PAUSED": harness.paused, "WAITING": harness.waiting}[state]
        holder = make(business_key="k")
        child = harness.child()
        harness.insert([child], [harness.edge(holder, child)])
        answer = submit(harness, business_key="k", busy=Busy.REPLACE)
        assert (answer.created, answer.replaced) == (True, holder)
        old = harness.record(holder)
        assert (old.status, old.canceled_reason, old.superseded_by) == (
            JobStatus.CANCELED,
            "superseded",
            answer.job_id,
        )
        assert harness.status(child.job_id) is JobStatus.CANCELED
        assert holder_of(harness, "k") == answer.job_id

    def test_replace_a_running_holder(self, harness: Harness) -> None:
        """The holder is canceled, but its code is still running: the key stays taken until that code has ended."""
        claim = harness.running(business_key="k")
        with pytest.raises(BusinessKeyBusy) as caught:
            submit(harness, business_key="k", busy=Busy.REPLACE)
        assert caught.value.holder == claim.job_id
        assert harness.status(claim.job_id) is JobStatus.CANCELED
        with pytest.raises(BusinessKeyBusy):
            submit(harness, business_key="k", busy=Busy.REPLACE)
        harness.store.settle([claim], now=harness.now)
        assert submit(harness, business_key="k", busy=Busy.REPLACE).created

    def test_replace_a_free_key(self, harness: Harness) -> None:
        """No job holds the key, so it is an ordinary submission."""
        answer = submit(harness, business_key="k", busy=Busy.REPLACE)
        assert (answer.created, answer.replaced) == (True, None)

    def test_twice_in_one_call(self, harness: Harness) -> None:
        """Two live jobs never hold the same key, even if they come in one call."""
        specs = harness.specs(2, business_key="k")
        with pytest.raises(BusinessKeyBusy):
            harness.store.insert(specs, now=harness.now)
        assert [harness.store.get(s.job_id) for s in specs] == [None, None]
        assert holder_of(harness, "k") is None

    def test_the_same_id_again_is_not_busy(self, harness: Harness) -> None:
        """A repeated submission finds its own reservation, and that is not busy."""
        spec = harness.spec(business_key="k")
        for _ in range(2):
            assert [a.created for a in harness.store.insert([spec], now=harness.now)] == [True]

    def test_keys_are_told_apart_exactly(self, harness: Harness) -> None:
        """Case, trailing spaces and accents make different keys; 255 characters are allowed."""
        for key in ("a", "A", "a ", "á", "a" * 254, "a" * 255):
            assert submit(harness, business_key=key).created


class TestBusinessKeyHolding:
    def test_every_live_state_holds_it(self, harness: Harness) -> None:
        """PENDING, RUNNING, PAUSED and WAITING jobs hold their key."""
        holders = {
            "pending": harness.submit(business_key="pending", scheduled_at=harness.after(hours=1)),
            "running": harness.running(business_key="running").job_id,
            "paused": harness.paused(business_key="paused"),
            "waiting": harness.waiting(business_key="waiting"),
        }
        assert {key: holder_of(harness, key) for key in holders} == holders

    def test_every_end_frees_it(self, harness: Harness) -> None:
        """SUCCEEDED, FAILED and CANCELED jobs hold nothing; their records still show the key, for searches."""
        for job_id in (
            harness.succeeded(business_key="k"),
            harness.failed(business_key="k"),
            harness.canceled(business_key="k"),
        ):
            assert holder_of(harness, "k") is None
            assert harness.record(job_id).business_key == "k"

    def test_retries_keep_it(self, harness: Harness) -> None:
        """The key stays taken between two attempts, after a hand-back and after a postponement."""
        claim = harness.running(business_key="k")
        for decision in (harness.another_try(), HandBack(), Reschedule(at=harness.now)):
            harness.end(claim, decision)
            assert holder_of(harness, "k") == claim.job_id
            claim = harness.claim_job(claim.job_id)
        assert harness.store.hand_back([claim], now=harness.now) == 1
        assert holder_of(harness, "k") == claim.job_id

    def test_paused_from_failed_holds_nothing(self, harness: Harness) -> None:
        """The failure freed the key; pausing and resuming do not take it back."""
        job_id = harness.failed(business_key="k")
        assert harness.store.pause(job_id, now=harness.now)
        assert holder_of(harness, "k") is None
        assert harness.store.resume(job_id, now=harness.now)
        assert holder_of(harness, "k") is None

    def test_retry_takes_it_again(self, harness: Harness) -> None:
        """A job that is retried by hand is live again, so it holds its key."""
        job_id = harness.failed(business_key="k")
        assert harness.store.retry(job_id, now=harness.now)
        assert holder_of(harness, "k") == job_id

    def test_retry_of_a_key_that_was_taken(self, harness: Harness) -> None:
        """BusinessKeyBusy names the new holder, and the failed job is unchanged."""
        job_id = harness.failed(business_key="k")
        holder = harness.submit(business_key="k")
        before = harness.record(job_id)
        with pytest.raises(BusinessKeyBusy) as caught:
            harness.store.retry(job_id, now=harness.now)
        assert caught.value.holder == holder
        assert harness.record(job_id) == before
        assert len(harness.store.alerts_of(job_id)) == 1

    def test_a_canceled_run_keeps_it_until_its_code_has_ended(self, harness: Harness) -> None:
        """A job that was canceled while RUNNING keeps its key until `settle` frees it."""
        claim = harness.running(business_key="k")
        assert harness.store.cancel(claim.job_id, reason="r", now=harness.now)
        assert holder_of(harness, "k") == claim.job_id
        harness.store.settle([claim], now=harness.now)
        assert holder_of(harness, "k") is None

    def test_a_run_whose_code_goes_on_keeps_it(self, harness: Harness) -> None:
        """A timed-out run whose code could not be stopped keeps its key after the failure."""
        claim = harness.running(business_key="k")
        harness.end(claim, harness.failure(), still_running=True)
        assert harness.status(claim.job_id) is JobStatus.FAILED
        assert holder_of(harness, "k") == claim.job_id
        harness.store.settle([claim], now=harness.now)
        assert holder_of(harness, "k") is None

    def test_a_dead_node_frees_it(self, harness: Harness) -> None:
        """The code of ended runs ends with its node at the latest, and then their keys are free."""
        harness.register()
        canceled, still_running = harness.running(business_key="a"), harness.running(business_key="b")
        harness.store.cancel(canceled.job_id, reason="r", now=harness.now)
        harness.end(still_running, harness.failure(), still_running=True)
        harness.rescue()
        assert (holder_of(harness, "a"), holder_of(harness, "b")) == (None, None)

    def test_a_node_that_leaves_frees_it(self, harness: Harness) -> None:
        """A node that deregisters frees the keys that its ended runs still hold."""
        harness.register()
        claim = harness.running(business_key="k")
        harness.store.cancel(claim.job_id, reason="r", now=harness.now)
        harness.store.deregister(claim.node_id, now=harness.now)
        assert holder_of(harness, "k") is None

    def test_another_node_s_death_frees_nothing(self, harness: Harness) -> None:
        """Only the death of the node that runs the code frees the key."""
        harness.register("node-1")
        harness.register("node-2")
        claim = harness.running(business_key="k", node="node-1")
        harness.store.cancel(claim.job_id, reason="r", now=harness.now)
        harness.rescue("node-2")
        assert holder_of(harness, "k") == claim.job_id

    def test_settling_nothing_is_harmless(self, harness: Harness) -> None:
        """`settle` of a live run, of a claim that was never given out or of an unknown job takes nothing from anyone."""
        live, pending = harness.running(business_key="live"), harness.submit(business_key="pending")
        harness.store.settle(
            [live, harness.forged_claim(pending), harness.forged_claim(new_id())], now=harness.now
        )
        assert (holder_of(harness, "live"), holder_of(harness, "pending")) == (live.job_id, pending)
        harness.end(live)
