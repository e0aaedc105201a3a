"""The completer: many outcomes in one commit, bad data alone, nothing lost to a database that is away."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ratchet import Scheduler
from ratchet.engine.completer import Completer
from ratchet.engine.lanes.threads import ThreadLane
from ratchet.engine.run import Run, RunEnd, Stop
from ratchet.model.claim import ClaimRequest
from ratchet.model.clock import ManualClock
from ratchet.model.decision import (
    CanceledJob,
    Completion,
    CompletionAnswer,
    Interrupted,
    Returned,
    StoppedLate,
    TimedOut,
)
from ratchet.model.errors import BusinessKeyBusy, CommitUnknown, StoreUnavailable
from ratchet.model.identifiers import new_id
from ratchet.model.job import JobSpec
from ratchet.model.payload import encode
from ratchet.model.status import JobStatus
from ratchet.stores.memory import MemoryStore
from tests.support.lanes import task_for, tools_for
from tests.support.waiting import until


class Counting(MemoryStore):
    """Counts commits, and can be away, before or after it has done what was asked."""

    def __init__(self) -> None:
        super().__init__(lock_wait=timedelta())
        self.calls = 0
        self.away: list[type[StoreUnavailable]] = []

    def complete(self, completions: Sequence[Completion], **more: Any) -> list[CompletionAnswer]:
        self.calls += 1
        trouble = self.away.pop() if self.away else None
        if trouble is StoreUnavailable:
            raise StoreUnavailable("away")
        answers = super().complete(completions, **more)
        if trouble is CommitUnknown:
            raise CommitUnknown("the answer was lost")
        return answers


class Stand:
    """A store with claimed jobs, and a completer on it."""

    def __init__(self, jobs: int = 1, **spec: Any) -> None:
        self.store = Counting()
        self.clock = ManualClock()
        self.answered: list[RunEnd] = []
        self.expired: list[CanceledJob] = []
        tools = self.tools = tools_for(lambda: None)
        self.completer = Completer(
            transitions=self.store,
            task=task_for(tools),
            clock=self.clock,
            on_answer=self.answered.append,
            on_expired=self.expired.extend,
        )
        now = self.clock.now()
        for _ in range(jobs):
            self.store.insert(
                [JobSpec(job_id=new_id(), target="t", payload=encode((), {}), scheduled_at=now, **spec)],
                now=now,
            )
        claimed = self.store.claim_next_batch(
            ClaimRequest(node_id="node", claim_id=new_id(), limit=jobs), now=now
        )
        self.runs = [Run(job, tools, 0.0) for job in claimed]
        for run in self.runs:
            run.begin(0.0, now)

    def status(self, run: Run) -> JobStatus:
        record = self.store.get(run.job_id)
        assert record is not None
        return record.status


class TestCompleter:
    def test_what_waits_is_one_commit(self) -> None:
        """Five hundred outcomes, one call of the store."""
        stand = Stand(500)
        for run in stand.runs:
            stand.completer.put(run, Returned("1", False))
        assert stand.completer.run_once(stand.clock.now()) == 500
        assert stand.store.calls == 1
        assert stand.store.counts()[JobStatus.SUCCEEDED] == 500

    def test_bad_data_fails_alone(self) -> None:
        """One result in a hundred that the store refuses: 99 succeed, that one fails with the error."""
        stand = Stand(100)
        for number, run in enumerate(stand.runs):
            stand.completer.put(run, Returned('"bad \ud800"' if number == 37 else "1", False))
        stand.completer.run_once(stand.clock.now())
        counts = stand.store.counts()
        assert counts[JobStatus.SUCCEEDED] == 99
        assert counts[JobStatus.FAILED] == 1
        culprit = stand.store.get(stand.runs[37].job_id)
        assert culprit is not None
        assert culprit.error_type == "UnstorableData"
        assert len(stand.answered) == 100

    def test_a_database_that_is_away_loses_nothing(self) -> None:
        """What could not be written is kept, and written later, once."""
        stand = Stand(3)
        stand.store.away = [StoreUnavailable]
        for run in stand.runs:
            stand.completer.put(run, Returned())
        with pytest.raises(StoreUnavailable):
            stand.completer.run_once(stand.clock.now())
        assert stand.answered == []
        assert stand.completer.run_once(stand.clock.now()) == 3
        assert stand.store.counts()[JobStatus.SUCCEEDED] == 3

    def test_a_lost_answer_is_resolved_not_repeated(self) -> None:
        """The commit had happened: the second try finds its own row, and counts once."""
        stand = Stand(1)
        stand.store.away = [CommitUnknown]
        stand.completer.put(stand.runs[0], Returned("7", False))
        with pytest.raises(CommitUnknown):
            stand.completer.run_once(stand.clock.now())
        stand.completer.run_once(stand.clock.now())
        (end,) = stand.answered
        answer = end.answer
        assert answer is not None
        assert (answer.won, answer.replayed) == (True, True)
        assert len(stand.store.executions(stand.runs[0].job_id)) == 1


class TestFaults:
    """`put` raises nothing: it is called by the threads that run jobs."""

    @pytest.mark.parametrize("error", [ValueError("no"), SystemExit("no")])
    def test_a_run_about_which_nothing_can_be_decided(
        self, error: BaseException, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Not even its failure: it becomes a dead letter with the name of the error."""
        stand = Stand(1)

        def undecidable(*args: Any, **kwargs: Any) -> Any:
            raise error

        monkeypatch.setattr(stand.tools.decider, "_failure", undecidable)
        monkeypatch.setattr(stand.runs[0], "_context", SimpleNamespace(touched_state={"a": object()}))
        stand.completer.put(stand.runs[0], Returned("1", False))
        stand.completer.run_once(stand.clock.now())
        record = stand.store.get(stand.runs[0].job_id)
        assert record is not None
        assert record.status is JobStatus.FAILED
        assert record.error == f"{type(error).__name__}: what follows from the run could not be decided"
        assert record.dead_letter_reason == "undecidable"

    def test_an_answer_that_cannot_be_told(self) -> None:
        """The others of the batch are let go all the same: a node that holds them could not stop."""
        stand = Stand(3)
        answered = stand.answered.append

        def tell(end: RunEnd) -> None:
            answered(end)
            if end.run is stand.runs[0]:
                raise StoreUnavailable("away")

        stand.completer._on_answer = tell
        for run in stand.runs:
            stand.completer.put(run, Returned())
        assert stand.completer.run_once(stand.clock.now()) == 3
        assert [end.run for end in stand.answered] == stand.runs
        assert stand.completer.backlog() == 0


def deaf() -> None:
    time.sleep(2.0)


class TestCodeThatDoesNotEnd:
    def _busy(self, stand: Stand) -> bool:
        now = stand.clock.now()
        spec = JobSpec(
            job_id=new_id(), target="t", payload=encode((), {}), scheduled_at=now, business_key="one"
        )
        try:
            stand.store.insert([spec], now=now)
        except BusinessKeyBusy:
            return True
        return False

    def test_a_timed_out_run_keeps_its_key_until_its_code_ends(self) -> None:
        """The attempt has failed, the slot is replaced, and the key is still taken."""
        stand = Stand(1, business_key="one")
        run = stand.runs[0]
        run.request_stop(Stop.TIMED_OUT)
        assert run.give_up()
        stand.completer.put(run, TimedOut(timedelta(seconds=1), stopped=False))
        stand.completer.run_once(stand.clock.now())
        assert stand.status(run) is JobStatus.FAILED
        assert self._busy(stand)
        stand.completer.put(run, StoppedLate())
        stand.completer.run_once(stand.clock.now())
        assert not self._busy(stand)

    def test_code_that_ends_while_it_is_given_up_keeps_no_key(self) -> None:
        """Its end overtakes the end of its attempt, which says that it still runs: the store hears of it afterwards."""
        stand = Stand(1, business_key="one")
        run = stand.runs[0]
        run.request_stop(Stop.TIMED_OUT)
        assert run.give_up()
        stand.completer.put(run, StoppedLate())
        stand.completer.run_once(stand.clock.now())
        assert stand.status(run) is JobStatus.RUNNING
        stand.completer.put(run, TimedOut(timedelta(seconds=1), stopped=False))
        while stand.completer.backlog():
            stand.completer.run_once(stand.clock.now())
        assert stand.status(run) is JobStatus.FAILED
        assert not self._busy(stand)
        assert [type(end.outcome) for end in stand.answered] == [TimedOut, StoppedLate]

    def test_its_attempt_ends_although_its_slot_cannot_be_replaced(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """No new thread can be had: the job has failed all the same, and its key is free once the code has ended."""

        def none_left(*_: object) -> None:
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(ThreadLane, "replace", none_left)
        with closing(Scheduler(f"sqlite:///{tmp_path / 'jobs.db'}", allow=[__name__])) as scheduler:
            draft = scheduler.enqueue(deaf).with_max_retries(0).with_timeout(timedelta(seconds=0.2))
            handle = draft.with_business_key("one").submit()

            def is_free() -> bool:
                try:
                    return scheduler.enqueue(deaf).with_business_key("one").submit().cancel()
                except BusinessKeyBusy:
                    return False

            with scheduler:
                until(lambda: handle.status() is JobStatus.FAILED)
                until(is_free)

    def test_a_canceled_run_keeps_its_key_until_its_code_ends(self) -> None:
        """Giving up on canceled code frees its slot, not its key."""
        stand = Stand(1, business_key="one")
        run = stand.runs[0]
        stand.store.cancel(run.job_id, reason="by hand", now=stand.clock.now())
        run.request_stop(Stop.CANCELED)
        assert run.give_up()
        stand.completer.put(run, Interrupted("canceled", stopped=False))
        stand.completer.run_once(stand.clock.now())
        assert self._busy(stand)
        stand.completer.put(run, StoppedLate())
        stand.completer.run_once(stand.clock.now())
        assert not self._busy(stand)

    def test_a_run_that_was_canceled_while_it_finished_frees_its_key(self) -> None:
        """Its completion is refused, its code has ended: nothing may stay taken."""
        stand = Stand(1, business_key="one")
        run = stand.runs[0]
        stand.store.cancel(run.job_id, reason="by hand", now=stand.clock.now())
        stand.completer.put(run, Returned())
        stand.completer.run_once(stand.clock.now())
        assert stand.status(run) is JobStatus.CANCELED
        assert not self._busy(stand)


class TestExpiry:
    """A worker finds before the first start that the time of a job has passed; the claim decides whether that still counts."""

    def _found_expired(self) -> tuple[Stand, Run]:
        stand = Stand(1, expires_at=ManualClock().now() + timedelta(seconds=1))
        run = stand.runs[0]
        stand.clock.advance(timedelta(seconds=2))
        run.request_stop(Stop.EXPIRED)
        stand.completer.put(run, Interrupted("expired"))
        return stand, run

    def test_the_claim_that_found_it_ends_it(self) -> None:
        """The job is CANCELED as expired, without a run, and those who listen are told."""
        stand, run = self._found_expired()
        stand.completer.run_once(stand.clock.now())
        record = stand.store.get(run.job_id)
        assert record is not None
        assert (record.status, record.canceled_reason) == (JobStatus.CANCELED, "expired")
        assert [one.job_id for one in stand.expired] == [run.job_id]

    def test_a_lost_claim_ends_nothing(self) -> None:
        """Rescued from this node and started by another before its expiry: the run there goes on."""
        stand, run = self._found_expired()
        before = stand.clock.now() - timedelta(seconds=1.5)
        stand.store.hand_back([run.job.claim], now=before)
        (other,) = stand.store.claim_next_batch(
            ClaimRequest(node_id="other", claim_id=new_id(), limit=1), now=before
        )
        stand.completer.run_once(stand.clock.now())
        assert stand.status(run) is JobStatus.RUNNING
        assert stand.store.claims_of("other") == {other.claim.job_id: other.claim.claim_id}
        assert stand.expired == []
